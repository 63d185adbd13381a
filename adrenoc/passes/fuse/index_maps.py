"""What maps do to indices: a tensor that is another one moved, and the way back."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm_ffi.structural import structural_map

from adrenoc.base.tvmapi import BufferLoad, Expr, Var, const_int, floormod, iconst, tirx, tvm
from adrenoc.ir.graph import Body, Graph
from adrenoc.ir.layout import LANES
from adrenoc.kernels.views import bind_extents
from adrenoc.passes.analyse.reads import mentions
from adrenoc.passes.analyse.scalar_body import substitute
from adrenoc.passes.fuse.fuse_maps import inline

MAX_RANK = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class Movement:
    """A tensor of this shape whose elements are those of `source`, times `factor`.

    The last axis walks along axis `channel` of the source, in whole blocks of four channels.
    """

    body: Body
    shape: tuple[int, ...]
    source: str
    channel: int
    factor: float


def movement_of(graph: Graph, body: Body, shape: tuple[int, ...]) -> Movement:
    """Return the farthest tensor that `body`, one load, can be read from in whole blocks.

    Before -> after:
        qkv -> reshape -> permute_dims -> strided_slice -> load     load of qkv at another index
    """
    factor = 1.0
    (name,) = body.sources.values()
    own = len(shape) - 1
    best = Movement(body=body, shape=shape, source=name, channel=own, factor=factor)
    while True:
        (name,) = body.sources.values()
        channel = _channel(body, shape, graph.tensors[name].shape)
        if channel is not None:
            best = Movement(body=body, shape=shape, source=name, channel=channel, factor=factor)
        producer = graph.producers.get(name)
        if producer is None or not producer.is_map or producer.body is None:
            break
        bare, times = split_factor(producer.body)
        if bare is None or len(bare.sources) != 1:
            break
        body, factor = simplify_indices(inline(body, name, bare), shape), factor * times
        if not isinstance(body.value, tvm.ir.TensorLoad):
            break
    return best


def split_factor(body: Body) -> tuple[Body | None, float]:
    """Return a body that is one load times a constant, as that load; None where it is not."""
    value, factor = body.value, 1.0
    while isinstance(value, (tirx.Mul, tirx.Div)) and isinstance(value.b, tirx.FloatImm):
        number = float(value.b.value)
        factor = factor * number if isinstance(value, tirx.Mul) else factor / number
        value = value.a
    if not isinstance(value, tvm.ir.TensorLoad) or body.reduced:
        return None, 1.0
    return replace(body, value=value), factor


def _channel(body: Body, shape: Sequence[int], source_shape: Sequence[int]) -> int | None:
    """Return the source's axis that the last axis walks along block by block, or None."""
    if len(source_shape) > MAX_RANK or len(source_shape) < 1:
        return None
    channels, last = shape[-1], body.axes[-1]
    load: BufferLoad = body.value
    indices = load.indices
    moving = [axis for axis, index in enumerate(indices) if mentions([index], [last])]
    if not moving and channels == 1:
        return len(source_shape) - 1
    if len(moving) != 1:
        return None
    axis = moving[0]
    if indices[axis].same_as(last) and source_shape[axis] == channels:
        return axis
    if channels % LANES:
        return None
    block, lane = Var("block", "int32"), Var("lane", "int32")
    analyzer = bind_extents(body.axes[:-1], shape[:-1])
    analyzer.bind(block, tvm.ir.Range(0, channels // LANES))
    analyzer.bind(lane, tvm.ir.Range(0, LANES))
    index = analyzer.simplify(substitute(indices[axis], {last: block * iconst(LANES) + lane}))
    first = analyzer.simplify(index - lane)
    whole = const_int(analyzer.simplify(floormod(first, LANES))) == 0
    return axis if whole and not mentions([first], [lane]) else None


def place_axes(
    body: Body, target: Sequence[int], source: Sequence[int]
) -> tuple[tuple[int, ...], ...] | None:
    """Return where an element of the source goes: the source axes that each target axis is made of.

    `body` reads the source at the target's axes.  (0, 2) is axis 0 times the extent of axis 2
    plus axis 2.  None where it cannot be said so, or breaks blocks of four channels up.

    Before -> after:
        y[0, m, c] = x[0, c // 64, m, c % 64]       ((), (2,), (1, 3))
    """
    wide = [axis for axis, extent in enumerate(source) if extent > 1]
    if not target or not wide or wide[-1] != len(source) - 1:
        return None
    for order in itertools.permutations(wide):
        axes = _group_axes(order, target, source)
        if axes is None:
            continue
        (joined,) = (parts for parts in axes if wide[-1] in parts)
        if joined[-1] != wide[-1] or (len(joined) > 1 and source[-1] % LANES):
            continue
        if _goes_back(body, axes, source):
            return axes
    return None


def _group_axes(
    order: tuple[int, ...], target: Sequence[int], source: Sequence[int]
) -> tuple[tuple[int, ...], ...] | None:
    """Return the axes in this order, cut so that the target's extents come out."""
    rest, axes = list(order), []
    for extent in target:
        taken: list[int] = []
        size = 1
        while size < extent and rest:
            taken.append(rest.pop(0))
            size *= source[taken[-1]]
        if size != extent:
            return None
        axes.append(tuple(taken))
    return tuple(axes) if not rest else None


def _goes_back(body: Body, axes: tuple[tuple[int, ...], ...], source: Sequence[int]) -> bool:
    """Return whether the body, read at the place of a source element, reads that element."""
    variables = [Var(f"s{axis}", "int32") for axis in range(len(source))]
    index = {}
    for var, parts in zip(body.axes, axes, strict=True):
        at: Expr = iconst(0)
        for axis in parts:
            at = at * iconst(source[axis]) + variables[axis]
        index[var] = at
    analyzer = bind_extents(variables, source)
    load: BufferLoad = body.value
    found = [analyzer.simplify(substitute(i, index)) for i in load.indices]
    return all(
        extent == 1 or const_int(analyzer.simplify(i - var)) == 0
        for i, var, extent in zip(found, variables, source, strict=True)
    )


def simplify_indices(body: Body, shape: Sequence[int]) -> Body:
    """Return the body with its indices simplified, its axes running over this shape."""
    analyzer = bind_extents(body.axes, shape)

    def simplify(load: Any) -> Any:
        return BufferLoad(load.source, [analyzer.simplify(i) for i in load.indices])

    return replace(body, value=structural_map(body.value, (tvm.ir.TensorLoad, simplify)))
