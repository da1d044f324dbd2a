"""LIBSVM text to a Zarr store: ``bigsvm convert`` for those who look for it among the tools.

python tools/libsvm_to_zarr.py SOURCE… STORE [options of bigsvm convert]
"""

import sys

from bigsvm.cli import app

if __name__ == "__main__":
    app(["convert", *sys.argv[1:]])
