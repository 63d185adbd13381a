"""Operators of onnxruntime's domain compute what onnxruntime computes."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from adrenoc.base.errors import CustomDomainError
from adrenoc.importers import import_model
from tests.ir.import_and_run import check
from tests.models import graph, write

RANDOM = np.random.default_rng(0)


def rand(*shape: int) -> np.ndarray:
    return RANDOM.uniform(-1, 1, shape).astype(np.float32)


def quanta(*shape: int, dtype: str = "uint8") -> np.ndarray:
    bounds = np.iinfo(dtype)
    return RANDOM.integers(bounds.min, bounds.max + 1, shape).astype(dtype)


def scale(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def zero(value: int, dtype: str = "uint8") -> np.ndarray:
    return np.array(value, dtype)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One node: `x` is fed (a shape of floats, or quanta), `operands` are constant, None absent."""

    x: tuple[int, ...]
    operands: list[np.ndarray | None] = field(default_factory=list)
    attrs: dict[str, Any] = field(default_factory=dict)
    dtype: str = "float32"
    x_at: int = 0
    outputs: int = 1
    opset: int = 17
    domain: str = "com.microsoft"
    quantum: float = 0.0
    """How far integers may be off, as a share of the range: one quantum where a half is rounded."""


S, Z = scale(0.02), zero(120)
MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)

