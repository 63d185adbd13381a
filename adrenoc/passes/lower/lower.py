"""Planned graph -> kernels, each node by the rule of its operator -> Relax that is run.

Before -> after:
    conv2d[conv2d add clip]    one launch of `fused_conv2d_add_clip` (texture, weights, texture)

Program and memory plan -> the Relax module that the virtual machine runs:

`main(inputs, params)` allocates each slot once, views the tensors in it, launches the kernels
in order and returns the outputs.  Scopes are stated where memory is allocated; the params come
in the scopes that the manifest names.

A region of CLML has a function of its own for where CLML cannot run it, which writes into the
tensors that it is given:

    cond = SYMBOL_usable(version, x)        # asks the runtime's module of kind "clml"
    if cond: SYMBOL(x, y)
    else:    SYMBOL_textures(x, y, params)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tvm import relax
from tvm.ir import Op, StringImm
from tvm_ffi.structural import structural_equal, structural_hash

from adrenoc.base.decision import DecisionLog
from adrenoc.base.errors import CompileError
from adrenoc.base.host.time_trace import section
from adrenoc.base.tvmapi import Call, PrimFunc, tvm
from adrenoc.ir.graph import ALLOC, CLML, CPU, Graph, Node
from adrenoc.ir.layout import GLOBAL, OperandSpec
from adrenoc.ir.options import CompileOptions
from adrenoc.ir.program import Kernel, Param, Program, ScheduleChoice, Step
from adrenoc.ir.tuning_log import Tuning
from adrenoc.kernels.codegen.build import TAKES_INPUT
from adrenoc.kernels.families.operators import OPERATORS, is_kind, is_product
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext
from adrenoc.kernels.families.shared.operator import Kind
from adrenoc.passes.analyse.cpu_nodes import lower_for_cpu
from adrenoc.passes.lower.plan_memory import PoolPlace, Storage, size_bytes
from adrenoc.target.target import Target

_LONGEST_NAME = 48


def lower(
    graph: Graph,
    options: CompileOptions,
    target: Target,
    log: DecisionLog,
    regions: Mapping[str, Graph] | None = None,
    tuning: Tuning | None = None,
    *,
    sizes_only: bool = False,
) -> Program:
    """Write the kernel of every node; equal kernels are kept once, in `regions` too.  With
    `sizes_only` params are zeros: who looks at a plan needs no numbers of weights."""
    kernels = _Kernels()

    def lower_part(part: Graph) -> Program:
        context = RuleContext(
            graph=part,
            options=options,
            limits=target.limits,
            performance=target.performance,
            cost=target.cost,
            log=log,
            sizes_only=sizes_only,
            tuning=tuning or Tuning(),
        )
        return _lower_graph(context, kernels)

    inner = {symbol: lower_part(part) for symbol, part in (regions or {}).items()}
    return replace(lower_part(graph), regions=inner)


def _lower_graph(context: RuleContext, kernels: _Kernels) -> Program:
    graph, steps = context.graph, []
    cpu_functions: dict[str, PrimFunc] = {}
    for node in graph.nodes:
        if node.is_on_cpu or node.is_device_copy:
            steps.append(_step_of_cpu(context, node, cpu_functions))
            continue
        if node.is_region or node.is_region_memory:
            steps.append(_step_of_region(context, node))
            continue
        with section(node.op, "kernel"):
            call = kernel_of(context, node)
        choice = context.schedules.of_node.get(node.name)
        kernel = kernels.add(call, choice)
        steps.append(Step(kernel=kernel, arguments=call.arguments, written=call.written))
    context.byte_costs.say(context.log, context.performance, context.options.preset)
    return Program(
        graph=graph,
        kernels=kernels.by_name,
        steps=tuple(steps),
        params=context.params,
        cpu_functions=cpu_functions,
        choices=context.schedules.of_node,
    )


def kernel_of(context: RuleContext, node: Node) -> KernelCall:
    """Return the kernel of a node that runs on the GPU, by the rule of its operator."""
    operator = OPERATORS.get(node.op)
    if operator is None:
        raise CompileError(
            f"operator {node.op} (node {node.name}) has no schedule rule",
            hint="report the model: this operator was expected to be lowered earlier",
        )
    graph = context.graph
    # What an activation keeps in float may be beyond half.
    asked = graph.precision(node.output)
    wide_input = any(
        graph.precision(n).float32 and graph.tensors[n].value is None for n in node.inputs
    )
    read = {name for body in node.bodies for name in body.sources.values()}
    constants = (n for n in node.inputs if graph.tensors[n].value is not None and n not in read)
    weights = [graph.precision(name).float32 for name in constants]
    narrow = is_product(node) and bool(weights) and not any(weights)
    if (asked.float32 and not narrow) or (asked.rounded and _has_wide_weights(graph, node)):
        context = context.change_options(storage_dtype="float32", compute_dtype="float32")
    elif wide_input or asked.is_special or asked.wide_sums:
        context = context.change_options(compute_dtype="float32")
    return operator.rule(context, node)


def _has_wide_weights(graph: Graph, node: Node) -> bool:
    """Return whether the graph says that halves would change a product's or a norm's weights."""
    weights = node.inputs[1:2] if is_product(node) else node.inputs[1:]
    return (is_product(node) or is_kind(node, Kind.NORM)) and any(
        graph.tensors[name].value is not None and graph.precision(name).float32 for name in weights
    )


def _step_of_cpu(context: RuleContext, node: Node, functions: dict[str, PrimFunc]) -> Step:
    """Return a function of the CPU, or a copy to it or from it."""
    if not node.is_on_cpu:
        source, _ = context.operand(node.inputs[0])
        return Step(kernel="", place=node.op, arguments=(source, node.output))
    operators = "_".join(re.sub(r"\W", "_", op) for op in node.operators)
    name = f"cpu_{len(functions)}_{operators}"
    functions[name] = node.attrs["func"].with_attr("global_symbol", name)
    return Step(kernel=name, place=CPU, arguments=node.attrs["arguments"])


def _step_of_region(context: RuleContext, node: Node) -> Step:
    """Return a region of CLML, or the memory for its further results."""
    if node.is_region_memory:
        return Step(kernel="", place=ALLOC, arguments=(node.output,))
    results = tuple(node.attrs["results"])
    reads = tuple(context.operand(name)[0] for name in node.attrs["arguments"])
    # The node's own output comes last, as in every step: that is what gets its memory here.
    return Step(
        kernel=node.attrs["symbol"],
        place=CLML,
        arguments=(*reads, *results[1:], results[0]),
        written=len(results),
    )


class _Kernels:
    """Distinct kernels, found again by structure."""

    def __init__(self) -> None:
        self.by_name: dict[str, Kernel] = {}
        self._by_hash: dict[Any, list[Kernel]] = {}
        self._written: dict[Any, list[tuple[PrimFunc, str]]] = {}
        """Kernels as their rules wrote them, with their names: most of a network's are alike, and
        need not be refined again."""
        self._serial: dict[str, int] = {}

    def add(self, call: KernelCall, choice: ScheduleChoice | None) -> str:
        """Return the name of the kernel that does what this call needs."""
        written = call.builder.written("kernel")
        known = self._written.setdefault((structural_hash(written), call.builder.is_coarse), [])
        for other, name in known:
            if structural_equal(other, written):
                return name
        name = self._add_written(call, choice, written)
        known.append((written, name))
        return name

    def _add_written(
        self, call: KernelCall, choice: ScheduleChoice | None, written: PrimFunc
    ) -> str:
        func = call.builder.refine(written)
        alike = self._by_hash.setdefault(structural_hash(func), [])
        for kernel in alike:
            if structural_equal(kernel.func.with_attr("global_symbol", "kernel"), func):
                return kernel.name
        name = self._name(call.node)
        if call.builder.launch is None:
            raise ValueError(f"{name} launches no threads")
        kernel = Kernel(
            name=name,
            family=call.builder.family,
            func=func.with_attr("global_symbol", name),
            launch=call.builder.launch,
            scopes=call.builder.scopes,
            shared_bytes=call.builder.shared_bytes,
            choice=choice,
        )
        alike.append(kernel)
        self.by_name[name] = kernel
        return name

    def _name(self, node: Node) -> str:
        base = "_".join(re.sub(r"\W", "_", op) for op in node.operators)[:_LONGEST_NAME]
        number = self._serial.get(base, 0)
        self._serial[base] = number + 1
        return f"{base}_{number}"


_COPY = "runtime.TVMTensorCopyFromTo"
"""TVM's runtime copies between devices with it; it returns when the copy is done."""
_STEP = "adrenoc.opencl.step"
"""Calls its first argument, a function, with the others, and notes that a run that is replayed has
to do so between its launches."""
IMAGE_IN_POOL = "adrenoc.opencl.image_in_pool"
"""Makes a tensor, of a shape and dtype, in an image at an offset in a storage, with a pitch and its
layers in so many bands."""

