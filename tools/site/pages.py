"""Which section of docs/guide.md and docs/measured.md is on which page of the site."""

from __future__ import annotations

from typing import NamedTuple


class Made(NamedTuple):
    """A page that is made of sections of a longer one.

    Attributes
    ----------
    name : str
        Of the page, without its folder.
    sections : tuple of str
        Headings of the longer page, the first of which is the title if there is no other one.
    title : str
    """

    name: str
    sections: tuple[str, ...]
    title: str = ""


GUIDE = {
    "Data": (
        Made("convert", ("Convert data",)),
        Made("formats", ("Parquet, CSV and other files",)),
        Made("words", ("Words and missing values",)),
        Made("append", ("Append and drop rows",)),
        Made("scale", ("Scale columns",)),
        Made("urls", ("Stores at URLs",), "Stores at URLs: S3 and other object storage"),
        Made("files", ("File formats",)),
    ),
    "Training": (
        Made("train", ("Train",)),
        Made("python", ("Python",), "Train from Python"),
        Made("advice", ("If the model is bad",), "Advice at the end of a run"),
        Made("search", ("Choose C and gamma",), "Choose C and gamma, cross-validate"),
        Made("plan", ("Plan a long run",), "Plan a long run: time, memory, disk"),
        Made("watch", ("Watch a run",)),
        Made("resume", ("Stop and resume",)),
        Made("memory", ("Memory and speed",)),
    ),
    "Models": (
        Made("predict", ("Predict",)),
        Made("probabilities", ("Probabilities",)),
        Made("reports", ("Reports and pictures",)),
        Made("export", ("Use a model elsewhere",), "Use a model elsewhere: ONNX, LIBSVM"),
    ),
    "Problems": (
        Made("formulations", ("Choose a formulation",)),
        Made("kernels", ("Kernels of fields",), "Kernels for fingerprints, histograms and texts"),
        Made("classes", ("Many classes",)),
        Made("balls", ("Very many rows: balls",)),
        Made("labels", ("Find wrong labels",)),
    ),
    "Coming from": (
        Made("from_libsvm", ("From LIBSVM",)),
        Made("from_scikit_learn", ("From scikit-learn",)),
    ),
    "Commands": (
        Made("replaced", ("What is replaced",), "What commands replace"),
        Made("exit_codes", ("Exit codes",)),
    ),
}
"""Pages of docs/guide.md by group. What is before its first section is the page of them all."""

MEASURED = (
    Made(
        "peers",
        (
            "Two classes, beside other libraries",
            "Overlapping classes",
            "A few thousand rows",
            "Columns that are not scaled",
            "Many classes",
            "Ten digits",
            "Regression and one class",
            "The same models as LIBSVM",
        ),
        "Beside other libraries",
    ),
    Made(
        "sizes",
        (
            "Time and memory by the number of rows",
            "Data larger than memory",
            "Memory of many classes",
            "Rows read from disk at every pass",
            "The workers of a cluster",
            "More workers",
            "The state of a billion rows",
        ),
        "Sizes: time and memory",
    ),
    Made(
        "quality",
        (
            "Probabilities of many classes",
            "Searching C and gamma",
            "Advice",
            "Forecasts",
            "Without a certificate",
            "Random fits against a slow float64 check",
        ),
        "Probabilities, searches, advice and forecasts",
    ),
)
"""Pages of docs/measured.md for users. Its other sections are on one page for developers."""

FOR_DEVELOPERS = "Measured for developers"
LIMITS = "Limits that the project sets itself"
"""Section of that page: the tables with a column ``limit`` of pages for users."""
PANELS = ("Arguments", "Problem", "Kernel", "Many classes", "Stopping", "Resources", "Options")
"""Groups of options on the page of a command: these come first."""

GROUPS = {
    "Data": ("open_store", "write_store", "convert", "scale_store", "append", "drop"),
    "Classifiers": ("SVC", "NuSVC", "L2SVC", "CrammerSingerSVC"),
    "Regression": ("SVR", "NuSVR"),
    "One class": ("OneClassSVM", "L2OneClassSVM"),
    "Selection": ("SearchCV", "cross_validate", "C_path"),
    "Pictures": ("HistoryDisplay", "SearchDisplay"),
    "Models and kernels": ("load", "KernelExpansion", "Kernel"),
    "Warnings": ("AdviceWarning",),
}
"""Public names of `bigsvm`, in the order of the reference. Names of its modules follow."""

OF_MODULES = {
    "bigsvm.callbacks": ("CheckpointCallback", "EarlyStopping"),
    "bigsvm.interchange": (
        "to_scikit_learn",
        "to_onnx",
        "write_libsvm_model",
        "read_libsvm_model",
    ),
}
"""Public names outside of `bigsvm` itself."""

TASKS = {
    "convert Parquet": "guide/formats",
    "a store on S3": "guide/urls",
    "resume": "guide/resume",
    "probabilities": "guide/probabilities",
    "imbalance": "gallery/bad_model#few-rows-of-one-class",
    "choose C and gamma": "guide/search",
    "ONNX": "guide/export",
    "a cluster": "cluster",
    "own kernel": "gallery/own_kernel",
    "why is my model bad": "gallery/bad_model",
}
"""What people look for, and where it is: found from the start page in at most three clicks."""
CLICKS = 3
