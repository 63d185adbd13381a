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
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from adrenoc.base import errors
from adrenoc.base.errors import ToolError
from adrenoc.base.host.proc import own_module
from adrenoc.firmware.mcu.folder import Firmware
from adrenoc.importers.formats import find_model_files

Arrays = dict[str, np.ndarray]


def run_reference(
    model: Path,
    inputs: Mapping[str, np.ndarray],
    *,
    tensors: Iterable[str] = (),
    optimise: bool = True,
    threads: int = 0,
) -> Arrays:
    """Run `model` on `inputs`; return its outputs and the intermediate `tensors`, all by name.

    With `optimise` off, onnxruntime fuses nothing and LiteRT uses its plain kernels: slower, but
    each tensor is what the file says. Asking for intermediate tensors switches it off. `threads` 0
    leaves the number to the runtime. TFLite models with data in float and weights in 8 bits are
    computed with those weights as floats (`tflite.float_weights`), and so are recurrent layers of
    ONNX that would round their data (`onnx.open_layers`). Raises InputError where an input is
    missing or does not fit, or a tensor is unknown; DependencyError where the package that runs
    this format is not installed; ModelFormatError where the runtime refuses the model; ToolError
    where it crashed.
    """
    more = {"tensors": tuple(tensors), "optimise": optimise, "threads": threads}
    found: Arrays = _ask("run_reference", model, inputs, **more)
    return found


def run_reference_kernels(model: Path, inputs: Mapping[str, np.ndarray]) -> Arrays:
    """Run a TFLite `model` by LiteRT's reference kernels, whose integers are the format's own.
    Raises as `run_reference` does."""
    found: Arrays = _ask("run_reference_kernels", model, inputs)
    return found


def run_tokens(model: Path, tokens: Sequence[int]) -> np.ndarray:
    """Return what LiteRT computes of a decoder in TFLite after each token: [tokens, vocabulary].
    Raises as `run_reference` does."""
    found: Arrays = _ask("run_tokens", model, {"tokens": np.asarray(tokens, np.int64)})
    return found["logits"]


def run_steps(
    model: Path,
    feeds: Sequence[Mapping[str, np.ndarray]],
    *,
    kept: Sequence[tuple[str, str]],
    tensors: Iterable[str] = (),
    optimise: bool = True,
) -> list[Arrays]:
    """Run a model once on each of `feeds`; what `run_reference` returns of each run. `kept` are
    inputs and the outputs of the run before that they are, as states of a decoder; the first run is
    given them. Raises as `run_reference` does."""
    more = {"kept": tuple(kept), "tensors": tuple(tensors), "optimise": optimise}
    found: list[Arrays] = _ask("run_steps", model, list(feeds), **more)
    return found


def other_kernels(model: Path, inputs: Mapping[str, np.ndarray]) -> dict[str, Arrays]:
    """Return the outputs of the runtime's other kernels for the same model, by their names. Each
    rounds in its own way; those that refuse the model are left out. Raises ToolError where one of
    them crashed."""
    found: dict[str, Arrays] = _ask("other_kernels", model, inputs)
    return found


def run_exact(model: Path, inputs: Mapping[str, np.ndarray]) -> Arrays:
    """Compute an ONNX model in float64, see `reference_process.run_exact`. Raises ModelFormatError
    where the file cannot be read, ToolError where the process of the evaluator ended."""
    found: Arrays = _ask("run_exact", model, inputs)
    return found


def explain_installed(
    model: Path, inputs: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]
) -> str:
    """Say by how much onnxruntime, as this computer has it, differs from `expected`, if it does.
    Raises as `run_reference` does."""
    found: str = _ask("explain_installed", model, inputs, expected=dict(expected))
    return found


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
