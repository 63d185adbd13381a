"""Products of bytes are those of whole numbers, on whatever CPU this runs.

`test_as_installed.py` runs this module again on a CPU whose own products of them saturate.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from adrenoc.check.runtimes import other_kernels, run_reference
from adrenoc.importers.onnx.session import open_session
from tests.models import graph, parse_nodes

DATA_SCALE, WEIGHT_SCALE = np.float32(2.0**-6), np.float32(2.0**-7)
"""Powers of two: requantisation is exact, and rounds ties to even everywhere."""
SIGNS = [(a, w) for a in ("uint8", "int8") for w in ("uint8", "int8")]


def extremes(random: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers whose products add up to most: of the ends of the range."""
    info = np.iinfo(dtype)
    ends = np.array([info.min, info.min + 1, info.max - 1, info.max], dtype)
    return random.choice(ends, shape)


def quantise(sums: np.ndarray, scale: float, zero: int, dtype: str) -> np.ndarray:
    info = np.iinfo(dtype)
    scaled = np.rint(sums * float(DATA_SCALE * WEIGHT_SCALE) / scale) + zero
    return np.clip(scaled, info.min, info.max).astype(dtype)


def convolve(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Of [1, C, H, W] by [O, C, KH, KW], without padding, in whole numbers."""
    windows = np.lib.stride_tricks.sliding_window_view(x[0], w.shape[2:], axis=(1, 2))
    return np.einsum("chwij,ocij->ohw", windows, w)[None]


def model_of(
    nodes: Sequence[onnx.NodeProto], fed: Mapping[str, np.ndarray], constants: dict[str, Any]
) -> onnx.ModelProto:
    """A model that makes y from what is fed to it."""
    made = graph(
        nodes,
        {name: value.shape for name, value in fed.items()},
        ["y"],
        constants,
        opset=21,
        domains=["com.microsoft"],
        dtypes={name: helper.np_dtype_to_tensor_dtype(v.dtype) for name, v in fed.items()},
    )
    made.ir_version = 10
    return made


class Case:
    """Operands at the ends of their ranges, and the sums of their products as whole numbers."""

    def __init__(self, data: str, weights: str, *, convolution: bool, zero: bool = True) -> None:
        random = np.random.default_rng(0)
        self.dtype = data
        shapes = ((1, 16, 9, 9), (8, 16, 3, 3)) if convolution else ((4, 64), (64, 8))
        self.x = extremes(random, data, shapes[0])
        self.w = extremes(random, weights, shapes[1])
        zeros = (3, 5) if zero else (0, 0)
        multiply = convolve if convolution else np.matmul
        wide = [v.astype(np.int64) - z for v, z in zip((self.x, self.w), zeros, strict=True)]
        self.sums = multiply(*wide)
        most = np.abs(self.sums).max() * float(DATA_SCALE * WEIGHT_SCALE)
        self.scale = np.float32(2.0 ** np.ceil(np.log2(most / 120)))
        self.held = {
            "sx": DATA_SCALE,
            "zx": np.array(zeros[0], data),
            "sw": WEIGHT_SCALE,
            "zw": np.array(zeros[1], weights),
            "s": self.scale,
            "z": np.array(7, data),
        }

    @property
    def quantised(self) -> np.ndarray:
        return quantise(self.sums, self.scale, 7, self.dtype)

    @property
    def floats(self) -> np.ndarray:
        return (self.sums * float(DATA_SCALE * WEIGHT_SCALE)).astype(np.float32)

    def model(self, *nodes: onnx.NodeProto, held: bool) -> onnx.ModelProto:
        """With the weights among the constants, or fed."""
        return model_of(
            nodes, self.feeds(held=held), {**self.held, **({"w": self.w} if held else {})}
        )

    def feeds(self, *, held: bool) -> dict[str, np.ndarray]:
        return {"x": self.x} if held else {"x": self.x, "w": self.w}


def own(kind: str, *inputs: str, **attributes) -> onnx.NodeProto:
    return helper.make_node(kind, list(inputs), ["y"], domain="com.microsoft", **attributes)


def assert_exact(path: Path, feeds: Mapping[str, np.ndarray], wanted: np.ndarray) -> None:
    """By fused, plain and all other kernels of onnxruntime."""
    for optimise in (True, False):
        np.testing.assert_array_equal(
            run_reference(path, feeds, optimise=optimise)["y"], wanted, err_msg=f"{optimise=}"
        )
    for kernels, outputs in other_kernels(path, feeds).items():
        np.testing.assert_array_equal(outputs["y"], wanted, err_msg=kernels)


@pytest.mark.parametrize("held", [True, False], ids=["constant", "fed"])
@pytest.mark.parametrize(("data", "weights"), SIGNS)
@pytest.mark.parametrize("kind", ["MatMulInteger", "ConvInteger"])
def test_sums_are_whole_numbers(tmp_path, kind, data, weights, held):
    for zero in (True, False):
        case = Case(data, weights, convolution=kind == "ConvInteger", zero=zero)
        names = ["x", "w", "zx", "zw"] if zero else ["x", "w"]
        model = case.model(helper.make_node(kind, names, ["y"]), held=held)
        onnx.save(model, tmp_path / "m.onnx")
        assert_exact(tmp_path / "m.onnx", case.feeds(held=held), case.sums.astype(np.int32))


@pytest.mark.parametrize("held", [True, False], ids=["constant", "fed"])
@pytest.mark.parametrize(
    ("data", "weights"), [s for s in SIGNS if s != ("int8", "uint8")]
)  # onnxruntime has no kernel for the fourth
@pytest.mark.parametrize("kind", ["QLinearMatMul", "QLinearConv", "QGemm"])
def test_quantised_sums_are_whole_numbers(tmp_path, kind, data, weights, held):
    case = Case(data, weights, convolution=kind == "QLinearConv")
    read = ["x", "sx", "zx", "w", "sw", "zw"]
    node = (
        own(kind, *read, "", "s", "z")
        if kind == "QGemm"
        else helper.make_node(kind, [*read, "s", "z"], ["y"])
    )
    onnx.save(case.model(node, held=held), tmp_path / "m.onnx")
    assert len(np.unique(case.quantised)) > 15
    assert_exact(tmp_path / "m.onnx", case.feeds(held=held), case.quantised)


@pytest.mark.parametrize("held", [True, False], ids=["constant", "fed"])
@pytest.mark.parametrize("weights", ["uint8", "int8"])
def test_sums_as_floats_are_exact(tmp_path, weights, held):
    case = Case("uint8", weights, convolution=False)
    for node in (
        own("MatMulIntegerToFloat", "x", "w", "sx", "sw", "zx", "zw"),
        own("QGemm", "x", "sx", "zx", "w", "sw", "zw"),
    ):
        onnx.save(case.model(node, held=held), tmp_path / "m.onnx")
        assert_exact(tmp_path / "m.onnx", case.feeds(held=held), case.floats)


@pytest.mark.parametrize("held", [True, False], ids=["constant", "fed"])
@pytest.mark.parametrize(("data", "weights"), SIGNS)
@pytest.mark.parametrize("kind", ["MatMul", "Gemm", "Conv", "moved"])
def test_floats_between_conversions_are_products_of_bytes(tmp_path, kind, data, weights, held):
    """As onnxruntime fuses them; `moved` has its weights transposed after they are opened."""
    case = Case(data, weights, convolution=kind == "Conv")
    product = [helper.make_node(kind, ["a", "b"], ["p"])]
    if kind == "moved":
        product = parse_nodes("c = Transpose(b) d = Transpose(c) p = MatMul(a, d)")
    nodes = (
        *parse_nodes("a = DequantizeLinear(x, sx, zx) b = DequantizeLinear(w, sw, zw)"),
        *product,
        helper.make_node("QuantizeLinear", ["p", "s", "z"], ["y"]),
    )
    onnx.save(case.model(*nodes, held=held), tmp_path / "m.onnx")
    assert_exact(tmp_path / "m.onnx", case.feeds(held=held), case.quantised)


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("data", ["uint8", "int8"])
def test_a_network_between_conversions_has_the_integers_of_its_plain_kernels(
    tmp_path, data, signed
):
    """Data that onnxruntime turns from signed to unsigned meets signed weights there, too."""
    case = Case(data, "int8", convolution=True)
    nodes = (
        *parse_nodes(
            "a = DequantizeLinear(x, sx, zx) r = Relu(a) q = QuantizeLinear(r, sx, zx) "
            "o = DequantizeLinear(q, sx, zx) b = DequantizeLinear(w, sw, zw) p = Conv(o, b) "
            "t = QuantizeLinear(p, s, z) y = DequantizeLinear(t, s, z)"
        ),
    )
    model = case.model(*nodes, held=True)
    sums = convolve(np.maximum(case.x.astype(np.int64) - 3, 0), case.w.astype(np.int64) - 5)
    wanted = (quantise(sums, case.scale, 7, data).astype(np.float32) - 7) * case.scale
    (seen,) = open_session(model, signed=signed).run(None, {"x": case.x})
    np.testing.assert_array_equal(seen, wanted)


@pytest.mark.parametrize("weights", ["uint8", "int8"])
def test_bytes_that_an_operator_rounds_itself(tmp_path, weights):
    """The range of the data is 0 to 255, so that they are their own bytes."""
    case = Case("uint8", weights, convolution=False)
    x = case.x.astype(np.float32)
    x[0, :2] = (0, 255)
    sums = (x.astype(np.int64) @ (case.w.astype(np.int64) - 5)) * float(WEIGHT_SCALE)
    node = own("DynamicQuantizeMatMul", "x", "w", "sw", "zw")
    constants = {"w": case.w, "sw": WEIGHT_SCALE, "zw": case.held["zw"]}
    model = model_of([node], {"x": x}, constants)
    onnx.save(model, tmp_path / "m.onnx")
    assert_exact(tmp_path / "m.onnx", {"x": x}, sums.astype(np.float32))
