"""Operators of onnxruntime's domain compute what onnxruntime computes."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from adrenoc.base.errors import CustomDomainError
from adrenoc.importers import import_model
from tests.ir.planning import check
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


@dataclass(frozen=True)
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
BYTES: dict[str, Any] = {"dtype": "uint8", "quantum": 1 / 255}
MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)

CASES = {
    "Attention after others": Case(
        (2, 3, 8),
        [rand(8, 24), rand(24), MASK, rand(2, 2, 2, 2, 4)],
        {"num_heads": 2, "unidirectional": 1},
        outputs=2,
    ),
    "Inverse": Case((2, 3, 5, 5)),
    "Attention": Case((2, 5, 8), [rand(8, 24), rand(24)], {"num_heads": 2}),
    "Attention masked": Case((2, 5, 8), [rand(8, 24), rand(24), MASK], {"num_heads": 2}),
    "Attention lengths": Case(
        (2, 5, 8), [rand(8, 24), rand(24), np.array([3, 5], np.int32)], {"num_heads": 2}
    ),
    "Attention causal": Case(
        (2, 5, 8), [rand(8, 24), rand(24)], {"num_heads": 2, "unidirectional": 1}
    ),
    "BiasGelu": Case((2, 5, 7), [rand(7)]),
    "CDist": Case((6, 3), [rand(5, 3)], {"metric": "sqeuclidean"}),
    "CDist euclidean": Case((6, 3), [rand(5, 3)], {"metric": "euclidean"}),
    "DequantizeLinear": Case((2, 5), [S, Z], dtype="uint8"),
    "DynamicQuantizeLSTM": Case(
        (7, 2, 5),
        [
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
        {"hidden_size": 6, "direction": "bidirectional"},
        outputs=3,
    ),
    "EmbedLayerNormalization": Case(
        (2, 5),
        [
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
    "FastGelu": Case((2, 5, 7), [rand(7)]),
    "FusedConv": Case((1, 3, 6, 5), [rand(4, 3, 3, 3), rand(4)], {"activation": "Relu"}),
    "FusedConv clip": Case(
        (1, 3, 6, 5),
        [rand(4, 3, 3, 3), rand(4)],
        {"activation": "Clip", "activation_params": [-0.5, 0.5]},
    ),
    "FusedGemm": Case(
        (4, 6),
        [rand(5, 6), rand(5)],
        {"transB": 1, "activation": "LeakyRelu", "activation_alpha": 0.2},
    ),
    "FusedMatMul": Case((2, 6, 4), [rand(2, 5, 6)], {"transA": 1, "transB": 1, "alpha": 0.5}),
    "FusedMatMul batch": Case((4, 2, 3, 6), [rand(2, 3, 6, 5)], {"transBatchA": 1, "transA": 0}),
    "Gelu": Case((2, 5, 7)),
    "MatMulIntegerToFloat": Case(
        (3, 6), [quanta(6, 4), S, scale(0.1), Z, zero(7), rand(4)], dtype="uint8"
    ),
    "MatMulNBits": Case(
        (3, 40),
        [quanta(6, 3, 8), np.abs(rand(6 * 3)), quanta(6 * 2)],
        {"K": 40, "N": 6, "bits": 4, "block_size": 16},
    ),
    "MatMulNBits plain": Case(
        (3, 32), [quanta(5, 1, 16), np.abs(rand(5))], {"K": 32, "N": 5, "bits": 4, "block_size": 32}
    ),
    "MultiHeadAttention": Case(
        (2, 5, 8), [rand(2, 3, 8), rand(2, 3, 8), rand(24)], {"num_heads": 4}
    ),
    "MultiHeadAttention masked": Case(
        (2, 3, 8), [rand(2, 5, 8), rand(2, 5, 8), None, MASK], {"num_heads": 2, "scale": 0.7}
    ),
    "MultiHeadAttention after others": Case(
        (2, 3, 8),
        [
            *(rand(2, 3, 8), rand(2, 3, 8), rand(24), MASK[:, :5]),
            *(None, rand(2, 2, 2, 4), rand(2, 2, 2, 4)),
        ],
        {"num_heads": 2, "unidirectional": 1},
        outputs=3,
    ),
    "MultiHeadAttention of split heads": Case(
        (2, 3, 8), [rand(2, 2, 5, 4), rand(2, 2, 5, 4)], {"num_heads": 2}, outputs=1
    ),
    "QGemm": Case(
        (3, 6),
        [S, Z, quanta(6, 4), scale(0.01), zero(100), None, scale(0.05), zero(128)],
        {"alpha": 1.0},
        **BYTES,
    ),
    "QAttention": Case(
        (2, 5, 8),
        [quanta(8, 24), rand(24), S, scale(0.01), MASK, Z, zero(130)],
        {"num_heads": 2},
        dtype="uint8",
    ),
    "QAttention signed": Case(
        (2, 5, 8),
        [quanta(8, 24, dtype="int8"), rand(24), S, np.abs(rand(24)) / 50, None, Z],
        {"num_heads": 4, "unidirectional": 1},
        dtype="uint8",
    ),
    "QEmbedLayerNormalization": Case(
        (2, 5),
        [
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
        (2, 3, 5), [S, Z, quanta(2, 3, 5), scale(0.03), zero(99), scale(0.05), zero(128)], **BYTES
    ),
    "QLinearAveragePool": Case(
        (1, 3, 6, 5),
        [S, Z, scale(0.03), zero(100)],
        {"kernel_shape": [2, 3], "strides": [2, 1]},
        **BYTES,
    ),
    "QLinearConcat": Case(
        (2, 3),
        [scale(0.04), zero(128), S, Z, quanta(2, 4), scale(0.03), zero(99)],
        {"axis": 1},
        dtype="uint8",
        x_at=2,
        quantum=1 / 255,
    ),
    "QLinearGlobalAveragePool": Case((1, 3, 6, 5), [S, Z, scale(0.01), zero(100)], **BYTES),
    "QLinearLeakyRelu": Case((2, 9), [S, Z, S, Z], {"alpha": 0.1}, **BYTES),
    "QLinearMul": Case(
        (2, 3, 5), [S, Z, quanta(2, 3, 5), scale(0.03), zero(99), scale(0.05), zero(128)], **BYTES
    ),
    "QLinearSigmoid": Case((2, 9), [S, Z, scale(1 / 256), zero(0)], **BYTES),
    "QLinearSoftmax": Case(
        (2, 9), [S, Z, scale(1 / 256), zero(0)], {"axis": -1, "opset": 13}, **BYTES
    ),
    "ExpandDims": Case((2, 5, 7), [np.array(1, np.int32)]),
    "ExpandDims behind the last": Case((2, 5, 7), [np.array(-1, np.int32)]),
    "GatherND": Case((2, 5, 7), [np.array([[1, 4], [0, 2], [1, 0]])]),
    "QuickGelu": Case((2, 5, 7), attrs={"alpha": 1.5}),
    "Trilu": Case((2, 5, 4), [np.array(-1)], {"upper": 0}),
    "SimplifiedLayerNormalization": Case(
        (2, 5, 7), [rand(7)], {"axis": -1, "epsilon": 1e-05}, domain=""
    ),
    "SkipLayerNormalization": Case(
        (2, 5, 7), [rand(2, 5, 7), rand(7), rand(7), rand(7)], {"epsilon": 1e-05}
    ),
    "SkipLayerNormalization old": Case((2, 5, 7), [rand(2, 5, 7), rand(7), rand(7)], opset=12),
    "SkipSimplifiedLayerNormalization": Case(
        (2, 5, 7), [rand(2, 5, 7), rand(7), rand(7)], {"epsilon": 1e-05}
    ),
}


def save(name: str, case: Case, folder: Path) -> Path:
    operator = name.split(maxsplit=1)[0]
    names = [f"k{i}" if v is not None else "" for i, v in enumerate(case.operands)]
    inputs = [*names[: case.x_at], "x", *names[case.x_at :]]
    outputs = ["y", "z", "c"][: case.outputs]
    model = graph(
        [helper.make_node(operator, inputs, outputs, domain=case.domain, **case.attrs)],
        {"x": case.x},
        outputs,
        {key: value for key, value in zip(names, case.operands, strict=True) if key},
        opset=case.opset,
        domains=["com.microsoft"],
        dtype=helper.np_dtype_to_tensor_dtype(np.dtype(case.dtype)),
    )
    return write(model, folder)


@pytest.mark.parametrize("name", CASES)
def test_contrib_operator(name, tmp_path):
    case = CASES[name]
    imported, _ = check(save(name, case, tmp_path), tolerance=1e-5 + case.quantum * 1.01)
    operator = name.split(maxsplit=1)[0]
    assert any(d.subject == f"com.microsoft.{operator}" for d in imported.decisions)


def test_layers_of_bytes_tell_what_they_do_not_round(tmp_path):
    path = save("DynamicQuantizeLSTM", CASES["DynamicQuantizeLSTM"], tmp_path)
    imported = import_model(path, shapes={})
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
        (1, 2, 8),
        [rand(8, 24), rand(24), None, rand(2, 1, 2, 3, 4), None, np.array([3], np.int32)],
        {"num_heads": 2, "past_present_share_buffer": 1},
        outputs=2,
    )
    with pytest.raises(CustomDomainError, match=r"com.microsoft.Attention \(1x\).*longer than"):
        import_model(save("Attention", past, tmp_path), shapes={})
