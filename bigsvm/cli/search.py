"""``bigsvm search``: the best parameters by cross-validation on a store of any size."""

import math
import shlex
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from bigsvm.budget import show_bytes
from bigsvm.cli.options import (
    OptionGroup,
    ReadOptions,
    Rows,
    given,
    is_given,
    local,
    local_or_url,
    parse_gamma,
)
from bigsvm.cli.outputs import check_apart, check_image_path, check_model_path, say_result
from bigsvm.cli.runs import Run, check_is_read_again
from bigsvm.cli.selecting import FoldOptions, FoldTrainingOptions, opened_fits
from bigsvm.cli.session import SessionOptions
from bigsvm.cli.train import check_used
from bigsvm.errors import ParameterError
from bigsvm.parameters import FIELDS
from bigsvm.parameters.declaration import declaration_of, option_of, types_of
from bigsvm.report.text import number, plural

if TYPE_CHECKING:
    from bigsvm.cli.session import Session
    from bigsvm.selection.fits import FoldFits
    from bigsvm.selection.grid import Evaluated
    from bigsvm.selection.lattice import Axis
    from bigsvm.selection.record import FoldFit

MOST_SHOWN = 10
"""Points in the report, the best first."""


@dataclass(frozen=True)
class SearchOptions(OptionGroup):
    """What is searched, and how."""

    panel = "Search"
    log2_C: str | None = given(
        None, "Exponents of the values of C: -1,7,2 stands for 0.5, 2, 8, 32, 128.",
        metavar="BEGIN,END,STEP", show_default="-5,15,2 coarse then fine, unless --C is given",
    )  # fmt: skip
    log2_gamma: str | None = given(
        None, "The same of gamma.",
        metavar="BEGIN,END,STEP", show_default="-15,3,2 coarse then fine, unless --gamma is given",
    )  # fmt: skip
    grid: list[str] | None = given(
        None,
        "Values of another parameter, such as nu=0.1,0.2 or kernel=rbf,laplacian; may be given "
        "once for each.",
        metavar="NAME=VALUE,VALUE,...",
    )  # fmt: skip
    halving: int | None = given(
        None,
        "Fit all points on a small sample of the rows first; the best go on to samples that are "
        "larger by this factor, at last to all rows.",
        min=2, metavar="FACTOR", show_default="3 where values are LIBSVM's; otherwise all rows",
    )  # fmt: skip
    picture: Path | None = given(
        None,
        "Draw the scores over C and gamma, or over other parameters that differ (.png, .svg or "
        ".pdf); needs matplotlib.",
        callback=local, metavar="FILE",
    )  # fmt: skip
    overwrite: bool = given(False, "Replace a picture that is there.")


