"""Operators that adrenoc translates itself, because TVM's ONNX frontend gets them wrong.

"Wrong" is: another number, a shape that is computed at run time, a TIR function where a Relax
operator exists (layout and memory scopes are chosen on Relax operators), or a form that no texture
kernel fits.  Each function says what it replaces.

Operators that stand in an ONNX graph for adrenoc's own are called as no operator of the standard
is, so that no file means one of them by its name.

Source: ONNX operator reference; tvm.relax.frontend.onnx of apache-tvm 0.27.0.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from math import prod

import numpy as np
from tvm import relax, te, tirx

from adrenoc.base.errors import RefusedError
from adrenoc.base.tvmapi import Expr
from adrenoc.importers.imported import check_grown
from adrenoc.importers.onnx.attention import APPEND_ROWS, CACHED_ATTENTION
from adrenoc.importers.onnx.contrib import INVERSE
from adrenoc.importers.onnx.n_bits import N_BITS
from adrenoc.importers.onnx.node import OnnxNode
from adrenoc.importers.relax import own
from adrenoc.importers.relax.own import head_of
from adrenoc.importers.relax.spatial import Window
from adrenoc.importers.relax.values import constant_value, dtype_of, make_constant, pick


def _n_ary(combine: Callable[..., relax.Expr], *, mean: bool = False) -> Callable[..., relax.Expr]:
    """TVM: stacks all inputs in a new axis and reduces over it."""

    def convert(node: OnnxNode) -> relax.Expr:
        total = reduce(lambda a, b: node.emit(combine(a, b)), node.inputs)
        if not mean or len(node.inputs) == 1:
            return total
        return total * node.like(1.0 / len(node.inputs))

    return convert


def _lrn(node: OnnxNode) -> relax.Expr:
    """TVM: a 3-D pool over a five-dimensional view, for which no texture layout exists.

    The sum over a window of channels is a 1x1 convolution with a band of ones.  The data is scaled
    before it is squared: squares stay small enough for half floats."""
    x, shape, size = node.inputs[0], node.shape(), int(node.attrs["size"])
    channels = shape[1]
    alpha, beta = node.attrs.get("alpha", 1e-4), node.attrs.get("beta", 0.75)
    bias = node.attrs.get("bias", 1.0)
    check_grown(channels * channels)
    out, into = np.indices((channels, channels))
    reach = into - out
    band = (reach >= -((size - 1) // 2)) & (reach <= size // 2)
    scaled = x * node.like(np.sqrt(alpha / size))
    square = scaled * scaled
    flat = (shape[0], channels, -1, 1) if len(shape) != 4 else None
    if flat:
        square = relax.op.reshape(square, flat)
    summed = node.emit(relax.op.nn.conv2d(square, node.like(band[:, :, None, None])))
    if flat:
        summed = relax.op.reshape(summed, shape)
    return x * (summed + node.like(bias)) ** node.like(-beta)


def _conv(node: OnnxNode) -> relax.Expr:
    """TVM: a pad kernel for SAME padding; the bias reshaped at run time."""
    rank, window = len(node.shape()), _window(node, node.shape(1)[2:])
    pads = window.pads(node.text("auto_pad", "NOTSET"), node.attrs.get("pads"))
    window.check(pads)
    conv = {3: relax.op.nn.conv1d, 4: relax.op.nn.conv2d, 5: relax.op.nn.conv3d}[rank]
    result = conv(
        node.inputs[0],
        node.inputs[1],
        strides=window.strides,
        padding=pads,
        dilation=window.dilations,
        groups=int(node.attrs.get("group", 1)),
    )
    return _add_bias(node, result, rank)


def _window(node: OnnxNode, kernel: Sequence[int]) -> Window:
    ones = [1] * (len(node.shape()) - 2)
    return Window(
        extents=node.shape()[2:],
        kernel=kernel,
        strides=list(node.attrs.get("strides", ones)),
        dilations=list(node.attrs.get("dilations", ones)),
    )


def _conv_transpose(node: OnnxNode) -> relax.Expr:
    """TVM: ignores output_shape, and pads that auto_pad derives from it; dilation is wrong."""
    rank, weight = len(node.shape()), node.shape(1)
    axes, attrs = rank - 2, node.attrs
    window = _window(node, weight[2:])
    strides, dilations, spans = window.strides, window.dilations, window.spans
    extra = list(attrs.get("output_padding", [0] * axes))
    auto = node.text("auto_pad", "NOTSET")
    wanted = list(attrs.get("output_shape", []))[-axes:]
    if not wanted and auto.startswith("SAME"):
        wanted = [e * s for e, s in zip(node.shape()[2:], strides, strict=True)]
    begin, end = [0] * axes, [0] * axes
    if wanted:
        for axis, extent in enumerate(node.shape()[2:]):
            full = strides[axis] * (extent - 1) + extra[axis] + spans[axis]
            total = max(full - wanted[axis], 0)
            extra[axis] += max(wanted[axis] - full, 0)
            begin[axis] = total // 2 if auto != "SAME_LOWER" else total - total // 2
            if auto == "NOTSET":
                begin[axis] = total - total // 2
            end[axis] = total - begin[axis]
    elif "pads" in attrs and auto == "NOTSET":
        begin, end = list(attrs["pads"][:axes]), list(attrs["pads"][axes:])
    kernel_value = constant_value(node.inputs[1])
    filters = node.inputs[1]
    if kernel_value is not None and any(d != 1 for d in dilations):
        # A dilated kernel is a larger kernel with zeros between its taps.
        check_grown(int(np.prod((*weight[:2], *spans), dtype=object)))
        spread = np.zeros((*weight[:2], *spans), kernel_value.dtype)
        taps = (slice(None), slice(None), *(slice(None, None, d) for d in dilations))
        spread[taps] = kernel_value
        filters, dilations = node.like(spread), [1] * axes
    name = {3: "conv1d_transpose", 4: "conv2d_transpose", 5: "conv3d_transpose"}[rank]
    result = getattr(relax.op.nn, name)(
        node.inputs[0],
        filters,
        strides=strides,
        padding=[*begin, *end],
        output_padding=extra,
        dilation=dilations,
        groups=int(attrs.get("group", 1)),
    )
    return _add_bias(node, result, rank)


def _col2im(node: OnnxNode) -> relax.Expr:
    """TVM lacks it: a transposed convolution, each of whose filters has one tap."""
    image, block = node.ints(1, "image_shape"), node.ints(2, "block_shape")
    if image is None or block is None:
        raise RefusedError("the shapes of image and block must be constant")
    axes, taps = range(len(image)), prod(block)
    strides = list(node.attrs.get("strides", [1 for _ in axes]))
    dilations = list(node.attrs.get("dilations", [1 for _ in axes]))
    pads = list(node.attrs.get("pads", [0 for _ in (*axes, *axes)]))
    steps = [
        image[a] + pads[a] + pads[a + len(image)] - dilations[a] * (block[a] - 1) - 1 for a in axes
    ]
    batch, columns, _ = node.shape()
    check_grown(taps * taps)
    counts = [step // stride + 1 for step, stride in zip(steps, strides, strict=True)]
    x = relax.op.reshape(node.inputs[0], (batch * columns // taps, taps, *counts))
    filters = np.eye(taps).reshape(taps, 1, *block)
    how = {"strides": strides, "dilations": dilations, "pads": pads}
    rest = [step % stride for step, stride in zip(steps, strides, strict=True)]
    moved = replace(
        node, inputs=[node.emit(x), node.like(filters)], attrs={**how, "output_padding": rest}
    )
    return relax.op.reshape(node.emit(_conv_transpose(moved)), (batch, columns // taps, *image))


def _add_bias(node: OnnxNode, result: relax.Expr, rank: int) -> relax.Expr:
    if node.input(2) is None:
        return result
    bias = constant_value(node.inputs[2])
    shape = (1, -1, *[1] * (rank - 2))
    if bias is None:
        return result + relax.op.reshape(node.inputs[2], shape)
    return result + node.like(bias.reshape(shape))


def _windows(node: OnnxNode) -> tuple[Window, list[int], list[int]]:
    """Return a pool's windows, explicit pads, and these grown to what ceil_mode asks for."""
    window = _window(node, list(node.attrs["kernel_shape"]))
    pads = window.pads(node.text("auto_pad", "NOTSET"), node.attrs.get("pads"))
    grown = window.grow(pads) if node.attrs.get("ceil_mode", 0) else pads
    window.check(grown)
    return window, pads, grown


