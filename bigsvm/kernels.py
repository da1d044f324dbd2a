"""Kernels: formulas without data.

A kernel is a function of the dot product and the squared norms of its two arguments. So a block of
kernel values is one matrix product and one pass over its result. The formulas here, in NumPy, are
the definition; `bigsvm.core.gram` has the same formulas fused and vectorised.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from bigsvm.errors import DataError, ParameterError, brief
from bigsvm.identity import identity_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Values: TypeAlias = NDArray[np.float64]

SMALLEST, LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
"""The range in which float32 has its full precision; kernel values are computed in float32."""

MOST_DEGREE = 4096
"""Largest degree: each degree costs one multiplication per kernel value, without interruption."""


class KernelCode(IntEnum):
    """Number of a kernel in the Numba core; up to 4 they are those of LIBSVM's ``-t``."""

    FORMULA = -1
    """Not in the core: `Kernel.from_products` is called for every block."""
    LINEAR = 0
    POLYNOMIAL = 1
    RBF = 2
    SIGMOID = 3
    PRECOMPUTED = 4
    LAPLACIAN = 5
    COSINE = 6
    MATERN32 = 7
    MATERN52 = 8
    INTERSECTION = 9
    TANIMOTO = 10
    CHI2 = 11
    RBF_BY_COLUMN = 12


class CoreParameters(NamedTuple):
    """The code and the parameters of a kernel, for the Numba core."""

    code: int
    gamma: float
    coef0: float
    degree: int


KERNELS: dict[str, type[Kernel]] = {}
"""All kernels by name; each class with a name adds itself."""


