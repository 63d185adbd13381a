"""Steps that compute: products, reductions, norms, maps of one and two operands."""

import math

from tests.host.random_graphs.grower import Grower, Made, Tensor

EXTENTS = (1, 2, 3, 4, 5, 7, 8, 11, 13, 17, 32)
FREE = (
    *("Relu", "Sigmoid", "Tanh", "HardSwish", "Neg", "Abs", "Erf", "Mish", "Softplus", "Softsign"),
    *("Selu", "Celu", "Sin", "Cos", "Atan"),
)


def matmul(g: Grower, x: Tensor) -> Made:
    """With constants on either side, of one matrix or of many."""
    if x.rank < 2:
        return g("MatMul", x, g.weight(x.shape[0], 5), shape=(5,))
    more = g.one_of(EXTENTS)
    batch = x.shape[:-2] if g.maybe() else ()
    if g.maybe() or x.rank > 4:
        return g("MatMul", x, g.weight(*batch, x.shape[-1], more), shape=(*x.shape[:-1], more))
    left = g.weight(*batch, more, x.shape[-2])
    shape = (*x.shape[:-2], more, x.shape[-1])
    return g("MatMul", left, x, shape=shape)


def product(g: Grower, x: Tensor) -> Made:
    """Of two tensors of the graph, which may be one and the same."""
    fitting = [
        t
        for t in g.tensors
        if x.rank > 1 and t.shape[:-2] == x.shape[:-2] and t.shape[-2:-1] == x.shape[-1:]
    ]
    if not fitting:
        return None
    other = g.one_of(fitting)
    return g("MatMul", x, other, shape=(*x.shape[:-1], other.shape[-1]))


def gemm(g: Grower, x: Tensor) -> Made:
    """With each of its attributes."""
    if x.rank != 2:
        return None
    flip, turned = g.between(0, 1), g.between(0, 1)
    rows, inner = x.shape[::-1] if flip else x.shape
    columns = g.one_of(EXTENTS)
    operands = [g.weight(*((columns, inner) if turned else (inner, columns)))]
    if g.maybe():
        operands.append(g.weight(*g.one_of(((columns,), (rows, 1), (1, columns), (1,)))))
    attrs = {"alpha": g.one_of((1.0, 0.5)), "beta": g.one_of((1.0, 2.0))}
    return g("Gemm", x, *operands, shape=(rows, columns), transA=flip, transB=turned, **attrs)


def attention(g: Grower, x: Tensor) -> Made:
    """Scores of rows against rows of the same tensor, and their mix."""
    if x.rank < 2 or not g.fits(x.shape) or not g.fits((*x.shape[:-1], x.shape[-2])):
        return None
    order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    turned = g("Transpose", x, shape=[x.shape[a] for a in order], perm=order)
    scores = g("MatMul", x, turned, shape=(*x.shape[:-1], x.shape[-2]))
    scaled = g("Mul", scores, g.ops.const(x.shape[-1] ** -0.5))
    if g.maybe():
        scaled = g("Add", scaled, g.weight(x.shape[-2], x.shape[-2]))
    weights = g("Softmax", scaled, axis=-1)
    return g("MatMul", weights, x, shape=x.shape)


def reduce(g: Grower, x: Tensor) -> Made:
    """Any kind over any axes."""
    axes = g.some(range(x.rank))
    kind = g.one_of(
        ("Mean", "Mean", "Max", "Min", "Sum", "SumSquare", "L1", "L2", "LogSumExp", "Prod")
    )
    if kind == "Prod":
        axes = axes[:1]
    keep = g.between(0, 1)
    shape = [1 if a in axes else e for a, e in enumerate(x.shape) if keep or a not in axes]
    return g(f"Reduce{kind}", x, g.ints(*axes), shape=shape, keepdims=keep)


def softmax(g: Grower, x: Tensor) -> Made:
    """Along any axis."""
    axis = g.between(-x.rank, x.rank - 1)
    return g(g.one_of(("Softmax", "LogSoftmax")), x, axis=axis)