_GPU_DEVICE, _CPU_DEVICE = 0, 1
"""Indices into the devices that whoever runs the bundle gives the VM."""


@dataclass(frozen=True, kw_only=True)
class RegionCode:
    """What a region needs beside its program: storage for its kernels, its CLML version."""

    storage: Storage
    version: int


def emit_relax(
    program: Program,
    storage: Storage,
    llvm_triple: str,
    regions: Mapping[str, RegionCode] | None = None,
) -> Any:
    """Return the module with `main`, one TIR function a kernel and those that run on the CPU."""
    builder = relax.BlockBuilder()
    taking = {
        step.kernel
        for part in (program, *program.regions.values())
        for step in part.steps
        if any(part.graph.owner(name) in part.graph.input_names for name in step.arguments)
    }
    functions = {
        name: builder.add_func(k.func.with_attr(TAKES_INPUT, name in taking), name)
        for name, k in program.kernels.items()
    }
    if program.cpu_functions:
        cpu = tvm.target.Target({"kind": "llvm", "mtriple": llvm_triple})
        for name, func in program.cpu_functions.items():
            functions[name] = builder.add_func(lower_for_cpu(func, cpu), name)
    codes = regions or {}
    for symbol, part in program.regions.items():
        name = f"{symbol}_textures"
        emitter = _Emitter(
            program=part, storage=codes[symbol].storage, builder=builder, functions=functions
        )
        functions[name] = emitter.region(name)
    _Emitter(
        program=program, storage=storage, builder=builder, functions=functions, regions=codes
    ).main()
    return builder.finalize()


