"""Keys and values of new tokens: normed, rotated, rounded, and written into the rows of a cache.

Rotary positions turn pairs of numbers of a head by an angle of the token's position.  Half-split
pairs are (j, j + R/2), interleaved ones (2j, 2j + 1), of the first R numbers of a head; the rest
passes through.

A cache may keep numbers in few bits: as whole numbers, each times a scale of its channel.  Of eight
bits they are signed bytes; of four bits two lie in a byte, the first in its low bits, each with
eight added.

A thread of what appends rows makes four numbers of one head of one token.  The cache is
[1, heads, rows, head], row by row; the first new row is a number in memory.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from adrenoc.base.tvmapi import (
    Expr,
    cast,
    construct,
    fconst,
    floormod,
    iconst,
    if_then_else,
    lane,
    load_numbers,
    load_texel,
    maximum,
    minimum,
    round_numbers,
    simplify,
    splat,
    store,
    tirx,
)
from adrenoc.importers.relax.own import NIBBLE, OF_ROWS, Kinds, head_of, name_constants, rows_of
from adrenoc.ir.graph import Node
from adrenoc.ir.layout import LANES
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.shared.context import KernelCall, NodeKernel, RuleContext
from adrenoc.kernels.families.shared.row_product import declare_numbers
from adrenoc.kernels.walk import ACCUMULATOR, sum_lanes, widen

Texel = Callable[[Expr], Expr]
"""Block of four numbers of a head -> these numbers, in float."""


@dataclass(frozen=True, kw_only=True)
class Rotation:
    """`cos` and `sin` hold a row of `width` / 2 numbers for each position, flat."""

    cos: Access
    sin: Access
    width: int
    interleaved: bool


def rotate(
    builder: KernelBuilder,
    rotation: Rotation | None,
    position: Expr,
    block: Expr,
    blocks: int,
    texel: Texel,
) -> Expr:
    """Four numbers of a head at `block` of its `blocks`, turned by the angle of `position`."""
    if rotation is None:
        return builder.let(texel(block), "x")
    rotated = rotation.width // LANES
    if rotated == blocks:
        return _turn(builder, rotation, position, block, texel)
    # What passes through reads where it is: the other half of a pair would lie beyond the head.
    within = block < iconst(rotated)
    nearest = builder.let(if_then_else(within, block, iconst(0)), "block")
    turned = _turn(builder, rotation, position, nearest, texel)
    kept = builder.let(texel(block), "x")
    return builder.let(if_then_else(within, turned, kept), "x")


def _turn(
    builder: KernelBuilder, rotation: Rotation, position: Expr, block: Expr, texel: Texel
) -> Expr:
    if rotation.interleaved:
        return _turn_neighbours(builder, rotation, position, block, texel)
    half = rotation.width // 2 // LANES
    first = block < iconst(half)
    other = builder.let(if_then_else(first, block + iconst(half), block - iconst(half)), "other")
    row = position * iconst(rotation.width // 2)
    at = builder.let(row + if_then_else(first, block, other) * iconst(LANES), "angle")
    cos = builder.let(load_numbers(rotation.cos.buffer, at, 0, LANES, aligned=True), "cos")
    sin = builder.let(load_numbers(rotation.sin.buffer, at, 0, LANES, aligned=True), "sin")
    x, y = builder.let(texel(block), "x"), builder.let(texel(other), "y")
    turned = builder.let(y * sin, "turned")
    return builder.let(if_then_else(first, x * cos - turned, x * cos + turned), "x")


def _turn_neighbours(
    builder: KernelBuilder, rotation: Rotation, position: Expr, block: Expr, texel: Texel
) -> Expr:
    at = position * iconst(rotation.width // 2) + block * iconst(2)
    x = builder.let(texel(block), "x")
    lanes: list[Expr] = []
    for pair in range(2):
        cos = builder.let(load_numbers(rotation.cos.buffer, at, pair, 1, aligned=False), "cos")
        sin = builder.let(load_numbers(rotation.sin.buffer, at, pair, 1, aligned=False), "sin")
        a, b = lane(x, 2 * pair), lane(x, 2 * pair + 1)
        lanes += [a * cos - b * sin, b * cos + a * sin]
    return builder.let(construct(lanes), "x")


def known_position(builder: KernelBuilder, position: Access, token: Expr, rows: int) -> Expr:
    """Return the row of new token number `token`, kept within the rows of the cache.  What fills up
    the last tokens of a prompt may lie beyond; it is not stored, nor read."""
    first = position.element([iconst(0)])
    row = minimum(cast(first, "int32") + token, iconst(rows - 1))
    return builder.let(maximum(row, iconst(0)), "position")


def head_texel(x: Access, token: Expr, first_block: Expr) -> Texel:
    """Reads a head of a token: its blocks lie beside each other from `first_block` on."""

    def read(block: Expr) -> Expr:
        n, h, w = place_of_token(x, token)
        return widen(x.texel(n, simplify(first_block + block), h, w))

    return read


def place_of_token(x: Access, token: Expr) -> tuple[Expr, Expr, Expr]:
    """Return (n, h, w) of a token of a batch of one, whose tokens lie along one axis."""
    e = x.extents
    along = [iconst(0), iconst(0), iconst(0)]
    for number, extent in enumerate((e.n, e.h, e.w)):
        if extent > 1:
            along[number] = token
    return along[0], along[1], along[2]


@dataclass(frozen=True, kw_only=True)
class RowQuanta:
    """`scales` holds a number for each channel of all heads of the cache, flat."""

    scales: Access
    bits: int

    def scale(self, block: Expr) -> Expr:
        """Return the scales of four channels, at this block of all heads."""
        return load_numbers(self.scales.buffer, block * iconst(LANES), 0, LANES, aligned=True)

    def round(self, value: Expr, block: Expr) -> Expr:
        """Return four numbers as whole ones, in float."""
        last = float((1 << (self.bits - 1)) - 1)
        whole = round_numbers(value / self.scale(block))
        bounds = [splat(fconst(bound, "float32")) for bound in (-last - 1, last)]
        return minimum(maximum(whole, bounds[0]), bounds[1])


def round_row(builder: KernelBuilder, quanta: RowQuanta | None, value: Expr, block: Expr) -> Expr:
    """Return four numbers as the cache keeps them; `block` is one of all heads."""
    return value if quanta is None else builder.let(quanta.round(value, block), "rounded")


def open_texel(quanta: RowQuanta | None, value: Expr, block: Expr) -> Expr:
    """Return four numbers by their scales: of what the cache keeps, or of a query that meets it."""
    return value if quanta is None else value * quanta.scale(block)


def store_texel(
    builder: KernelBuilder,
    quanta: RowQuanta | None,
    cache: Access,
    place: tuple[Expr, Expr],
    block: Expr,
    value: Expr,
) -> None:
    """Write four numbers, as the cache keeps them, to the block of a row; `place` is head, row."""
    stored = str(cache.spec.dtype)
    lanes = [lane(value, i) for i in range(LANES)]
    if quanta is not None and quanta.bits == NIBBLE:
        codes = [cast(one, "int32") + iconst(1 << (NIBBLE - 1)) for one in lanes]
        lanes = [
            low | (high << iconst(NIBBLE)) for low, high in zip(*[iter(codes)] * 2, strict=True)
        ]
    for i, number in enumerate(lanes):
        at: list[Expr] = [iconst(0), *place, block * iconst(len(lanes)) + iconst(i)]
        builder.emit(store(cache.buffer, at, cast(number, stored)))


def load_row(cache: Access, quanta: RowQuanta | None, at: Expr) -> Expr:
    """Return four numbers of a cache as it keeps them, in float, at this block of all rows."""
    if quanta is None:
        return load_texel(cache.buffer, at)
    # Bytes, or numbers from -8 to 7, which lie two to a byte: macros of `prelude.cl`.
    name = "LOAD_NIBBLES4" if quanta.bits == NIBBLE else "LOAD_CHAR4"
    return tirx.call_extern("float32x4", name, cache.buffer.data, at)


@dataclass(frozen=True, kw_only=True)
class HeadNorm:
    """`gains` holds a factor for each number of a head, flat, in float32."""

    gains: Access
    epsilon: float

    def scale(self, squares: Expr, head: int) -> Expr:
        """Return the factor of a head of so many numbers, in all lanes, by its sums of squares."""
        mean = sum_lanes(squares)
        one = fconst(1.0, ACCUMULATOR)
        root = tirx.sqrt(mean / fconst(head, ACCUMULATOR) + fconst(self.epsilon, ACCUMULATOR))
        return splat(one / root)

    def gain(self, block: Expr) -> Expr:
        """Return the factors of four numbers."""
        return load_numbers(self.gains.buffer, block * iconst(LANES), 0, LANES, aligned=True)


def norm_head(builder: KernelBuilder, norm: HeadNorm | None, blocks: int, read: Texel) -> Texel:
    """Reads a head as the norm leaves it; each thread adds up all of it by itself."""
    if norm is None:
        return read
    squares = builder.registers(1, dtype=ACCUMULATOR, fill=0.0)
    with builder.loop(blocks, "b", rolled=True) as block:
        value = builder.let(read(block), "x")
        squares[0] = squares[0] + value * value
    scale = builder.let(norm.scale(builder.let(squares[0], "squares"), blocks * LANES), "scale")
    return lambda block: read(block) * scale * norm.gain(block)


@dataclass(frozen=True, kw_only=True)
class CacheForm:
    """A cache of keys or values [1, `kept`, rows, `head`], and what meets its rows.

    There may be `rows` rows, of which it holds the last `held`.  `norms` are of queries and of keys
    or of the one that there is, `quanta` of keys and of values.  `sinks` are scores beside those of
    the rows, one a head; `bias` is added to the scores of a head, [heads, rows] flat, by how many
    rows a row lies before the token.  `window` is how many rows a token sees, itself included, 0
    for all; `cap` bounds scores as cap * tanh(score / cap), 0 does not.
    """

    kept: int
    head: int
    rows: int
    held: int
    rotation: Rotation | None
    norms: tuple[HeadNorm | None, ...]
    quanta: tuple[RowQuanta | None, ...]
    sinks: Access | None
    bias: Access | None
    scale: float
    window: int
    cap: float

    @property
    def blocks(self) -> int:
        """Return the blocks of four numbers that a head has."""
        return self.head // LANES

    def place_row(self, row: Expr) -> Expr:
        """Return where a row lies: among the last ones, in the place of one that none sees."""
        return row if self.held == self.rows else floormod(row, self.held)


def declare_form(
    kernel: NodeKernel, node: Node, cache: str, kinds: Kinds, others: Sequence[str]
) -> CacheForm:
    """Declare the constants that stand behind a node's operands, and read the rest of the form."""
    attrs, held = node.attrs, name_constants(kinds, node.attrs, others)
    _, kept, count, width = kernel.context.graph.tensors[cache].shape
    rotation = None
    if held["tables"]:
        cos, sin = (declare_numbers(kernel, name, "angles") for name in held["tables"])
        wide, interleaved = int(attrs["rotated"]), bool(attrs["interleaved"])
        rotation = Rotation(cos=cos, sin=sin, width=wide, interleaved=interleaved)
    norms = [
        HeadNorm(gains=declare_numbers(kernel, name, "gains"), epsilon=float(attrs["epsilon"]))
        for name in held["gains"]
    ]
    sinks, bias = (
        next((declare_numbers(kernel, name, kind) for name in held.get(kind, ())), None)
        for kind in ("sinks", "bias")
    )
    quanta = [
        RowQuanta(scales=declare_numbers(kernel, name, "scales"), bits=int(attrs["bits"]))
        for name in held["scales"]
    ]
    return CacheForm(
        kept=kept,
        head=head_of(width, int(attrs["bits"])),
        rows=rows_of(count, attrs),
        held=count,
        rotation=rotation,
        norms=(*norms, None, None)[:2],
        quanta=(*quanta, None, None)[:2],
        sinks=sinks,
        bias=bias,
        scale=float(attrs.get("scale", 1.0)),
        window=int(attrs.get("window", 0)),
        cap=float(attrs.get("cap", 0.0)),
    )


