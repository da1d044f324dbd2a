"""The version, which a run and a model record."""

__version__ = "0.1.0"
