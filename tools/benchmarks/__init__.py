"""Benchmarks: ``python -m tools.benchmarks SUITE``; `suites` says how to add one."""
