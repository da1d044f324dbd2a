"""Certified optima of standard data sets, and their certificates recomputed without bigsvm.

    python -m tools.benchmarks records [--records a9a letter …]
    python -m tools.benchmarks records --records large

Each fit is ``bigsvm train --exact-objective`` of a store whose rows are in the order of the file
(``--no-shuffle``). ``tools/recompute_certificate.py``, a program of NumPy alone, then reads the
model and the LIBSVM text, or the store where rows are scaled, relabelled or made. ``sums`` over
the functions of several classes are sums of their objectives; the KKT gap is the largest one. What
is printed last holds both against each other: objectives within a millionth, KKT gaps within 1e-5.

spambase   columns of mean 0 and variance 1, C 50, sigma 10, as Glasmachers and Igel (2006) have it
mnist-2    raw pixels, 5 to 9 against 0 to 4, C 50, sigma 3500, as they have it
mnist-10, mnist-rest
           raw pixels, each pair of classes, and each class against the rest; C 10, gamma 0.02 of
           pixels in [0, 1]
letter, satimage
           each pair of classes, scaled to [-1, 1], C and gamma as powers of two
usps       each pair of classes, C 10, gamma 1/128
made-5000000
           rows of `tools.benchmarks.overlap`, 200 columns, 4 GB; a record of its own command, as it
           takes minutes
large      trains nothing: of sets that are not here, the command, the memory, and how long one
           sweep takes with a tenth of the rows as support vectors, by the rate at which this
           machine computes kernel values of so many columns. ``bigsvm plan`` trains samples of the
           rows, so it says more only where these are
sizes      trains nothing: the same by rows, columns and support vectors
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tools.benchmarks.bench import Suite
from tools.benchmarks.children import REPOSITORY, bigsvm_command, machine, run_checked
from tools.benchmarks.data import DATA_SETS, DataSet, data_folder, is_skipped, load, path_of
from tools.benchmarks.results import Limit, at_most, megabytes, must, table, verdicts

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

OBJECTIVES_WITHIN, GAPS_WITHIN = 1e-6, 1e-5
"""What two computations in float64 may differ by: of the objective a share, and of the gap."""
PIXELS = 255.0


class Record(NamedTuple):
    """A problem whose optimum is certified.

    Attributes
    ----------
    name : str
    data : DataSet
    multiclass : str
        "" of two classes.
    scale : str
        Method of `bigsvm scale`, where rows are scaled.
    relabelled : bool
        Whether the classes of the text become two.
    """

    name: str
    data: DataSet
    multiclass: str = ""
    scale: str = ""
    relabelled: bool = False


MNIST = DataSet("mnist", 784, 10.0, 0.02 / PIXELS**2)
MADE, LARGE, SIZES = "made-5000000", "large", "sizes"
MADE_COLUMNS = 200
RECORDS = {
    record.name: record
    for record in (
        Record("a9a", DATA_SETS["a9a"]),
        Record("w8a", DATA_SETS["w8a"]),
        Record("spambase", DataSet("spambase", 57, 50.0, 1 / 200), scale="standard"),
        Record("satimage", DataSet("satimage.scale", 36, 16.0, 1.0), "ovo"),
        Record("letter", DataSet("letter.scale", 16, 16.0, 4.0), "ovo"),
        Record("usps", DataSet("usps", 256, 10.0, 1 / 128), "ovo"),
        Record("mnist-2", DATA_SETS["mnist"], relabelled=True),
        Record("mnist-10", MNIST, "ovo"),
        Record("mnist-rest", MNIST, "ovr"),
        # C and gamma as `overlap` says, which is not imported here for its NumPy
        Record(MADE, DataSet("overlap", MADE_COLUMNS, 10.0, 0.1, n_made=5_000_000)),
    )
}


class Set(NamedTuple):
    """A standard set that is not here: sizes as its distributors state them."""

    rows: int
    columns: int
    nonzero: int
    C: float
    gamma: float
    options: str = ""


SETS = {
    "covtype.binary": Set(581_012, 54, 12, 32.0, 32.0),
    "SUSY": Set(5_000_000, 18, 18, 1.0, 0.03125),
    "HIGGS": Set(11_000_000, 28, 28, 1.0, 0.001),
    "mnist8m": Set(8_100_000, 784, 150, 10.0, MNIST.gamma, "--multiclass ovr"),
    "KDD Cup 1999": Set(4_898_431, 127, 30, 256.0, 0.5),
}
"""Rows, columns, values of a row that are not 0 (about), and C and gamma to begin with."""


def digest(path: Path) -> str:
    """SHA-256 of a file, its first 16 digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def write(record: Record, folder: Path, options: argparse.Namespace) -> tuple[Path, Path]:
    """Write the store of a record; returns it, and what its certificate is recomputed from."""
    store, source = folder / f"{record.name}.zarr", data_folder()
    if record.data.n_made:
        command = [sys.executable, "-m", "tools.benchmarks.overlap", str(store)]
        run_checked([*command, str(record.data.n_made), str(MADE_COLUMNS)], threads=options.threads)
        return store, store
    if source is None:
        raise SystemExit("no folder of data sets: name it in BIGSVM_DATA")
    text = path_of(record.data, source)
    if record.relabelled:
        from bigsvm import write_store

        write_store(store, *load(record.data, source), shuffle=False)
        return store, store
    raw = folder / f"{record.name}.raw.zarr" if record.scale else store
    run_checked(bigsvm_command("convert", text, raw, "--no-shuffle", "-q"), threads=options.threads)
    if not record.scale:
        return store, text
    command = bigsvm_command("scale", raw, store, "--method", record.scale, "-q")
    run_checked(command, threads=options.threads)
    return store, store


