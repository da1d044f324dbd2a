"""KernelValues: rows are prepared for products, and products become kernel values in place.

A row is centred and rounded before it is multiplied. It is refused if its kernel values would
overflow the dtype.
"""

from __future__ import annotations

import copy
import math
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from bigsvm.core import csr, field_kernels, gram, products
from bigsvm.errors import DataError, ParameterError
from bigsvm.kernels import KernelCode

if TYPE_CHECKING:
    from collections.abc import Callable

    import scipy.sparse as sp
    from numpy.typing import NDArray

    from bigsvm.arrays import F4, F8, I8
    from bigsvm.data.rows import Rows, RowsAt
    from bigsvm.kernels import Kernel

    Floats = F4 | F8

ENTRIES_PER_GROUP = 1.5
"""Least mean number of entries in a group of four features for which words of bytes are used."""


class Product(NamedTuple):
    """What ``a·b`` and the norms of a kernel are; see `Kernel.product`.

    `code` is its number in `core.gram`. The next two write the norms of packed and of CSR rows;
    there are no dense ones where the core needs only zeros. `of_pairs` is what
    `core.field_kernels` adds up, if that has the product. The dot products of rows with values of
    at most `largest_byte`, whole numbers, are this product; 0 if there are none such. If `clipped`,
    it is enough that the partners have such values, and larger ones of a row are cut.
    """

    code: int | None
    dense_norms: Callable[..., None] | None
    sparse_norms: Callable[..., None]
    of_pairs: int | None = None
    largest_byte: int = 0
    clipped: bool = False


@cache
def product_of(name: str) -> Product:
    """Return a product by its name; modules of the core that it does not take are not loaded."""
    match name:
        case "absolute":
            return Product(gram.ABSOLUTE, None, csr.csr_absolute_norms)
        case "minimum" | "mean":
            sums = None, field_kernels.packed_sums, csr.csr_absolute_norms
            if name == "mean":
                return Product(*sums, field_kernels.MEANS)
            # The smaller one of a number and of 0 or 1 is a product with the number cut at 1.
            return Product(*sums, field_kernels.MINIMA, largest_byte=1, clipped=True)
    return Product(None, products.squared_norms, csr.csr_squared_norms, largest_byte=255)