CASES = {
    "Attention after others": Case(
        x=(2, 3, 8),
        operands=[rand(8, 24), rand(24), MASK, rand(2, 2, 2, 2, 4)],
        attrs={"num_heads": 2, "unidirectional": 1},
        outputs=2,
    ),
    "Inverse": Case(x=(2, 3, 5, 5)),
    "Attention": Case(x=(2, 5, 8), operands=[rand(8, 24), rand(24)], attrs={"num_heads": 2}),
    "Attention masked": Case(
        x=(2, 5, 8), operands=[rand(8, 24), rand(24), MASK], attrs={"num_heads": 2}
    ),
    "Attention lengths": Case(
        x=(2, 5, 8),
        operands=[rand(8, 24), rand(24), np.array([3, 5], np.int32)],
        attrs={"num_heads": 2},
    ),
    "Attention causal": Case(
        x=(2, 5, 8), operands=[rand(8, 24), rand(24)], attrs={"num_heads": 2, "unidirectional": 1}
    ),
    "BiasGelu": Case(x=(2, 5, 7), operands=[rand(7)]),
    "CDist": Case(x=(6, 3), operands=[rand(5, 3)], attrs={"metric": "sqeuclidean"}),
    "CDist euclidean": Case(x=(6, 3), operands=[rand(5, 3)], attrs={"metric": "euclidean"}),
    "DequantizeLinear": Case(x=(2, 5), operands=[S, Z], dtype="uint8"),
    "DynamicQuantizeLSTM": Case(
        x=(7, 2, 5),
        operands=[
            quanta(2, 5, 24, dtype="int8"),
            quanta(2, 6, 24, dtype="int8"),
            rand(2, 48),
            None,
            rand(2, 2, 6),
            rand(2, 2, 6),
            None,
            np.abs(rand(2, 24)) / 100,
            np.zeros((2, 24), np.int8),
            np.array([0.004, 0.003], np.float32),
            np.array([0, 3], np.int8),
        ],
        attrs={"hidden_size": 6, "direction": "bidirectional"},
        outputs=3,
    ),
    "EmbedLayerNormalization": Case(
        x=(2, 5),
        operands=[
            quanta(2, 5).astype(np.int32) % 2,
            rand(300, 8),
            rand(9, 8),
            rand(2, 8),
            rand(8),
            rand(8),
            MASK,
        ],
        dtype="int32",
        outputs=2,
    ),
    "FastGelu": Case(x=(2, 5, 7), operands=[rand(7)]),
    "FusedConv": Case(
        x=(1, 3, 6, 5), operands=[rand(4, 3, 3, 3), rand(4)], attrs={"activation": "Relu"}
    ),
    "FusedConv clip": Case(
        x=(1, 3, 6, 5),
        operands=[rand(4, 3, 3, 3), rand(4)],
        attrs={"activation": "Clip", "activation_params": [-0.5, 0.5]},
    ),
    "FusedGemm": Case(
        x=(4, 6),
        operands=[rand(5, 6), rand(5)],
        attrs={"transB": 1, "activation": "LeakyRelu", "activation_alpha": 0.2},
    ),
    "FusedMatMul": Case(
        x=(2, 6, 4), operands=[rand(2, 5, 6)], attrs={"transA": 1, "transB": 1, "alpha": 0.5}
    ),
    "FusedMatMul batch": Case(
        x=(4, 2, 3, 6), operands=[rand(2, 3, 6, 5)], attrs={"transBatchA": 1, "transA": 0}
    ),
    "Gelu": Case(x=(2, 5, 7)),
    "MatMulIntegerToFloat": Case(
        x=(3, 6), operands=[quanta(6, 4), S, scale(0.1), Z, zero(7), rand(4)], dtype="uint8"
    ),
    "MatMulNBits": Case(
        x=(3, 40),
        operands=[quanta(6, 3, 8), np.abs(rand(6 * 3)), quanta(6 * 2)],
        attrs={"K": 40, "N": 6, "bits": 4, "block_size": 16},
    ),
    "MatMulNBits plain": Case(
        x=(3, 32),
        operands=[quanta(5, 1, 16), np.abs(rand(5))],
        attrs={"K": 32, "N": 5, "bits": 4, "block_size": 32},
    ),
    "MultiHeadAttention": Case(
        x=(2, 5, 8), operands=[rand(2, 3, 8), rand(2, 3, 8), rand(24)], attrs={"num_heads": 4}
    ),
    "MultiHeadAttention masked": Case(
        x=(2, 3, 8),
        operands=[rand(2, 5, 8), rand(2, 5, 8), None, MASK],
        attrs={"num_heads": 2, "scale": 0.7},
    ),
    "MultiHeadAttention after others": Case(
        x=(2, 3, 8),
        operands=[
            *(rand(2, 3, 8), rand(2, 3, 8), rand(24), MASK[:, :5]),
            *(None, rand(2, 2, 2, 4), rand(2, 2, 2, 4)),
        ],
        attrs={"num_heads": 2, "unidirectional": 1},
        outputs=3,
    ),
    "MultiHeadAttention of split heads": Case(
        x=(2, 3, 8),
        operands=[rand(2, 2, 5, 4), rand(2, 2, 5, 4)],
        attrs={"num_heads": 2},
        outputs=1,
    ),
    "QGemm": Case(
        x=(3, 6),
        operands=[S, Z, quanta(6, 4), scale(0.01), zero(100), None, scale(0.05), zero(128)],
        attrs={"alpha": 1.0},
        dtype="uint8",
        quantum=1 / 255,
    ),
    "QAttention": Case(
        x=(2, 5, 8),
        operands=[quanta(8, 24), rand(24), S, scale(0.01), MASK, Z, zero(130)],
        attrs={"num_heads": 2},
        dtype="uint8",
    ),
    "QAttention signed": Case(
        x=(2, 5, 8),
        operands=[quanta(8, 24, dtype="int8"), rand(24), S, np.abs(rand(24)) / 50, None, Z],
        attrs={"num_heads": 4, "unidirectional": 1},
        dtype="uint8",
    ),
    "QEmbedLayerNormalization": Case(
        x=(2, 5),
        operands=[
            quanta(2, 5).astype(np.int32) % 2,
            quanta(300, 8),
            quanta(9, 8),
            quanta(2, 8),
            quanta(8),
            quanta(8),
            MASK,
            *(S for _ in range(5)),
            *(zero(v) for v in (120, 130, 110, 20, 128)),
        ],
        dtype="int32",
        outputs=2,
    ),
    "QLinearAdd": Case(
        x=(2, 3, 5),
        operands=[S, Z, quanta(2, 3, 5), scale(0.03), zero(99), scale(0.05), zero(128)],
        dtype="uint8",
        quantum=1 / 255,
    ),
    "QLinearAveragePool": Case(
        x=(1, 3, 6, 5),
        operands=[S, Z, scale(0.03), zero(100)],
        attrs={"kernel_shape": [2, 3], "strides": [2, 1]},
        dtype="uint8",
        quantum=1 / 255,
    ),
    "QLinearConcat": Case(
        x=(2, 3),
        operands=[scale(0.04), zero(128), S, Z, quanta(2, 4), scale(0.03), zero(99)],
        attrs={"axis": 1},
        dtype="uint8",
        x_at=2,
        quantum=1 / 255,
    ),
    "QLinearGlobalAveragePool": Case(
        x=(1, 3, 6, 5), operands=[S, Z, scale(0.01), zero(100)], dtype="uint8", quantum=1 / 255
    ),
    "QLinearLeakyRelu": Case(
        x=(2, 9), operands=[S, Z, S, Z], attrs={"alpha": 0.1}, dtype="uint8", quantum=1 / 255
    ),
    "QLinearMul": Case(
        x=(2, 3, 5),
        operands=[S, Z, quanta(2, 3, 5), scale(0.03), zero(99), scale(0.05), zero(128)],
        dtype="uint8",
        quantum=1 / 255,
    ),
    "QLinearSigmoid": Case(
        x=(2, 9), operands=[S, Z, scale(1 / 256), zero(0)], dtype="uint8", quantum=1 / 255
    ),
    "QLinearSoftmax": Case(
        x=(2, 9),
        operands=[S, Z, scale(1 / 256), zero(0)],
        attrs={"axis": -1, "opset": 13},
        dtype="uint8",
        quantum=1 / 255,
    ),
    "ExpandDims": Case(x=(2, 5, 7), operands=[np.array(1, np.int32)]),
    "ExpandDims behind the last": Case(x=(2, 5, 7), operands=[np.array(-1, np.int32)]),
    "GatherND": Case(x=(2, 5, 7), operands=[np.array([[1, 4], [0, 2], [1, 0]])]),
    "QuickGelu": Case(x=(2, 5, 7), attrs={"alpha": 1.5}),
    "Trilu": Case(x=(2, 5, 4), operands=[np.array(-1)], attrs={"upper": 0}),
    "SimplifiedLayerNormalization": Case(
        x=(2, 5, 7), operands=[rand(7)], attrs={"axis": -1, "epsilon": 1e-5}, domain=""
    ),
    "SkipLayerNormalization": Case(
        x=(2, 5, 7), operands=[rand(2, 5, 7), rand(7), rand(7), rand(7)], attrs={"epsilon": 1e-5}
    ),
    "SkipLayerNormalization old": Case(
        x=(2, 5, 7), operands=[rand(2, 5, 7), rand(7), rand(7)], opset=12
    ),
    "SkipSimplifiedLayerNormalization": Case(
        x=(2, 5, 7), operands=[rand(2, 5, 7), rand(7), rand(7)], attrs={"epsilon": 1e-5}
    ),
}


