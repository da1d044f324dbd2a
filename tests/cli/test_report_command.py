"""``bigsvm report``: a page that says what files hold, loads nothing, and obeys no text in it."""

import base64
import json
import math
import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from command_line import LITTLE, answer, error_of, run_here, two_clouds
from sklearn.datasets import load_diabetes, load_iris

import bigsvm
from bigsvm.report.page import told_by
from bigsvm.report.run_log import RunLog
from bigsvm.training import events

SCRIPT = "<script>alert('\"$x\\frac')</script>"
BROWSER = next(filter(shutil.which, ("chromium", "chromium-browser", "google-chrome")), None)


class Reader(HTMLParser):
    """Reads a page: its tables, its texts and its pictures; fails at what a page may not have."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.texts, self.pictures, self.open = {}, [], [], []
        self.feed(text)
        self.close()
        self.texts = [text.strip() for text in self.texts]

    def handle_starttag(self, tag, attributes):
        assert tag not in ("script", "iframe", "link", "object", "form", "b")
        for name, value in attributes:
            assert not name.startswith("on")
            if name in ("src", "href"):
                assert value.startswith("data:image/svg+xml;base64,")
                self.pictures.append(base64.b64decode(value.partition(",")[2]).decode())
        self.open.append(tag)
        self.texts.append("")

    def handle_data(self, data):
        if not self.texts or self.open[-1] == "style":
            return
        self.texts[-1] += data

    def handle_endtag(self, tag):
        if tag == "td":
            self.tables.setdefault(self.texts[-2], self.texts[-1])


def page_of(*arguments, folder):
    """Make a page, and read it."""
    path = folder / "page.html"
    run_here("report", *arguments, "--output", path, "--overwrite", "--quiet")
    text = path.read_text(encoding="utf-8")
    assert "://" not in text  # no address
    return Reader(text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Stores and models of all kinds, the names of whose classes and columns are hostile."""
    folder = tmp_path_factory.mktemp("kinds")
    rng = np.random.default_rng(0)
    X, y = two_clouds(400)
    names = np.where(y > 0, SCRIPT, "</title>" + "long " * 40)
    columns = [f"<img src=x onerror=alert({k})>" for k in range(6)]
    iris = load_iris(return_X_y=True)
    diabetes = load_diabetes(return_X_y=True)
    order = rng.permutation(150)
    for name, rows, labels in (
        ("two", pd.DataFrame(X, columns=columns), names),
        ("three", iris[0][order], np.array(["a", SCRIPT, "c"])[iris[1][order]]),
        ("targets", *diabetes),
        ("one", X, np.where(np.arange(400) % 20 == 0, -1.0, 1.0)),
    ):
        half = len(rows) // 2
        bigsvm.write_store(folder / f"{name}.zarr", rows[:half], labels[:half])
        bigsvm.write_store(folder / f"{name}-test.zarr", rows[half:], labels[half:])
    for name, words in {
        "two": ("--C", 2, "--gamma", 0.1 + 0.2, "--calibration", "sigmoid"),
        "three": ("--gamma", 0.5),
        "targets": ("--formulation", "eps-svr", "--C", 50),
        "one": ("--formulation", "one-class", "--nu", 0.1),
    }.items():
        paths = folder / f"{name}.zarr", folder / name
        run_here("train", *paths, *words, "--log", folder / f"{name}.log", "--quiet")
    return folder


def test_a_page_has_the_parameters_and_the_certificate(folder, tmp_path):
    page = page_of(folder / "two", folder=tmp_path)
    info = answer("info", folder / "two")
    certificate = info["certificate"]
    assert page.tables["C"] == "2"
    assert page.tables["gamma"] == "0.3"
    assert "nu" not in page.tables
    assert page.tables["column names"].startswith("<img src=x onerror=alert(0)>, <img")
    assert page.tables["rows trained on"] == "200"
    assert page.tables["support vectors"].startswith(f"{certificate['n_support']},")
    words = " ".join(page.texts)
    assert "Training has converged" in words
    assert f"dual objective is {certificate['objective']:.10g}" in words
    assert f"consists of {certificate['n_support']} support vectors of 200 rows" in words
    assert "No log is known" in words
    assert len(page.pictures) == 1


