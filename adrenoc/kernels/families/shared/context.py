"""What a rule has at hand: the placed graph, the target's limits, a place for constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TypeVar

import numpy as np

from adrenoc.base.decision import DecisionLog
from adrenoc.base.errors import CompileError
from adrenoc.base.files.spill import spill
from adrenoc.ir.graph import PROLOGUE_SHAPE, Graph, Node, Store
from adrenoc.ir.half import round_constant, round_sizes
from adrenoc.ir.layout import Layout, Memory, OperandSpec, TexelOrder
from adrenoc.ir.options import CompileOptions
from adrenoc.ir.program import Matrix, Packing, Param
from adrenoc.ir.tuning_log import Tuning
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder, Threads, pick_work_group
from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.kernels.families.shared.schedule import T, TunedSchedules, signature
from adrenoc.kernels.fused_bodies import ComputedAccess, Epilogue
from adrenoc.kernels.views import Piece, PlacedAccess, SpreadAccess
from adrenoc.kernels.weights import pack_blocked
from adrenoc.target.cost import Cost
from adrenoc.target.gpu import NO_HALF_TYPE, Limits, Performance

_KILO = 1e3
W = TypeVar("W")


@dataclass(kw_only=True)
class ByteCosts:
    """Estimates of the operators that multiply bytes, summed over a graph."""

    operators: int = 0
    bytes_clocks: float = 0.0
    floats_clocks: float = 0.0
    """Clocks of the same operators in the preset's storage and arithmetic, their inputs
    dequantised; one kernel each."""

    def add(self, as_bytes: float, as_floats: float) -> None:
        """Count one operator; clocks of the whole GPU."""
        self.operators += 1
        self.bytes_clocks += as_bytes
        self.floats_clocks += as_floats

    def say(self, log: DecisionLog, performance: Performance, preset: str) -> None:
        """Log both figures, in ms where the clock is known, and what was taken."""
        if not self.operators:
            return
        unit, scale = "kclocks", _KILO
        if performance.clock_mhz:
            unit, scale = "ms", performance.clock_mhz * _KILO
        floats = f"{self.floats_clocks / scale:.3g} {unit} as {preset} numbers, layer by layer"
        faster = self.bytes_clocks <= self.floats_clocks
        log.add(
            f"{self.operators} convolutions and products",
            f"multiplied as bytes, estimated {self.bytes_clocks / scale:.3g} {unit}",
            f"{floats}, whose sums are not exact" if faster else f"exact; it would take {floats}",
        )


Pack = Callable[[np.ndarray], np.ndarray]

PACKED_LAYOUT = Layout("NHWC")
"""Packed weights `[layers, rows, cols, 4]` are an NHWC tensor of four channels."""


@dataclass(frozen=True, kw_only=True, eq=False)
class KernelCall:
    """One launch: the kernel that the builder holds, and the tensors or params it is given.  The
    last `written` arguments are written, the others are read."""

    node: Node
    builder: KernelBuilder
    arguments: tuple[str, ...]
    written: int = 1


@dataclass(kw_only=True)
class RuleContext:
    """State of the lowering of one graph."""

    graph: Graph
    options: CompileOptions
    limits: Limits
    performance: Performance
    cost: Cost
    log: DecisionLog
    sizes_only: bool = False
    """Of what constants are packed to nobody reads the numbers: they are zeros, in no memory."""
    params: dict[str, Param] = field(default_factory=dict)
    tuning: Tuning = field(default_factory=Tuning)
    byte_costs: ByteCosts = field(default_factory=ByteCosts)
    schedules: TunedSchedules = field(init=False)

    def __post_init__(self) -> None:
        self.schedules = TunedSchedules(
            limits=self.limits, cost=self.cost.work_groups, log=self.log, tuning=self.tuning
        )

    @cached_property
    def machine(self) -> Machine:
        """Return the GPU as estimates see it."""
        return Machine.from_performance(self.performance, self.cost).allow(self.options)

    def change_options(self, **changes: str) -> RuleContext:
        """Copy the context for a node that has other options."""
        changed = copy(self)
        changed.options = replace(self.options, **changes)  # type: ignore[arg-type]
        return changed

    def choose(
        self, node: Node, family: str, candidates: Iterable[T], estimate: Callable[[T], float]
    ) -> T:
        """Return the schedule of a node's kernel: from the tuning log, else by the estimate."""
        work = signature(self.graph, node, self.options)
        return self.schedules.choose(family, node.name, work, candidates, estimate)

    def search(
        self,
        node: Node,
        family: str,
        work: W,
        candidates: Callable[[W, Limits, Cost], Iterable[T]],
        estimate: Callable[[W, T, Machine], float],
    ) -> T:
        """Return the same of the schedules that a family offers for such work."""
        machine, tiles = self.machine, candidates(work, self.limits, self.machine.cost)
        return self.choose(node, family, tiles, lambda tile: estimate(work, tile, machine))

    def kernel(
        self, node: Node, family: str, *, half: bool = False, carries: bool = False
    ) -> NodeKernel:
        """Start the kernel of a node; `half` is whether it multiplies and adds in halves.

        Only long products gain by halves.  All else computes in float whatever the preset: nothing
        in between is rounded or overflows, and the texture unit converts as it reads and writes.
        One that `carries` a state has no functions of the device's own precision, even if what it
        writes lies in half: what a gate is off by grows from step to step.
        """
        compute = "float16" if half else "float32"
        coarse = self.options.native_functions and not carries
        builder = KernelBuilder(family, compute=compute, limits=self.limits, coarse=coarse)
        builder.pick_group = partial(self._pick_group, node, family)
        return NodeKernel(context=self, node=node, builder=builder)

    def _pick_group(self, node: Node, family: str, extents: Threads) -> Threads:
        """Return the work-group of a kernel that leaves it to its builder."""
        work = signature(self.graph, node, self.options)
        usual = pick_work_group(extents, self.limits)
        return self.schedules.choose_group(family, node.name, work, extents, usual)

    def pack(
        self, name: str, pack: Pack, prepare: Pack, dtype: str, transform: Matrix | None
    ) -> tuple[np.ndarray, Packing]:
        """Return a constant in its own order, and how to bring other numbers into it."""
        # Packing moves and never computes: rounded first, it moves half the bytes.
        constant = self._constant(name)
        value = pack(self._round_constant(name, prepare(constant), dtype, transform))
        none = np.zeros((), value.dtype)
        value = np.broadcast_to(none, value.shape) if self.sizes_only else spill(value)

        def round_prepared(numbers: np.ndarray) -> np.ndarray:
            return round_constant(prepare(numbers), dtype, transform).value

        return value, Packing(
            constant=constant,
            prepare=prepare,
            pack=None if transform else lambda numbers: pack(round_prepared(numbers)),
            make_rounded=lambda: round_prepared(constant),
            move=pack,
            transform=transform,
        )

    def _round_constant(
        self, name: str, value: np.ndarray, dtype: str, transform: Matrix | None = None
    ) -> np.ndarray:
        """Return a constant in the dtype that it is stored in; infinities are a Decision."""
        round_it = round_sizes if self.sizes_only else round_constant
        stored = round_it(value, dtype, transform)
        if stored.lost:
            self.log.add(
                name,
                f"infinite in {dtype}",
                f"{stored.lost} of {stored.value.size} values are beyond half, the largest is "
                f"{stored.largest:.3g}; adrenoc check-accuracy finds what to keep in float32",
            )
        return stored.value

    def _constant(self, name: str) -> np.ndarray:
        value = self.graph.tensors[name].value
        if value is None:
            raise CompileError(
                f"{name} is computed, expected a constant",
                hint="fold the constants of the model first, for example with onnxsim",
            )
        return np.asarray(value)

    def operand(self, name: str) -> tuple[str, OperandSpec]:
        """Any tensor of the graph as an argument; a constant is packed as its layout lies."""
        tensor, spec = self.graph.tensors[name], self.graph.operand(name)
        if tensor.value is None:
            return name, spec
        if name not in self.params:
            value = np.asarray(tensor.value)
            if spec.memory is not Memory.PLAIN:
                roles = spec.roles
                value = pack_blocked(value, roles.roles, roles.order is TexelOrder.ROWS)
            self.params[name] = Param(
                name=name,
                value=np.asarray(self._round_constant(name, value, spec.dtype), order="C"),
                spec=spec,
            )
        return name, spec


