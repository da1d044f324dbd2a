"""Data for the demo: the digits that scikit-learn ships, and many slightly changed copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import dask.array as da
    from numpy.typing import NDArray

SIDE = 8
"""The images have 8 x 8 pixels of 0 … 16."""
LARGEST_SHIFT = 0.4
"""Pixels; much more would push strokes out of so small an image."""
LARGEST_ROTATION = np.deg2rad(8)
NOISE = 0.03
"""Standard deviation, of pixels scaled to 0 … 1."""
_ROWS_PER_BLOCK = 20_000


class Digits(NamedTuple):
    """Images of digits, pixels scaled to 0 … 1; label +1 is an even digit, -1 an odd one.

    train_images, test_images : (m, 64) float32; train_labels, test_labels : (m,) float64.
    """

    train_images: NDArray[np.float32]
    train_labels: NDArray[np.float64]
    test_images: NDArray[np.float32]
    test_labels: NDArray[np.float64]


def load_digits_split(seed: int) -> Digits:
    """Load the images, a third of each digit held out before anything is made of the others."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, digits = load_digits(return_X_y=True)
    train, test, train_digits, test_digits = train_test_split(
        (images / 16).astype(np.float32),
        digits,
        test_size=1 / 3,
        random_state=seed,
        stratify=digits,
    )
    return Digits(train, _labels(train_digits), test, _labels(test_digits))


def _labels(digits: NDArray[Any]) -> NDArray[np.float64]:
    return np.where(digits % 2 == 0, 1.0, -1.0)


def enlarged(digits: Digits, n_rows: int, seed: int) -> tuple[da.Array, NDArray[np.float64]]:
    """Give many rows made of the training images, (n_rows, 64) float32, and labels, (n_rows,).

    Row i is made of training image ``i % m``, shifted, rotated and noisy. Blocks are computed when
    they are written, and are always the same.
    """
    import dask.array as da

    m = len(digits.train_images)
    sizes = [min(_ROWS_PER_BLOCK, n_rows - first) for first in range(0, n_rows, _ROWS_PER_BLOCK)]

    def block(block_info: Any = None) -> NDArray[np.float32]:  # noqa: ANN401
        (start, stop), _ = block_info[None]["array-location"]
        rng = np.random.default_rng([seed, start])
        return vary(digits.train_images[np.arange(start, stop) % m], rng)

    X = da.map_blocks(
        block,
        chunks=(tuple(sizes), (SIDE * SIDE,)),
        dtype=np.float32,
        meta=np.empty((0, SIDE * SIDE), np.float32),
    )
    return X, digits.train_labels[np.arange(n_rows) % m]


def vary(images: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    """Shift, rotate and blur images (m, 64) a little with noise, differently each."""
    m = len(images)
    angle = rng.uniform(-LARGEST_ROTATION, LARGEST_ROTATION, (m, 1))
    shift = rng.uniform(-LARGEST_SHIFT, LARGEST_SHIFT, (2, m, 1))
    centre = (SIDE - 1) / 2
    row, column = (axis.ravel() - centre for axis in np.mgrid[:SIDE, :SIDE])
    # Where each new pixel lies in the old image, which has an empty frame of one pixel around it.
    from_row = np.cos(angle) * row - np.sin(angle) * column + centre + shift[0] + 1
    from_column = np.sin(angle) * row + np.cos(angle) * column + centre + shift[1] + 1
    framed = np.pad(images.reshape(m, SIDE, SIDE), ((0, 0), (1, 1), (1, 1)))
    np.clip(from_row, 0, SIDE + 0.999, out=from_row)
    np.clip(from_column, 0, SIDE + 0.999, out=from_column)
    i, j = from_row.astype(np.intp), from_column.astype(np.intp)
    u, v = from_row - i, from_column - j
    k = np.arange(m)[:, None]
    new = (1 - u) * ((1 - v) * framed[k, i, j] + v * framed[k, i, j + 1])
    new += u * ((1 - v) * framed[k, i + 1, j] + v * framed[k, i + 1, j + 1])
    new += rng.normal(0, NOISE, new.shape)
    varied: NDArray[np.float32] = np.clip(new, 0, 1).astype(np.float32)
    return varied