def measure(record: Record, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Train, and recompute the certificate."""
    store, data = write(record, folder, options)
    model = folder / f"{record.name}.safetensors"
    flags: list[object] = ["--C", record.data.C, "--gamma", record.data.gamma, "--tol", options.tol]
    if record.multiclass:
        flags += ["--multiclass", record.multiclass]
    flags += ["--memory", options.memory, "--threads", options.threads]
    command = bigsvm_command("train", store, model, *flags, "--exact-objective", "--json", "-q")
    trained = run_checked(command, threads=options.threads)
    started = time.perf_counter()
    program = str(REPOSITORY / "tools" / "recompute_certificate.py")
    again = run_checked([sys.executable, program, str(model), str(data)], threads=options.threads)
    return {
        "record": record, "answer": trained.answer, "again": again.answer,
        "seconds": time.perf_counter() - started, "model": digest(model),
        "text": digest(data) if data.is_file() else "made" if record.data.n_made else "the store",
        "store": fingerprint(store), "peak": trained.peak_rss,

    }  # fmt: skip


def fingerprint(store: Path) -> str:
    """Read the hash that a store has of its rows and labels."""
    attributes = json.loads((store / "zarr.json").read_text(encoding="utf-8"))["attributes"]
    return str(attributes["bigsvm"]["fingerprint"])


def difference(found: dict[str, Any], name: str) -> float:
    """Relative difference of the dual or of the primal objective."""
    answer, again = found["answer"], found["again"]
    ours = answer["objective"] + (answer["duality_gap"] if name == "primal" else 0.0)
    return float(abs(again[name] - ours) / abs(ours))


def rows_of(found: Sequence[dict[str, Any]]) -> tuple[str, str, str]:
    """Lay out the optima, their recomputation, and the hashes."""
    optima, checks, hashes = [], [], []
    for one in found:
        record, answer, again = one["record"], one["answer"], one["again"]
        functions = {"ovo": "pairs", "ovr": "classes"}.get(record.multiclass, "")
        optima.append(
            [
                record.name, answer["n_rows"], answer["n_features"], f"{record.data.C:g}",
                f"{record.data.gamma:.6g}", f"{answer['n_functions']} {functions}".strip(),
                f"{again['dual']:.6f}", f"{again['primal']:.6f}",
                f"{again['duality_gap']:.3g}", f"{again['gap']:.3g}", answer["n_support"],
                f"{answer['seconds']:.2f}", megabytes(one["peak"]),
            ]
        )  # fmt: skip
        checks.append(
            [
                record.name, f"{answer['objective']:.6f}", f"{difference(one, 'dual'):.1e}",
                f"{difference(one, 'primal'):.1e}", f"{answer['gap']:.6g}",
                f"{abs(answer['gap'] - again['gap']):.1e}",
                f"{again['constraints_violated_by']:.1e}", f"{one['seconds']:.1f}",
            ]
        )  # fmt: skip
        hashes.append([record.name, one["text"], one["store"], one["model"]])
    return (
        table(
            ["record", "rows", "columns", "C", "gamma", "functions", "dual objective",
             "primal objective", "duality gap", "KKT gap", "SVs", "seconds", "peak MB"],
            optima,
        ),
        table(
            ["record", "dual, by bigsvm", "recomputed, off by", "primal, off by",
             "KKT gap, by bigsvm", "off by", "constraints violated by", "seconds to recompute"],
            checks,
        ),
        table(["record", "SHA-256 of the text", "fingerprint of the store", "SHA-256 of the model"],
              hashes),
    )  # fmt: skip


def limits(found: Sequence[dict[str, Any]]) -> list[Limit]:
    """Hold the two computations against each other, and each fit against what it was asked for."""
    held = []
    for one in found:
        name, answer, again = one["record"].name, one["answer"], one["again"]
        off = max(difference(one, "dual"), difference(one, "primal"))
        gap = abs(answer["gap"] - again["gap"])
        is_exact = answer["objective_error"] in (0.0, None)
        held += [
            must(f"{name}: converged", answer["converged"], "True", answer["converged"] is True),
            must(f"{name}: objective exact", is_exact, "True", is_exact),
            must(f"{name}: objectives off by", f"{off:.1e}", f"≤ {OBJECTIVES_WITHIN:g}",
                 off <= OBJECTIVES_WITHIN),
            must(f"{name}: KKT gap off by", f"{gap:.1e}", f"≤ {GAPS_WITHIN:g}", gap <= GAPS_WITHIN),
            at_most(f"{name}: KKT gap", again["gap"], limit=answer["tol"], digits=6),
        ]  # fmt: skip
    return held


def rate(n_columns: int, threads: int) -> float:
    """Measure kernel values a second of rows with so many columns."""
    import numpy as np

    from bigsvm.kernels import RBF
    from bigsvm.models import KernelExpansion

    random = np.random.default_rng(0)
    vectors = random.random((4000, n_columns), dtype=np.float32)
    rows = random.random((20_000, n_columns), dtype=np.float32)
    model = KernelExpansion(
        kernel=RBF(gamma=1.0), support_vectors=vectors, coefficients=np.ones(len(vectors)),
        intercept=0.0, centre=None,
        support=np.arange(len(vectors)), classes=[-1.0, 1.0], formulation="c-svc",
        certificate={}, provenance={},
    )  # fmt: skip
    model.decision_function(rows[:100], threads=threads)
    started = time.process_time()
    model.decision_function(rows, threads=threads)
    seconds = (time.process_time() - started) / threads  # of one processor
    return len(rows) * len(vectors) / seconds


def large(options: argparse.Namespace) -> str:
    """Lay out what is known of sets that are not here, from their sizes."""
    from bigsvm.budget import LABEL_BYTES

    lines = []
    for name, one in SETS.items():
        dense = one.nonzero > one.columns / 4
        stored = one.rows * (4 * one.columns if dense else 8 * one.nonzero)
        minutes = one.rows * one.rows / 10 / rate(one.columns, options.threads) / 60
        lines.append(
            [
                name, one.rows, one.columns, f"{one.C:g}", f"{one.gamma:.4g}",
                f"{stored / 1e9:.1f}", f"{options.memory} + {LABEL_BYTES * one.rows / 1e6:.0f} MB",
                f"{minutes:.1f}",
                f"`bigsvm train STORE MODEL --C {one.C:g} --gamma {one.gamma:.6g} "
                f"{one.options}{' ' * bool(one.options)}--exact-objective --checkpoint RUN --json`",
            ]
        )  # fmt: skip
    header = ["set", "rows", "columns", "C", "gamma", "GB of rows", "memory",
              "minutes a sweep, a tenth SVs", "command"]  # fmt: skip
    return table(header, lines)


def sizes(options: argparse.Namespace) -> str:
    """Lay out memory, and minutes of a sweep, by rows, columns and support vectors."""
    from bigsvm.budget import LABEL_BYTES, ROW_STATE_BYTES

    lines, found, a_row = [], (1000, 10_000, 100_000), ROW_STATE_BYTES + LABEL_BYTES
    for columns in (20, 200, 2000):
        speed = rate(columns, options.threads)
        for rows in (10**5, 10**6, 10**7):
            stored, more = f"{4 * rows * columns / 1e9:g}", f"{a_row * rows / 1e6:.1f}"
            minutes = [f"{rows * n_support / speed / 60:.3g}" for n_support in found]
            lines.append([rows, columns, stored, more, *minutes])
    header = ["rows", "columns", "GB of rows", "MB beside kernel rows",
              *(f"minutes a sweep, {n_support} SVs" for n_support in found)]  # fmt: skip
    return table(header, lines)


def run(options: argparse.Namespace) -> int:
    """Measure the records that are asked for; 1 where something does not hold."""
    names, found = options.records, []
    print(f"{machine(options.threads)}\n")
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        for name in (name for name in names if name in RECORDS):
            record = RECORDS[name]
            if is_skipped(record.data):
                continue
            print(name, file=sys.stderr, flush=True)
            found.append(measure(record, Path(temporary), options))
    held = limits(found)
    texts = [*rows_of(found), verdicts(held)] if found else []
    laid_out = {LARGE: large, SIZES: sizes}
    print(*texts, *(laid_out[name](options) for name in names if name in laid_out), sep="\n\n")
    return 0 if all(all(limit.holds) for limit in held) else 1


SUITE = Suite(
    program=run,
    memory="1GB",
    more=(
        (
            "--records",
            {
                "nargs": "+",
                "choices": [*RECORDS, LARGE, SIZES],
                "default": [r for r in RECORDS if r != MADE],
            },
        ),
        ("--tol", {"type": float, "default": 1e-3, "help": "KKT gap at which fits converge"}),
    ),
)