def _pool(kind: str) -> Callable[[OnnxNode], relax.Expr]:
    """TVM: rounds up (ceil_mode) and derives SAME pads by rules of its own; loops over integers."""

    def convert(node: OnnxNode) -> relax.Expr:
        axes = len(node.shape()) - 2
        window, pads, grown = _windows(node)
        x = node.inputs[0]
        include = kind == "avg" and bool(node.attrs.get("count_include_pad", 0))
        if include and grown != pads:
            # Zeros of the model count, those that only round the extent up do not.
            spatial = [v for axis in range(axes) for v in (pads[axis], pads[axis + axes])]
            x = node.emit(relax.op.nn.pad(x, [0, 0, 0, 0, *spatial]))
            grown = [g - p for g, p in zip(grown, pads, strict=True)]
            include = False
        pads = grown
        pool = getattr(relax.op.nn, f"{kind}_pool{axes}d")
        dtype = dtype_of(x)
        small = kind == "max" and dtype in ("int8", "uint8") and node.outputs == 1
        if small:  # floats hold them, and pools of floats have kernels
            x = node.emit(x.astype("float32"))
        pooled = pool(
            x,
            pool_size=window.kernel,
            strides=window.strides,
            padding=pads,
            dilation=window.dilations,
            count_include_pad=include and any(pads),
        )
        if small:
            return node.emit(pooled).astype(dtype)
        if node.outputs == 1:
            return pooled
        values = node.emit(pooled)
        indices = _max_pool_indices(node, values, window, pads)
        return relax.Tuple([values, node.emit(indices)])

    return convert


