"""The planning view of a model: nodes, tensors and where each tensor is to live.

Relax carries the program in and out; in between, every pass of the texture pipeline asks who
makes a tensor and who reads it, and that is what this view answers.  A node is either an
operator whose attributes the plan needs (`conv2d`, `matmul`, ...), or it has a `Body`: the
scalar expression that TVM's legalisation gives for one element of its output.

A node's `op` is a kind that no operator's record describes, what is done without a kernel and
joins, or the name of an `Operator`.  Passes ask the node (`Node.is_on_cpu`, `Node.has_kernel` and
their like), not for these names.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from tvm_ffi.structural import structural_map

from adrenoc.base.text.spelling import dims
from adrenoc.base.tvmapi import BufferLoad, Expr, Var, decl_buffer, tvm
from adrenoc.ir.layout import BlockRange, Extents, Layout, Memory, OperandSpec


def find_loaded_buffers(expr: Expr) -> list[Any]:
    """Return the buffers that an expression reads, each once, in order of appearance."""
    found: list[Any] = []

    def note(load: Any) -> Any:
        if not any(load.source.same_as(b) for b in found):
            found.append(load.source)
        return load

    structural_map(expr, (tvm.ir.TensorLoad, note))
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Body:
    """One element of a node's output, as a TIR expression.  `axes` are the variables of the logical
    output index.  A load from a buffer of `sources` reads that tensor of the graph.  With `reduced`
    axes the value is folded over them, starting from `init`: a load from `accumulator` stands for
    what was folded so far."""

    axes: tuple[Expr, ...]
    value: Expr
    sources: Mapping[Any, str]
    reduced: tuple[tuple[Expr, int], ...] = ()
    init: Expr | None = None
    accumulator: Any = None

    def source_of(self, buffer: Any) -> str | None:
        """Return the tensor that is read through a buffer; None of a buffer of no source."""
        return next((name for b, name in self.sources.items() if b.same_as(buffer)), None)

    @property
    def term(self) -> Any:
        """Return what a fold adds up, multiplies or picks among; of others the value itself."""
        sides = (getattr(self.value, "a", None), getattr(self.value, "b", None))
        for one, other in (sides, sides[::-1]):
            if isinstance(one, tvm.ir.TensorLoad) and one.source.same_as(self.accumulator):
                return other
        return self.value

    @property
    def moves(self) -> bool:
        """Return whether its value is an element of a tensor, as it is."""
        return isinstance(self.value, tvm.ir.TensorLoad) and not self.reduced

    @staticmethod
    def reading(
        name: str, shape: Sequence[int], order: Sequence[int] = (), dtype: str = "float32"
    ) -> Body:
        """Return a body that reads a tensor of this shape at its own place, or with its axes in
        another order: `order` says which axis of the result each is."""
        axes = tuple(Var(f"i{axis}", "int32") for axis in range(len(shape)))
        buffer = decl_buffer(shape, dtype, name="read")
        index = [axes[axis] for axis in order or range(len(shape))]
        return Body(axes=axes, value=BufferLoad(buffer, index), sources={buffer: name})

    def drop_unread(self) -> Body:
        """Drop the sources that the value does not read."""
        used = find_loaded_buffers(self.value)
        read = {b: n for b, n in self.sources.items() if any(b.same_as(u) for u in used)}
        return replace(self, sources=read)

    def name_of(self, load: Any) -> str:
        """Return the tensor that a load of the value reads.

        Raises:
            KeyError: it reads none of the sources, but what was folded so far.
        """
        name = self.source_of(load.source)
        if name is None:
            raise KeyError(f"{load} reads no tensor of the graph")
        return name


CPU = "cpu"
"""A function of the CPU; it has one output, and its `func` takes the inputs, then the output."""

TO_CPU = "to_cpu"
"""A copy from the GPU's memory, row-major, to the CPU's."""

TO_GPU = "to_gpu"
"""A copy back."""

CLML = "clml"
"""A region of OpenCL ML; `attrs` hold its `symbol` and its `results`, the first one its output."""

ALLOC = "alloc"
"""Memory that a region will write."""

CONCAT = "concat"
"""A concatenation that no other map was fused with, for it may need no kernel."""

NO_KERNEL = frozenset((CPU, TO_CPU, TO_GPU, CLML, ALLOC))
"""What no family has a kernel for."""


@dataclass(frozen=True, kw_only=True)
class Precision:
    """What one tensor asks for; each kernel asks about what it makes, and about what it reads."""

    float32: bool = False
    """Computed and stored in float32."""
    rounded: bool = False
    """Whole numbers that are rounded to: computed in float32, stored as the options say."""
    wide_sums: bool = False
    """Computed in float32 and stored as the options say, for later layers hand on its errors."""
    low: int | None = None
    """The number that a byte of zero stands for where the tensor lies in bytes; else None."""

    @property
    def is_special(self) -> bool:
        """Return whether another kernel than the usual one would compute other numbers."""
        return self.float32 or self.rounded

    def __str__(self) -> str:
        said = {
            "float32": self.float32,
            "rounded to integers": self.rounded,
            "sums in float32": self.wide_sums,
            f"bytes from {self.low} on": self.low is not None,
        }
        return ", ".join(words for words, holds in said.items() if holds) or "as the options say"


AS_OPTIONS = Precision()


PROLOGUE_SHAPE = "prologue_shape"
"""Attribute of a node: the shape of what its prologue makes, if not that of its first input."""


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """A tensor of static shape; `value` where it is a constant of the model."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    value: np.ndarray | None = None

    @property
    def is_float(self) -> bool:
        """Return whether it can lie in a texture at all: RGBA float or half."""
        return self.dtype in ("float32", "float16")


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where a tensor lives on the GPU and how its axes lie there."""

    memory: Memory
    layout: Layout | None
    dtype: str
    low: int = 0
    """The number that a byte of zero stands for; stated of tensors that lie in bytes."""


@dataclass(frozen=True, kw_only=True)
class View:
    """A tensor that is a range of the channels of tensor `base`: its blocks from `first` on."""

    base: str
    first: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Placing:
    """Where texels go: `to` is (n, block, h, w) there, by the variables `axes`, the same here.
    There are `blocks` blocks of four channels here.  Only the texels that are `within` go anywhere:
    those with axis number `position` from `first` to before `end`, of each such triple.  With
    `copies` a texel goes to that many places; further `axes` count them."""

    axes: tuple[Expr, ...]
    to: tuple[Expr, ...]
    blocks: int
    within: tuple[tuple[int, int, int], ...] = ()
    copies: tuple[int, ...] = ()

    def texels(self, whole: Extents) -> int:
        """Return how many texels are written, where the kernel's own result has these extents."""
        extents = [whole.n, self.blocks, whole.h, whole.w]
        for position, first, end in self.within:
            extents[position] = end - first
        return math.prod((*extents, *self.copies))


