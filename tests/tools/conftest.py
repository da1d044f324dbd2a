"""The tools are scripts, not a package: their folders go on the path as Python puts a script's."""

import sys
from pathlib import Path

TOOLS = Path(__file__).parents[2] / "tools"
for folder in (TOOLS, TOOLS / "benchmarks"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
