"""A 1x1 convolution to many channels and the depthwise convolution after it, in one kernel.

An inverted residual block widens its input, convolves each of the wide channels by itself, and
narrows the result again.  The wide tensor between the first two is the largest of the block, and
only the depthwise convolution reads it.  Here it never gets to memory: a work-group makes a
rectangle of output pixels of some blocks of channels; it computes the wide pixels below them, the
halo included, into local memory, and convolves them from there.

```
each thread: weights, taps of the work-group's blocks -> shared; zeros -> region    barrier
for items (pixels of the rectangle below, of some blocks):
    sums += texels * weights from shared, over all input blocks
    region = finished sums                                                          barrier
for items (output pixels of a block):
    sums of region * taps from shared                                               -> output
```

Pixels outside of the image stay zero: the depthwise convolution pads what the expansion has
finished.  They are not computed, so that a rectangle as large as the image repeats no work.
"""

from collections.abc import Iterator, Mapping

from adrenoc.base.tvmapi import (
    Expr,
    cast,
    fconst,
    floordiv,
    floormod,
    iconst,
    lane,
    maximum,
    minimum,
    splat,
    vector_dtype,
)
from adrenoc.ir.layout import LANES
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.depthwise import SharedPixels, TapSums
from adrenoc.kernels.families.expansion.expansion_plan import (
    AxisSpan,
    ExpansionTile,
    HaloRegion,
    divide_by_constant,
    places_of,
)
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry
from adrenoc.kernels.families.shared.conv_weights import (
    bring_weights,
    is_texels,
    load_run,
    vectors_a_load,
    vectors_held,
)
from adrenoc.kernels.families.shared.rows import GroupMeans
from adrenoc.kernels.fused_bodies import Epilogue, Finished
from adrenoc.kernels.statements import Registers, SharedArray
from adrenoc.kernels.walk import ACCUMULATOR

LOADS_AT_ONCE = 2
"""How many loads of weights a thread asks for before it waits."""


def expansion(
    builder: KernelBuilder,
    depthwise: ConvGeometry,
    tile: ExpansionTile,
    region: HaloRegion,
    x: Access,
    weight: Access,
    taps: Access,
    finish: Finished,
    of_channels: Mapping[str, Access],
    out: Access,
    epilogue: Epilogue,
    *,
    kept: str,
    means: Access | None = None,
) -> None:
    """Emit both convolutions, with weights packed by `pack_local` and taps by `pack_taps`.

    `finish` is applied to the results of the first; `of_channels` are the constants that it reads
    of each channel.  Weights and wide pixels lie in local memory in the dtype `kept`.

    Shapes:
        x: roles N, C, H, W
        out: roles N, O, OH, OW
        means: the parts of the result's mean (`GroupMeans`)
    """
    kernel = _Kernel(builder, depthwise, tile, region, x, out, kept)
    kernel.bring(weight, taps, of_channels)
    kernel.widen(finish)
    kernel.convolve(epilogue, means)


