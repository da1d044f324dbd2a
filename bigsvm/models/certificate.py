"""The certificate of a model: types and ranges of its fields in a file, and doubts it leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bigsvm.declared import AMOUNT, FINITE, Within, check_fields, is_count, is_kind
from bigsvm.errors import brief
from bigsvm.training.result import BYTES_OF_WORKERS, CLUSTER_COSTS, CLUSTER_SECONDS, StopReason

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bigsvm.declared import Kind

LARGE_GAP = 0.02
"""Share of rho above which the KKT gap puts decision values in doubt."""
_REASON = {str(reason) for reason in StopReason}
_SHARE = Within(0, 1)
CHECKS: dict[str, Kind] = {
    "converged": bool,
    "stop_reason": _REASON,
    "tol": FINITE,
    **dict.fromkeys(("objective", "gap", "last_gap", "duality_gap", "rho", "drift"), (float, None)),
    "epsilon": float,
    **dict.fromkeys(("test_error", "test_error_deviation"), (_SHARE, None)),
    **dict.fromkeys(("rows_used", "sampled_rows", "n_different"), (int, None)),
    **dict.fromkeys(("sampled_duality_gap", "sampled_duality_gap_deviation"), (FINITE, None)),
    "ball": (
        {
            "test": ({"radius", "duality gap"}, None),
            **dict.fromkeys(("eps", "farthest_gap", "losses_gap"), (AMOUNT, None)),
        },
        None,
    ),
    **dict.fromkeys(("objective_error", "duality_gap_error"), (AMOUNT, None)),
    "seconds": FINITE,
    "seconds_by_phase": ({str: AMOUNT}, None),
    **dict.fromkeys(CLUSTER_SECONDS, AMOUNT),
    "cpu_idle": (FINITE, None),
    "disk_tier": (str, None),
    "kernel_is_definite": (bool, None),
    "advice": [str],
    "solver": {"bigsvm", "libsvm"},
    **dict.fromkeys(
        (
            "n_support", "n_bounded", "n_sweeps", "n_iter", "n_kernel_evaluations", "row_misses",
            "row_reads", "n_working_sets", "rows_swept", "bytes_read", "n_pairs", "n_begun",
            "n_not_recomputed", *CLUSTER_COSTS,
        ),
        int,
    ),
    BYTES_OF_WORKERS: [int],
}  # fmt: skip
"""Kinds of fields of a certificate and of its pairs; other fields are shown as they are."""
_COUNTS = dict.fromkeys(("n_support_of_classes", "n_iter_of_pairs"), ([int], None))
_PAIRS = {"n_begun": int, "n_pairs": int, "stop_reasons": {str: int}, "worst": [dict], **_COUNTS}


def check_certificate(
    certificate: Any,  # noqa: ANN401 (as JSON has it)
    *,
    n_classes: int | None,
    required: Collection[str] = (),
) -> None:
    """Refuse a certificate with a field of the wrong type or out of range, or without one required.

    Class indices must be smaller than `n_classes`, which is None if only the certificate may know
    it.
    """
    check_fields("certificate", certificate, {**CHECKS, **_COUNTS}, required=required)
    counts = certificate.get("n_support_of_classes")
    if n_classes is None:
        n_classes = len(counts or ()) or None
    _check_length("n_support_of_classes", counts, n_classes)

    def is_class(value: Any) -> bool:  # noqa: ANN401 (as JSON has it)
        return is_count(value) and (n_classes is None or value < n_classes)

    pair = {**CHECKS, "stop_reason": (_REASON, None), "classes": [is_class, is_class]}
    if "least_sure" in certificate:
        least = certificate["least_sure"]
        fields = {**CHECKS, "class": is_class}
        check_fields("least_sure", least, fields, required=("gap", "rho", "class"))
    if "pairs" not in certificate:
        return
    pairs = certificate["pairs"]
    check_fields("pairs", pairs, {**CHECKS, **_PAIRS}, required=_PAIRS.keys() - _COUNTS.keys())
    n_pairs = None if n_classes is None else n_classes * (n_classes - 1) // 2
    _check_length("n_iter_of_pairs", pairs.get("n_iter_of_pairs"), n_pairs)
    if not pairs["worst"] or not is_kind(list(pairs["stop_reasons"]), [_REASON]):
        raise ValueError("it has pairs, but not the worst of them, or not why they stopped")
    for one in pairs["worst"]:
        required = ("gap", "n_support", "stop_reason", "classes")
        check_fields("a pair", one, pair, required=required)
    if "least_sure" in pairs:
        least = pairs["least_sure"]
        check_fields("least_sure", least, pair, required=("gap", "rho", "classes"))


def _check_length(name: str, values: list[object] | None, length: int | None) -> None:
    """Refuse a list, if there is one, of another length, if it is known."""
    if values is not None and length is not None and len(values) != length:
        raise ValueError(f"{name} has {len(values)} values instead of {length}")


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
