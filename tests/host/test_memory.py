"""The memory that is planned is what the runtime allocates; what callers hand over is looked at."""

import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from adrenoc.base.reporter import SilentReporter
from adrenoc.check.verdict import MIB
from adrenoc.compile.compiler import Compiled, compile_model
from adrenoc.importers.onnx.session import open_session
from adrenoc.ir.options import resolve_options
from adrenoc.kernels.codegen.build import kernel_sources
from adrenoc.native import opencl
from adrenoc.target.target import load_target
from tests.commands import ask, run_program, succeed
from tests.faulty.driver import misbehaving
from tests.host.run_op import place
from tests.models import graph, write


def _weights(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-0.3, 0.3, shape).astype(np.float32)


def _tower() -> onnx.ModelProto:
    """Slowly falling resolution: each image has a size of its own, and shares no memory."""
    pools = (f"t{i + 1} = MaxPool <kernel_shape = [9, 9]>(t{i})" for i in range(4))
    nodes = f"t0 = Conv <pads = [1, 1, 1, 1]>(x, w) {' '.join(pools)} y = GlobalAveragePool(t4)"
    return graph(nodes, {"x": [1, 3, 96, 96]}, ["y"], {"w": _weights(20, 3, 3, 3)})


def _dense() -> onnx.ModelProto:
    """Concatenations that grow, as in a DenseNet."""
    nodes, constants, name = "", {}, "x"
    for i in range(4):
        constants[f"w{i}"] = _weights(6, 8 + 6 * i, 3, 3, seed=i)
        nodes += f"c{i} = Conv <pads = [1, 1, 1, 1]>({name}, w{i}) "
        nodes += f"k{i} = Concat <axis = 1>({name}, c{i}) "
        name = f"k{i}"
    return graph(f"{nodes} y = Relu({name})", {"x": [1, 8, 17, 13]}, ["y"], constants)


def _branches() -> onnx.ModelProto:
    """Many tensors that are made first and read last."""
    constants = {f"w{i}": _weights(12, 4, 3, 3, seed=i) for i in range(4)}
    nodes = " ".join(f"b{i} = Conv <pads = [1, 1, 1, 1]>(x, w{i})" for i in range(4))
    nodes += "".join(f" p{i} = GlobalMaxPool(b{i})" for i in range(4))
    nodes += " y = Concat <axis = 1>(p0, p1, p2, p3)"
    return graph(nodes, {"x": [1, 4, 160, 160]}, ["y"], constants)


def _on_cpu() -> onnx.ModelProto:
    """A part in double, which the CPU computes."""
    nodes = (
        "c = Conv <pads = [1, 1, 1, 1]>(x, w) wide = Cast <to = 11>(c) grown = Exp(wide) "
        "narrow = Cast <to = 1>(grown) y = Add(narrow, c)"
    )
    return graph(nodes, {"x": [1, 3, 9, 11]}, ["y"], {"w": _weights(6, 3, 3, 3)})


