"""Advice of fits of real data: the table of `python -m tools.benchmarks advice`."""

import pytest

from tools.benchmarks.suites.advice import BAD, GOOD, make

OF_FILES = [name for name, bad in BAD.items() if bad.fit.is_real]


@pytest.fixture(params=["array", "store"])
def store(request, tmp_path):
    return tmp_path / "rows.zarr" if request.param == "store" else None


@pytest.mark.parametrize("name", OF_FILES)
def test_bad_fits_are_told_what_is_wrong(name, store):
    [said] = make(BAD[name].fit, store).advice
    assert BAD[name].words in said


@pytest.mark.parametrize("name", OF_FILES)
def test_fits_that_follow_their_advice_are_told_nothing(name, store):
    assert make(BAD[name].fit._replace(**BAD[name].change), store).advice == []


@pytest.mark.parametrize("name", [name for name, fit in GOOD.items() if fit.is_real])
def test_good_fits_are_told_nothing(name, store):
    assert make(GOOD[name], store).advice == []
