"""Small problems: solved by LIBSVM, through scikit-learn's public classes, and certified here.

Up to some thousand rows the kernel matrix is small, and the overhead of a loop over working sets is
most of a fit. `rule` says which fits go this way, `kernel` makes the matrix by NumPy in float64,
`solve` has it solved, `pairs` takes the pairs of several classes from the answer, and `certify`
measures the KKT gap and the duality gap over all rows. No compiled code is needed. What does not
hold its tolerance is where the usual run starts. `bigsvm.fit.small_way` makes a model of it.
"""
