"""Command lines that are made up: a few of them, and that the judge sees what goes wrong."""

import pytest
from attacks import commands as attack
from attacks.child import Ended

from bigsvm.cli import COMMANDS

# Under pytest-xdist the parent has a thread, which waits for input only.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
NUMBER = 40


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("commands") / "files"
    folder.mkdir()
    attack.make(folder)
    return folder


@pytest.mark.slow
@pytest.mark.fault("surroundings")
@pytest.mark.parametrize("part", range(4))
def test_no_line_ends_badly(files, part):
    writer = attack.Writer(seed=20)
    for number in range(part * NUMBER // 4, (part + 1) * NUMBER // 4):
        words = writer.line(number)
        found, ended = attack.run(words, files, seconds=600)
        assert found in ("0", "2"), (words, ended)


def test_every_command_and_option_takes_part():
    known = attack.commands()
    assert set(known) == set(COMMANDS)
    flags = {flag for parameters in known.values() for p in parameters for flag in p.flags}
    assert {"--no-shuffle", "-q", "--C", "--working-set", "--to", "-o", "--rows"} <= flags
    assert [p.name for p in known["convert"] if not p.flags] == ["sources", "store"]
    writer = attack.Writer(seed=3)
    used = {word for number in range(3000) for word in writer.line(number)}
    assert flags <= used
    assert writer.line(5) == attack.Writer(seed=3).line(5)
    [formulation] = [p for p in known["train"] if p.name == "formulation"]
    assert {"c-svc", "nu-svr", "crammer-singer"} <= set(formulation.choices)
    assert len(used.intersection(formulation.choices)) > 3


def ended(**changes):
    return Ended(
        **{"code": 0, "out": "", "err": "", "seconds": 1.0, "peak": 0, "hung": False, **changes}
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"code": 2, "err": "progress\nbigsvm: error: one\n"}, None),
        ({"code": 2, "err": '{"error": "one", "exit_code": 2}\n'}, None),
        ({"code": 2, "err": "bigsvm: error: one\nbigsvm: error: two\n"}, "not one line"),
        ({"code": 2, "err": "bigsvm: error: one\nand another\n"}, "not one line"),
        ({"code": 1}, "exit code 1"),
        ({"code": -11}, "signal SIGSEGV"),
        ({"hung": True}, "hang"),
        ({"err": "Traceback (most recent call last):\nValueError: x"}, "traceback"),
        ({"out": "label \x1b[2J"}, "control character"),
        ({"err": "bigsvm: warning: overflow encountered in square"}, "numpy"),
    ],
)
def test_how_a_line_ends_is_judged(tmp_path, changes, words):
    fault = attack.fault_of(ended(**changes), tmp_path)
    assert fault is None if words is None else words in fault


@pytest.mark.parametrize(
    "name", [".out.zarr.partial-12-ab", "bigsvm-text-x", ".out.abc.part", "s3:"]
)
def test_leftover_files_are_a_fault(tmp_path, name):
    (tmp_path / "folder" / name).mkdir(parents=True)
    assert name in attack.fault_of(ended(), tmp_path)


def test_values_are_odd_in_some_lines_only():
    writer = attack.Writer(seed=1)
    lines = [writer.line(number) for number in range(400)]
    odd = sum(any(word in attack.ODD_PATHS for word in line) for line in lines)
    assert 40 < odd < 300
