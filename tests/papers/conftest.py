"""A file of kernel rows to be damaged."""

import pytest

from papers.disk_rows import fill, open_tier, the_file


@pytest.fixture
def damaged(tmp_path):
    """A file with rows 0 … 9 in slots 0 … 9."""
    with open_tier(tmp_path) as tier:
        fill(tier, *range(10))
    return the_file(tmp_path)
