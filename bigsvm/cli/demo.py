"""``bigsvm demo``."""

from bigsvm.errors import ParameterError


def command() -> None:
    """Train out of core on bundled data, be killed half way, resume, predict."""
    raise ParameterError("the demo is not written yet")