def all_params(program: Program) -> list[Param]:
    """Return the params as `main` takes them: its own, then those of each region."""
    parts = (program, *program.regions.values())
    return [param for part in parts for param in part.params.values()]


@dataclass(kw_only=True)
class _Emitter:
    """Writes one function of the module."""

    program: Program
    storage: Storage
    builder: Any
    functions: dict[str, Any]
    regions: Mapping[str, RegionCode] = field(default_factory=dict)
    known: dict[str, Any] = field(default_factory=dict)
    """Tensor or param -> its variable."""
    region_params: dict[str, list[Any]] = field(default_factory=dict)
    slots: list[Any] = field(default_factory=list)

    def main(self) -> None:
        """The function that a bundle runs."""
        params = self._inputs()
        number = 0
        for symbol, part in (("", self.program), *self.program.regions.items()):
            for param in part.params.values():
                var = _param(f"p{number}", param)
                number += 1
                params.append(var)
                if symbol:
                    self.region_params.setdefault(symbol, []).append(var)
                else:
                    self.known[param.name] = var
        with self.builder.function("main", params):
            self._steps()
            graph = self.program.graph
            results = [self.known[name] for name in map(graph.owner, graph.results)]
            whole = results[0] if len(results) == 1 else relax.Tuple(results)
            self.builder.emit_func_output(whole)

    def region(self, name: str) -> Any:
        """Return a function that takes inputs, results to write, and params."""
        graph, params = self.program.graph, self._inputs()
        for output in graph.outputs:
            spec = graph.operand(output)
            ty = relax.TensorType(spec.physical, spec.dtype)
            self.known[output] = relax.Var(f"{output}_result", ty)
            params.append(self.known[output])
        for number, param in enumerate(self.program.params.values()):
            self.known[param.name] = _param(f"p{number}", param)
            params.append(self.known[param.name])
        # It writes what it is given.
        with self.builder.function(name, params, pure=False):
            self._steps()
            # The VM cannot call a function that returns nothing.
            self.builder.emit_func_output(self.known[graph.outputs[0]])
        return self.builder.get().get_global_var(name)

    def _inputs(self) -> list[Any]:
        graph = self.program.graph
        for name in graph.inputs:
            tensor = graph.tensors[name]
            # A state is stored as what lies between kernels, whatever the model says of it.
            dtype = graph.operand(name).dtype if name in graph.state_names else tensor.dtype
            self.known[name] = relax.Var(name, relax.TensorType(tensor.shape, dtype))
        return [self.known[name] for name in graph.inputs]

    def _steps(self) -> None:
        self.slots = [
            self.builder.emit(_storage(slot.shape, slot.dtype, slot.scope), f"slot{i}")
            for i, slot in enumerate(self.storage.plan.slots)
        ]
        for step in self.program.steps:
            for output in map(self.program.graph.owner, step.writes):
                if output not in self.known:
                    self.known[output] = self._tensor(output)
            if step.place == CLML:
                symbol = step.kernel
                *others, first = step.writes
                reads = self._arguments(step.reads)
                arguments = [*reads, *self._arguments((first, *others))]
                version = relax.prim_value(self.regions[symbol].version)
                usable = relax.ExternFunc(f"{symbol}_usable")
                answer = Call(
                    usable, [version, arguments[0]], ty_args=[relax.TensorType((), "bool")]
                )
                condition = self.builder.emit(answer, "usable")
                params = self.region_params.get(symbol, [])
                by_clml = _call_of_nothing(
                    relax.ExternFunc(_STEP), [relax.ExternFunc(symbol), *arguments]
                )
                by_textures = Call(self.functions[f"{symbol}_textures"], [*arguments, *params])
                result = self.known[first]
                choice = relax.If(
                    condition,
                    _branch(by_clml, relax.TupleType([]), result),
                    _branch(by_textures, result.ty, None),
                )
                self.builder.emit(choice, "_")
            elif step.place != ALLOC:
                self._call(step)

    def _tensor(self, name: str) -> Any:
        """Memory for what a step makes."""
        spec = self.program.graph.operand(name)
        index = self.storage.slot_of.get(name)
        if index is None:  # an output of the graph outlives the run
            own = _storage((size_bytes(spec),), "uint8", GLOBAL)
            memory = self.builder.emit(own, f"{name}_storage")
        else:
            memory = self.slots[index]
        place = self.storage.places.get(name)
        view = _view(memory, spec) if place is None else _image_in_pool(memory, spec, place)
        return self.builder.emit(view, name)

    def _call(self, step: Step) -> None:
        callee = self.functions[step.kernel] if step.kernel else relax.ExternFunc(_COPY)
        arguments = self._arguments(step.arguments)
        if step.place != "gpu":
            callee, arguments = relax.ExternFunc(_STEP), [callee, *arguments]
        self.builder.emit(_call_of_nothing(callee, arguments), "_")

    def _arguments(self, names: tuple[str, ...]) -> list[Any]:
        graph = self.program.graph
        return [self.known[graph.owner(name)] for name in names]


