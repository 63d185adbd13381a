"""Compile small ONNX models, run them on the OpenCL device and compare with onnxruntime.

```
ops = Ops()
x = ops.input(1, 7, 9, 10)
ops.output(ops("Relu", x))
ops.check(device, "fp32")
```
"""

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from adrenoc.base.decision import DecisionLog
from adrenoc.base.errors import DeviceError
from adrenoc.base.reporter import SilentReporter
from adrenoc.bundle.manifest import ParamSpec
from adrenoc.compile.pipeline import STAGES, State, run_stages
from adrenoc.importers.imported import Imported
from adrenoc.importers.onnx.session import open_session
from adrenoc.ir.options import resolve_options
from adrenoc.native import opencl
from adrenoc.target.target import Target, load_target
from tests.host.random_graphs.exact import in_doubles
from tests.models import parse_nodes
from tests.opencl.implementation import asks_for_halves
from tests.stock_tvm import run_on_cpu

TOLERANCE = {"fp32": 1e-5, "mixed": 4e-3, "buffer": 4e-3, "fp16": 1e-2}
"""Greatest error allowed by preset, as a share of the output's range or size."""

_OF_ROUNDING = {"fp32": 16 * 2.0**-13, "mixed": 4.0, "buffer": 4.0, "fp16": 16.0}
"""How often the error of rounding all tensors to halves is allowed; floats have 13 bits more."""

_LOST, _GROSS = 0.1, 0.05
"""Where rounding to halves loses that much, how much more is lost than in floats is not known:
errors below the second are let pass."""

_DRAWS = 3
"""Of the error of rounding."""

OPSET = 18


CHECKED = {"check_ir": True, "keep_float32": False}
"""Options of tests of kernels: all that may lie in half does, as between layers of a network."""


def relative_error(value: np.ndarray, reference: np.ndarray) -> float:
    """The greatest error as a share of the reference's range, or size where that is larger.

    The size counts because rounding of the data is relative to it.
    """
    value, reference = value.astype(np.float64), reference.astype(np.float64)
    size = max(float(np.ptp(reference)), float(np.abs(reference).max())) or 1.0
    return float(np.abs(value - reference).max()) / size


def place(params: Iterable[tuple[ParamSpec, np.ndarray]], device) -> list:
    """Constants on the device, each in its kind of memory."""
    import tvm

    placed = []
    for spec, value in params:
        scope = None if spec.scope == "global" else spec.scope
        placed.append(tvm.runtime.empty(value.shape, str(value.dtype), device, mem_scope=scope))
        placed[-1].copyfrom(value)
    return placed


def execute(state: State, inputs: list[np.ndarray], device) -> list[np.ndarray]:
    """Run what the pipeline built, once."""
    import tvm
    from tvm import relax

    arguments = [tvm.runtime.tensor(value, device=device) for value in inputs]
    arguments += place(((p.spec, p.value) for p in state.program.params.values()), device)
    machine = relax.VirtualMachine(state.executable, [device])
    # As a bundle's run does: kernels side by side in a program take half the time of each alone.
    try:
        opencl.build_all(state.executable.mod, device.index)
    except DeviceError as error:
        if state.options.preset != "fp32" and asks_for_halves(error):
            pytest.skip("the driver has no cl_khr_fp16")
        raise
    result = machine["main"](*arguments)
    one = hasattr(result, "numpy")
    return [r.numpy() for r in ([result] if one else result)]


def _launching():
    """How TVM makes the code that launches kernels: it does not look at each argument again.

    The stage `verify` holds each launch against what its kernel declares; to compile the same for
    the run takes a fifth of a test, and networks that are run as bundles have it.
    """
    import tvm

    return tvm.transform.PassContext(config={"tirx.disable_assert": True})


def check_relax(device, make: Callable[..., Any], *inputs: np.ndarray, preset: str) -> State:
    """Compile the Relax expression that `make` gives for these inputs; compare with TVM on a CPU.

    Returns the finished state, for its kernels and decisions.
    """
    from tvm import relax

    builder = relax.BlockBuilder()
    params = [
        relax.Var(f"x{i}", relax.TensorType(v.shape, str(v.dtype))) for i, v in enumerate(inputs)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(make(*params)))
        builder.emit_func_output(result)
    module = builder.get()
    (expected,) = run_on_cpu(module, inputs)
    target = load_target("host")
    options = resolve_options(target, preset=preset, command_line=CHECKED).options
    imported = Imported(
        module=module, format="relax", inputs=(), outputs=(), decisions=(), model_sha256=""
    )
    state = State(
        model=Path("relax"), target=target, options=options, imported=imported, module=module
    )
    with _launching():
        for stage in STAGES[1:]:
            if stage.when(options):
                state = stage.run(state)
                stage.check(state)
    (value,) = execute(state, list(inputs), device)
    assert value.shape == expected.shape
    assert relative_error(value, expected) <= TOLERANCE[preset]
    return state


