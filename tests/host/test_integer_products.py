"""Convolutions of bytes by dot products: the integers of onnxruntime, bit by bit."""

import re
from pathlib import Path

import numpy as np
import onnx
import pytest

from adrenoc.compile.pipeline import State
from adrenoc.importers.onnx.session import open_session
from adrenoc.ir.layout import Layout, Memory, OperandSpec
from adrenoc.kernels.codegen import opencl_source
from adrenoc.kernels.codegen.build import kernel_sources
from adrenoc.lab.tune.tasks import random_value
from tests.host.run_op import CHECKED, execute
from tests.ir.planning import run_until
from tests.qoperator import QNet


def pointwise(dtype: str, channels: int = 20) -> QNet:
    """Two 1x1 convolutions: the second reads bytes that the first wrote."""
    net = QNet((1, 12, 5, 7), dtype=dtype)
    net.conv(channels)
    net.conv(13, per_channel=True)
    return net


def windows(dtype: str) -> QNet:
    """Kernels, strides and borders of many kinds, on channels that fill no block."""
    net = QNet((1, 3, 15, 17), dtype=dtype)
    net.conv(18, kernel=3, stride=2)
    net.conv(18, kernel=3, group=18, per_channel=True)
    net.conv(37, kernel=5, pad=1)
    net.conv(8, kernel=7, per_channel=True, bias=False)
    net.conv(6, kernel=3, group=2)
    net.conv(5, stride=2)
    return net


def images(dtype: str) -> QNet:
    """A batch, and what moves bytes: a pool, a transpose, a reshape."""
    net = QNet((2, 5, 12, 10), dtype=dtype)
    net.conv(9, kernel=3)
    net.node("MaxPool", (2, 9, 6, 5), kernel_shape=[2, 2], strides=[2, 2])
    net.conv(16)
    net.node("Transpose", (2, 16, 5, 6), perm=[0, 1, 3, 2])
    net.conv(21, kernel=3)
    return net


def vectors(dtype: str) -> QNet:
    """Products of one vector a pixel by a matrix."""
    net = QNet((1, 7, 2, 2), dtype=dtype)
    net.conv(130)
    net.conv(70, per_channel=True)
    net.gemm(11)
    return net


def depthwise(dtype: str) -> QNet:
    """A channel each: strides, dilated rows of taps, channels that fill no block, a batch."""
    net = QNet((2, 5, 13, 9), dtype=dtype)
    net.conv(22, kernel=3)
    net.conv(22, kernel=3, group=22, per_channel=True)
    net.conv(22, kernel=5, group=22, pad=1)
    net.conv(22, kernel=3, group=22, stride=2, per_channel=True, bias=False)
    return net


NETWORKS = {
    "pointwise": pointwise,
    "windows": windows,
    "images": images,
    "vectors": vectors,
    "depthwise": depthwise,
}
FAMILIES = {"vectors": "gemv_dot", "depthwise": "depthwise_dot"}


def compiled(net: QNet, folder: Path, preset: str) -> State:
    """All stages for the software device."""
    path = folder / "bytes.onnx"
    onnx.save(net.model(), path)
    return run_until(None, path, "host", preset=preset, **CHECKED)


def expected(net: QNet, image: np.ndarray) -> np.ndarray:
    """What onnxruntime computes."""
    return np.asarray(open_session(net.model()).run(None, {"x": image})[0])


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("pointwise", "fp32"),
        ("windows", "fp16"),
        ("images", "mixed"),
        # PoCL made its kernel for ever, where it was not to optimise it; rusticl takes minutes.
        ("vectors", "fp16"),
        ("depthwise", "fp16"),
    ],
)
def test_integers_are_those_of_onnxruntime(device, tmp_path, name, preset, dtype):
    net = NETWORKS[name](dtype)
    image = net.image()
    state = compiled(net, tmp_path, preset)
    (seen,) = execute(state, [image], device)
    wanted = expected(net, image)
    assert np.ptp(wanted.astype(int)) > 60
    np.testing.assert_array_equal(seen, wanted)
    families = [kernel.family for kernel in state.program.kernels.values()]
    assert FAMILIES.get(name, "conv2d_dot") in families


