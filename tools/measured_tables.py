"""What docs/measured.md and the table of README.md show of the printed outputs of benchmarks.

Nothing here is a figure: a `Table` names a text and words that stand before exactly one table of it
(in its command, the lines above it or its header), and a `Cell` names a row and a column of such a
table. `tools.measured` looks them up.
"""

from __future__ import annotations

from typing import NamedTuple


class Table(NamedTuple):
    """The one table of a text with these words before it; of its rows those with `only`."""

    text: str
    words: tuple[str, ...] = ()
    only: str = ""


class Line(NamedTuple):
    """The lines of a text that have these words: what a benchmark says in a sentence."""

    text: str
    words: str


class Section(NamedTuple):
    """A heading of the page, what a reader has to know, and what was printed."""

    heading: str
    about: str
    shown: tuple[Table | Line, ...]


class Cell(NamedTuple):
    """The figure in `column` of the one row that has each of `row` as a cell."""

    table: Table
    row: tuple[str, ...]
    column: str


class Row(NamedTuple):
    """A row of README's table. None is not measured."""

    data: str
    rows: int
    bigsvm: Cell
    sklearn: Cell | None
    sklearnex: Cell | None
    memory: Cell | None
    memory_of_sklearnex: Cell | None


def _peer(data: str, rows: int, words: str) -> Row:
    table = Table("peers", (words, "| who"))
    who = [Cell(table, (each,), "seconds") for each in ("memory", "sklearn", "sklearnex")]
    memory = [Cell(table, (each,), "peak RSS MB") for each in ("memory", "sklearnex")]
    return Row(data, rows, *who, *memory)


_TEN = Table("many_classes", ("| who",))
_SMALL = Table("unscaled", ())
_POLY = ("satimage.scale", "poly, degree 2, coef0 1.0, gamma scale, C 100.0")
_GROWTH = Table("growth", ("peak RSS MB",))
_LARGE = Table("out_of_core", ("| what",))

ROWS = (
    Row(
        "satimage, polynomial kernel",
        4435,
        Cell(_SMALL, _POLY, "bigsvm"),
        Cell(_SMALL, _POLY, "sklearn"),
        Cell(_SMALL, _POLY, "sklearnex"),
        None,
        None,
    ),
    _peer("a9a, 123 columns", 32561, "a9a:"),
    _peer("w8a, 300 columns", 49749, "w8a:"),
    _peer("mnist, digits 0-4 against 5-9", 60000, "mnist:"),
    Row(
        "mnist, ten digits",
        60000,
        Cell(_TEN, ("ovo",), "seconds"),
        None,
        Cell(_TEN, ("sklearnex",), "seconds"),
        Cell(_TEN, ("ovo",), "peak RSS MB"),
        Cell(_TEN, ("sklearnex",), "peak RSS MB"),
    ),
    _peer("made, 22 columns", 100000, "few-100000:"),
    Row(
        "made, 50 columns",
        200000,
        Cell(_GROWTH, ("200000", "store"), "seconds"),
        None,
        Cell(_GROWTH, ("200000", "sklearnex"), "seconds"),
        Cell(_GROWTH, ("200000", "store"), "peak RSS MB"),
        Cell(_GROWTH, ("200000", "sklearnex"), "peak RSS MB"),
    ),
    Row(
        "made, 200 columns, 4 GB",
        5000000,
        Cell(_LARGE, ("seconds of training",), "value"),
        None,
        None,
        Cell(_LARGE, ("peak RSS by its own count, MB",), "value"),
        None,
    ),
)

INTRODUCTION = """
# Measured

This page is written by `python -m tools.measured` from the texts that benchmarks have printed.
Each table is shown as it was printed, below the command that prints it and the machine.

* Compare seconds within a table only. The speed of a machine differs from day to day, and tables
  are of different days and versions.
* Contestants take turns, each in a process of its own. A figure is the median of the turns, with
  the least and the most in brackets.
* `>` means that a run was stopped before its end.
* `store` is `bigsvm train` on a store, `memory` is `bigsvm.SVC` on arrays. Both have a budget of
  1 GB unless the table says otherwise. A store as small as these is read once and held in memory.
* `sklearn` is scikit-learn. `sklearnex` is scikit-learn-intelex, with float32 rows and the faster
  of dense and sparse rows. Both have a cache of 200 MB unless the section says otherwise.
* A *floor* is one evaluation of the decision function on all training rows: about the least that
  it takes to certify a solution. Equal rows are evaluated once, so a run can stay below it.
* Peak RSS is the largest resident memory of the process, the Python interpreter included.
"""