@dataclass(frozen=True, kw_only=True)
class Store:
    """A place that a kernel writes: all of `tensor` is its result's blocks from `first` on.  With
    `placing` each of their texels goes to a place of its own."""

    tensor: str
    first: int = 0
    placing: Placing | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Node:
    """One operator, or a group of operators that one kernel computes.

    A map or a fold computes its `body`.  A `prologue` is what a reduction folds, or a convolution
    reads, in place of the elements of its first input (`PROLOGUE_SHAPE`).  `epilogue` is applied
    to the result of any operator before it is stored, and reads that result under the name
    `RESULT`, and under `BESIDE` what the kernel computes beside it.  `parts` are bodies that an
    operator's kernel has names for.  `fused` names the operators inside, `also` further nodes whose
    results the kernel computes.  `stores` are the tensors that it writes, where
    they are not its output alone: ranges of the output in other memory, with the output among them
    or not.  `also_writes` are tensors of other forms beside that: what it changes in place, each an
    input under an earlier name, or the mean of what it makes.
    """

    RESULT, BESIDE = "@result", "@beside"

    name: str
    op: str
    inputs: tuple[str, ...]
    output: str
    attrs: Mapping[str, Any] = field(default_factory=dict)
    body: Body | None = None
    prologue: Body | None = None
    epilogue: Body | None = None
    parts: Mapping[str, Body] = field(default_factory=dict)
    fused: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    stores: tuple[Store, ...] = ()
    also_writes: tuple[str, ...] = ()

    @property
    def writes(self) -> tuple[str, ...]:
        """Return the tensors that its kernel writes."""
        made = tuple(dict.fromkeys(store.tensor for store in self.stores)) or (self.output,)
        return (*made, *self.also_writes)

    @property
    def is_map(self) -> bool:
        """Return whether a scalar expression alone says what it computes, one element at a time."""
        return self.op == "map"

    @property
    def moves_alone(self) -> bool:
        """Return whether it gives elements of its one input at other places and no more."""
        body = self.body if self.is_map and self.epilogue is None else None
        return body is not None and body.moves and len(self.inputs) == 1

    @property
    def is_fold(self) -> bool:
        """Return whether its expression says what it adds up, multiplies or picks over axes."""
        return self.op == "fold"

    @property
    def is_concat(self) -> bool:
        """Return whether it is a concatenation that may need no kernel."""
        return self.op == CONCAT

    @property
    def has_kernel(self) -> bool:
        """Return whether a family has a kernel for it."""
        return self.op not in NO_KERNEL

    @property
    def is_on_cpu(self) -> bool:
        """Return whether a function of the CPU computes it."""
        return self.op == CPU

    @property
    def is_device_copy(self) -> bool:
        """Return whether it copies a tensor between the memory of the CPU and that of the GPU."""
        return self.is_copy_to_cpu or self.is_copy_to_gpu

    @property
    def is_copy_to_cpu(self) -> bool:
        """Return whether it copies a tensor from the memory of the GPU to that of the CPU."""
        return self.op == TO_CPU

    @property
    def is_copy_to_gpu(self) -> bool:
        """Return whether it copies a tensor from the memory of the CPU to that of the GPU."""
        return self.op == TO_GPU

    @property
    def is_region(self) -> bool:
        """Return whether OpenCL ML computes it."""
        return self.op == CLML

    @property
    def is_region_memory(self) -> bool:
        """Return whether it is memory alone, which a region will write."""
        return self.op == ALLOC

    @property
    def bodies(self) -> tuple[Body, ...]:
        """Return all expressions that the node's kernel evaluates."""
        stated = (self.body, self.prologue, self.epilogue)
        return (*(body for body in stated if body is not None), *self.parts.values())

    @property
    def names(self) -> tuple[str, ...]:
        """Return the node's name, after those of further nodes that its kernel computes."""
        return (*self.also, self.name)

    @property
    def operators(self) -> tuple[str, ...]:
        """Return all operators that the node computes."""
        return self.fused or (self.op,)


