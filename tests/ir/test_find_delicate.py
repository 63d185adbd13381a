"""What `check` calls delicate in half precision, and what it does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from adrenoc.check.check_model import check_model
from adrenoc.check.verdict import Policy
from adrenoc.options import resolve_options
from adrenoc.reporter import SilentReporter
from adrenoc.target.target import load_target
from tests.models import graph, write


def _weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)


def _kinds(model: onnx.ModelProto, folder: Path, preset: str = "mixed") -> list[str]:
    path = write(model, folder)
    target = load_target("adreno")
    options = resolve_options(target, preset=preset).options
    verdict = check_model(
        path, target=target, options=options, policy=Policy(), reporter=SilentReporter()
    )
    assert all(part.seen and part.subject for part in verdict.delicate)
    return sorted(part.kind for part in verdict.delicate)


def _boxes() -> onnx.ModelProto:
    """exp of a convolution's result times a table of anchors."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Exp", ["c"], ["e"]),
        helper.make_node("Mul", ["e", "anchors"], ["y"]),
    ]
    constants = {"w": _weights(4, 3, 1, 1), "anchors": 100 * _weights(1, 4, 8, 8)}
    return graph(nodes, {"x": [1, 3, 8, 8]}, ["y"], constants)


def _scores() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Transpose", ["c"], ["t"], perm=[0, 2, 3, 1]),
        helper.make_node("Sigmoid", ["t"], ["y"]),
    ]
    return graph(nodes, {"x": [1, 3, 8, 8]}, ["y"], {"w": _weights(4, 3, 1, 1)})


def _long_softmax() -> onnx.ModelProto:
    nodes = [helper.make_node("Softmax", ["x"], ["y"], axis=-1)]
    return graph(nodes, {"x": [1, 2, 5000]}, ["y"], {})


def _stream(sums: int, norm: bool = False) -> onnx.ModelProto:
    """Residual blocks of one convolution."""
    nodes, constants, name = [], {"s": _weights(8), "b": _weights(8)}, "x"
    for i in range(sums):
        constants[f"w{i}"] = _weights(8, 8, 1, 1)
        read = name
        if norm:
            names = [name, "s", "b"]
            nodes.append(helper.make_node("InstanceNormalization", names, [f"n{i}"]))
            read = f"n{i}"
        nodes.append(helper.make_node("Conv", [read, f"w{i}"], [f"c{i}"]))
        nodes.append(helper.make_node("Add", [f"c{i}", name], [f"a{i}"]))
        nodes.append(helper.make_node("Relu", [f"a{i}"], [f"r{i}"]))
        name = f"r{i}"
    return graph(nodes, {"x": [1, 8, 6, 6]}, [name], constants)


def _dynamic() -> onnx.ModelProto:
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        helper.make_node("MatMulInteger", ["q", "w", "zero"], ["i"]),
        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "scale"], ["y"]),
    ]
    weights = np.random.default_rng(0).integers(-9, 9, (8, 4)).astype(np.int8)
    return graph(nodes, {"x": [3, 8]}, ["y"], {"w": weights})


def _by_token() -> onnx.ModelProto:
    """A quantum for each row, by its largest number."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Abs", ["p"], ["a"]),
        helper.make_node("ReduceMax", ["a"], ["m"], axes=[-1], keepdims=1),
        helper.make_node("Div", ["m", "steps"], ["s"]),
        helper.make_node("Div", ["p", "s"], ["d"]),
        helper.make_node("Round", ["d"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["v"]),
        helper.make_node("Mul", ["v", "s"], ["y"]),
    ]
    steps = np.array(127, np.float32)
    constants = {"w": _weights(8, 8), "steps": steps}
    return graph(nodes, {"x": [1, 6, 8]}, ["y"], constants)


def _scaled_by_an_input() -> onnx.ModelProto:
    """A fixed quantum of what one number scales that the model is given, and a gate."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Mul", ["p", "one"], ["d"]),
        helper.make_node("GlobalAveragePool", ["d"], ["mean"]),
        helper.make_node("ReduceMean", ["mean"], ["all"], keepdims=1),
        helper.make_node("Sigmoid", ["all"], ["gate"]),
        helper.make_node("Mul", ["d", "gate"], ["e"]),
        helper.make_node("QuantizeLinear", ["e", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    constants = {
        "w": _weights(8, 8),
        "s": np.array(0.02, np.float32),
        "z": np.array(0, np.int8),
    }
    return graph(nodes, {"x": [1, 4, 6, 8], "one": [1]}, ["y"], constants)


def _attention(softmax: bool) -> onnx.ModelProto:
    """k^T v over 64 tokens first, or the usual way round with a softmax."""
    nodes = [helper.make_node("MatMul", ["x", w], [w[1:]]) for w in ("wq", "wk", "wv")]
    nodes.append(helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]))
    if softmax:
        nodes += [
            helper.make_node("MatMul", ["q", "kt"], ["s"]),
            helper.make_node("Softmax", ["s"], ["p"], axis=-1),
            helper.make_node("MatMul", ["p", "v"], ["y"]),
        ]
    else:
        nodes += [
            helper.make_node("MatMul", ["kt", "v"], ["m"]),
            helper.make_node("MatMul", ["q", "m"], ["y"]),
        ]
    constants = {w: _weights(16, 16) for w in ("wq", "wk", "wv")}
    return graph(nodes, {"x": [1, 64, 16]}, ["y"], constants)