@dataclass(frozen=True, kw_only=True)
class Kernel(ABC):
    """k(a, b) as a function of ``a·b``, ``|a|²`` and ``|b|²``.

    A new kernel is a frozen dataclass whose fields are its parameters. It has a name,
    `from_products`, `largest_norm` if its values can overflow, and `check_rows` if it is not
    defined for all rows. It must be symmetric. Models with it can be loaded once the class is
    defined. Each class has a name of its own; a class that is defined again, as in a notebook,
    replaces the earlier one.

    Attributes
    ----------
    name : str
        Name of the kernel, as scikit-learn spells it.
    code : KernelCode
    product : {"dot", "absolute", "minimum", "mean", "lookup"}
        What ``a·b`` and the norms are: ``"dot"`` the scalar product; ``"absolute"`` a product p
        with ``|a| + |b| − 2 p = Σ |a_k − b_k|``; ``"minimum"`` ``Σ min(a_k, b_k)`` and ``"mean"``
        ``Σ 2 a_k b_k / (a_k + b_k)``, both with the norms ``Σ a_k``, of rows without negative
        values; ``"lookup"`` kernel values that the rows have, see `Precomputed`.
    is_definite : bool or None
        Whether every kernel matrix is positive semidefinite, so that training has one optimum; None
        if unknown.
    is_shift_invariant : bool
        Whether k(a + c, b + c) = k(a, b). If so, rows are centred first, which keeps float32
        distances accurate far from the origin.
    takes_negative : bool
        Whether rows may have values below 0. If not, all rows are looked at before training.
    column_factors : (d,) float64 or None
        What the columns are multiplied by before all else, where there is such a number for each.

    See Also
    --------
    SVC : Takes a kernel as `kernel`.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> from sklearn.datasets import make_moons
    >>> import bigsvm
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Cauchy(bigsvm.Kernel):
    ...     name = "cauchy"
    ...     width: float = 1.0
    ...
    ...     def from_products(self, dots, norms_rows, norms_columns):
    ...         squared_distances = np.add.outer(norms_rows, norms_columns) - 2 * dots
    ...         return 1 / (1 + np.maximum(squared_distances, 0) / self.width**2)
    >>> X, y = make_moons(200, noise=0.1, random_state=0)
    >>> bigsvm.SVC(kernel=Cauchy(width=0.5)).fit(X, y).converged_
    True
    """

    name: ClassVar[str]
    code: ClassVar[KernelCode] = KernelCode.FORMULA
    product: ClassVar[str] = "dot"
    is_definite: ClassVar[bool | None] = True
    is_shift_invariant: ClassVar[bool] = False
    takes_negative: ClassVar[bool] = True
    column_factors: ClassVar[Values | None] = None

    def __init_subclass__(cls) -> None:
        if "from_products" in cls.__dict__ and "code" not in cls.__dict__:
            cls.code = KernelCode.FORMULA  # compiled code of a base class is not this formula
        if "name" in cls.__dict__:
            other = KERNELS.get(cls.name)
            if other is not None and not _is_defined_again(cls, other):
                raise ParameterError(
                    f"the kernel class {_place_of(cls)} has the name {cls.name!r}, which is that "
                    f"of {_place_of(other)}; give it another name"
                )
            KERNELS[cls.name] = cls

    @abstractmethod
    def from_products(self, dots: Values, norms_rows: Values, norms_columns: Values) -> Values:
        """Kernel values (m, p) from ``a·b`` (m, p), ``|a|²`` (m,) and ``|b|²`` (p,)."""

    def check_rows(self, values: NDArray[np.floating[Any]]) -> None:
        """Refuse rows that the kernel is not defined for: those with negative values, if any are.

        It is called for all rows that are multiplied, in training and in prediction.

        Parameters
        ----------
        values : (…,) float32 or float64
            Values of some dense rows and perhaps zeros, or the entries of some sparse rows.

        Raises
        ------
        DataError
        """
        if not self.takes_negative and values.min(initial=0) < 0:
            raise DataError(
                f"a row has the value {values.min():.6g}, and the kernel {self.name} is for rows "
                "without negative values; take another kernel, or other features"
            )

    def largest_norm(self, largest: float) -> float:
        """Largest ``|a|²`` with which no kernel value or step towards it exceeds `largest`."""
        return largest

    def dimensions(self, n_columns: int) -> float:
        """Most dimensions of the space that rows are mapped to: the rank of a kernel matrix."""
        return math.inf

    @property
    def core_parameters(self) -> CoreParameters:
        """The parameters in the order the Numba core takes them."""
        parameters = asdict(self)
        return CoreParameters(
            code=int(self.code),
            gamma=float(parameters.get("gamma", 1.0)),
            coef0=float(parameters.get("coef0", 0.0)),
            degree=int(parameters.get("degree", 1)),
        )

    def describe(self) -> dict[str, Any]:
        """Give the kernel as plain values, ``{"name": …, parameter: …}``, for `kernel_from`."""
        return {"name": self.name, **asdict(self)}

    @property
    def recorded(self) -> str:
        """The class, all fields and what they compute, for fingerprints; `repr` may hide some."""
        values = []
        for field in fields(self):
            value = getattr(self, field.name)
            # Other values may look different in another process; the identity has them.
            is_plain = isinstance(value, int | float | str)
            values.append(f"{field.name}={repr(value) if is_plain else type(value).__name__}")
        identity = identity_of_kernel(self)
        computes = "" if identity is None else f" {identity}"
        return f"{type(self).__qualname__}({', '.join(values)}){computes}"

    def check(self) -> None:
        """Refuse a kernel that a saved model would not lead back to: its name and fields are saved.

        Raises
        ------
        ParameterError
            It has the name of another class, or depends on more than its fields.
        """
        named = KERNELS.get(self.name)
        if named is not None and not _is_defined_again(type(self), named):
            raise ParameterError(
                f"the kernel class {_place_of(type(self))} has no name of its own, but that of "
                f"{_place_of(named)}, which a saved model would be loaded with; give it a name"
            )
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        arguments = {field.name: values[field.name] for field in fields(self) if field.init}
        try:
            again = vars(type(self)(**arguments))
        except TypeError:
            again = {}
        for name, value in vars(self).items():
            is_computed = isinstance(getattr(type(self), name, None), functools.cached_property)
            is_same = name in again and repr(again[name]) == repr(value)
            if not (name in values or is_computed or is_same):
                raise ParameterError(
                    f"kernel {self.name!r} depends on {name!r}, which is no field of "
                    f"{type(self).__name__}, so that models and checkpoints would lack it; make "
                    "the class a frozen dataclass with that as a field"
                )


@dataclass(frozen=True, kw_only=True)
class Linear(Kernel):
    """``k(a, b) = a·b``."""

    name = "linear"
    code = KernelCode.LINEAR

    def from_products(self, dots: Values, norms_rows: Values, norms_columns: Values) -> Values:
        return np.array(dots, dtype=np.float64)

    def dimensions(self, n_columns: int) -> float:
        return n_columns


