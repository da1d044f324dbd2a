"""Models of many classes in LIBSVM's text, as scikit-learn's estimators and as ONNX graphs."""

from dataclasses import replace

import numpy as np
import pytest
from command_line import answer, run_here
from fitted_models import blobs, fitted_on

from bigsvm.data.sources import as_row_source
from bigsvm.errors import ModelError
from bigsvm.interchange.libsvm_model import read_libsvm_model, write_libsvm_model
from bigsvm.interchange.onnx_model import to_onnx
from bigsvm.interchange.sklearn_estimator import to_scikit_learn


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("k", [3, 7])
def test_written_model_is_read_to_the_same_values(k, sparse, tmp_path):
    _, model, rows = fitted_on(k, sparse=sparse)
    names = [7, -3, 0, 2, 11, 5, 6][:k]
    write_libsvm_model(replace(model, classes=names), tmp_path / "m")
    back = read_libsvm_model(tmp_path / "m", n_features=3)
    assert (back.classes, back.rule, back.formulation) == (names, "ovo", "c-svc")
    source = as_row_source(rows)
    values = model.decision_function(source)
    np.testing.assert_allclose(back.decision_function(source), values, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(back.decide(source), model.decide(source))
    # Not only alike: a model that was read is written to the same text.
    write_libsvm_model(back, tmp_path / "again")
    assert (tmp_path / "again").read_text() == (tmp_path / "m").read_text()


def test_the_text_has_scikit_learns_numbers_which_are_libsvms(tmp_path):
    fitted, model, _ = fitted_on(4)
    write_libsvm_model(model, tmp_path / "m")
    header, body = (tmp_path / "m").read_text().split("SV\n")
    found = {line.split()[0]: line.split()[1:] for line in header.splitlines()}
    assert (found["nr_class"], found["label"]) == (["4"], ["0", "1", "2", "3"])
    assert found["nr_sv"] == [str(count) for count in fitted.n_support_]
    np.testing.assert_array_equal(np.array(found["rho"], float), -fitted.intercept_)
    lines = [line.split() for line in body.splitlines()]
    coefficients = np.array([[float(word) for word in line[:3]] for line in lines])
    np.testing.assert_array_equal(coefficients, fitted.dual_coef_.T)
    vectors = [[float(word.split(":")[1]) for word in line[3:]] for line in lines]
    np.testing.assert_array_equal(vectors, fitted.support_vectors_)


THREE = """svm_type c_svc
kernel_type linear
nr_class 3
total_sv 3
rho 0.5 -0.25 1
label 5 3 9
nr_sv 1 1 1
SV
1 0.5 1:1
-1 2 2:1
-0.5 -2 3:1
"""


def written(tmp_path, text):
    (tmp_path / "m").write_text(text)
    return tmp_path / "m"


@pytest.mark.parametrize("at_once", [1, 4096])
def test_a_model_of_libsvm_is_read_by_its_definition(at_once, tmp_path, monkeypatch):
    monkeypatch.setattr("bigsvm.interchange.libsvm_lines.LINES_AT_ONCE", at_once)
    model = read_libsvm_model(written(tmp_path, THREE))
    rows = np.array([[1.0, 0, 0], [0, 4.0, 0], [0, 0, 9.0], [1.4, 1, 0]])
    # Positive for the first of the pairs (5, 3), (5, 9) and (3, 9) in LIBSVM.
    a, b, c = rows.T
    theirs = np.stack([a - b - 0.5, 0.5 * a - 0.5 * c + 0.25, 2 * b - 2 * c - 1], axis=1)
    np.testing.assert_allclose(model.decision_function(as_row_source(rows)), -theirs, atol=1e-12)
    assert model.classes == [5, 3, 9]
    np.testing.assert_array_equal(model.decide(as_row_source(rows)), [0, 1, 2, 1])


def test_ties_go_to_the_first_label_of_the_file(tmp_path):
    model = read_libsvm_model(written(tmp_path, THREE.replace("rho 0.5 -0.25 1", "rho -1 1 -1")))
    # 5 beats 3, 9 beats 5, 3 beats 9.
    [code] = model.decide(as_row_source(np.zeros((1, 3))))
    assert model.classes[code] == 5


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("nr_class 3", "nr_class 4", "rho has 3 values; nr_class is 4, and so it must have 6"),
        ("nr_class 3", "nr_class 1", "nr_class is 1"),
        ("svm_type c_svc", "svm_type nu_svr", "nr_class is 3"),
        ("rho 0.5 -0.25 1", "rho 0.5 -0.25", "rho has 2 values"),
        ("rho 0.5 -0.25 1", "rho 0.5 nan 1", "rho is nan"),
        ("rho 0.5 -0.25 1", "rho 0.5 x 1", "rho is 'x'; it must be a number"),
        ("label 5 3 9", "label 5 3", "3 different classes"),
        ("label 5 3 9", "label 5 3 5", "3 different classes"),
        ("nr_sv 1 1 1\n", "", "nr_sv has 0 values"),
        ("nr_sv 1 1 1", "nr_sv 1 1 2", "3 together"),
        ("nr_sv 1 1 1", "nr_sv 3 -1 1", "3 together"),
        ("nr_sv 1 1 1", "nr_sv 1 1 1.5", "nr_sv is '1.5'; it must be a whole number"),
        ("-1 2 2:1", "-1 2:1", "support vector 2 is no 2 coefficients"),
        ("-1 2 2:1", "x 2 2:1", "support vector 2"),
        ("-1 2 2:1", "nan 2 2:1", "support vector 2"),
        ("-1 2 2:1", "-1 inf 2:1", "support vector 2"),
        ("-1 2 2:1", "-1", "support vector 2"),
        ("-1 2 2:1", "-1 2 2:", "support vector 2"),
        ("-1 2 2:1\n", "", "2 support vectors instead of 3"),
    ],
)
def test_damage_is_named(old, new, message, tmp_path):
    assert old in THREE
    with pytest.raises(ModelError, match=message):
        read_libsvm_model(written(tmp_path, THREE.replace(old, new, 1)))


