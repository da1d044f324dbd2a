"""The suites of ``python -m tools.benchmarks SUITE``: a module each, found by its name.

A suite is data. To add one, write ``suites/NAME.py`` with a docstring, whose first line is what
``--list`` shows and which ``NAME --help`` prints, and a `bench.Suite` called ``SUITE``::

    SUITE = Suite(
        cases=data_cases,
        data=("a9a", "w8a"),                       # what --data is by default
        contestants=("memory", "sklearnex"),       # of contestants.py; --contestants chooses
        columns=(
            *("data", "who", "seconds"),           # of results.COLUMNS
            ("÷ memory", ratio_to("memory")),      # taken within a turn
            ("bounded", "n_bounded"),              # an entry of the answer of the last fit
        ),
        limits=lambda results: [
            at_least(f"sklearnex ÷ memory, {row.case.name}", row.ratio("memory"), limit=1.5)
            for row in results.rows("sklearnex")
        ],
    )

A *case* is a data set with parameters of an estimator (`results.Case`). A *contestant* fits it, in
a process of its own, and answers with a JSON object. A *row* (`results.Row`) has the answers of one
contestant on one case, or of all; the cells of a table are made of it. A *limit* "holds", "does not
hold", or is "not known" where somebody was stopped. `bench.Suite` lists all fields: one process for
all fits of short problems, limits of time, growing sizes, floors, ``--base CHECKOUT``, options of a
suite's own.

A module with several suites has ``PARTS``, a dictionary of them, instead of ``SUITE``;
``--part NAME`` chooses one, with options of its own.

Where fitting an estimator is not what is measured, ``do="tools.benchmarks.suites.NAME:function"``
names a function of one argument, the job: a dictionary with the keys ``who``, ``parameters``,
``folder``, ``layout``, ``turn`` and ``name``. It runs in the child and returns a JSON object with
``seconds``. Contestants are then any names; what the function does with them is its own business.
`contestants.read_rows(job)` reads the rows of the case; `contestants.train_and_test(job, model)`
trains an estimator of the suite's own on them, and tests it on the other part of the data set. A
suite that writes nothing has ``folder=False``, and no option ``--folder``.

Where the turns themselves are different (a process is killed, or pages are dropped while it runs),
``program`` is a function of the options that prints and returns an exit code. It uses the parts of
`bench`, `results` and `children`: `run_checked`, `table`, `verdicts`.

Suites import NumPy and bigsvm inside functions only, as `children.py` says. What a suite printed,
with the command line, is kept beside it in ``tools/benchmarks/NAME.txt`` where docs/measured.md
cites it; ``--output FILE`` appends it to a file.
"""
