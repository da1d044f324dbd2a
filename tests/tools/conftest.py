"""The tools are run from the root of the repository, some of them by their paths."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
for folder in (ROOT, ROOT / "tools", ROOT / "tools" / "benchmarks"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
