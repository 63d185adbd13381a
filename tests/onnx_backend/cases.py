"""ONNX's own node tests, as a user's exporter would hand them over.

The cases feed everything at run time, also what sets shapes: axes, pads, the k of TopK.  Exporters
write these as constants, and so does this adapter.  Which cases are left out, and why, is said
here too.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from adrenoc.importers.onnx.graph import STANDARD_DOMAINS, all_nodes, attributes

_ALL = range(16)

# Operator -> inputs that exporters write as constants, since they set shapes or attributes.
_CONSTANT_INPUTS: Mapping[str, Sequence[int]] = {
    "AffineGrid": [1],
    "BlackmanWindow": [0],
    "CenterCropPad": [1],
    "Col2Im": [1, 2],
    "Compress": [1],
    "ConstantOfShape": [0],
    "CumProd": [1],
    "CumSum": [1],
    "DFT": [1, 2],
    "Dropout": [1, 2],
    "Expand": [1],
    "HammingWindow": [0],
    "HannWindow": [0],
    "If": [0],
    "Loop": [0, 1],
    "MaxUnpool": [2],
    "MelWeightMatrix": _ALL,
    "NonMaxSuppression": [2, 3, 4],
    "OneHot": [1],
    "Pad": [1, 2, 3],
    "Range": _ALL,
    "Reshape": [1],
    "Resize": [1, 2, 3],
    "STFT": [1, 3],
    "Slice": [1, 2, 3, 4],
    "Split": [1],
    "SplitToSequence": [1],
    "Squeeze": [1],
    "Tile": [1, 2],
    "TopK": [1],
    "Trilu": [1],
    "Unsqueeze": [1],
    "Upsample": [1],
    **{
        f"Reduce{kind}": [1]
        for kind in (
            *("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min"),
            *("Prod", "Sum", "SumSquare"),
        )
    },
}

# Operators that draw random numbers: no two implementations agree.
_RANDOM = {"Bernoulli", "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike"}

_DTYPES_OF_NO_PHONE = {
    TensorProto.BFLOAT16: "bfloat16",
    TensorProto.COMPLEX64: "complex64",
    TensorProto.COMPLEX128: "complex128",
    TensorProto.FLOAT8E4M3FN: "float8",
    TensorProto.FLOAT8E4M3FNUZ: "float8",
    TensorProto.FLOAT8E5M2: "float8",
    TensorProto.FLOAT8E5M2FNUZ: "float8",
    TensorProto.FLOAT8E8M0: "float8",
    TensorProto.FLOAT4E2M1: "float4",
    TensorProto.INT4: "int4",
    TensorProto.UINT4: "uint4",
    getattr(TensorProto, "INT2", -1): "int2",
    getattr(TensorProto, "UINT2", -2): "uint2",
    TensorProto.STRING: "string",
}


# The suite's absolute tolerance is 1e-7.  These outputs are zeros that come of sums of terms up to
# 10, computed there in float64: no float32 sum is that exact.
_CANCELLING = {"test_dft_inverse": 1e-5, "test_dft_inverse_opset19": 1e-5}


# Operators whose rows or columns depend on data: as many as there may be, those beyond the last
# hold -1.
_PADDED = {"NonMaxSuppression": 0, "NonZero": 1}


def _without_padding(value: np.ndarray, axis: int) -> np.ndarray:
    """The rows (columns) before those that are -1 all through to the end."""
    count = int(np.flatnonzero((value != -1).any(axis=1 - axis)).max(initial=-1)) + 1
    return np.take(value, range(count), axis=axis)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One node test: a model, what to feed it and what must come out.

    `excluded` says why the case is none of ours; the model is then that of the suite.
    """

    name: str
    operator: str
    model: bytes
    inputs: Mapping[str, np.ndarray]
    outputs: Mapping[str, np.ndarray]
    rtol: float
    atol: float
    excluded: str = ""
    file_name: str = "case.onnx"

    def difference(self, seen: Mapping[str, np.ndarray]) -> str:
        """What is wrong with the outputs by the suite's own measure; empty where nothing is."""
        for name, expected in self.outputs.items():
            value, axis = seen[name], _PADDED.get(self.operator)
            value = value if axis is None else _without_padding(value, axis)
            if value.shape != expected.shape or value.dtype != expected.dtype:
                return (
                    f"{name} is {value.dtype} {list(value.shape)}, "
                    f"expected {expected.dtype} {list(expected.shape)}"
                )
            close = np.isclose(value, expected, rtol=self.rtol, atol=self.atol, equal_nan=True)
            if not close.all():
                return f"{name}: {int((~close).sum())} of {close.size} elements"
        return ""


