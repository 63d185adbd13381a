"""Planned graph -> kernels: each node by the rule of its operator.

Before -> after:
    conv2d[conv2d add clip]    one launch of `fused_conv2d_add_clip` (texture, weights, texture)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tvm_ffi.structural import structural_equal, structural_hash

from adrenoc.base.decision import DecisionLog
from adrenoc.base.errors import CompileError
from adrenoc.base.host.time_trace import section
from adrenoc.base.tvmapi import PrimFunc
from adrenoc.ir.graph import ALLOC, CLML, CPU, Graph, Node
from adrenoc.ir.options import CompileOptions
from adrenoc.ir.program import Kernel, Program, ScheduleChoice, Step
from adrenoc.ir.tuning_log import Tuning
from adrenoc.kernels.families.operators import OPERATORS, is_kind, is_product
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext
from adrenoc.kernels.families.shared.operator import Kind
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
    """Write the kernel of every node; equal kernels are kept once, in `regions` too.

    With `sizes_only` params are zeros: who looks at a plan needs no numbers of weights.

    Raises:
        CompileError: no rule for an operator.
    """
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
    """Return the kernel of a node that runs on the GPU, by the rule of its operator.

    Raises:
        CompileError: no rule for the operator.
    """
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
    narrow = _has_narrow_weights(graph, node)
    if (asked.float32 and not narrow) or (asked.rounded and _has_wide_weights(graph, node)):
        context = context.copy_in_float32()
    elif wide_input or asked.computes_in_float32:
        context = context.computing_in_float32()
    return operator.rule(context, node)


def _has_narrow_weights(graph: Graph, node: Node) -> bool:
    """Return whether a product's weights, which no expression reads, all lie as the options say."""
    read = {name for body in node.bodies for name in body.sources.values()}
    constants = (n for n in node.inputs if graph.tensors[n].value is not None and n not in read)
    weights = [graph.precision(name).float32 for name in constants]
    return is_product(node) and bool(weights) and not any(weights)


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
