"""The weights of a convolution: texels, a flat buffer, or local memory that a work-group fills.

Through the texture cache each weight texel costs as much as an activation texel, and every public
Adreno kernel waits for the texture pipe.  From a buffer, at an index that is the same for the whole
wave, weights come through another pipe; that needs a work-group whose threads all make the same
output blocks.

What a work-group brings to local memory is one run of vectors of four: texels, in rows that it
reads whole, or a flat buffer.  Texels come through the cache that has the activations too, by
coordinates in place of addresses, and what waits for them waits half as long as for a buffer.

Operators that read bytes multiply them as integers, four a word.  A bias of whole numbers joins the
constant that sums of integers begin with: `(sum + rest) + bias` in integers is one addition, and
one constant to read instead of two.

Before -> after:
    epilogue round((@result + bias[c]) * scale[c])      rest[c]
    epilogue round(@result * scale[c])                  rest[c] + bias[c]
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from tvm_ffi.structural import structural_map

from adrenoc.base.tvmapi import (
    Buffer,
    Expr,
    const_int,
    construct,
    floordiv,
    floormod,
    iconst,
    lane,
    load_vector,
    minimum,
    tirx,
    tvm,
)
from adrenoc.ir.graph import Body, Graph, Node
from adrenoc.ir.layout import FLOAT_BYTES, LANES, WORDS, Memory
from adrenoc.ir.program import Matrix
from adrenoc.kernels.access import Access, BlockedAccess
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.shared.context import NodeKernel, Pack, RuleContext
from adrenoc.kernels.families.shared.conv_geometry import ConvWork, Oihw
from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.kernels.statements import SharedArray
from adrenoc.kernels.weights import fill_rows, pack_conv


def has_texel_weights(work: ConvWork, machine: Machine) -> bool:
    """Return whether weights are read as texels: then a thread never waits for a buffer.  Beside
    bytes, and beside an image that lies in a buffer, it would have to."""
    return work.textures and machine.texel_weights and work.image is None and not work.words


def declare_run(
    kernel: NodeKernel,
    name: str,
    kind: str,
    pack: Pack,
    prepare: Pack = np.asarray,
    *,
    dtype: str | None = None,
    transform: Matrix | None = None,
    texels: bool,
) -> Access:
    """Declare a constant that `pack` makes a flat run, as the next argument; `load_run` reads it.
    `prepare` and `transform` are as in `NodeKernel.pack_constant`; `dtype` is that of the elements
    if not that of all storage.  Halves of a flat buffer lie as 32-bit words, two in each."""
    if not texels:
        return kernel.flat(name, kind, lambda v: view_words(pack(v)), prepare, dtype, transform)
    rows = partial(fill_rows, most_rows=kernel.context.limits.image2d_max_height_texels)
    kind = f"{kind}_texels"
    return kernel.pack_constant(name, kind, lambda v: rows(pack(v)), prepare, transform, dtype)


def is_texels(run: Access) -> bool:
    """Return whether a run has rows of texels: a load gives one vector whatever the dtype."""
    return isinstance(run, BlockedAccess)


def load_run(builder: KernelBuilder, run: Access, first: Expr, offset: int, kind: str) -> Expr:
    """Load `first + offset` of a run: a texel, or 16 bytes of words, or four numbers.  What lies
    flat is loaded as `kind`; a texel is of the dtype of the arithmetic."""
    if not is_texels(run):
        return load_vector(run.buffer, first, offset, kind)
    at, width = first + iconst(offset), run.extents.w
    return run.texel(iconst(0), iconst(0), floordiv(at, width), floormod(at, width))


def view_words(run: np.ndarray) -> np.ndarray:
    """Return halves as 32-bit words; other numbers as they are."""
    return run.view(np.uint32) if run.dtype == np.float16 else run


BYTES_A_LOAD = LANES * FLOAT_BYTES
HALVES_A_LOAD = BYTES_A_LOAD // 2
"""Halves in one 16-byte load: two texels of weights."""


class TextureWeights:
    """Weights as texels `[tap, output block, column]` (`weights.pack_conv`)."""

    def __init__(
        self, builder: KernelBuilder, access: Access, first_block: Expr, out_blocks: int
    ) -> None:
        self._builder, self._access = builder, access
        self._first, self._count = first_block, out_blocks

    def row(self, tap: Expr, column: Expr) -> list[Expr]:
        """Return a vector of four output channels for each block of the thread: a texel each.
        `column` is the input channel within the window of the output block."""
        return [
            self._builder.let(
                self._access.texel(tap, iconst(0), self._first + iconst(b), column), "k"
            )
            for b in range(self._count)
        ]


class UniformWeights:
    """Weights in a buffer, in the order in which a thread reads them (`pack_uniform`).  For half
    arithmetic, halves are loaded as four 32-bit words and seen as eight halves, since compilers
    split a load of halves into single ones; for float arithmetic they are loaded with conversion,
    which needs no half type and so no cl_khr_fp16."""

    def __init__(
        self,
        builder: KernelBuilder,
        buffer: Buffer,
        group: Expr,
        taps: int,
        columns: int,
        out_blocks: int,
    ) -> None:
        self._builder, self._buffer = builder, buffer
        self._columns = columns
        lanes_a_load = HALVES_A_LOAD if builder.compute == "float16" else LANES
        self._texels_a_load = lanes_a_load // LANES
        self._loads = out_blocks // self._texels_a_load
        self._base = builder.let(group * iconst(taps * columns * self._loads), "wb")

    def row(self, tap: Expr, column: Expr) -> list[Expr]:
        """Return the same by one load for each one or two output blocks."""
        base, offset = _constant_part(column)
        first = self._base + (tap * iconst(self._columns) + base) * iconst(self._loads)
        texels: list[Expr] = []
        for number in range(self._loads):
            words = load_vector(
                self._buffer, first, offset * self._loads + number, self._builder.compute
            )
            texels += unpack_texels(self._builder, words)
        return texels


def unpack_texels(builder: KernelBuilder, words: Expr) -> list[Expr]:
    """Return what `load_vector` gave, as vectors of four: two for half arithmetic, else one."""
    if builder.compute != "float16":
        return [builder.let(words, "k")]
    lanes = HALVES_A_LOAD
    halves = builder.let(tirx.call_pure_extern(f"float16x{lanes}", f"as_half{lanes}", words), "k")
    return [
        builder.let(construct([lane(halves, part * LANES + i) for i in range(LANES)]), "k")
        for part in range(HALVES_A_LOAD // LANES)
    ]


def _constant_part(index: Expr) -> tuple[Expr, int]:
    """Return an index as what changes and what is added to it."""
    if isinstance(index, tirx.Add) and const_int(index.b) is not None:
        return index.a, const_int(index.b) or 0
    fixed = const_int(index)
    return (iconst(0), fixed) if fixed is not None else (index, 0)


def pack_uniform(weight: np.ndarray, out_blocks: int) -> np.ndarray:
    """Pack `[O, I, KH, KW]` for `UniformWeights`: [group, tap, column, block of group, 4], flat.
    Halves are returned as 32-bit words, two in each.  Output blocks are padded to whole groups."""
    texels = pack_conv(weight, 1)
    taps, blocks, columns, _ = texels.shape
    groups = -(-blocks // out_blocks)
    padded = np.zeros((taps, groups * out_blocks, columns, LANES), weight.dtype)
    padded[:, :blocks] = texels
    by_group = padded.reshape(taps, groups, out_blocks, columns, LANES)
    flat = np.ascontiguousarray(by_group.transpose(1, 0, 3, 2, 4)).reshape(-1)
    return view_words(flat)


def vectors_a_load(*, half: bool, texels: bool = False) -> int:
    """Return vectors of four that a load gives: a texel, 16 bytes of halves, or four numbers."""
    return HALVES_A_LOAD // LANES if half and not texels else 1


def vectors_held(vectors: int, threads: int, *, half: bool, texels: bool = False) -> int:
    """Return vectors of the array that so many weights are brought to.  Every thread stores what it
    loads, in the last round too: a test would wait."""
    of_a_round = threads * vectors_a_load(half=half, texels=texels)
    return -(-vectors // of_a_round) * of_a_round


def bring_weights(
    builder: KernelBuilder,
    weight: Access,
    first: Expr,
    loads: int,
    thread: Expr,
    threads: int,
    shared: SharedArray,
    *,
    at: int = 0,
    at_once: int | None = None,
) -> None:
    """Bring so many loads, from load `first` on, to `shared` from vector `at` on.  Neighbours load
    neighbours; `shared` has room for `vectors_held`.  A thread asks for `at_once` loads, or for
    all, before it waits."""
    per_load = vectors_a_load(half=builder.compute == "float16", texels=is_texels(weight))
    mine = builder.let(first + thread, "load")
    starts = list(range(0, loads, threads))
    step = at_once or max(len(starts), 1)
    for run in range(0, len(starts), step):
        waiting = []
        for done in starts[run : run + step]:
            place, left = mine, loads - done
            if left < threads:
                place = first + minimum(thread, iconst(left - 1))
            word = load_run(builder, weight, place, done, builder.compute)
            waiting.append((done, builder.let(word, "w")))
        for done, words in waiting:
            to = thread + iconst(done + at // per_load)
            if per_load > 1:
                shared.put_words(to, words)
            else:
                shared[to] = words


SIXTEEN = WORDS * LANES
"""Channels that one read of bytes gives."""


def fits_bytes(weight: np.ndarray) -> bool:
    """Return whether weights are whole numbers that a signed byte holds."""
    low, high = np.iinfo(np.int8).min, np.iinfo(np.int8).max
    whole = np.array_equal(weight, np.rint(weight))
    return bool(whole and weight.min(initial=0) >= low and weight.max(initial=0) <= high)


WORD_BYTES = 4

MOST_PRODUCTS = 65536
"""The most products of bytes in one sum: so many stay below 2^31."""


def suits_dot(context: RuleContext, node: Node, oihw: Oihw, refused: str = "") -> bool:
    """Return whether an operator reads bytes, and its weights are such that integers do.  `refused`
    says why its kernel would not do all the same."""
    x, weight = (context.graph.tensors[name] for name in node.inputs[:2])
    if context.graph.operand(x.name).memory is not Memory.BYTES or weight.value is None:
        return False
    if refused:
        reason = refused
    elif not fits_bytes(weight.value):
        reason = f"its weights {weight.name} are not whole numbers of eight bits"
    elif oihw(weight.value)[0].size > MOST_PRODUCTS:
        reason = f"sums of {oihw(weight.value)[0].size} products, at most {MOST_PRODUCTS}"
    else:
        return True
    context.log.add(node.name, "integers computed as floats", reason)
    return False


_LARGEST_BYTE, _BEYOND_INT32 = 255, 2**31


@dataclass(frozen=True, kw_only=True)
class IntegerBias:
    """A node whose epilogue adds no bias any more, and the bias: its name and its integers."""

    node: Node
    name: str = ""
    values: np.ndarray | None = None

    def operand(self, kernel: NodeKernel, family: str, low: int, oihw: Oihw) -> Access:
        """Return the constant of `rest`, as the kernel's next argument."""
        kind = f"{family}_rest{-low}{self.name}"
        name = self.node.inputs[1]
        return kernel.flat(name, kind, lambda w: self.rest(w, low), oihw, "float32")

    def rest(self, weight: np.ndarray, low: int) -> np.ndarray:
        """Pack what is added to the sums of each output channel, as int32 [blocks, 4].  It makes up
        for bytes that are stored less their lowest value `low`, and holds the bias where that
        consists of whole numbers."""
        sums = weight.astype(np.int64).sum(axis=(1, 2, 3)) * low
        rest = np.zeros(-(-len(sums) // LANES) * LANES, np.int32)
        rest[: len(sums)] = sums
        if self.values is not None:
            rest[: len(self.values)] += self.values.astype(np.int32)
        return rest


def split_bias(graph: Graph, node: Node, oihw: Oihw) -> IntegerBias:
    """Take the bias out of a node's epilogue where it is the first that is added to the result."""
    body = node.epilogue
    if body is None:
        return IntegerBias(node=node)
    found: list[tuple[Any, str]] = []
    reads: list[str] = []

    def count(load: Any) -> Any:
        reads.append(_source(body, load))
        return load

    def note(part: Any) -> Any:
        for one, other in ((part.a, part.b), (part.b, part.a)):
            if _source(body, one) == Node.RESULT and isinstance(other, tvm.ir.TensorLoad):
                found.append((other, _source(body, other)))
        return part

    structural_map(body.value, (tvm.ir.TensorLoad, count))
    structural_map(body.value, (tirx.Add, note))
    if len(found) != 1 or reads.count(Node.RESULT) != 1 or reads.count(found[0][1]) != 1:
        return IntegerBias(node=node)
    ((load, name),) = found
    values = _read_whole_constants(graph, node, load, name)
    weight = graph.tensors[node.inputs[1]].value
    if values is None or weight is None:
        return IntegerBias(node=node)
    sums = np.abs(oihw(weight).astype(np.float64)).sum(axis=(1, 2, 3)) * _LARGEST_BYTE
    if (np.abs(values) + sums).max(initial=0) >= _BEYOND_INT32:
        return IntegerBias(node=node)

    def drop_bias(part: Any) -> Any:
        if _source(body, part.a) == name:
            return part.b
        return part.a if _source(body, part.b) == name else part

    value = structural_map(body.value, (tirx.Add, drop_bias))
    kept = replace(body, value=value)
    return IntegerBias(node=replace(node, epilogue=kept.drop_unread()), name=name, values=values)


def _source(body: Body, load: Any) -> str:
    return (isinstance(load, tvm.ir.TensorLoad) and body.source_of(load.source)) or ""


def _read_whole_constants(graph: Graph, node: Node, load: Any, name: str) -> np.ndarray | None:
    """Return a constant of whole numbers, one an output channel; None if it is another."""
    tensor = graph.tensors.get(name)
    value = None if tensor is None else tensor.value
    spec = graph.operand(node.output)
    if value is None or spec.layout is None or node.epilogue is None:
        return None
    channels = spec.extents.c
    if value.size != channels or not np.array_equal(value, np.rint(value)):
        return None
    along = spec.roles.axis("C")
    for index, extent in zip(load.indices, value.shape, strict=True):
        own = along is not None and index.same_as(node.epilogue.axes[along])
        if (extent == channels) != own and not (extent == 1 and const_int(index) == 0):
            return None
        if extent != 1 and not own:
            return None
    return np.asarray(value, np.float64).reshape(-1)
