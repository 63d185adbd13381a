"""Steps that move elements: shapes, orders, slices, joins, borders, samples."""

import math

from tests.host.random_graphs.grower import Grower, Made, Tensor

MOST_RANK = 6


def concat(g: Grower, x: Tensor) -> Made:
    """With a constant, with itself, or with another tensor of the graph."""
    axis = g.between(0, x.rank - 1)
    beside = [
        t
        for t in g.tensors
        if t.rank == x.rank and t.shape[:axis] + t.shape[axis + 1 :] == _without(x, axis)
    ]
    parts: list[Tensor | str] = [x]
    grown = x.shape[axis]
    for _ in range(g.between(1, 3)):
        if g.maybe() or g.maybe():
            other = g.one_of(beside)
            grown += other.shape[axis]
            parts.insert(g.between(0, len(parts)), other)
        else:
            more = g.between(1, 5)
            grown += more
            shape = (more if a == axis else e for a, e in enumerate(x.shape))
            parts.insert(g.between(0, len(parts)), g.weight(*shape))
    shape = tuple(grown if a == axis else e for a, e in enumerate(x.shape))
    return g("Concat", *parts, shape=shape, axis=axis - x.rank if g.maybe() else axis)


def _without(x: Tensor, axis: int) -> tuple[int, ...]:
    return x.shape[:axis] + x.shape[axis + 1 :]


