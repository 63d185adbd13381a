"""`ADRENOC_...`: what few need beside the command line, each read when it is needed."""

import math
import os
from pathlib import Path

from adrenoc.base.errors import OptionError

VARIABLES = {
    "ADRENOC_CACHE_DIR": "moves the cache",
    "ADRENOC_TIMEOUT": "seconds to wait for any answer of a server or a phone",
    "ADRENOC_RUNTIME": "the runtime for phones, a folder of `adrenoc runtime build -o`, in place "
    "of one that is built",
    "ADRENOC_PROGRAM_CACHE": "`off`: `run` keeps no built kernels; `qualcomm`: it also takes those "
    "of an older driver of Qualcomm's, or of one of the same branch",
    "ADRENOC_RECORD": "`off`: `run` launches each run's kernels anew by TVM's virtual machine",
    "ADRENOC_DUMP_DIR": "a folder: `compile` writes the IR after each stage there",
    "ADRENOC_THREADS": "threads of the CPU, where `run` computes by code for it",
    "ADRENOC_TIME_TRACE": "a file: `compile` writes there what takes its time, a section for each "
    "stage, kernel and file, for ui.perfetto.dev",
    "ADRENOC_EFFORT": "how much work `check-accuracy` may do to find a policy, counted and not "
    "timed; 1, as usual, is some ten minutes of one core",
    "ADRENOC_EXECUTOR": "a command by which `firmware tune` builds and runs programs on a board of "
    "yours, in place of QEMU",
    "ADRENOC_SANITIZE": "`address,undefined` or `thread`: `runtime build` builds with sanitizers",
    "ADRENOC_TOKEN": "what clients of `serve --openai` have to know, their API key",
    "ADRENOC_SESSION": "seconds until `runtime serve` stops a session (600; 0 for never)",
    "ADRENOC_MAX_MESSAGE": "MiB of the longest message that `runtime serve` takes (1024)",
    "ADRENOC_ADVERTISE": "the address at which clients of a tracker reach `runtime serve`",
    "ADRENOC_FLEET_LIMIT": "seconds after which `device fleet` stops any one command (1800)",
    "ADRENOC_FLEET_PATIENCE": "seconds that a device of a fleet may be away (60)",
}
"""What each does; docs/reference/environment.md lists them."""


def read_variable(name: str) -> str:
    """Return what a variable of `VARIABLES` says; empty where it is not set."""
    assert name in VARIABLES
    return os.environ.get(name, "")


def read_choice(name: str, *choices: str) -> str:
    """Return one of the choices of a variable, or empty where it is not set. Raises OptionError
    where it says something else."""
    value = read_variable(name)
    if value and value not in choices:
        raise OptionError(
            f"{name} is {value!r}, expected {' or '.join(choices)}", hint=f"unset {name}"
        )
    return value


def read_number(name: str, default: float, *, least: float, most: float) -> float:
    """Return the number that a variable says; OptionError: none, or out of its range."""
    text = read_variable(name)
    try:
        value = float(text or default)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise OptionError(
            f"{name} is {text!r}, expected a number from {least:g} to {most:g}",
            hint=f"unset {name}",
        )
    return value


def read_path(name: str) -> Path | None:
    """Return the path that a variable says, None where it is not set."""
    text = read_variable(name)
    return Path(text) if text else None
