"""Working sets: which variables are solved next, and the problem that they make.

The input is the dual problem and the standing of its rows; the output is new alpha and gradient of
some rows. `choice` chooses the rows that take part, `active` and `functions` keep the active rows
up to date between two sweeps, `subproblem`, `lanes` and `model_steps` solve. The steps
themselves belong to the families in `bigsvm.duals`. A new way to solve a working set is a
`WorkingProblem`.
"""