def norm(g: Grower, x: Tensor) -> Made:
    """Layer, instance, group, batch norm, or LRN."""
    if g.maybe():
        axis = g.between(0, x.rank - 1)
        shape = x.shape[axis:]
        operands = [g.weight(*shape, around=1.0)]
        if g.maybe():
            operands.append(g.weight(*shape))
        return g("LayerNormalization", x, *operands, axis=axis, epsilon=1e-2)
    if x.rank < 3:
        return None
    channels = x.shape[1]
    scale, bias = g.weight(channels, around=1.0), g.weight(channels)
    kind = g.one_of(("Instance", "Batch", "LRN"))
    if kind == "LRN":
        return g("LRN", x, size=g.one_of((1, 3, 5))) if x.rank == 4 else None
    if kind == "Instance":
        if math.prod(x.shape[2:]) < 4:  # onnxruntime's difference of such large products is noise
            return None
        return g("InstanceNormalization", x, scale, bias, epsilon=1e-2)
    mean, variance = g.weight(channels), g.weight(channels, around=1.0)
    return g("BatchNormalization", x, scale, bias, mean, variance)


def unary(g: Grower, x: Tensor) -> Made:
    """A map of one operand."""
    more = ("Gelu",) if g.ops.opset >= 20 else ()
    kind = g.one_of(
        (*FREE, *more, "LeakyRelu", "Elu", "HardSigmoid", "Clip", "PRelu", "Sqrt", "Exp")
    )
    if kind == "Clip":
        return g("Clip", x, g.ops.const(-0.4), g.ops.const(0.7))
    if kind == "PRelu":
        slope = (x.shape[1], *[1] * (x.rank - 2)) if x.rank > 1 else x.shape
        return g("PRelu", x, g.weight(*slope))
    if kind in ("Sqrt", "Exp"):
        safe = g("Abs" if kind == "Sqrt" else "Tanh", x)
        return None if safe is None else g(kind, safe)
    return g(kind, x)


def broadcast(g: Grower, x: Tensor) -> Made:
    """A map of the tensor and a constant of any shape that broadcasts."""
    first = g.between(0, x.rank)
    shape = [e if g.maybe() else 1 for e in x.shape[first:]]
    kind = g.one_of(("Add", "Mul", "Sub", "Div", "Max", "Min", "Pow"))
    if kind == "Pow":
        return g("Pow", x, g.ops.const(2.0))
    other = g.weight(*shape, around=0.75)
    if kind == "Sub" and g.maybe():
        return g("Sub", other, x, shape=x.shape)
    if kind == "Max" and g.maybe():  # more axes than the tensor has
        return g("Max", x, g.weight(2, *x.shape), shape=(2, *x.shape)) if x.rank < 6 else None
    return g(kind, x, other)


def join(g: Grower, x: Tensor) -> Made:
    """A map of two tensors of the graph: of equal shapes, or where one broadcasts."""
    kind = g.one_of(("Add", "Add", "Mul", "Sub", "Max"))
    found = g.like(x.shape, besides=x)
    if found is not None:
        return g(kind, *((x, found) if g.maybe() else (found, x)))
    fitting = [
        t
        for t in g.tensors
        if t.rank <= x.rank
        and all(a in (1, b) for a, b in zip(t.shape[::-1], x.shape[::-1], strict=False))
    ]
    return g(kind, x, g.one_of(fitting))


def select(g: Grower, x: Tensor) -> Made:
    """By a constant mask, or by the sign: continuously, lest rounding takes another branch."""
    if not g.fits(x.shape):
        return None
    if g.maybe():
        taken = g.mask(*x.shape[g.between(0, x.rank) :])
        return g("Where", taken, x, g.like(x.shape, besides=x) or g.weight(1), shape=x.shape)
    other = g("Mul", x, g.weight(*x.shape[-1:]))
    return g("Where", g.ops("Greater", x.name, g.ops.const(0.0)), x, other, shape=x.shape)


def squeeze_and_excite(g: Grower, x: Tensor) -> Made:
    """A scale for each channel, computed from its mean."""
    if x.rank != 4:
        return None
    channels, few = x.shape[1], g.between(1, 4)
    mean = g("GlobalAveragePool", x, shape=(*x.shape[:2], 1, 1))
    inner = g("Conv", mean, g.weight(few, channels, 1, 1), shape=(x.shape[0], few, 1, 1))
    if inner is None:
        return None
    active = g("Relu", inner)
    back = g("Conv", active, g.weight(channels, few, 1, 1), g.weight(channels), shape=mean.shape)
    scale = g("HardSigmoid" if g.maybe() else "Sigmoid", back)
    return None if scale is None else g("Mul", x, scale)


STEPS = (
    *(matmul, matmul, product, product, gemm, gemm, attention, reduce, reduce, softmax, norm, norm),
    *(unary, unary, unary, broadcast, broadcast, join, join, join, select, squeeze_and_excite),
)
