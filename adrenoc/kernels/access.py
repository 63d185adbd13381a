"""How a kernel reads and writes a tensor, whatever memory it lies in.

Three kinds of memory, one interface: a texture (RGBA texels, zero outside), a buffer of blocks
of four channels, and a plain row-major buffer as the user's own inputs and outputs are.  A
kernel family is written once against `Access` and serves them all.

Reads and writes of whole numbers that are stored as bytes.

Sixteen channels of a pixel lie beside each other, four in each 32-bit word.  Kernels that compute
with floats read and write four channels as ever; products of integers take whole words.
"""

from collections.abc import Sequence

from adrenoc.base.tvmapi import (
    Buffer,
    BufferLoad,
    Expr,
    cast,
    const_int,
    construct,
    dtype_of,
    fconst,
    floordiv,
    floormod,
    iconst,
    if_then_else,
    lane,
    load_numbers,
    load_vector,
    maximum,
    minimum,
    pack_bytes,
    select,
    simplify,
    splat,
    store,
    texture_load,
    texture_store,
    tirx,
)
from adrenoc.ir.layout import LANES, WORDS, Extents, Layout, OperandSpec, TexelOrder
from adrenoc.kernels.statements import Statements


def index_of(layout: Layout, n: Expr, c: Expr, h: Expr, w: Expr) -> list[Expr]:
    """Return the logical index of (n, c, h, w) in a tensor of this layout."""
    by_role = {"N": n, "C": c, "H": h, "W": w, "1": iconst(0)}
    return [by_role[role] for role in layout.roles]


