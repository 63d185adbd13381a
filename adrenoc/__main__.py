"""`python -m adrenoc`, and what the command `adrenoc` calls."""

from __future__ import annotations

import signal
import sys


def run_command() -> int:
    """Run the command line; while it is loaded, Ctrl-C ends the process without a traceback."""
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else it is ignored
    if is_ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from adrenoc.cli.main import main

    if is_ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return main()


if __name__ == "__main__":
    sys.exit(run_command())
