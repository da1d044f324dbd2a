"""The dual problems: what a formulation is, when a point is optimal, how a working set is solved.

A formulation (`formulations`, `ball`, `crammer_singer`) is data: linear term, bounds and ridge of
the variables of some rows. Several that are trained together are `functions`, as `one_vs_rest`
has. A `Dual` (`dual`) scores and selects rows from alpha and outputs; its `Steps` solve a working
set from kernel rows: `pair_steps`, `row_steps`, `function_steps`. A formulation with variables in
boxes goes into `formulations`. Another family needs a `Dual` and `Steps`; what only some families
can do is a protocol in `abilities`.
"""