def tokens_of(shape: tuple[int, ...]) -> int:
    """Return tokens of a tensor of a batch of one, whose last axis holds the channels."""
    return math.prod(shape[:-1])


def append_rows_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel of cache[0, head, position + token, :] = x[token, first + head * size :].
    Inputs: the cache, new rows, the first row's number; perhaps constants (`OF_ROWS`)."""
    cache, new, first, *others = node.inputs
    kernel = context.kernel(node, "append_rows")
    x, position = kernel.input(new), kernel.input(first)
    form = declare_form(kernel, node, cache, OF_ROWS, others)
    out, _ = kernel.output()
    builder, blocks = kernel.builder, form.blocks
    tokens = tokens_of(context.graph.tensors[new].shape)
    block, head, token = builder.threads(blocks, form.kept, tokens)
    row = builder.let(cast(position.element([iconst(0)]), "int32") + token, "row")
    at = known_position(builder, position, token, form.rows)
    start = head * iconst(blocks) + iconst(int(node.attrs["first"]) // LANES)
    read = norm_head(builder, form.norms[0], blocks, head_texel(x, token, start))
    value = rotate(builder, form.rotation, at, block, blocks, read)
    value = round_row(builder, form.quanta[0], value, head * iconst(blocks) + block)
    with builder.when((row >= iconst(0)) & (row < iconst(form.rows))):
        store_texel(builder, form.quanta[0], out, (head, form.place_row(row)), block, value)
    return kernel.call()
