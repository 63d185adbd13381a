"""Relax functions of a few operators, the regions that they become, and what they compute."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.backend.adreno.clml import OpenCLMLOffLoad

from adrenoc.base.decision import DecisionLog
from adrenoc.clml.match import Matches, find_matches
from adrenoc.clml.partition import Partition, partition
from adrenoc.clml.region import ClmlRegion, Found, document, load_table, runtime_module
from adrenoc.compile.pipeline import STAGES, State
from adrenoc.importers.imported import Imported
from adrenoc.importers.relax.values import flatten
from adrenoc.ir.options import resolve_options
from adrenoc.native import opencl
from adrenoc.passes.lower.lower import all_params
from adrenoc.target.gpu import Performance
from adrenoc.target.target import load_target
from tests.clml import composites
from tests.host.run_op import place
from tests.stock_tvm import run_on_cpu

Shape = tuple[int, ...]
Make = Callable[..., Any]
Emulate = Callable[..., None]
"""The fixture `emulate`: its keywords are the emulator's settings."""


def module_of(make: Make, *shapes: Shape, dtype: str = "float32") -> tvm.IRModule:
    """`main` that computes what `make` says of inputs x0, x1, ... of these shapes."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType(s, dtype)) for i, s in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            results = make(builder.emit, *params)
            if isinstance(results, tuple):
                value = builder.emit_output(relax.Tuple([builder.emit(r) for r in results]))
            else:
                value = builder.emit_output(builder.emit(results))
        builder.emit_func_output(value)
    return builder.get()


def constant(value: np.ndarray):
    """A constant of Relax with the dtype of `value`."""
    return relax.const(tvm.runtime.tensor(value))


def random(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    """Uniform numbers from -1 to 1."""
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(dtype)


def matches_of(module: tvm.IRModule, *, version: int = 5) -> Matches:
    """What the pattern table finds in `main`."""
    return find_matches(flatten(module["main"]), load_table(), version=version)


def only_match(module: tvm.IRModule) -> Found:
    """The one pattern that covers all of `main`."""
    matches = matches_of(module)
    assert not matches.refusals, matches.refusals
    (found,) = matches.found
    return found


def cut(module: tvm.IRModule, *, dtype: str = "float32", version: int = 5) -> Partition:
    """Everything that CLML computes."""
    return partition(
        module, keep_all=True, version=version, dtype=dtype, performance=Performance(launch_us=12.0)
    )


def only_document(module: tvm.IRModule, *, dtype: str = "float32") -> dict[str, Any]:
    """The JSON graph of the one region that `main` becomes."""
    (region,) = cut(module, dtype=dtype).regions
    return document(region)


def offloaded_by_tvm(module: tvm.IRModule) -> list[dict[str, Any]]:
    """The nodes of the one region that TVM's own partition makes, names left out."""
    composites.register()
    made = OpenCLMLOffLoad()(module)
    (runtime,) = made.attrs["external_mods"]
    graph = json.loads(runtime.inspect_source())
    names = [str(n) for n in runtime["get_const_vars"]()]
    assert names == [n["name"] for n in graph["nodes"] if n["op"] == "const"]
    assert set(names) == {str(n) for n in made.attrs.get("const_name_to_constant", {})}
    return without_names(graph)


