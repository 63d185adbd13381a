"""What onnxruntime or LiteRT computes of a model file, for numbers to hold ours against.

They run in a process of their own, which is started once and serves all calls: where one crashes on
a model, that is an error in a sentence, and what was done so far is not lost.

Firmware is held against the same, in its own integers.
"""

import os
import pickle
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adrenoc.base import errors
from adrenoc.base.errors import ToolError
from adrenoc.base.host.proc import own_module
from adrenoc.firmware.mcu.folder import Firmware
from adrenoc.importers.formats import find_model_files

__all__ = [
    "APART",
    "expected_outputs",
    "explain_installed",
    "judge_of",
    "other_kernels",
    "run_exact",
    "run_reference",
    "run_reference_kernels",
    "run_steps",
    "run_tokens",
]

_GONE_S = 2.0
"""Between the end of what a process says and its own."""


class Apart:
    """The process that computes: started by the first question, and again after it has gone."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._lock = threading.Lock()

    def ask(self, model: Path, question: object) -> tuple[str, Any]:
        """Ask the process a question about a model: its answer. Raises ToolError where the runtime
        crashed."""
        with self._lock:
            process = self._ensure_process()
            is_whole = False
            try:
                assert process.stdin is not None
                assert process.stdout is not None
                pickle.dump(question, process.stdin, protocol=pickle.HIGHEST_PROTOCOL)
                process.stdin.flush()
                answer: tuple[str, Any] = pickle.load(process.stdout)
                is_whole = True
                return answer
            except (OSError, EOFError, pickle.UnpicklingError) as error:
                raise _explain_end(model, self.end()) from error
            finally:
                if not is_whole:  # what it still says would be taken for the next answer
                    self.end(after_s=0.0)

    def end(self, after_s: float = _GONE_S) -> int:
        """End it, if it has not gone by itself within some seconds; its exit code."""
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return 0
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):  # what was not written has nobody to read it
                if pipe is not None:
                    pipe.close()
        try:
            return process.wait(timeout=after_s)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def _ensure_process(self) -> subprocess.Popen[bytes]:
        """Return the process, which no fork took over from another one."""
        if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
            self._owner = os.getpid()
            self._process = subprocess.Popen(
                own_module("adrenoc.check.reference_process"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for us
            )
        return self._process


APART = Apart()


def _ask(function: str, model: Path, inputs: object, **more: object) -> Any:
    kind, answer = APART.ask(model, (_folder(), function, model, inputs, more))
    if kind == "refused":
        name, message, hint = answer
        raise getattr(errors, name)(message, hint=hint)
    if kind == "memory":
        raise MemoryError
    return answer


if TYPE_CHECKING:  # what computes is loaded by the process alone
    from adrenoc.check.reference_process import explain_installed, run_exact
    from adrenoc.check.runtimes import (
        other_kernels,
        run_reference,
        run_reference_kernels,
        run_steps,
    )
else:  # each raises ToolError, too, where the runtime crashed
    explain_installed = partial(_ask, "explain_installed")
    other_kernels = partial(_ask, "other_kernels")
    run_exact = partial(_ask, "run_exact")
    run_reference = partial(_ask, "run_reference")
    run_reference_kernels = partial(_ask, "run_reference_kernels")
    run_steps = partial(_ask, "run_steps")


def run_tokens(model: Path, tokens: Sequence[int]) -> np.ndarray:
    """Return what LiteRT computes of a decoder in TFLite after each token: [tokens, vocabulary].
    Raises as `run_reference` does."""
    given = {"tokens": np.asarray(tokens, np.int64)}
    found: dict[str, np.ndarray] = _ask("run_tokens", model, given)
    return found["logits"]


def _folder() -> str:
    """Return where relative paths begin; "" where that folder has gone."""
    with suppress(OSError):
        return str(Path.cwd())
    return ""


def _explain_end(model: Path, code: int) -> Exception:
    """Return what it means that the process has ended."""
    runtime = "LiteRT" if find_model_files(model).format == "tflite" else "onnxruntime"
    how = f"ended its process with code {code}"  # its own words are on stderr
    if code < 0:
        how = f"crashed ({signal.Signals(-code).name})"
    return ToolError(
        f"{runtime} {how} as it computed {model}, so there is nothing to compare with",
        hint=f"look for the fault in {runtime}, or run without a comparison",
    )


def expected_outputs(
    firmware: Firmware, model: Path, inputs: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the outputs of LiteRT's reference kernels, or of onnxruntime, as int8 by name. Raises
    InputError where the model does not have these inputs, DependencyError where its runtime is not
    installed, ModelFormatError where that refuses it."""
    borders = dict(zip((*firmware.inputs, *firmware.outputs), firmware.borders, strict=True))
    feeds = {spec.name: borders[spec].to_model(inputs[spec.name]) for spec in firmware.inputs}
    tflite = find_model_files(model).format == "tflite"
    found = run_reference_kernels(model, feeds) if tflite else run_reference(model, feeds)
    known = {spec.name: borders[spec] for spec in firmware.outputs}
    return {name: known[name].to_firmware(a) if name in known else a for name, a in found.items()}


def judge_of(model: Path) -> str:
    """Return what computed the expected outputs, as the end of a sentence."""
    tflite = find_model_files(model).format == "tflite"
    return "LiteRT's reference kernels compute" if tflite else "onnxruntime computes"
