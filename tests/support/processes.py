"""Processes that call a function of a test, to be killed or interrupted, and workers of Dask.

They are forked from a server that has imported what takes long, and runs no other threads.
"""

import multiprocessing
import os
from multiprocessing import forkserver
from unittest import mock

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([
    "bigsvm.core.gram", "bigsvm.core.products", "bigsvm.core.smo", "bigsvm.estimators.svc",
    "bigsvm.executors.cluster", "bigsvm.fit.train", "bigsvm.training.loop", "dask.array",
    "distributed", "pytest", "scipy.sparse", "sklearn.multiclass", "sklearn.svm", "zarr",
])  # fmt: skip
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
"""What Dask sets for its workers, before they load libraries."""


def start_server():
    """Start the server, unless it runs; processes of Dask are then forked from it, too."""
    with mock.patch.dict(os.environ, ONE_THREAD):
        forkserver.ensure_running()


def start(function, *arguments):
    """Start a process that calls a function of a module with arguments that can be pickled.

    Returns
    -------
    multiprocessing.Process
        Its exit code is 1 if the function raises. It ends with this process.
    """
    start_server()
    process = _CONTEXT.Process(target=function, args=arguments, daemon=True)
    process.start()
    return process


def run(function, *arguments):
    """Let a process call a function, and wait until it has ended; its exit code."""
    process = start(function, *arguments)
    process.join()
    return process.exitcode
