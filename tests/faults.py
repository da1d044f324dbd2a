"""The kinds of faults that the tests marked ``fault`` guard against, and the table of them.

``pytest -m fault --fault-table`` runs these tests and prints the table. A kind that fewer than
`LEAST` tests guard against fails the run.
"""

from collections import defaultdict

KINDS = {
    "samples": "Samples that are not random",
    "labels": "Continuous labels trained as classes",
    "missing-chunks": "Missing chunks of foreign Zarr arrays read as zeros",
    "dropped-parameters": "A parameter that is dropped, or that no fingerprint has",
    "local-paths": "Stored elsewhere than asked",
    "model-forms": "Models that change on the way",
    "columns-and-order": "Columns and rows in another order",
    "threads": "Threads as a guest",
    "half-models": "Half a model returned",
    "many-columns": "Many columns refused",
    "containers": "Containers that take the machine",
    "text": "Text of other formats",
    "folds": "Folds and parameters of scikit-learn",
    "damaged-checkpoints": "Checkpoints damaged on purpose",
    "messages": "Advice that cannot be followed",
    "forged-files": "Files believed because their hashes fit",
    "bombs": "Files that decode to more than they promise",
    "links-and-pipes": "Links and pipes inside stores and checkpoints",
    "truncation": "Truncated models",
    "streams": "Streams that close or carry control characters",
    "leftovers": "Leftovers of killed runs",
    "surroundings": "Surroundings that break in mid-run",
}
"""Short name, which the marker takes, and title of each kind."""
LEAST = 4
"""Tests that a kind must have: its example and three others."""


class FaultTable:
    """Counts the outcomes of marked tests by kind."""

    def __init__(self) -> None:
        self._outcomes = defaultdict(lambda: defaultdict(int))

    def pytest_runtest_logreport(self, report):
        kinds = [value for name, value in report.user_properties if name == "fault"]
        if report.when == "call" or (report.when == "setup" and report.outcome != "passed"):
            for kind in kinds:
                self._outcomes[kind][report.outcome] += 1

    def lacking(self):
        """Kinds that too few tests have passed for, or that a test has failed for."""
        return [
            kind
            for kind in KINDS
            if self._outcomes[kind]["passed"] < LEAST or self._outcomes[kind]["failed"]
        ]

    def pytest_sessionfinish(self, session):
        is_worker = hasattr(session.config, "workerinput")
        if not is_worker and self.lacking() and session.exitstatus == 0:
            session.exitstatus = 1

    def pytest_terminal_summary(self, terminalreporter):
        terminalreporter.section("faults by kind")
        width = max(map(len, KINDS.values()))
        terminalreporter.write_line(f"{'kind':{width}}  passed  failed  skipped")
        for kind, title in KINDS.items():
            counts = self._outcomes[kind]
            terminalreporter.write_line(
                f"{title:{width}}  {counts['passed']:6}  {counts['failed']:6}  "
                f"{counts['skipped']:7}{'  too few' if counts['passed'] < LEAST else ''}"
            )
