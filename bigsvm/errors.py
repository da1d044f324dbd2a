"""The one family of exceptions; every message names what was wrong, where, and the remedy."""


class BigsvmError(Exception):
    """Base of every error that bigsvm raises on purpose."""


class ParameterError(BigsvmError, ValueError):
    """A parameter or a combination of them has no meaning; names it and what would be right."""


class DataError(BigsvmError, ValueError):
    """Rows, labels or weights that no model can be trained on or applied to; names the row."""


class ParseError(DataError):
    """A line of LIBSVM text that cannot be read; names file, line, column, text and remedy."""


class StoreError(BigsvmError):
    """A path that is no store, is incomplete, of a newer format, or that the system cannot read."""


class UnreachableError(StoreError):
    """Files of a store on another machine that could not be read for a while; try again later."""


class DataCorruptionError(StoreError):
    """Bytes of a store that are not those written: missing, truncated, swapped or flipped."""


class CheckpointError(BigsvmError):
    """A checkpoint that is damaged, in use by another process, or belongs to another problem."""


class ModelError(BigsvmError):
    """A file that is not a bigsvm model, is damaged, or has a newer format."""


class MemoryBudgetError(BigsvmError, MemoryError):
    """A run that would not fit the memory budget; gives the projected bytes of each part."""


class ClusterError(BigsvmError):
    """A cluster that cannot compute: it has no workers, or other versions; names the address."""
