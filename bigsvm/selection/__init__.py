"""Choosing a model: folds of one data set, cross-validation, and searches of parameters."""