@dataclass(frozen=True, kw_only=True)
class Polynomial(Kernel):
    """``k(a, b) = (gamma a·b + coef0)^degree``, degree a whole number ≥ 0."""

    name = "poly"
    code = KernelCode.POLYNOMIAL
    gamma: float
    coef0: float = 0.0
    degree: int = 3

    def from_products(self, dots: Values, norms_rows: Values, norms_columns: Values) -> Values:
        return (self.gamma * np.asarray(dots, np.float64) + self.coef0) ** self.degree

    def dimensions(self, n_columns: int) -> float:
        return math.comb(n_columns + self.degree, self.degree)

    def largest_norm(self, largest: float) -> float:
        if self.degree == 0 or self.gamma == 0:
            return largest
        base = math.pow(largest, 1.0 / self.degree)
        return min(largest, (base - abs(self.coef0)) / self.gamma)


@dataclass(frozen=True, kw_only=True)
class RBF(Kernel):
    """``k(a, b) = exp(-gamma |a - b|²)``."""

    name = "rbf"
    code = KernelCode.RBF
    is_shift_invariant = True
    gamma: float

    def from_products(self, dots: Values, norms_rows: Values, norms_columns: Values) -> Values:
        squared = np.add.outer(norms_rows, norms_columns) - 2.0 * np.asarray(dots, np.float64)
        return np.exp(-self.gamma * np.maximum(squared, 0.0))

    def largest_norm(self, largest: float) -> float:
        return largest / 4.0  # |a - b|² is four times as large at most


@dataclass(frozen=True, kw_only=True)
class Sigmoid(Kernel):
    """``k(a, b) = tanh(gamma a·b + coef0)``; indefinite for most parameters."""

    name = "sigmoid"
    code = KernelCode.SIGMOID
    is_definite: ClassVar[bool | None] = False
    gamma: float
    coef0: float = 0.0

    def from_products(self, dots: Values, norms_rows: Values, norms_columns: Values) -> Values:
        return np.tanh(self.gamma * np.asarray(dots, np.float64) + self.coef0)


@dataclass(frozen=True, kw_only=True)
class Laplacian(Kernel):
    """``k(a, b) = exp(-gamma Σ |a_k - b_k|)``."""

    name = "laplacian"
    code = KernelCode.LAPLACIAN
    product = "absolute"
    is_shift_invariant = True
    gamma: float

    def from_products(self, dots: Values, norms_rows: Values, norms_columns: Values) -> Values:
        apart = np.add.outer(norms_rows, norms_columns) - 2.0 * np.asarray(dots, np.float64)
        return np.exp(-self.gamma * np.maximum(apart, 0.0))

    def largest_norm(self, largest: float) -> float:
        return largest / 4.0


@dataclass(frozen=True, kw_only=True)
class Cosine(Kernel):
    """``k(a, b) = a·b / (|a| |b|)``, and 0 for a row of zeros, as scikit-learn has it."""

    name = "cosine"
    code = KernelCode.COSINE

    def from_products(self, dots: Values, norms_rows: Values, norms_columns: Values) -> Values:
        lengths = np.outer(np.sqrt(norms_rows), np.sqrt(norms_columns))
        values: Values = np.divide(dots, lengths, out=np.zeros(lengths.shape), where=lengths > 0)
        return values

    def check_rows(self, values: NDArray[np.floating[Any]]) -> None:
        """Refuse values whose squares are lost: a row of such values would count as zeros."""
        least = math.sqrt(SMALLEST)
        small = np.abs(values)
        small = small[(small > 0) & (small < least)]
        if len(small):
            raise DataError(
                f"a row has the value {small[0]:.3g}, and the kernel cosine squares values in "
                f"float32, which needs 0 or at least {least:.2g}; put 0, or scale the features"
            )

    def dimensions(self, n_columns: int) -> float:
        return n_columns