def _falling() -> onnx.ModelProto:
    """Padded windows, strides, a residual, a dense growth, a gate: images of many sizes."""
    nodes, constants = [], {}

    def conv(x: str, out: int, into: int, kernel: int = 3, **attrs) -> str:
        name = f"c{len(constants)}"
        constants[f"w_{name}"] = _weights(out, into, kernel, kernel, seed=len(constants))
        pads = [kernel // 2] * 4
        nodes.append(helper.make_node("Conv", [x, f"w_{name}"], [name], pads=pads, **attrs))
        return name

    def add(op: str, *inputs: str, **attrs) -> str:
        nodes.append(helper.make_node(op, list(inputs), [f"t{len(nodes)}"], **attrs))
        return str(nodes[-1].output[0])

    x = add("Relu", conv("x", 13, 3))
    x = add("Add", conv(x, 13, 13, 5), x)
    x = conv(x, 22, 13, strides=[2, 2])
    x = add("Concat", x, add("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1]), axis=1)
    gate = add("Sigmoid", conv(add("GlobalAveragePool", x), 44, 44, 1))
    x = add("Softmax", conv(add("Mul", x, gate), 30, 44, strides=[2, 2]), axis=1)
    nodes.append(helper.make_node("ReduceMean", [conv(x, 9, 30, 1)], ["y"], axes=[1]))
    return graph(nodes, {"x": [1, 3, 33, 41]}, ["y"], constants)


def _wide() -> onnx.ModelProto:
    """Layers that are wider together than an image may be, in windows beyond their borders."""
    nodes = (
        "a = Conv(x, w) b = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(a) "
        "c = Conv <group = 384, pads = [2, 1, 0, 1], strides = [2, 1]>(b, v) "
        "d = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(c) e = Softmax <axis = 1>(d) "
        "y = Conv(e, u)"
    )
    shapes = {"w": (384, 3, 1, 1), "v": (384, 1, 3, 3), "u": (5, 384, 1, 1)}
    constants = {name: _weights(*shape) for name, shape in shapes.items()}
    return graph(nodes, {"x": [1, 3, 5, 181]}, ["y"], constants)


def _compile(
    path: Path, preset: str, limit_mib: int | None = None, *, pooled: bool = False
) -> Compiled:
    target = load_target("host")
    options = resolve_options(
        target, preset=preset, command_line={"max_memory_mib": limit_mib, "pool_textures": pooled}
    ).options
    return compile_model(path, target=target, options=options, reporter=SilentReporter())


def _run(compiled: Compiled, inputs: list[np.ndarray], device) -> tuple[np.ndarray, int]:
    """The first output of one run, and the bytes that the device held at most."""
    import tvm
    from tvm import relax

    gc.collect()
    opencl.release_pool()
    before = opencl.memory_stats()["allocated_bytes"]
    arguments = [tvm.runtime.tensor(value, device) for value in inputs]
    arguments += place(((s, compiled.params[s.name]) for s in compiled.param_specs), device)
    machine = relax.VirtualMachine(compiled.library, [device, tvm.cpu()])
    opencl.build_all(compiled.library.mod, device.index)
    result = machine["main"](*arguments)
    device.sync()
    peak = opencl.memory_stats()["peak_bytes"] - before
    return result.numpy(), peak


def _reference(path: Path, x: np.ndarray) -> np.ndarray:
    (value,) = open_session(path).run(None, {"x": x})
    return np.asarray(value)


def _input(model: onnx.ModelProto) -> np.ndarray:
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    return np.random.default_rng(9).uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize("preset", ["fp32", "mixed", "buffer"])
@pytest.mark.parametrize("make", [_tower, _dense, _on_cpu])
def test_planned_is_allocated(make, preset, tmp_path, device):
    model = make()
    path = write(model, tmp_path)
    compiled = _compile(path, preset)
    x = _input(model)
    value, allocated = _run(compiled, [x], device)
    assert allocated == compiled.memory.peak_bytes
    np.testing.assert_allclose(value, _reference(path, x), atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("make", [_tower, _branches])
def test_planned_again_it_is_less_allocated_and_as_right(make, tmp_path, device):
    model = make()
    path = write(model, tmp_path)
    free = _compile(path, "fp32")
    limit = free.memory.peak_bytes // MIB
    assert limit >= 1
    fitted = _compile(path, "fp32", limit)
    assert fitted.memory.peak_bytes <= limit * MIB < free.memory.peak_bytes
    x = _input(model)
    value, allocated = _run(fitted, [x], device)
    assert allocated == fitted.memory.peak_bytes
    np.testing.assert_allclose(value, _reference(path, x), atol=1e-4, rtol=1e-4)


@pytest.mark.every_opencl
@pytest.mark.parametrize("preset", [pytest.param("fp32", marks=pytest.mark.nightly), "mixed"])
@pytest.mark.parametrize(
    "make",
    [
        *(pytest.param(m, marks=pytest.mark.nightly) for m in (_tower, _dense)),
        _falling,
        _on_cpu,
        _wide,
    ],
)
def test_textures_of_one_buffer_hold_the_same_numbers(make, preset, tmp_path, device):
    model = make()
    path = write(model, tmp_path)
    apart, pooled = _compile(path, preset), _compile(path, preset, pooled=True)
    x = _input(model)
    expected, _ = _run(apart, [x], device)
    value, allocated = _run(pooled, [x], device)
    np.testing.assert_array_equal(value, expected)
    scopes = [slot.scope for slot in pooled.memory.slots]
    assert scopes.count("global.pool") == (make in (_tower, _falling, _wide))
    texts = "".join(kernel_sources(pooled.library).values())
    assert ("IN_BANDS(" in texts) == (make is _wide)
    assert "global.pool" not in [slot.scope for slot in apart.memory.slots]
    if "cl_khr_image2d_from_buffer" in opencl.devices()[0]["extensions"]:
        assert allocated == pooled.memory.peak_bytes <= apart.memory.peak_bytes


def test_a_driver_without_images_of_buffers_takes_images_of_their_own(layer, tmp_path, device):
    path, bundle = write(_falling(), tmp_path), tmp_path / "net.adrenoc"
    words = ("--device", "host", "--set", "pool_textures=true", "--no-cache")
    succeed("compile", path, *words, "-o", bundle)
    run = [sys.executable, "-m", "adrenoc", "run", str(bundle), "--check", str(path), "--json"]
    told = {}
    for order in ("", "hides|cl_khr_image2d_from_buffer"):
        with misbehaving(layer, *filter(None, [order])):
            done = run_program(run, check=True)
        told[order] = json.loads(done.stdout)
        assert told[order]["check"]["passed"]
    pooled, apart = told.values()
    assert pooled["check"] == apart["check"]
    assert pooled["memory_bytes"] < apart["memory_bytes"]


def test_regions_of_opencl_ml_are_planned_for_where_it_is_missing(tmp_path, device):
    path, bundle = write(_tower(), tmp_path), tmp_path / "net.adrenoc"
    compile_it = ["compile", str(path), "--device", "host", "--clml", "all", "--no-cache"]
    compile_it += ["--preset", "fp32"]  # not every driver has halves
    plan = ask(*compile_it, "-o", bundle)["manifest"]["memory"]
    assert plan["region_bytes"] > 0
    assert ask("run", bundle, "--repeat", "1")["memory_bytes"] == plan["peak_bytes"]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> Compiled:
    nodes = (
        "c = Conv <pads = [1, 1, 1, 1]>(x, w) p = MaxPool <kernel_shape = [3, 3]>(c) y = Conv(p, v)"
    )
    values = np.random.default_rng(0).standard_normal((8, 8, 3, 3)).astype(np.float32)
    model = graph(nodes, {"x": [1, 8, 9, 9]}, ["y"], {"w": values, "v": values})
    target = load_target("host")
    return compile_model(
        write(model, tmp_path_factory.mktemp("net")),
        target=target,
        options=resolve_options(target, preset="buffer").options,
        reporter=SilentReporter(),
    )


def _of_less(value: np.ndarray) -> np.ndarray:
    return value.reshape(-1)[:-4]


def _in_double(value: np.ndarray) -> np.ndarray:
    return value.astype(np.float64)


def _call(compiled: Compiled, device, *, change: Callable[..., Any], at: int):
    """`main` with the argument `at`, an input or a constant, changed on its way to `device`."""
    import tvm
    from tvm import relax

    values = [np.zeros((1, 8, 9, 9), np.float32)]
    values += [compiled.params[spec.name] for spec in compiled.param_specs]
    places = [device] * len(values)
    if change is tvm.cpu:
        places[at] = tvm.cpu()
    else:
        values[at] = change(values[at])
    given = [tvm.runtime.tensor(v, p) for v, p in zip(values, places, strict=True)]
    result = relax.VirtualMachine(compiled.library, [device, tvm.cpu()])["main"](*given)
    device.sync()
    return result


@pytest.mark.parametrize("at", [0, 1, 2], ids=["input", "constant", "another"])
def test_what_does_not_fit_is_refused(compiled, device, at):
    import tvm

    _call(compiled, device, change=np.ascontiguousarray, at=at)
    for change in (_of_less, _in_double, tvm.cpu):
        with pytest.raises((ValueError, TypeError, RuntimeError, AssertionError)):
            _call(compiled, device, change=change, at=at)
