"""What tests of several folders share: problems, comparisons, optima, and interrupted runs.

- `support.problems`: rows, labels and runs on them
- `support.same`: two results are the same to the bit
- `support.object_storage`: an S3 server, and faults of the network before it
- `support.resuming`: a run that is interrupted or killed, and gone on with
"""