def _gated() -> onnx.ModelProto:
    """SiLU, squeeze-and-excitation, and a softmax over classes: none of them is delicate."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Sigmoid", ["c"], ["s"]),
        helper.make_node("Mul", ["c", "s"], ["silu"]),
        helper.make_node("GlobalAveragePool", ["silu"], ["pool"]),
        helper.make_node("Conv", ["pool", "w2"], ["e"]),
        helper.make_node("Sigmoid", ["e"], ["gate"]),
        helper.make_node("Mul", ["silu", "gate"], ["y"]),
        helper.make_node("Flatten", ["pool"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w3"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["shares"], axis=-1),
    ]
    constants = {"w": _weights(8, 3, 1, 1), "w2": _weights(8, 8, 1, 1), "w3": _weights(8, 1000)}
    return graph(nodes, {"x": [1, 3, 16, 16]}, ["y", "shares"], constants)


def _stars(blocks: int, gate: str = "Relu", norm: bool = False) -> onnx.ModelProto:
    """Residual blocks that add a product of two branches of what they read."""
    nodes, constants, name = [], {"s": _weights(8), "b": _weights(8)}, "x"
    for i in range(blocks):
        read = name
        if norm:
            names = [name, "s", "b"]
            nodes.append(helper.make_node("InstanceNormalization", names, [f"n{i}"]))
            read = f"n{i}"
        for branch in "uv":
            constants[f"{branch}{i}_w"] = _weights(8, 8, 1, 1)
            nodes.append(helper.make_node("Conv", [read, f"{branch}{i}_w"], [f"{branch}{i}"]))
        nodes += [
            helper.make_node(gate, [f"u{i}"], [f"g{i}"]),
            helper.make_node("Mul", [f"g{i}", f"v{i}"], [f"m{i}"]),
            helper.make_node("Add", [f"m{i}", name], [f"a{i}"]),
        ]
        name = f"a{i}"
    return graph(nodes, {"x": [1, 8, 6, 6]}, [name], constants)


CASES: dict[str, tuple[Callable[[], onnx.ModelProto], list[str]]] = {
    "boxes": (_boxes, ["decoded boxes"]),
    "scores": (_scores, ["sigmoid scores"]),
    "softmax": (_long_softmax, ["long softmax"]),
    "deep stream": (lambda: _stream(26), ["deep residual stream"]),
    "shorter stream": (lambda: _stream(16), []),
    "stream with norms": (lambda: _stream(26, norm=True), []),
    "dynamic": (_dynamic, ["dynamic quantisation"]),
    "dynamic by token": (_by_token, ["dynamic quantisation"]),
    "a fixed quantum and computed factors": (_scaled_by_an_input, []),
    "linear attention": (lambda: _attention(softmax=False), ["linear attention"]),
    "attention": (lambda: _attention(softmax=True), []),
    "gates": (_gated, []),
    "stars": (lambda: _stars(5), ["growing products"]),
    "few stars": (lambda: _stars(2), []),
    "stars of gates": (lambda: _stars(5, gate="Sigmoid"), []),
    "stars of hard gates": (lambda: _stars(5, gate="HardSigmoid"), []),
    "stars with norms": (lambda: _stars(5, norm=True), []),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_delicate_is_named(tmp_path: Path, case: str) -> None:
    model, kinds = CASES[case]
    assert _kinds(model(), tmp_path) == kinds


def test_float32_is_not_delicate(tmp_path: Path) -> None:
    assert _kinds(_boxes(), tmp_path, "fp32") == []
