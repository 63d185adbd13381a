"""The OpenCL C of kernels: claims on what they hold, goldens for the small ones."""

import re

import numpy as np
import onnx
import pytest

from adrenoc.device.fit import needs_half_type
from adrenoc.kernels.codegen import build
from adrenoc.kernels.codegen.build import kernel_sources
from adrenoc.kernels.fused_bodies import AT_ONCE
from adrenoc.target.gpu import NO_HALF_TYPE
from tests.ir.planning import plan
from tests.models import graph

_IMAGES = ("in0", "in1", "in2")


def _conv(
    channels: int, out: int, kernel: int, *, group: int = 1, stride: int = 1
) -> onnx.ModelProto:
    weights = np.random.default_rng(2).standard_normal((out, channels // group, kernel, kernel))
    how = f"pads = {[kernel // 2] * 4}, group = {group}, strides = {[stride] * 2}"
    nodes = f"r = Relu(x) c = Conv <{how}>(r, w) d = Relu(c) y = GlobalAveragePool(d)"
    constants = {"w": weights.astype(np.float32)}
    return graph(nodes, {"x": [1, channels, 16, 16]}, ["y"], constants)


def _source(model: onnx.ModelProto, part: str, preset: str = "mixed") -> str:
    sources = kernel_sources(plan(model, until="build", preset=preset).executable)
    (found,) = [text for name, text in sources.items() if part in name]
    return found


def test_pointwise_convolution(golden):
    golden(_source(_conv(8, 8, 1), "conv2d"))


def test_what_a_prologue_reads_of_each_block_is_read_once():
    """Scales and shifts come through local memory, with the weights."""
    nodes = (
        "p = MaxPool <kernel_shape = [1, 1]>(x) m = Mul(p, scale) a = Add(m, shift) r = Relu(a) "
        "c = Conv(r, w) y = Sigmoid(c) z = Tanh(p)"
    )
    constants = {
        "w": np.ones((64, 64, 1, 1), np.float32),
        "scale": np.full((1, 64, 1, 1), 0.5, np.float32),
        "shift": np.ones((1, 64, 1, 1), np.float32),
    }
    text = _source(graph(nodes, {"x": [1, 64, 28, 28]}, ["y", "z"], constants), "conv2d")
    reads = {name: len(re.findall(rf"read_image[fh]\({name}_ptr", text)) for name in _IMAGES}
    assert reads["in1"] == reads["in2"] == 1, "a thread brings one block of scales and of shifts"
    assert reads["in0"] > 1
    changed = text.count("LARGER4(") - 1  # the first is where the function is written
    assert changed == reads["in0"], "each texel is changed once, and then used"


@pytest.mark.parametrize("step", ("Floor", "Ceil"))
def test_what_a_step_is_taken_of_is_divided_exactly(step):
    """OpenCL C's own division may be off by 2.5 units: floor(2047 / 255.875) be 7 and not 8."""
    nodes = f"q = Div(x, k) y = {step}(q)"
    model = graph(nodes, {"x": [1, 8, 4, 4]}, ["y"], {"k": np.array(255.875, np.float32)})
    text = "".join(kernel_sources(plan(model, until="build", preset="fp32").executable).values())
    assert "QUOTIENT" in re.sub(r"static float4? QUOTIENT.*?}", "", text, flags=re.S)


def test_depthwise_convolution(golden):
    golden(_source(_conv(8, 8, 3, group=8), "conv2d"))


def test_separable_convolution(golden):
    """A depthwise convolution and the 1x1 convolution after it: nothing is stored between."""
    rng = np.random.default_rng(2)
    nodes = (
        "r = Relu(x) c = Conv <group = 8, pads = [1, 1, 1, 1]>(r, taps, b) d = Relu(c) "
        "e = Conv(d, w) y = GlobalAveragePool(e)"
    )
    constants = {"taps": (8, 1, 3, 3), "b": (8,), "w": (8, 8, 1, 1)}
    weights = {n: rng.standard_normal(s).astype(np.float32) for n, s in constants.items()}
    golden(_source(graph(nodes, {"x": [1, 8, 16, 16]}, ["y"], weights), "conv2d"))


def test_floats_keep_all_their_digits():
    nodes = "m = Mul(x, s) y = Relu(m)"
    scale = np.float32(32.504906)  # %e prints 3.250491e+01, which is its neighbour
    model = graph(nodes, {"x": [1, 8, 4, 4]}, ["y"], {"s": np.array(scale)})
    (text,) = kernel_sources(plan(model, until="build", preset="mixed").executable).values()
    assert scale in {np.float32(n) for n in re.findall(r"\d\.\d+(?:e-?\d+)?(?=f)", text)}
    assert "f()" not in text


@pytest.mark.parametrize("stride", [1, 2])
def test_zero_padding_is_the_samplers(stride):
    text = _source(_conv(8, 8, 3, stride=stride), "conv2d")
    read = "read_imagef(in0_ptr"
    assert "if (" not in text[text.index(read) : text.rindex(read)]
    assert "pad" not in text


@pytest.mark.parametrize("preset", ["mixed", "fp32"])
def test_no_half_arithmetic_outside_fp16(preset):
    lines = _source(_conv(8, 8, 3), "conv2d", preset).splitlines()
    assert not [line for line in lines if "half" in line and not line.startswith("#")]


@pytest.mark.parametrize("has_halves", [True, False])
def test_buffers_hold_floats_where_the_device_has_no_half_type(has_halves):
    """What no image holds lies in a buffer: tensors, and weights."""
    model = _conv(8, 8, 3)
    limits = {"image2d_max_width_texels": 8, "image2d_max_height_texels": 8, "fp16": has_halves}
    state = plan(model, until="build", preset="mixed", **limits)
    texts = kernel_sources(state.executable).values()
    assert any(map(needs_half_type, texts)) == has_halves
    said = {d.subject for d in state.log if d.reason == NO_HALF_TYPE and d.taken == "float32"}
    assert bool(said) != has_halves
    assert has_halves or {"r", "c"} & said


def test_half_arithmetic_in_fp16():
    text = _source(_conv(8, 8, 3), "conv2d", "fp16")
    assert "read_imageh(" in text
    assert "half4 acc" in text


def test_weights_come_through_local_memory():
    brought, used = _source(_conv(64, 64, 1), "conv2d").split("barrier(", 1)
    assert brought.count("read_imagef(in1_ptr") >= 1
    assert "in1_ptr" not in used
    # four input channels a step, a vector of four output channels for each
    assert len(re.findall(r"= shared0_ptr\[", used)) % 4 == 0
    assert "vload" not in used


def test_compilers_cannot_unroll_loops_over_input_blocks():
    text = _source(_conv(64, 64, 3), "conv2d")
    assert "#define ROLLED " in text
    rolled = re.findall(r"for \(int (rolled_\w+) = 0; \1 < \d+ \+ ROLLED; \+\+\1\)", text)
    assert len(rolled) == text.count("for (") > 1


@pytest.mark.parametrize("gpu", ["", ":a660", ":a750"])
def test_the_host_gets_the_phones_kernels(gpu):
    model = _conv(16, 24, 3)
    phone = plan(model, until="build", device=f"adreno{gpu}")
    host = plan(model, until="build", device=f"host{gpu}")
    assert kernel_sources(host.executable) == kernel_sources(phone.executable)
    assert phone.program is not None
    for name, param in host.program.params.items():
        np.testing.assert_array_equal(param.value, phone.program.params[name].value)


def test_reads_within_indices_are_written_once():
    """Of a warp along W: written into each index that holds them they made 350,000 characters."""
    random = np.random.default_rng(0)
    constants = {
        "a": random.standard_normal((20, 20)).astype(np.float32),
        "s": np.array([1, 4, 5, 2], np.int64),
        "b": random.standard_normal((5, 8)).astype(np.float32),
    }
    nodes = (
        "m = MatMul(g, a) t = Transpose <perm = [0, 2, 1]>(m) grid = Reshape(t, s) p = Softmax(x) "
        'warped = GridSample <padding_mode = "border">(p, grid) y = MatMul(warped, b)'
    )
    model = graph(nodes, {"x": [1, 6, 7, 9], "g": [1, 2, 20]}, ["y"], constants)
    text = _source(model, "grid_sam")
    assert len(text) < 130_000
    assert "float element0 = convert_float(" in text


@pytest.mark.parametrize("biased", [False, True])
def test_a_thread_asks_for_what_it_finishes_a_few_results_at_a_time(biased):
    """Compilers would ask for all texels of an epilogue before its first sum."""
    rng = np.random.default_rng(2)
    weights = {"w": rng.standard_normal((1024, 64, 1, 1)).astype(np.float32)}
    if biased:
        weights["b"] = rng.standard_normal(1024).astype(np.float32)
    operands = ", ".join(["r", *weights])
    nodes = f"r = Relu(x) c = Conv({operands}) d = Relu(c) y = GlobalAveragePool(d)"
    text = _source(graph(nodes, {"x": [1, 64, 56, 56]}, ["y"], weights), "conv2d", "fp16")
    parts = re.split(r"if \(ALWAYS\(\d+\)\)", text)
    results = [part.count("write_imagef(out_ptr") for part in parts]
    assert sum(results) > AT_ONCE, "a thread finishes many results"
    if biased:
        assert results[0] == 0
        assert max(results) <= AT_ONCE
        found = re.findall(r"ALWAYS\((\d+)\)\)", text)
        assert len(set(found)) == len(found) == len(parts) - 1, "compilers merge equal conditions"
    else:
        assert len(parts) == 1


def test_of_what_it_reads_for_each_pixel_too():
    """Seven pixels of a residual would wait beside seven sums."""
    rng = np.random.default_rng(2)
    weights = {"w": rng.standard_normal((1024, 256, 1, 1)).astype(np.float32)}
    nodes = "r = Relu(x) c = Conv(r, w) q = Relu(z) d = Add(c, q) y = GlobalAveragePool(d)"
    inputs = {"x": [1, 256, 14, 14], "z": [1, 1024, 14, 14]}
    text = _source(graph(nodes, inputs, ["y"], weights), "conv2d", "fp16")
    results = [part.count("write_imagef(out_ptr") for part in text.split("if (ALWAYS(")]
    assert sum(results) > AT_ONCE
    assert max(results) <= AT_ONCE


def test_an_open_weight_is_stored_before_the_next_is_opened():
    """Else eight of them wait in registers, and half as many threads fit beside each other."""
    random = np.random.default_rng(4)
    constants = {
        "w": random.integers(0, 256, (64, 4, 16)).astype(np.uint8),
        "s": random.uniform(0.01, 0.02, (64, 4)).astype(np.float32),
    }
    how = "K = 128, N = 64, bits = 4, block_size = 32"
    nodes = f"m = com.microsoft.MatMulNBits <{how}>(x, w, s) y = Relu(m)"
    model = graph(nodes, {"x": [1, 64, 128]}, ["y"], constants, domains=["com.microsoft"])
    text = _source(model, "n_bits", "fp16")
    opened, stored = (
        [at.start() for at in re.finditer(pattern, text)]
        for pattern in (r"float4 opened\d+ =", r"shared\d+_ptr\[[^]]*\] = \(convert_half4\(opened")
    )
    assert len(opened) == len(stored) >= 8
    assert all(store < later for store, later in zip(stored, opened[1:], strict=False))


def test_each_kernel_is_printed_without_the_others(monkeypatch):
    """TVM declares all kernels of a module above each one: text and time grew with the square."""
    printed: list[str] = []
    edit = build._edit_source

    def note(source: str, *more) -> str:
        printed.append(source)
        return edit(source, *more)

    monkeypatch.setattr(build, "_edit_source", note)
    sources = kernel_sources(plan(_conv(8, 8, 3), until="build").executable)
    assert len(printed) == len(sources) > 2
    assert all(text.count("__kernel void") == 2 for text in printed)  # declared, and defined


def test_scores_that_are_masked_stand_once():
    """A run that ends behind the last key: what counts for a key is a name, not its expression."""
    nodes = "s = MatMul(q, k) m = Mul(s, scale) p = Softmax <axis = -1>(m) y = MatMul(p, v)"
    shapes = {"q": [1, 3, 197, 64], "k": [1, 3, 64, 197], "v": [1, 3, 197, 64]}
    scale = {"scale": np.array(0.125, np.float32)}
    text = _source(graph(nodes, shapes, ["y"], scale), "softmax")
    assert 0 < text.count("-INFINITY") <= 32  # eight rows of four keys
    assert max(map(len, text.splitlines())) < 1000
