"""The search where no values are given: LIBSVM's grid, coarse then fine, on samples first.

Every second value of each parameter is fitted on the smallest sample, then the values between those
of the best points. Where the best one is on the edge, the grid grows there. The best points go on
to larger samples as in successive halving; before the last round, which has all rows, half steps
around the best are fitted on the largest sample.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

from bigsvm.kernels import takes_kernel_matrix
from bigsvm.parameters import FIELDS
from bigsvm.parameters.declaration import declaration_of
from bigsvm.selection.grid import FEWEST_ROWS, Tries, by_score, edges_of, rounds_of
from bigsvm.selection.identity import told

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bigsvm.selection.fits import FoldFits
    from bigsvm.selection.grid import Evaluated, Rules
    from bigsvm.selection.steps import Steps

FACTOR = 3
"""How much larger the next sample is, where no factor is given: the one of `bigsvm easy`."""
MOST_SAMPLES = 2
"""Most samples before all rows: the smallest has a ninth of the rows, as a search of 25 points by
halving had."""
GROWTHS = 3
"""How often the grid grows, by a step each: LIBSVM's grid is wide, and larger C take long."""


class Axis(NamedTuple):
    """Values of a parameter at equal ratios, ``first * ratio ** k`` for k from 0.

    Attributes
    ----------
    n_values : int
        Before the grid grows.
    most : float
        The largest value that the parameter can have.
    """

    name: str
    first: float
    ratio: float
    n_values: int
    most: float = float("inf")

    def value(self, k: float) -> float:
        """Return a value; `k` may be a half, or beyond the grid."""
        return float(self.first * self.ratio**k)


AXES = (
    Axis("C", 2.0**-5, 4.0, 11),
    Axis("gamma", 2.0**-15, 4.0, 10),
    Axis("nu", 0.05, 2.0, 4, most=1.0),
)
"""LIBSVM's values of C and gamma, as grid.py tries them; it has none of nu."""


def axes_of(formulation: str, kernels: Sequence[Any]) -> list[Axis]:
    """Axes of the parameters that a formulation has with one of some kernels."""
    return [axis for axis in AXES if is_used(axis.name, formulation, kernels)]


def is_used(name: str, formulation: str, kernels: Sequence[Any]) -> bool:
    """Whether a formulation, with one of some kernels, has a parameter."""
    declared = declaration_of(FIELDS[name])
    has = declared.formulations is None or formulation in declared.formulations
    return has and (declared.kernels is None or any(k in declared.kernels for k in kernels))


class Place(NamedTuple):
    """A point of a lattice: which of the other parameters, and a number for each axis."""

    other: int
    steps: tuple[float, ...]


class Lattice(NamedTuple):
    """Points of some axes, for each of some other parameters.

    Attributes
    ----------
    axes : list of Axis
    others : list of dict
        Values of parameters without an axis; ``[{}]`` without any.
    """

    axes: list[Axis]
    others: list[dict[str, Any]]

    def point(self, place: Place) -> dict[str, Any]:
        """Parameters of a place."""
        values = {axis.name: axis.value(k) for axis, k in zip(self.axes, place.steps, strict=True)}
        return {**self.others[place.other], **values}

    def coarse(self) -> list[Place]:
        """Every second value of each axis."""
        steps = itertools.product(*(range(0, axis.n_values, 2) for axis in self.axes))
        return [Place(n, tuple(map(float, k))) for k in steps for n in range(len(self.others))]

    def around(self, place: Place, step: float) -> list[Place]:
        """Places by a step from one on any of the axes, in the grid or beyond it."""
        moved = itertools.product(*((k - step, k, k + step) for k in place.steps))
        return [
            Place(place.other, steps)
            for steps in moved
            if all(axis.value(k) <= axis.most for axis, k in zip(self.axes, steps, strict=True))
        ]


