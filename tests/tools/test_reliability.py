"""The attacks of tools/reliability.py: that they attack, and see what goes wrong."""

import os
import random
import signal
import time

import numpy as np
import pytest
from attacks import subjects as damage
from attacks.child import Ended, command, in_child
from attacks.mutate import mutated
from attacks.stores import kkt_gap

# Under pytest-xdist the parent has a thread, which waits for input only.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


def crash():
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def hang():
    time.sleep(6000)
    return 0


def take_memory():
    return int(np.ones(30_000_000)[0]) - 1


def fail():
    raise ValueError("nothing was caught")


WORKS = {
    "signal": (crash, "signal SIGKILL"),
    "hang": (hang, "hang"),
    "memory": (take_memory, "MB of memory"),
    "traceback": (fail, "traceback: ValueError: nothing was caught"),
    "code": (lambda: 1, "exit code 1"),
    "silent": (lambda: 2, "exit code 2 without a message"),
}


@pytest.mark.parametrize("work", WORKS)
def test_a_child_that_goes_wrong_is_a_fault(work):
    do, fault = WORKS[work]
    ended = in_child(do, seconds=1 if work == "hang" else 600)
    assert fault in ended.fault(memory=10_000_000)


def test_a_command_that_refuses_is_no_fault(tmp_path):
    ended = command(["info", tmp_path / "absent"], seconds=600)
    assert ended.code == 2
    assert ended.fault() is None
    assert isinstance(ended, Ended)


@pytest.mark.parametrize("array", [np.arange(7), np.linspace(0, 1, 7)], ids=["int64", "float64"])
def test_every_damage_changes_the_array(array):
    for name, change in damage.ARRAY_DAMAGES.items():
        changed = change(array)
        same = changed.dtype == array.dtype and np.array_equal(changed, array)
        assert not same, name
    assert np.array_equal(array, np.arange(7)) or np.array_equal(array, np.linspace(0, 1, 7))


@pytest.mark.parametrize("value", ["word", 3, 2.5, [1, 2], {"a": 1}, None])
def test_every_field_has_damages(value):
    kinds = [d.kind for d in damage.fields_damages("", [(("field",), value)], lambda *_: None)]
    assert len(kinds) == len(set(kinds)) >= 6


def test_mutations_depend_on_the_seed_alone():
    data = bytes(range(256))
    found = [mutated(data, random.Random(seed)) for seed in range(50)]
    assert found == [mutated(data, random.Random(seed)) for seed in range(50)]
    assert sum(change != data for change in found) > 40


def test_a_gap_of_a_model_that_is_not_optimal_is_seen(tmp_path):
    import bigsvm

    rows, labels = damage.clouds(n_rows=80)
    model = bigsvm.SVC(C=2, gamma=0.3).fit(rows, labels).model_
    upper = np.full(80, 2.0)
    rows = rows.astype(np.float64)
    assert kkt_gap(model, rows, labels, upper) < 2e-3
    assert kkt_gap(model, rows, labels, upper / 2) == np.inf
    assert kkt_gap(model, rows, 1 - labels, upper) == np.inf
    assert kkt_gap(model, 2 * rows, labels, upper) > 0.05
