"""Short names of array types, for annotations; shapes are in docstrings."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

F4: TypeAlias = NDArray[np.float32]
F8: TypeAlias = NDArray[np.float64]
I4: TypeAlias = NDArray[np.int32]
I8: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]
