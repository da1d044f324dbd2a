"""Stores that change: rows appended or dropped, and models of the store before that go on.

A store is never written to. `append` makes the larger store beside it, in which whole shards are
the same files, and exchanges the two in one step. So a reader that has the store open still finds
its rows, or is refused, and a process that is killed leaves the old store or the new one.
"""
