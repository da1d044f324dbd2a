"""Every parameter, declared once: what the estimators and ``bigsvm train`` are made from.

In comes nothing; out go `TrainingParameters`, checked, and the fields that it and the estimators
share. `names` has the formulations and the words of choices, `declaration` says what is known of a
parameter, `groups` and `training` declare them. A parameter is added to `training` (or to a group,
if several estimators have it); an estimator that has no such group names it with `again`.
"""

from bigsvm.parameters.training import FIELDS, TrainingParameters

__all__ = ["FIELDS", "TrainingParameters"]