@pytest.mark.parametrize(
    ("name", "rows", "n_pictures"),
    [
        ("two", ["accuracy", "AUC", "log loss", "Brier score"], 4),
        ("three", ["accuracy"], 1),
        ("targets", ["mean squared error", "R²"], 2),
        ("one", ["outliers", "accuracy", "AUC"], 3),
    ],
)
def test_test_rows_are_measured_as_by_predict(folder, tmp_path, name, rows, n_pictures):
    test = folder / f"{name}-test.zarr"
    log = folder / f"{name}.log"
    page = page_of(folder / name, "--test", test, "--log", log, folder=tmp_path)
    known = answer("predict", test, folder / name)
    for row in rows:
        shown = page.tables[row]
        value = {"mean squared error": "mean_squared_error", "R²": "r2"}.get(row)
        if value is not None:
            assert float(shown) == pytest.approx(known[value], rel=1e-5)
    if "accuracy" in rows:
        assert page.tables["accuracy"].startswith(f"{known['accuracy']:.4%}")
    assert page.tables["memory, the budget"] == "1 GB"
    assert len(page.pictures) == n_pictures
    assert "on which the model was trained" not in page.tables["rows"]
    assert all("<script" not in picture for picture in page.pictures)


def test_rows_that_the_model_was_trained_on_are_told(folder, tmp_path):
    page = page_of(folder / "two", "--test", folder / "two.zarr", folder=tmp_path)
    assert page.tables["rows"].endswith("two.zarr, on which the model was trained")


def test_a_page_is_the_same_each_time(folder, tmp_path):
    pages = []
    for number in (1, 2):
        run_here("report", folder / "two", "-o", tmp_path / f"{number}.html", "-q")
        pages.append((tmp_path / f"{number}.html").read_bytes())
    assert pages[0] == pages[1]


@pytest.fixture(scope="module")
def run(data, many, tmp_path_factory):
    """A folder with the checkpoint of a run that was ended and resumed, and its model."""
    place = tmp_path_factory.mktemp("run")
    words = (many / "many.zarr", place / "model", *LITTLE, "--quiet")
    run_here("train", *words, "--checkpoint", place / "run")
    run_here("train", "--resume", place / "run", "--max-iter", "-1", "--quiet")
    return place


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_is_told_by_the_log_in_its_folder(run, tmp_path):
    page = page_of(run / "run", folder=tmp_path)
    swept = [line for line in lines_of(run / "run" / "log.jsonl") if line["event"] == "Swept"]
    assert len(swept) > 1
    assert page.tables["state"].startswith("finished")
    assert page.tables["memory, the budget"] == "10 MB"
    assert "peak of the process, with its libraries" in page.tables
    assert "Training has converged: the solution is as good" in " ".join(page.texts)
    assert len(page.pictures) == 2


def test_a_model_that_another_run_has_written_is_not_that_of_the_run(run, data, tmp_path):
    shutil.copytree(run / "run", tmp_path / "run")
    model = bigsvm.KernelExpansion.load(run / "model")
    shutil.copy(data / "model", run / "model")
    try:
        page = page_of(tmp_path / "run", folder=tmp_path)
        assert "is not the model that this run has written" in " ".join(page.texts)
        (run / "model").unlink()
        page = page_of(tmp_path / "run", folder=tmp_path)
        assert "The model is not shown: " in " ".join(page.texts)
    finally:
        model.save(run / "model")
    words = ("report", data / "model", "--log", run / "run" / "log.jsonl", "-o", tmp_path / "x")
    assert "does not tell of the run that made this model" in error_of(*words)
    assert not (tmp_path / "x").exists()


def test_a_run_that_was_killed_is_told_as_far_as_its_log_goes(run, tmp_path):
    log = run / "run" / "log.jsonl"
    whole = log.read_bytes().splitlines(keepends=True)
    kept = [line for line in whole if b'"Ended"' not in line]
    shutil.copytree(run / "run", tmp_path / "run")
    (tmp_path / "run" / "ended.json").unlink()
    (tmp_path / "run" / "log.jsonl").write_bytes(b"".join(kept) + whole[-1][:40])
    page = page_of(tmp_path / "run", folder=tmp_path)
    assert page.tables["state"].startswith("not finished")
    assert "peak of the process, with its libraries" not in page.tables
    assert len(page.pictures) == 1  # the curve


