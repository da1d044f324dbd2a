"""The estimators: scikit-learn's conventions around `bigsvm.fit`.

The input is keyword arguments, rows and labels as scikit-learn has them, or stores; the output is a
fitted estimator. Arguments that several estimators share are fields (`arguments`), which come from
`bigsvm.parameters`. A new estimator is a class that inherits the groups of fields of its
formulation, as `svc` and `svr` show, and is listed in `bigsvm/__init__.py`.
"""
