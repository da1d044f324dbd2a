"""``python -m bigsvm`` and the command ``bigsvm``; Ctrl-C during imports leaves no traceback."""

import gc
import os
import signal
import sys

# It asks a run where it is, and without a handler it would end a process that has no run yet.
signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def _end(signum: int, frame: object) -> None:
    """End the process at once: there is nothing to save or report yet."""
    os._exit(128 + signum)


def main() -> int:
    """Run the command line of this process and return its exit code."""
    # A KeyboardInterrupt during an import shows a traceback, or becomes an ImportError.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    from bigsvm.cli import main as run

    try:
        return run()
    finally:
        # Python would look for garbage among all that was imported, several times, before it ends.
        gc.freeze()


if __name__ == "__main__":
    sys.exit(main())
