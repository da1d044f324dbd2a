"""Checkpoints that were damaged on purpose, with hashes that fit: refused, or without effect."""

import os
import shutil

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from bigsvm.data.sources import as_row_source
from bigsvm.errors import CheckpointError
from bigsvm.fit.train import train_model
from bigsvm.one_vs_one.log import PairLog
from bigsvm.parameters import TrainingParameters
from bigsvm.training import events
from bigsvm.training.check_saved import ROW_STATE, SEARCH_STATE
from bigsvm.training.checkpoint import Checkpoint
from bigsvm.training.events import Hooks
from bigsvm.training.generations import newest_manifest
from bigsvm.training.state import RowState, SearchState
from tests.training.forged import (
    CHANGES,
    array_of,
    entries_of,
    forge,
    forge_entry,
    manifest_of,
    newest,
    seed_of,
    write_manifest,
)

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, 200)
ROWS = (RNG.standard_normal((200, 4)) + RNG.standard_normal((3, 4))[LABELS]).astype(np.float32)
COMMON = {"threads": 1, "gamma": 0.3, "tol": 1e-4}
RUNS = {
    "c-svc": (2, {"C": 2.0}, 30),
    "all rows": (2, {"C": 2.0, "working_set": "all", "selection": "hmg"}, 30),
    "squared hinge": (2, {"loss": "squared_hinge"}, 30),
    "nu-svc": (2, {"formulation": "nu-svc", "nu": 0.3}, 10),
    "one-class": (1, {"formulation": "one-class", "nu": 0.3}, 5),
    "eps-svr": (0, {"formulation": "eps-svr"}, 30),
    "nu-svr": (0, {"formulation": "nu-svr"}, 10),
    "l2-svc": (2, {"formulation": "l2-svc"}, 20),
    "pairs": (3, {"C": 2.0}, None),
    "each against the rest": (3, {"C": 2.0, "multiclass": "ovr"}, 60),
    "crammer-singer": (3, {"formulation": "crammer-singer"}, 60),
}
"""For each run, the number of classes (none for a regression), the parameters, and when the run is
stopped: after a number of steps, or within the second pair."""

pytestmark = pytest.mark.usefixtures("pairs_by_runs")


class SecondPair:
    """Stops a run when it has been asked ten times within its second pair."""

    def __init__(self):
        self.n_done = self.n_asked = 0

    def listen(self, event):
        if isinstance(event, events.PairsUnderWay):
            self.n_done = event.done

    def ends(self):
        self.n_asked += self.n_done == 1
        return self.n_asked == 10


def train(name, folder=None, hooks=None, **options):
    n_classes, parameters, _ = RUNS[name]
    labels = {0: ROWS[:, 0] * 2.0, 1: None}.get(n_classes, np.minimum(LABELS, n_classes - 1))
    given = {**COMMON, **parameters, **options}
    if given.get("formulation") == "l2-svc":
        del given["tol"]
    checkpoint = None if folder is None else str(folder)
    return train_model(
        as_row_source(ROWS), labels, None, TrainingParameters(checkpoint=checkpoint, **given), hooks
    )


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory):
    """Makes stopped runs, each once: the folder, and the model that the run leads to."""
    made = {}

    def make(name):
        if name not in made:
            folder = tmp_path_factory.mktemp("run")
            stop = RUNS[name][2]
            if stop is None:
                second = SecondPair()
                train(name, folder, Hooks(listener=second.listen, interrupted=second.ends))
            else:
                train(name, folder, max_iter=stop)
            for path in sorted(folder.glob("generation-*"))[:-1]:
                shutil.rmtree(path)
            copy = shutil.copytree(folder, tmp_path_factory.mktemp("copy") / "run")
            made[name] = folder, train(name, copy)
        return made[name]

    return make


@pytest.fixture
def stopped(undamaged, tmp_path):
    """Gives a copy of a stopped run, to damage."""

    def copy(name):
        return shutil.copytree(undamaged(name)[0], tmp_path / "copy", dirs_exist_ok=True)

    return copy


def values_of(model):
    """Values of all functions, by the definition of the kernel."""
    coefficients = model.coefficients
    dense = coefficients if isinstance(coefficients, np.ndarray) else coefficients.toarray()
    return rbf_kernel(ROWS, ROWS[model.support], gamma=0.3) @ dense + model.intercept


