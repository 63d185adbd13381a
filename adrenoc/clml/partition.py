"""Cut the regions that CLML computes out of a model.

Before -> after:
    lv = conv2d(x, w); y = relu(lv); z = erf(y)
    ->  y = call_dps_packed("clml0_4f..._openclml", (x,)); z = erf(y)
        and a function of that name with the two operators: the variant for textures

A region is a group of found operators that can run as one graph.  Every binding gets a level: 0 at
the inputs, and one more each time that data passes from textures into CLML.  Found operators of one
level that read each other form a group; no path leaves it between two members, since that would
have raised the level:
    conv(0) -> erf(0) -> conv(1)                            two groups
    conv(0) -> relu(0), conv(0) -> pool(0) -> concat(0)      one group

Whether a region wins is told by a roofline of both variants, with the copies that CLML needs.
Per operator: the larger of its arithmetic over the GPU's peak and of its bytes over the memory's,
plus a launch.  Textures fuse what is element-wise, so such an operator costs them only what it
reads beyond its neighbour's result; CLML pays a command and a round through memory for it.  Each
tensor at the border of a region is written row-major by a kernel, and copied into CLML's own
layout (and back): twice through memory and two launches.

The figures are the target's where it has them, else those of `targets/clml.toml`, each with its
source.  Their errors are larger than small gains: CLML has to win by a margin.  They are estimates
until somebody measures: `adrenoc run --profile` shows both variants side by side.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import relax

from adrenoc.base.decision import Decision
from adrenoc.clml.match import find_matches
from adrenoc.clml.region import (
    ClmlOperator,
    ClmlRegion,
    Costs,
    Found,
    Operand,
    Table,
    document_text,
    load_table,
)
from adrenoc.importers.relax.values import (
    Binding,
    FlatFunction,
    dtype_of,
    flatten,
    rebuild,
    static_shape,
    substitute,
    variables,
)
from adrenoc.target.gpu import Performance

_FUSED_BY_TEXTURES = {"relu", "relu6", "clip", "binary", "divide", "scale_shift"}
"""Rows that a texture kernel computes on the way."""

_FREE_IN_TEXTURES = {"reshape"}


@dataclass(frozen=True, kw_only=True)
class RegionTimes:
    """Estimated times (us) of one region: both variants, and the copies around CLML's."""

    symbol: str
    texture_us: float
    clml_us: float
    copies_us: float
    copies: int
    margin: float

    @property
    def gain(self) -> float:
        """Time in textures over that of CLML with its copies."""
        return self.texture_us / (self.clml_us + self.copies_us)

    @property
    def wins(self) -> bool:
        """Return whether CLML is faster after its copies, by the margin."""
        return self.gain >= self.margin

    def text(self) -> str:
        """`estimated 120 us in textures, 85 us in CLML and 24 us for 2 copies: 1.10 times ...`"""
        return (
            f"estimated {self.texture_us:.0f} us in textures, {self.clml_us:.0f} us in CLML and "
            f"{self.copies_us:.0f} us for {self.copies} copies: {self.gain:.2f} times as fast, "
            f"{self.margin} asked"
        )


@dataclass(frozen=True, kw_only=True)
class _Machine:
    """What the GPU does in a microsecond."""

    flops_per_us: float
    bytes_per_us: float
    launch_us: float


def judge(region: ClmlRegion, table: Table, performance: Performance) -> RegionTimes:
    """Estimate both variants of a region."""
    machine = _machine(performance, table.costs, half=region.dtype == "float16")
    width = 2 if region.dtype == "float16" else 4
    shapes = dict(region.shapes)
    texture_us = clml_us = 0.0
    for operator in region.operators:
        reads = [_shape(operand, shapes) for operand in operator.inputs]
        flops = flops_of(operator, reads)
        moved = (sum(map(math.prod, reads)) + math.prod(operator.shape)) * width
        whole = max(flops / machine.flops_per_us, moved / machine.bytes_per_us)
        pointwise = "conv2d" in operator.row and math.prod(reads[1][2:]) == 1
        gain = table[operator.row].gain_of(region.dtype, pointwise=pointwise)
        clml_us += whole / gain + table.costs.recorded_us
        if operator.row in _FREE_IN_TEXTURES:
            pass
        elif operator.row in _FUSED_BY_TEXTURES:
            texture_us += sum(map(math.prod, reads[1:])) * width / machine.bytes_per_us
        else:
            texture_us += whole + machine.launch_us
        shapes[operator.output] = operator.shape
    borders = [shapes[name] for name in (*region.inputs, *region.outputs)]
    copied = 4 * sum(map(math.prod, borders)) * width
    return RegionTimes(
        symbol=region.symbol,
        texture_us=texture_us,
        clml_us=clml_us,
        copies_us=copied / machine.bytes_per_us + 2 * len(borders) * machine.launch_us,
        copies=2 * len(borders),
        margin=table.costs.margin,
    )


