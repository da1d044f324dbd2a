"""An estimator of each kind whose models are written in other formats."""

import bigsvm

KINDS = [
    bigsvm.SVC(),
    bigsvm.SVC(kernel="linear"),
    bigsvm.SVC(kernel="poly", degree=2, coef0=0.5),
    bigsvm.SVC(kernel="sigmoid", gamma=0.1),
    bigsvm.SVC(loss="squared_hinge"),
    bigsvm.L2SVC(),
    bigsvm.NuSVC(nu=0.3),
    bigsvm.OneClassSVM(nu=0.2),
    bigsvm.L2OneClassSVM(C=10),
    bigsvm.SVR(),
    bigsvm.NuSVR(),
]