class _Kernel:
    """The kernel while it is written."""

    def __init__(
        self,
        builder: KernelBuilder,
        depthwise: ConvGeometry,
        tile: ExpansionTile,
        region: HaloRegion,
        x: Access,
        out: Access,
        kept: str,
    ) -> None:
        self.b, self.depthwise, self.tile, self.region = builder, depthwise, tile, region
        self.x, self.out, self.kept = x, out, kept
        self.taps = depthwise.kernel[0] * depthwise.kernel[1]
        self.half = builder.compute == "float16"
        self.blocks, self.threads = tile.group_blocks, tile.threads
        e = out.extents
        self.channel_groups = -(-e.blocks // self.blocks)
        builder.threads(
            region.across.count * self.threads,
            region.down.count,
            e.n * self.channel_groups,
            work_group=tile.work_group,
            cooperate=True,
        )
        self.thread = builder.local[0]
        over = builder.group[2]
        self.n = floordiv(over, self.channel_groups) if e.n > 1 else iconst(0)
        self.channel_group = builder.share(
            floormod(over, self.channel_groups) if e.n > 1 else over, "super"
        )
        self.first_block = builder.share(self.channel_group * iconst(self.blocks), "fb")
        self.row0 = self._first(region.down, builder.group[1], "row")
        self.col0 = self._first(region.across, builder.group[0], "col")
        self.window = tile.window(x.extents.blocks)

    def _first(self, span: AxisSpan, number: Expr, hint: str) -> Expr:
        """Return the first row or column below the rectangle, which may lie outside of the
        image."""
        return self.b.share(number * iconst(span.step) - iconst(span.padding), hint)

    # Weights, taps and zeros

    def bring(self, weight: Access, taps: Access, of_channels: Mapping[str, Access]) -> None:
        """All that is the same for the pixels of the work-group, to local memory."""
        builder = self.b
        vectors = self.window * LANES * self.blocks
        texels, half = is_texels(weight), self.kept == "float16"
        loads = vectors // vectors_a_load(half=half, texels=texels)
        held = vectors_held(vectors, self.threads, half=half, texels=texels)
        self.weights = builder.allocate_shared(held, dtype=self.kept)
        self.shared_taps = builder.allocate_shared(self.blocks * self.taps)
        asked = list(self._ask(taps, of_channels))
        first = builder.share(self.channel_group * iconst(loads), "wb")
        with builder.computing(self.kept):
            bring_weights(
                builder,
                weight,
                first,
                loads,
                self.thread,
                self.threads,
                self.weights,
                at_once=LOADS_AT_ONCE,
            )
        for array, done, count, value in asked:
            with builder.when(self.thread < iconst(count) if count < self.threads else None):
                array[self.thread + iconst(done)] = value
        # The largest array comes last: reads of the others then have offsets that fit in them.
        pixels = self.blocks * self.region.held_pixels
        self.held = builder.allocate_shared(pixels, dtype=self.kept)
        if self.region.has_padding:
            self._clear()
        builder.barrier()

    def _ask(
        self, taps: Access, of_channels: Mapping[str, Access]
    ) -> Iterator[tuple[SharedArray, int, int, Expr]]:
        """Yield taps, and what else is read of each channel: (where to, from, how many, value)."""
        builder, held = self.b, vector_dtype(self.b.compute)
        self.given: dict[str, SharedArray] = {}
        with builder.computing(ACCUMULATOR):
            first, total = self.first_block * iconst(self.taps), self.blocks * self.taps
            for done in range(0, total, self.threads):
                count = min(total - done, self.threads)
                at = builder.let(first + self._clamp_thread(count), "tap")
                value = load_run(builder, taps, at, done, ACCUMULATOR)
                yield self.shared_taps, done, count, builder.let(cast(value, held), "t")
            for name, access in of_channels.items():
                array = self.given[name] = builder.allocate_shared(self.blocks, dtype=ACCUMULATOR)
                for done in range(0, self.blocks, self.threads):
                    count = min(self.blocks - done, self.threads)
                    block = self._existing(
                        self.first_block + self._clamp_thread(count) + iconst(done)
                    )
                    texel = access.texel(iconst(0), block, iconst(0), iconst(0))
                    yield array, done, count, builder.let(texel, "t")

    def _clamp_thread(self, count: int) -> Expr:
        """Return the thread's number, or the last of so many."""
        return minimum(self.thread, iconst(count - 1)) if count < self.threads else self.thread

    def _existing(self, block: Expr) -> Expr:
        """Return a block of the result that is there; what is made of another is not stored."""
        last = self.out.extents.blocks
        return minimum(block, iconst(last - 1)) if last % self.blocks else block

    def _clear(self) -> None:
        """Zeros where nothing may be computed."""
        builder, total = self.b, self.blocks * self.region.held_pixels
        zero = splat(fconst(0.0, self.kept))
        for done in range(0, total, self.threads):
            last = total - done < self.threads
            with builder.when(self.thread < iconst(total - done) if last else None):
                self.held[self.thread + iconst(done)] = zero

    # The expansion

    def widen(self, finish: Finished) -> None:
        """The wide pixels that the rectangle needs, to local memory."""
        builder, tile, region = self.b, self.tile, self.region
        self.top = self._first_computed(region.down, self.row0, "top")
        self.left = self._first_computed(region.across, self.col0, "left")
        runs = region.runs(tile.pixels)
        a_band = runs * region.down.computed
        items = a_band * tile.bands
        count = tile.pixels * tile.out_blocks
        sums = builder.registers(count)
        parts, k_steps = tile.parts(self.window, half=self.half)
        partial = builder.registers(count) if parts > 1 else sums
        with builder.loop(-(-items // self.threads), "round", rolled=True) as round_:
            item = self.thread + round_ * iconst(self.threads)
            if items % self.threads:  # the last threads make the last item once more
                item = minimum(item, iconst(items - 1))
            item = builder.share(item, "item")
            band, of_band = divide_by_constant(builder, item, a_band, items - 1, ("band", "of"))
            row, run = divide_by_constant(builder, of_band, runs, a_band - 1, ("r", "run"))
            first = run * iconst(tile.pixels)
            # The last run of a row begins earlier where the row is no whole number of them.
            last = region.across.computed - tile.pixels
            col = builder.share(
                minimum(first, iconst(last)) if region.across.computed % tile.pixels else first, "c"
            )
            sums.fill(0.0)
            self._products(band, self.top + row, self.left + col, parts, k_steps, sums, partial)
            self._store(band, row, col, sums, finish)
        builder.barrier()

    def _first_computed(self, span: AxisSpan, first: Expr, hint: str) -> Expr:
        """Return the first row or column that is computed."""
        inside = maximum(first, iconst(0)) if span.padding else first
        if span.shifted:
            inside = minimum(inside, iconst(span.extent - span.computed))
        return self.b.share(inside, hint)

    def _products(
        self,
        band: Expr,
        row: Expr,
        col: Expr,
        parts: int,
        k_steps: int,
        sums: Registers,
        partial: Registers,
    ) -> None:
        """All multiply-adds of some pixels.  A total in halves is rounded with each number that is
        added to it, so the products of a part are added up first."""
        builder, tile = self.b, self.tile
        row, col = builder.share(row, "y"), builder.share(col, "x")
        of_band = LANES * tile.out_blocks
        mine = builder.share(band * iconst(of_band), "wi")
        with builder.loop(parts, "part", rolled=True) as part:
            if partial is not sums:
                partial.fill(0.0)
            with builder.loop(k_steps, "i", rolled=True) as i:
                k_step = part * iconst(k_steps) + i if parts > 1 else i
                block = builder.let(k_step * iconst(tile.unroll), "ib")
                texels = [
                    [
                        builder.let(self.x.texel(self.n, at, row, col + iconst(p)), "a")
                        for p in range(tile.pixels)
                    ]
                    for at in (self._source(block + iconst(u)) for u in range(tile.unroll))
                ]
                first = builder.let(block * iconst(of_band * tile.bands) + mine, "wa")
                for u, pixels in enumerate(texels):
                    self._multiply(pixels, first, u * of_band * tile.bands, partial)
            if partial is not sums:
                for at in range(tile.pixels * tile.out_blocks):
                    sums[at] = sums[at] + partial[at]

    def _source(self, in_block: Expr) -> Expr:
        """Return an input block that is there: the weights of others are zero."""
        blocks = self.x.extents.blocks
        return in_block if self.window == blocks else minimum(in_block, iconst(blocks - 1))

    def _multiply(self, pixels: list[Expr], first: Expr, offset: int, sums: Registers) -> None:
        """One input block."""
        builder, tile = self.b, self.tile
        channels = self.x.extents.c if self.x.extents.blocks == 1 else LANES
        for b in range(tile.out_blocks):
            for c in range(channels):
                at = first + iconst(offset + c * tile.out_blocks + b)
                weights = cast(self.weights[at], vector_dtype(builder.compute))
                weights = builder.let(weights, "k")
                for p, pixel in enumerate(pixels):
                    to = b * tile.pixels + p
                    sums[to] = splat(lane(pixel, c)) * weights + sums[to]

    def _store(self, band: Expr, row: Expr, col: Expr, sums: Registers, finish: Finished) -> None:
        """Finished pixels, to their place in local memory."""
        builder, tile, region = self.b, self.tile, self.region
        inner_row = builder.share(self.top - self.row0 + row, "hr")
        inner_col = builder.share(self.left - self.col0 + col, "hc")
        first = builder.share(band * iconst(tile.out_blocks), "b0")
        of_block = builder.share(first * iconst(region.held_pixels), "to")
        places = places_of(builder, region, of_block, inner_row, inner_col, tile.pixels)
        for b in range(tile.out_blocks):
            of_group = first + iconst(b)
            block = builder.let(self._existing(self.first_block + of_group), "block")
            with builder.computing(ACCUMULATOR):
                given = {n: builder.let(kept[of_group], "of") for n, kept in self.given.items()}
            for p, place in enumerate(places):
                value = finish.value(
                    self.n,
                    block,
                    self.top + row,
                    self.left + col + iconst(p),
                    sums[b * tile.pixels + p],
                    given,
                )
                value = cast(value, vector_dtype(self.kept))
                self.held[place + iconst(b * region.held_pixels)] = value

    # The depthwise convolution

    def convolve(self, epilogue: Epilogue, means: Access | None) -> None:
        """The output's pixels, from local memory, and their mean."""
        builder, tile, e = self.b, self.tile, self.out.extents
        averages = None
        if means is not None:
            averages = GroupMeans(
                builder, epilogue, means, pixels=e.h * e.w, blocks=self.blocks, parts=tile.items
            )
        rectangles, rounds = tile.made_rounds
        items, runs = tile.items * tile.blocks_at_once, tile.columns // tile.made_columns
        with builder.loop(rectangles, "line", rolled=True) as line:
            item = self.thread + line * iconst(self.threads)
            inside = item < iconst(items) if items % self.threads else None
            if inside is not None:
                item = minimum(item, iconst(items - 1))
            item = builder.share(item, "item")
            first, of_block = divide_by_constant(builder, item, tile.items, items - 1, ("of", "in"))
            row, col = divide_by_constant(builder, of_block, runs, tile.items - 1, ("r", "c"))
            row = builder.share(row * iconst(tile.made_rows), "r")
            col = builder.share(col * iconst(tile.made_columns), "c")
            top = builder.share(builder.group[1] * iconst(tile.rows) + row, "y")
            left = builder.share(builder.group[0] * iconst(tile.columns) + col, "x")
            with builder.loop(rounds, "round", rolled=True) as round_:
                block = builder.share(round_ * iconst(tile.blocks_at_once) + first, "ob")
                inside_too = inside
                if self.blocks % tile.blocks_at_once:
                    mine = block < iconst(self.blocks)
                    inside_too = mine if inside is None else inside & mine
                    block = builder.share(minimum(block, iconst(self.blocks - 1)), "ob")
                sums = self._sums(block, row, col)
                if averages is not None:
                    averages.total.fill(0.0)
                self._write(epilogue, block, top, left, sums, inside_too)
                if averages is not None:
                    with builder.when(inside_too):
                        averages.leave(block, of_block)
        if averages is not None:
            averages.store(self.thread, self.threads, self.first_block)

    def _sums(self, block: Expr, row: Expr, col: Expr) -> Registers:
        """Return the sums of taps of some pixels of a block; the first is at a place of the
        rectangle."""
        builder, tile, across = self.b, self.tile, self.region.across.read
        sy, sx = self.depthwise.strides
        base = (
            block * iconst(self.region.held_pixels) + col * iconst(sx) + row * iconst(sy * across)
        )
        with builder.computing(ACCUMULATOR):
            taps = TapSums(
                builder=builder,
                geometry=self.depthwise,
                rows=tile.made_rows,
                pixels=tile.made_columns,
                x=SharedPixels(
                    builder=builder,
                    shared=self.held,
                    columns=across,
                    base=builder.share(base, "hi"),
                ),
                shared=self.shared_taps,
                once=True,
            )
            zero, first_tap = iconst(0), builder.share(block * iconst(self.taps), "wi")
            return taps.rectangle(zero, zero, zero, zero, first_tap)

    def _write(
        self,
        epilogue: Epilogue,
        block: Expr,
        top: Expr,
        left: Expr,
        sums: Registers,
        inside: Expr | None,
    ) -> None:
        """Write what lies inside of the output."""
        builder, tile, e = self.b, self.tile, self.out.extents
        block = builder.share(self.first_block + block, "block")
        beyond = block < iconst(e.blocks) if e.blocks % self.blocks else None
        with builder.when(inside), builder.when(beyond):
            for r in range(tile.made_rows):
                in_column = top + iconst(r) < iconst(e.h) if e.h % tile.rows else None
                for p in range(tile.made_columns):
                    in_row = left + iconst(p) < iconst(e.w) if e.w % tile.columns else None
                    with builder.when(in_column), builder.when(in_row):
                        value = sums[r * tile.made_columns + p]
                        epilogue.write(self.n, block, top + iconst(r), left + iconst(p), value)