@dataclass(frozen=True, kw_only=True)
class Matern32(Kernel):
    """``k(a, b) = (1 + r) exp(-r)`` with ``r = sqrt(6 gamma) |a - b|``: Matérn's, ν = 3/2.

    The length scale is ``1 / sqrt(2 gamma)``, as that of rbf (Rasmussen & Williams 2006, equation
    4.17), so that one gamma means the same for both.
    """

    name = "matern32"
    code = KernelCode.MATERN32
    is_shift_invariant = True
    gamma: float

    def from_products(self, dots: Values, norms_rows: Values, norms_columns: Values) -> Values:
        squared = np.add.outer(norms_rows, norms_columns) - 2.0 * np.asarray(dots, np.float64)
        r = np.sqrt(6.0 * self.gamma * np.maximum(squared, 0.0))
        return (1.0 + r) * np.exp(-r)

    def largest_norm(self, largest: float) -> float:
        return largest / 4.0


@dataclass(frozen=True, kw_only=True)
class Matern52(Kernel):
    """``k(a, b) = (1 + r + r²/3) exp(-r)`` with ``r = sqrt(10 gamma) |a - b|``: Matérn's, ν = 5/2.

    The length scale is that of `Matern32`.
    """

    name = "matern52"
    code = KernelCode.MATERN52
    is_shift_invariant = True
    gamma: float

    def from_products(self, dots: Values, norms_rows: Values, norms_columns: Values) -> Values:
        squared = np.add.outer(norms_rows, norms_columns) - 2.0 * np.asarray(dots, np.float64)
        squared = 10.0 * self.gamma * np.maximum(squared, 0.0)
        r = np.sqrt(squared)
        return (1.0 + r + squared / 3.0) * np.exp(-r)

    def largest_norm(self, largest: float) -> float:
        return largest / 4.0


