"""`python -m adrenoc`, and what the command `adrenoc` calls."""

from __future__ import annotations

import signal
import sys

from adrenoc.cli.early import end_interrupted


def run_command() -> int:
    """Run the command line; until it hears of Ctrl-C itself, that ends the process."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored
        signal.signal(signal.SIGINT, end_interrupted)
    from adrenoc.cli.main import main

    return main()


if __name__ == "__main__":
    sys.exit(run_command())