@dataclass(kw_only=True)
class NodeKernel:
    """The kernel of one node while a rule writes it: arguments first, then the body."""

    context: RuleContext
    node: Node
    builder: KernelBuilder
    arguments: list[str] = field(default_factory=list)
    accesses: dict[str, Access] = field(default_factory=dict)
    reads_prologue: bool = False
    """Whether the body reads what a prologue computes."""
    written: int = 1
    """The last arguments that the kernel writes."""

    def input(self, name: str) -> Access:
        """Declare a tensor of the graph as the next argument, once."""
        if name not in self.accesses:
            argument, spec = self.context.operand(name)
            self.arguments.append(argument)
            self.accesses[name] = self.builder.input(spec)
        return self.accesses[name]

    def input_or_prologue(self) -> Access:
        """Return the first input, or what the prologue computes in its place."""
        x = self.input(self.node.inputs[0])
        self.reads_prologue = True
        if self.node.prologue is None:
            return x
        for name in self.node.prologue.sources.values():
            self.input(name)
        attrs, spec, border = self.node.attrs, x.spec, False
        if PROLOGUE_SHAPE in attrs:  # it reads other rows and columns than it makes
            spec = replace(spec, shape=attrs[PROLOGUE_SHAPE])
            border = any(attrs["padding"])
        return ComputedAccess(self.builder, self.node.prologue, self.accesses, spec, border=border)

    def pack_constant(
        self,
        name: str,
        kind: str,
        pack: Pack,
        prepare: Pack = np.asarray,
        transform: Matrix | None = None,
        dtype: str | None = None,
    ) -> Access:
        """Declare a constant, packed by `pack` to `[layers, rows, cols, 4]`, as the next argument.

        `prepare` orders it or computes with it in full precision; then it is rounded, and
        `transform` is what Winograd's algorithm makes of it.  It goes to a texture if the target
        has an image of that size, else to a buffer.  `dtype` is that of its elements if not that of
        all storage.
        """
        context, limits = self.context, self.context.limits
        dtype = dtype or context.options.storage_dtype
        key = f"{name}_{kind}_{dtype}"
        if key not in context.params:
            value, packing = context.pack(name, pack, prepare, dtype, transform)
            layers, rows, cols, _ = value.shape
            fits = context.options.textures and limits.hold_image(value.shape)
            if context.options.textures and not fits:
                context.log.add(
                    name,
                    "weights in a buffer",
                    f"{cols} x {rows} texels in {layers} layers, beyond {limits.image_text}",
                )
            if not fits and limits.buffer_dtype(dtype) != dtype:
                dtype = limits.buffer_dtype(dtype)
                value, packing = context.pack(name, pack, prepare, dtype, transform)
                context.log.add(name, dtype, NO_HALF_TYPE)
            spec = OperandSpec(
                shape=tuple(value.shape),
                dtype=dtype,
                memory=Memory.TEXTURE if fits else Memory.BLOCKED,
                layout=PACKED_LAYOUT,
            )
            context.params[key] = Param(name=key, value=value, spec=spec, packing=packing)
        return self._read_param(key)

    def flat(
        self,
        name: str,
        kind: str,
        pack: Pack,
        prepare: Pack = np.asarray,
        dtype: str | None = None,
        transform: Matrix | None = None,
    ) -> Access:
        """Declare a constant in a flat buffer as the next argument: prepared, rounded, packed.
        `prepare`, `transform` and `dtype` are as in `pack_constant`."""
        params, stored = self.context.params, dtype or self.context.options.storage_dtype
        key = f"{name}_{kind}_{stored}"
        if key not in params:
            value, packing = self.context.pack(name, pack, prepare, stored, transform)
            spec = OperandSpec(
                shape=tuple(value.shape), dtype=str(value.dtype), memory=Memory.PLAIN, layout=None
            )
            params[key] = Param(name=key, value=value, spec=spec, packing=packing)
        return self._read_param(key)

    def zeros(self, name: str, words: int) -> Access:
        """Declare a flat buffer of so many words as the next argument: no kernel reads them."""
        if name not in self.context.params:
            value = np.zeros(words, np.uint32)
            spec = OperandSpec(shape=(words,), dtype="uint32", memory=Memory.PLAIN, layout=None)
            self.context.params[name] = Param(name=name, value=value, spec=spec)
        return self._read_param(name)

    def _read_param(self, key: str) -> Access:
        self.arguments.append(key)
        return self.builder.input(self.context.params[key].spec)

    def output(self) -> tuple[Access, Epilogue]:
        """Declare the epilogue's operands and what is written: the last arguments."""
        if self.node.epilogue is not None:
            for name in self.node.epilogue.sources.values():
                if name not in (Node.RESULT, Node.BESIDE):
                    self.input(name)
        graph = self.context.graph
        if self.node.stores:
            out = self._stores(graph)
        else:
            out = self.builder.output(graph.operand(self.node.output))
            self.arguments.append(self.node.output)
        return out, Epilogue(self.builder, self.node.epilogue, self.accesses, out)

    def other_output(self, name: str) -> Access:
        """Declare a further tensor that is written as the next argument, after the output."""
        self.arguments.append(name)
        self.written += 1
        return self.builder.output(self.context.graph.operand(name))

    def _stores(self, graph: Graph) -> Access:
        """Declare all memories that the result is written to."""
        owned: dict[str, list[tuple[Store, int]]] = {}
        for store in self.node.stores:
            owner, at = graph.place(store.tensor)
            owned.setdefault(owner, []).append((store, at))
        places: list[tuple[Access, list[Piece]]] = []
        for owner, stores in owned.items():
            names = (store.tensor for store, _ in stores)
            access = self.builder.output(_spec_of_stored(graph, owner, names))
            self.arguments.append(owner)
            layers: list[list[Piece]] = []
            for store, at in stores:
                if store.placing is not None:
                    apart = PlacedAccess(access, store.placing, at, self.builder)
                    piece = Piece(first=store.first, blocks=store.placing.blocks, at=0)
                    places.append((apart, [piece]))
                    continue
                blocks = graph.operand(store.tensor).extents.blocks
                _add_apart(layers, Piece(first=store.first, blocks=blocks, at=at))
            places += [(access, layer) for layer in layers]
        self.written = len(owned)
        return SpreadAccess(graph.operand(self.node.output).alone, places, self.builder)

    def call(self) -> KernelCall:
        """Finish the kernel, and say how it is launched."""
        if self.node.prologue is not None and not self.reads_prologue:
            raise CompileError(
                f"{self.node.name}: the kernel leaves out what is to be computed before it",
                hint="report it with the model: ADRENOC_DUMP_DIR=DIR keeps the IR",
            )
        return KernelCall(
            node=self.node,
            builder=self.builder,
            arguments=tuple(self.arguments),
            written=self.written,
        )


def _spec_of_stored(graph: Graph, owner: str, stored: Iterable[str]) -> OperandSpec:
    """Return a memory as what is stored counts it: axes may play other roles than before."""
    spec, layouts = graph.operand(owner), {graph.operand(name).layout for name in stored}
    plain = spec.memory is Memory.PLAIN and len(layouts) == 1
    return replace(spec, layout=layouts.pop()) if plain else spec


def _add_apart(layers: list[list[Piece]], piece: Piece) -> None:
    """Add a piece to the first list that has none of its blocks: a block can lie there twice."""
    for layer in layers:
        if all(
            piece.first >= other.first + other.blocks or other.first >= piece.first + piece.blocks
            for other in layer
        ):
            layer.append(piece)
            return
    layers.append([piece])


Rule = Callable[[RuleContext, Node], KernelCall]
