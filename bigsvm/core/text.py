"""Parser of LIBSVM text, ``label index:value index:value … # comment``, one line a row.

The parser reads a buffer that ends with a newline, fills preallocated arrays and stops at the first
line that it cannot read, saying where and what kind of mistake it is; the message is built in
Python. Numbers come out exactly as Python's `float` reads them:

* A decimal is an integer mantissa m of at most 18 digits times 10**e. Digits are read eight at a
  time (Lemire, "Number parsing at a gigabyte per second", 2021).
* Where m < 2**53 and abs(e) <= 22, both factors are float64 numbers, and one IEEE operation rounds
  once (Clinger, "How to read floating point numbers accurately", 1990).
* Where only m is larger (17 digits, as ``repr`` writes them), the operation is done with an error
  term, and its sum is taken if no value within the bound of the error rounds differently
  (Ziv's rounding test).
* All else is noted in a list of fix-ups, which the caller gives to `float`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

from bigsvm.compilation import compiled, inlined, inner

if TYPE_CHECKING:
    from numpy.typing import NDArray

Untyped: TypeAlias = Any
"""Integers whose type NumPy and Numba name differently, and what the compiler's functions take."""

MAX_INDEX = 2**31 - 2
"""Largest feature index: column numbers stay below the largest int32, so that a count of columns,
which is one more than the last column, is an int32 too."""


class TextFault(IntEnum):
    """What is wrong with the text at the position where `parse` stopped."""

    NONE = 0
    LABEL = 1
    INDEX = 2
    INDEX_TOO_SMALL = 3
    INDEX_TOO_LARGE = 4
    ORDER = 5
    VALUE = 6
    RANGE = 7
    NUL = 8
    EMPTY_LINE = 9
    COMMENT = 10
    QID = 11
    LABEL_ROUNDED = 12
    LABEL_AMONG_WORDS = 13


class Count(IntEnum):
    """Positions in the array of counts that `parse` fills."""

    ROWS = 0
    ENTRIES = 1
    FIXUPS = 2
    EMPTY_LINES = 3
    COMMENTS = 4
    QIDS = 5
    SMALLEST_INDEX = 6
    LARGEST_INDEX = 7


# 10**0 … 10**22 are the powers of ten that a float64 holds exactly.
_TEN = np.array([float(10**k) for k in range(23)])
_EXACT = np.int64(2**53)
# A mantissa below _ROOM[n] can take n more digits and has 18 at most.
_POWER = np.array([10**n for n in range(9)])
_ROOM = np.array([10 ** (18 - n) for n in range(9)])
# 2**27 + 1 splits a float64 into two halves of 26 bits whose products are exact (Dekker 1971).
_SPLIT = 134217729.0
# The error term below is good to about 2**-100 of the result; 2**-90 leaves a wide margin.
_ZIV = 2.0**-90

_TAB, _NEWLINE, _RETURN, _SPACE, _HASH, _PLUS, _MINUS, _DOT, _ZERO, _NINE, _COLON, _BIG_E = (
    9, 10, 13, 32, 35, 43, 45, 46, 48, 57, 58, 69,
)  # fmt: skip
_SMALL_E, _Q, _I, _D = 101, 113, 105, 100

# Plain integers: the kernel assigns them to one variable, which must keep one type.
_LABEL = int(TextFault.LABEL)
_INDEX = int(TextFault.INDEX)
_TOO_SMALL = int(TextFault.INDEX_TOO_SMALL)
_TOO_LARGE = int(TextFault.INDEX_TOO_LARGE)
_ORDER = int(TextFault.ORDER)
_VALUE = int(TextFault.VALUE)
_RANGE = int(TextFault.RANGE)
_NUL = int(TextFault.NUL)
_EMPTY_LINE = int(TextFault.EMPTY_LINE)
_COMMENT = int(TextFault.COMMENT)
_QID = int(TextFault.QID)


# Eight bytes in one word: of each byte, the digit it is, and the high bit where it is none.
_ZEROS = np.uint64(0x3030303030303030)
_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_HIGH_BITS = np.uint64(0x8080808080808080)
_BEYOND_NINE = np.uint64(0x7676767676767676)
_EVEN_BYTES = np.uint64(0x00FF00FF00FF00FF)
_EVEN_PAIRS = np.uint64(0x0000FFFF0000FFFF)
_LOWER_HALF = np.uint64(0x00000000FFFFFFFF)
# Unsigned, as Numba makes floats of an unsigned and a signed integer.
_3, _8, _10, _16, _32, _64, _100, _10000 = map(np.uint64, (3, 8, 10, 16, 32, 64, 100, 10000))