def save(name: str, case: Case, path: Path) -> None:
    operator = name.split(maxsplit=1)[0]
    names = [f"k{i}" if v is not None else "" for i, v in enumerate(case.operands)]
    inputs = [*names[: case.x_at], "x", *names[case.x_at :]]
    element = helper.np_dtype_to_tensor_dtype(np.dtype(case.dtype))
    outputs = ["y", "z", "c"][: case.outputs]
    graph = helper.make_graph(
        [helper.make_node(operator, inputs, outputs, domain=case.domain, **case.attrs)],
        "contrib",
        [helper.make_tensor_value_info("x", element, case.x)],
        [onnx.ValueInfoProto(name=o) for o in outputs],
        [
            numpy_helper.from_array(value, key)
            for key, value in zip(names, case.operands, strict=True)
            if value is not None
        ],
    )
    opsets = [helper.make_opsetid("", case.opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 9
    onnx.save(model, path)


@pytest.mark.parametrize("name", CASES)
def test_contrib_operator(name, tmp_path):
    case = CASES[name]
    save(name, case, tmp_path / "contrib.onnx")
    imported, _ = check(tmp_path / "contrib.onnx", tolerance=1e-5 + case.quantum * 1.01)
    operator = name.split(maxsplit=1)[0]
    assert any(d.subject == f"com.microsoft.{operator}" for d in imported.decisions)


def test_layers_of_bytes_tell_what_they_do_not_round(tmp_path):
    save("DynamicQuantizeLSTM", CASES["DynamicQuantizeLSTM"], tmp_path / "contrib.onnx")
    imported = import_model(tmp_path / "contrib.onnx", shapes={})
    (told,) = [d for d in imported.decisions if d.subject == "com.microsoft.DynamicQuantizeLSTM"]
    assert "onnxruntime rounds them to bytes at each step" in told.reason


def test_norm_that_is_newer_than_the_opset_of_an_optimised_model(tmp_path):
    model = graph(
        "n = LayerNormalization(x, s, b) m = Reshape(n, rows) y = com.microsoft.Gelu(m)",
        {"x": (2, 3, 8)},
        ["y"],
        {"s": rand(8), "b": rand(8), "rows": np.array([-1, 8])},
        opset=14,
        domains=("com.microsoft",),
    )
    check(write(model, tmp_path))


def test_refusal_says_why(tmp_path):
    past = Case(
        x=(1, 2, 8),
        operands=[rand(8, 24), rand(24), None, rand(2, 1, 2, 3, 4), None, np.array([3], np.int32)],
        attrs={"num_heads": 2, "past_present_share_buffer": 1},
        outputs=2,
    )
    save("Attention", past, tmp_path / "contrib.onnx")
    with pytest.raises(CustomDomainError, match=r"com.microsoft.Attention \(1x\).*longer than"):
        import_model(tmp_path / "contrib.onnx", shapes={})
