"""Convolution with its weights in local memory, which a work-group shares.

A texture read takes the texture pipe as long as 64 half multiply-adds take the arithmetic on an
Adreno 6xx, a read from local memory an eighth of that.  So the threads of a work-group bring the
weights of some input blocks together, each thread a few of them, and then read them from there.
They are brought as texels where textures are used (`conv_weights.py`): then no thread waits for a
buffer, which takes twice as long, and no address takes registers.

```
for ky, chunk:
    each thread: shared[t] = weights[t of this chunk]        barrier
    for input blocks of chunk:
        texels of a row of `unroll` blocks, reused by its taps
        for output block, kx:                                sums += texel * shared
    barrier
```

A thread waits for texels once a pass: the more blocks a pass takes, the fewer waits.

Few pixels and many channels leave a GPU idle: then `split_k` threads share the input blocks of one
tile, and their sums are added through local memory.

Transposed convolutions as convolutions: one for each pixel of a rectangle of the output.

Before -> after:
    y = conv2d_transpose(x, w of 4 x 4, strides 2)     y[f::2, g::2] = conv2d(x, w of 2 x 2) of
                                                       phase (f, g), all in one kernel
"""

from dataclasses import dataclass
from itertools import product

from adrenoc.base.tvmapi import (
    Expr,
    floordiv,
    floormod,
    iconst,
    lane,
    minimum,
    splat,
)
from adrenoc.ir.layout import LANES, Extents
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.shared.context import KernelCall, NodeKernel
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry, ConvTile
from adrenoc.kernels.families.shared.conv_weights import (
    is_texels,
    load_run,
    unpack_texels,
    vectors_a_load,
    vectors_held,
)
from adrenoc.kernels.fused_bodies import ComputedAccess
from adrenoc.kernels.statements import Registers, SharedArray
from adrenoc.kernels.walk import ACCUMULATOR, adds_in_runs
from adrenoc.kernels.weights import whole_k_steps