def rounded(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with each float tensor, inputs and constants too, rounded to float16."""
    floats = {
        value.name
        for value in (*model.graph.input, *model.graph.output, *model.graph.value_info)
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    } | {c.name for c in model.graph.initializer if c.data_type == onnx.TensorProto.FLOAT}
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.node[:]
    given = [value.name for value in (*model.graph.input, *model.graph.initializer)]

    def rounding(source: str, result: str) -> list[onnx.NodeProto]:
        half = f"{result}__half"
        return [
            helper.make_node("Cast", [source], [half], to=onnx.TensorProto.FLOAT16),
            helper.make_node("Cast", [half], [result], to=onnx.TensorProto.FLOAT),
        ]

    for name in given:
        if name in floats:
            made.graph.node.extend(rounding(name, f"{name}__rounded"))
    for node in model.graph.node:
        copy = made.graph.node.add()
        copy.CopyFrom(node)
        names = [f"{n}__rounded" if n in floats and n in given else n for n in node.input]
        copy.input[:] = names
        for i, name in enumerate(node.output):
            if name in floats:
                copy.output[i] = f"{name}__exact"
                made.graph.node.extend(rounding(f"{name}__exact", name))
    return made


class Ops:
    """A model under construction, of operators that are tested together."""

    def __init__(self, seed: int = 0, opset: int = OPSET) -> None:
        self._random = np.random.default_rng(seed)
        self.opset = opset
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._inputs: dict[str, np.ndarray] = {}
        self._outputs: list[str] = []
        self._expected: dict[str, np.ndarray] | None = None
        self.decisions = DecisionLog()
        self.module: Any = None
        """What the last run was built as."""
        self.kernels: list[str] = []
        """The families of the launches of the last run, in order."""
        self.asked: dict[str, Any] = {}
        """Options beside those of the preset."""

    def input(self, *shape: int, low: float = -1.0, high: float = 1.0) -> str:
        """A graph input with uniform random data."""
        name = f"x{len(self._inputs)}"
        self._inputs[name] = self._random.uniform(low, high, shape).astype(np.float32)
        return name

    def whole_input(self, *shape: int, count: int, dtype=np.int64) -> str:
        """A graph input of random whole numbers from zero to less than `count`."""
        name = f"x{len(self._inputs)}"
        self._inputs[name] = self._random.integers(0, count, shape).astype(dtype)
        return name

    def given(self, name: str, values: np.ndarray) -> None:
        """Feed an input these values in place of random ones."""
        self._inputs[name] = values

    def const(self, value, dtype=np.float32) -> str:
        name = f"k{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def ints(self, *values: int) -> str:
        """A constant vector of int64: axes, shapes, pads."""
        return self.const(values, np.int64)

    def weight(self, *shape: int, around: float = 0.0) -> str:
        """A constant with uniform random data of span 1."""
        return self.const(self.values(*shape) + around)

    def values(self, *shape: int) -> np.ndarray:
        """Uniform random data of span 1 around zero."""
        return self._random.uniform(-0.5, 0.5, shape)

    def mask(self, *shape: int) -> str:
        """A constant with random values of bool."""
        return self.const(self._random.uniform(size=shape) < 0.5, bool)

    def __call__(self, op: str, *inputs: str, **attrs) -> str:
        """Add an operator; returns its (first) output."""
        name = f"t{len(self._nodes)}"
        self._nodes.append(helper.make_node(op, list(inputs), [name], **attrs))
        return name

    def text(self, nodes: str, **operands: Any) -> str:
        """Add nodes in ONNX's own text; operands are tensors or constants; returns the last output.

        Constants are floats, but for whole numbers, bytes and truth values.
        """
        names = {name: value for name, value in operands.items() if isinstance(value, str)}
        for node in parse_nodes(nodes):
            for name in [n for n in node.input if n and n not in names]:
                value = np.asarray(operands[name])
                wide = np.int64 if value.dtype.kind == "i" else np.float32
                names[name] = self.const(value, value.dtype if value.itemsize == 1 else wide)
            node.input[:] = [names.get(name, "") for name in node.input]
            for at, name in enumerate(node.output):
                names[name] = node.output[at] = f"t{len(self._nodes)}" + f"_{at}" * bool(at)
            self._nodes.append(node)
        return names[name]

    def several(self, op: str, inputs: list[str], outputs: list[str], **attrs) -> list[str]:
        """Add an operator of several outputs, of these names; an empty one is left out."""
        names = [name and f"t{len(self._nodes)}_{name}" for name in outputs]
        self._nodes.append(helper.make_node(op, inputs, names, **attrs))
        return names

    def split(self, x: str, axis: int, *sizes: int) -> list[str]:
        """Add a Split, which has several outputs."""
        names = [f"t{len(self._nodes)}_{i}" for i in range(len(sizes))]
        self._nodes.append(helper.make_node("Split", [x, self.ints(*sizes)], names, axis=axis))
        return names

    def output(self, *names: str) -> None:
        self._outputs += names

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(self._inputs)

    def check(
        self,
        device,
        preset: str,
        tolerance: float | None = None,
        *,
        target: str | Target = "host",
        rounding: bool = False,
    ) -> None:
        """Compile, run, and compare every output.

        With `rounding`, an output may be off by what rounding of the tensors before it explains,
        where that is more than the tolerance: norms and differences can make much of little; and
        where onnxruntime is off by more than the tolerance itself, doubles are the reference.
        """
        base = tolerance or TOLERANCE[preset]
        explained = self.rounding_errors() if rounding else {}
        expected = self.reference()
        seen = self.run(device, preset, target=target)
        wrong = []
        for name, value in seen.items():
            reference = expected[name]
            assert value.shape == reference.shape, (self._path_to(name), value.shape)
            error = relative_error(value, reference)
            lost = explained.get(name, 0.0)
            if not np.isfinite(lost) and preset != "fp32":
                continue  # beyond what halves hold
            allowed = max(base, lost * _OF_ROUNDING[preset], _GROSS if lost > _LOST else 0.0)
            if not error <= allowed and rounding:
                error = min(error, self._error_in_doubles(name, value))
            if not error <= allowed:
                path = f"{self._path_to(name)} {reference.shape}"
                wrong.append(f"{path}: error {error:.2e}, allowed {allowed:.2e}")
        assert not wrong, f"{preset}: " + "; ".join(wrong)

    @property
    def fallbacks(self) -> list[str]:
        """What the last run computed without the kernel of its family, and why."""
        kinds = ("as a plain loop nest", "in parts")
        return [f"{d.taken}: {d.reason}" for d in self.decisions if d.taken.endswith(kinds)]

    def save(self, path: Path) -> None:
        onnx.save(self._model(), path)

    # Steps

    def _error_in_doubles(self, name: str, value: np.ndarray) -> float:
        exact = in_doubles(self._model(), self._inputs)
        if exact is None or exact[name].shape != value.shape:
            return np.inf
        return relative_error(value, exact[name])

    def rounding_errors(self) -> dict[str, float]:
        """The error of each output where onnxruntime rounds every tensor to halves; may be NaN.

        The greatest of some draws: of a single number it may be small by chance.
        """
        expected = self.reference()
        session = open_session(rounded(self._model()), plain=True)
        errors = dict.fromkeys(self._outputs, 0.0)
        random = np.random.default_rng(0)
        for size in (0.0, *[2.0**-11] * (_DRAWS - 1)):
            shaken = {
                n: v * (1 + size * random.uniform(-0.5, 0.5, v.shape)).astype(np.float32)
                if v.dtype == np.float32
                else v
                for n, v in self._inputs.items()
            }
            with np.errstate(all="ignore"):
                for name, value in zip(
                    self._outputs, session.run(self._outputs, shaken), strict=True
                ):
                    errors[name] = np.maximum(errors[name], relative_error(value, expected[name]))
        return errors

    def _model(self) -> onnx.ModelProto:
        inputs = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for n, v in self._inputs.items()
        ]
        outputs = [helper.make_empty_tensor_value_info(n) for n in self._outputs]
        graph = helper.make_graph(self._nodes, "ops", inputs, outputs, self._constants)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets)
        model.ir_version = 9 if self.opset < 21 else 10
        return onnx.shape_inference.infer_shapes(model)

    def reference(self) -> dict[str, np.ndarray]:
        if self._expected is None:
            values = open_session(self._model()).run(self._outputs, self._inputs)
            self._expected = dict(zip(self._outputs, values, strict=True))
        return self._expected

    def run(self, device, preset: str, *, target: str | Target = "host") -> dict[str, np.ndarray]:
        loaded = load_target(target) if isinstance(target, str) else target
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "ops.onnx"
            self.save(path)
            said = {**CHECKED, **self.asked}
            options = resolve_options(loaded, preset=preset, command_line=said).options
            state = State(model=path, target=loaded, options=options)
            with _launching():
                state, _ = run_stages(state, reporter=SilentReporter())
        self.decisions, self.module = state.log, state.executable.mod
        program = state.program
        gpu_steps = [step for step in program.steps if step.place == "gpu"]
        self.kernels = [program.kernels[step.kernel].family for step in gpu_steps]
        inputs = [self._inputs[spec.name] for spec in state.imported.inputs]
        return dict(zip(self._outputs, execute(state, inputs, device), strict=True))

    def _path_to(self, name: str) -> str:
        """The operators that lead to a tensor, for messages."""
        made = {output: node for node in self._nodes for output in node.output}
        path: list[str] = []
        while name in made:
            node = made[name]
            attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            path.insert(0, f"{node.op_type}{attrs or ''}")
            name = node.input[0]
        return " > ".join(path) or name