def _param(name: str, param: Param) -> Any:
    return relax.Var(name, relax.TensorType(param.value.shape, str(param.value.dtype)))


def _call_of_nothing(callee: Any, arguments: list[Any]) -> Any:
    """Return a call that writes some of its arguments and returns nothing."""
    return Call(callee, arguments, ty_args=[relax.TupleType([])])


def _branch(call: Any, ty: Any, result: Any | None) -> Any:
    """Return one side of a choice: a call, whose result it gives unless there is another."""
    var = relax.Var("done", ty)
    block = relax.BindingBlock([relax.VarBinding(var, call)])
    return relax.SeqExpr([block], var if result is None else result)


def _storage(shape: tuple[int, ...], dtype: str, scope: str) -> Any:
    device = _CPU_DEVICE if scope == CPU else _GPU_DEVICE
    memory = GLOBAL if scope == CPU else scope
    return Call(
        Op.get("relax.vm.alloc_storage"),
        [relax.ShapeExpr(shape), relax.prim_value(device), _dtype(dtype), StringImm(memory)],
    )


def _image_in_pool(storage: Any, spec: OperandSpec, place: PoolPlace) -> Any:
    """Return a tensor at its place in the pool: the machine's own operator names no offset."""
    numbers = map(relax.prim_value, (place.offset, place.pitch_texels, place.grid.bands))
    arguments = [storage, relax.ShapeExpr(spec.physical), _dtype(spec.dtype), *numbers]
    ty = relax.TensorType(spec.physical, spec.dtype)
    return Call(relax.ExternFunc(IMAGE_IN_POOL), arguments, ty_args=[ty])


def _view(storage: Any, spec: OperandSpec) -> Any:
    """Return a tensor in a slot."""
    arguments = [
        storage,
        relax.prim_value(0),
        relax.ShapeExpr(spec.physical),
        _dtype(spec.dtype),
        StringImm(spec.scope),
    ]
    return Call(Op.get("relax.vm.alloc_tensor"), arguments)


def _dtype(dtype: str) -> Any:
    """Return a dtype as an argument of a VM operator."""
    return tvm.ir.GenericConst(tvm.DataType(dtype), relax.AnyType())