@dataclass(frozen=True, kw_only=True)
class Phases:
    """What a transposed convolution is made of: a convolution for each pixel of a rectangle.

    Output row `s * q + f`, of `s` rows and phase `f`, is one of `taps` input rows from row
    `q + start(f)` on, by every s-th row of the weights.
    """

    strides: tuple[int, int]
    """Rows and columns of the rectangle."""
    padding: tuple[int, int] = (0, 0)
    """Rows cut from the top and columns cut from the left of the full result."""
    taps: tuple[int, int] = (1, 1)
    """Taps of one phase along H and W; the shorter phases are filled up with zeros."""

    def alike(self, axis: int) -> bool:
        """Return whether all phases read the same rows or columns."""
        return self.padding[axis] % self.strides[axis] == 0

    def start(self, axis: int, phase: int) -> int:
        """Return where the first input row or column of a phase lies, from the position on."""
        return (phase + self.padding[axis]) // self.strides[axis] - self.taps[axis] + 1

    def first_tap(self, axis: int, phase: int) -> int:
        """Return the weights' row or column that the last input row or column is multiplied by."""
        return (phase + self.padding[axis]) % self.strides[axis]

    def grid(self, out: Extents) -> Extents:
        """Return the positions that threads make, the channels of all phases in a row."""
        (sh, sw), h, w = self.strides, out.h, out.w
        return Extents(out.n, out.blocks * LANES * sh * sw, -(-h // sh), -(-w // sw))

    def starts(self, builder: KernelBuilder, phase: Expr) -> tuple[Expr, Expr]:
        """`start` of both axes where the number of the phase is known to the thread alone."""
        found: list[Expr] = []
        own = (floordiv(phase, self.strides[1]), floormod(phase, self.strides[1]))
        for axis, stride in enumerate(self.strides):
            if self.alike(axis):
                found.append(iconst(self.start(axis, 0)))
                continue
            moved = floordiv(own[axis] + iconst(self.padding[axis]), stride)
            found.append(builder.let(moved - iconst(self.taps[axis] - 1), "start"))
        return found[0], found[1]

    def pixel(
        self, builder: KernelBuilder, out: Extents, block: Expr, row: Expr, col: Expr
    ) -> tuple[tuple[Expr, Expr, Expr], Expr | None]:
        """Return block, row and column of the output that a block of all phases is, at a position.

        And whether the output has that pixel; None: it has all.
        """
        sh, sw = self.strides
        phase = builder.let(floordiv(block, out.blocks), "phase")
        block = builder.let(floormod(block, out.blocks), "of_phase")
        row = builder.let(row * iconst(sh) + floordiv(phase, sw), "oy")
        col = builder.let(col * iconst(sw) + floormod(phase, sw), "ox")
        inside = [
            at < iconst(extent)
            for at, extent, stride in ((row, out.h, sh), (col, out.w, sw))
            if extent % stride
        ]
        if len(inside) == 2:
            return (block, row, col), inside[0] & inside[1]
        return (block, row, col), inside[0] if inside else None


def vectors_added(count: int, split_k: int, threads: int) -> int:
    """Return vectors of local memory that adding the splits needs, of `count` sums a thread."""
    return split_k // 2 * (threads // split_k) * count


LOADS_AT_ONCE = 2
"""How many loads of weights a thread asks for before it waits."""


class LocalConv:
    """One kernel while it is written; what depends on the kind of numbers can be replaced."""

    sum_dtype: str | None = None
    """The dtype of the sums; None takes that of the arithmetic."""
    weight_dtype: str | None = None
    """The dtype of the weights in local memory."""
    long = False
    """Whether sums in floats have parts too."""
    part_dtype: str | None = None
    """The dtype of parts of sums; None takes that of the arithmetic."""
    parts_by_chunk = False
    """Whether parts of sums are those of chunks, not of single k-steps."""
    vectors_after = 0
    """Vectors of local memory that are needed where the weights lay, after the loops."""

    def __init__(
        self,
        kernel: NodeKernel,
        geometry: ConvGeometry,
        tile: ConvTile,
        x: Access,
        weight: Access,
        phases: Phases | None = None,
    ) -> None:
        self.out, self.epilogue = kernel.output()
        builder = self.b = kernel.builder
        self.geometry, self.tile, self.phases = geometry, tile, phases
        self.x, self.weight = x, weight
        e = self.grid = self.out.extents if phases is None else phases.grid(self.out.extents)
        # Input blocks, filled up by weights of zero to whole k-steps of all splits; lanes of one
        # that hold a channel; work-groups along the output blocks of an image; weights of one input
        # block and kernel row that a work-group needs, in vectors of four.
        self.blocks, self.channels = self.count_inputs()
        self.window = whole_k_steps(self.blocks, tile.k_step)
        self.group_blocks = tile.out_blocks * tile.bands
        self.channel_groups = -(-e.blocks // self.group_blocks)
        self.vectors = geometry.kernel[1] * LANES * self.group_blocks
        deep = tile.bands * tile.split_k
        wx, wy, _ = tile.work_group or (1, 1, 1)
        gx, self.gy, _ = builder.threads(
            -(-e.w // tile.pixels),
            e.h,
            e.n * self.channel_groups * deep,
            work_group=(wx, wy, deep),
            cooperate=True,
        )
        lx, ly, lz = builder.local
        self.threads = wx * wy * deep
        self.thread = builder.let(lx + (ly + lz * iconst(wy)) * iconst(wx), "t")
        self.band = floormod(lz, tile.bands)
        self.split = builder.let(floordiv(lz, tile.bands), "slice")
        over = builder.group[2]
        self.n = floordiv(over, self.channel_groups) if e.n > 1 else iconst(0)
        self.channel_group = floormod(over, self.channel_groups) if e.n > 1 else over
        first = self.channel_group * iconst(self.group_blocks)
        self.first_out = builder.let(first + self.band * iconst(tile.out_blocks), "ob")
        strides, padding = geometry.strides, geometry.padding
        self.left = builder.let(gx * iconst(tile.pixels), "x")
        self.row0 = builder.let(self.gy * iconst(strides[0]) - iconst(padding[0]), "row")
        self.col0 = builder.let(self.left * iconst(strides[1]) - iconst(padding[1]), "col")
        self.sums = builder.registers(tile.pixels * tile.out_blocks, dtype=self.sum_dtype, fill=0)
        self.last = False
        self.half = builder.compute == "float16"
        self.as_texels = is_texels(weight)
        self.per_load = vectors_a_load(half=self.half, texels=self.as_texels)
        if phases is not None:  # a thread reads from where the phase that it makes begins
            phase = builder.let(floordiv(self.first_out, self.out.extents.blocks), "phase")
            row, col = phases.starts(builder, phase)
            self.row0 = builder.let(self.gy + row, "row")
            self.col0 = builder.let(self.left + col, "col")

    def emit(self, *, weights_by_row: bool = False) -> None:
        """Emit everything."""
        self.accumulate(weights_by_row)
        self.write()

    # What depends on the kind of numbers

    def count_inputs(self) -> tuple[int, int]:
        """Return input blocks of the convolution, and lanes of one that hold a channel."""
        e = self.x.extents
        return e.blocks, e.c if e.blocks == 1 else LANES

    def load(self, first: Expr, offset: int) -> Expr:
        """Load `first + offset` of the weights: a texel, 16 bytes or four numbers."""
        return self.b.let(load_run(self.b, self.weight, first, offset, self.b.compute), "w")

    def unpack(self, loaded: Expr) -> list[Expr]:
        """Return what was loaded, as vectors of four."""
        return [loaded] if self.as_texels else unpack_texels(self.b, loaded)

    def pixel(self, in_block: Expr, row: Expr, column: Expr) -> Expr:
        """Return an input block of a pixel: a vector of four."""
        return self.x.padded_texel(self.n, in_block, row, column)

    def reads(self, row: Expr) -> Expr | None:
        """Return where a row has to be read at all; None: zeros are read beyond the edges."""
        return None

    def product(self, pixel: Expr, channel: int, weights: Expr, total: Expr) -> Expr:
        """Return `total` and what one lane of a pixel adds to four output channels."""
        return splat(lane(pixel, channel)) * weights + total

    def finish_sums(self, total: Expr, block: Expr) -> Expr:
        """Return the sums of an output block as the epilogue takes them."""
        return total

    def complete_sums(self) -> None:
        """Change the sums of all output blocks, before any is finished."""

    def begin_step(self, in_block: Expr, done: Expr, row: Expr) -> None:
        """Read what parts of sums need, before a k-step from this input block on, which is `done`
        blocks into the chunk."""

    def begin_parts(self, partial: Registers) -> None:
        """Set the parts of an output block to what they are before a k-step."""
        partial.fill(0)

    def bring(self, start: Expr, span: int, first_load: Expr, shared: SharedArray) -> None:
        """Bring what the products of such input blocks need to local memory."""
        self.bring_weights(span * self.vectors, first_load, shared)
        self._bring_beside(start, span)

    # The loops

    @property
    def split_sums(self) -> int:
        """Sums in local memory at a time where those of splits are added; 0 without splits."""
        count = self.tile.pixels * self.tile.out_blocks
        return vectors_added(count, self.tile.split_k, self.threads)

    @property
    def sums_reuse_weights(self) -> bool:
        """Return whether they lie where the weights did: work-groups wait for local memory."""
        return self.sum_dtype == self.weight_dtype

    @property
    def span(self) -> int:
        """Input blocks of all splits whose weights are in local memory at a time."""
        return min(self.tile.chunk * self.tile.split_k, self.window)

    def accumulate(self, weights_by_row: bool) -> None:
        """Emit all multiply-adds of the thread: its sums are complete then, but for splits."""
        tile, builder, span = self.tile, self.b, self.span
        kh = self.geometry.kernel[0]
        weights = vectors_held(
            span * self.vectors, self.threads, half=self.half, texels=self.as_texels
        )
        if self.sums_reuse_weights:
            weights = max(weights, self.split_sums, self.vectors_after)
        shared = self.shared = builder.allocate_shared(weights, dtype=self.weight_dtype)
        # What the prologue reads of each input block beside the activations.
        reads = self.x.channel_reads if isinstance(self.x, ComputedAccess) else ()
        self.beside = [
            (access, builder.allocate_shared(span, dtype=ACCUMULATOR)) for access in reads
        ]
        block = self.channel_group
        if weights_by_row:
            block = builder.group[1] * iconst(self.channel_groups) + self.channel_group
        row_loads = self.window * self.vectors // self.per_load
        base = builder.let(block * iconst(kh * row_loads), "wb")
        whole, tail = divmod(self.window, span)
        self.last = kh * whole == 1 and not tail
        # A total in halves is rounded with each number that is added to it, so the products of a
        # pass are added up first.
        passes = kh * self.window // tile.unroll
        parts = self.long or (builder.compute == "float16" and passes > tile.split_k)
        blocks = tile.out_blocks if self.parts_by_chunk else 1
        partial = self.sums
        if parts:
            partial = builder.registers(tile.pixels * blocks, dtype=self.part_dtype)
        with builder.loop(kh, "ky", rolled=True) as ky:
            row = builder.let(self.row0 + ky * iconst(self.geometry.dilation[0]), "y")
            row_base = base + ky * iconst(row_loads)
            with builder.loop(whole, "chunk", rolled=True) as c:
                first = row_base + c * iconst(span * self.vectors // self.per_load)
                self._chunk(c * iconst(span), span, first, row, shared, partial)
            if tail:
                done = whole * span
                first = row_base + iconst(done * self.vectors // self.per_load)
                self._chunk(iconst(done), tail, first, row, shared, partial)

    def _chunk(
        self,
        start: Expr,
        span: int,
        first_load: Expr,
        row: Expr,
        shared: SharedArray,
        partial: Registers,
    ) -> None:
        """Bring the weights of `span` input blocks from `start` on, then use them."""
        builder, tile = self.b, self.tile
        self.bring(start, span, first_load, shared)
        builder.barrier()
        of_split = span // tile.split_k
        mine = self.split * iconst(of_split)
        band = self.band * iconst(self.geometry.kernel[1] * LANES * tile.out_blocks)
        by_k_step = partial is not self.sums and not self.parts_by_chunk
        if partial is not self.sums and not by_k_step:
            partial.fill(0)
        k_steps = of_split // tile.unroll
        with builder.when(self.reads(row)), builder.loop(k_steps, "i", rolled=True) as i:
            done = mine + i * iconst(tile.unroll)
            in_block = builder.let(start + done, "ib")
            weights = builder.let(done * iconst(self.vectors) + band, "wi")
            self.begin_step(in_block, done, row)
            blocks = [self.existing(in_block + iconst(u)) for u in range(tile.unroll)]
            for block in blocks:  # all reads are asked for before one is waited for
                self._ask(block, row)
            texels = []
            for u, block in enumerate(blocks):
                if isinstance(self.x, ComputedAccess):
                    at = done + iconst(u)
                    self.x.give([builder.let(held[at], "beside") for _, held in self.beside])
                texels.append(self.row(block, row))
            starts = [
                weights + iconst(u * self.vectors) if u else weights for u in range(len(blocks))
            ]
            for b in range(tile.out_blocks):
                # Where each k-step has its parts, those of an output block are added before the
                # next are begun: a thread keeps no more of them than it has pixels.
                first = 0 if by_k_step else b * tile.pixels
                if by_k_step:
                    self.begin_parts(partial)
                for columns, at in zip(texels, starts, strict=True):
                    self._multiply(columns, at, shared, partial, b, first)
                if by_k_step:
                    self.add_parts(partial, b * tile.pixels)
        if partial is not self.sums and not by_k_step:
            self.add_parts(partial, 0)
        if not self.last:
            builder.barrier()

    def add_parts(self, partial: Registers, first: int) -> None:
        """Add parts of the sums to them, from sum `first` on."""
        for at in range(partial.count):
            self.sums[first + at] = self.sums[first + at] + partial[at]

    def existing(self, in_block: Expr) -> Expr:
        """Return an input block that is there: its weights are zero where another was asked for.

        What lies beyond the last block need not be a number.
        """
        if self.window == self.blocks:
            return in_block
        return minimum(in_block, iconst(self.blocks - 1))

    def _bring_beside(self, start: Expr, span: int) -> None:
        """Bring what lies beside so many input blocks from `start` on, each thread one."""
        for access, held in self.beside:
            n = self.n if access.extents.n > 1 else iconst(0)
            for done in range(0, span, self.threads):
                last = span - done < self.threads
                mine = self.thread + iconst(done)
                inside = self.thread < iconst(span - done) if last else None
                with self.b.when(inside), self.b.computing(ACCUMULATOR):
                    held[mine] = access.texel(n, self.existing(start + mine), iconst(0), iconst(0))

    def bring_weights(self, vectors: int, first_load: Expr, shared: SharedArray) -> None:
        """Each thread loads 16 bytes, or four numbers, at a time; neighbours load neighbours."""
        builder = self.b
        loads = vectors // self.per_load
        first = builder.let(first_load + self.thread, "load")
        starts = list(range(0, loads, self.threads))
        for run in range(0, len(starts), LOADS_AT_ONCE):
            waiting = []
            for done in starts[run : run + LOADS_AT_ONCE]:
                at, left = first, loads - done
                if left < self.threads:
                    at = first_load + minimum(self.thread, iconst(left - 1))
                waiting.append((done, self.load(at, done)))
            for done, words in waiting:
                to = (self.thread + iconst(done)) * iconst(self.per_load)
                for part, texel in enumerate(self.unpack(words)):
                    shared[to + iconst(part)] = texel

    def row(self, in_block: Expr, row: Expr) -> dict[int, Expr]:
        """Return the texels that the thread's pixels need of a kernel row, by offset."""
        return {
            offset: self.b.let(self.pixel(in_block, row, self.col0 + iconst(offset)), "a")
            for offset in self.geometry.columns(self.tile.pixels)
        }

    def _ask(self, in_block: Expr, row: Expr) -> None:
        """Read what a prologue makes such texels of."""
        if isinstance(self.x, ComputedAccess):
            for offset in self.geometry.columns(self.tile.pixels):
                self.x.ask(self.n, in_block, row, self.col0 + iconst(offset))

    def _multiply(
        self,
        columns: dict[int, Expr],
        weights: Expr,
        shared: SharedArray,
        sums: Registers,
        out_block: int,
        first: int,
    ) -> None:
        """One input block of one kernel row, for one output block; its sums begin at `first`.

        Output blocks are the outer loop: the fewer weights wait in registers, the more threads
        a GPU keeps in flight.
        """
        builder, tile, geometry = self.b, self.tile, self.geometry
        for kx in range(self.geometry.kernel[1]):
            pixels = [
                columns[p * geometry.strides[1] + kx * geometry.dilation[1]]
                for p in range(tile.pixels)
            ]
            for c in range(self.channels):
                index = weights + iconst((kx * LANES + c) * tile.out_blocks + out_block)
                of_channel = builder.let(shared[index], "k")
                for at, pixel in enumerate(pixels, first):
                    sums[at] = self.product(pixel, c, of_channel, sums[at])

    def write(self) -> None:
        """Add the splits' sums, and store what lies inside of the output."""
        builder, tile, e = self.b, self.tile, self.grid
        if tile.split_k > 1:
            shared = self.shared
            if not self.sums_reuse_weights:
                shared = builder.allocate_shared(self.split_sums, dtype=self.sum_dtype)
            elif self.last:  # else there was one after the last chunk
                builder.barrier()
            self._add_split_k(shared)
        mine = self.split < iconst(1) if tile.split_k > 1 else None
        full = self.channel_groups * self.group_blocks == e.blocks
        with builder.when(mine), builder.when(builder.inside):
            self.complete_sums()
            for blocks, pixels in self.epilogue.parts(tile.out_blocks, tile.pixels):
                for p, b in product(pixels, blocks):
                    block = self.first_out + iconst(b)
                    in_row = self.left + iconst(p) < iconst(e.w) if e.w % tile.pixels else None
                    in_blocks = None if full else block < iconst(e.blocks)
                    with builder.when(in_row if p else None), builder.when(in_blocks):
                        value = self.finish_sums(self.sums[b * tile.pixels + p], block)
                        at = (block, self.gy, self.left + iconst(p))
                        inside = None
                        if self.phases is not None:
                            at, inside = self.phases.pixel(builder, self.out.extents, *at)
                        with builder.when(inside):
                            self.epilogue.write(self.n, *at, value)

    def _add_split_k(self, shared: SharedArray) -> None:
        """Add the sums of all splits, in the threads of split 0; none may still read `shared`.

        A tree, where each step adds one half to the other, keeps few numbers in registers; adding
        all splits at once keeps all of them.
        """
        builder, sums, reach = self.b, self.sums, self.tile.split_k // 2
        while reach:
            width = reach * (self.threads // self.tile.split_k)
            giver = self.thread - iconst(width)
            with builder.when((self.split >= iconst(reach)) & (self.split < iconst(2 * reach))):
                for at in range(sums.count):
                    shared[giver + iconst(at * width)] = sums[at]
            builder.barrier()
            with builder.when(self.split < iconst(reach)):
                for at in range(sums.count):
                    sums[at] = sums[at] + shared[self.thread + iconst(at * width)]
            reach //= 2
            if reach:
                builder.barrier()


WIDEST_ROW, WIDEST_ROW_OF_TEXELS = 7, 16
"""Widest kernel row: its taps are unrolled, so that neighbours share their reads.  Rows of texels
may be wider, as of networks that cut images into patches, than rows of an image's numbers or bytes.
"""


def conv2d_local(
    kernel: NodeKernel,
    geometry: ConvGeometry,
    tile: ConvTile,
    x: Access,
    weight: Access,
    *,
    weights_by_row: bool = False,
    phases: Phases | None = None,
) -> KernelCall:
    """Make the kernel that convolves x with packed weights (`pack_local`), one group of channels.

    With weights by row, each output row has its own, one set after the other; a work-group is
    then one row high.

    With phases, a position makes a rectangle of output rows and columns, each by weights of its
    own: a transposed convolution.  The weights' output blocks are then those of phase after phase,
    and `geometry` has the taps of one.  Where phases read from different rows on, a thread makes
    blocks of one phase.
    """
    conv = LocalConv(kernel, geometry, tile, x, weight, phases)
    (kh, kw), split_k = geometry.kernel, tile.split_k
    products = kh * conv.window * kw * conv.channels // split_k
    conv.long = conv.parts_by_chunk = adds_in_runs(conv.out, products)
    conv.emit(weights_by_row=weights_by_row)
    return kernel.call()
