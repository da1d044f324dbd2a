"""A report as one self-contained HTML page: what files say of a model, a run or a search.

Pictures are SVG images in the page, and nothing is loaded from elsewhere. All texts are escaped.
"""

from __future__ import annotations

import base64
import html
import io
import json
import math
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsvm.budget import parse_bytes, show_bytes
from bigsvm.declared import FINITE, is_kind
from bigsvm.errors import ParameterError, shortened, shown
from bigsvm.parameters import FIELDS
from bigsvm.parameters.declaration import declaration_of
from bigsvm.parameters.formulations import gap_name
from bigsvm.report.describe import certificate_lines, model_lines, model_warnings
from bigsvm.report.displays import SIZE, HistoryDisplay, SearchDisplay, plain
from bigsvm.report.pictures import figure_of
from bigsvm.report.quality import quality_lines
from bigsvm.report.run_log import Noted, read_log
from bigsvm.report.text import as_json, count, label_text, number, plural
from bigsvm.training import events
from bigsvm.training.result import StopReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from bigsvm.models import KernelExpansion

    Sections = Iterable[tuple[str, Iterable[str]]]

MOST_NAMED = 30
"""Most classes of a confusion matrix with names beside it; up to half of it, cells have numbers."""
MOST_SIDE_BY_SIDE = 30
"""Most letters of all these names for which they are written side by side below the matrix."""
_SAME = ("objective", "gap", "n_iter", "n_support", "n_kernel_evaluations")
"""Entries of a certificate by which a log knows a model."""
_SEARCHED = {
    "score": str,
    "points": [
        {"params": {str: (FINITE, str, bool, None)}, "n_rows": int, "score": (FINITE, None)}
    ],
}
"""Fields of the line of a log that a search writes at its end."""
# The page may load nothing, whatever was written into it.
_HEAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body { font: 16px/1.5 system-ui, sans-serif; color: #222; margin: 2rem auto; max-width: 60rem;
 padding: 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin-top: 2.5rem; border-bottom: 1px solid #ccc; }
table { border-collapse: collapse; width: 100%; } tr + tr { border-top: 1px solid #eee; }
td, th { padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: top; }
th { color: #555; font-weight: normal; width: 14rem; }
figure { margin: 1rem 0; } img { max-width: 100%; height: auto; } figcaption { color: #555; }
.advice { background: #fff4d6; padding: .5rem 1rem; border-left: 4px solid #e0a000; }
</style>
"""


def page_of(title: str, sections: Sections) -> str:
    """Return a page of sections, each a heading and parts in HTML; those without are left out."""
    parts = [f"{_HEAD}<title>{escaped(title)}</title></head><body><h1>{escaped(title)}</h1>"]
    for heading, given in sections:
        if kept := [part for part in given if part]:
            parts += [f"<section><h2>{escaped(heading)}</h2>", *kept, "</section>"]
    return "\n".join([*parts, "</body></html>\n"])


def escaped(text: object) -> str:
    """Return a text as HTML that shows it, with control characters made visible."""
    return html.escape(shown(str(text)))


def table(lines: Iterable[tuple[str, object]]) -> str:
    """Make a table of names and values; lines without a value (None) are left out."""
    rows = [
        f"<tr><th scope='row'>{escaped(name.strip())}</th><td>{escaped(value)}</td></tr>"
        for name, value in lines
        if value is not None
    ]
    return f"<table>{''.join(rows)}</table>" if rows else ""


def paragraphs(sentences: Iterable[str], kind: str = "") -> str:
    """Make a paragraph of each sentence."""
    return "".join(f'<p class="{kind}">{escaped(sentence)}</p>' for sentence in sentences)


def picture(draw: Callable[[Any], object], caption: str, size: tuple[float, float]) -> str:
    """Make a picture of what `draw` draws on axes of matplotlib; the size is in inches."""
    figure = figure_of("the pictures of a report are drawn")(figsize=size, layout="constrained")
    import matplotlib as mpl

    content, words = io.BytesIO(), escaped(caption)
    with warnings.catch_warnings(), mpl.rc_context({"svg.hashsalt": "bigsvm"}):
        warnings.simplefilter("ignore", UserWarning)  # a font that lacks a letter of some name
        draw(figure.subplots())
        figure.savefig(content, format="svg", metadata={"Date": None})
    data = base64.b64encode(content.getvalue()).decode()
    return (
        f'<figure><img alt="{words}" src="data:image/svg+xml;base64,{data}">'
        f"<figcaption>{words}</figcaption></figure>"
    )


def model_sections(model: KernelExpansion, place: str | Path) -> Sections:
    """Tell of a model: its data, advice, parameters, certificate and support vectors."""
    certificate, n_rows = model.certificate, model.provenance.get("n_rows")
    certified = certificate_lines(certificate, model.classes, formulation=model.formulation)
    known = {name for name, _ in certified}
    yield "Advice", [paragraphs(model_warnings(model) if certificate else (), "advice")]
    lines = [line for line in model_lines(model, place) if line[0] not in known]
    rows = None if n_rows is None else count(n_rows)
    yield "Model and data", [table([*lines, ("rows trained on", rows)])]
    yield "Parameters", [table(_parameters(model))]
    words = certificate_words(certificate, n_rows, model.formulation)
    yield "Certificate", [paragraphs(words), table(certified)]
    if isinstance(model.coefficients, np.ndarray) and len(model.support):
        values = np.abs(model.coefficients)

        def draw(ax: Any) -> None:  # noqa: ANN401 (of matplotlib)
            ax.hist(values, bins=40)
            ax.set(xlabel="absolute value", ylabel="support vectors", yscale="log")

        yield "Support vectors", [picture(draw, "Coefficients of the support vectors", (6.4, 3))]


def _parameters(model: KernelExpansion) -> Iterator[tuple[str, object]]:
    """List the parameters of the problem, and the others that are not at their defaults."""
    formulation, kernel = model.formulation.split()[0], model.kernel.name
    for name, value in (model.provenance.get("parameters") or {}).items():
        if value is None or name not in FIELDS:
            continue
        declared = declaration_of(FIELDS[name])
        is_used = formulation in (declared.formulations or (formulation,))
        is_used &= kernel in (declared.kernels or (kernel,))
        if is_used and (declared.recorded or str(value) != str(FIELDS[name].default)):
            yield name, number(value) if isinstance(value, float) else shortened(str(value), 200)


def certificate_words(
    certificate: Mapping[str, Any], n_rows: int | None, formulation: str
) -> Iterator[str]:
    """Say in sentences what training has proved, and what not."""
    if not {"converged", "stop_reason", "tol", "n_support"} <= certificate.keys():
        yield "There is no certificate: it is not known how good the solution is."
        return
    if certificate["converged"]:
        yield "Training has converged: the solution is as good as the tolerance asks for."
    else:
        yield f"Training has not converged: {StopReason(certificate['stop_reason']).sentence}."
    if (gap := certificate.get("gap")) is not None:
        yield (
            f"A pass over all rows has found a {gap_name(formulation)} of {number(gap, 3)}, which "
            f"had to be at most {certificate['tol']:g}; 0 is an exact solution."
        )
    objective, above = certificate.get("objective"), certificate.get("duality_gap")
    if objective is not None and above is not None:
        share = f", {above / abs(objective):.2g} of it" if objective and above > 0 else ""
        yield (
            f"The dual objective is {number(objective, 10)}. The best possible one is at most "
            f"{number(max(above, 0), 3)} larger{share}."
        )
    of_rows = "" if n_rows is None else f" of {count(n_rows)} rows"
    yield f"The model consists of {plural(certificate['n_support'], 'support vector')}{of_rows}."


class RunTold(NamedTuple):
    """What a log tells of its last run, or of the run of a model.

    `history` is as `history_` of an estimator; `ended` the record of the end; `searched` that of a
    search, with all its points.
    """

    history: dict[str, NDArray[Any]]
    planned: events.Planned | None
    tol: float | None
    ended: dict[str, Any] | None
    searched: dict[str, Any] | None


def told_by(log: Path, model: KernelExpansion | None) -> RunTold:
    """Read what a log tells of the run of a model, or of its last run.

    Raises
    ------
    ParameterError
        The file is no log, or tells nothing of this model.
    """
    entries: dict[int, events.Swept | events.PairsUnderWay] = {}
    planned = tol = ended = searched = found = None
    for line in read_log(log):
        if isinstance(line, events.Planned):
            planned, ended = line, None
            entries = {k: e for k, e in entries.items() if k <= line.resumed_sweeps}
        elif isinstance(line, events.Swept):
            entries[line.sweep], tol = line, line.tol
        elif isinstance(line, events.PairsUnderWay) and line.done:
            entries[line.done] = line
        elif isinstance(line, Noted) and line.name == "Searched":
            searched = line.record if is_kind(line.record, _SEARCHED) else None
        elif isinstance(line, Noted) and line.name == "Ended":
            ended = line.record
            if model is not None and is_of(ended, model):
                found = RunTold(_history(entries), planned, tol, ended, searched)
    if model is None:
        return RunTold(_history(entries), planned, tol, ended, searched)
    if found is None:
        raise ParameterError(
            f"{log} does not tell of the run that made this model; give the log of that run, or "
            "none"
        )
    return found


def is_of(ended: Mapping[str, Any], model: KernelExpansion) -> bool:
    """Whether the end of a run that a log tells of has led to this model."""
    known = json.loads(as_json({name: model.certificate.get(name) for name in _SAME}))
    return bool(model.certificate) and known.items() <= ended.items()


def _history(entries: Mapping[int, events.Swept | events.PairsUnderWay]) -> dict[str, Any]:
    """Return the figures by sweep, or by number of finished pairs, as `history_` has them."""
    pairs = any(isinstance(entry, events.PairsUnderWay) for entry in entries.values())
    columns = {n: np.array([getattr(e, n) for e in entries.values()]) for n in ("objective", "gap")}
    return {"pairs" if pairs else "sweep": np.array(list(entries)), **columns}


def log_sections(told: RunTold, budget: object) -> Sections:
    """Tell what a log tells: the points of a search, or the convergence and memory of a run.

    `budget` is the parameter `memory` of the run, None if it is not known.
    """
    if told.searched is not None:
        yield "Search", _search(told.searched)
        if budget is None:
            return
    what, done = next(iter(told.history.items()))
    if len(done) > 1:
        draw = HistoryDisplay(told.history, tol=told.tol).plot
        each = "sweep over all rows" if what == "sweep" else "number of finished pairs of classes"
        yield "Convergence", [picture(draw, f"Gap and objective after each {each}", (6.4, 4.2))]
    else:
        words = "No sweep over all rows has ended, so that there is no curve."
        if len(done):
            place = (
                f"sweep {done[0]}"
                if what == "sweep"
                else f"{plural(int(done[0]), 'pair')} of classes"
            )
            words = f"The log has one entry, after {place}: there is no curve to draw."
        yield "Convergence", [paragraphs([words])]
    if told.planned is not None:
        sizes = {**told.planned.projected, "planned in all": sum(told.planned.projected.values())}
        if budget is not None:
            sizes["memory, the budget"] = parse_bytes(str(budget))
        if told.ended is not None and is_kind(told.ended.get("peak_rss_bytes"), int):
            sizes["peak of the process, with its libraries"] = told.ended["peak_rss_bytes"]
        yield "Memory", [table((name, show_bytes(size)) for name, size in sizes.items())]


def _search(searched: Mapping[str, Any]) -> Iterator[str]:
    """Draw the scores of a search."""
    points, name = searched["points"], searched["score"]
    scores = np.array([math.nan if p["score"] is None else p["score"] for p in points])
    n_rows = np.array([point["n_rows"] for point in points])
    display = SearchDisplay([p["params"] for p in points], scores, n_rows=n_rows, score_name=name)
    if np.isfinite(scores[n_rows == n_rows.max(initial=0)]).any():
        yield picture(display.plot, f"Mean {name} over the folds; the star is the best", SIZE)


def compared_section(
    rows: str,
    measures: Mapping[str, Any],
    true: NDArray[Any] | None,
    values: NDArray[np.float64] | None,
    positive: NDArray[np.float64] | None,
) -> Iterator[str]:
    """Tell how predictions of rows compare with their labels or targets.

    `measures` are those of `bigsvm predict`; `true` are places of classes, -1 where a label is
    none, or targets. Of models of one function, `values` are decision values or predictions, and
    `positive` probabilities of the second of two classes.
    """
    from sklearn.calibration import CalibrationDisplay
    from sklearn.metrics import ConfusionMatrixDisplay, PredictionErrorDisplay, RocCurveDisplay

    def drawn(display: Any, caption: str, side: float = 5, **how: Any) -> str:  # noqa: ANN401
        return picture(lambda ax: display(ax=ax, **how), caption, (side + 0.5, side))

    yield table([("rows", f"{count(measures['n_rows'])}, of {rows}"), *quality_lines(measures)])
    if "mean_squared_error" in measures:
        plot = partial(PredictionErrorDisplay.from_predictions, true, values, random_state=0)
        yield drawn(plot, "Targets less predictions, of at most 1 000 rows", subsample=1000)
    if true is None or "classes" not in measures:
        return
    labels, known = [each["label"] for each in measures["classes"]], true >= 0
    names, second = [plain(label_text(label, 24)) for label in labels], label_text(labels[-1])
    if measures["confusion"] is not None:
        named = names if len(names) <= MOST_NAMED else None
        plot = ConfusionMatrixDisplay(np.array(measures["confusion"]), display_labels=named).plot
        is_wide = sum(map(len, named or ())) > MOST_SIDE_BY_SIDE
        yield drawn(
            plot, "Rows by their label and the prediction", min(9, 4 + 0.3 * len(names)),
            include_values=2 * len(names) <= MOST_NAMED, values_format="d", cmap="Blues",
            xticks_rotation="vertical" if is_wide else "horizontal",
        )  # fmt: skip
    if values is not None and measures.get("auc") is not None:
        is_second = true[known] == 1
        roc = partial(RocCurveDisplay.from_predictions, is_second, values[known])
        yield drawn(roc, f"ROC; positive is the class {second}", plot_chance_level=True)
        if positive is not None:
            curve = partial(CalibrationDisplay.from_predictions, is_second, positive[known])
            words = f"Probability of the class {second}, and how often it was right"
            yield drawn(curve, words, n_bins=10)
