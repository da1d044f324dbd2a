"""The Numba core: kernel blocks, pair steps, text parsing; no I/O and no imports of the rest."""
