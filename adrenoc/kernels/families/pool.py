"""Pooling over windows of rows and columns: one thread makes one texel of the result.

No tap is tested.  An average reads zeros from the sampler's border and divides by the number of
taps that lie inside, which each axis gives in closed form.  A maximum moves the taps that lie
outside to the nearest tap inside, which repeats an element that counts anyway.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from adrenoc.base.tvmapi import (
    Expr,
    cast,
    fconst,
    floordiv,
    floormod,
    iconst,
    larger,
    maximum,
    minimum,
    splat,
)
from adrenoc.ir.graph import Graph, Node, Tensor
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.maps import texel_of_thread
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext
from adrenoc.kernels.families.shared.operator import (
    Kind,
    Numbers,
    Operator,
    TypicalRun,
    follow_letters,
    letters_refused,
    makes_letters,
    middle,
    size_of,
    wants_letters,
)
from adrenoc.kernels.walk import ACCUMULATOR, OneRun, RunSums, widen

UNROLLED_TAPS = 3
"""Widest window row whose taps are written out."""


@dataclass(frozen=True, kw_only=True)
class PoolWindow:
    """The taps along one axis: output position o reads `o * stride - pad + k * dilation`."""

    taps: int
    stride: int = 1
    pad: int = 0
    dilation: int = 1

    def count_taps_inside(self, position: int, extent: int) -> int:
        """Return how many taps of an output position lie within 0..extent-1."""
        first = position * self.stride - self.pad
        begin = max(0, -(first // self.dilation))
        end = min(self.taps - 1, (extent - 1 - first) // self.dilation)
        return max(0, end - begin + 1)

    def always_inside(self, outputs: int, extent: int) -> bool:
        """Return whether no output position has a tap outside."""
        last = (outputs - 1) * self.stride - self.pad + (self.taps - 1) * self.dilation
        return self.pad == 0 and last < extent


def pool_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel of a maximum or an average over each window of rows and columns, or of
    columns alone (`max_pool1d`).

    Every window of a maximum must have a tap inside.

    Shapes:
        x: roles N, C, H, W
        out: roles N, C, OH, OW
    """
    windows = rows_window, columns_window = pool_windows(node.attrs)
    kernel = context.kernel(node, node.op)
    x, builder = kernel.input(node.inputs[0]), kernel.builder
    out, epilogue = kernel.output()
    place = texel_of_thread(builder, out.spec)
    n, block, h, w = place
    rows = _Taps(builder, rows_window, h, out.extents.h, x.extents.h)
    columns = _Taps(builder, columns_window, w, out.extents.w, x.extents.w)
    if node.op.startswith("max"):
        largest = builder.registers(1, fill=-math.inf)

        def take(ky: Expr, kx: Expr) -> None:
            texel = x.texel(n, block, rows.locate_nearest(ky), columns.locate_nearest(kx))
            largest[0] = larger(largest[0], texel)

        _each_tap(windows, take, OneRun(builder))
        epilogue.write(*place, largest[0])
        return kernel.call()
    total = builder.registers(1, dtype=ACCUMULATOR, fill=0.0)
    taps = rows_window.taps * columns_window.taps
    runs = RunSums(builder, total, [0], taps)
    bare = rows.always_inside and columns.always_inside
    read = x.texel if bare else x.padded_texel

    def add(ky: Expr, kx: Expr) -> None:
        runs[0] = runs[0] + widen(read(n, block, rows.locate(ky), columns.locate(kx)))

    _each_tap(windows, add, runs)
    count = fconst(taps, ACCUMULATOR)
    if not (node.attrs["count_include_pad"] or bare):
        count = builder.let(cast(rows.count() * columns.count(), ACCUMULATOR), "count")
    epilogue.write(*place, total[0] / splat(count))
    return kernel.call()


def _each_tap(
    windows: tuple[PoolWindow, PoolWindow], visit: Callable[[Expr, Expr], None], runs: OneRun
) -> None:
    rows, columns = (window.taps for window in windows)
    if columns > UNROLLED_TAPS:
        runs.nest((rows, columns), ("ky", "kx"), lambda at: visit(*at))
        return

    def row(ky: Expr) -> None:
        for kx in range(columns):
            visit(ky, iconst(kx))

    runs.loop(rows, columns, "ky", row)