if config.DISABLE_JIT:

    def _trailing_zeros(word: Untyped) -> Untyped:
        return np.uint64((int(word) & -int(word)).bit_length() - 1)

else:  # pragma: no cover (runs in the compiler, whose results have tests)

    @intrinsic
    def _trailing_zeros(typing_context: Untyped, word: Untyped) -> Untyped:
        """Count the zeros below the lowest bit of a word other than 0."""

        def generate(
            context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped
        ) -> Untyped:
            return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

        return types.uint64(types.uint64), generate


@inner
def _byte(text: NDArray[np.uint8], at: Untyped) -> Untyped:
    # At an unsigned place: Numba looks whether a signed one is negative.
    return np.int64(text[np.uint64(at)])


@inlined
def _is_space(c: int) -> bool:
    """Whether `c` separates tokens inside a line: tab, vertical tab, form feed, return, space."""
    return c == _SPACE or (c >= _TAB and c <= _RETURN and c != _NEWLINE)


@inner
def _two_product(a: float, b: float) -> tuple[float, float]:
    """Return ``a * b``, rounded, and its exact error."""
    p = a * b
    t = _SPLIT * a
    a_high = t - (t - a)
    a_low = a - a_high
    t = _SPLIT * b
    b_high = t - (t - b)
    b_low = b - b_high
    return p, ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low


@compiled
def scale_by_ten(mantissa: int, exponent: int) -> tuple[float, bool]:
    """``mantissa * 10**exponent``, and whether it is certain to be correctly rounded.

    The mantissa is at least 0 and below 10**18. The result is uncertain for exponents outside -22 …
    22, unless the mantissa is 0.
    """
    if mantissa == 0:
        return 0.0, True
    if exponent < -22 or exponent > 22:
        return 0.0, False
    if mantissa < _EXACT:
        if exponent >= 0:
            return float(mantissa) * _TEN[exponent], True
        return float(mantissa) / _TEN[-exponent], True
    high = float(mantissa)
    low = float(mantissa - np.int64(high))
    if exponent >= 0:
        ten = _TEN[exponent]
        result, error = _two_product(high, ten)
        error += low * ten
    else:
        ten = _TEN[-exponent]
        result = high / ten
        product, product_error = _two_product(result, ten)
        error = ((high - product) - product_error + low) / ten
    bound = abs(result) * _ZIV
    rounded = result + (error - bound)
    return rounded, rounded == result + (error + bound)


@inner
def _eight(text: NDArray[np.uint8], at: int) -> np.uint64:
    """Eight bytes of `text`, the first one lowest."""
    i = np.uint64(at)
    word = np.uint64(0)
    for k in range(_8):
        word |= np.uint64(text[i + k]) << (_8 * k)
    return word


@inner
def _leading_digits(word: np.uint64) -> tuple[np.int64, np.int64]:
    """Count the digits at the beginning of eight bytes, and read them as a whole number.

    Digits are added up in pairs, then in pairs of pairs, each time in one multiplication.
    """
    digits = word ^ _ZEROS
    others = (((digits & _LOW_BITS) + _BEYOND_NINE) | digits) & _HIGH_BITS
    if others == 0:
        n = _8
    else:
        n = _trailing_zeros(others) >> _3
        if n == 0:
            return np.int64(0), np.int64(0)
        # What follows the digits is shifted out, and zeros come before them.
        digits <<= _64 - (n << _3)
    digits = (digits * _10 + (digits >> _8)) & _EVEN_BYTES
    digits = (digits * _100 + (digits >> _16)) & _EVEN_PAIRS
    digits = (digits * _10000 + (digits >> _32)) & _LOWER_HALF
    return np.int64(n), np.int64(digits)


@inlined
def _digits(text: NDArray[np.uint8], at: int, mantissa: Untyped) -> tuple[Untyped, Untyped]:
    """Append the digits at `at` to a mantissa: the longer mantissa, and the place after them.

    The mantissa is -1 where it is, or becomes, longer than 18 digits.
    """
    while at + 8 <= text.shape[0]:
        n, value = _leading_digits(_eight(text, at))
        mantissa = mantissa * _POWER[n] + value if 0 <= mantissa < _ROOM[n] else np.int64(-1)
        at += n
        if n < 8:
            return mantissa, at
    while True:
        digit = _byte(text, at) - _ZERO
        if digit < 0 or digit > 9:
            return mantissa, at
        mantissa = mantissa * 10 + digit if 0 <= mantissa < _ROOM[1] else np.int64(-1)
        at += 1


