"""Training: the one loop that solves a dual problem to a certified tolerance.

The input is a `RowSource`, a dual problem, kernel tiles and a plan of the memory; the output is a
`TrainingResult`: alpha, thresholds and a certificate. `loop` solves, `sweep` has its passes over
the rows, `certify` the certificate. `run` has the state that the phases change, `checkpoint` and
`check_saved` store and check it, `events` tells of it. A new field of the state goes into `state`
and `check_saved`; a new executor of passes goes beside `executors.LocalExecutor`.
"""