def outcome(name, folder, expected):
    """Resume: refused, or not converged, or as the whole run."""
    try:
        model = train(name, folder)
    except CheckpointError:
        return "refused"
    if model.certificate["converged"]:
        found, values = values_of(model), values_of(expected)
        np.testing.assert_allclose(found, values, atol=0.03 * max(1.0, np.abs(values).max()))
        return "the same"
    return "not converged"


@pytest.mark.fault("damaged-checkpoints")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", RUNS)
def test_no_array_that_was_changed_leads_to_a_wrong_model(stopped, undamaged, name, change):
    outcomes = set()
    for array in manifest_of(newest(stopped(name)))["arrays"]:
        folder = stopped(name)
        before = array_of(newest(folder), array)
        forge(newest(folder), arrays={array: CHANGES[change]})
        if before.size and np.array_equal(array_of(newest(folder), array), before):
            continue
        outcomes.add(outcome(name, folder, undamaged(name)[1]))
        shutil.rmtree(folder)
    assert "refused" in outcomes


@pytest.mark.fault("forged-files")
@pytest.mark.parametrize("name", sorted(RUNS.keys() - {"pairs", "l2-svc"}))
@pytest.mark.parametrize("change", [lambda a: a - 1, lambda a: a * 0.5 + 0.01, lambda a: -a])
def test_a_point_that_is_not_feasible_is_refused(stopped, name, change):
    folder = stopped(name)
    arrays = manifest_of(newest(folder))["arrays"]
    alphas = [one for one in arrays if one in ("alpha", "active_alpha", "working_alpha")]
    moved = [one for one in alphas if array_of(newest(folder), one).any()]
    assert moved
    forge(newest(folder), arrays=dict.fromkeys(moved, change))
    with pytest.raises(CheckpointError, match=r"outside of its bounds|above its bound|add up to"):
        train(name, folder)


@pytest.mark.fault("forged-files")
@pytest.mark.parametrize("name", ["c-svc", "eps-svr", "each against the rest", "crammer-singer"])
def test_outputs_that_are_not_of_alpha_do_not_certify_it(stopped, undamaged, name):
    folder = stopped(name)
    forge(
        newest(folder),
        arrays={"outputs": lambda a: np.sign(a) + 3.0, "active_outputs": lambda a: 0 * a - 2.0},
    )
    assert outcome(name, folder, undamaged(name)[1]) in ("the same", "not converged")


@pytest.mark.fault("damaged-checkpoints")
@pytest.mark.parametrize("name", ["c-svc", "l2-svc", "pairs", "crammer-singer"])
def test_a_generation_with_wrong_values_falls_back_on_the_one_before(
    stopped, undamaged, name, caplog
):
    folder = stopped(name)
    newer = folder / "generation-99999999"
    shutil.copytree(newest(folder), newer)
    first = next(iter(manifest_of(newer)["arrays"]))
    forge(newer, arrays={first: lambda a: a[:0]})
    model = train(name, folder)
    assert model.certificate["objective"] == undamaged(name)[1].certificate["objective"]
    assert "the generation before it is used: generation-99999999" in caplog.text


@pytest.mark.fault("damaged-checkpoints")
@pytest.mark.parametrize("name", ["c-svc", "eps-svr", "each against the rest", "crammer-singer"])
def test_a_search_is_of_balls_only(stopped, name):
    folder = stopped(name)
    arrays = {"core": np.arange(2), "weights": np.full(2, 0.5), "gradient": np.zeros(2)}
    forge(
        newest(folder),
        arrays={**arrays, "parts": np.array([2])},
        values={"phase": "search", "random_state": {}},
    )
    manifest = manifest_of(newest(folder))
    manifest["arrays"] = {one: manifest["arrays"][one] for one in SEARCH_STATE}
    write_manifest(newest(folder), manifest)
    with pytest.raises(CheckpointError, match="a search for a ball, which this problem is not"):
        train(name, folder)


def test_every_array_of_a_state_has_a_line_in_the_table():
    assert tuple(ROW_STATE) == RowState._fields
    assert tuple(SEARCH_STATE) == SearchState._fields


COUNTERS = [
    ("phase", "sleep"), ("phase", 3), ("scope", 0), ("scope", 201), ("scope", 1.5), ("scope", True),
    ("rows_done", -1), ("rows_done", 10**6), ("rows_done", 10**400), ("n_iter", "many"),
    ("n_iter", [1]), ("gap", float("nan")), ("gap", -1.0), ("seconds", float("inf")),
    ("seconds", 10**400), ("objective", -(10**400)), ("together", 1), ("random_state", {}),
    ("random_state", {"state": []}), ("random_state", None), ("unheard of", 1), ("disk_tier", 1),
    ("sub_tol", None),
]  # fmt: skip


