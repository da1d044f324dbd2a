"""What all tests share. It also puts this folder on the path: ``import naive``."""

from hypothesis import settings

# The first example of a property may compile a kernel.
settings.register_profile("bigsvm", deadline=None)
settings.load_profile("bigsvm")
