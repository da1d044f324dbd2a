"""Rows: where they come from, the store they are kept in, and how they are read."""