@inlined
def _number(text: NDArray[np.uint8], at: int) -> tuple[float, int, int]:
    """Read a decimal at `at`: value, position after it, and 1 exact, 0 to fix up, -1 bad.

    The text must end with a newline, which ends every number.
    """
    negative = False
    c = _byte(text, at)
    if c == _MINUS or c == _PLUS:
        negative = c == _MINUS
        at += 1
        c = _byte(text, at)
    exponent = np.int64(0)
    first = at
    # Most values of data sets have one digit before the point.
    if c >= _ZERO and c <= _NINE and _byte(text, at + 1) == _DOT:
        mantissa = c - _ZERO
        at += 1
    else:
        mantissa, at = _digits(text, at, np.int64(0))
    c = _byte(text, at)
    n_digits = at - first
    if c == _DOT:
        at += 1
        point = at
        mantissa, at = _digits(text, at, mantissa)
        c = _byte(text, at)
        n_digits += at - point
        exponent = np.int64(point - at)
    if n_digits == 0:
        return 0.0, at, -1
    if c == _BIG_E or c == _SMALL_E:
        at += 1
        c = _byte(text, at)
        small = c == _MINUS
        if c == _MINUS or c == _PLUS:
            at += 1
            c = _byte(text, at)
        first = at
        written = np.int64(0)
        while True:
            digit = c - _ZERO
            if digit < 0 or digit > 9:
                break
            # Past some ten thousand the sign of the exponent alone decides; no overflow either.
            if written < 100000:
                written = written * 10 + digit
            at += 1
            c = _byte(text, at)
        if at == first:
            return 0.0, at, -1
        exponent += -written if small else written
    if mantissa < 0:
        return 0.0, at, 0
    value, exact = scale_by_ten(mantissa, exponent)
    if negative:
        value = -value
    return value, at, 1 if exact else 0


@compiled
def count(text: NDArray[np.uint8]) -> tuple[int, int]:
    """Newlines and colons of `text`: bounds for the rows and entries `parse` can find in it."""
    newlines = 0
    colons = 0
    for c in text:
        newlines += c == _NEWLINE
        colons += c == _COLON
    return newlines, colons


@inner
def _skip_comment(text: NDArray[np.uint8], at: int) -> tuple[int, bool]:
    """Position of the newline that ends the comment at `at`; False if there is a NUL before it."""
    while _byte(text, at) != _NEWLINE:
        if _byte(text, at) == 0:
            return at, False
        at += 1
    return at, True