def _max_pool_indices(
    node: OnnxNode, values: relax.Expr, window: Window, pads: Sequence[int]
) -> relax.Expr:
    """Return where each maximum of a pool lies in the whole input, as `storage_order` counts."""
    shape = node.shape()
    axes = len(shape) - 2
    by_column = bool(node.attrs.get("storage_order", 0))

    def indices(x: te.Tensor, pooled: te.Tensor) -> te.Tensor:
        taps = [te.reduce_axis((0, extent), f"k{a}") for a, extent in enumerate(window.kernel)]

        def element(n: Expr, c: Expr, *at: Expr) -> Expr:
            where = [
                at[a] * window.strides[a] - pads[a] + taps[a].var * window.dilations[a]
                for a in range(axes)
            ]
            inside: Expr = tirx.const(True, "bool")
            for a in range(axes):
                inside = tirx.And(inside, tirx.And(where[a] >= 0, where[a] < shape[2 + a]))
            flat = n * shape[1] + c
            for a in range(axes):
                flat = flat * shape[2 + a]
            inner, span = tirx.const(0, "int32"), 1
            for a in range(axes) if by_column else reversed(range(axes)):
                inner, span = inner + where[a] * span, span * shape[2 + a]
            missing = tirx.const(2**31 - 1, "int32")
            value = x(n, c, *where)
            taken = tirx.Or(value == pooled(n, c, *at), tirx.isnan(value))
            hit = tirx.if_then_else(inside, taken, inside)
            return te.min(tirx.Select(hit, (flat + inner).astype("int32"), missing), axis=taps)

        first = te.compute(pooled.shape, element, name="first")
        return te.compute(pooled.shape, lambda *i: first(*i).astype("int64"), name="indices")

    return node.bb.call_te(indices, node.inputs[0], values, primfunc_name_hint="max_pool_indices")


