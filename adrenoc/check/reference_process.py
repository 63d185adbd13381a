"""The process in which the reference computes: questions come by stdin, answers go by stdout."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from contextlib import suppress
from typing import Any

from adrenoc.base.errors import AdrenocError
from adrenoc.check.exact import run_exact
from adrenoc.check.installed import explain_installed
from adrenoc.check.litert_tokens import run_tokens
from adrenoc.check.runtimes import (
    other_kernels,
    run_reference,
    run_reference_kernels,
    run_steps,
)

_FUNCTIONS = {
    function.__name__: function
    for function in (
        explain_installed,
        other_kernels,
        run_exact,
        run_reference,
        run_reference_kernels,
        run_steps,
        run_tokens,
    )
}


def main() -> None:
    """Answer until nobody asks any more."""
    # An interruption is for who asks, and ends this process by the end of the questions.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Who is killed leaves a question half asked, or an answer with nobody to read it: closing the
    # pipe would write that once more.
    with (
        suppress(BrokenPipeError),
        os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers,
    ):
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what the runtimes print is no answer
        while True:
            try:
                question = pickle.load(sys.stdin.buffer)
            except (EOFError, pickle.UnpicklingError):
                return
            pickle.dump(_answer(*question), answers, protocol=pickle.HIGHEST_PROTOCOL)
            answers.flush()


def _answer(
    folder: str, function: str, model: Any, inputs: Any, more: dict[str, Any]
) -> tuple[str, Any]:
    with suppress(OSError):
        os.chdir(folder)
    try:
        return "done", _FUNCTIONS[function](model, inputs, **more)
    except AdrenocError as error:
        return "refused", (type(error).__name__, error.message, error.hint)
    except MemoryError:
        return "memory", None


if __name__ == "__main__":
    main()
