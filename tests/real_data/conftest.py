import os
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("BIGSVM_DATA") or Path(__file__).parents[3] / "shared" / "data")


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.real_data)
            if not FOLDER.is_dir():
                item.add_marker(pytest.mark.skip(reason=f"no real data sets in {FOLDER}"))


@pytest.fixture
def real():
    """Path of a data set, ``real("a9a")``."""
    return lambda name: FOLDER / f"{name}.libsvm.gz"
