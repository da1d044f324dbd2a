"""Files whose values are damaged and whose hashes are made to fit: stores, models, checkpoints.

    python tools/reliability.py damage [--only store checkpoint search …] [--share 0.1] [--seed 0]

Every array and every field that the manifests list is set to each value of `ARRAY_DAMAGES` or
`FIELD_DAMAGES`, alone, and the commands that read the file run in a child. A command may refuse
(exit code 2 and one line), take the values as data, or not be affected. Faults are tracebacks,
signals, hangs, more memory than the budget, and a model that is said to have converged and has not.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from attacks.checkpoints import CheckpointSubject, CrowdSubject, RowsSubject
from attacks.child import table
from attacks.models import ModelSubject
from attacks.searches import SearchSubject
from attacks.stores import StoreSubject
from attacks.subjects import FAULT, OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from attacks.subjects import Subject

MODELS = {
    "dense": ("=", "--C", "2", "--gamma", "0.3"),
    "sparse": ("=sparse", "--C", "2", "--gamma", "0.3"),
    "scaled, calibrated": ("=scaled", "--calibration", "isotonic"),
    "linear": ("=", "--kernel", "linear"),
    "three classes, pairs": ("=classes", "--gamma", "0.3"),
    "three classes, each against the rest": ("=classes", "--gamma", "0.3", "--multiclass", "ovr"),
    "crammer-singer": ("=classes", "--formulation", "crammer-singer", "--gamma", "0.3"),
    "regression": ("=targets", "--formulation", "eps-svr", "--gamma", "0.3"),
    "one class": ("=", "--formulation", "one-class", "--nu", "0.2", "--gamma", "0.3"),
}
_RBF = ("--gamma", "0.3")
CHECKPOINTS: dict[str, tuple[tuple[str, ...], int]] = {
    "c-svc": (("=", *_RBF, "--C", "2"), 40),
    "c-svc, all rows": (("=", *_RBF, "--C", "2", "--working-set", "all"), 40),
    "squared hinge": (("=", *_RBF, "--loss", "squared_hinge"), 40),
    "nu-svc": (("=", *_RBF, "--formulation", "nu-svc", "--nu", "0.3"), 40),
    "eps-svr": (("=targets", *_RBF, "--formulation", "eps-svr"), 40),
    "nu-svr": (("=targets", *_RBF, "--formulation", "nu-svr"), 40),
    "one-class": (("=", *_RBF, "--formulation", "one-class", "--nu", "0.3"), 10),
    "l2-svc, search": (("=", *_RBF, "--formulation", "l2-svc"), 20),
    "l2-svc, sweeps": (("=many", *_RBF, "--formulation", "l2-svc", "--C", "4"), 2000),
    "l2-one-class": (("=", *_RBF, "--formulation", "l2-one-class"), 20),
    "small pairs": (("=classes", *_RBF), 60),
    "pairs": (("=large", *_RBF), 900),
    "each against the rest": (("=classes", *_RBF, "--multiclass", "ovr"), 60),
    "crammer-singer": (("=classes", *_RBF, "--formulation", "crammer-singer"), 60),
}
"""Arguments, and the steps after which the run is stopped."""
SEARCHES: dict[str, tuple[tuple[str, ...], int]] = {
    "folds one after the other": (("=", "--gamma", "scale"), 1),
    "folds together": (("=", *_RBF), 2),
    "crammer-singer": (("=classes", *_RBF, "--formulation", "crammer-singer"), 1),
}
"""Arguments, and the results after which the search is stopped."""


def subjects(folder: Path) -> Iterator[Subject]:
    """Yield all subjects, each with a folder of its own."""

    def own() -> Path:
        return Path(tempfile.mkdtemp(dir=folder))

    for layout in ("dense", "csr"):
        yield StoreSubject(own(), layout=layout)
    for title, arguments in MODELS.items():
        yield ModelSubject(own(), title=title, arguments=arguments)
    for title, (words, steps) in CHECKPOINTS.items():
        yield CheckpointSubject(own(), title=title, arguments=words, steps=steps)
    yield CrowdSubject(own())
    for title, (words, stop) in SEARCHES.items():
        yield SearchSubject(own(), title=title, arguments=words, stop=stop)
    yield RowsSubject(own())


def main(argv: Sequence[str]) -> int:
    """Print the table; the exit code says whether there is a fault."""
    parser = argparse.ArgumentParser(prog="reliability.py damage", description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="words in the names of subjects")
    parser.add_argument("--share", type=float, default=1.0, help="of the damages, at random")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    chance, faults = random.Random(options.seed), list[str]()
    counts: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as name:
        for subject in subjects(Path(name)):
            if options.only and not any(word in subject.name for word in options.only):
                continue
            subject.make()
            counts[subject.name] = Counter()
            for damage in subject.damages():
                if chance.random() >= options.share:
                    continue
                outcome, detail = subject.examine(damage)
                counts[subject.name][outcome] += 1
                if outcome == FAULT:
                    faults.append(f"{subject.name}: {damage.target}, {damage.kind}: {detail}")
                    print(faults[-1], flush=True)
            print(f"-- {subject.name}: done", flush=True)
    print("\n".join([table(counts, OUTCOMES), "", *faults]))
    return int(bool(faults))