@pytest.mark.fault("damaged-checkpoints")
@pytest.mark.parametrize(("counter", "value"), COUNTERS, ids=range(len(COUNTERS)))
def test_counters_of_other_kinds_or_ranges_are_refused(stopped, counter, value):
    folder = stopped("c-svc")
    forge(newest(folder), values={counter: value})
    with pytest.raises(CheckpointError, match="no whole checkpoint"):
        train("c-svc", folder)


@pytest.mark.fault("forged-files")
@pytest.mark.parametrize("entry", ["format_version", "fingerprint", "values", "arrays"])
@pytest.mark.parametrize("value", [None, -1.5, "x", [], {"a": 1}, True])
def test_a_manifest_with_other_kinds_of_entries_is_refused(stopped, entry, value):
    folder = stopped("c-svc")
    forge(newest(folder), entries={entry: value})
    newest_manifest(folder)
    with pytest.raises(CheckpointError, match=r"no whole checkpoint|another run"):
        train("c-svc", folder)


@pytest.mark.fault("forged-files")
@pytest.mark.parametrize(
    "text", [b"[" * 10**5, b"[]", b'{"values": ' + b'{"a":' * 10**5, b"\xff\xfe", b"1e999"]
)
def test_manifest_that_is_not_a_json_object_is_refused(stopped, text):
    folder = stopped("c-svc")
    write_manifest(newest(folder), text)
    assert newest_manifest(folder) is None
    with pytest.raises(CheckpointError, match="no whole checkpoint"):
        train("c-svc", folder)


@pytest.mark.fault("damaged-checkpoints")
@pytest.mark.parametrize(
    "entry",
    [
        {"shape": [1 << 40]}, {"shape": [-1]}, {"shape": [200.0]}, {"shape": "200"}, {"dtype": "O"},
        {"dtype": "<f4"}, {"dtype": None}, {"shape": [1 << 62, 4]}, {"xxh3": None},
    ],
)  # fmt: skip
def test_sizes_that_a_manifest_promises_are_checked_before_they_are_read(stopped, entry):
    folder = stopped("c-svc")
    manifest = manifest_of(newest(folder))
    manifest["arrays"]["alpha"] |= entry
    if entry == {"xxh3": None}:
        del manifest["arrays"]["alpha"]["xxh3"]
    write_manifest(newest(folder), manifest)
    with pytest.raises(CheckpointError, match="no whole checkpoint"):
        train("c-svc", folder)


@pytest.mark.fault("damaged-checkpoints")
def test_sparse_file_in_a_checkpoint_is_not_read(stopped):
    """A terabyte that takes no room on the disk, and would not fit into memory."""
    folder = stopped("c-svc")
    manifest = manifest_of(newest(folder))
    manifest["arrays"]["alpha"]["shape"] = [1 << 37]
    write_manifest(newest(folder), manifest)
    os.truncate(newest(folder) / "alpha.bin", 1 << 40)
    with pytest.raises(CheckpointError, match=r"its arrays have 1099\d+ bytes; there can be \d+"):
        train("c-svc", folder)


def set_to(field, value):
    def change(record, rows, coefficients):
        record[field] = value

    return change


