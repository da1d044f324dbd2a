"""Rows: where they come from, the store that keeps them, and how they are read in blocks.

The input is arrays, tables, Dask and Zarr arrays, LIBSVM text or the path of a store; the output is
a `RowSource`, all that other folders know of data, or a store. `rows` has what is done to rows in
memory, `row_source` the interface, `sources` makes a source of any container and `views` a source
of another one. `from_text` and `from_arrays` write a store and `store` reads it; `schema` has its
format. A new kind of data is a `RowSource` that passes ``tests/data/row_contracts.py`` and has its
place in `sources.as_row_source`; a new text format is read beside `libsvm`.
"""
