"""A plugin of pytest that puts bigsvm's estimators in the place of scikit-learn's.

It writes the outcome of each test to the file that the variable OUTCOMES names, as JSON.
"""

import json
import os
from pathlib import Path

import sklearn.svm

import bigsvm

for name in ("SVC", "NuSVC", "SVR", "NuSVR", "OneClassSVM"):
    setattr(sklearn.svm, name, getattr(bigsvm, name))

outcomes = {}


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        outcomes[report.nodeid.rpartition("::")[2]] = report.outcome


def pytest_sessionfinish():
    Path(os.environ["OUTCOMES"]).write_text(json.dumps(outcomes))