ENTRIES = {
    "pair": set_to("pair", 7),
    "reason": set_to("reason", 1),
    "no reason": set_to("reason", 1 << 40),
    "negative steps": set_to("n_iter", -1),
    "tol": set_to("tol", np.nan),
    "gap": set_to("gap", 0.5),
    "intercept": set_to("intercept", np.inf),
    "rho": set_to("rho", 2.0),
    "rows far outside": lambda record, rows, values: (rows + (1 << 30), values),
    "negative rows": lambda record, rows, values: (rows - 300, values),
    "rows of another class": lambda record, rows, values: (np.arange(len(rows)), values),
    "rows twice": lambda record, rows, values: (np.repeat(rows[:1], len(rows)), values),
    "half of them": lambda record, rows, values: (rows[: len(rows) // 2], values[: len(rows) // 2]),
    "NaN": lambda record, rows, values: (rows, np.nan * values),
    "outside of the box": lambda record, rows, values: (rows, 3.0 * values),
    "of the other class": lambda record, rows, values: (rows, -values),
    "feasible, and not optimal": lambda record, rows, values: (rows, 0.5 * values),
    "another finite intercept": set_to("intercept", -1.0),
    "negative seconds of a phase": set_to("steps", -1.0),
    "seconds that are no number": set_to("certificate", np.nan),
}


@pytest.mark.fault("forged-files")
@pytest.mark.parametrize("change", ENTRIES)
def test_log_entry_with_a_valid_hash_is_still_checked(stopped, undamaged, change, caplog):
    folder = stopped("pairs")
    assert entries_of(folder / "pairs.log", seed_of(folder))
    forge_entry(folder, ENTRIES[change])
    model = train("pairs", folder)
    expected = undamaged("pairs")[1]
    assert model.certificate["objective"] == expected.certificate["objective"]
    assert (model.coefficients != expected.coefficients).nnz == 0
    assert "the pairs from there on are trained again" in caplog.text


@pytest.mark.fault("damaged-checkpoints")
def test_a_pair_is_not_in_the_log_twice(stopped, undamaged, caplog):
    folder = stopped("pairs")
    log = folder / "pairs.log"
    log.write_bytes(2 * log.read_bytes())
    model = train("pairs", folder)
    assert (model.coefficients != undamaged("pairs")[1].coefficients).nnz == 0
    assert "is there twice" in caplog.text


@pytest.mark.fault("links-and-pipes")
@pytest.mark.parametrize("name", ["lock", "pairs.log", "manifest.json", "alpha.bin"])
@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_links_and_pipes_in_a_checkpoint_are_neither_followed_nor_waited_for(
    stopped, tmp_path, name, kind
):
    run = "pairs" if name == "pairs.log" else "c-svc"
    folder, elsewhere = stopped(run), tmp_path / "elsewhere"
    path = folder / name if name in ("lock", "pairs.log") else newest(folder) / name
    path.replace(elsewhere)
    before = elsewhere.read_bytes()
    {"link": lambda: path.symlink_to(elsewhere), "pipe": lambda: os.mkfifo(path),
     "folder": path.mkdir}[kind]()  # fmt: skip
    with pytest.raises(CheckpointError):
        train(run, folder)
    assert elsewhere.read_bytes() == before


@pytest.mark.fault("links-and-pipes")
@pytest.mark.parametrize("name", ["lock", "pairs.log"])
def test_a_file_with_another_name_is_not_written_to(stopped, tmp_path, name):
    """The other name may be that of any file of this user."""
    folder, elsewhere = stopped("pairs"), tmp_path / "elsewhere"
    (folder / name).unlink()
    elsewhere.write_text("precious\n")
    (folder / name).hardlink_to(elsewhere)
    with pytest.raises(CheckpointError, match="has another name too"):
        train("pairs", folder)
    assert elsewhere.read_text() == "precious\n"


@pytest.mark.fault("links-and-pipes")
def test_a_generation_that_is_a_link_is_not_followed(stopped, tmp_path):
    folder = stopped("c-svc")
    path = newest(folder)
    path.replace(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="a link, which is not followed"):
        train("c-svc", folder)


@pytest.mark.fault("links-and-pipes")
def test_targets_of_links_are_not_removed(tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("kept")
    run = tmp_path / "run"
    run.mkdir()
    (run / ".generation-new").symlink_to(precious)
    with Checkpoint(run, {}) as checkpoint:
        (run / "generation-00000000").symlink_to(precious)
        for _ in range(3):
            checkpoint.save({}, {})
    assert (precious / "file").read_text() == "kept"
    assert not (run / "generation-00000000").is_symlink()


@pytest.mark.fault("surroundings")
@pytest.mark.parametrize("name", ["c-svc", "l2-svc", "pairs", "crammer-singer"])
def test_a_folder_that_is_removed_in_mid_run_is_one_error(name, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    save = Checkpoint.save

    def remove(self, *arguments):
        shutil.rmtree(folder, ignore_errors=True)
        return save(self, *arguments)

    monkeypatch.setattr(Checkpoint, "save", remove)
    with pytest.raises(CheckpointError, match="was removed while the run was using it"):
        train(name, folder, checkpoint_every=1e-9)
    assert not folder.exists()


@pytest.mark.fault("surroundings")
def test_a_log_that_is_removed_in_mid_run_is_the_same_error(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    append = PairLog._append

    def remove(self):
        if self._pending:
            shutil.rmtree(folder)
        append(self)

    monkeypatch.setattr(PairLog, "_append", remove)
    with pytest.raises(CheckpointError, match="was removed while the run was using it"):
        train("pairs", folder)