def test_bytes_lie_between_convolutions(tmp_path):
    graph = compiled(pointwise("uint8"), tmp_path, "fp16").program.graph
    (first, second) = [node for node in graph.nodes if node.op == "conv2d"]
    between = graph.operand(second.inputs[0])
    assert between.memory is Memory.BYTES
    # Two reads of sixteen channels for twenty, a byte each: less than a sixth of float texels.
    assert between.physical == (2, 5, 7, 4)
    assert first.output == graph.aliases.get(second.inputs[0], second.inputs[0])


def test_epilogues_convert_and_read_no_more_than_they_need(tmp_path):
    state = compiled(pointwise("uint8"), tmp_path, "fp16")
    between = next(node for node in state.program.graph.nodes if node.op == "conv2d")
    call = next(step for step in state.program.steps if between.output in step.arguments)
    text = kernel_sources(state.executable)[call.kernel]
    assert "convert_uchar" not in text  # the clip leaves what a byte holds
    biases = [name for name in between.inputs[2:] if name in call.arguments]
    assert len(biases) == len(between.inputs[2:]) - 1  # one of bias and scale is in the sums


def test_reads_beyond_borders_do_not_branch(tmp_path):
    state = compiled(windows("uint8"), tmp_path, "fp16")
    texts = kernel_sources(state.executable)
    kernels = [k for k in state.program.kernels.values() if k.family.endswith("_dot")]
    assert {k.family for k in kernels} == {"conv2d_dot", "depthwise_dot"}
    for kernel in kernels:
        # How a read that is chosen by a branch is printed.
        assert not re.search(r"\buint4? condval", texts[kernel.name])


def test_products_without_the_built_in(device, tmp_path, monkeypatch):
    net = windows("uint8")
    image = net.image()
    built_in = "__opencl_c_integer_dot_product_input_4x8bit_packed"
    sections = tuple(
        (called, text.replace(built_in, "NONE").replace("defined(cl_qcom_dot_product8)", "0"))
        for called, text in opencl_source.prelude()
    )
    monkeypatch.setattr(opencl_source, "prelude", lambda: sections)
    state = compiled(net, tmp_path, "fp32")
    assert "defined(NONE)" in "".join(kernel_sources(state.executable).values())
    np.testing.assert_array_equal(execute(state, [image], device)[0], expected(net, image))


@pytest.mark.parametrize(
    ("gpu", "taken"),
    [
        ("750", "stored as bytes"),
        ("660", "stored as bytes"),
        ("650", "stored as bytes"),
        ("730", "as floats"),
        ("640", "as floats"),
    ],
)
def test_the_target_decides(tmp_path, gpu, taken):
    path = tmp_path / "bytes.onnx"
    onnx.save(pointwise("uint8").model(), path)
    state = run_until("lower", path, f"adreno:{gpu}", preset="fp16", **CHECKED)
    families = {kernel.family for kernel in state.program.kernels.values()}
    assert ("conv2d_dot" in families) is (taken == "stored as bytes")
    assert any(taken in decision.taken for decision in state.log)
    figures = [d for d in state.log if d.taken.startswith("multiplied as bytes, estimated ")]
    assert len(figures) == (taken == "stored as bytes")
    assert all("fp16 numbers, layer by layer" in decision.reason for decision in figures)


def test_the_tuner_fills_words_of_bytes():
    spec = OperandSpec((1, 20, 5, 7), "uint32", Memory.BYTES, Layout("NCHW"), low=-3)
    value = random_value(spec, "seed")
    assert (value.shape, str(value.dtype)) == (spec.physical, "uint32")