@dataclass(frozen=True, kw_only=True)
class Intersection(Kernel):
    """``k(a, b) = Σ min(a_k, b_k)``, of histograms: rows without negative values.

    Positive semidefinite, see Barla, Odone & Verri 2003.
    """

    name = "intersection"
    code = KernelCode.INTERSECTION
    product = "minimum"
    takes_negative = False

    def from_products(self, dots: Values, norms_rows: Values, norms_columns: Values) -> Values:
        return np.array(dots, dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class Tanimoto(Kernel):
    """``k(a, b) = Σ min(a_k, b_k) / Σ max(a_k, b_k)``, of rows without negative values.

    Of rows of 0 and 1 it is the Tanimoto or Jaccard coefficient, the number of common features by
    that of features of either. Of counts it is the form that Ralaivola et al. 2005 call MinMax, and
    that RDKit computes. Two rows of zeros have 1, a row of zeros and another one 0.
    """

    name = "tanimoto"
    code = KernelCode.TANIMOTO
    product = "minimum"
    takes_negative = False

    def from_products(self, dots: Values, norms_rows: Values, norms_columns: Values) -> Values:
        common = np.asarray(dots, np.float64)
        either = np.maximum(np.add.outer(norms_rows, norms_columns) - common, common)
        values: Values = np.divide(common, either, out=np.ones(either.shape), where=either > 0)
        return values

    def largest_norm(self, largest: float) -> float:
        return largest / 4.0


@dataclass(frozen=True, kw_only=True)
class Chi2(Kernel):
    """``k(a, b) = exp(-gamma Σ (a_k - b_k)² / (a_k + b_k))``, of rows without negative values.

    Columns in which both are 0 add nothing. It is scikit-learn's ``chi2_kernel``.
    """

    name = "chi2"
    code = KernelCode.CHI2
    product = "mean"
    takes_negative = False
    gamma: float

    def from_products(self, dots: Values, norms_rows: Values, norms_columns: Values) -> Values:
        apart = np.add.outer(norms_rows, norms_columns) - 2.0 * np.asarray(dots, np.float64)
        return np.exp(-self.gamma * np.maximum(apart, 0.0))

    def largest_norm(self, largest: float) -> float:
        return largest / 4.0


@dataclass(frozen=True, kw_only=True)
class RBFByColumn(Kernel):
    """``k(a, b) = exp(-Σ gamma_k (a_k - b_k)²)``: rbf of columns times ``sqrt(gamma_k)``.

    A column of gamma 0 is left out. `from_products` is given the products of these rows. It is what
    ``kernel="rbf"`` with a gamma for each column stands for.
    """

    name = "rbf-by-column"
    code = KernelCode.RBF_BY_COLUMN
    is_shift_invariant = True
    gamma: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", gammas_of_columns(self.gamma))

    @property
    def column_factors(self) -> Values:  # type: ignore[override] # of an instance, not of the class
        """Square roots of gamma, (d,)."""
        factors: Values = np.sqrt(np.array(self.gamma, np.float64))
        return factors

    @property
    def recorded(self) -> str:
        """The class and all gammas."""
        return repr(self)

    @property
    def core_parameters(self) -> CoreParameters:
        """Those of rbf: the rows have gamma already."""
        return RBF(gamma=1.0).core_parameters

    def from_products(self, dots: Values, norms_rows: Values, norms_columns: Values) -> Values:
        return RBF(gamma=1.0).from_products(dots, norms_rows, norms_columns)

    def largest_norm(self, largest: float) -> float:
        return largest / 4.0


def gammas_of_columns(gamma: Sequence[float] | Values) -> tuple[float, ...]:
    """Check a gamma for each column, as `resolve_gamma` does one for all, and give numbers."""
    values = np.asarray(gamma)
    if not values.ndim:
        raise ParameterError(
            f"gamma is {brief(gamma)}; it must be one number, or a number for each column"
        )
    if values.ndim != 1 or values.dtype.kind not in "iuf" or not len(values):
        raise ParameterError(
            f"gamma is an array of shape {values.shape} of {values.dtype}; it must be one number, "
            "or a number for each column"
        )
    for column, value in enumerate(values.tolist()):
        if not (value == 0 or SMALLEST <= value <= LARGEST):
            raise ParameterError(
                f"gamma of column {column} (from 0) is {value!r}; it must be 0, or a number from "
                f"{SMALLEST:.3g} to {LARGEST:.3g}"
            )
    return tuple(map(float, values.tolist()))


@dataclass(frozen=True, kw_only=True)
class Precomputed(Kernel):
    """``k(a, b) = a[number of b]``: rows of a kernel matrix; see `bigsvm.data.kernel_matrix`."""

    name = "precomputed"
    code = KernelCode.PRECOMPUTED
    product = "lookup"
    is_definite: ClassVar[bool | None] = None

    def from_products(self, dots: Values, norms_rows: Values, norms_columns: Values) -> Values:
        return np.array(dots, dtype=np.float64)


def takes_kernel_matrix(kernel: object) -> bool:
    """Whether the rows for this kernel, or the one of this name, are rows of a kernel matrix."""
    return kernel == Precomputed.name or isinstance(kernel, Precomputed)


def identity_of_kernel(kernel: Kernel, *, versions: bool = True) -> str | None:
    """Tell what a kernel of one's own computes, as `identity_of` does; None of a built-in one."""
    if type(kernel).__module__ == __name__:
        return None
    return identity_of(kernel, versions=versions)


def _place_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _is_defined_again(kind: type[Kernel], other: type[Kernel]) -> bool:
    """Whether two classes are one that was defined again, or made anew with `__slots__`."""
    if _place_of(kind) == _place_of(other):
        return True
    # A dataclass with slots is a copy of a class, which has no qualified name yet.
    is_copy = kind.from_products is other.from_products and kind.__module__ == other.__module__
    return is_copy and kind.__name__ == other.__name__


def make_kernel(
    name: str, *, gamma: float | tuple[float, ...] = 1.0, coef0: float = 0.0, degree: int = 3
) -> Kernel:
    """Build the kernel `name` from those of the parameters it has.

    Of rbf gamma may be a number for each column.

    Refused are kernels with other parameters than these; gamma that is negative, not finite, or not
    0 and beyond float32; coef0 that is not finite or beyond float32; degree that is negative or
    fractional.
    """
    if not isinstance(name, str) or name not in KERNELS:
        raise ParameterError(f"kernel is {brief(name)}; it must be one of {', '.join(KERNELS)}")
    if isinstance(gamma, tuple):
        if name == RBF.name:
            return RBFByColumn(gamma=gammas_of_columns(gamma))
        raise ParameterError(
            f"gamma is {len(gamma)} numbers, one for each column, which only the kernel rbf takes; "
            f"give {name} one number"
        )
    if not (math.isfinite(gamma) and gamma >= 0):
        raise ParameterError(f"gamma is {gamma!r}; it must be a finite number >= 0")
    if gamma:
        _check_float32(gamma, f"gamma is {gamma!r}")
    if not abs(coef0) <= LARGEST:
        raise ParameterError(
            f"coef0 is {coef0!r}; it must be a finite number of at most {LARGEST:.3g}"
        )
    if not (0 <= degree <= MOST_DEGREE and degree == int(degree)):
        raise ParameterError(
            f"degree is {degree!r}; it must be a whole number from 0 to {MOST_DEGREE}"
        )
    parameters = {"gamma": float(gamma), "coef0": float(coef0), "degree": int(degree)}
    kind = KERNELS[name]
    own = {}
    for field in fields(kind):
        if field.name not in parameters:
            raise ParameterError(
                f"kernel {name!r} has the parameter {field.name}, which a name does not give; pass "
                f"an instance: kernel={kind.__name__}({field.name}=...)"
            )
        own[field.name] = parameters[field.name]
    return kind(**own)


def kernel_from(description: Mapping[str, Any]) -> Kernel:
    """Build the kernel that `Kernel.describe` described."""
    if not isinstance(description, Mapping) or not isinstance(description.get("name"), str):
        raise ParameterError("the description of a kernel has no name")
    parameters = dict(description)
    name = parameters.pop("name")
    if name == RBFByColumn.name and isinstance(parameters.get("gamma"), list | tuple):
        return RBFByColumn(**parameters)
    kind = KERNELS.get(name)
    if kind is None:
        raise ParameterError(
            f"there is no kernel {name!r}; if it is one of your own, import the module that "
            "defines it first"
        )
    for parameter, value in parameters.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ParameterError(f"kernel {name}: {parameter} is {value}; it must be finite")
    if kind.code is KernelCode.FORMULA:
        try:
            return kind(**parameters)
        except TypeError as error:
            raise ParameterError(f"kernel {name}: {error}") from None
    wanted = {field.name for field in fields(kind)}
    if set(parameters) != wanted:
        raise ParameterError(
            f"kernel {name} has the parameters {', '.join(sorted(wanted)) or 'none'}, not "
            f"{', '.join(sorted(parameters)) or 'none'}"
        )
    for parameter, value in parameters.items():
        if type(value) not in (int, float) or abs(value) > LARGEST:
            raise ParameterError(
                f"kernel {name}: {parameter} is {repr(value)[:40]}; it must be a number of float32"
            )
    return make_kernel(name, **parameters)


def resolve_gamma(
    gamma: float | str, *, n_features: int, variance: float, mean_distance: float = 1.0
) -> float:
    """Turn ``"scale"`` and ``"auto"`` into numbers, with scikit-learn's meaning.

    ``"scale"`` is 1 / (n_features · variance), or 1 where the variance is 0; ``"auto"`` is 1 /
    n_features; ``"mean-distance"`` 1 / (2 · mean_distance), or 1 where that is 0: with σ² =
    mean_distance the kernel is exp(-d² / 2σ²) (Frandi et al. 2013, section 5.2.1). The variance is
    that of all entries of the training rows, population form; `mean_distance` is the average
    squared distance of two rows. A number beyond float32 is refused, as that of ``"scale"`` is
    where the features are extremely small or large.
    """
    if isinstance(gamma, str):
        if gamma == "scale":
            if variance == 0:
                return 1.0
            scale = 1.0 / (n_features * variance)
            _check_float32(scale, f"gamma='scale' is {scale:.3g}, as X.var() is {variance:.3g}")
            return scale
        if gamma == "auto":
            return 1.0 / n_features
        if gamma == "mean-distance":
            if mean_distance == 0:
                return 1.0
            inverse = 0.5 / mean_distance
            _check_float32(inverse, f"gamma='mean-distance' is {inverse:.3g}")
            return inverse
    if isinstance(gamma, str) or not (math.isfinite(gamma) and gamma >= 0):
        raise ParameterError(
            f"gamma is {gamma!r}; it must be 'scale', 'auto', 'mean-distance' or a number >= 0"
        )
    if gamma:
        _check_float32(gamma, f"gamma is {gamma!r}")
    return float(gamma)


def _check_float32(gamma: float, what: str) -> None:
    """Refuse a gamma that float32 would round to nothing or to infinity: kernel values of NaN."""
    if not SMALLEST <= gamma <= LARGEST:
        raise ParameterError(
            f"{what}; kernel values are computed in float32, for which it must be between "
            f"{SMALLEST:.3g} and {LARGEST:.3g}: scale the features"
        )