def _lp_pool(node: OnnxNode) -> relax.Expr:
    """TVM: a power function for every p, and windows by rules of its own."""
    window, _, pads = _windows(node)
    p, taps = int(node.attrs.get("p", 2)), prod(window.kernel)
    mean = getattr(relax.op.nn, f"avg_pool{len(window.kernel)}d")(
        node.emit(_lp_power(node, p)),
        pool_size=window.kernel,
        strides=window.strides,
        padding=pads,
        dilation=window.dilations,
        count_include_pad=True,  # so that each mean is of as many
    )
    return _lp_root(node, node.emit(node.emit(mean) * node.like(taps)), p)


def _global_lp_pool(node: OnnxNode) -> relax.Expr:
    """TVM: a pool with a window of the whole image."""
    axes = list(range(2, len(node.shape())))
    p = int(node.attrs.get("p", 2))
    total = relax.op.sum(_lp_power(node, p), axes, keepdims=True)
    return _lp_root(node, node.emit(total), p)


def _lp_power(node: OnnxNode, p: int) -> relax.Expr:
    x = node.inputs[0]
    if p == 2:
        return x * x
    size = relax.op.abs(x)
    return size if p == 1 else node.emit(size) ** node.like(p)


def _lp_root(node: OnnxNode, total: relax.Expr, p: int) -> relax.Expr:
    if p == 2:
        return relax.op.sqrt(total)
    return total if p == 1 else total ** node.like(1.0 / p)


def _gemm(node: OnnxNode) -> relax.Expr:
    """TVM: scales and transposes constant weights at run time, and scales the large operand."""
    a, b = node.inputs[0], node.inputs[1]
    alpha, beta = float(node.attrs.get("alpha", 1.0)), float(node.attrs.get("beta", 1.0))
    if node.attrs.get("transA", 0):
        a = relax.op.permute_dims(a, [1, 0])
    weight = constant_value(b)
    if weight is not None:
        weight = weight.T if node.attrs.get("transB", 0) else weight
        if alpha != 1.0:
            weight, alpha = weight * weight.dtype.type(alpha), 1.0
        b = node.like(weight)
    elif node.attrs.get("transB", 0):
        b = node.emit(relax.op.permute_dims(b, [1, 0]))
    result = node.emit(relax.op.matmul(a, b))
    if alpha != 1.0:
        result = result * node.like(alpha)
    if node.input(2) is None or beta == 0.0:
        return result
    bias = node.inputs[2]
    value = constant_value(bias)
    if value is not None:
        bias = node.like(value * value.dtype.type(beta))
    elif beta != 1.0:
        bias = node.emit(bias * node.like(beta))
    return result + bias


def _slice(node: OnnxNode) -> relax.Expr:
    """TVM: leaves attributes of opset 1 unread."""
    shape = node.shape()
    starts, ends = node.ints(1, "starts"), node.ints(2, "ends")
    if starts is None or ends is None:
        raise RefusedError("starts and ends are missing")
    axes = node.ints(3, "axes") or list(range(len(starts)))
    steps = node.ints(4, "steps") or [1] * len(starts)
    axes = [axis % len(shape) for axis in axes]
    begins, stops = [], []
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        begin, stop, _ = slice(start, end, step).indices(shape[axis])
        begins.append(max(begin, 0))  # Going backwards from before the first, it is the first.
        # Going backwards, -1 would mean the last element: what lies before the first is -(n+1).
        stops.append(stop if stop >= 0 else -(shape[axis] + 1))
    return relax.op.strided_slice(node.inputs[0], axes, begins, stops, steps)


def _gather(node: OnnxNode) -> relax.Expr:
    """TVM: a test for negative indices at run time, and a gather where a slice does. Places
    outside, which ONNX forbids, read the nearest: no read leaves the memory."""
    shape = node.shape()
    axis = int(node.attrs.get("axis", 0)) % len(shape)
    indices = constant_value(node.inputs[1])
    if indices is None:
        index = node.inputs[1]
        extent = make_constant(np.array(shape[axis], dtype_of(index)))
        zero = make_constant(np.array(0, dtype_of(index)))
        negative = index < zero
        index = node.emit(relax.op.where(negative, index + extent, index))
        return relax.op.take(node.inputs[0], index, axis=axis, mode="clip")
    indices = np.where(indices < 0, indices + shape[axis], indices)
    if indices.ndim:
        return pick(node.inputs[0], indices, axis)
    one = pick(node.inputs[0], indices.reshape(1), axis)
    return relax.op.squeeze(one, [axis])


