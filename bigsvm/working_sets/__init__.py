"""Working sets: which variables are solved next, and the problem they make.

In come the dual problem and where its rows stand, out come a new alpha and gradient of some rows.
`choice` says which rows take part, `active` and `functions` keep the rows that matter between two
sweeps, `subproblem`, `lanes` and `together` solve. The solving itself, step by step, is that of a
family in `bigsvm/duals/`; a new way to combine such problems has its place here.
"""
