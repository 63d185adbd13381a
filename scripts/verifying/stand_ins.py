"""Stand-ins for the sessions of onnxruntime and LiteRT that packages open: bundles compute.

`stand_in(preset)` replaces the classes before a package is imported.  A model is compiled for the
inputs that it is given, once for each set of their extents, into the folder where the process
runs; numbers without extents, as a rate, become constants (`--fix`), and states go in and out as
the package hands them.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ai_edge_litert.interpreter as litert
import numpy as np
import onnxruntime

from scripts.verifying.commands import adrenoc


class Bundles:
    """The bundles of one model file."""

    preset = ""
    """What all are compiled with; nothing: the real runtime computes."""
    made = 0

    def __init__(self, model: Any) -> None:
        """Take a path, or the bytes of an ONNX file."""
        if isinstance(model, bytes):
            self._file = Path(f"given{len(list(Path().glob('given*.onnx')))}.onnx")
            self._file.write_bytes(model)
        else:
            self._file = Path(str(model))
        self._known: dict[Any, Any] = {}

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute all outputs, by name."""
        from adrenoc.device.result import ProgramOptions
        from adrenoc.device.run import run_bundle

        fixed = {n: a.item() for n, a in feeds.items() if a.ndim == 0}
        key = tuple(fixed.items()), tuple((n, a.shape) for n, a in feeds.items() if n not in fixed)
        if key not in self._known:
            self._known[key] = self._compile(*key)
        arrays = {
            spec.name: np.ascontiguousarray(feeds[spec.name], spec.dtype)
            for spec in self._known[key].manifest.inputs
        }
        programs = ProgramOptions(folder=str(Path.cwd()))
        options = {"repeat": 1, "warmup": 0, "recording": "off", "programs": programs}
        return run_bundle(self._known[key], inputs=arrays, **options).outputs

    def _compile(self, fixed: Any, shapes: Any) -> Any:
        from adrenoc.bundle.bundle import open_bundle

        path = Path(f"{Bundles.made}.adrenoc")
        Bundles.made += 1
        words = ["compile", str(self._file), "--device", "host", "--preset", self.preset]
        words += ["--state", "none", "-o", str(path)]
        for name, value in fixed:
            words += ["--fix", f"{name}={value}"]
        for name, shape in shapes:
            words += ["--shape", f"{name}:{','.join(map(str, shape))}"]
        adrenoc(*words)
        return open_bundle(path)


class _Session(onnxruntime.InferenceSession):
    """A session of onnxruntime, whose `run` a bundle computes."""

    def __init__(self, model: Any, *words: Any, **more: Any) -> None:
        super().__init__(model, *words, **more)
        self._bundles = Bundles(model)

    def run(
        self, names: Sequence[str] | None, feeds: Mapping[str, Any], run_options: Any = None
    ) -> list[np.ndarray]:
        """Compute the outputs of these names, in order; all of them without names."""
        made = self._bundles.run({name: np.asarray(array) for name, array in feeds.items()})
        return [made[name] for name in names or [value.name for value in self.get_outputs()]]


class _Interpreter(litert.Interpreter):  # type: ignore[misc]
    """An interpreter of LiteRT, whose `invoke` a bundle computes."""

    def __init__(self, model_path: Any = None, **more: Any) -> None:
        super().__init__(model_path=str(model_path), **more)
        self._bundles, self._made = Bundles(model_path), {}

    def invoke(self) -> None:
        """Compute all outputs of the inputs that were set."""
        feeds = {
            d["name"]: super(_Interpreter, self).get_tensor(d["index"])
            for d in self.get_input_details()
        }
        made = self._bundles.run(feeds)
        self._made = {d["index"]: made[d["name"]] for d in self.get_output_details()}

    def get_tensor(self, tensor_index: int, subgraph_index: int = 0) -> Any:
        """An output of the last run; else what the interpreter holds."""
        if tensor_index in self._made:
            return self._made[tensor_index]
        return super().get_tensor(tensor_index, subgraph_index)


def stand_in(preset: str) -> None:
    """Have LiteRT under the names of its forerunners, and bundles of a preset compute, if any."""
    Bundles.preset = preset
    chosen = _Interpreter if preset else litert.Interpreter
    if preset:
        onnxruntime.InferenceSession = _Session
    lite = types.ModuleType("tflite_runtime.interpreter")
    lite.Interpreter = litert.Interpreter = chosen  # type: ignore[attr-defined]
    package = types.ModuleType("tflite_runtime")
    package.interpreter = lite  # type: ignore[attr-defined]
    tensorflow = types.ModuleType("tensorflow")
    tensorflow.lite = lite  # type: ignore[attr-defined]
    sys.modules |= {
        "tflite_runtime": package,
        "tflite_runtime.interpreter": lite,
        "tensorflow": tensorflow,
        "tensorflow.lite": lite,
    }