class Access:
    """Reads and writes of one tensor in one kernel.  A position is (n, block, h, w), all int32: the
    batch, the block of four channels, row and column.  Values are of the builder's compute dtype;
    integer tensors keep their own."""

    safe_outside = False
    """Whether a read outside of the tensor does no harm."""

    def __init__(self, spec: OperandSpec, buffer: Buffer | None, statements: Statements) -> None:
        self.spec = spec
        self._buffer = buffer
        self._statements = statements

    @property
    def buffer(self) -> Buffer:
        """Return the parameter itself, for kernels that index it in their own way.

        Raises:
            TypeError: the tensor is computed where it is read, or spread over several buffers.
        """
        if self._buffer is None:
            raise TypeError("a tensor that lies in no buffer of its own is indexed as one")
        return self._buffer

    @property
    def extents(self) -> Extents:
        """Extents of the roles N, C, H, W."""
        return self.spec.extents

    # Some tensors are read alone, or by texels alone, or written alone: the rest they refuse.

    def element(self, index: Sequence[Expr]) -> Expr:
        """Return one element at a logical index that lies inside of the tensor."""
        raise TypeError(f"{type(self).__name__}: no element of such a tensor is read")

    def texel(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        """Return four channels at a position inside of the tensor."""
        raise TypeError(f"{type(self).__name__}: no texel of such a tensor is read")

    def write(self, n: Expr, block: Expr, h: Expr, w: Expr, value: Expr) -> None:
        """Store four channels; lanes beyond the last channel become zero or are not stored."""
        raise TypeError(f"{type(self).__name__}: such a tensor is not written")

    def padded_texel(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        """Return four channels, or zeros where (h, w) lies outside of the tensor."""
        e = self.extents
        inside = (h >= 0) & (h < iconst(e.h)) & (w >= 0) & (w < iconst(e.w))
        zero = splat(fconst(0.0, self._statements.compute))
        return if_then_else(inside, self.texel(n, block, h, w), zero)

    def position(self, index: Sequence[Expr]) -> tuple[Expr, Expr, Expr, Expr]:
        """Return (n, c, h, w) of a logical index."""
        by_role = dict(zip(self.spec.roles.roles, index, strict=True))
        n, c, h, w = (by_role.get(role, iconst(0)) for role in "NCHW")
        return n, c, h, w

    def index(self, n: Expr, c: Expr, h: Expr, w: Expr) -> list[Expr]:
        """Return the logical index of (n, c, h, w)."""
        return index_of(self.spec.roles, n, c, h, w)

    def _cast_to_compute(self, value: Expr) -> Expr:
        """Return `value` in the dtype that the kernel computes in."""
        scalar, _, lanes = dtype_of(value).partition("x")
        if not scalar.startswith("float") or scalar == self._statements.compute:
            return value
        return cast(value, self._statements.compute + (f"x{lanes}" if lanes else ""))

    def _cast_to_storage(self, value: Expr) -> Expr:
        """Return `value` in the dtype that lies in memory."""
        scalar, _, lanes = dtype_of(value).partition("x")
        if scalar == self.spec.dtype:
            return value
        return cast(value, self.spec.dtype + (f"x{lanes}" if lanes else ""))


class BlockedAccess(Access):
    """A tensor in blocks of four channels."""

    def coordinates(self, n: Expr, block: Expr, h: Expr, w: Expr) -> tuple[Expr, Expr, Expr]:
        """Return (layer, row, col) of a texel."""
        e, window = self.extents, self.spec.window
        blocks = e.blocks if window is None else window.blocks
        if window is not None and window.first:
            block = block + iconst(window.first)
        if self.spec.roles.order is TexelOrder.PLANES:
            return n * iconst(blocks) + block, h, w
        return n, h * iconst(e.w) + w, block

    def _mask_tail(self, block: Expr, value: Expr) -> Expr:
        """Return `value` with zeros in the lanes beyond the last channel."""
        tail = self.extents.c % LANES
        last = self.extents.blocks - 1
        if tail == 0 or const_int(block) not in (None, last):
            return value
        value = self._statements.let(value)
        zero = fconst(0.0, dtype_of(value).partition("x")[0])
        kept = construct([lane(value, i) if i < tail else zero for i in range(LANES)])
        return kept if last == 0 else if_then_else(block == iconst(last), kept, value)


class TextureAccess(BlockedAccess):
    """An image2d_array of RGBA texels."""

    safe_outside = True

    def texel(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        layer, row, col = self.coordinates(n, block, h, w)
        # A float image must be read as float: reading it as half is undefined.
        dtype = "float32" if self.spec.dtype == "float32" else self._statements.compute
        return self._cast_to_compute(texture_load(self.buffer, layer, row, col, dtype))

    def padded_texel(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        if self.spec.roles.order is TexelOrder.PLANES:
            return self.texel(n, block, h, w)  # the sampler's border is the padding
        return super().padded_texel(n, block, h, w)

    def element(self, index: Sequence[Expr]) -> Expr:
        n, c, h, w = self.position(index)
        # Reading before the test that may guard this element is safe: a texture has no outside.
        texel = self._statements.share(self.texel(n, simplify(floordiv(c, LANES)), h, w), "texel")
        component = simplify(floormod(c, LANES))
        fixed = const_int(component)
        if fixed is not None:
            return lane(texel, fixed)
        component = self._statements.share(component, "component")
        chosen = lane(texel, LANES - 1)
        for i in reversed(range(LANES - 1)):
            chosen = select(component == iconst(i), lane(texel, i), chosen)
        return self._statements.share(chosen, "element")

    def write(self, n: Expr, block: Expr, h: Expr, w: Expr, value: Expr) -> None:
        layer, row, col = self.coordinates(n, block, h, w)
        value = self._cast_to_compute(self._mask_tail(block, value))
        value = self._cast_to_storage(value) if self.spec.dtype == "float32" else value
        self._statements.emit(texture_store(self.buffer, layer, row, col, value))


class BlockedBufferAccess(BlockedAccess):
    """Blocks of four channels in a buffer."""

    def texel(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        layer, row, col = self.coordinates(n, block, h, w)
        lanes = [layer, row, col, _lanes()]
        return self._cast_to_compute(BufferLoad(self.buffer, lanes))

    def element(self, index: Sequence[Expr]) -> Expr:
        n, c, h, w = self.position(index)
        block, component = simplify(floordiv(c, LANES)), simplify(floormod(c, LANES))
        layer, row, col = self.coordinates(n, block, h, w)
        return self._cast_to_compute(BufferLoad(self.buffer, [layer, row, col, component]))

    def write(self, n: Expr, block: Expr, h: Expr, w: Expr, value: Expr) -> None:
        layer, row, col = self.coordinates(n, block, h, w)
        value = self._cast_to_storage(self._mask_tail(block, value))
        self._statements.emit(store(self.buffer, [layer, row, col, _lanes()], value))


class PlainAccess(Access):
    """A row-major buffer."""

    def element(self, index: Sequence[Expr]) -> Expr:
        if self.spec.dtype == "bool":  # OpenCL has no bool in memory; TVM stores a byte
            return BufferLoad(self.buffer, list(index))
        return self._cast_to_compute(BufferLoad(self.buffer, list(index)))

    def texel(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        tail = self.extents.c % LANES
        last = self.extents.blocks - 1
        zero = fconst(0.0, self._statements.compute)
        channels = []
        for i in range(LANES):
            element = self.element(self.index(n, block * iconst(LANES) + iconst(i), h, w))
            if tail and i >= tail:
                element = if_then_else(block < iconst(last), element, zero)
            channels.append(element)
        return construct(channels)

    def write(self, n: Expr, block: Expr, h: Expr, w: Expr, value: Expr) -> None:
        tail = self.extents.c % LANES
        last = self.extents.blocks - 1
        value = self._statements.let(self._cast_to_storage(value))
        for i in range(LANES):
            inside = block < iconst(last) if tail and i >= tail else None
            with self._statements.when(inside):
                index = self.index(n, block * iconst(LANES) + iconst(i), h, w)
                self._statements.emit(store(self.buffer, index, lane(value, i)))

    def numbers(self, base: Expr, offset: int, count: int, *, aligned: bool) -> Expr:
        """Number `base + offset` in the order of memory, or four from there on; float32 only."""
        loaded = load_numbers(self.buffer, base, offset, count, aligned=aligned)
        return self._cast_to_compute(loaded)

    def write_element(self, index: Sequence[Expr], value: Expr) -> None:
        """Store one element at its index in the tensor's own order of axes."""
        self._statements.emit(store(self.buffer, list(index), self._cast_to_storage(value)))


def _lanes() -> Expr:
    return tirx.Ramp(iconst(0), iconst(1), LANES)


_BYTE_BITS = 8
_ONE_IN_EACH = 0x01010101


class BytesAccess(BlockedAccess):
    """Blocks of sixteen channels in a buffer of 32-bit words; a byte is a number less `low`."""

    def coordinates(self, n: Expr, block: Expr, h: Expr, w: Expr) -> tuple[Expr, Expr, Expr]:
        """Return (layer, row, col) of the sixteen channels that hold a block of four."""
        layers = -(-self.extents.blocks // WORDS)
        return n * iconst(layers) + floordiv(block, WORDS), h, w

    def _word(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        layer, row, col = (simplify(i) for i in self.coordinates(n, block, h, w))
        return BufferLoad(self.buffer, [layer, row, col, simplify(floormod(block, WORDS))])

    def texel(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        """Return four channels as floats of the kernel's arithmetic."""
        return self._numbers(self._word(n, block, h, w))

    def _numbers(self, word: Expr) -> Expr:
        """Return the four numbers of a word, as floats of the kernel's arithmetic."""
        parts = tirx.call_pure_extern("uint8x4", "as_uchar4", word)
        compute = self._statements.compute
        kind = "half" if compute == "float16" else "float"
        numbers = tirx.call_pure_extern(f"{compute}x4", f"convert_{kind}4", parts)
        low = self.spec.low
        return numbers + splat(fconst(float(low), compute)) if low else numbers

    def padded_texel(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        """Return four channels as floats, or zeros outside."""
        return self._numbers(self.padded_word(n, block, h, w))

    def padded_word(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        """Return four channels as one word; the bytes that mean zero where (h, w) lies outside."""
        row, column, inside = self._nearest(h, w)
        word = self._statements.let(self._word(n, block, row, column), "word")
        return self._statements.let(select(inside, word, self._zero), "word")

    def _nearest(self, h: Expr, w: Expr) -> tuple[Expr, Expr, Expr]:
        """Return the nearest position inside, and whether it is the one that was asked for.  A
        branch around each read would wait for one before the next is asked for."""
        e, zero = self.extents, iconst(0)
        inside = (h >= zero) & (h < iconst(e.h)) & (w >= zero) & (w < iconst(e.w))
        row = maximum(minimum(h, iconst(e.h - 1)), zero)
        column = maximum(minimum(w, iconst(e.w - 1)), zero)
        return row, column, inside

    @property
    def _zero(self) -> Expr:
        """Return a word of four bytes that mean zero."""
        return tirx.const(-self.spec.low * _ONE_IN_EACH, "uint32")

    def element(self, index: Sequence[Expr]) -> Expr:
        """Return one channel as a float."""
        n, c, h, w = self.position(index)
        word = self._word(n, simplify(floordiv(c, LANES)), h, w)
        bits = cast(simplify(floormod(c, LANES)) * iconst(_BYTE_BITS), "uint32")
        byte = tirx.BitwiseAnd(tirx.RShift(word, bits), tirx.const(255, "uint32"))
        compute = self._statements.compute
        return cast(byte, compute) + fconst(float(self.spec.low), compute)

    def write(self, n: Expr, block: Expr, h: Expr, w: Expr, value: Expr) -> None:
        """Store four floats that are whole numbers of the tensor's range."""
        value = self._mask_tail(block, cast(value, "float32x4"))
        low = self.spec.low
        value = value - splat(fconst(float(low), "float32")) if low else value
        word = pack_bytes(self._statements.let(value, "bytes"))
        layer, row, col = (simplify(i) for i in self.coordinates(n, block, h, w))
        place = [layer, row, col, simplify(floormod(block, WORDS))]
        self._statements.emit(store(self.buffer, place, word))

    def put(self, n: Expr, sixteen: Expr, h: Expr, w: Expr, number: int, word: Expr) -> None:
        """Store a word of four bytes: that of this number among those of sixteen channels."""
        layers = -(-self.extents.blocks // WORDS)
        place = [simplify(n * iconst(layers) + sixteen), h, w, iconst(number)]
        self._statements.emit(store(self.buffer, place, word))

    def words(self, n: Expr, sixteen: Expr, h: Expr, w: Expr, *, padded: bool) -> Expr:
        """Sixteen channels as four words; the bytes that mean zero where padded and outside."""
        inside = None
        if padded:
            h, w, inside = self._nearest(h, w)
        e = self.extents
        layers = -(-e.blocks // WORDS)
        row = (n * iconst(layers) + sixteen) * iconst(e.h) + h
        loaded = load_vector(self.buffer, row * iconst(e.w) + w, 0, "uint32")
        if inside is None:
            return loaded
        words = self._statements.let(loaded, "words")
        return tirx.call_extern("uint32x4", "WORDS_WHERE", inside, words, self._zero)
