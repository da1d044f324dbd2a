"""Benchmarks, generated attacks and checks of this repository; not part of the package bigsvm."""
