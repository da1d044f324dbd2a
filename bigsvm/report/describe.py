"""Stores, models and runs described: records for JSON, and lines for a person."""

from __future__ import annotations

from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigsvm.budget import show_bytes
from bigsvm.parameters.formulations import gap_name
from bigsvm.report.progress import duration
from bigsvm.report.text import bytes_on_disk, count, label_text, number, plural
from bigsvm.report.time_spent import most_of_the_time, slower_than_alone
from bigsvm.training.result import (
    BYTES_OF_WORKERS,
    CLUSTER_COSTS,
    MEASURED,
    Certificate,
    StopReason,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bigsvm.data.scaler import Scaler
    from bigsvm.data.store import Store
    from bigsvm.models import KernelExpansion

Lines = list[tuple[str, object]]
_SHOWN_LABELS = 6
"""Labels, classes and names of columns that are shown to a person."""


def store_record(store: Store) -> dict[str, Any]:
    """All that the attributes of a store say, its statistics summed up, and its size."""
    attributes, statistics = store.attributes, store.statistics
    names = attributes.class_names
    cells = attributes.n_rows * max(attributes.n_columns, 1)
    return {
        "kind": "store",
        "path": str(store),
        "format_version": attributes.format_version,
        "n_rows": attributes.n_rows,
        "n_columns": attributes.n_columns,
        "n_nonzero": attributes.n_nonzero,
        "density": attributes.n_nonzero / cells,
        "layout": attributes.layout,
        "dtype": attributes.dtype,
        "label_counts": None
        if attributes.label_counts is None
        else [
            {"label": label if names is None else names[int(label)], "rows": rows}
            for label, rows in attributes.label_counts
        ],
        "feature_names": None
        if attributes.feature_names is None
        else list(attributes.feature_names),
        "has_weights": attributes.has_weights,
        "shuffled": attributes.shuffled,
        "seed": attributes.seed,
        "appended_from": [n_rows for n_rows, _ in attributes.earlier or ()],
        "sources": list(attributes.sources),
        "first_index": attributes.first_index,
        "scaler": _scaler_record(store.scaler),
        "statistics": {
            "minimum": statistics.smallest(),
            "maximum": statistics.largest(),
            "mean": attributes.mean,
            "variance": attributes.variance,
            "constant_columns": statistics.n_constant(),
        },
        "fingerprint": attributes.fingerprint,
        "bytes_on_disk": None if store.place.is_far else bytes_on_disk(store.path),
    }


def store_lines(store: Store, *, n_different: int | None = None) -> Lines:
    """Describe a store to a person, with the number of its different rows where it is known."""
    record = store_record(store)
    rows = count(record["n_rows"])
    if n_different is not None:
        rows += f" ({count(n_different)} different)"
    values = record["statistics"]
    size = record["bytes_on_disk"]
    order = f"random, seed {record['seed']}" if record["shuffled"] else "as in the input"
    if record["appended_from"]:
        order += f"; rows from {count(record['appended_from'][0])} on were appended"
    return [
        ("store", record["path"]),
        ("rows, columns", f"{rows}, {count(record['n_columns'])}"),
        (
            "values",
            f"{record['dtype']}, {record['layout']}, {record['density']:.2%} not zero, "
            f"{number(values['minimum'])} to {number(values['maximum'])}, mean "
            f"{number(values['mean'])}, variance {number(values['variance'])}",
        ),
        ("column names", _some(record["feature_names"])),
        ("constant columns", values["constant_columns"] or None),
        ("labels", _labels(record["label_counts"])),
        ("weights", "yes" if record["has_weights"] else None),
        ("order", order),
        ("sources", ", ".join(record["sources"]) or None),
        ("column 0", None if record["first_index"] is None else f"index {record['first_index']}"),
        ("scaled by", _scaler(record["scaler"])),
        ("fingerprint", record["fingerprint"]),
        ("on disk", None if size is None else show_bytes(size)),
    ]


def _scaler_record(scaler: Scaler | None) -> dict[str, Any] | None:
    if scaler is None:
        return None
    return {"method": scaler.method, "ignored_columns": scaler.ignored_columns}


def _scaler(record: dict[str, Any] | None) -> str | None:
    if record is None:
        return None
    ignored = record["ignored_columns"]
    return f"{record['method']}" + (f", {count(ignored)} columns ignored" if ignored else "")


def _some(names: Sequence[str] | None) -> str | None:
    """Give the first of many names; None if there are none to give."""
    if names is None:
        return None
    more = len(names) - _SHOWN_LABELS
    return ", ".join(names[:_SHOWN_LABELS]) + (f", and {count(more)} more" if more > 0 else "")


def _labels(counts: list[dict[str, Any]] | None) -> str | None:
    if counts is None:
        return "more than a thousand different ones"
    return _some([f"{label_text(item['label'])}: {count(item['rows'])} rows" for item in counts])


def model_record(model: KernelExpansion, path: str | Path) -> dict[str, Any]:
    """All of a model but its vectors."""
    return {
        "kind": "model",
        "path": str(path),
        "formulation": model.formulation,
        "kernel": model.kernel.describe(),
        "classes": None if model.classes is None else list(model.classes),
        "n_features": model.n_features,
        "n_support": len(model.support),
        "rule": model.rule,
        "n_functions": model.n_functions,
        "intercept": model.intercept if model.rule is None else None,
        "calibration": calibration_record(model),
        "scaler": _scaler_record(model.scaler),
        "certificate": dict(model.certificate),
        "provenance": dict(model.provenance),
        "bytes_on_disk": path.stat().st_size if isinstance(path, Path) else None,
    }


def model_lines(model: KernelExpansion, path: str | Path) -> Lines:
    """Describe a model to a person."""
    record = model_record(model, path)
    kernel = ", ".join(
        f"{name} {value}" if name != "name" else str(value)
        for name, value in record["kernel"].items()
    )
    provenance, size = record["provenance"], record["bytes_on_disk"]
    is_libsvms = provenance.get("read from") == "libsvm"
    return [
        ("model", record["path"]),
        ("formulation", record["formulation"]),
        ("kernel", kernel),
        ("classes", classes_text(model)),
        ("decided by", _rule(model)),
        ("features", count(record["n_features"])),
        ("column names", _some(model.feature_names)),
        ("intercept", None if model.rule is not None else number(record["intercept"])),
        ("probabilities", calibration_text(model)),
        ("scales rows by", _scaler(record["scaler"])),
        *certificate_lines(record["certificate"], model.classes, formulation=model.formulation),
        ("written by", "LIBSVM" if is_libsvms else f"bigsvm {provenance.get('bigsvm', '-')}"),
        ("trained on", None if is_libsvms else f"data {provenance.get('data', '-')}"),
        ("on disk", None if size is None else show_bytes(size)),
    ]


def model_warnings(model: KernelExpansion, *, resume: str | None = None) -> Iterator[str]:
    """Say what must be known before a model that was just trained is used, a sentence each.

    `resume` is the command that goes on with a run that has not converged.
    """
    from bigsvm.fit.advice import scaling_hint

    reason = StopReason(model.certificate["stop_reason"])
    if not (model.certificate["converged"] or reason.is_uncertified):
        # A resumed run would stall again.
        hint = "" if resume is None or reason is StopReason.STALLED else f": {resume}"
        yield f"the model has not converged: {reason.sentence}{hint}"
        scales = scaling_hint(model)
        if scales is not None:
            yield scales
    wanted = model.provenance.get("parameters", {}).get("calibration")
    if wanted is not None and model.calibration is None:
        yield "the model has no probabilities: they are fitted after training"
    if model.doubt is not None:
        yield model.doubt
    yield from model.certificate["advice"]


_RULES = {
    "ovo": "votes of {} pairs",
    "ovo-break-ties": "votes of {} pairs, and of equal ones by their values",
    "ddag": "a decision graph of {} pairs",
    "ovr": "the largest of {} values, one against the rest each",
    "crammer-singer": "the largest of {} values",
}


def _rule(model: KernelExpansion) -> str | None:
    return None if model.rule is None else _RULES[model.rule].format(count(model.n_functions))


def classes_text(model: KernelExpansion) -> str | None:
    """Name the classes to a person, of many the first ones; None where there are none."""
    classes = model.classes
    if classes is None:
        return None
    if len(classes) == 1:
        return f"{label_text(classes[0])} only"
    if model.rule is None:
        return f"{label_text(classes[0])} (negative), {label_text(classes[1])} (positive)"
    return f"{count(len(classes))}: {_some([label_text(label) for label in classes])}"


def calibration_record(model: KernelExpansion) -> dict[str, Any] | None:
    """Which calibration a model has, and on how many rows it was fitted."""
    made = model.calibration
    if made is None:
        return None
    record: dict[str, Any] = {"method": made.method, "n_rows": made.n_rows}
    if made.method == "laplace":
        record["scale"] = float(made.numbers[0, 0])
    return record


def calibration_text(model: KernelExpansion) -> str | None:
    """Say that to a person; None where there is none, and none was asked for."""
    made = model.calibration
    if made is None:
        wanted = model.provenance.get("parameters", {}).get("calibration")
        return None if wanted is None else "none: the run was interrupted before they were fitted"
    fitted = "elsewhere" if made.n_rows is None else f"on {count(made.n_rows)} rows held out"
    scale = f" of scale {made.numbers[0, 0]:.6g}" if made.method == "laplace" else ""
    return f"{made.method}{scale}, fitted {fitted}"


_OF_KERNELS = {
    False: "the kernel is indefinite: this is a stationary point, and there may be better ones",
    None: "an optimum if the kernel matrix is positive semidefinite, which nobody has checked",
}
_MERGED = "as equal rows of one class are trained as one"
_REQUIRED = [field.name for field in fields(Certificate) if field.default is MISSING]
_SHOWN_FIELDS = [name for name in _REQUIRED if name not in MEASURED]


def certificate_lines(
    certificate: Mapping[str, Any],
    classes: Sequence[float] | Sequence[str] | None = None,
    *,
    formulation: str = "c-svc",
) -> Lines:
    """Why training stopped, what it proved, and what it cost.

    The model's classes name those of the worst pair; its formulation says what kind of gap it has.
    """
    if not certificate:
        return [("certificate", "none")]
    if missing := [field for field in _SHOWN_FIELDS if field not in certificate]:
        return [("certificate", f"not whole, without {missing[0]}")]
    reason, gap = StopReason(certificate["stop_reason"]), gap_name(formulation)
    idle, seconds = certificate.get("cpu_idle"), certificate.get("seconds")
    took = "" if seconds is None else f", {duration(seconds)}"
    different, many = certificate.get("n_different"), classes is not None and len(classes) > 2
    uncertified = "not certified" if reason.is_uncertified else "NOT converged"
    verdict = "converged" if certificate["converged"] else uncertified
    bounded = f"of them {count(certificate['n_bounded'])} bounded"
    if "pairs" in certificate:
        bounded = f"shared by the pairs; {count(certificate['n_bounded'])} coefficients are bounded"
    return [
        ("training", f"{verdict}: {reason.sentence}"),
        ("dual objective", _with_error(certificate, "objective", 10)),
        *(("advice", sentence) for sentence in certificate.get("advice", ())),
        ("test error", _test_error(certificate)),
        ("pairs of classes", _pairs(certificate.get("pairs"), classes, gap)),
        ("note", _OF_KERNELS.get(certificate.get("kernel_is_definite", True))),
        (gap, _gap(certificate)),
        ("ball", _ball(certificate.get("ball"))),
        ("duality gap", _duality_gap(certificate)),
        (
            "support vectors",
            f"{count(certificate['n_support'])}, {bounded}",
        ),
        ("different rows", None if different is None else f"{count(different)}, {_MERGED}"),
        (
            "cost",
            f"{plural(certificate['n_sweeps'], 'sweep')}, "
            f"{plural(certificate['n_iter'], 'step')}, "
            f"{count(certificate['n_kernel_evaluations'])} kernel evaluations, "
            f"{show_bytes(certificate['bytes_read'])} read{took}",
        ),
        ("time", _phases(certificate.get("seconds_by_phase"), of_pairs="pairs" in certificate)),
        ("in short", most_of_the_time(certificate, of_one=not many)),
        ("threads", None if idle is None else f"waited for {idle:.0%} of the time of the sweeps"),
        ("cluster", cluster_line(certificate)),
        ("workers", slower_than_alone(certificate)),
    ]


def cluster_line(costs: Mapping[str, Any]) -> str | None:
    """Say what the workers of a cluster have done; None where there were none."""
    if any(name not in costs for name in CLUSTER_COSTS[:5]):
        return None
    n_workers, tasks, again, sent, returned = (costs[name] for name in CLUSTER_COSTS[:5])
    line = (
        f"{plural(n_workers, 'worker')}, {plural(tasks, 'task')}, {count(again)} started again, "
        f"{show_bytes(sent)} sent, {show_bytes(returned)} returned"
    )
    if BYTES_OF_WORKERS not in costs:  # of a model that an earlier version has written
        return line
    return (
        f"{line}, {show_bytes(costs['bytes_fetched'])} of it rows; "
        f"{show_bytes(sum(costs[BYTES_OF_WORKERS]))} read by workers, "
        f"{show_bytes(costs['bytes_checked'])} again here to check them"
    )


def _ball(proof: Mapping[str, Any] | None) -> str | None:
    """Say which test certified a ball, and what the centre that is returned fulfils."""
    if proof is None:
        return None
    by = "not certified" if proof["test"] is None else f"certified by the {proof['test']}"
    if proof["eps"] is None:
        return by
    return f"{by}; (1 + {proof['eps']:.3g}) times the radius of this centre encloses all rows"


def _test_error(certificate: Mapping[str, Any]) -> str | None:
    """Show the error at rows that were not trained on, of a run that has one."""
    error, deviation = certificate.get("test_error"), certificate.get("test_error_deviation")
    rows = certificate.get("rows_used")
    used = None if rows is None else f"{count(rows)} rows used"
    if error is None or deviation is None:
        return used
    return f"{error:.2%}, standard error {deviation:.2%}; {used}"


def _phases(seconds: Mapping[str, float] | None, *, of_pairs: bool) -> str | None:
    """Show the share of each phase; of a single run, also of the phases that use one thread."""
    if seconds is None or not (total := sum(seconds.values())) > 0:
        return None
    shares = (f"{name.replace('_', ' ')} {each / total:.0%}" for name, each in seconds.items())
    shown = ", ".join(shares)
    if of_pairs:
        return shown
    serial = (seconds.get("steps", 0.0) + seconds.get("rest", 0.0)) / total
    return f"{shown}; for {serial:.0%} of the time only one thread worked"


def _gap(certificate: Mapping[str, Any]) -> str:
    """Show the gap beside its tolerance, where a sweep over all rows has found it."""
    if certificate["gap"] is None:
        last = certificate.get("last_gap")
        if last is None:
            return "not known: no sweep over all rows has ended"
        return f"{number(last, 4)} at the last sweep (tol {certificate['tol']:g})"
    return f"{number(certificate['gap'], 4)} (tol {certificate['tol']:g})"


def _with_error(certificate: Mapping[str, Any], name: str, digits: int) -> str:
    """Show a value, and the rounding error that a sample has found in it."""
    error = certificate.get(f"{name}_error")
    rounding = f", rounding about {number(error, 2)}" if error else ""
    return f"{number(certificate[name], digits)}{rounding}"


def _duality_gap(certificate: Mapping[str, Any]) -> str:
    """Show the duality gap, or an estimate that is said to be one."""
    estimate, n_rows = certificate.get("sampled_duality_gap"), certificate.get("sampled_rows")
    if certificate["duality_gap"] is not None or estimate is None or n_rows is None:
        return _with_error(certificate, "duality_gap", 4)
    error = certificate.get("sampled_duality_gap_deviation") or 0.0
    return (
        f"about {number(estimate, 3)}, standard error {number(error, 2)}: an estimate from a "
        f"sample of {plural(n_rows, 'row')}, not certified"
    )


def _pairs(
    pairs: Mapping[str, Any] | None, classes: Sequence[float] | Sequence[str] | None, gap: str
) -> str | None:
    """How the pairs of many classes have ended, and which of them is the worst."""
    if pairs is None or classes is None:
        return None
    ended = [f"{count(n)} {reason}" for reason, n in pairs["stop_reasons"].items()]
    if pairs["n_begun"] < pairs["n_pairs"]:
        ended.append(f"{count(pairs['n_pairs'] - pairs['n_begun'])} never begun")
    if recorded := pairs.get("n_not_recomputed"):
        ended.append(f"{count(recorded)} as an earlier process recorded them")
    worst = pairs["worst"][0]
    first, second = (label_text(classes[code]) for code in worst["classes"])
    return (
        f"{', '.join(ended)}; the worst is {first} and {second}: {gap} "
        f"{number(worst['gap'], 4)}, {count(worst['n_support'])} support vectors"
    )
