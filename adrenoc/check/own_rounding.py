"""Judge outputs by how exactly the reference itself knows them.

Kernels of models that round to whole numbers do so each in their own way, and what a sum's last
digit decides may be a whole quantum, which later layers multiply.  Nobody computes such a model
more exactly than its own numbers are given: constants and inputs one float step away are the same
model as far as floats can tell, and how far its outputs move then is no error of who computes it.

Before -> after (x = 5, c = .1):
    y = round(x * c) is 0               0, or 1 with the float after c: y is known to within 1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from adrenoc.check.quanta import quantised
from adrenoc.check.reference import other_kernels, run_reference
from adrenoc.device.compare import CheckResult, Floor, compare, floors_of
from adrenoc.errors import InputError, ModelFormatError
from adrenoc.files.temporary import TemporaryFolder
from adrenoc.importers.formats import find_model_files

Arrays = Mapping[str, np.ndarray]
MOVED = "results for numbers moved by one float step"
_DRAWS = 3
"""Of directions to move in; with the runtime's optimised and its plain kernels each."""
_MOST_BYTES = 1 << 29
"""Of a model whose constants are moved, too: larger ones would be written again for each draw."""


def judged(
    model: Path, inputs: Arrays, outputs: Arrays, expected: Arrays, *, tolerance: float
) -> CheckResult:
    """Compare with the reference, and what is beyond with how far that is from itself.

    Raises:
        DependencyError: the package that runs this format is not installed.
    """
    known = quantised(model)
    quanta = {} if known is None else known.quanta
    others = {} if known is None else other_kernels(model, inputs)
    floors = {} if known is None else floors_of(expected, others, quanta)
    checked = compare(outputs, expected, tolerance=tolerance, floors=floors, others=others)
    if checked.passed:
        return checked
    if known is None:
        others = other_kernels(model, inputs)
    others |= moved_by_one_step(model, inputs)
    floors = {
        name: _widened(floor, [expected[name], *(o[name] for o in others.values() if name in o)])
        for name, floor in floors_of(expected, others, quanta).items()
    }
    return compare(outputs, expected, tolerance=tolerance, floors=floors, others=others)


def _widened(floor: Floor, draws: Sequence[np.ndarray]) -> Floor:
    """With how far results are apart at most: ours is one more of them, and may lie at one end."""
    alike = [d.astype(np.float64) for d in draws if d.shape == draws[0].shape]
    if not draws[0].size or not all(np.isfinite(d).all() for d in alike):
        return floor
    apart = float(np.max(np.max(alike, axis=0) - np.min(alike, axis=0)))
    return replace(floor, spread=apart, kernels=MOVED) if apart > floor.spread else floor


def moved_by_one_step(model: Path, inputs: Arrays) -> dict[str, dict[str, np.ndarray]]:
    """What the reference gives for inputs, and ONNX's constants, one float step away, by draw."""
    found = {}
    for number in range(_DRAWS):
        random = np.random.default_rng(number)
        feeds = {name: _moved(array, random) for name, array in inputs.items()}
        with TemporaryFolder("moved") as folder, suppress(InputError, ModelFormatError):
            path = _with_moved_constants(model, Path(folder), random)
            for optimise in (True, False):
                kernels = "" if optimise else ", by plain kernels"
                name = f"{MOVED} ({number + 1}{kernels})"
                found[name] = run_reference(path, feeds, optimise=optimise)
    return found


def _moved(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Each float up or down by its last digit; zeros stay, and what is no float32."""
    if array.dtype != np.float32:
        return array
    up = random.random(array.shape) < 0.5
    infinity = np.float32(np.inf)
    steps = np.where(up, np.nextafter(array, infinity), np.nextafter(array, -infinity))
    held = (array == 0) | ~np.isfinite(array) | ~np.isfinite(steps)
    return np.where(held, array, steps).astype(np.float32)


def _with_moved_constants(model: Path, folder: Path, random: np.random.Generator) -> Path:
    """A copy of an ONNX file with such constants; the file itself where it cannot be rewritten."""
    files = find_model_files(model)
    if files.format == "tflite" or files.data or model.stat().st_size > _MOST_BYTES:
        return model
    import onnx
    from onnx import numpy_helper

    proto = onnx.load(str(model))
    for tensor in proto.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            value = _moved(numpy_helper.to_array(tensor), random)
            tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    copy = folder / model.name
    onnx.save(proto, str(copy))
    return copy