def test_too_long_a_header_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("bigsvm.interchange.libsvm_lines.MOST_BYTES", 100)
    with pytest.raises(ModelError, match=":3: not a line of the header"):
        read_libsvm_model(written(tmp_path, THREE.replace("nr_class", "nr_class" + 100 * " ")))


@pytest.mark.parametrize("rule", ["ddag", "ovr"])
def test_other_rules_are_refused(rule, tmp_path):
    _, model, _ = fitted_on(3)
    with pytest.raises(ModelError, match=f"votes of pairs of classes only; the rule is {rule}"):
        write_libsvm_model(replace(model, rule=rule), tmp_path / "m")


def test_the_command_line_exports_describes_and_predicts(tmp_path):
    _, model, rows = fitted_on(4)
    model.save(tmp_path / "model")
    run_here("export", tmp_path / "model", tmp_path / "exported", "--to", "libsvm")
    record = answer("info", tmp_path / "exported")
    assert (record["rule"], record["classes"], record["n_functions"]) == ("ovo", [0, 1, 2, 3], 6)
    entries = [
        " ".join(f"{j + 1}:{value!r}" for j, value in enumerate(row)) for row in rows.tolist()
    ]
    labels = blobs(4, seed=1)[1]
    lines = [f"{label} {row}\n" for label, row in zip(labels, entries, strict=True)]
    (tmp_path / "rows").write_text("".join(lines))
    run_here("predict", tmp_path / "rows", tmp_path / "exported", "-o", tmp_path / "predicted")
    codes = model.decide(as_row_source(rows))
    np.testing.assert_array_equal(np.loadtxt(tmp_path / "predicted"), codes)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("rule", ["ovo", "ovo-break-ties"])
def test_scikit_learn_predicts_the_same(rule, sparse):
    fitted, model, rows = fitted_on(6, sparse=sparse)
    order = np.random.default_rng(0).permutation(len(model.support))
    model = replace(
        model,
        support_vectors=model.support_vectors[order],
        coefficients=model.coefficients[order],
        support=model.support[order],
        classes=list("fbaced"),
        rule=rule,
    )
    exported = to_scikit_learn(model)
    codes = model.decide(as_row_source(rows))
    np.testing.assert_array_equal(exported.predict(rows), np.array(model.classes)[codes])
    for shape in ("ovr", "ovo"):
        for one in (exported, fitted):
            one.set_params(decision_function_shape=shape, break_ties=False)
        np.testing.assert_allclose(
            exported.decision_function(rows), fitted.decision_function(rows), atol=1e-9
        )
    np.testing.assert_array_equal(exported.n_support_, fitted.n_support_)
    np.testing.assert_array_equal(np.sort(exported.support_), np.sort(fitted.support_))
    np.testing.assert_array_equal(exported.intercept_, fitted.intercept_)
    with pytest.raises(ModelError, match="votes of pairs of classes only, no ddag"):
        to_scikit_learn(replace(model, rule="ddag"))


@pytest.mark.parametrize("labels", [[5, 3, 9], ["x", "b", "c"]])
@pytest.mark.parametrize("rule", ["ovo", "ovr", "crammer-singer"])
def test_the_graph_predicts_the_same(rule, labels):
    reference = pytest.importorskip("onnx.reference")
    # Three classes have as many pairs as there are classes.
    _, model, rows = fitted_on(3)
    model = replace(model, rule=rule, classes=labels)
    graph = reference.ReferenceEvaluator(to_onnx(model))
    outputs = dict(zip(graph.output_names, graph.run(None, {"X": rows}), strict=True))
    source = as_row_source(rows)
    np.testing.assert_allclose(outputs["values"], model.decision_function(source), atol=1e-9)
    found = outputs["label"].tolist()
    assert found == [labels[code] for code in model.decide(source).tolist()]
    for other in ("ddag", "ovo-break-ties"):
        with pytest.raises(ModelError, match=f"the rule {other} cannot be written as ONNX"):
            to_onnx(replace(model, rule=other))


@pytest.mark.slow
@pytest.mark.parametrize("labels", [(0, 1, 2, 3, 4), (7, -3, 0, 2, 11)])
def test_libsvm_itself_gives_our_labels_and_values(labels, tmp_path):
    svmutil = pytest.importorskip("libsvm.svmutil")
    _, model, rows = fitted_on(5)
    write_libsvm_model(replace(model, classes=list(labels)), tmp_path / "m")
    theirs = svmutil.svm_load_model(str(tmp_path / "m"))
    given = [dict(enumerate(row, 1)) for row in rows]
    predicted, _, values = svmutil.svm_predict([0] * len(rows), given, theirs, "-q")
    source = as_row_source(rows)
    np.testing.assert_allclose(values, -model.decision_function(source), atol=1e-9)
    np.testing.assert_array_equal(predicted, np.array(labels)[model.decide(source)])
    svmutil.svm_save_model(str(tmp_path / "theirs"), theirs)
    again = read_libsvm_model(tmp_path / "theirs", n_features=3)
    np.testing.assert_allclose(-again.decision_function(source), values, atol=1e-6)
