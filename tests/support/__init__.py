"""What tests of several folders share: problems, comparisons, optima, and interrupted runs.

- `support.problems`: rows, labels and runs on them
- `support.same`: two results are the same to the bit
- `support.object_storage`: an S3 server, and faults of the network before it
- `support.resuming`: a run that is interrupted or killed, and gone on with
"""

HANGS = 300.0
"""Seconds after which what has not happened never will, on a busy machine too.

Tests wait for events, and fail by this only where something is broken.
"""
