"""Processes that call a function of a test, to be killed or interrupted.

They are forked from a server that has imported what takes long, and runs no other threads.
"""

import multiprocessing

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([
    "bigsvm.estimators.svc", "bigsvm.fit.train", "bigsvm.training.loop", "dask.array",
    "pytest", "scipy.sparse", "sklearn.multiclass", "sklearn.svm", "zarr",
])  # fmt: skip


def start(function, *arguments):
    """Start a process that calls a function of a module with arguments that can be pickled.

    Returns
    -------
    multiprocessing.Process
        Its exit code is 1 if the function raises. It ends with this process.
    """
    process = _CONTEXT.Process(target=function, args=arguments, daemon=True)
    process.start()
    return process


def run(function, *arguments):
    """Let a process call a function, and wait until it has ended; its exit code."""
    process = start(function, *arguments)
    process.join()
    return process.exitcode
