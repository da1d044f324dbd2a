"""``python -m bigsvm``."""

import sys

from bigsvm.cli import main

if __name__ == "__main__":
    sys.exit(main())