def test_lines_that_no_run_has_written_are_left_out(tmp_path):
    swept = {"event": "Swept", "sweep": 1, "gap": 0.5, "tol": 0.001, "objective": 1.0}
    swept |= {"n_support": 1, "n_bounded": 0, "seconds": 1.0, "cpu_idle": None}
    log, point = tmp_path / "log", {"n_rows": 1, "score": 1}
    lines = [
        swept, {**swept, "sweep": 2, "gap": None, "objective": None}, {**swept, "gap": "x"},
        {**swept, "sweep": 3, "gap": 0.1}, {**swept, "seconds": None}, {**swept, "sweep": -1e400},
        {"event": "Swept"}, {"event": ["x"]}, {"event": "Hooks"},
        {"event": "Searched", "points": 3},
        {"event": "Searched", "score": "x", "points": [{**point, "params": {"C": [1]}}]},
        {"event": "Planned", "n_rows": 1, "projected": {"<b>": "x"}}, {**swept, "others": 1},
    ]  # fmt: skip
    text = "".join(json.dumps({"time": "2026", **line}) + "\n" for line in lines)
    log.write_text(text + '{"time": "x"}\n[]\nnull\n' + "[" * 100_000 + '\n{"time": "cut')
    page = page_of(log, folder=tmp_path)
    assert len(page.pictures) == 1
    assert "None" not in " ".join(page.texts)


def test_a_log_without_a_sweep_says_so(tmp_path):
    with RunLog(tmp_path / "log", warn=print) as log:
        log(events.Planned(5, 2, 5, {"<b>rows</b>": 10}, 0))
    page = page_of(tmp_path / "log", folder=tmp_path)
    assert "No sweep over all rows has ended, so that there is no curve." in page.texts
    assert page.tables["<b>rows</b>"] == "10 bytes"
    assert not page.pictures


@pytest.mark.parametrize(
    ("event", "place"),
    [
        (events.Swept(1, 0.1, 1e-3, 1.0, 3, 2, 1.0, None), "sweep 1"),
        (events.PairsUnderWay(3, 3, 9.0, 9.0, 1.0, 0.1, 3, 2, 1.0), "3 pairs of classes"),
    ],
)
def test_one_entry_of_a_log_is_no_curve(tmp_path, event, place):
    with RunLog(tmp_path / "log", warn=print) as log:
        log(event)
    page = page_of(tmp_path / "log", folder=tmp_path)
    assert f"The log has one entry, after {place}: there is no curve to draw." in page.texts
    assert not page.pictures


@pytest.mark.parametrize("halving", [(), ("--halving", 2)])
def test_a_search_is_told_by_the_log_of_its_folder(folder, tmp_path, halving):
    words = ("--folds", 2, "--log2-C", "0,4,2", "--log2-gamma=-2,0,1", *halving, "--quiet")
    run_here("search", folder / "two.zarr", *words, "--checkpoint", tmp_path / "run")
    page = page_of(tmp_path / "run", folder=tmp_path)
    assert len(page.pictures) == 1
    [record] = [line for line in lines_of(tmp_path / "run" / "log.jsonl") if "points" in line]
    assert len(record["points"]) == 9
    assert all(math.isfinite(point["score"]) for point in record["points"])


def test_what_is_no_run_is_refused(folder, data, tmp_path):
    (tmp_path / "text").write_text("1 1:1\n")
    for words, message in (
        ((folder / "two.zarr",), "is no run with a log; `bigsvm info` describes stores"),
        ((data,), "is no run with a log"),
        ((tmp_path / "nothing",), "no such store, model or run"),
        ((tmp_path / "text",), "text"),
        ((folder / "two", "--log", tmp_path / "text"), "is not the log of a run"),
        ((folder / "two.log", "--test", folder / "two.zarr"), "has no model; name the model"),
        ((folder / "two", "--test", folder / "three.zarr"), "columns"),
        ((folder / "two", "--test", tmp_path / "none"), "no such store or file"),
    ):
        assert message in error_of("report", *words, "--output", tmp_path / "page")
        assert not (tmp_path / "page").exists()