def load_cases() -> dict[str, Case]:
    """All node tests of the onnx package by name; takes some seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own reference code divides by zero on purpose
        from onnx.backend.test.case.node import collect_testcases

        found = collect_testcases(None)
    return {case.name: _adapted(case) for case in sorted(found, key=lambda c: str(c.name))}


def _adapted(case: object) -> Case:
    model, (inputs, outputs) = case.model, case.data_sets[0]
    graph = model.graph
    excluded = _exclusion(model, inputs, outputs)
    feeds: dict[str, np.ndarray] = {}
    if not excluded:
        given = dict(zip((v.name for v in graph.input), map(np.asarray, inputs), strict=False))
        constants = _constant_names(graph) & set(given)
        model = _with_constants(model, given, constants)
        feeds = {name: value for name, value in given.items() if name not in constants}
    names = [v.name for v in graph.output]
    return Case(
        name=case.name,
        operator=_operator(case.name, graph),
        model=model.SerializeToString(),
        inputs=feeds,
        outputs={} if excluded else dict(zip(names, map(np.asarray, outputs), strict=True)),
        rtol=case.rtol,
        atol=_CANCELLING.get(case.name, case.atol),
        excluded=excluded,
    )


def _operator(name: str, graph: onnx.GraphProto) -> str:
    """The operator under test; of a test of a function's body, the word that its name begins."""
    if len(graph.node) == 1:
        return str(graph.node[0].op_type)
    return f"{name.removeprefix('test_').split('_')[0]} in parts"


def _exclusion(model: onnx.ModelProto, inputs: Sequence[object], outputs: Sequence[object]) -> str:
    graph = model.graph
    foreign = {n.domain for n in graph.node} - set(STANDARD_DOMAINS)
    if foreign:
        return f"domain {', '.join(sorted(foreign))}"
    given = dict(zip((v.name for v in graph.input), inputs, strict=False))
    if any(_trains(node, given) for node in graph.node):
        return "training mode"
    if _RANDOM & {n.op_type for n in graph.node}:
        return "draws random numbers"
    reasons = [why for value in (*graph.input, *graph.output) if (why := _foreign_type(value))]
    if not all(isinstance(v, np.ndarray | np.generic) for v in (*inputs, *outputs)):
        reasons.append("an input or output is no tensor")
    return reasons[0] if reasons else ""


def _foreign_type(value: onnx.ValueInfoProto) -> str:
    """Why no phone computes with values of this type; empty where one does."""
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return f"{kind.removesuffix('_type')} as input or output"
    name = _DTYPES_OF_NO_PHONE.get(value.type.tensor_type.elem_type)
    return "" if name is None else f"dtype {name}"


def _trains(node: onnx.NodeProto, given: Mapping[str, object]) -> bool:
    """Whether a node updates statistics, or drops elements at random."""
    if node.op_type == "BatchNormalization":
        return bool(attributes(node).get("training_mode", 0))
    if node.op_type != "Dropout" or len(node.input) < 3 or not node.input[2]:
        return False
    ratio, training = (np.asarray(given.get(name, 0.5)) for name in node.input[1:3])
    return bool(training.all() and ratio.any())


def _constant_names(graph: onnx.GraphProto) -> set[str]:
    """The tensors that only set shapes and attributes, and what they are computed from."""
    wanted = {
        name
        for node in graph.node
        for index, name in enumerate(node.input)
        if index in _CONSTANT_INPUTS.get(node.op_type, ())
    }
    for node in reversed(graph.node):
        if wanted.intersection(node.output) and node.op_type not in ("Shape", "Size"):
            wanted.update(node.input)
            wanted.update(name for inner in all_nodes([node]) for name in inner.input)
    return wanted


def _with_constants(
    model: onnx.ModelProto, given: Mapping[str, np.ndarray], constants: set[str]
) -> onnx.ModelProto:
    result = onnx.ModelProto()
    result.CopyFrom(model)
    kept = []
    for value in model.graph.input:
        if value.name in constants:
            result.graph.initializer.append(numpy_helper.from_array(given[value.name], value.name))
        elif value.name in given:
            element = value.type.tensor_type.elem_type
            shape = given[value.name].shape
            kept.append(onnx.helper.make_tensor_value_info(value.name, element, shape))
        else:
            kept.append(value)
    del result.graph.input[:]
    result.graph.input.extend(kept)
    return result
