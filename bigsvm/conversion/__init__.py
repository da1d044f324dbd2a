"""Conversion: stores made of arrays, of text and of files of other programs, and text of stores.

A format is opened as `Batches`, rows with their labels that come in batches, or as arrays that are
read by row numbers; `bigsvm.conversion.formats` has one line for each. The libraries that read a
format are extras, which are imported when a source of that format is opened.
"""
