"""docs/guide.md and docs/cluster.md do what they say: their blocks run, in order."""

import json
import os
import re

import pytest
from support.guide import BLOCK, GUIDE, PAGE, REPOSITORY, follow_page

from bigsvm.data.store import open_store
from bigsvm.models import KernelExpansion

NIGHTLY = {"Words and missing values", "Append and drop rows", "Reports and pictures"}
"""Sections that no section of `ONE_MODEL` needs; what they do has tests of its own."""
SECTIONS = re.split(r"^##+ ", PAGE.partition("## Use a model elsewhere")[0], flags=re.MULTILINE)
ONE_MODEL = [
    block
    for section in SECTIONS
    if section.partition("\n")[0] not in NIGHTLY
    for block in BLOCK.findall(section)
]
"""From text to predictions and probabilities by one model; the whole guide takes minutes."""


@pytest.fixture(scope="module")
def follow(tmp_path_factory):
    """Give a function that follows a page from beginning to end; it returns the folder."""

    def run(blocks, name):
        place = tmp_path_factory.mktemp("page")
        follow_page(blocks, name, place, tmp_path_factory.mktemp("bin"))
        return place

    return run


@pytest.fixture(scope="module")
def folder(follow):
    """The folder in which the guide has been followed until there is a model."""
    return follow(ONE_MODEL, "guide.md")


@pytest.fixture(scope="module")
def whole(follow):
    """The folder in which the whole guide has been followed."""
    return follow(GUIDE, "guide.md")


@pytest.mark.slow
def test_the_page_on_clusters_runs_where_it_needs_no_cluster(follow):
    page = (REPOSITORY / "docs" / "cluster.md").read_text(encoding="utf-8")
    blocks = BLOCK.findall(page)
    assert {kind for kind, _ in blocks} == {"sh", "python", "text"}
    runs = [(kind, text) for kind, text in blocks if kind != "text" and "pip install" not in text]
    assert (follow(runs, "cluster.md") / "clouds.safetensors").exists()


@pytest.mark.parametrize(
    "name",
    # A dozen commands, each of which starts Python; the guide has the same.
    [pytest.param("start.md", marks=pytest.mark.slow), "index.md", "from_others.md"],
)
def test_pages_for_newcomers_run(follow, name):
    page = (REPOSITORY / "docs" / name).read_text(encoding="utf-8")
    runs = [(kind, text) for kind, text in BLOCK.findall(page) if kind in ("python", "sh")]
    assert runs
    follow(runs, name)


def test_the_guide_is_shell_and_python_and_runs(folder):
    assert {kind for kind, _ in GUIDE} == {"sh", "python"}
    made = {"train.zarr", "scaled.zarr", "test-scaled.zarr", "model.safetensors", "run"}
    assert made <= set(os.listdir(folder))


def test_the_index_of_the_guide_names_each_section():
    linked = set(re.findall(r"\]\(#([a-z0-9-]+)\)", PAGE.partition("\n## ")[0]))

    def places(heading):
        names = re.findall(heading, PAGE, re.MULTILINE)
        return {re.sub(r"[^a-z0-9 -]", "", name.lower()).replace(" ", "-") for name in names}

    assert places(r"^## (.+)$") <= linked <= places(r"^##+ (.+)$")


@pytest.mark.slow
def test_the_whole_guide_runs(whole):
    made = {"digits.safetensors", "digits.model", "graph.safetensors", "dask.zarr"}
    assert made <= set(os.listdir(whole))


def test_the_scaled_test_rows_are_scaled_as_those_of_the_model(folder):
    model = KernelExpansion.load(folder / "scaled.safetensors")
    assert open_store(folder / "test-scaled.zarr").scaler == model.scaler is not None


def test_predictions_are_in_the_order_of_the_text(folder):
    predicted = (folder / "predicted.txt").read_text().splitlines()
    truth = [line.split()[0] for line in (folder / "test.libsvm").read_text().splitlines()]
    right = sum(p == t for p, t in zip(predicted, truth, strict=True))
    values = [float(line) for line in (folder / "values.txt").read_text().splitlines()]
    assert [value > 0 for value in values] == [label == "1" for label in predicted]
    assert right / len(truth) == json.loads((folder / "predicted.json").read_text())["accuracy"]
    assert right / len(truth) > 0.9


@pytest.mark.slow
def test_ten_digits_are_told_apart(whole):
    predicted = (whole / "digits.txt").read_text().split()
    truth = [line.split()[0] for line in (whole / "digits-test.libsvm").read_text().splitlines()]
    assert sum(p == t for p, t in zip(predicted, truth, strict=True)) / len(truth) > 0.9
    rules = [
        KernelExpansion.load(whole / f"{name}.safetensors").rule for name in ("digits", "graph")
    ]
    assert rules == ["ovo", "ddag"]


def test_probabilities_suit_the_labels(folder):
    head, *lines = (folder / "probabilities.txt").read_text().splitlines()
    assert head == "labels 0 1"
    truth = [line.split()[0] for line in (folder / "test.libsvm").read_text().splitlines()]
    of_the_truth = [float(line.split()[1 + int(t)]) for line, t in zip(lines, truth, strict=True)]
    assert sum(of_the_truth) / len(truth) > 0.9


@pytest.mark.slow
def test_the_labels_that_were_made_wrong_are_the_most_doubtful(whole):
    listed = json.loads((whole / "doubtful.json").read_text())["doubtful"]
    assert len(listed) == 100
    assert {3, 200, 512} <= {one["row"] for one in listed[:6]}


def test_the_model_is_that_of_a_converged_run(folder):
    assert KernelExpansion.load(folder / "model.safetensors").certificate["converged"] is True
