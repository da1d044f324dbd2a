"""What the HTML of an estimator says of its parameters is of this estimator."""

import html
from email.message import Message
from importlib.metadata import PackageNotFoundError

import pytest

import bigsvm
from bigsvm.estimators import documentation

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


@pytest.fixture
def released(monkeypatch):
    """Give a function that sets the address of the documentation in the package's metadata."""

    def run(address):
        found = Message()
        found["Project-URL"] = "Source, https://forge.example/bigsvm"
        found["Project-URL"] = f"Documentation, {address}"
        monkeypatch.setattr(documentation, "metadata", lambda name: found)
        documentation.site.cache_clear()

    yield run
    documentation.site.cache_clear()


@pytest.mark.parametrize("name", ["SVC", "OneClassSVM"])
def test_the_question_mark_leads_to_the_site_once_there_is_one(released, name):
    released("https://docs.example/bigsvm/")
    shown = getattr(bigsvm, name)()._repr_html_()
    assert f'href="https://docs.example/bigsvm/reference/bigsvm.{name}.html' in shown


def test_until_then_it_leads_to_the_docstring_below(released):
    released("https://bigsvm.invalid/docs")
    shown = bigsvm.SVC()._repr_html_()
    assert 'href="#bigsvm.SVC' in shown
    assert ".invalid" not in shown


def test_a_package_that_is_not_installed_has_no_site(monkeypatch):
    def absent(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(documentation, "metadata", absent)
    documentation.site.cache_clear()
    assert documentation.site() == ""
    documentation.site.cache_clear()
