"""The optimum of a model of low rank: by its conditions, and by going one variable at a time."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bigsvm.duals.low_rank_model import box_optimum


class Plain:
    """What `LowRank` promises, of a float64 factor."""

    def __init__(self, G, rest):
        self.G, self.rest, self.rank = G, rest, G.shape[1]

    def times(self, v):
        return self.G @ v

    def transposed_times(self, x):
        return x @ self.G

    def squared(self, places, weights):
        return (self.G[places] * weights[:, None]).T @ self.G[places]


def problem(seed, m, r, *, scale=1.0, boxed=False):
    rng = np.random.default_rng(seed)
    model = Plain(scale * rng.normal(size=(m, r)), rng.random(m))
    sign = np.where(rng.random(m) < 0.5, 1.0, -1.0)
    far = rng.random(m) if boxed else np.full(m, np.inf)
    box = np.where(sign > 0, 0.0, -far), np.where(sign > 0, far, 0.0)
    alpha = np.clip(sign * np.maximum(rng.normal(size=m), 0), *box)
    return model, {
        "alpha": alpha, "gradient": sign + rng.normal(size=m), "lower": box[0], "upper": box[1],
        "ridge": 0.1 + rng.random(m),
    }  # fmt: skip


def one_by_one(model, given, rounds=4000):
    """Coordinate ascent."""
    Q = model.G @ model.G.T + np.diag(model.rest + given["ridge"])
    alpha, g = given["alpha"].copy(), given["gradient"].copy()
    for _ in range(rounds):
        for i in range(len(alpha)):
            step = np.clip(alpha[i] + g[i] / Q[i, i], given["lower"][i], given["upper"][i])
            step -= alpha[i]
            alpha[i] += step
            g -= Q[:, i] * step
    return alpha


@pytest.mark.parametrize("boxed", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_box_optimum_agrees_with_coordinate_descent(seed, boxed):
    model, given_ = problem(seed, 30, 4, boxed=boxed)
    found = box_optimum(model, **given_)
    np.testing.assert_allclose(found, one_by_one(model, given_), atol=1e-8)


@given(st.integers(0, 10**6), st.integers(2, 60), st.integers(1, 10),
       st.sampled_from([0.1, 1.0, 30.0]), st.booleans())  # fmt: skip
@example(598, 9, 9, 30.0, True)
@example(326054, 11, 9, 30.0, True)
@settings(max_examples=80, deadline=None)
def test_box_optimum_loses_next_to_nothing_of_the_gain(seed, m, r, scale, boxed):
    model, given_ = problem(seed, m, r, scale=scale, boxed=boxed)
    found = box_optimum(model, **given_)
    assert (found >= given_["lower"]).all()
    assert (found <= given_["upper"]).all()
    change = found - given_["alpha"]
    stiff = model.rest + given_["ridge"]
    outputs = model.G @ (model.G.T @ change) + stiff * change
    g = given_["gradient"] - outputs
    # No point of the box gains more: this is what variables gain alone, without G's curvature.
    room = np.where(g > 0, given_["upper"] - found, found - given_["lower"])
    lost = np.abs(g) @ np.minimum(room, np.abs(g) / (2 * stiff))
    assert lost <= 1e-6 * (change @ given_["gradient"] - 0.5 * change @ outputs)


def test_variables_without_room_stay_where_their_bounds_are():
    model, given_ = problem(2, 40, 5)
    stays = np.arange(40) % 3 == 0
    for name in ("alpha", "lower", "upper", "ridge"):
        given_[name] = np.where(stays, 0.0, given_[name])
    model.rest[stays] = 0.0
    found = box_optimum(model, **given_)
    assert not found[stays].any()
    moving = {name: values[~stays] for name, values in given_.items()}
    rest = box_optimum(Plain(model.G[~stays], model.rest[~stays]), **moving)
    np.testing.assert_allclose(found[~stays], rest, atol=1e-9)


def test_model_spoilt_by_rounding_falls_back_to_its_diagonal():
    class Spoilt(Plain):
        def squared(self, places, weights):
            return -1e9 * len(places) * np.eye(self.rank)

    model, given_ = problem(3, 40, 5)
    found = box_optimum(Spoilt(model.G, model.rest), **given_)
    stiff = model.rest + given_["ridge"]
    alone = given_["alpha"] + given_["gradient"] / stiff
    np.testing.assert_allclose(found, np.clip(alone, given_["lower"], given_["upper"]))


def test_box_optimum_stays_at_the_optimum():
    model, given_ = problem(1, 40, 5)
    found = box_optimum(model, **given_)
    change = found - given_["alpha"]
    outputs = model.G @ (model.G.T @ change) + (model.rest + given_["ridge"]) * change
    again = box_optimum(model, **(given_ | {
        "alpha": found, "gradient": given_["gradient"] - outputs,
    }))  # fmt: skip
    np.testing.assert_allclose(again, found, atol=1e-10)