def command(
    context: typer.Context,
    *,
    store: Rows,
    model: Annotated[
        str | None,
        typer.Argument(
            callback=local_or_url,
            metavar="[MODEL]",
            help="File or URL to write a model to that is trained on all rows with the best "
            "parameters.",
        ),
    ] = None,
    searched: SearchOptions,
    folds: FoldOptions,
    read: ReadOptions,
    options: SessionOptions,
    training: FoldTrainingOptions,
) -> None:
    """Search the best parameters by cross-validation, as LIBSVM's grid.py does.

    C and gamma, where no values are given, have LIBSVM's. Every second one is tried on a sample of
    the rows, then what is between the best, at last half steps. Where the best point is on the edge
    of these values, others beyond are tried; of values that are given it is only said.

    Points that differ in C alone are fitted from the smallest C on, each from the model of the one
    before. The first of several scores decides. --max-time and --max-iter limit each fit. With
    --checkpoint, the same command goes on after a signal or a kill, and has the same table. With
    --scheduler the points that differ in C alone are a task for a worker, where they fit.

    \b
    Examples:
      bigsvm search train.zarr
      bigsvm search train.zarr best.safetensors --log2-C -3,9,2 --halving 3 --checkpoint search
      bigsvm search train.libsvm --folds 3 --picture contours.png
      bigsvm search houses.zarr --formulation eps-svr --grid epsilon=0.01,0.1
    """
    run, checkpoint = training.run_on(store, read), training.checkpoint
    if checkpoint is not None:
        check_is_read_again(run.source)
    if model is not None:
        check_model_path(model)
    picture = searched.picture
    check_image_path(picture, "--picture", overwrite=searched.overwrite)
    check_apart(
        (run.source, folds.folds, folds.groups),
        {"MODEL": model, "--picture": picture, "--log": options.log},
        {"--checkpoint": checkpoint, "--cache-dir": run.cache_folder},
    )
    check_used(context, run, checkpoint)
    chosen, axes = _grid(context, run, searched)
    if picture is not None:
        from bigsvm.report.pictures import check_picture

        check_picture(picture)
    started = time.monotonic()
    with opened_fits(run, folds, options, checkpoint) as (fits, session):
        from bigsvm.report.describe import model_warnings
        from bigsvm.selection.record import fit_warnings
        from bigsvm.selection.search_cv import fits_of

        found = _search(fits, session, chosen, axes, searched.halving, checkpoint)
        tried = _tried(found)
        session.note("Searched", {"score": found.score, "points": tried})
        told = fit_warnings(fits_of(found.points), run.parameters["formulation"])
        session.warn(told, context.command)
        if model is not None:
            best = found.best.parameters
            session.display.line(f"training on all rows with {_words(best)}")
            trained = fits.on_all_rows(best).model_
            trained.save(model)
            session.warn(model_warnings(trained), context.command)
            session.note("Ended", {"model": model, **best, **trained.certificate})
        else:
            session.note("Ended", {"best_params": found.best.parameters, "best_score": found.mean})
        n_rows = fits.data.source.n_rows
    if picture is not None:
        from bigsvm.report.displays import SIZE, SearchDisplay
        from bigsvm.report.pictures import figure_of, write_figure

        figure = figure_of("pictures are drawn")(figsize=SIZE, layout="constrained")
        SearchDisplay(
            [point["params"] for point in tried], [point["score"] for point in tried],
            n_rows=[point["n_rows"] for point in tried], score_name=found.score,
        ).plot(figure.subplots())  # fmt: skip
        write_figure(figure, picture, picture.suffix[1:], f"{picture} cannot be written")
    command = train_command(context, run, found.best.parameters, model)
    record = {
        "best_params": found.best.parameters,
        "best_score": found.mean,
        "score": found.score,
        "train": command,
        "advice": found.advice,
        "model": None if model is None else str(model),
        "n_rows": n_rows,
        "seconds": time.monotonic() - started,
    }
    _print(found, record, json=options.json)


class Found(NamedTuple):
    """The points of a search, the best one, the score that decides, and its mean at the best.

    `advice` says that the best one is on an edge.
    """

    points: "list[Evaluated]"
    best: "Evaluated"
    score: str
    mean: float
    halved: bool
    advice: str | None


def _tried(found: Found) -> list[dict[str, Any]]:
    """Give what a log tells of a search: each point, its rows, and its mean score."""
    from bigsvm.selection.grid import mean_score

    return [
        {"params": p.parameters, "n_rows": p.n_rows, "score": mean_score(p.fits, found.score)}
        for p in found.points
    ]


def _grid(
    context: typer.Context, run: Run, options: SearchOptions
) -> "tuple[dict[str, list[Any]], list[Axis]]":
    """Return the values to try of each parameter, and axes of those without."""
    from bigsvm.selection.lattice import axes_of, is_used

    grid: dict[str, list[Any]] = {}
    for word in options.grid or ():
        name, equals, listed = word.partition("=")
        field = FIELDS.get(name)
        if not equals or field is None or not declaration_of(field).recorded:
            raise ParameterError(
                f"--grid {word!r} is not understood; write it like nu=0.1,0.2, with a parameter of "
                "the problem or of the kernel"
            )
        grid[name] = [_value_of(name, value) for value in listed.split(",")]
    for name, text in (("C", options.log2_C), ("gamma", options.log2_gamma)):
        if text is not None:
            if name in grid:
                raise ParameterError(f"--log2-{name} and --grid {name} both list values; give one")
            grid[name] = [2.0**k for k in _range_of(text, f"--log2-{name}")]
    for name in grid:
        if is_given(context, name):
            raise ParameterError(
                f"{option_of(FIELDS[name])} is one value, but the search tries {len(grid[name])}; "
                "give one of the two"
            )
    formulation = run.parameters["formulation"]
    kernels = grid.get("kernel", [run.parameters["kernel"]])
    for name in ("C", "gamma", "nu"):
        if name in grid and not is_used(name, formulation, kernels):
            raise ParameterError(f"{name} is searched, but {formulation} with {kernels} has none")
    axes = axes_of(formulation, kernels)
    return grid, [
        axis for axis in axes if axis.name not in grid and not is_given(context, axis.name)
    ]


def _value_of(name: str, text: str) -> float | int | str:
    """Read a value of a grid."""
    if name == "gamma":
        return parse_gamma(text)
    kinds = types_of(FIELDS[name])
    for kind in (int, float):
        if kind in kinds:
            try:
                return kind(text)
            except ValueError:
                raise ParameterError(f"--grid {name}: {text!r} is not a number") from None
    return text


