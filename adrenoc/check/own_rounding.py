"""Judge outputs by how exactly the reference itself knows them.

Nobody computes a model more exactly than its own numbers are given.  The same model with each
constant and input one float step (ULP) up or down, by chance, is as far as floats can tell the same
model: how far its outputs move is no error of who computes it (`adrenoc.device.compare`).
Where that excuses nothing, exact arithmetic says whose error it is (`reference_process.run_exact`).

Before -> after (x = 5, c = .1):
    y = round(x * c) is 0               0, or 1 with the float after c: y is known to within 1
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from adrenoc.base.errors import InputError, ModelFormatError, ToolError
from adrenoc.base.files.aside import TemporaryFolder
from adrenoc.check.reference import explain_installed, other_kernels, run_exact, run_reference
from adrenoc.check.runtimes import import_runtime, list_tensors
from adrenoc.device.compare import CheckResult, TensorCheck, Uncertainty, compare, settle, step_of
from adrenoc.importers.formats import find_model_files
from adrenoc.importers.onnx.load import load_onnx, read_proto
from adrenoc.importers.onnx.session import MOVES, stores_halves
from adrenoc.importers.tflite.stored import serialise

_QUANTISED_OPERATORS = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
_QUANTISED_NAMES = ("QLinear", "MatMulInteger", "ConvInteger", "DynamicQuantize", "QGemm")
_SCALE_OF_QGEMM = 7
"""The input that says the scale of what comes out; floats do where it is absent."""


@dataclass(frozen=True, kw_only=True)
class Quantised:
    """What is known of a model that rounds: the quanta of its outputs and `tensors`, by name. A
    whole number counts quanta; a float has one where it is converted last."""

    quanta: Mapping[str, float]
    tensors: Mapping[str, float]


def read_quanta(model: Path) -> Quantised | None:
    """Read the quanta that a model states, None where it neither has any nor stores halves. Raises
    DependencyError where the package that reads this format is not installed."""
    if find_model_files(model).format == "tflite":
        return _quantised_tflite(model)
    return _quantised_onnx(model)


def _quantised_onnx(model: Path) -> Quantised | None:
    graph = read_proto(model).graph
    kinds = {node.op_type for node in graph.node}
    rounds = any(k in _QUANTISED_OPERATORS or k.startswith(_QUANTISED_NAMES) for k in kinds)
    if not rounds and not stores_halves(graph):
        return None
    constants = {c.name: c for c in graph.initializer if not c.external_data}
    tensors: dict[str, float] = {}
    for node in graph.node:
        step = 0.0
        if node.op_type in MOVES:
            step = tensors.get(node.input[0], 0.0)
        elif _makes_quanta(node):
            step = 1.0
        elif node.op_type == "DequantizeLinear" and node.input[1] in constants:
            step = float(numpy_helper.to_array(constants[node.input[1]]).max())
        if step:
            tensors[node.output[0]] = step
    quanta = {}
    for value in graph.output:
        floats = value.type.tensor_type.elem_type in (
            onnx.TensorProto.FLOAT,
            onnx.TensorProto.FLOAT16,
            onnx.TensorProto.UNDEFINED,  # a file need not say it
        )
        if not floats:
            quanta[value.name] = 1.0
        elif value.name in tensors:
            quanta[value.name] = tensors[value.name]
    return Quantised(quanta=quanta, tensors={**tensors, **quanta})


def _makes_quanta(node: onnx.NodeProto) -> bool:
    """Return whether the first output holds whole numbers that stand for floats."""
    if node.op_type == "QGemm":
        return len(node.input) > _SCALE_OF_QGEMM and bool(node.input[_SCALE_OF_QGEMM])
    return node.op_type.endswith("QuantizeLinear") or node.op_type.startswith("QLinear")


def _quantised_tflite(model: Path) -> Quantised | None:
    runtime = import_runtime("ai-edge-litert", "ai_edge_litert.interpreter", "TFLite")
    content, _ = find_model_files(model).read()
    interpreter = runtime.Interpreter(model_content=content)
    details = list_tensors(interpreter)

    def is_quantised(detail: Mapping[str, Any]) -> bool:
        whole = np.dtype(detail["dtype"]).kind in "iu"
        return whole and len(detail["quantization_parameters"]["scales"]) > 0

    if not any(is_quantised(detail) for detail in details.values()):
        return None
    # LiteRT has no other way to ask which operator makes a tensor.
    converted = {
        op["outputs"][0]: op["inputs"][0]
        for op in interpreter._get_ops_details()
        if op["op_name"] == "DEQUANTIZE"
    }
    tensors = {}
    for index, detail in details.items():
        source = details.get(converted.get(index, -1))
        if is_quantised(detail):
            tensors[detail["name"]] = 1.0
        elif source is not None and is_quantised(source):
            tensors[detail["name"]] = float(max(source["quantization_parameters"]["scales"]))
    outputs = [details[d["index"]] for d in interpreter.get_output_details()]
    whole = {d["name"]: 1.0 for d in outputs if np.dtype(d["dtype"]).kind in "iu"}
    stated = {d["name"]: tensors[d["name"]] for d in outputs if d["name"] in tensors}
    return Quantised(quanta={**stated, **whole}, tensors={**tensors, **whole})


Arrays = Mapping[str, np.ndarray]
_DRAWS = 6
"""Random directions to move numbers in, half by the runtime's optimised kernels."""


