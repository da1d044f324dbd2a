"""How rows may be prepared before they are trained on: those of images, and those of other columns.

What a preparation has to learn, it learns of the rows trained on.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from tools.benchmarks.crammer_singer import Parts

    Rows = NDArray[np.float32]

SMOOTHING = 0.75
"""Pixels: standard deviation of the Gaussian that Schölkopf, Simard, Smola and Vapnik (Prior
knowledge in support vector kernels, NIPS 1998) smooth the digits of usps with."""

AS_THEY_ARE = "rows as they are"
NORMALISED = "rows less their mean, of length 1"
SMOOTHED = f"rows smoothed by a Gaussian of {SMOOTHING:g} pixels, less their mean, of length 1"
HALF_WHITENED = "rows half whitened within classes"
WHITENED = "rows whitened within classes"

IMAGES = (AS_THEY_ARE, NORMALISED, SMOOTHED)
"""None looks at another row. The second takes brightness and contrast out, as is usual where
patterns are compared by their products; the third noise and the exact place of a stroke too."""
COLUMNS = (AS_THEY_ARE, HALF_WHITENED, WHITENED)
"""Distances are x'S^-p x with S the covariance of the rows about the means of their classes, and p
0, 1/2 or 1: Euclid's, that of Fisher's discriminant, and the way's middle."""
PREPARATIONS = tuple(dict.fromkeys((*IMAGES, *COLUMNS)))


def prepared(parts: Parts, preparation: str) -> Parts:
    """Give both parts prepared in one of `PREPARATIONS`, as the rows trained on have it."""
    ways: dict[str, Callable[[Parts], Callable[[Rows], Rows]]] = {
        AS_THEY_ARE: lambda _: lambda x: x,
        NORMALISED: lambda _: _normalised,
        SMOOTHED: _smoothing,
        HALF_WHITENED: partial(_whitening, power=0.5),
        WHITENED: partial(_whitening, power=1.0),
    }
    way = ways[preparation](parts)
    return parts._replace(x=way(parts.x), test_x=way(parts.test_x))


def _normalised(x: Rows) -> Rows:
    import numpy as np

    x = x - x.mean(axis=1, keepdims=True)
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), np.float32(1e-30))


def _smoothing(parts: Parts) -> Callable[[Rows], Rows]:
    """Prepare square images; their last columns may be missing, the ground is the least value."""
    import math

    import numpy as np
    from scipy.ndimage import gaussian_filter

    ground = parts.x.min()

    def smoothed(x: Rows) -> Rows:
        n_rows, n_columns = x.shape
        side = math.isqrt(n_columns - 1) + 1
        images = np.full((n_rows, side * side), ground, np.float32)
        images[:, :n_columns] = x
        images = images.reshape(n_rows, side, side)
        found = gaussian_filter(images, (0, SMOOTHING, SMOOTHING), mode="constant", cval=ground)
        return _normalised(found.reshape(n_rows, -1))

    return smoothed


def _whitening(parts: Parts, *, power: float) -> Callable[[Rows], Rows]:
    """Multiply rows by S^(-power/2); S is shrunk, by Ledoit and Wolf, so that it has an inverse."""
    import numpy as np
    from sklearn.covariance import ledoit_wolf

    classes, of_row = np.unique(parts.y, return_inverse=True)
    means = np.stack([parts.x[of_row == k].mean(axis=0) for k in range(len(classes))])
    S, _ = ledoit_wolf(parts.x - means[of_row], assume_centered=True)
    values, vectors = np.linalg.eigh(S.astype(np.float64))
    matrix = ((vectors * values ** (-power / 2)) @ vectors.T).astype(np.float32)
    return lambda x: x @ matrix