def without_names(graph: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The nodes, with those names left out that are made up: inputs and constants."""
    return [
        {**node, "name": node["name"] if node["op"] == "kernel" else ""} for node in graph["nodes"]
    ]


@dataclass(frozen=True, kw_only=True)
class Built:
    """A module compiled with `--clml all`."""

    state: State
    device: Any
    machine: Any
    arguments: list[Any]

    def run(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        given = [tvm.runtime.tensor(value, device=self.device) for value in inputs]
        result = self.machine["main"](*given, *self.arguments)
        fields = [result] if hasattr(result, "numpy") else list(result)
        return [field.numpy() for field in fields]


def build(
    module: tvm.IRModule, device, *, preset: str = "fp32", clml: str = "all", version: int = 5
) -> Built:
    """Compile a module as the product does, with all stages after the import."""
    target = load_target("host")
    changes = {"check_ir": True, "clml": clml, "clml_version": version}
    options = resolve_options(target, preset=preset, command_line=changes).options
    imported = Imported(
        module=module, format="relax", inputs=(), outputs=(), decisions=(), model_sha256=""
    )
    state = State(
        model=Path("relax"),
        target=target,
        options=options,
        imported=imported,
        module=module,
        log=DecisionLog(),
    )
    for stage in STAGES[2:]:  # the graph is as simple as it shall be
        if stage.when(options):
            state = stage.run(state)
            stage.check(state)
    arguments = place(((p.spec, p.value) for p in all_params(state.program)), device)
    machine = relax.VirtualMachine(state.executable, [device, tvm.cpu()])
    opencl.build_all(state.executable.mod, device.index)  # together: half the time of one by one
    return Built(state=state, device=device, machine=machine, arguments=arguments)


def by_emulator(
    module: tvm.IRModule, device, inputs: list[np.ndarray], *, dtype: str
) -> list[np.ndarray]:
    """What the one region that `main` becomes computes, without the rest of a compilation."""
    (region,) = cut(module, dtype=dtype).regions
    runtime = runtime_module(region)
    runtime[f"__init_{region.symbol}"]([tvm.runtime.tensor(v) for _, v in region.constants()])
    given = [tvm.runtime.tensor(value.astype(dtype), device) for value in inputs]
    shapes = {o.output: o.shape for o in region.operators}
    made = [tvm.runtime.empty(shapes[name], dtype, device) for name in region.outputs]
    assert runtime[f"{region.symbol}_usable"](region.version, given[0])
    runtime[region.symbol](*given, *made)
    return [tensor.numpy().astype("float32") for tensor in made]


nn = relax.op.nn
SHAPE = (1, 8, 8, 6)


def _conv(emit, x, *, norm: bool = False, relu: bool = False):
    value = emit(nn.conv2d(x, constant(random(8, 8, 3, 3)), padding=(1, 1, 1, 1)))
    return _tail(emit, value, norm=norm, relu=relu)


def _tail(emit, value, *, norm: bool, relu: bool):
    if norm:
        vectors = [random(8, seed=s) for s in (1, 2, 3)] + [np.abs(random(8, seed=4)) + 0.5]
        normed = nn.batch_norm(value, *map(constant, vectors), axis=1, training=False)
        value = emit(relax.TupleGetItem(emit(normed), 0))
    return emit(nn.relu(value)) if relu else value


def make(emit, x):
    """[1, 8, 8, 6] -> [1, 2, 4]."""
    value = _conv(emit, x)
    value = _conv(emit, value, relu=True)
    value = _conv(emit, value, norm=True)
    value = _conv(emit, value, norm=True, relu=True)
    value = emit(nn.max_pool2d(value, (2, 2), (2, 2)))
    value = _tail(emit, value, norm=True, relu=False)
    value = emit(nn.relu(emit(relax.op.clip(value, -1, 1))))
    value = emit(nn.pad(value, [0, 0, 0, 0, 1, 1, 1, 1]))  # 8 x 6 x 5
    how = {"layout": "NCHW", "method": "linear", "coordinate_transformation_mode": "align_corners"}
    value = emit(relax.op.image.resize2d(value, (12, 10), **how))
    value = emit(relax.op.reshape(value, (1, 2, 2, 2, 12, 10)))
    value = emit(relax.op.permute_dims(value, [0, 3, 4, 1, 5, 2]))
    value = emit(relax.op.reshape(value, (1, 2, 24, 20)))
    value = emit(relax.op.concat([value, emit(nn.relu(value))], 1))  # 4 x 24 x 20
    value = emit(relax.op.add(value, emit(nn.softmax(value, 1))))
    value = emit(relax.op.reshape(value, (1, 1920)))
    value = emit(relax.op.matmul(value, constant(random(1920, 6, seed=5))))
    value = emit(relax.op.add(value, constant(random(6, seed=6))))
    value = emit(relax.op.reshape(value, (1, 2, 3)))
    return relax.op.matmul(value, constant(random(3, 4, seed=7)))


def plain(emit, x):
    """A convolution alone: interface 1, nothing to copy inside, so that it can be recorded."""
    return _conv(emit, x, relu=True)


INPUT = random(*SHAPE, seed=9)


@cache
def expected(function) -> np.ndarray:
    """What TVM computes of `INPUT` on the CPU."""
    return run_on_cpu(module_of(function, SHAPE), [INPUT])[0]


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """The one region that a function becomes, loaded."""

    region: ClmlRegion
    runtime: Any
    function: Any
    device: Any

    def usable(self) -> bool:
        given = tvm.runtime.tensor(INPUT, self.device)
        return bool(self.runtime[f"{self.region.symbol}_usable"](self.region.version, given))

    def facts(self) -> dict[str, Any]:
        """What the device made of it."""
        return {str(k): v for k, v in self.runtime["adrenoc.clml.prepare"](0).items()}

    def run(self) -> None:
        """Run it, and compare."""
        out = tvm.runtime.empty(expected(self.function).shape, "float32", self.device)
        self.runtime[self.region.symbol](tvm.runtime.tensor(INPUT, self.device), out)
        assert np.allclose(out.numpy(), expected(self.function), atol=1e-3)


def load(function, device) -> Loaded:
    """Make and load the region of a function of `every_operator.py`."""
    (region,) = cut(module_of(function, SHAPE)).regions
    runtime = runtime_module(region)
    constants = [tvm.runtime.tensor(value) for _, value in region.constants()]
    runtime[f"__init_{region.symbol}"](constants)
    return Loaded(region=region, runtime=runtime, function=function, device=device)