SECTIONS = (
    Section(
        "Two classes, beside other libraries",
        """
Parameters: a9a `C=1`, `gamma=0.008`; w8a `C=8`, `gamma=0.05`; made rows, of which a twentieth
become support vectors, `C=32`, `gamma=2`; mnist, digits 0 to 4 against 5 to 9, `C=50`,
`gamma=1/(2·3500²)`. scikit-learn is stopped after some times the seconds of bigsvm. The last
table holds the figures against limits that the project has set itself; what does not hold is to
be improved.
""",
        (
            *(
                Table("peers", (data, "| who"))
                for data in ("a9a:", "w8a:", "few-100000:", "mnist:")
            ),
            Table("peers", ("| what",)),
        ),
    ),
    Section(
        "Overlapping classes",
        """
Where classes overlap, many rows become support vectors, and more rows violate at once than a
working set holds. One thread. `this` is the version of the day, `base` an earlier version (commit
833f907).
""",
        (
            Table("crowded", ("--sizes 50000 --repeats 3", "| who")),
            Table("crowded", ("--sizes 50000 100000", "| who")),
        ),
    ),
    Section(
        "A few thousand rows",
        """
All contestants run in one process, with a cache of 1000 MB, and many classes one against one.
`gamma` is 1 and 16 over the average squared distance of two rows; with the larger one nearly all
rows become support vectors. scikit-learn is faster where a problem takes about a tenth of a
second.
""",
        (Table("small_problems"), Line("small_problems", "ours: geometric mean")),
    ),
    Section(
        "Columns that are not scaled",
        """
A linear or polynomial kernel, a large `C` and columns as they come take pair steps by the
million. bigsvm goes over to an interior-point method where the kernel has few enough dimensions,
and certifies its solution like any other. Classes are even against odd ones. `right %` is the
accuracy on the training rows, of each contestant that ended: it shows that they solve the same
problem. `bigsvm scale` usually makes the better model.
""",
        (Table("unscaled"), Line("unscaled", "the geometric mean")),
    ),
    Section(
        "Many classes",
        """
Test errors of Crammer and Singer's machine and of one against the rest. `C`, `gamma` and the way
rows are prepared are chosen by cross-validation on training rows: images of mnist and usps are
smoothed and normalised, columns of letter half whitened. [papers.md](papers.md) compares them
with the paper, whose claim that its machine errs less than one against the rest is not
reproduced.
""",
        (Table("crammer_singer", ("decrease in error",)),),
    ),
    Section(
        "Ten digits",
        """
All of mnist. scikit-learn-intelex trains pairs of classes, as `ovo` does. `separate` is ten runs
of one class against the rest, which `ovr` trains together.
""",
        (Table("many_classes", ("| who",)), Table("many_classes", ("| check",))),
    ),
    Section(
        "Memory of many classes",
        """
Peak memory for the 26 letters and for a thousand made classes of 20 rows each. `interpreter` is
the peak of a process that has only imported and compiled the same code.
""",
        (Table("class_memory", ("budget MB",)),),
    ),
    Section(
        "Data larger than memory",
        """
Five million rows of 200 columns, 4 GB, trained in a budget of 1 GB; then once more, killed at a
random moment and resumed.
""",
        (
            Table("out_of_core", ("| what",)),
            Table("out_of_core", ("killed after", "| check")),
        ),
    ),
    Section(
        "Time and memory by the number of rows",
        """
`bigsvm train --memory 128MB`. Each size is the first rows of the next; every fifth row becomes a
support vector.
""",
        (
            Table("growth", ("peak RSS MB",)),
            Line("growth", "was given up"),
            Table("growth", ("SVs ~ n^",)),
        ),
    ),
    Section(
        "Rows read from disk at every pass",
        """
The same store read again at every pass (`streamed`, in a budget of five times its size), read
once and held (`held`), and held in 1 GB (`memory`). `from disk` is what the system has read; the
rest comes decoded from its cache.
""",
        tuple(
            Table("streaming", (data, "| rows"))
            for data in ("few-100000, dense:", "mnist, dense:", "mnist, csr:")
        ),
    ),
    Section(
        "The workers of a cluster",
        """
Two workers with one thread each train the store that one process trains with two threads, all on
the same machine: what a cluster costs there, not what it gains. The rows are 500 000 of 54 columns,
in a budget of 500 MB. How to use a cluster is on [its page](cluster.md).
""",
        (
            Table("cluster", ("waiting for workers",)),
            Table("cluster", ("--part work", "| check")),
        ),
    ),
    Section(
        "More workers",
        """
The same rows on one, two, four and eight workers, in slowed-down time: a worker sleeps until each
kernel value has taken 20 ns, and each byte that it is sent or sends back its share of 62.5 MB a
second. So eight of them need little of two cores. `far` is the wait for workers. The model adds up
the kernel values and the bytes of each run, and for each of its passes the time of one without
kernel values. More workers are sent more products: `floors` and `passes` grow. The second table is
that model for problems of other sizes, at the speed of this machine.
""",
        (
            Table("cluster", ("--part scaling", "far, s")),
            Line("cluster", "floors on workers"),
            Table("cluster", ("--part scaling", "coordinator")),
            Table("cluster", ("--part scaling", "| check")),
        ),
    ),
    Section(
        "Reading a store",
        """
Training reads stores by zarr-python, as lazy blocks of Dask, and verifies every chunk. Zarr alone
reads the same rows without either; with its own codecs it does without `zarrs`. The largest peak is
that of the run that made the store.
""",
        (Table("reading", ("read by",)), Table("reading", ("| check",))),
    ),
    Section(
        "Regression and one class",
        """
A million made rows of 20 columns, read from disk at every pass in a budget of 500 MB, and
cpusmall.
""",
        (Table("at_size", ("| run",)),),
    ),
    Section(
        "Without a certificate",
        """
`certify=False` works on a growing random part of the rows. CPU seconds and accuracy beside
certified training of the same data.
""",
        tuple(
            Table("uncertified", (data, "points lost"))
            for data in ("w8a", "--repeats 1 --data mnist")
        ),
    ),
    Section(
        "Minimal enclosing balls",
        """
`L2SVC`, certified and from samples of 59 and 4 rows, beside `SVC` with the same kernel and `C`,
and beside bigsvm's code made to take one point a round, as LibCVM does, and stopped after five
seconds. These texts are older than today's searches: then a search that filled its memory ended
there (`core_full`), and `mfw` looked at many samples a round. Today such a search goes on, and
`mfw` is the paper's.
""",
        (
            *(Table("balls", (data,)) for data in ("C 1, gamma 0.008", "C 8, gamma 0.05")),
            Table("balls", ("C 50, gamma",)),
            Table("balls", ("C 1, gamma 0.06491",)),
        ),
    ),
    Section(
        "A ball of five million rows",
        """
Made rows of 127 columns with `--memory 700MB`. A ball from samples takes less time than reading
the rows, and a step takes about as long for five million rows as for ten thousand.
""",
        (
            Table("balls_at_scale", ("--part runs", "| run")),
            Table("balls_at_scale", ("--part steps", "| rows")),
        ),
    ),
    Section(
        "Kernel rows on disk",
        """
`--working-set all`, memory for a tenth of the kernel rows, without and with `--disk-cache`: of
rows with many columns, and of rows with few, where reading a kernel row takes as long as
computing it.
""",
        (
            *(Table("disk_tier", (data,)) for data in ("wide:", "narrow:")),
            Line("rows_again", "cells in which"),
        ),
    ),
    Section(
        "Rules of working-set selection",
        "`--selection` with `--working-set all` and memory for a share of the kernel rows.",
        (Table("hmg", ("mnist, first 12000 rows",)),),
    ),
    Section(
        "Shrinking",
        """
`--working-set all` without and with `--shrinking`, one thread, caches of a paper's sizes. By
default shrinking is on where memory holds less than a tenth of the kernel rows.
""",
        (Table("hmg", ("--part shrinking", "cache")),),
    ),
    Section(
        "The same models as LIBSVM",
        """
Every formulation with every kernel, dense and sparse, on thirteen data sets at `tol=1e-5`, beside
scikit-learn's LIBSVM. What is compared are objectives, decision values and labels. Shown is what
does not hold: a model of LIBSVM whose KKT gap, recomputed in double precision, is far above the
tolerance.
""",
        (Table("parity", (), only="theirs is not at tol"), Line("parity", "of 128")),
    ),
    Section(
        "Random fits against a slow float64 check",
        """
Formulation, kernel, container, weights, classes, tolerance, memory, threads, interruption and
workers are drawn. Box, sums, KKT gap, objective and duality gap of each fit are computed again from
its coefficients and the data alone, and so are decision values and predictions of other rows, in
another container; a fit that was interrupted or killed must come to the same bits. `right` is all
of that; `refused` is an error of one sentence, most often as the memory drawn is too little, nu
infeasible, or the data were spoilt on purpose; `wrong` is anything else, and `raw` an error of
Python's own, a crash, or a fit that does not end.
""",
        (Table("random", ("random --cases",)),),
    ),
    Section(
        "Probabilities of many classes",
        """
One model of nine tenths of the rows, calibrated on the others (of mnist the first 10 000 rows are
taken), beside scikit-learn's `CalibratedClassifierCV(SVC(), method="sigmoid", ensemble=False)`.
Coupled class pairs (`pairs, shared`: the default) and a softmax of one function for each class
(`ovr, shared`) are what `calibration="sigmoid"` does. Where pairs are coupled, the largest
probability is moved to the predicted class; `pairs, coupled` is without that. ECE, the expected
calibration error, is the mean distance of the largest probability and the share that is right.
`same` is the share of rows whose likeliest class is the predicted one; `falls` that in which the
probability of a class, drawn at random, falls though all its values have risen by 0.01, and `by`
the largest such fall.
""",
        (Table("probabilities", ("| data",)), Table("probabilities", ("| check",))),
    ),
    Section(
        "Searching C and gamma",
        """
A grid of 5 x 5 points and 3 folds, one thread. `halving` and `warm starts` are `bigsvm.SearchCV`
with `halving=3` and without; `separate fits` is scikit-learn's `GridSearchCV` of `bigsvm.SVC`. CPU
seconds of the whole search, predictions included.
""",
        (
            Table("search_times", ("a9a:", "best point")),
            Table("search_times", ("a4a:", "best point")),
            Table("search_times", ("search_times\n", "| check")),
        ),
    ),
    Section(
        "Advice",
        """
What bad fits are told, their scores on rows that were trained on and on others, and these scores
where the advice is followed. The scores are the balanced accuracy of classes, R² of a regression,
and of one class the area under the ROC curve that tells its rows from all others. Every fit is made
of an array and of a store with a small memory. Good fits are told nothing.
""",
        (
            Table("advice", ("| bad fit",)),
            Table("advice", ("| good fit",)),
            Line("advice", "are told what they should be"),
        ),
    ),
    Section(
        "Forecasts",
        """
What `estimator.plan` says before a fit, beside what the fit then takes. `planning` is the time of
the plan in that of the fit. A fit of class pairs estimates its time itself: `own ratio` is its
first estimate divided by the truth. Limits are for fits of ten seconds or more.
""",
        (Table("plan", ("planned [range]",)), Table("plan", ("| check",))),
    ),
    Section(
        "Reading LIBSVM text",
        """
Two threads, beside scikit-learn's `load_svmlight_file`, which returns all rows: in chunks, each
given up for the next, as conversion does, and put together as a whole. The second table is of
memory that the system has just handed out.
""",
        (Table("parse", ("--repeats 3\n",)), Table("parse", ("--fresh-memory",))),
    ),
)