def _range_of(text: str, option: str) -> list[float]:
    """Read exponents as grid.py does: begin, end (which is one of them) and step."""
    try:
        begin, end, step = (float(word) for word in text.split(","))
        n_steps = math.floor((end - begin) / step + 1e-9)
        if n_steps < 0:
            raise ValueError
    except (ValueError, ZeroDivisionError, OverflowError):
        raise ParameterError(
            f"{option} {text!r} is not understood; write BEGIN,END,STEP, as in -1,7,2"
        ) from None
    return [begin + k * step for k in range(n_steps + 1)]


def _search(
    fits: "FoldFits",
    session: "Session",
    grid: dict[str, list[Any]],
    axes: "list[Axis]",
    halving: int | None,
    checkpoint: Path | None,
) -> Found:
    from bigsvm.selection.grid import (
        Rules,
        best_of,
        candidates_of,
        edge_advice,
        edges_of,
        mean_score,
        searched,
    )
    from bigsvm.selection.lattice import Lattice, searched_further

    candidates, done = candidates_of(grid, fits.steps), 0
    score, on_folds = fits.score_names[0], plural(len(fits.folds), "fold")
    rows = f"{fits.data.source.n_rows} rows"
    if axes:
        values = " and ".join(axis.name for axis in axes)
        points = f"{values}, coarse then fine,"
        search = partial(searched_further, lattice=Lattice(axes, candidates))
    else:
        points = plural(len(candidates), "point")
        search = partial(searched, candidates=candidates)
    session.display.line(f"{points} on {on_folds} of {rows}")

    def on_fit(parameters: dict[str, Any], fold: int, result: "FoldFit | None") -> None:
        nonlocal done
        done += 1
        shown = "no score" if result is None else f"{score} {number(result.scores[score])}"
        session.display.line(f"fit {done}: {_words(parameters)}, fold {fold + 1}: {shown}")
        record = {} if result is None else result._asdict()
        session.note("Fitted", {"parameters": parameters, "fold": fold, **record})

    rules = Rules(score, halving, checkpoint=checkpoint, on_fit=on_fit)
    found = search(fits, rules=rules)
    best = found[best_of(found, score)]
    edges = edge_advice(edges_of(found, score))
    return Found(
        found, best, score, mean_score(best.fits, score), halving is not None or bool(axes), edges
    )


def _words(parameters: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in parameters.items()
    )


def train_command(context: typer.Context, run: Run, best: dict[str, Any], model: str | None) -> str:
    """Return the command that trains with the best parameters."""
    words = ["bigsvm", "train", run.source, model or "model.safetensors"]
    for name, field in FIELDS.items():
        if declaration_of(field).panel is None or name == "checkpoint":
            continue
        value = best.get(name, run.parameters.get(name) if is_given(context, name) else None)
        if isinstance(value, bool):
            words.append(option_of(field) if value else f"--no-{option_of(field)[2:]}")
        elif isinstance(value, list):
            for label, weight in value:
                words += [option_of(field), f"{label:g}:{weight:g}"]
        elif value is not None:
            words += [option_of(field), str(value)]
    return shlex.join(words)


def _print(found: Found, record: dict[str, Any], *, json: bool) -> None:
    import numpy as np

    from bigsvm.report.text import peak_rss_bytes
    from bigsvm.selection.search_cv import results_of

    table = results_of(found.points, halved=found.halved)
    results = {
        name: values.tolist() if isinstance(values, np.ndarray) else values
        for name, values in table.items()
    }
    record = {**record, "results": results, "peak_rss_bytes": peak_rss_bytes()}
    means, deviations = (table[f"{kind}_test_{found.score}"] for kind in ("mean", "std"))
    ranks = table[f"rank_test_{found.score}"]
    lines: list[tuple[str, object]] = [
        ("best", f"{_words(found.best.parameters)}: {found.score} {number(found.mean)}")
    ]
    for place in np.argsort(ranks, kind="stable")[:MOST_SHOWN].tolist():
        point = found.points[place]
        rows = f" ({point.n_rows} rows)" if found.halved else ""
        lines.append(
            (
                f"{ranks[place]}.",
                f"{number(means[place])} ± {number(deviations[place], 3)}  "
                f"{_words(point.parameters)}{rows}",
            )
        )
    lines += [
        ("advice", found.advice),
        ("train", record["train"] if record["model"] is None else None),
        ("model", record["model"]),
        ("took", f"{record['seconds']:.1f} s"),
        ("peak memory", show_bytes(record["peak_rss_bytes"])),
    ]
    say_result(record, lines, json=json)