def cut(g: Grower, x: Tensor) -> Made:
    """Slice: some axes, steps of either sign."""
    axes = g.some(range(x.rank))
    starts, ends, steps, shape = [], [], [], list(x.shape)
    for axis in axes:
        extent = x.shape[axis]
        low = g.between(0, extent - 1)
        high = g.between(low + 1, extent)
        step = g.one_of((1, 1, 2, 3, -1, -2))
        shape[axis] = -(-(high - low) // abs(step))
        if step > 0:
            starts.append(low - extent if g.maybe() else low)
            ends.append(high if high < extent or g.maybe() else 1 << 31)
        else:
            starts.append(high - 1)
            ends.append(low - 1 if low else -(1 << 31))
        steps.append(step)
    operands = [g.ints(*starts), g.ints(*ends), g.ints(*axes), g.ints(*steps)]
    return g("Slice", x, *operands, shape=shape)


def split(g: Grower, x: Tensor) -> Made:
    """Two or three parts; the steps after go on with one of them."""
    axis = g.one_of([a for a, e in enumerate(x.shape) if e > 1] or [0])
    extent = x.shape[axis]
    if extent < 2:
        return None
    first = g.between(1, extent - 1)
    sizes = [first, extent - first]
    if sizes[1] > 1 and g.maybe():
        middle = g.between(1, sizes[1] - 1)
        sizes[1:] = [middle, sizes[1] - middle]
    g.read.add(x.name)
    shapes = [tuple(s if a == axis else e for a, e in enumerate(x.shape)) for s in sizes]
    names = g.ops.split(x.name, axis, *sizes)
    return g.one_of([g.keep(n, s) for n, s in zip(names, shapes, strict=True)])


def pad(g: Grower, x: Tensor) -> Made:
    """Constant, mirrored or repeated borders; negative ones cut."""
    mode = g.one_of(("constant", "constant", "reflect", "edge", "wrap"))
    if mode == "wrap" and g.ops.opset < 19:
        mode = "edge"
    most = [2 if mode in ("constant", "edge") else min(2, e - 1) for e in x.shape]
    least = [-1 if mode == "constant" and e > 2 else 0 for e in x.shape]
    some = g.some(range(x.rank))
    before = [g.between(least[a], most[a]) if a in some else 0 for a in range(x.rank)]
    after = [g.between(least[a], most[a]) if a in some else 0 for a in range(x.rank)]
    shape = [e + b + a for e, b, a in zip(x.shape, before, after, strict=True)]
    operands = [g.ints(*before, *after)]
    if mode == "constant" and g.maybe():
        operands.append(g.ops.const(0.5))
    return g("Pad", x, *operands, shape=shape, mode=mode)


def resize(g: Grower, x: Tensor) -> Made:
    """To any extents, by all ways to place samples that leave no tie to the last bit."""
    # On long axes onnxruntime's coordinates, in float32, round to the neighbour of ONNX's own.
    if x.rank != 4 or max(x.shape[2:]) > 17:
        return None
    sizes = [*x.shape[:2], *(g.between(1, 2 * e + 1) for e in x.shape[2:])]
    if g.maybe():
        sizes = [*x.shape[:2], *(2 * e for e in x.shape[2:])]
    mode = g.one_of(("nearest", "linear", "cubic"))
    places = ["asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel"]
    place = g.one_of(places[: 1 if mode == "nearest" else None])
    return g(
        "Resize",
        x,
        "",
        "",
        g.ints(*sizes),
        shape=sizes,
        mode=mode,
        coordinate_transformation_mode=place,
        nearest_mode="floor",
        **({"cubic_coeff_a": -0.5} if mode == "cubic" and g.maybe() else {}),
        **({"exclude_outside": 1} if mode == "cubic" and g.maybe() else {}),
    )


def transpose(g: Grower, x: Tensor) -> Made:
    """Any order of axes."""
    order = g.order(x.rank)
    return g("Transpose", x, shape=[x.shape[a] for a in order], perm=order)


def reshape(g: Grower, x: Tensor) -> Made:
    """To any shape, with a -1 at times."""
    count = math.prod(x.shape)
    left: list[int] = []
    for _ in range(g.between(1, MOST_RANK) - 1):
        rest = count // math.prod(left)
        left.append(g.one_of([d for d in range(1, min(rest, 20) + 1) if rest % d == 0]))
    left.append(count // math.prod(left))
    left = [left[a] for a in g.order(len(left))]
    asked = list(left)
    if g.maybe():
        asked[g.between(0, len(asked) - 1)] = -1
    return g("Reshape", x, g.ints(*asked), shape=left)


def flatten(g: Grower, x: Tensor) -> Made:
    """To two axes."""
    axis = g.between(0, x.rank)
    shape = (math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
    return g("Flatten", x, shape=shape, axis=axis)


def squeeze(g: Grower, x: Tensor) -> Made:
    """Axes of one element go, or come."""
    ones = [a for a, e in enumerate(x.shape) if e == 1]
    if ones and x.rank > 1 and g.maybe():
        axis = g.one_of(ones)
        return g("Squeeze", x, g.ints(axis), shape=_without(x, axis))
    if x.rank == MOST_RANK:
        return None
    axis = g.between(0, x.rank)
    return g("Unsqueeze", x, g.ints(axis), shape=(*x.shape[:axis], 1, *x.shape[axis:]))


def repeat(g: Grower, x: Tensor) -> Made:
    """Tile, or Expand of axes of one element."""
    if g.maybe():
        times = [g.one_of((1, 1, 2, 3)) for _ in x.shape]
        shape = [e * t for e, t in zip(x.shape, times, strict=True)]
        return g("Tile", x, g.ints(*times), shape=shape)
    shape = [g.between(1, 5) if e == 1 else e for e in x.shape]
    if len(shape) < MOST_RANK and g.maybe():
        shape.insert(0, g.between(1, 3))
    return g("Expand", x, g.ints(*shape), shape=shape)


def gather(g: Grower, x: Tensor) -> Made:
    """Some elements of an axis, by constant indices of any sign."""
    axis = g.between(0, x.rank - 1)
    extent = x.shape[axis]
    taken = [g.between(-extent, extent - 1) for _ in range(g.between(1, 5))]
    shape = (*x.shape[:axis], len(taken), *x.shape[axis + 1 :])
    return g("Gather", x, g.ints(*taken), shape=shape, axis=axis)


def blocks(g: Grower, x: Tensor) -> Made:
    """DepthToSpace or SpaceToDepth."""
    if x.rank != 4:
        return None
    n, c, h, w = x.shape
    size = g.between(2, 3)
    if c % (size * size) == 0:
        shape = (n, c // size**2, h * size, w * size)
        return g("DepthToSpace", x, shape=shape, blocksize=size, mode=g.one_of(("DCR", "CRD")))
    if h % size or w % size:
        return None
    shape = (n, c * size**2, h // size, w // size)
    return g("SpaceToDepth", x, shape=shape, blocksize=size)


def shuffle(g: Grower, x: Tensor) -> Made:
    """ShuffleNet's: channels of groups change places."""
    groups = [c for c in (2, 3, 4) if x.rank == 4 and x.shape[1] % c == 0]
    if not groups or not g.fits(x.shape):
        return None
    (n, c, h, w), count = x.shape, g.one_of(groups)
    apart = g("Reshape", x, g.ints(n, count, c // count, h, w), shape=(n, count, c // count, h, w))
    turned = (n, c // count, count, h, w)
    swapped = g("Transpose", apart, shape=turned, perm=[0, 2, 1, 3, 4])
    return g("Reshape", swapped, g.ints(n, c, h, w), shape=x.shape)


STEPS = (
    *(concat, concat, cut, cut, split, pad, resize, transpose, transpose),
    *(reshape, reshape, flatten, squeeze, repeat, gather, blocks, shuffle),
)
MOVED = (cut, split, transpose, reshape, flatten, squeeze, repeat, gather, blocks, shuffle)
"""Steps that compute nothing."""
