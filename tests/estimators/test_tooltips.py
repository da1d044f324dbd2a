"""What the HTML of an estimator says of its parameters is of this estimator."""

import html

import pytest

import bigsvm

NAMES = (
    "SVC", "NuSVC", "L2SVC", "CrammerSingerSVC", "SVR", "NuSVR", "OneClassSVM", "L2OneClassSVM",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_no_link_of_the_html_is_a_path_of_this_machine(name):
    shown = getattr(bigsvm, name)()._repr_html_()
    assert "file://" not in shown
    assert "/bigsvm/estimators" not in shown


@pytest.mark.parametrize("name", NAMES)
def test_the_penalty_is_explained_without_other_formulations(name):
    shown = html.unescape(getattr(bigsvm, name)()._repr_html_())
    assert ("C: float" in shown) == hasattr(getattr(bigsvm, name)(), "C")
    assert "hard margin of c-svc" not in shown
    assert ("the hard margin, with the loss" in shown) == (name == "SVC")
    assert ("all targets are inside the tube" in shown) == (name == "SVR")