def test_a_model_of_libsvms_has_no_certificate(data, tmp_path):
    run_here("export", data / "model", tmp_path / "m", "--to", "libsvm")
    page = page_of(tmp_path / "m", folder=tmp_path)
    assert "There is no certificate: it is not known how good the solution is." in page.texts


def test_advice_stands_on_the_page(tmp_path):
    X, y = two_clouds(400)
    bigsvm.write_store(tmp_path / "x.zarr", X, y)
    run_here("train", tmp_path / "x.zarr", tmp_path / "m", "--C", 1e-6, "--quiet")
    [advice] = answer("info", tmp_path / "m")["certificate"]["advice"]
    assert advice in page_of(tmp_path / "m", folder=tmp_path).texts


@pytest.mark.parametrize("n_classes", [40, 1000])
def test_many_classes_of_long_names(tmp_path, n_classes):
    rng = np.random.default_rng(0)
    names = [f"{SCRIPT} {'long ' * 20} {k}" for k in range(n_classes)]
    model = bigsvm.KernelExpansion(
        kernel=bigsvm.SVC(gamma=1.0).fit(np.eye(4), [0, 1, 0, 1]).model_.kernel,
        support_vectors=rng.normal(size=(n_classes, 3)),
        coefficients=sp.csr_array(sp.eye(n_classes)),
        intercept=np.zeros(n_classes), centre=None, support=np.arange(n_classes), classes=names,
        formulation="crammer-singer", rule="crammer-singer",
    )  # fmt: skip
    model.save(tmp_path / "m")
    rows = np.repeat(model.support_vectors, 2, axis=0)
    bigsvm.write_store(tmp_path / "x.zarr", rows, np.repeat(names, 2), shuffle=False)
    page = page_of(tmp_path / "m", "--test", tmp_path / "x.zarr", folder=tmp_path)
    assert page.tables["accuracy"].startswith("100.0000%")
    assert len(page.pictures) == (n_classes == 40)
    assert "Parameters" not in page.texts  # as the model has none


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome is installed")
@pytest.mark.parametrize("name", ["two", "three", "targets", "one"])
def test_a_browser_shows_the_page_and_runs_nothing_of_it(folder, tmp_path, name):
    from matplotlib.image import imread

    words = ("--test", folder / f"{name}-test.zarr", "--log", folder / f"{name}.log")
    n_pictures = len(page_of(folder / name, *words, folder=tmp_path).pictures)
    page = f"file://{tmp_path / 'page.html'}"
    headless = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    shot = [f"--screenshot={tmp_path / 'page.png'}", "--window-size=1000,4000", page]
    subprocess.run([*headless, *shot], check=True, capture_output=True, timeout=300)
    pixels = imread(tmp_path / "page.png")[:, :, :3]
    blue = np.array([0x1F, 0x77, 0xB4]) if name != "three" else np.array([0x08, 0x30, 0x6B])
    assert (np.abs(pixels - blue / 255).max(axis=2) < 0.01).any()  # of a curve or a cell
    # Nothing but the white ground is at the right edge: no text and no picture is cut off there.
    assert (pixels[:, -8:] == 1).all()
    dump = [*headless, "--dump-dom", page]
    dumped = subprocess.run(dump, check=True, capture_output=True, timeout=300).stdout
    assert len(re.findall(b"<img ", dumped)) == n_pictures
    assert b"<script>" not in dumped


def test_sweeps_of_another_run_in_the_log_are_not_of_this_curve(tmp_path):
    def swept(sweep, gap):
        return events.Swept(sweep, gap, 1e-3, 1.0, 3, 2, 1.0, None)

    def planned(resumed):
        return events.Planned(5, 2, 5, {"rows": 10}, resumed)

    with RunLog(tmp_path / "log", warn=print) as log:
        for event in (planned(0), swept(1, 9.0), swept(2, 8.0), swept(3, 7.0)):
            log(event)
        for event in (planned(1), swept(2, 5.0)):  # resumed from a checkpoint after sweep 1
            log(event)
    assert told_by(tmp_path / "log", None).history["gap"].tolist() == [9.0, 5.0]
    with RunLog(tmp_path / "log", warn=print) as log:
        for event in (planned(0), swept(1, 4.0), swept(2, 3.0)):
            log(event)
    assert told_by(tmp_path / "log", None).history["gap"].tolist() == [4.0, 3.0]