class Reference:
    """What the reference makes of one set of inputs, and how exactly it knows that. The one rule by
    which outputs are right or wrong. What the rule has to compute is computed where outputs are
    beyond the tolerance, and once for all of them."""

    def __init__(self, model: Path, inputs: Arrays, expected: Arrays) -> None:
        self._model, self._inputs, self._expected = model, inputs, expected

    def judge(self, outputs: Arrays, *, tolerance: float) -> CheckResult:
        """Compare with the reference, and what is beyond with how exactly it knows that. Raises
        DependencyError where the package that runs this format is not installed."""
        checked = compare(outputs, self._expected, tolerance=tolerance)
        for known in ("_by_step", "uncertainty"):
            if not checked.passed:
                more = getattr(self, known)
                checked = compare(outputs, self._expected, tolerance=tolerance, known=more)
        return checked if checked.passed else self._settle(checked, outputs, tolerance)

    def _settle(self, checked: CheckResult, outputs: Arrays, tolerance: float) -> CheckResult:
        """Hold numbers that differ against float64: who is off from that is wrong."""

        def settled(tensor: TensorCheck) -> TensorCheck:
            ours, theirs = outputs[tensor.name], self._expected.get(tensor.name)
            right = None if tensor.passed else self._exact.get(tensor.name)
            if right is None or theirs is None or not ours.shape == theirs.shape == right.shape:
                return tensor
            return settle(tensor, ours, theirs, right, tolerance)

        return replace(checked, tensors=tuple(map(settled, checked.tensors)))

    @cached_property
    def _exact(self) -> dict[str, np.ndarray]:
        """Return the outputs in float64, where they can be computed."""
        return run_exact(self._model, self._inputs)

    @cached_property
    def _by_step(self) -> dict[str, Uncertainty]:
        """Return what the model states of its outputs tells, which runs nothing."""
        stated = read_quanta(self._model)
        quanta = {} if stated is None else stated.quanta
        found = {}
        for name, array in self._expected.items():
            step, what = step_of(array, quanta.get(name, 0.0))
            found[name] = Uncertainty(step=step, step_is=what, rounds=stated is not None)
        return found

    @cached_property
    def uncertainty(self) -> dict[str, Uncertainty]:
        """Return how exactly the reference knows each output, by all that is looked at. Raises
        DependencyError where the package that runs this format is not installed."""
        others = list(other_kernels(self._model, self._inputs).values())
        moved = run_moved(self._model, self._inputs)
        return {
            name: replace(known, others=self._alike(name, others), moved=self._alike(name, moved))
            for name, known in self._by_step.items()
        }

    def _alike(self, name: str, draws: Sequence[Arrays]) -> tuple[np.ndarray, ...]:
        shape = self._expected[name].shape
        return tuple(d[name] for d in draws if name in d and d[name].shape == shape)


def judge_outputs(
    model: Path, inputs: Arrays, outputs: Arrays, expected: Arrays, *, tolerance: float
) -> CheckResult:
    """Compare with the reference as `Reference.judge` does, and note where users' own differs.
    Raises DependencyError where the package that runs this format is not installed."""
    checked = Reference(model, inputs, expected).judge(outputs, tolerance=tolerance)
    return replace(checked, note=explain_installed(model, inputs, expected=expected))


