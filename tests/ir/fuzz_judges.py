"""What a fuzzed case may do to its process; in a module that a new process loads at once."""

import os
import time
from pathlib import Path

from fuzz.harness import Outcome


def spin(path: Path) -> Outcome:
    """Use the processor, of file 0 until it is killed."""
    while path.read_bytes() == b"0" and time.process_time() < 60:
        pass
    return Outcome("planned")


def wait(path: Path) -> Outcome:
    """Use none of it."""
    time.sleep(1.5 if path.read_bytes() == b"0" else 0)
    return Outcome("planned")


def fill(path: Path) -> Outcome:
    """Take a quarter of a gibibyte, for a moment."""
    filled = b"x" * (1 << 28 if path.read_bytes() == b"0" else 1)
    return Outcome("planned", f"{len(filled)} bytes")


def end(path: Path) -> Outcome:
    """Leave without an answer."""
    if path.read_bytes() == b"0":
        os._exit(3)
    return Outcome("planned")
