"""`python -m adrenoc`, and what the command `adrenoc` calls."""

from __future__ import annotations

import os
import signal
import sys


def run_command() -> int:
    """Run the command line; while it is loaded, Ctrl-C ends the process with a sentence."""
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else it is ignored
    if is_ours:
        signal.signal(signal.SIGINT, _end_interrupted)
    from adrenoc.cli.main import main

    if is_ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return main()


def _end_interrupted(*_: object) -> None:
    """End at once: nothing was begun."""
    try:
        os.write(2, b"interrupted; nothing half-written was left\n")
    finally:
        os._exit(128 + signal.SIGINT)


if __name__ == "__main__":
    sys.exit(run_command())
