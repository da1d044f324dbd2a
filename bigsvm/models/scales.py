"""Columns of very different scales, which make training slow and models bad."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigsvm.data.rows import is_sparse
from bigsvm.data.statistics import statistics_of

if TYPE_CHECKING:
    from bigsvm.models.expansion import KernelExpansion

FAR_APART = 100.0
"""Ratio of ranges from which scales are very different: of squared distances, the narrower columns
then have a ten thousandth part, which is next to nothing."""
SHARE = 0.25
"""Share of the columns that are at most as wide as the smaller scale. A few narrow columns are
common, such as pixels at the border, and harmless."""


def scaling_hint(model: KernelExpansion) -> str | None:
    """Say that columns have very different scales, and what to do; None if they do not.

    The scale of a column is its range over the support vectors, which are rows of the training
    data. Columns with one value do not count.

    Parameters
    ----------
    model : KernelExpansion

    Returns
    -------
    str or None
        Scales are very different if the largest is at least 100 times the one that a quarter of
        the columns do not exceed.
    """
    vectors = model.support_vectors
    if model.kernel.product == "lookup" or not vectors.shape[0]:
        return None
    taken = statistics_of(vectors.shape[1], sparse=is_sparse(vectors))
    taken.add(vectors)
    statistics = taken.result()
    ranges = statistics.maximum - statistics.minimum
    ranges = ranges[ranges > 0]
    if not len(ranges):
        return None
    small, large = float(np.quantile(ranges, SHARE, method="lower")), float(ranges.max())
    if large < FAR_APART * small:
        return None
    return (
        f"the columns have very different scales, ranges from {small:.2g} to {large:.2g}: scale "
        "them (bigsvm.scale_store, `bigsvm scale`, or StandardScaler of scikit-learn)"
    )
