"""Checkpoints of searches that were changed on purpose, with hashes that fit: refused by name."""

import json
import logging
import os
import shutil
import struct
import warnings

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning

import bigsvm
from bigsvm.cli.cv import fold_text
from bigsvm.errors import CheckpointError
from bigsvm.models.files import digest_of_tensors
from bigsvm.selection import lines, record
from bigsvm.selection.saved import FitContent
from tests.training.forged import CHANGES

X, Y = make_classification(160, 4, flip_y=0.2, random_state=1)
T = X[:, 0] + 0.1 * X[:, 1]
KINDS = {
    # Folds one after the other keep models; folds that are trained together keep a point.
    "models": (bigsvm.SVC(), {"C": [0.25, 1.0], "gamma": ["scale"]}, Y, "f1"),
    "point": (bigsvm.SVC(), {"C": [0.25, 1.0], "gamma": [0.1]}, Y, ["accuracy", "roc_auc"]),
    "point of a regression": (bigsvm.SVR(), {"C": [0.25, 1.0], "gamma": [0.1]}, T, None),
    "models of many classes": (
        bigsvm.CrammerSingerSVC(), {"C": [0.25, 1.0], "gamma": ["scale"]},
        np.digitize(T, np.quantile(T, [0.3, 0.7])), "accuracy",
    ),
}  # fmt: skip


def search(kind, folder):
    estimator, grid, labels, scoring = KINDS[kind]
    search = bigsvm.SearchCV(
        estimator, grid, cv=2, scoring=scoring, refit=False, checkpoint=folder,
        return_train_score=True, error_score="raise",
    )  # fmt: skip
    if isinstance(scoring, list):
        search.set_params(refit=scoring[0])
    table = search.fit(X, labels).cv_results_
    return {n: v for n, v in table.items() if "_test_" in n or "_train_" in n or n == "n_iter"}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """Makes searches that were stopped after a fit, each once, and what they lead to."""
    made = {}

    def make(kind):
        if kind not in made:
            folder = tmp_path_factory.mktemp("search") / "run"
            with pytest.MonkeyPatch.context() as patch:
                left = iter(range(1))

                def first_only(train):
                    def counted(*arguments, **options):
                        if next(left, None) is None:
                            raise KeyboardInterrupt
                        return train(*arguments, **options)

                    return counted

                machine = type(KINDS[kind][0])
                patch.setattr(machine, "_fit_rows", first_only(machine._fit_rows))
                patch.setattr(lines, "train_together", first_only(lines.train_together))
                with pytest.raises(KeyboardInterrupt):
                    search(kind, folder)
            made[kind] = folder, search(kind, None)
        return made[kind]

    return make


@pytest.fixture
def copied(stopped, tmp_path):
    def copy(kind):
        return shutil.copytree(stopped(kind)[0], tmp_path / "run", dirs_exist_ok=True)

    return copy


def assert_refused_or_same(kind, folder, stopped):
    """Go on from a folder; True if it was refused by name."""
    try:
        found = search(kind, folder)
    except CheckpointError as error:
        told = str(error)
        return len(told) < 1000 and str(folder) in told
    for name, values in stopped(kind)[1].items():
        # Other points to start from lead to the same optimum by other steps.
        if name != "n_iter":
            np.testing.assert_allclose(found[name], values, atol=0.05, err_msg=name)
    return False


def put(path, values, **others):
    content = {"format_version": record.FORMAT_VERSION, "values": values, **others}
    path.write_text(json.dumps({**content, "xxh3": record._digest(content)}))


def fit_file(folder):
    path = min((folder / "fits").iterdir())
    return path, json.loads(path.read_text())["values"]


