"""Attacks on bigsvm, with a table of the outcomes.

    python tools/reliability.py damage      files whose values are wrong and whose hashes fit
    python tools/reliability.py mutate      files with random bytes changed
    python tools/reliability.py bombs       small files that ask for much memory
    python tools/reliability.py commands    random command lines
    python tools/reliability.py random      random fits, against a slow float64 check

Each prints a table and the faults, and ends with 1 where there is a fault. ``--help`` after the
name lists its options.
"""

from __future__ import annotations

import sys
from importlib import import_module

ATTACKS = ("damage", "mutate", "bombs", "commands", "random")


def main() -> int:
    """Run one attack."""
    if len(sys.argv) < 2 or sys.argv[1] not in ATTACKS:
        print(__doc__, file=sys.stderr)
        return 2
    return int(import_module(f"attacks.{sys.argv[1]}").main(sys.argv[2:]))


if __name__ == "__main__":
    sys.exit(main())