def sizes_of(n_rows: int, factor: int) -> list[int]:
    """Rows of each round: samples of at least `FEWEST_ROWS`, and at last all rows."""
    sizes = [n_rows // factor**k for k in range(MOST_SAMPLES, 0, -1)]
    return [*(size for size in sizes if size >= FEWEST_ROWS), n_rows]


def searched_further(fits: FoldFits, lattice: Lattice, rules: Rules) -> list[Evaluated]:
    """Fit points of a lattice on all folds, coarse then fine, and beyond its edges.

    What is returned is what `searched` returns. By consistency nu stays as it is.
    """
    lattice = _judged(lattice, fits)
    names = {*(axis.name for axis in lattice.axes), *itertools.chain(*lattice.others)}
    others = [told(point) for point in lattice.others]
    points = f"{[tuple(axis) for axis in lattice.axes]!r} {others!r}"
    tries = Tries(fits, rules)
    with rules.recorded(fits, points, names):
        scout = _Scout(tries, lattice, rules.score)
        scout.run(_sizes(fits, rules.factor), rules.factor or FACTOR)
    return tries.evaluated


def _sizes(fits: FoldFits, factor: int | None) -> list[int]:
    n_rows = fits.data.source.n_rows
    if takes_kernel_matrix(fits.estimator.kernel):
        return [n_rows]  # its columns stand for all rows
    if factor is not None:
        rounds_of(1, n_rows, factor)  # refuses what is no factor
    return sizes_of(n_rows, factor or FACTOR)


class _Scout:
    """Fits of places of a lattice; each is fitted once in a round."""

    def __init__(self, tries: Tries, lattice: Lattice, score: str) -> None:
        self._tries, self._lattice, self._score = tries, lattice, score
        self._round, self._n_rows = 0, 0
        self._means: dict[Place, float] = {}
        self._spans = [(0.0, axis.n_values - 1.0) for axis in lattice.axes]
        self._growths = 0

    def run(self, sizes: Sequence[int], factor: int) -> None:
        """Fit in rounds of these numbers of rows."""
        last = len(sizes) - 1
        for number, n_rows in enumerate(sizes):
            # As in successive halving: `factor` points reach the last round, and `factor` times as
            # many each round before it.
            best = self._best(factor ** (last - number + 1))
            self._round, self._n_rows, self._means = number, n_rows, {}
            if number == 0:
                self._fit(self._lattice.coarse())
                self._fit_between(self._best(factor), 1.0)
                self._grow()
            else:
                self._fit(best)
            if number == max(last - 1, 0):
                self._fit_between(self._best(1), 0.5)
        self._grow()

    def _fit(self, places: Sequence[Place]) -> None:
        new = [place for place in dict.fromkeys(places) if place not in self._means]
        new.sort(key=lambda place: (place.steps, place.other))
        points = [self._lattice.point(place) for place in new]
        means = self._tries.fit(points, self._round, self._n_rows)
        self._means.update(zip(new, means, strict=True))

    def _fit_between(self, places: Sequence[Place], step: float) -> None:
        """Fit what is by a step from some places, within the grid."""
        around = [other for place in places for other in self._lattice.around(place, step)]
        self._fit([place for place in around if not any(self._beyond(place))])

    def _beyond(self, place: Place) -> list[bool]:
        """Whether a place is beyond the grid, by axes."""
        return [
            not low <= k <= high for k, (low, high) in zip(place.steps, self._spans, strict=True)
        ]

    def _best(self, count: int) -> list[Place]:
        """Return the best places of this round."""
        return sorted(self._means, key=lambda place: by_score(self._means[place]))[:count]

    def _grow(self) -> None:
        """Fit what is beyond the edge that the best place is on, until it is on none."""
        while self._growths < GROWTHS:
            edges = {edge.name for edge in edges_of(self._tries.evaluated, self._score)}
            on_edge = [axis.name in edges for axis in self._lattice.axes]
            around = [
                place
                for place in self._lattice.around(self._best(1)[0], 1.0)
                if any(b and e for b, e in zip(self._beyond(place), on_edge, strict=True))
            ]
            if not around:
                return
            self._growths += 1
            self._fit(around)
            steps = zip(*(place.steps for place in around), strict=True)
            self._spans = [
                (min(low, *k), max(high, *k))
                for (low, high), k in zip(self._spans, steps, strict=True)
            ]


def lattice_of(steps: Steps) -> Lattice:
    """Lattice of the parameters that an estimator has, by the names that points have."""
    machine = steps.machine
    axes = axes_of(machine._formulation, [machine.kernel])
    return Lattice([axis._replace(name=steps.name_of(axis.name)) for axis in axes], [{}])


def _judged(lattice: Lattice, fits: FoldFits) -> Lattice:
    """Leave out the axis of nu where scores compare with it."""
    nu = fits.steps.name_of("nu") if fits.is_by_consistency else None
    return lattice._replace(axes=[axis for axis in lattice.axes if axis.name != nu])