def _pad(node: OnnxNode) -> relax.Expr:
    """TVM: a TIR function where Relax has an operator, which hides the pad from folding."""
    rank = len(node.shape())
    pads = node.ints(1, "pads")
    value = node.number(2)
    mode = node.text("mode", "constant")
    axes = node.ints(3, "axes") or list(range(rank))
    if pads is None:
        raise RefusedError("the pads are missing")
    width = [0] * (2 * rank)
    for index, axis in enumerate(axes):
        width[2 * (axis % rank)] = pads[index]
        width[2 * (axis % rank) + 1] = pads[index + len(axes)]
    x = node.inputs[0]
    if any(w < 0 for w in width):  # a negative pad cuts off
        begins = [max(-w, 0) for w in width[::2]]
        ends = [e - max(-w, 0) for e, w in zip(node.shape(), width[1::2], strict=True)]
        x = relax.op.strided_slice(x, list(range(rank)), begins, ends)
        width = [max(w, 0) for w in width]
    fill = float(node.attrs.get("value", 0.0)) if value is None else float(value)
    modes = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}
    if mode not in modes:
        raise RefusedError(f"unknown mode '{mode}'")
    return relax.op.nn.pad(x, width, pad_mode=modes[mode], pad_value=fill)


def _pow(node: OnnxNode) -> relax.Expr:
    """TVM: refuses exponents of another dtype than the base, and integers altogether."""
    base, exponent, dtype = node.inputs[0], node.inputs[1], dtype_of(node.inputs[0])
    inner = dtype if dtype.startswith("float") else "float32"
    if dtype != inner:
        base = base.astype(inner)
    if dtype_of(exponent) != inner:
        exponent = node.emit(exponent.astype(inner))
    result = base**exponent
    return result if dtype == inner else node.emit(result).astype(dtype)


