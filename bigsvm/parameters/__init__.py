"""Every parameter, declared once: what the estimators and ``bigsvm train`` are made from.

The input is values from a caller; the output is `TrainingParameters`, checked, and the fields that
it and the estimators share. `declaration` says what is known of a parameter; `formulations`,
`groups` and `training` declare them; `checks` refuses values that no run would use. A formulation
is added to `formulations` with its own parameters, a parameter that several estimators inherit to
`groups`, another one to `training`; an estimator without a group for a parameter names it with
`again`.
"""

from bigsvm.parameters.training import FIELDS, TrainingParameters

__all__ = ["FIELDS", "TrainingParameters"]