@dataclass(frozen=True, kw_only=True, eq=False)
class Graph:
    """Nodes in execution order over named tensors."""

    tensors: Mapping[str, Tensor]
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    layouts: Mapping[str, Layout | None] = field(default_factory=dict)
    """How the axes of each tensor are to lie, from where that is chosen until it has its place."""
    placements: Mapping[str, Placement] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Tensor -> the tensor whose memory it is, where no kernel is needed between the two."""
    views: Mapping[str, View] = field(default_factory=dict)
    """Tensor -> the range of another one that it is.  A base can be a view itself."""
    states: Mapping[str, str] = field(default_factory=dict)
    """Output -> the input that it is in the next run: both are to be one memory."""
    precisions: Mapping[str, Precision] = field(default_factory=dict)
    """What tensors ask for beside what the options say of all; most ask for nothing."""

    @cached_property
    def input_names(self) -> frozenset[str]:
        """Return the inputs, to ask whether a tensor is one: graphs can have very many."""
        return frozenset(self.inputs)

    @cached_property
    def output_names(self) -> frozenset[str]:
        """Return the outputs, to ask whether a tensor is one."""
        return frozenset(self.outputs)

    @cached_property
    def state_names(self) -> frozenset[str]:
        """Return the inputs and outputs that are states, by either name."""
        return frozenset((*self.states, *self.states.values()))

    @property
    def results(self) -> tuple[str, ...]:
        """Return the outputs that a run hands out: all but states."""
        return tuple(name for name in self.outputs if name not in self.states)

    @cached_property
    def producers(self) -> Mapping[str, Node]:
        """Return the node that makes each tensor."""
        return {name: node for node in self.nodes for name in (*node.writes, node.output)}

    @cached_property
    def consumers(self) -> Mapping[str, tuple[Node, ...]]:
        """Return the nodes that read each tensor, in execution order."""
        found: dict[str, list[Node]] = {name: [] for name in self.tensors}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                found[name].append(node)
        return {name: tuple(nodes) for name, nodes in found.items()}

    def precision(self, name: str) -> Precision:
        """Return how exactly a tensor is computed and stored."""
        return self.precisions.get(name, AS_OPTIONS)

    def change_precision(self, names: Iterable[str], **changes: Any) -> Graph:
        """Change these fields of the tensors' precisions, and no other."""
        changed = {name: replace(self.precision(name), **changes) for name in names}
        return replace(self, precisions={**self.precisions, **changed}) if changed else self

    @cached_property
    def float32_names(self) -> frozenset[str]:
        """Return the tensors that are computed and stored in float32, whatever the options say."""
        return frozenset(name for name, asked in self.precisions.items() if asked.float32)

    def operand(self, name: str) -> OperandSpec:
        """Return the placed tensor as a kernel sees it."""
        tensor, placement = self.tensors[name], self.placements[name]
        owner, first = self.place(name)
        window = None
        if self.views and owner != self.aliases.get(name, name):
            window = BlockRange(first=first, blocks=self.operand(owner).extents.blocks)
        return OperandSpec(
            shape=tensor.shape,
            dtype=placement.dtype,
            memory=placement.memory,
            layout=placement.layout,
            window=window,
            low=placement.low,
        )

    def place(self, name: str) -> tuple[str, int]:
        """Return the tensor whose memory a tensor lies in, and its first block there."""
        name, first = self.aliases.get(name, name), 0
        while name in self.views:
            view = self.views[name]
            name, first = self.aliases.get(view.base, view.base), first + view.first
        return name, first

    def owner(self, name: str) -> str:
        """Return the tensor whose memory a tensor lies in: often itself."""
        return self.place(name)[0]

    @cached_property
    def output_owners(self) -> frozenset[str]:
        """Return the tensors whose memory the outputs lie in."""
        return frozenset(self.owner(name) for name in self.outputs)

    def makers(self, name: str) -> tuple[Node, ...]:
        """Return the nodes that write what a reader of this tensor reads.  None of an input: what a
        run writes to a state, its readers by that name come before."""
        if name in self.input_names:
            return ()
        owner, first = self.place(name)
        beyond = first + self._blocks(name)
        return tuple(
            node
            for node, start, end in self._writers.get(owner, ())
            if start < beyond and first < end
        )

    @cached_property
    def _writers(self) -> Mapping[str, list[tuple[Node, int, int]]]:
        """Who writes the memory of each owner: node, first block, the block behind the last."""
        found: dict[str, list[tuple[Node, int, int]]] = {}
        for node in self.nodes:
            for name in node.writes:
                owner, start = self.place(name)
                end = start + self._blocks(name)
                found.setdefault(owner, []).append((node, start, end))
        return found

    def _blocks(self, name: str) -> int:
        """Return blocks of a tensor that may be a view; 1 of others, which are read whole."""
        placement = self.placements.get(name)
        if placement is None or placement.layout is None:
            return 1
        return placement.layout.extents(self.tensors[name].shape).blocks

    def drop_unread(self) -> Graph:
        """Return the graph without nodes whose results nobody needs, and without theirs."""
        needed = set(self.outputs)
        for node in reversed(self.nodes):
            if needed.intersection((node.output, *node.also_writes)):
                needed.update((node.output, *node.inputs))
        return self.replace_nodes(node for node in self.nodes if node.output in needed)

    def replace_nodes(self, nodes: Iterable[Node], tensors: Iterable[Tensor] = ()) -> Graph:
        """Replace the nodes and add tensors; tensors that nothing uses any more are dropped."""
        kept = tuple(nodes)
        known = {**self.tensors, **{t.name: t for t in tensors}}
        used = {*self.inputs, *self.outputs, *self.aliases, *self.aliases.values()}
        for node in kept:
            used.update((*node.inputs, node.output, *node.writes))
        bases = {name: view.base for name, view in self.views.items()}
        found = used
        while found:
            found = {bases[name] for name in found if name in bases}
            used |= found
        return replace(
            self,
            nodes=kept,
            tensors={name: t for name, t in known.items() if name in used},
            precisions={n: p for n, p in self.precisions.items() if n in used},
            placements={n: p for n, p in self.placements.items() if n in used},
            views={n: v for n, v in self.views.items() if n in used},
        )

    def exchange(self, made: Iterable[Node], gone: Iterable[Node | str] = ()) -> Graph:
        """Put nodes in the places of those with the same outputs, and drop others that are gone."""
        changed = {node.output: node for node in made}
        dropped = {node if isinstance(node, str) else node.output for node in gone}
        kept = (node for node in self.nodes if node.output not in dropped)
        return self.replace_nodes(changed.get(node.output, node) for node in kept)

    def text(self) -> str:
        """Return one line a node, for dumps."""
        lines = [f"inputs  {', '.join(self._describe(n) for n in self.inputs)}"]
        for node in self.nodes:
            reads = ", ".join(self._describe(n) for n in node.inputs)
            label = node.op if not node.fused else f"{node.op}[{' '.join(node.fused)}]"
            lines.append(f"{self._describe(node.output)} = {label}({reads})")
            lines += [
                f"  its blocks from {store.first} on are written to {self._describe(store.tensor)}"
                for store in node.stores
            ]
        for name, owner in self.aliases.items():
            lines.append(f"{self._describe(name)} is %{owner}")
        for name, view in self.views.items():
            lines.append(f"{self._describe(name)} lies in %{view.base} from block {view.first} on")
        lines.append(f"outputs {', '.join(self._describe(n) for n in self.outputs)}")
        return "\n".join(lines) + "\n"

    def _describe(self, name: str) -> str:
        tensor = self.tensors[name]
        kind = "const " if tensor.value is not None else ""
        text = f"{kind}%{name}:{dims(tensor.shape)}:{tensor.dtype}"
        placement = self.placements.get(name)
        return text if placement is None else f"{text}@{placement.memory.value}:{placement.layout}"
