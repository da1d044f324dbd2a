"""From rows, labels and parameters to a model: the one driver of every formulation.

The input is a `RowSource`, labels, weights and `TrainingParameters`; the output is a
`KernelExpansion`. The estimators and ``bigsvm train`` call `train.train_model`. It chooses a
`reduction.Reduction`, which makes the problems, plans their memory, solves them, and makes
functions of the results: `single`, `one_vs_rest`, `one_vs_one`, `crammer_singer`. The next way to
many classes is a module beside these and a line in `train.reduction_of`. A new formulation needs
nothing here: `problem` makes it from its table in `bigsvm.duals`.
"""
