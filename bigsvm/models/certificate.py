"""The certificate of a model: types and ranges of its fields in a file, and doubts it leaves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from bigsvm.errors import brief
from bigsvm.training.result import CLUSTER_COSTS, StopReason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LARGE_GAP = 0.02
"""Share of rho above which the KKT gap puts decision values in doubt."""
DEEPEST = 16
"""Most nesting levels of a value; training writes five. Recursion must not exhaust the stack."""


def is_count(value: object) -> bool:
    """Whether this is a whole number from 0 to 2**63 - 1."""
    return type(value) is int and 0 <= value < 2**63


def is_number(value: object) -> bool:
    """Whether this is a float, of any value, or a whole number of 64 bits."""
    return type(value) is float or (type(value) is int and abs(value) < 2**63)


def one_of(name: str, value: object, known: Sequence[str]) -> str:
    """Return a word that is among `known` ones.

    Raises
    ------
    ValueError
    """
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name} is {value!r}; known are {', '.join(known)}")
    return value


def check_plain(name: str, value: object) -> None:
    """Refuse a value that is not a JSON object, or is nested too deeply.

    Raises
    ------
    ValueError
    """
    if not isinstance(value, dict):
        raise ValueError(f"{name} is no object")
    level: list[object] = [value]
    for _ in range(DEEPEST):
        level = [
            item
            for container in level
            if isinstance(container, dict | list)
            for item in (container.values() if isinstance(container, dict) else container)
        ]
    if level:
        raise ValueError(f"{name} is nested too deeply")


def _is_known(value: object) -> bool:
    return is_number(value) and math.isfinite(value)  # type: ignore[arg-type]  # just looked at


def _or_none(check: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or check(value)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_ball(value: object) -> bool:
    if not isinstance(value, dict) or set(value) != {"test", "eps", "farthest_gap", "losses_gap"}:
        return False
    if value["test"] not in (None, "radius", "duality gap"):
        return False
    figures = [value[name] for name in ("eps", "farthest_gap", "losses_gap")]
    return all(figure is None or (_is_known(figure) and figure >= 0) for figure in figures)


def _is_share(value: object) -> bool:
    return _is_known(value) and 0 <= value <= 1  # type: ignore[operator]  # just looked at


def _is_reason(value: object) -> bool:
    return isinstance(value, str) and value in set(StopReason)


def _are_sentences(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(sentence, str) for sentence in value)


def _are_seconds(value: object) -> bool:
    return isinstance(value, dict) and all(
        _is_known(number) and number >= 0 for number in value.values()
    )


CHECKS: dict[str, Callable[[object], bool]] = {
    "converged": _is_flag,
    "stop_reason": _is_reason,
    "tol": _is_known,
    "objective": _or_none(is_number),
    "gap": _or_none(is_number),
    "last_gap": _or_none(is_number),
    "duality_gap": _or_none(is_number),
    "rho": _or_none(is_number),
    "epsilon": is_number,
    "test_error": _or_none(_is_share),
    "test_error_deviation": _or_none(_is_share),
    "rows_used": _or_none(is_count),
    "ball": _or_none(_is_ball),
    "drift": _or_none(is_number),
    "seconds": _is_known,
    "seconds_by_phase": _or_none(_are_seconds),
    "cpu_idle": _or_none(_is_known),
    "disk_tier": _or_none(lambda value: isinstance(value, str)),
    "kernel_is_definite": _or_none(_is_flag),
    "advice": _are_sentences,
    **dict.fromkeys(
        (
            "n_support", "n_bounded", "n_sweeps", "n_iter", "n_kernel_evaluations", "row_misses",
            "row_reads", "n_working_sets", "rows_swept", "bytes_read", "n_pairs", "n_begun",
            "n_not_recomputed", *CLUSTER_COSTS,
        ),
        is_count,
    ),
}  # fmt: skip
"""Checks for fields of a certificate and of its pairs; other fields are shown as they are."""


def check_certificate(certificate: Any, *, n_classes: int | None) -> None:  # noqa: ANN401 (as JSON has it)
    """Refuse a certificate with a field of the wrong type or out of range.

    Parameters
    ----------
    certificate : dict
    n_classes : int or None
        Number of classes, None if it is not known; class indices must be smaller.

    Raises
    ------
    ValueError, KeyError
    """
    _check_fields("certificate", certificate)
    if "least_sure" in certificate:
        least = certificate["least_sure"]
        _check_fields("least_sure", least, required=("gap", "rho"))
        _check_places([least["class"]], n_classes)
    if not _are_counts(certificate.get("n_support_of_classes"), n_classes):
        raise ValueError("n_support_of_classes are not numbers of support vectors of each class")
    if "pairs" in certificate:
        _check_pairs(certificate["pairs"], n_classes)


def _check_pairs(pairs: Any, n_classes: int | None) -> None:  # noqa: ANN401 (as JSON has it)
    _check_fields("pairs", pairs)
    reasons, worst = pairs["stop_reasons"], pairs["worst"]
    check_plain("stop_reasons", reasons)
    if not all(_is_reason(reason) and is_count(n) for reason, n in reasons.items()):
        raise ValueError("stop_reasons are not numbers of pairs")
    if not (is_count(pairs["n_begun"]) and is_count(pairs["n_pairs"])):
        raise ValueError("n_begun or n_pairs is not a number of pairs")
    n_pairs = None if n_classes is None else n_classes * (n_classes - 1) // 2
    if not _are_counts(pairs.get("n_iter_of_pairs"), n_pairs):
        raise ValueError("n_iter_of_pairs are not numbers of steps of each pair")
    if not isinstance(worst, list) or not worst:
        raise ValueError("it has pairs, but not the worst of them")
    for pair in worst:
        _check_fields("a pair", pair, required=("gap", "n_support"), ignored=("stop_reason",))
        if pair["stop_reason"] is not None and not _is_reason(pair["stop_reason"]):
            raise ValueError("the stop_reason of a pair is unknown")
        _check_places(pair["classes"], n_classes, 2)
    if "least_sure" in pairs:
        pair = pairs["least_sure"]
        _check_fields("least_sure", pair, required=("gap", "rho"))
        _check_places(pair["classes"], n_classes, 2)


def _check_fields(
    name: str,
    record: Any,  # noqa: ANN401 (as JSON has it)
    *,
    required: Sequence[str] = (),
    ignored: Sequence[str] = (),
) -> None:
    check_plain(name, record)
    for field in required:
        if field not in record:
            raise ValueError(f"{name} has no {field}")
    for field, value in record.items():
        check = None if field in ignored else CHECKS.get(field)
        if check is not None and not check(value):
            raise ValueError(f"{field} of {name} is {repr(value)[:40]}")


def _are_counts(counts: object, length: int | None) -> bool:
    """Whether counts are absent, or a list of that length, if it is known."""
    if not isinstance(counts, list):
        return counts is None
    return length in (None, len(counts)) and all(map(is_count, counts))


def _check_places(places: object, n_classes: int | None, size: int = 1) -> None:
    if not isinstance(places, list) or len(places) != size:
        raise ValueError(f"classes of its certificate are not a list of {size}")
    most = math.inf if n_classes is None else n_classes
    if not all(is_count(place) and place < most for place in places):
        raise ValueError("its certificate names a class that there is not")


def doubt_of(
    certificate: Mapping[str, Any], formulation: str, classes: Sequence[object] | None
) -> str | None:
    """Why a converged model may still be of no use, in a sentence; None if it may not.

    LIBSVM's tolerance applies to the dual before it is divided by rho. If rho is not much larger
    than the tolerance, decision values are as wrong as they are large. The pair with the largest
    gap beside rho, or the class with the smallest rho, speaks for all; it is named if `classes`
    are given.
    """
    pair = certificate.get("pairs", {}).get("least_sure")
    of_class = certificate.get("least_sure")
    worst = pair or of_class or certificate
    doubt = _doubt(certificate, formulation, worst.get("rho"), worst.get("gap"))
    if doubt is None or classes is None or worst is certificate:
        return doubt
    if pair is not None:
        first, second = (classes[code] for code in pair["classes"])
        return f"classes {brief(first)} and {brief(second)}: {doubt}"
    return f"class {brief(classes[worst['class']])} against the rest: {doubt}"


def _doubt(
    certificate: Mapping[str, Any], formulation: str, rho: float | None, gap: float | None
) -> str | None:
    """Doubt about one function, by its own rho and KKT gap."""
    balls = {"l2-svc": "margins", "l2-one-class": "rho"}
    if formulation in balls and certificate.get("converged") and (gap or 0) > 1:
        return (
            f"the ball is within its tolerance, but a row may still be outside by {gap:.3g} "
            f"{balls[formulation]}; lower tol"
        )
    if not certificate.get("converged") or rho is None or gap is None:
        return None
    if rho == 0 and formulation == "nu-svc":
        return (
            "nu is less than the share of errors that cannot be avoided: the margin is 0, and so "
            "are all decision values; raise nu"
        )
    # A gap far below tol is rounding, as where one class has the origin in its middle.
    if gap > max(LARGE_GAP * abs(rho), 1e-3 * float(certificate.get("tol", 0))):
        return (
            f"the KKT gap, {gap:.3g}, is not small beside rho, {rho:.3g}, by which decision values "
            f"are to be judged; lower tol to {LARGE_GAP * abs(rho):.1g}"
        )
    return None
