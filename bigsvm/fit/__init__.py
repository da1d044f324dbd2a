"""Training: from rows, labels and parameters to a model, whatever is trained.

In come a `RowSource`, labels, weights and `TrainingParameters`; out goes a `KernelExpansion`. The
estimators and ``bigsvm train`` call `train.train_model`. `problem` makes the formulation, `setting`
what surrounds a run, `variables` the order of the rows; `trainer` runs it. Many classes are reduced
by `one_vs_one` and `one_vs_rest`; the next reduction is a module beside them.
"""
