"""Command lines of LIBSVM's programs: ``-c 8 -g 0.03 FILE MODEL``, one letter and its value."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from bigsvm.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from bigsvm.models import KernelExpansion

FORMULATIONS = ("c-svc", "nu-svc", "one-class", "eps-svr", "nu-svr")
"""Formulations by LIBSVM's numbers."""
PARAMETERS = {
    "d": "degree", "g": "gamma", "r": "coef0", "c": "C", "n": "nu", "p": "epsilon", "e": "tol",
}  # fmt: skip
"""Parameters by LIBSVM's letters. All defaults but that of gamma are those of bigsvm."""
SETTINGS: dict[str, Any] = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": ["--help"],
}
"""Settings of a command that reads its own words; ``-h`` is an option of svm-train."""


class Words(NamedTuple):
    """What a command line says.

    The words behind each option by its letter, one, or of ``-y`` two; the weights of classes by the
    label in ``-wLABEL``; whether ``-q`` is there; the files.
    """

    values: dict[str, tuple[str, ...]]
    weights: dict[float, float]
    quiet: bool
    files: list[str]

    def number(self, letter: str, default: float) -> float:
        """Value of an option as a number."""
        words = self.values.get(letter)
        return default if words is None else as_number(words[0], f"-{letter}")

    def text(self, letter: str) -> str | None:
        """Value of an option; None if it is not there."""
        words = self.values.get(letter)
        return None if words is None else words[0]

    def choice(self, letter: str, known: tuple[str, ...], *, default: int = 0) -> int:
        """Return the number of a choice; others are refused."""
        word = self.text(letter) or str(default)
        if word not in map(str, range(len(known))):
            listed = ", ".join(f"{number} ({name})" for number, name in enumerate(known))
            raise typer.BadParameter(f"-{letter} is {word!r}; it must be one of {listed}")
        return int(word)


def read_words(words: list[str], *, letters: str, pairs: str = "", weighted: bool = False) -> Words:
    """Read the words of a command line as LIBSVM's programs do: first options, then files.

    One word follows each of `letters`, two follow each of `pairs`; if `weighted`, ``-wLABEL`` is an
    option.
    """
    values: dict[str, tuple[str, ...]] = {}
    weights: dict[float, float] = {}
    quiet, left = False, list(words)
    while left and left[0].startswith("-") and left[0] != "-":
        option = left.pop(0)
        letter = option[1:]
        if option == "-q":
            quiet = True
            continue
        is_weight = weighted and letter.startswith("w") and len(letter) > 1
        count = 2 if letter in pairs else 1
        if not is_weight and not (len(letter) == 1 and letter in letters + pairs):
            known = [f"-{name}" for name in letters + pairs] + ["-wLABEL"] * weighted + ["-q"]
            raise typer.BadParameter(f"there is no option {option}; there are {', '.join(known)}")
        if len(left) < count:
            raise typer.BadParameter(f"{option} needs {'two values' if count == 2 else 'a value'}")
        following, left = tuple(left[:count]), left[count:]
        if is_weight:
            weights[as_number(letter[1:], option)] = as_number(following[0], option)
        else:
            values[letter] = following
    for word in left:
        if word.startswith("-") and word != "-":
            raise typer.BadParameter(f"options come before files; move {word} to the front")
    return Words(values, weights, quiet, left)


def in_letters(message: str) -> str:
    """Replace an option of ours in a message by LIBSVM's: ``--formulation eps-svr`` by ``-s 3``."""
    for number, name in enumerate(FORMULATIONS):
        message = message.replace(f"--formulation {name}", f"-s {number}")
    return message


def as_number(word: str, option: str) -> float:
    """Read a number; the message of an error names the option."""
    try:
        return float(word)
    except ValueError:
        raise typer.BadParameter(f"{option} has {word!r}, which is not a number") from None


def check_labels_are_numbers(names: Sequence[Any] | None, what: str) -> None:
    """Refuse labels or classes that are words, which LIBSVM's files have no place for."""
    if names and isinstance(names[0], str):
        raise DataError(
            f"{what} has words as labels, and LIBSVM's files have whole numbers; use "
            "`bigsvm train` and `bigsvm predict`"
        )


def noise_lines(model: "KernelExpansion") -> Iterator[str]:
    """Yield the lines in which LIBSVM's programs say how far targets are from predictions."""
    if model.calibration is not None and model.calibration.method == "laplace":
        scale = model.calibration.numbers[0, 0]
        yield "Prob. model for test data: target value = predicted value + z,"
        yield f"z: Laplace distribution e^(-|z|/sigma)/(2sigma),sigma={scale:g}"


def error_and_correlation(
    values: "NDArray[np.float64]", targets: "NDArray[np.float64]"
) -> tuple[float, float]:
    """Mean squared error, and squared correlation coefficient, NaN where one side is constant."""
    import numpy as np

    error = float(((values - targets) ** 2).mean())
    p, t = values - values.mean(), targets - targets.mean()
    with np.errstate(invalid="ignore", divide="ignore"):
        return error, float((p @ t) ** 2 / np.float64((p @ p) * (t @ t)))
