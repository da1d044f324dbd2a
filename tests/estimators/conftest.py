import pytest
from sklearn.datasets import make_moons


@pytest.fixture(scope="session")
def moons():
    """Two classes that overlap, 300 rows."""
    return make_moons(300, noise=0.3, random_state=0)
