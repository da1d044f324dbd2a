"""docs/cluster.md says what the code does: its numbers, and what no other test has.

Behaviour is tested where it is: in this folder, and in tests of estimators, commands and searches.
"""

import re
import time
import tomllib
from types import SimpleNamespace

import numpy as np
import pytest
from command_line import REPOSITORY

import bigsvm
from bigsvm.data import storage
from bigsvm.errors import ClusterError
from bigsvm.estimators import lazily
from bigsvm.executors import audit, passes, sizing, worker_state, workforce
from bigsvm.small import rule
from tools.fake_workers import fake_workforce

PAGE = " ".join((REPOSITORY / "docs" / "cluster.md").read_text(encoding="utf-8").split())
WORDS = {"three": 3, "four": 4, "ten": 10, "third": 3, "minute": 60}
"""Numbers that the page has as words."""
NUMBERS = [
    ("waits for workers without limit, and says so each (minute)", workforce.TOLD_SECONDS),
    ("once (four) others have had tasks there", worker_state.RUNS_KEPT),
    ("A fit of at most (2000) rows", rule.MOST_ROWS),
    ("has blocks of at most (32) MB", lazily.ORDERED_BLOCK >> 20),
    ("room for (three) times the share is enough", sizing.SHARE_MOVED),
    ("gives no sign of life for (ten) seconds", passes.SILENT_SECONDS),
    ("cannot be reached it waits for a (minute) at most", workforce.SCHEDULER_SECONDS),
    ("the scheduler does not answer for a (minute)", workforce.SCHEDULER_SECONDS),
    ("take more than a (third) of a worker's memory", sizing.SHARE_MOVED),
    ("cannot connect to a worker within (three) seconds", workforce.REACH_SECONDS),
    ("the coordinator draws (64) sums", audit.LEAST_PROBES),
    ("or (8) for each thread of the workers", audit.PROBES_PER_THREAD),
    ("In a product among chosen rows it draws (8)", audit.MOST_READ),
    ("of rows that are read at most (8)", audit.MOST_READ),
    ("An error says so after (four) of them", passes.MOST_LOSSES),
    ("It draws (2) % of the sums at most", 100 * audit.SHARE),
    ("for p = 0.1 that is (65) % after 10", round(100 * (1 - 0.9**10))),
    ("after 10 of them, (99.5) % after 50", round(100 * (1 - 0.9**50), 1)),
]


@pytest.mark.parametrize(("sentence", "number"), NUMBERS)
def test_the_page_has_the_numbers_of_the_code(sentence, number):
    before, said, after = re.fullmatch(r"(.*)\((.*)\)(.*)", sentence).groups()
    assert before + said + after in PAGE
    assert number == (WORDS[said] if said in WORDS else float(said))


def test_a_store_that_cannot_be_reached_is_tried_for_minutes():
    assert "Reading is tried again for some minutes" in PAGE
    assert storage._TIMEOUT >= 120


def test_checked_sums_are_less_than_a_thousandth_of_a_pass():
    rows, workers = 100_000, 4
    assert "less than 0.1 % of the kernel values of a pass over 100 000 rows" in PAGE
    read = audit.RowsReadAgain.__new__(audit.RowsReadAgain)
    read.n_rows, read._threads = rows, lambda: workers
    assert len(read.probes) + workers < 0.001 * rows


def test_the_extra_has_what_the_page_says():
    assert "pip install 'bigsvm[cluster]' # dask.distributed, and bokeh for its dashboard" in PAGE
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    named = {re.split(r"[^a-z0-9-]", requirement)[0] for requirement in extras["cluster"]}
    assert {"distributed", "bokeh"} <= named


def test_a_small_fit_is_done_here(client, monkeypatch):
    monkeypatch.setenv("BIGSVM_SMALL", "auto")
    monkeypatch.setattr(client, "submit", None)  # nothing can be asked of workers
    X = np.random.default_rng(0).normal(size=(300, 3))
    model = bigsvm.SVC().fit(X, X[:, 0] > 0, client=client)
    assert "n_workers" not in model.certificate_


@pytest.mark.parametrize("silent", [0.9, 1.1])
def test_a_scheduler_has_a_minute_to_answer(silent):
    force, now = fake_workforce(1), time.monotonic()
    force._client = SimpleNamespace(status="running")
    force._asked_since = now - silent * workforce.SCHEDULER_SECONDS
    if silent > 1:
        with pytest.raises(ClusterError, match="scheduler fake:// does not answer"):
            force._check_connection(now)
    else:
        force._check_connection(now)


OWN = """
import numpy as np
import bigsvm

class OfThisProcess(bigsvm.Kernel):
    name = "of this process"

    def from_products(self, dots, norms_rows, norms_columns):
        return np.asarray(dots) + 1
"""


def test_a_kernel_that_workers_cannot_import_ends_the_run(
    client, many_tasks, tmp_path, monkeypatch
):
    """The page says that it must be in a module that they can import."""
    (tmp_path / "kernel_of_one_process.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    from kernel_of_one_process import OfThisProcess

    X = np.random.default_rng(0).normal(size=(3000, 3)).astype(np.float32)
    model = bigsvm.SVC(kernel=OfThisProcess(), memory="2MB")
    with pytest.raises(ClusterError, match=r"worker tcp.*No module named 'kernel_of_one"):
        model.fit(X, X[:, 0] * X[:, 1] > 0, client=client)
