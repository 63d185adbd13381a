"""No product of a quantised model ever runs on the CPU of a bundle for a GPU.

Importers give products in float32 or in integers, and TVM's legalisation of each product is a plain
loop nest, whatever its windows, groups and ranks: what a family refuses, or a device has to do
without, is a slower kernel of the GPU.  So generated code on the CPU never multiplies quanta, and
needs no kernels for that (whole models on the CPU: `adrenoc/firmware/cpu/`).
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnxruntime.quantization import quantize_dynamic
from tvm import relax

from adrenoc.base.decision import DecisionLog
from adrenoc.base.reporter import SilentReporter
from adrenoc.compile.pipeline import State, run_stages
from adrenoc.importers.relax.own import N_BITS, RECURRENT, call_own
from adrenoc.ir.options import resolve_options
from adrenoc.kernels.families.operators import OF_RELAX
from adrenoc.kernels.families.shared.operator import Kind
from adrenoc.passes.read.read_graph import read_graph
from adrenoc.target.gpu import Quirk
from adrenoc.target.target import load_target
from tests.mcu.drawn import drawn_model
from tests.mcu.onnx_models import float_model, write_quantised

Shape = tuple[int, ...]
Case = tuple[Shape, Shape, dict[str, Any]]


def _windows(rank: int) -> list[Case]:
    """Dense, grouped and depthwise convolutions, with strides, dilations, uneven padding."""
    image, window = (9, 10, 8)[:rank], (3, 2, 3)[:rank]
    uneven = [*([1] * rank), *([2] * rank)]
    return [
        ((2, 6, *image), (8, 6, *window), {}),
        ((2, 6, *image), (6, 2, *window), {"groups": 3, "strides": [2] * rank}),
        ((1, 6, *image), (6, 1, *window), {"groups": 6, "padding": uneven}),
        ((1, 6, *image), (4, 6, *window), {"dilation": [2] * rank, "padding": uneven}),
    ]


def _transposed(rank: int) -> list[Case]:
    image, window = (5, 4, 3)[:rank], (3, 2, 3)[:rank]
    return [
        ((2, 6, *image), (6, 4, *window), {}),
        ((1, 6, *image), (6, 2, *window), {"groups": 3, "strides": [2] * rank}),
        ((1, 6, *image), (6, 1, *window), {"groups": 6, "strides": [2] * rank}),
        ((1, 6, *image), (6, 4, *window), {"padding": [1] * (2 * rank)}),
    ]


_MATRICES: list[Case] = [
    ((4, 6), (6, 5), {}),
    ((6,), (6, 5), {}),
    ((2, 3, 4, 6), (3, 6, 5), {}),
    ((2, 1, 6), (1, 6, 1), {}),
]


def _n_bits(x: Any, _weight: Any) -> Any:
    packed = relax.const(np.full((5, 2, 16), 0x9A, np.uint8))
    scales = relax.const(np.ones((5, 2), np.float32))
    how: dict[str, Any] = {"block": 32, "zero": 8.0, "zeros": False, "bits": 4}
    return call_own(N_BITS, [x, packed, scales], shape=(3, 5), dtype=str(x.ty.dtype), **how)


PRODUCTS: dict[str, tuple[Any, list[Case]]] = {
    "relax.nn.conv1d": (relax.op.nn.conv1d, _windows(1)),
    "relax.nn.conv2d": (relax.op.nn.conv2d, _windows(2)),
    "relax.nn.conv3d": (relax.op.nn.conv3d, _windows(3)),
    "relax.nn.conv1d_transpose": (relax.op.nn.conv1d_transpose, _transposed(1)),
    "relax.nn.conv2d_transpose": (relax.op.nn.conv2d_transpose, _transposed(2)),
    "relax.nn.conv3d_transpose": (relax.op.nn.conv3d_transpose, _transposed(3)),
    N_BITS: (_n_bits, [((3, 64), (1,), {})]),
    "relax.matmul": (relax.op.matmul, _MATRICES),
    "relax.einsum": (lambda x, w: relax.op.einsum([x, w], "ab,bc->ac"), [((4, 6), (6, 5), {})]),
    "relax.outer": (relax.op.outer, [((4,), (6,), {})]),
}
CASES = [(name, case) for name, (_, cases) in PRODUCTS.items() for case in cases]


def _read(make: Any, case: Case, dtype: str) -> Any:
    builder = relax.BlockBuilder()
    shapes, attributes = case[:2], case[2]
    x, w = (relax.Var(n, relax.TensorType(s, dtype)) for n, s in zip("xw", shapes, strict=True))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            made = builder.emit_output(builder.emit(make(x, w, **attributes)))
        builder.emit_func_output(made)
    everything = {operator.name: "a device without it" for operator in OF_RELAX.values()}
    return read_graph(builder.get(), DecisionLog(), avoided=everything)


def test_the_table_has_every_product():
    # Attention multiplies activations, which are floats; so are the states of a recurrent layer,
    # whose importers write one of quanta out step by step.
    kinds = (Kind.CONVOLUTION, Kind.PRODUCT)
    whole = {name for name, operator in OF_RELAX.items() if operator.kind in kinds}
    assert whole - {RECURRENT} <= PRODUCTS.keys()


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize(("name", "case"), CASES)
def test_a_product_that_no_family_takes_is_a_loop_nest(name, case, dtype):
    graph = _read(PRODUCTS[name][0], case, dtype)
    assert graph.nodes
    assert all(node.body is not None and not node.is_on_cpu for node in graph.nodes)


def test_doubles_are_what_goes_to_the_cpu():
    """The reason that there is: and no form of quantised model computes in doubles."""
    make, cases = PRODUCTS["relax.matmul"]
    assert [node.is_on_cpu for node in _read(make, cases[0], "float64").nodes] == [True]


def _quantised(kind: str, folder: Path) -> Path:
    form, _, data = kind.partition(" ")
    if form in ("QDQ", "QOperator"):
        return write_quantised(folder, seed=3, form=form, data=data, per_channel=form == "QDQ")
    if form == "dynamic":
        import onnx

        onnx.save(float_model(3), folder / "f.onnx")
        quantize_dynamic(folder / "f.onnx", folder / "m.onnx")
        return folder / "m.onnx"
    (folder / "m.tflite").write_bytes(drawn_model(int(data), operators=12))
    return folder / "m.tflite"


_KINDS = [
    "QDQ QInt8",
    "QDQ QUInt8",
    "QOperator QUInt8",
    "dynamic",
    *(f"drawn {n}" for n in range(4)),
]


@pytest.mark.parametrize("kind", _KINDS)
def test_networks_of_a_gpu_that_can_do_nothing_whole(kind, tmp_path):
    target = load_target("adreno:750")
    words = tuple(f"operator:{operator.name}" for operator in OF_RELAX.values())
    quirk = Quirk(name="nothing", text="whole operators are wrong", source="a test", avoid=words)
    target = replace(target, gpu=replace(target.gpu, quirks=(quirk,)))
    options = resolve_options(target, preset="mixed").options
    start = State(model=_quantised(kind, tmp_path), target=target, options=options)
    graph = run_stages(start, reporter=SilentReporter(), stop_after="read_graph")[0].graph
    assert not [node.name for node in graph.nodes if node.is_on_cpu]
    assert not any(
        node.op == operator.name for operator in OF_RELAX.values() for node in graph.nodes
    )