class _Taps:
    """Where the taps of one output position lie along one axis."""

    def __init__(
        self, builder: KernelBuilder, window: PoolWindow, position: Expr, outputs: int, extent: int
    ) -> None:
        self._window = window
        self._extent = extent
        self.always_inside = window.always_inside(outputs, extent)
        self._first = builder.let(position * iconst(window.stride) - iconst(window.pad), "first")
        self._low, self._high = self._bounds(builder)

    def _bounds(self, builder: KernelBuilder) -> tuple[Expr, Expr]:
        """Return the first and the last place inside at which a dilated row of taps can lie."""
        step, last = self._window.dilation, iconst(self._extent - 1)
        if step == 1:
            return iconst(0), last
        low = maximum(self._first, floormod(self._first, step))
        return builder.let(low, "low"), builder.let(last - floormod(last - self._first, step))

    def locate(self, tap: Expr) -> Expr:
        """Return where a tap lies, outside or not."""
        return self._first + tap * iconst(self._window.dilation)

    def locate_nearest(self, tap: Expr) -> Expr:
        """Return where a tap lies, or the nearest tap inside."""
        if self.always_inside:
            return self.locate(tap)
        return maximum(minimum(self.locate(tap), self._high), self._low)

    def count(self) -> Expr:
        """Return how many taps lie inside."""
        window = self._window
        low = maximum(self._first, self._low)
        end = self._first + iconst((window.taps - 1) * window.dilation)
        return floordiv(minimum(end, self._high) - low, window.dilation) + iconst(1)


def pool_windows(attrs: Mapping[str, Any]) -> tuple[PoolWindow, PoolWindow]:
    """Return the windows along H and W that Relax's attributes state, of a 1-D or a 2-D pool."""
    windows = [
        PoolWindow(
            taps=attrs["pool_size"][axis],
            stride=attrs["strides"][axis],
            pad=attrs["padding"][axis],
            dilation=attrs["dilation"][axis],
        )
        for axis in range(len(attrs["pool_size"]))
    ]
    return windows[0] if len(windows) == 2 else PoolWindow(taps=1), windows[-1]


_LETTERS = "layout"


def _refuses(node: Node, tensors: Mapping[str, Tensor]) -> str | None:
    reason = letters_refused(node, _LETTERS)
    if reason is not None:
        return reason
    if node.attrs["ceil_mode"] and node.attrs["count_include_pad"]:
        return "ceil_mode with count_include_pad: the taps that count differ by border"
    layout = str(node.attrs[_LETTERS])
    source, result = tensors[node.inputs[0]].shape, tensors[node.output].shape
    for letter, window in zip("HW", pool_windows(node.attrs), strict=True):
        axis = layout.find(letter)
        positions = range(result[axis] if axis >= 0 else 0)
        if not all(window.count_taps_inside(position, source[axis]) for position in positions):
            return f"a window along {letter} lies outside of the data"
    return None


def _taps(_graph: Graph, node: Node) -> int:
    return math.prod(int(extent) for extent in node.attrs["pool_size"])


def _typical(_run: TypicalRun, node: Node, data: np.ndarray) -> np.ndarray:
    """Away from borders, all that a window holds is alike."""
    layout = str(node.attrs[_LETTERS])
    return middle(data, keep=layout.index("C"), also=layout.find("N"))


def _operations(graph: Graph, node: Node) -> int:
    """Return one for each tap of each window."""
    return _taps(graph, node) * size_of(graph, node.output)


def _pool(name: str, numbers: Numbers) -> Operator:
    return Operator(
        name=name,
        kind=Kind.POOL,
        numbers=numbers,
        rule=pool_rule,
        relax=f"relax.nn.{name}",
        refuses=_refuses,
        wants_layout=wants_letters(_LETTERS),
        makes_layout=makes_letters(_LETTERS),
        reads_often=True,
        follows_batch=follow_letters(_LETTERS),
        terms=None if numbers is Numbers.PICKED else _taps,
        operations=_operations,
        typical=_typical,
    )


OPERATORS = (
    _pool("avg_pool1d", Numbers.AVERAGED),
    _pool("avg_pool2d", Numbers.AVERAGED),
    _pool("max_pool1d", Numbers.PICKED),
    _pool("max_pool2d", Numbers.PICKED),
)