def nested(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


SCORES = {
    "7.0": 7.0, "negative": -0.1, "NaN": float("nan"), "infinite": float("inf"),
    "huge": 10**400, "1e300": 1e300, "whole": 1, "word": "0.9", "nothing": None, "true": True,
    "list": [0.9], "object": {"score": 0.9}, "nested": nested(200),
}  # fmt: skip
FIELD_VALUES = [
    None,
    "word",
    -1,
    -1.0,
    float("nan"),
    float("inf"),
    10**400,
    [],
    {},
    nested(50),
    True,
]


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("which", ["scores", "train_scores"])
@pytest.mark.parametrize("kind", ["models", "point"])
def test_a_score_beyond_its_range_is_refused(kind, which, score, copied):
    folder = copied(kind)
    path, values = fit_file(folder)
    values[which] = {name: SCORES[score] for name in values[which]}
    put(path, values)
    message = rf"{which} has .*which no such score can be\)|the result is nested too deeply"
    with pytest.raises(CheckpointError, match=message):
        search(kind, folder)


def test_scores_within_their_ranges_are_taken(copied):
    folder = copied("point of a regression")
    path, values = fit_file(folder)
    values["scores"]["score"] = -1e9
    put(path, values)
    found = search("point of a regression", folder)
    assert -1e9 in [found[f"split{fold}_test_score"][point] for fold in (0, 1) for point in (0, 1)]
    values["scores"]["score"] = 1.01
    put(path, values)
    with pytest.raises(CheckpointError, match="no such score"):
        search("point of a regression", folder)


@pytest.mark.parametrize(
    "field", ["scores", "train_scores", "fit_seconds", "score_seconds", "certificate"]
)
@pytest.mark.parametrize("place", range(len(FIELD_VALUES)))
def test_a_field_of_another_type_is_refused(field, place, copied):
    folder, value = copied("models"), FIELD_VALUES[place]
    path, values = fit_file(folder)
    put(path, {**values, field: value})
    with pytest.raises(CheckpointError, match="is damaged"):
        search("models", folder)
    put(path, {name: held for name, held in values.items() if name != field})
    with pytest.raises(CheckpointError, match="its fields are not scores, "):
        search("models", folder)


@pytest.mark.parametrize("kind", ["models", "models of many classes"])
def test_fields_of_a_certificate_are_checked(kind, copied):
    folder = copied(kind)
    path, values = fit_file(folder)
    content = FitContent(dict.fromkeys(values["scores"]), with_train_scores=True)
    content.check(values)
    refused = 0
    for name in values["certificate"]:
        for value in FIELD_VALUES:
            changed = {**values, "certificate": {**values["certificate"], name: value}}
            try:
                content.check(changed)
            except ValueError:
                refused += 1
            else:
                fold_text(record.FoldFit(**changed))
    assert refused > 100
    for name in ("stop_reason", "converged", "n_iter", "n_support"):
        rest = {key: value for key, value in values["certificate"].items() if key != name}
        put(path, {**values, "certificate": rest})
        with pytest.raises(CheckpointError, match=f"has no {name}"):
            search(kind, folder)


@pytest.mark.parametrize(
    "values",
    [None, [], "word", 7, {}, {"more": 1}, {"scores": {"another": 0.5}}, nested(900)],
    ids=["null", "list", "word", "number", "empty", "more", "another score", "nested"],
)
def test_a_result_that_is_none_is_refused(values, copied):
    folder = copied("models")
    path, held = fit_file(folder)
    put(path, {**held, **values} if isinstance(values, dict) and values else values)
    with pytest.raises(CheckpointError, match="is damaged"):
        search("models", folder)


@pytest.mark.parametrize("name", ["fits/*.json", "selection.json"])
@pytest.mark.parametrize(
    "text",
    [
        b"", b"{", b"[]", b"null", b"[" * 100_000, b'{"xxh3": 7}', b"\xff\xfe", b'{"values": NaN}',
        b"9" * 5000, b" " * (record.MOST_BYTES + 1), b"[" + b"[]," * 600_000 + b"[]]",
    ],
    ids=range(11),
)  # fmt: skip
def test_a_file_that_is_no_record_is_refused(name, text, copied):
    folder = copied("models")
    min(folder.glob(name)).write_bytes(text)
    with pytest.raises(CheckpointError, match="is damaged"):
        search("models", folder)


@pytest.mark.parametrize("version", [-1, True, None, "1", 1.0, float("nan"), 10**400, []])
def test_a_format_version_that_is_none_is_refused(version, copied):
    folder = copied("models")
    path, values = fit_file(folder)
    put(path, values, format_version=version)
    with pytest.raises(CheckpointError, match="is damaged"):
        search("models", folder)
    put(path, values, format_version=record.FORMAT_VERSION + 1)
    with pytest.raises(CheckpointError, match="newer version"):
        search("models", folder)


@pytest.mark.parametrize("values", [None, [], {"data": 7}, {"data": None}, {"data": nested(99)}])
def test_what_results_belong_to_is_words(values, copied):
    folder = copied("models")
    put(folder / "selection.json", values)
    with pytest.raises(CheckpointError, match="its values are not words"):
        search("models", folder)


def test_a_message_does_not_repeat_a_word_of_a_megabyte(copied):
    folder = copied("models")
    put(folder / "selection.json", {"data": "x" * 1_000_000})
    with pytest.raises(CheckpointError, match="results of something else") as caught:
        search("models", folder)
    assert len(str(caught.value)) < 10_000


def read_tensors(path):
    with safetensors.safe_open(str(path), "numpy") as file:
        return file.metadata(), {name: file.get_tensor(name) for name in file.keys()}


def write_tensors(path, metadata, tensors):
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    digest = digest_of_tensors(metadata["bigsvm"], tensors)
    safetensors.numpy.save_file(tensors, path, {**metadata, "xxh3_128": digest})


ARRAY_CHANGES = {
    **CHANGES, "huge": lambda a: np.full(a.shape, 1e300), "zeros": np.zeros_like,
    "reversed": lambda a: a[::-1], "tiny": lambda a: np.full(a.shape, 1e-300),
    "one NaN": lambda a: np.where(np.arange(a.size).reshape(a.shape) == 0, np.nan, a),
}  # fmt: skip


@pytest.mark.parametrize("change", ARRAY_CHANGES)
@pytest.mark.parametrize("name", ["alpha", "outputs", "C"])
@pytest.mark.parametrize("kind", ["point", "point of a regression"])
def test_arrays_of_a_point_are_refused_or_harmless(kind, name, change, copied, stopped):
    folder = copied(kind)
    [path] = (folder / "models").iterdir()
    metadata, tensors = read_tensors(path)
    with np.errstate(all="ignore"):
        tensors[name] = ARRAY_CHANGES[change](tensors[name])
    write_tensors(path, metadata, tensors)
    refused = assert_refused_or_same(kind, folder, stopped)
    assert refused or change not in ("NaN", "infinite", "other type", "huge", "one row", "one NaN")


@pytest.mark.parametrize("kind", ["models", "models of many classes"])
def test_arrays_of_a_model_are_refused_or_harmless(kind, copied, stopped):
    folder, refused = copied(kind), 0
    [path] = (folder / "models").iterdir()
    metadata, tensors = read_tensors(path)
    for name, tensor in tensors.items():
        for change in ARRAY_CHANGES.values():
            with np.errstate(all="ignore"):
                changed = np.asarray(change(tensor))
            write_tensors(path, metadata, {**tensors, name: changed})
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                refused += assert_refused_or_same(kind, folder, stopped)
            shutil.rmtree(folder)
            shutil.copytree(stopped(kind)[0], folder)
    assert refused > 20


@pytest.mark.parametrize("kind", ["models", "models of many classes"])
def test_the_header_of_a_model_is_refused_or_harmless(kind, copied, stopped):
    folder = copied(kind)
    [path] = (folder / "models").iterdir()
    metadata, tensors = read_tensors(path)

    def changed(**parts):
        header = json.loads(metadata["bigsvm"])
        for place, value in parts.items():
            part, name = place.split("__")
            header[part][name] = value
        write_tensors(path, {**metadata, "bigsvm": json.dumps(header)}, tensors)
        return assert_refused_or_same(kind, folder, stopped)

    C = json.loads(metadata["bigsvm"])["provenance"]["parameters"]
    for value in (0, -1.0, 1e-300, 1e300, 10**400, float("nan"), float("inf"), "word", [], None):
        changed(provenance__parameters={**C, "C": value})
        shutil.rmtree(folder)
        shutil.copytree(stopped(kind)[0], folder)
        changed(certificate__rho=value)
        shutil.rmtree(folder)
        shutil.copytree(stopped(kind)[0], folder)
    for n_rows in (1000, 10):
        assert changed(provenance__n_rows=n_rows)
    header = json.loads(metadata["bigsvm"])
    for formulation in ("nu-svc", "eps-svr", "c-svc", "crammer-singer"):
        if formulation != header["formulation"]:
            text = json.dumps({**header, "formulation": formulation})
            write_tensors(path, {**metadata, "bigsvm": text}, tensors)
            assert assert_refused_or_same(kind, folder, stopped)


@pytest.mark.parametrize("kind", ["models", "point"])
@pytest.mark.parametrize("end", ["cut", "long", "hole", "empty", "header"])
def test_files_of_another_size_are_refused(kind, end, copied):
    folder = copied(kind)
    [path] = (folder / "models").iterdir()
    if end == "cut":
        os.truncate(path, path.stat().st_size - 8)
    elif end == "long":
        path.write_bytes(path.read_bytes() + bytes(8))
    elif end == "hole":  # 8 GiB that the header describes
        shape = [1 << 29, 2]
        header = json.dumps(
            {"alpha": {"dtype": "F64", "shape": shape, "data_offsets": [0, 8 << 30]}}
        )
        path.write_bytes(struct.pack("<Q", len(header)) + header.encode())
        os.truncate(path, 8 + len(header) + (8 << 30))
    elif end == "header":
        path.write_bytes(struct.pack("<Q", 1 << 40) + b"{}")
    elif end == "empty":
        path.write_bytes(b"")
    with pytest.raises(CheckpointError, match="is damaged"):
        search(kind, folder)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_whose_start_is_gone_begins_anew(kind, copied, stopped):
    folder = copied(kind)
    [path] = (folder / "models").iterdir()
    path.unlink()
    assert not assert_refused_or_same(kind, folder, stopped)


@pytest.mark.parametrize("part", ["fits", "models", "runs", "selection.json", "lock"])
def test_links_of_a_folder_are_refused(part, copied, tmp_path):
    folder = copied("models")
    elsewhere = tmp_path / "elsewhere"
    shutil.move(folder / part, elsewhere)
    (folder / part).symlink_to(elsewhere)
    before = sorted(elsewhere.rglob("*")), elsewhere.is_file() and elsewhere.read_bytes()
    with pytest.raises(CheckpointError, match="link"):
        search("models", folder)
    assert before == (sorted(elsewhere.rglob("*")), elsewhere.is_file() and elsewhere.read_bytes())


@pytest.mark.parametrize("dangling", [True, False])
@pytest.mark.parametrize("part", ["selection.json", "fits", "models", "runs"])
def test_links_to_files_are_neither_read_nor_written_through(
    part, dangling, copied, stopped, tmp_path
):
    folder, elsewhere = copied("models"), tmp_path / "elsewhere"
    if part == "selection.json":
        paths = [folder / part]
    else:
        # The name of a result that is still to come.
        whole = shutil.copytree(folder, tmp_path / "whole")
        search("models", whole)
        names = {path.stem for path in (whole / "fits").iterdir()}
        names -= {path.stem for path in (folder / "fits").iterdir()}
        suffix = {"fits": ".json", "models": ".safetensors", "runs": ""}[part]
        paths = [folder / part / f"{name}{suffix}" for name in sorted(names)]
    for link in paths:
        link.unlink(missing_ok=True)
        link.symlink_to(elsewhere)
    if not dangling and part == "runs":
        elsewhere.mkdir()
    elif not dangling:
        elsewhere.write_bytes(b"of somebody else")
    with pytest.raises(CheckpointError, match=r"is a link, which is not followed"):
        search("models", folder)
    if dangling:
        assert not elsewhere.exists()
    elif part == "runs":
        assert not list(elsewhere.iterdir())
    else:
        assert elsewhere.read_bytes() == b"of somebody else"


def test_a_folder_of_the_old_form_is_computed_anew(copied, stopped, caplog):
    folder = copied("point")
    values = json.loads((folder / "selection.json").read_text())["values"]
    old = {**values, "scoring": "['accuracy', 'roc_auc']", "points": "[…]"}
    del old["estimator"]
    put(folder / "selection.json", old, format_version=1)
    for path in (folder / "fits").iterdir():
        put(path, {**json.loads(path.read_text())["values"], "fit_seconds": -7}, format_version=1)
    (folder / "models" / "old.npz").write_bytes(b"PK")
    with caplog.at_level(logging.WARNING, "bigsvm"):
        found = search("point", folder)
    [line] = [
        entry.getMessage() for entry in caplog.records if "computed again" in entry.getMessage()
    ]
    assert "an earlier version" in line
    for name, expected in stopped("point")[1].items():
        np.testing.assert_array_equal(found[name], expected)
    assert not list((folder / "models").iterdir())
    put(folder / "selection.json", {**old, "data": "of another search"}, format_version=1)
    with pytest.raises(CheckpointError, match="something else: data"):
        search("point", folder)
    assert list((folder / "fits").iterdir())


@pytest.mark.parametrize("names", [{"another": 0.5}, {"own": 0.5, "more": 0.5}, {}])
def test_names_of_a_scorer_that_returns_several_are_those_of_all_fits(names, tmp_path):
    def scores(estimator, X, y):
        return {"own": float((estimator.predict(X) == y).mean())}

    options = {"cv": 3, "scoring": scores, "checkpoint": tmp_path}
    bigsvm.cross_validate(bigsvm.SVC(), X, Y, **options)
    paths = sorted((tmp_path / "fits").iterdir())
    for path in paths[1:]:
        path.unlink()
    values = json.loads(paths[0].read_text())["values"]
    put(paths[0], {**values, "scores": names})
    with pytest.raises(CheckpointError, match=r"are not those of|results of other scores"):
        bigsvm.cross_validate(bigsvm.SVC(), X, Y, **options)