def run_moved(model: Path, inputs: Arrays) -> list[dict[str, np.ndarray]]:
    """Run the reference on inputs and constants that are one float step (ULP) away, by draw. Where
    it refuses the model with other constants, the inputs alone are moved; kernels that have no such
    operator, as LiteRT's plain ones lack MediaPipe's, are left out."""
    found = []
    for number in range(_DRAWS):
        random = np.random.default_rng(number)
        feeds = {name: perturb_array(array, random) for name, array in inputs.items()}
        with TemporaryFolder("moved") as folder:
            for file in (perturb_constants(model, Path(folder), random), model):
                with suppress(InputError, ModelFormatError, ToolError):
                    found.append(run_reference(file, feeds, optimise=number % 2 == 0))
                    break
    return found


_MOST_BYTES = 1 << 29
"""Of a model whose constants are perturbed: larger ones would be written again for each draw."""
_OF_SHAPES = {"Resize": (1, 2), "Upsample": (1,), "Range": (0, 1, 2)}
"""ONNX operator -> its floats that an extent is computed of: a step more is another model."""

Perturb = Callable[[np.ndarray], np.ndarray]


def perturb_array(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Step each float32 up or down by one ULP, by chance; zeros and all else stay."""
    if array.dtype != np.float32:
        return array
    up = random.random(array.shape) < 0.5
    infinity = np.float32(np.inf)
    with np.errstate(over="ignore"):  # the lowest float, which masks hold, stays
        steps = np.where(up, np.nextafter(array, infinity), np.nextafter(array, -infinity))
    held = (array == 0) | ~np.isfinite(array) | ~np.isfinite(steps)
    return np.where(held, array, steps).astype(np.float32)


def perturb_constants(model: Path, folder: Path, random: np.random.Generator) -> Path:
    """Copy a model with perturbed constants; the file itself where it cannot be rewritten. Raises
    DependencyError where what reads a TFLite file is not installed."""
    files = find_model_files(model)
    if files.data or model.stat().st_size > _MOST_BYTES:
        return model

    def perturb(array: np.ndarray) -> np.ndarray:
        return perturb_array(array, random)

    write = _tflite if files.format == "tflite" else _onnx
    # Of onnxruntime's own format it is ONNX, which onnxruntime tells by the name.
    copy = folder / (model.with_suffix(".onnx") if model.suffix == ".ort" else model).name
    copy.write_bytes(write(model, perturb))
    return copy


def _onnx(model: Path, perturb: Perturb) -> bytes:
    proto, _ = load_onnx(find_model_files(model))
    held = {
        node.input[place]
        for node in proto.graph.node
        for place in _OF_SHAPES.get(node.op_type, ())
        if place < len(node.input)
    }
    for tensor in proto.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and tensor.name not in held:
            value = perturb(numpy_helper.to_array(tensor))
            tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    return bytes(proto.SerializeToString())


def _tflite(model: Path, perturb: Perturb) -> bytes:
    """Constants in float, and the scales of tensors, of which equal ones stay equal. LiteRT refuses
    operators that only move data between two scales, and other scales than the powers of two that
    the format says of a sigmoid or a softmax."""
    schema = import_runtime("ai-edge-litert", "ai_edge_litert.schema_py_generated", "TFLite")
    made = schema.ModelT.InitFromObj(schema.Model.GetRootAs(model.read_bytes(), 0))
    tensors = [tensor for graph in made.subgraphs for tensor in graph.tensors]
    known: dict[float, float] = {}
    for tensor in tensors:
        scales = getattr(tensor.quantization, "scale", None)
        if scales is not None and len(scales):
            for scale in {float(s) for s in scales} - {*known}:
                is_power = math.frexp(scale)[0] == 0.5
                known[scale] = (
                    scale if is_power else float(perturb(np.array([scale], np.float32))[0])
                )
            tensor.quantization.scale = [known[float(s)] for s in scales]
    floats = (t.buffer for t in tensors if t.type == schema.TensorType.FLOAT32)
    for number in dict.fromkeys(floats):
        data = made.buffers[number].data
        if data is not None and len(data):
            value = perturb(np.frombuffer(bytes(data), np.float32))
            made.buffers[number].data = np.frombuffer(value.tobytes(), np.uint8)
    return serialise(made)
