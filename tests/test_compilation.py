"""How functions are compiled."""

import gc

import numba
import pytest

from bigsvm.compilation import compilations, compiled, inlined, inner

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")


class Looks(numba.core.event.Listener):
    """Whether garbage is collected when a compilation begins and when it has ended."""

    def __init__(self):
        self.enabled = []

    def on_start(self, event):
        self.enabled.append(gc.isenabled())

    def on_end(self, event):
        self.enabled.append(gc.isenabled())


@pytest.mark.parametrize("was_enabled", [True, False])
def test_no_garbage_is_collected_while_functions_are_compiled(was_enabled):
    part = inner(lambda x: x + 1, cache=False)
    whole = compiled(lambda x: 2 * part(x), cache=False)
    looks = Looks()
    if not was_enabled:
        gc.disable()
    try:
        with compilations() as counted, numba.core.event.install_listener("numba:compile", looks):
            assert whole(1) == 4
        assert gc.isenabled() == was_enabled
    finally:
        gc.enable()
    assert counted.n_functions == 2
    assert looks.enabled == [False, False, False, was_enabled]


def test_garbage_is_collected_again_after_a_function_that_does_not_compile():
    with pytest.raises(numba.TypingError):
        compiled(lambda x: x.absent, cache=False)(1)
    assert gc.isenabled()


def test_decorators_take_options():
    assert compiled(cache=False)(lambda x, y: x / y)(1.0, 0.0) == float("inf")
    with pytest.raises(ZeroDivisionError):
        compiled(cache=False, error_model="python")(lambda x, y: x / y)(1.0, 0.0)
    part = inlined(lambda x: x + 1, cache=False)
    assert compiled(lambda x: part(x), cache=False)(1) == 2