def reckoning(
    table: Table, performance: Performance, *, half: bool, launch_source: str
) -> tuple[str, str]:
    """Return what estimates are made with, and where that is from: for the decision log.
    `launch_source` is the target's word on its `performance.launch_us`."""
    machine, costs = _machine(performance, table.costs, half=half), table.costs
    what = (
        f"{machine.flops_per_us / 1000:.0f} GFLOPS, {machine.bytes_per_us / 1000:.0f} GB/s, "
        f"{machine.launch_us:.0f} us a launch, {costs.recorded_us:.0f} us an operator of CLML"
    )
    own = performance.fp32_fma_lanes is not None and performance.clock_mhz is not None
    parts = [
        f"{costs.efficiency:g} of the {'target' if own else 'stand-in'}'s peak",
        *(() if own else (costs.sources["gflops"],)),
        *(() if performance.dram_gb_per_s else (f"memory: {costs.sources['gb_per_s']}",)),
        f"efficiency: {costs.sources['efficiency']}",
        f"launch: {launch_source}",
    ]
    return what, "; ".join(parts)


def flops_of(operator: ClmlOperator, reads: list[tuple[int, ...]]) -> float:
    """Additions and multiplications of one operator, each counted."""
    result = math.prod(operator.shape)
    if "conv2d" in operator.row:
        weights = reads[1]
        per_output = math.prod(weights[2:]) * (1 if "depthwise" in operator.row else weights[1])
        if operator.row == "conv2d_transpose":
            per_output /= math.prod(operator.attrs["strides"])
        return 2.0 * result * per_output
    if operator.name in ("nn.dense", "nn.batch_matmul"):
        return 2.0 * result * reads[0][-1]
    if operator.row.endswith("pool2d"):
        window = operator.attrs.get("pool_size") or reads[0][2:]
        return float(result * math.prod(window))
    return float(result)