def _space_to_depth(node: OnnxNode) -> relax.Expr:
    """TVM: knows one of the two orders of channels."""
    n, c, h, w = node.shape()
    block = int(node.attrs["blocksize"])
    split = (n, c, h // block, block, w // block, block)
    order = [0, 1, 3, 5, 2, 4] if node.text("mode", "DCR") == "CRD" else [0, 3, 5, 1, 2, 4]
    moved = relax.op.permute_dims(relax.op.reshape(node.inputs[0], split), order)
    return relax.op.reshape(moved, (n, c * block * block, h // block, w // block))


def _dropout(node: OnnxNode) -> relax.Expr:
    """TVM: a mask of ones and zeros of the data's dtype; what passes data on never comes here."""
    if node.number(2) and node.number(1) != 0:
        raise RefusedError("it trains: export the model for inference")
    mask = relax.op.ones(node.shape(), "bool")
    return relax.Tuple([node.inputs[0], mask])


def _n_bits(node: OnnxNode) -> relax.Expr:
    operands = _given(node)
    return own.call_own(
        own.N_BITS,
        operands,
        shape=(*node.shape()[:-1], node.shape(1)[0]),
        block=int(node.attrs["block"]),
        bits=int(node.attrs["bits"]),
        zero=float(node.attrs["zero"]),
        zeros=len(operands) > 3,
    )


def _append_rows(node: OnnxNode) -> relax.Expr:
    attrs = _attrs_of_cache(node)
    return own.call_own(own.APPEND_ROWS, _given(node), shape=node.shape(), **attrs)


def _cached_attention(node: OnnxNode) -> relax.Expr:
    heads, width = int(node.attrs["heads"]), node.shape(2)[-1]
    head = head_of(width, int(node.attrs["bits"]))
    return own.call_own(
        own.CACHED_ATTENTION,
        _given(node),
        shape=(*node.shape()[:2], heads * head),
        scale=float(node.attrs["scale"]),
        cap=float(node.attrs["cap"]),
        **{name: int(node.attrs[name]) for name in ("heads", "window", "sunk", "biased")},
        **_attrs_of_cache(node),
    )


def _inverse(node: OnnxNode) -> relax.Expr:
    return own.call_own(own.INVERSE, node.inputs[:1], shape=node.shape())


def _given(node: OnnxNode) -> list[relax.Expr]:
    return [operand for operand in node.inputs if operand is not None]


def _attrs_of_cache(node: OnnxNode) -> dict[str, int | float]:
    return {name: type(plain)(node.attrs[name]) for name, plain in own.PLAIN.items()}


_ROWS = 2
"""The axis of rows in [1, heads, rows, head]."""


def _tensor_scatter(node: OnnxNode) -> relax.Expr:
    shape, given = node.shape(), node.shape(1)
    axis = int(node.attrs.get("axis", -2)) % len(shape)
    circular = node.text("mode", "linear") == "circular"
    apart = len(shape) == _ROWS + 2 and axis == _ROWS and shape[0] == 1
    whole = not circular or given[axis] == 1  # rows that begin again at the first are two runs
    if apart and whole and dtype_of(node.inputs[0]).startswith("float"):
        return _add_rows(node, shape, given, circular=circular)
    return _choose(node, shape, given, axis, circular=circular)


def _add_rows(
    node: OnnxNode, shape: tuple[int, ...], given: tuple[int, ...], *, circular: bool
) -> relax.Expr:
    """Return the operator that adds rows to a cache, which reads them token by token."""
    _, heads, tokens, head = given
    turned = relax.op.permute_dims(node.inputs[1], [0, 2, 1, 3])
    rows = relax.op.reshape(turned, (1, tokens, heads * head))
    starts = node.inputs[2] if len(node.inputs) > 2 else None
    first = make_constant(np.zeros(1, np.int32))
    if starts is not None:
        first = starts.astype("int32")
    if circular:
        first = relax.op.floor_mod(first, make_constant(np.array([shape[_ROWS]], np.int32)))
    operands = [node.inputs[0], *(node.bb.normalize(one) for one in (rows, first))]
    return own.call_own(own.APPEND_ROWS, operands, shape=shape, **own.PLAIN)


def _choose(
    node: OnnxNode, shape: tuple[int, ...], given: tuple[int, ...], axis: int, *, circular: bool
) -> relax.Expr:
    def scatter(past: te.Tensor, update: te.Tensor, *starts: te.Tensor) -> te.Tensor:
        def element(*index: Expr) -> Expr:
            start = starts[0](index[0]).astype("int32") if starts else tirx.const(0, "int32")
            at = index[axis] - start
            at = tirx.floormod(at, shape[axis]) if circular else at
            source = [at if a == axis else i for a, i in enumerate(index)]
            written = tirx.And(at >= 0, at < given[axis])
            return tirx.if_then_else(written, update(*source), past(*index))

        return te.compute(shape, element, name="scattered")

    operands = [e for e in node.inputs[:3] if e is not None]
    return node.bb.call_te(scatter, *operands, primfunc_name_hint="tensor_scatter")


OWN: dict[str, Callable[[OnnxNode], relax.Expr]] = {
    "AveragePool": _pool("avg"),
    "Col2Im": _col2im,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Dropout": _dropout,
    "Gather": _gather,
    "Gemm": _gemm,
    "GlobalLpPool": _global_lp_pool,
    "LRN": _lrn,
    "LpPool": _lp_pool,
    "Max": _n_ary(relax.op.maximum),
    "MaxPool": _pool("max"),
    "Mean": _n_ary(relax.op.add, mean=True),
    "Min": _n_ary(relax.op.minimum),
    "Pad": _pad,
    "Pow": _pow,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Sum": _n_ary(relax.op.add),
    "TensorScatter": _tensor_scatter,
    APPEND_ROWS: _append_rows,
    CACHED_ATTENTION: _cached_attention,
    INVERSE: _inverse,
    N_BITS: _n_bits,
}