@compiled
def parse(
    text: NDArray[np.uint8],
    labels: NDArray[np.float64],
    lengths: NDArray[np.int64],
    indices: NDArray[np.int32],
    values: NDArray[np.float64],
    fixups: NDArray[np.int64],
    counts: NDArray[np.int64],
    smallest_index: int,
    largest: float,
    strict: int,
) -> tuple[int, int]:
    """Parse whole lines into arrays, up to the first line that cannot be read.

    Returns a `TextFault`, and where in `text` it is. `counts` covers what comes before it.

    Parameters
    ----------
    text : (n_bytes,) uint8
        Whole lines; the last byte is a newline.
    labels, lengths : (n_rows,) float64 and int64
        Filled with the label and the number of entries of each row. At least as many places as
        `text` has newlines.
    indices, values : (n_entries,) int32 and float32 or float64
        Filled with the indices as they are written, and the values. At least as many places as
        `text` has colons.
    fixups : (n_fixups, 3) int64
        Filled with numbers that need Python's `float`: offset of the text, offset of its end, and
        the place in `values`, or ``-1 - row`` for a label. As many places as rows plus entries.
    counts : (len(Count),) int64
        Filled as `Count` says. The smallest and largest index must be set by the caller before.
    smallest_index : int
        Smaller indices are mistakes: 0 or 1.
    largest : float
        Values of at least this size do not fit the type of `values`.
    strict : int
        1 to stop at comments, empty lines and qid, else 0.
    """
    n_rows = 0
    n_entries = 0
    n_fixups = 0
    low = counts[Count.SMALLEST_INDEX]
    high = counts[Count.LARGEST_INDEX]
    at = 0
    end = len(text)
    problem = 0
    while at < end:
        c = _byte(text, at)
        while _is_space(c):
            at += 1
            c = _byte(text, at)
        if c == _NEWLINE or c == _HASH:
            if c == _HASH:
                counts[Count.COMMENTS] += 1
                if strict == 1:
                    problem = _COMMENT
                    break
                at, clean = _skip_comment(text, at)
                if not clean:
                    problem = _NUL
                    break
            else:
                counts[Count.EMPTY_LINES] += 1
                if strict == 1:
                    problem = _EMPTY_LINE
                    break
            at += 1
            continue

        start = at
        value, at, quality = _number(text, at)
        c = _byte(text, at)
        if quality < 0 or not (_is_space(c) or c == _NEWLINE or c == _HASH):
            problem = _LABEL
            at = start
            break
        labels[n_rows] = value
        # A whole number as large as that may not be the one that is written.
        if quality == 0 or abs(value) >= _EXACT:
            fixups[n_fixups, 0] = start
            fixups[n_fixups, 1] = at
            fixups[n_fixups, 2] = -1 - n_rows
            n_fixups += 1

        first_entry = n_entries
        previous = np.int64(-1)
        while True:
            while _is_space(c):
                at += 1
                c = _byte(text, at)
            start = at
            digit = c - _ZERO
            if digit < 0 or digit > 9:
                if c == _NEWLINE:
                    break
                if c == _HASH:
                    counts[Count.COMMENTS] += 1
                    if strict == 1:
                        problem = _COMMENT
                        break
                    at, clean = _skip_comment(text, at)
                    if not clean:
                        problem = _NUL
                    break
                # Every token is followed by a newline, so a mismatch stops these tests in bounds.
                if (
                    n_entries == first_entry
                    and c == _Q
                    and _byte(text, at + 1) == _I
                    and _byte(text, at + 2) == _D
                    and _byte(text, at + 3) == _COLON
                ):
                    counts[Count.QIDS] += 1
                    if strict == 1:
                        problem = _QID
                        break
                    at += 4
                    first = at
                    c = _byte(text, at)
                    while c >= _ZERO and c < _COLON:
                        at += 1
                        c = _byte(text, at)
                    if at == first or not (_is_space(c) or c == _NEWLINE or c == _HASH):
                        problem = _QID
                        at = start
                        break
                    continue
                problem = _INDEX
                break
            index = digit
            at += 1
            c = _byte(text, at)
            while True:
                digit = c - _ZERO
                if digit < 0 or digit > 9:
                    break
                # Stays above the limit once it is, without overflow.
                if index <= MAX_INDEX:
                    index = index * 10 + digit
                at += 1
                c = _byte(text, at)
            if c != _COLON:
                problem = _INDEX
                at = start
                break
            if index > MAX_INDEX or index < smallest_index or index <= previous:
                problem = _ORDER
                if index > MAX_INDEX:
                    problem = _TOO_LARGE
                elif index < smallest_index:
                    problem = _TOO_SMALL
                at = start
                break
            at += 1
            start = at
            # One digit and a space is every entry of a binary data set.
            digit = _byte(text, at) - _ZERO
            if digit >= 0 and digit <= 9 and _byte(text, at + 1) == _SPACE:
                value = float(digit)
                quality = 1
                at += 1
            else:
                value, at, quality = _number(text, at)
            c = _byte(text, at)
            if quality < 0 or not (_is_space(c) or c == _NEWLINE or c == _HASH):
                problem = _VALUE
                at = start
                break
            if quality == 0:
                fixups[n_fixups, 0] = start
                fixups[n_fixups, 1] = at
                fixups[n_fixups, 2] = n_entries
                n_fixups += 1
            elif abs(value) >= largest:
                problem = _RANGE
                at = start
                break
            else:
                values[n_entries] = value
            indices[n_entries] = index
            previous = index
            n_entries += 1
        if problem != 0:
            break
        length = n_entries - first_entry
        if length > 0:
            low = min(low, np.int64(indices[first_entry]))
            high = max(high, np.int64(indices[n_entries - 1]))
        lengths[n_rows] = length
        n_rows += 1
        at += 1
    counts[Count.ROWS] = n_rows
    counts[Count.ENTRIES] = n_entries
    counts[Count.FIXUPS] = n_fixups
    counts[Count.SMALLEST_INDEX] = low
    counts[Count.LARGEST_INDEX] = high
    return problem, at