def _shape(operand: Operand, shapes: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(operand.value.shape) if operand.value is not None else shapes[operand.name]


def _machine(performance: Performance, costs: Costs, *, half: bool) -> _Machine:
    gflops = costs.gflops
    if performance.fp32_fma_lanes is not None and performance.clock_mhz is not None:
        gflops = 2 * performance.fp32_fma_lanes * performance.clock_mhz / 1000
    rate = (performance.fp16_rate or 1.0) if half else 1.0
    gb_per_s = performance.dram_gb_per_s or costs.gb_per_s
    return _Machine(
        flops_per_us=gflops * rate * costs.efficiency * 1000,
        bytes_per_us=gb_per_s * 1000,
        launch_us=performance.launch_us or 0.0,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Partition:
    """The module with the calls, the functions for textures in it, and the regions. `kept_back`
    counts the operators that CLML was asked for and does not compute."""

    module: tvm.IRModule
    regions: tuple[ClmlRegion, ...]
    verdicts: tuple[RegionTimes, ...]
    decisions: tuple[Decision, ...]
    kept_back: int = 0


def partition(
    module: tvm.IRModule,
    *,
    keep_all: bool,
    version: int,
    dtype: str,
    performance: Performance,
    sum_dtype: str = "",
) -> Partition:
    """Offload what CLML `version` computes; without `keep_all` only what the cost model favours.

    `dtype` is that of tensors between kernels: regions hold their floats in it, and add halves up
    in `sum_dtype`."""
    table = load_table()
    flat = flatten(module["main"])
    matches = find_matches(flat, table, version=version, dtype=dtype)
    decisions = list(matches.refusals)
    cutter = _Cutter(flat, dtype, "" if sum_dtype == dtype else sum_dtype)
    verdicts, kept_back = [], len(matches.refusals)
    for members in merge(flat, matches.found):
        region = cutter.describe(members, table)
        verdict = judge(region, table, performance)
        taken = keep_all or verdict.wins
        decisions.append(_decision(region, verdict, taken=taken, keep_all=keep_all))
        if taken:
            cutter.cut(region, members)
            verdicts.append(verdict)
        else:
            kept_back += len(region.operators)
    return Partition(
        module=cutter.module(module),
        regions=tuple(cutter.regions),
        verdicts=tuple(verdicts),
        decisions=tuple(decisions),
        kept_back=kept_back,
    )


def _decision(region: ClmlRegion, verdict: RegionTimes, *, taken: bool, keep_all: bool) -> Decision:
    first, last = region.operators[0].output, region.operators[-1].output
    what = f"{len(region.operators)} operators to CLML {region.version}"
    why = verdict.text()
    if keep_all:
        why = f"--clml all; {why}"
    return Decision(
        subject=region.symbol if taken else f"{first}..{last}",
        taken=what if taken else f"{len(region.operators)} operators stay in textures",
        reason=f"{first}..{last}: {why}" if taken else why,
    )


class _Cutter:
    """Replaces groups by calls, one after the other."""

    def __init__(self, flat: FlatFunction, dtype: str, sum_dtype: str) -> None:
        self._flat = flat
        self._dtype = dtype
        self._sum_dtype = sum_dtype
        self._read_outside = flat.uses()
        self._returned = set(variables(flat.result))
        self.regions: list[ClmlRegion] = []
        self._cuts: list[tuple[ClmlRegion, tuple[Found, ...]]] = []

    def describe(self, members: Sequence[Found], table: Table) -> ClmlRegion:
        """Return the region that a group would be."""
        inner = {b.var for match in members for b in match.bindings}
        bindings = [binding for match in members for binding in match.bindings]
        outer = {str(v.name): v for b in bindings for v in variables(b.value) if v not in inner}
        outputs = [m.output for m in members if self._leaves(m.output, inner)]
        operators = tuple(o for match in members for o in match.operators)
        # In the order in which the graph reads them, as TVM has it.
        read = [operand.name for o in operators for operand in o.inputs]
        inputs = {name: outer[name] for name in read if name in outer}
        region = ClmlRegion(
            symbol="",
            dtype=self._dtype,
            version=max(_version(o, table) for o in operators),
            inputs=tuple(inputs),
            outputs=tuple(str(v.name) for v in outputs),
            shapes={name: static_shape(var) or () for name, var in inputs.items()},
            operators=operators,
            sum_dtype=self._sum_dtype,
        )
        # The digest tells regions of different models apart: tuning records go by the symbol.
        digest = hashlib.sha256(document_text(region).encode()).hexdigest()[:8]
        return replace(region, symbol=f"clml{len(self.regions)}_{digest}_openclml")

    def _leaves(self, var: relax.Var, inner: set[relax.Var]) -> bool:
        if var in self._returned:
            return True
        inside = sum(
            list(variables(b.value)).count(var) for b in self._flat.bindings if b.var in inner
        )
        return self._read_outside[var] > inside

    def cut(self, region: ClmlRegion, members: tuple[Found, ...]) -> None:
        """Note that a group leaves the main function."""
        self.regions.append(region)
        self._cuts.append((region, members))

    def module(self, module: tvm.IRModule) -> tvm.IRModule:
        """Return the module with the calls and a function for each region."""
        if not self._cuts:
            return module
        functions = {}
        by_last: dict[relax.Var, ClmlRegion] = {}
        members: set[relax.Var] = set()
        for region, matches in self._cuts:
            inner = {b.var for m in matches for b in m.bindings}
            members.update(inner)
            last = [b.var for b in self._flat.bindings if b.var in inner][-1]
            by_last[last] = region
            functions[region.symbol] = self._variant(region, inner)
        main = self._main(by_last, members)
        result = tvm.IRModule(dict(module.functions.items()))
        result["main"] = main.with_attr("global_symbol", "main")
        for symbol, function in functions.items():
            result[symbol] = function.with_attr("global_symbol", symbol)
        return result

    def _main(
        self, by_last: dict[relax.Var, ClmlRegion], members: set[relax.Var]
    ) -> relax.Function:
        """Return the main function: a region is called where its last operator stood.

        What reads a region's earlier results may stand before that place, so the rest is sorted
        anew: a binding comes as soon as all that it reads is there."""
        pending: list[Binding] = []
        for binding in self._flat.bindings:
            if binding.var in by_last:
                pending += self._call(by_last[binding.var])
            elif binding.var not in members:
                pending.append(binding)
        ordered = _sort_bindings(self._flat.params, pending)
        flat = FlatFunction(params=self._flat.params, bindings=ordered, result=self._flat.result)
        main, _ = rebuild(flat)
        return main

    def _call(self, region: ClmlRegion) -> list[Binding]:
        """Return the call of a region, with casts where the model's floats are of another dtype."""
        made: list[Binding] = []
        by_name = self._vars()
        arguments = [
            _cast(by_name[name], f"{name}_in_{region.symbol[:5]}", region.dtype, made)
            for name in region.inputs
        ]
        outputs = [by_name[name] for name in region.outputs]
        types = [relax.TensorType(static_shape(v), region.dtype) for v in outputs]
        call = relax.op.call_dps_packed(region.symbol, relax.Tuple(arguments), types)
        ty = types[0] if len(types) == 1 else relax.TupleType(types)
        whole = relax.Var(f"{region.symbol}_results", ty)
        made.append(Binding(var=whole, value=call))
        for index, (var, inner) in enumerate(zip(outputs, types, strict=True)):
            part: Any = whole
            if len(types) > 1:
                part = relax.Var(f"{var.name}_of_{region.symbol[:5]}", inner)
                made.append(Binding(var=part, value=relax.TupleGetItem(whole, index)))
            same = dtype_of(var) == region.dtype
            value = part if same else relax.op.astype(part, dtype_of(var))
            made.append(Binding(var=var, value=value))
        return made

    def _vars(self) -> dict[str, relax.Var]:
        named = {str(p.name): p for p in self._flat.params}
        return {**named, **{str(b.var.name): b.var for b in self._flat.bindings}}

    def _variant(self, region: ClmlRegion, members: set[relax.Var]) -> relax.Function:
        """Return the same operators as a function of Relax, on floats of the region's dtype."""
        by_name = self._vars()
        env: dict[relax.Var, relax.Expr] = {}
        params: list[relax.Var] = []
        bindings: list[Binding] = []
        for name in region.inputs:
            var = by_name[name]
            param = relax.Var(name, relax.TensorType(region.shapes[name], region.dtype))
            params.append(param)
            env[var] = _cast(param, f"{name}_wide", dtype_of(var), bindings)
        for binding in self._flat.bindings:
            if binding.var in members:
                bindings.append(Binding(var=binding.var, value=substitute(binding.value, env)))
        results = [
            _cast(by_name[name], f"{name}_narrow", region.dtype, bindings)
            for name in region.outputs
        ]
        result = results[0] if len(results) == 1 else relax.Tuple(results)
        function, _ = rebuild(FlatFunction(params=params, bindings=bindings, result=result))
        return function


def _cast(var: relax.Var, name: str, dtype: str, made: list[Binding]) -> relax.Var:
    """Return a variable as numbers of a dtype, bound to `name` where it is of another."""
    if dtype_of(var) == dtype:
        return var
    cast = relax.Var(name, relax.TensorType(static_shape(var), dtype))
    made.append(Binding(var=cast, value=relax.op.astype(var, dtype)))
    return cast


def _version(operator: ClmlOperator, table: Table) -> int:
    """Return the first interface that has an operator, with the batch norm that it has taken in."""
    rows = (operator.row, "batch_norm") if "batchnorm" in operator.attrs else (operator.row,)
    return max(table[row].version for row in rows)


def _sort_bindings(params: Sequence[relax.Var], bindings: Sequence[Binding]) -> list[Binding]:
    """Return the bindings so that each is made before it is read, else as they stand."""
    made = {binding.var for binding in bindings}
    known, ordered = set(params), []
    pending = list(bindings)
    while pending:
        waiting = []
        for binding in pending:
            if all(v in known or v not in made for v in variables(binding.value)):
                ordered.append(binding)
                known.add(binding.var)
            else:
                waiting.append(binding)
        if len(waiting) == len(pending):
            raise ValueError(f"regions wait for each other at {waiting[0].var.name}")
        pending = waiting
    return ordered


def merge(flat: FlatFunction, found: Sequence[Found]) -> tuple[tuple[Found, ...], ...]:
    """Return the groups, each in execution order, in the order of their first members."""
    owner = {binding.var: index for index, match in enumerate(found) for binding in match.bindings}
    level = _levels(flat, found, owner)
    leader = list(range(len(found)))

    def find(index: int) -> int:
        while leader[index] != index:
            leader[index] = leader[leader[index]]
            index = leader[index]
        return index

    for index, match in enumerate(found):
        for binding in match.bindings:
            for var in variables(binding.value):
                other = owner.get(var)
                if other is not None and level[other] == level[index]:
                    first, second = sorted((find(other), find(index)))
                    leader[second] = first
    groups: dict[int, list[Found]] = {}
    for index, match in enumerate(found):
        groups.setdefault(find(index), []).append(match)
    return tuple(tuple(members) for _, members in sorted(groups.items()))


def _levels(
    flat: FlatFunction, found: Sequence[Found], owner: dict[relax.Var, int]
) -> dict[int, int]:
    """Return the level of each match. Matches come in the order in which their results are made."""
    of_var: dict[relax.Var, int] = {}
    of_match: dict[int, int] = {}
    for binding in flat.bindings:
        index = owner.get(binding.var)
        read = [v for v in variables(binding.value) if v in of_var]
        if index is None:
            of_var[binding.var] = max((of_var[v] for v in read), default=0)
            continue
        sources = [
            of_var[v] if owner.get(v) is not None else of_var[v] + 1
            for v in read
            if owner.get(v) != index
        ]
        of_match[index] = max([of_match.get(index, 0), *sources])
        for member in found[index].bindings:
            of_var[member.var] = of_match[index]
    return of_match