class KernelValues:
    """The arithmetic of kernel values around the products of rows.

    Parameters are those of `KernelTiles`. `centre` is None if the kernel changes when all rows are
    shifted. `product` is `Product.code`, and `formula` the kernel and the offset, for the core
    (`for_core`). If `is_fused`, `core.gram` makes kernel values. Otherwise it returns products, or
    `of_pairs` says which sums are to be added up instead, and `replace` makes kernel values of
    them.
    """

    def __init__(
        self,
        kernel: Kernel,
        *,
        centre: F8 | None,
        dtype: type[np.float32] | type[np.float64],
        offset: float,
    ) -> None:
        self.kernel = kernel
        self.dtype = np.dtype(dtype)
        self.centre = centre if kernel.is_shift_invariant else None
        self._offset = offset
        self.column_factors = kernel.column_factors
        self._shifted = np.flatnonzero(np.empty(0) if self.centre is None else self.centre)
        self._code = kernel.code
        is_fused = KernelCode.FORMULA < kernel.code <= KernelCode.LAPLACIAN
        self.is_fused = is_fused or kernel.code == KernelCode.RBF_BY_COLUMN
        self._looks_up = kernel.product == "lookup"
        self.numbered: Callable[[RowsAt], object] | None = None
        self._largest_norm = kernel.largest_norm(float(np.finfo(dtype).max))

    def for_core(self) -> Self:
        """Get ready to compute in the core, which takes Numba; small functions do without."""
        self._product = product_of(self.kernel.product)
        self.product, self.of_pairs = self._product.code, self._product.of_pairs
        self.clips = self._product.clipped
        offset = self._offset if self.is_fused else 0.0
        self.formula = gram.Formula(*self.kernel.core_parameters, offset=offset)
        return self

    def numbering(self, number: Callable[[RowsAt], object]) -> Self:
        """Copy these, so that vectors prepared by the copy have what `number` returns for them."""
        some = copy.copy(self)
        some.numbered = number
        return some

    def factor_width(self, rows: RowsAt) -> float:
        """Most columns of a factor of K among rows; infinite if there would be as many as rows."""
        width = self.kernel.dimensions(rows.rows.shape[1]) + (self._offset > 0)
        return width if width < len(rows.places) else math.inf

    def dense(self, rows: Rows) -> Floats:
        """Rows (m, d) as a dense block, centred in float64 before they are rounded to `dtype`."""
        values = rows if isinstance(rows, np.ndarray) else rows.toarray()
        if self.centre is not None:
            values = values - self.centre
        if self.column_factors is not None:
            values = values * self.column_factors
        return np.ascontiguousarray(values, dtype=self.dtype)

    def taken(self, rows: sp.csr_array, places: I8) -> tuple[Floats, NDArray[np.integer], I8]:
        """Copy sparse rows at `places`, centred in float64: data, indices and indptr."""
        # SciPy's slicing of rows is slower.
        arrays = rows.data, rows.indices, rows.indptr
        taken: tuple[Floats, NDArray[np.integer], I8]
        if self.centre is None or not len(self._shifted):
            taken = csr.csr_take(*arrays, places)
        else:
            taken = csr.csr_take_centred(*arrays, places, self._shifted, self.centre[self._shifted])
        if self.column_factors is not None:
            data, indices, starts = taken
            taken = data * self.column_factors[indices], indices, starts
        return taken

    def tile_dtypes(self, rows: sp.csr_array, places: I8) -> list[np.dtype[Any]]:
        """List the dtypes that tiles of sparse rows at `places` may have, the fastest one first.

        If all values are whole numbers from 0 to 255, bytes give the same bits as floats: see
        `core.gram`.
        """
        most = self._product.largest_byte
        if not most or len(self._shifted) or self.column_factors is not None:
            return [self.dtype]
        largest, n_entries, n_groups = csr.csr_survey(rows.data, rows.indices, rows.indptr, places)
        if 0 <= largest <= 1:
            return [np.dtype(np.uint8), self.dtype]
        pays = gram.MULTIPLIES_BYTES and n_entries >= ENTRIES_PER_GROUP * n_groups
        return [np.dtype(np.uint32), self.dtype] if 1 < largest <= most and pays else [self.dtype]

    @property
    def can_be_listed(self) -> bool:
        """Whether products are dot products, to which zeros add nothing."""
        return self.product is None and self.of_pairs is None

    def squared_norms(self, values: Floats) -> Floats:
        """``|a|²`` of prepared rows (m, d), with the bits of `packed_norms`."""
        m, d = values.shape
        packed = np.empty((-(-m // gram.MR), d, gram.MR), self.dtype)
        products.pack_partners(values, packed)
        return self.packed_norms(packed, m)

    def packed_norms(self, packed: Floats, m: int) -> Floats:
        """``|a|²`` of m packed rows, (m,) in `dtype`; 0 for a kernel of absolute distances.

        A row is refused if its kernel values would overflow `dtype` or are not numbers. The kernel
        may refuse a row too.
        """
        self.kernel.check_rows(packed)
        norms: Floats = np.zeros(m, self.dtype)
        if self._product.dense_norms is not None:
            self._product.dense_norms(packed, norms)
            self.check(norms)
        return norms

    def sparse_norms(self, data: Floats, indptr: I8, out: Floats) -> None:
        """``|a|²`` or ``|a|₁`` of CSR rows, (m,) in `dtype`; the kernel may refuse a row."""
        self.kernel.check_rows(data)
        self._product.sparse_norms(data, indptr, out)

    def check(self, norms: Floats) -> None:
        """Raise a DataError if kernel values of rows with these norms would overflow the dtype."""
        largest = norms.max(initial=0)
        if largest <= self._largest_norm:
            return
        if np.isnan(largest):
            raise DataError(
                "a row has values that are not numbers (NaN); fill them in, or leave it out"
            )
        raise DataError(
            f"a row has the squared length {largest:.4g}, and {self.kernel.name} kernel values "
            f"in {self.dtype} need at most {self._largest_norm:.4g}; scale the features"
        )

    def check_looked_up(self, values: Floats) -> None:
        """Raise a DataError if a value of a kernel matrix is not finite in the dtype."""
        if not np.isfinite(values).all():
            raise DataError(
                f"a value of the kernel matrix is not a number of {self.dtype}; scale the matrix"
            )

    def diagonal(self, norms: Floats) -> F8:
        """k(a, a) of rows with these norms, (p,) float64, with the bits that `evaluate` gives it.

        A pair step subtracts one from the other. For two rows that nearly agree the difference is
        as small as the rounding of the values.
        """
        if self._looks_up:
            return norms.astype(np.float64) + self._offset
        if self._code == KernelCode.FORMULA:
            exact = norms.astype(np.float64)
            with_itself = [
                self.by_formula(exact[a : a + 1, None], exact[a : a + 1], exact[a : a + 1])[0]
                for a in range(len(exact))
            ]
            exact = np.concatenate([np.empty(0), *with_itself]) + self._offset
            return exact.astype(norms.dtype).astype(np.float64)
        if not self.is_fused:
            gamma, code = self.formula.gamma, self._code
            own: Floats = field_kernels.field_diagonal(norms, code, gamma, self._offset)
            return own.astype(np.float64)
        dots = np.zeros_like(norms) if self.kernel.is_shift_invariant else norms
        values, no_norms = dots[None, :].copy(), np.zeros(len(norms) + 1, norms.dtype)
        self.replace(values, no_norms[:1], no_norms[1:])
        diagonal: F8 = values[0].astype(np.float64)
        return diagonal

    def replace(self, dots: Floats, norms_rows: Floats, norms_partners: Floats) -> None:
        """Replace products (m, ≥ p), whose norms are (m,) and (p,), by kernel values."""
        if self.is_fused:
            values = gram.kernel_values32 if self.dtype == np.float32 else gram.kernel_values64
            values(dots, norms_rows, norms_partners, self.formula)
            return
        if self._code != KernelCode.FORMULA:
            field_kernels.field_values(
                dots, norms_rows, norms_partners, self._code, self.formula.gamma, self._offset
            )
            return
        p = len(norms_partners)
        kernel_values = self.by_formula(
            dots[:, :p].astype(np.float64),
            norms_rows.astype(np.float64),
            norms_partners.astype(np.float64),
        )
        dots[:, :p] = np.add(kernel_values, self._offset, dtype=np.float64)

    def by_formula(self, dots: F8, norms_rows: F8, norms_partners: F8) -> NDArray[Any]:
        """Kernel values (m, p) by the formula of the kernel, which a user may have written.

        It must return floats of this shape: assignment would broadcast or round others.
        """
        shape = dots.shape
        values = self.kernel.from_products(dots, norms_rows, norms_partners)
        if not isinstance(values, np.ndarray) or values.shape != shape or values.dtype.kind != "f":
            what = type(values).__name__
            if isinstance(values, np.ndarray):
                what = f"an array of shape {values.shape} of {values.dtype}"
            raise ParameterError(
                f"from_products of the kernel {self.kernel.name} returns {what}; it must be an "
                f"array of floats of the shape of the dot products, here {shape}"
            )
        return values
