"""The matchers of convolutions, with what may be fused into them, and of what stands alone.

Pad, bias, batch norm, ReLU and ReLU6 go with a convolution.  Alone stand element-wise operators,
norms, pools, softmax, concatenations, pads and resizes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from adrenoc.base.errors import RefusedError
from adrenoc.clml.region import (
    Bindings,
    Found,
    Operand,
    PatternRow,
    Table,
    check_limits,
    constant,
    ints,
    make_found,
    operand,
    require,
    shape_of,
)
from adrenoc.importers.relax.values import Binding, constant_value, op_name

_SPATIAL = [2, 3]
Matcher = Callable[[Table, Bindings, Binding], Found]
"""(table, bindings, the first one) -> the pattern; raises RefusedError with the reason why not."""


@dataclass(frozen=True, kw_only=True)
class Tail:
    """What follows a convolution: `tags` of the composite name, operands, attributes."""

    bindings: tuple[Binding, ...]
    tags: tuple[str, ...]
    operands: tuple[Operand, ...]
    attrs: dict[str, Any]


def match_conv2d(table: Table, bindings: Bindings, start: Binding) -> Found:
    """Return a convolution, full or depthwise, with what follows it."""
    call = start.value
    attrs = conv_attrs(call.attrs)
    require(attrs["data_layout"] == "NCHW", f"layout {attrs['data_layout']}, expected NCHW")
    require(attrs["kernel_layout"] == "OIHW", f"weights {attrs['kernel_layout']}, expected OIHW")
    weights = _weights(call)
    channels, groups = shape_of(call.args[0])[1], attrs["groups"]
    depthwise = groups == channels == weights.shape[0] and weights.shape[1] == 1 and groups > 1
    if not depthwise:
        require(groups == 1, f"{groups} groups of {channels} channels, expected 1 or {channels}")
    row = table["depthwise_conv2d" if depthwise else "conv2d"]
    if depthwise:
        # CLML's depthwise mode holds its weights as one output and many inputs.
        weights = np.ascontiguousarray(weights.transpose(1, 0, 2, 3))
        attrs["kernel_layout"] = "IOHW"
        require(
            max(attrs["dilation"]) == 1, f"depthwise with dilation {attrs['dilation']}, expected 1"
        )
    check_limits(row, [call.args[0], call.args[1], start.var])
    tail = conv_tail(table, bindings, start)
    pad = padding_before(bindings, call)
    before: tuple[Binding, ...] = ()
    source = call.args[0]
    tags = tail.tags
    if pad is not None:
        before = (pad,)
        source = pad.value.args[0]
        tags = (*tags, "pad")
        widths = ints(pad.value.attrs.pad_width)[4:]  # before and after H, then W
        along = (widths[0], widths[2], widths[1], widths[3])
        attrs["padding"] = [a + b for a, b in zip(attrs["padding"], along, strict=True)]
    kind = "nn.depthwise_conv2d" if depthwise else "nn.conv2d"
    return make_found(
        row,
        (*before, *tail.bindings),
        ".".join(("openclml", *tags, kind)),
        (operand(source), constant(weights), *tail.operands),
        {**attrs, **tail.attrs},
    )


def match_conv2d_transpose(table: Table, bindings: Bindings, start: Binding) -> Found:
    """Return a transposed convolution; its weights become OIHW."""
    call, row = start.value, table["conv2d_transpose"]
    attrs = conv_attrs(call.attrs)
    attrs["output_padding"] = ints(call.attrs.output_padding)
    require(attrs["data_layout"] == "NCHW", f"layout {attrs['data_layout']}, expected NCHW")
    require(attrs["groups"] == 1, f"{attrs['groups']} groups, expected 1")
    require(
        not any(attrs["output_padding"]), f"output padding {attrs['output_padding']}, expected none"
    )
    weights = _weights(call)
    layout = attrs["kernel_layout"]
    require(layout in ("IOHW", "OIHW"), f"weights {layout}, expected IOHW or OIHW")
    if layout == "IOHW":
        weights = np.ascontiguousarray(weights.transpose(1, 0, 2, 3))
        attrs["kernel_layout"] = "OIHW"
    check_limits(row, [call.args[0], call.args[1], start.var])
    tail = conv_tail(table, bindings, start, norm=False)
    return make_found(
        row,
        tail.bindings,
        ".".join(("openclml", *tail.tags, "nn.conv2d_transpose")),
        (operand(call.args[0]), constant(weights), *tail.operands),
        {**attrs, **tail.attrs},
    )


def conv_attrs(attrs: Any) -> dict[str, Any]:
    """Return the attributes that both convolutions share, as TVM's extractor writes them."""
    out_dtype = attrs.out_dtype
    return {
        "strides": ints(attrs.strides),
        "padding": ints(attrs.padding),
        "dilation": ints(attrs.dilation),
        "groups": int(attrs.groups),
        "data_layout": str(attrs.data_layout),
        "kernel_layout": str(attrs.kernel_layout),
        "out_layout": str(attrs.out_layout or attrs.data_layout),
        "out_dtype": "" if out_dtype is None or str(out_dtype) == "void" else str(out_dtype),
    }


def conv_tail(table: Table, bindings: Bindings, start: Binding, *, norm: bool = True) -> Tail:
    """Return bias, batch norm and activation behind `start`, as far as they follow."""
    chain = [start]
    tags: list[str] = []
    operands: list[Operand] = []
    attrs: dict[str, Any] = {}
    channels = shape_of(start.var)[1]
    bias = bindings.next(chain[-1], "relax.add")
    value = None if bias is None else _bias(bias, chain[-1], channels)
    if bias is not None and value is not None:
        chain.append(bias)
        tags.insert(0, "bias")
        operands.append(constant(value))
    norm = norm and bindings.version >= table["batch_norm"].version
    normed = bindings.next(chain[-1], "relax.nn.batch_norm") if norm else None
    if normed is not None and _foldable(bindings, normed):
        chain.append(normed)
        item = bindings.next_item(normed)
        if item is not None:
            chain.append(item)
        tags.insert(0, "bn")
        tags.insert(0, "tuple")
        operands += [operand(arg) for arg in normed.value.args[1:5]]
        attrs["batchnorm"] = _norm_words(normed.value.attrs)
    active = bindings.next(chain[-1], "relax.nn.relu", "relax.clip")
    if active is not None:
        kind = activation_of(active.value)
        if kind is not None:
            chain.append(active)
            tags.insert(0, kind)
            attrs["activation_type"] = kind
    return Tail(bindings=tuple(chain), tags=tuple(tags), operands=tuple(operands), attrs=attrs)


def activation_of(call: Any) -> str | None:
    """Return `relu`, `relu6`, or None for a clip to other limits."""
    if op_name(call) == "relax.nn.relu":
        return "relu"
    return "relu6" if clip_limits(call) == (0.0, 6.0) else None


def clip_limits(call: Any) -> tuple[float, float]:
    """Return (min, max) of a clip."""
    low, high = (getattr(arg, "value", arg) for arg in call.args[1:3])
    return float(getattr(low, "value", low)), float(getattr(high, "value", high))


def padding_before(bindings: Bindings, call: Any) -> Binding | None:
    """Return a pad with zeros along H and W whose only reader is the convolution `call`."""
    pad = bindings.producer(call.args[0])
    if pad is None or op_name(pad.value) != "relax.nn.pad" or not bindings.inner(pad.var):
        return None
    attrs = pad.value.attrs
    widths = ints(attrs.pad_width)
    zeros = float(attrs.pad_value) == 0.0 and str(attrs.pad_mode) == "constant"
    good = zeros and len(widths) == 8 and not any(widths[:4]) and min(widths) >= 0
    return pad if good else None


def _weights(call: Any) -> np.ndarray:
    weights = constant_value(call.args[1])
    if weights is None:
        raise RefusedError("its weights are computed, expected a constant")
    return weights


def _bias(add: Binding, before: Binding, channels: int) -> np.ndarray | None:
    """Return the constant of an addition if it holds one number a channel."""
    left, right = add.value.args
    value = constant_value(right if left.same_as(before.var) else left)
    if value is None or value.dtype.kind != "f":
        return None
    shape = (1,) * (4 - value.ndim) + value.shape
    if value.ndim > 4 or shape != (1, channels, 1, 1):
        return None
    return value.reshape(1, channels, 1, 1)


def _foldable(bindings: Bindings, norm: Binding) -> bool:
    constants = [constant_value(arg) for arg in norm.value.args[1:5]]
    return (
        all(c is not None for c in constants)
        and int(norm.value.attrs.axis) == 1
        and not norm.value.attrs.training
        and bindings.next_item(norm) is not None
    )


def _norm_words(attrs: Any) -> list[str]:
    """Axis, epsilon, center and scale as text.  TVM writes six decimals, which makes an epsilon
    of 1e-7 a zero; the words that C++ reads back as the same number are kept here."""
    epsilon = float(attrs.epsilon)
    six = f"{epsilon:f}"
    text = six if float(six) == epsilon else repr(epsilon)
    return [str(int(attrs.axis)), text, str(int(attrs.center)), str(int(attrs.scale))]


def _map(row: PatternRow, start: Binding, name: str, **attrs: Any) -> Found:
    """Return an operator of one operand, whose result has the form of that or a smaller one."""
    source = start.value.args[0]
    check_limits(row, [source])
    return make_found(row, [start], name, [operand(source)], attrs)


def match_relu(table: Table, _bindings: Bindings, start: Binding) -> Found:
    """Return a ReLU that no operator before it takes in."""
    return _map(table["relu"], start, "openclml.relax.nn.relu", activation_type="relu")


def match_clip(table: Table, _bindings: Bindings, start: Binding) -> Found:
    """Return a clip: ReLU6 where its limits are 0 and 6."""
    low, high = clip_limits(start.value)
    if (low, high) == (0.0, 6.0):
        return _map(table["relu6"], start, "openclml.nn.relu6")
    return _map(table["clip"], start, "clip", a_max=high, a_min=low)


def match_binary(table: Table, bindings: Bindings, start: Binding) -> Found:
    """Return an operator of equal shapes; by a factor or an offset a channel it is a batch norm."""
    call, name = start.value, op_name(start.value)
    left, right = call.args
    scaled = _scale_shift(table, bindings, start)
    if scaled is not None:
        return scaled
    shapes = shape_of(left), shape_of(right)
    require(shapes[0] == shapes[1], f"operands of shapes {shapes[0]} and {shapes[1]}")
    require(not left.same_as(right), "both operands are one tensor")
    row = table["divide" if name == "relax.divide" else "binary"]
    check_limits(row, [left, right, start.var])
    return make_found(row, [start], f"openclml.{name}", [operand(left), operand(right)])


def _scale_shift(table: Table, bindings: Bindings, start: Binding) -> Found | None:
    """x * factor + offset by channel, or one of them, as a batch norm of mean 0, variance 1."""
    name, chain = op_name(start.value), [start]
    if name not in ("relax.add", "relax.multiply"):
        return None
    side = _split_channel_constant(start)
    if side is None:
        return None
    source, value = side
    ones, zeros = np.ones_like(value), np.zeros_like(value)
    factor, offset = (value, zeros) if name == "relax.multiply" else (ones, value)
    if name == "relax.multiply":
        added = bindings.next(start, "relax.add")
        second = None if added is None else _split_channel_constant(added)
        if added is not None and second is not None:
            chain.append(added)
            offset = second[1]
    row = table["scale_shift"]
    check_limits(row, [source, start.var])
    attrs = {"axis": 1, "epsilon": 0.0, "momentum": 0.1, "center": 1, "scale": 1, "training": 0}
    vectors = [constant(v) for v in (factor, offset, zeros.copy(), ones.copy())]
    return make_found(row, chain, "openclml.nn.batch_norm", [operand(source), *vectors], attrs)


def _split_channel_constant(binding: Binding) -> tuple[Any, np.ndarray] | None:
    """Return (data, one number a channel) of an operator of NCHW data and such a constant."""
    for data, other in (binding.value.args, reversed(binding.value.args)):
        value, shape = constant_value(other), shape_of(binding.var)
        if value is None or len(shape) != 4 or shape_of(data) != shape:
            continue
        padded = (1,) * (4 - value.ndim) + value.shape
        if value.dtype.kind == "f" and padded == (1, shape[1], 1, 1):
            return data, np.ascontiguousarray(value.reshape(-1))
    return None


def match_batch_norm(table: Table, bindings: Bindings, start: Binding) -> Found:
    """Return a batch norm that could not be folded, with the tuple's item and TVM's reshape."""
    call, row = start.value, table["batch_norm"]
    item = bindings.next_item(start)
    if item is None:
        raise RefusedError("its running statistics are read")
    require(int(call.attrs.axis) == 1, f"axis {int(call.attrs.axis)}, expected 1")
    require(not call.attrs.training, "it is in training: it normalises by the batch's statistics")
    vectors = [constant_value(arg) for arg in call.args[1:5]]
    require(all(v is not None for v in vectors), "its factors are computed, expected constants")
    check_limits(row, [call.args[0], *call.args[1:5]], batched=False)
    check_limits(row, [call.args[0]])
    chain = [start, item]
    reshaped = bindings.next(item, "relax.reshape")
    if reshaped is not None and shape_of(reshaped.var) == shape_of(item.var):
        chain.append(reshaped)
    a = call.attrs
    attrs = {
        "axis": int(a.axis),
        "epsilon": float(a.epsilon),
        "center": int(a.center),
        "scale": int(a.scale),
        "momentum": float(a.momentum),
        "training": int(a.training),
    }
    return make_found(
        row, chain, "openclml.nn.batch_norm", [operand(arg) for arg in call.args], attrs
    )


def match_pool(table: Table, _bindings: Bindings, start: Binding) -> Found:
    """Return a pool as CLML has them: NCHW, dense windows, padding left out."""
    call, a = start.value, start.value.attrs
    kind = op_name(call).removeprefix("relax.nn.")
    row, source = table[kind], call.args[0]
    attrs: dict[str, Any] = {
        "pool_size": ints(a.pool_size),
        "strides": ints(a.strides),
        "dilation": ints(a.dilation),
        "padding": ints(a.padding),
        "ceil_mode": int(a.ceil_mode),
        "count_include_pad": int(a.count_include_pad),
        "layout": str(a.layout),
        "out_layout": str(a.out_layout or a.layout),
    }
    require(attrs["layout"] == attrs["out_layout"] == "NCHW", f"layout {attrs['layout']}")
    require(max(attrs["dilation"]) == 1, f"dilation {attrs['dilation']}, expected 1")
    require(
        not attrs["ceil_mode"] or _divides(attrs, shape_of(source)),
        "ceil_mode with a last window that leaves the data",
    )
    counts = attrs["count_include_pad"] and any(attrs["padding"]) and kind == "avg_pool2d"
    require(not counts, "count_include_pad: CLML's average leaves padding out")
    attrs["count_include_pad"] = 0 if kind == "avg_pool2d" else attrs["count_include_pad"]
    attrs["ceil_mode"] = 0
    check_limits(row, [source, start.var])
    return make_found(row, [start], f"openclml.nn.{kind}", [operand(source)], attrs)


def _divides(attrs: dict[str, Any], shape: tuple[int, ...]) -> bool:
    """Return whether rounding up and down give the same number of windows."""
    before, after = attrs["padding"][:2], attrs["padding"][2:]
    return all(
        (shape[2 + i] + before[i] + after[i] - attrs["pool_size"][i]) % attrs["strides"][i] == 0
        for i in range(2)
    )


def match_global_pool(table: Table, _bindings: Bindings, start: Binding) -> Found:
    """Return a mean or a maximum over H and W."""
    call = start.value
    kind = "global_max_pool2d" if op_name(call) == "relax.max" else "global_avg_pool2d"
    rank = len(shape_of(call.args[0]))
    require(rank == 4, f"rank {rank}, expected 4")
    axes = None if call.attrs.axis is None else sorted(int(x) % rank for x in call.attrs.axis)
    require(axes == _SPATIAL, f"axes {axes}, expected {_SPATIAL}")
    name, keepdims = f"openclml.nn.{kind}", int(call.attrs.keepdims)
    return _map(table[kind], start, name, axis=_SPATIAL, keepdims=keepdims)


def match_softmax(table: Table, _bindings: Bindings, start: Binding) -> Found:
    """Return a softmax along the channels of rank 2 and 4, or along the last axis."""
    call, row = start.value, table["softmax"]
    rank, axis = len(shape_of(start.var)), int(call.attrs.axis)
    check_limits(row, [call.args[0]])
    along = axis % rank
    good = along == rank - 1 if rank in (2, 3) else rank == 4 and along in (1, 3)
    require(good, f"axis {axis} of rank {rank}, expected the channels or the last axis")
    attrs = {"axis": along}  # as TVM's normaliser leaves it
    return make_found(row, [start], "openclml.relax.nn.softmax", [operand(call.args[0])], attrs)


def match_concat(table: Table, _bindings: Bindings, start: Binding) -> Found:
    """Return a concatenation along the channels."""
    call, row = start.value, table["concat"]
    parts = list(call.args[0].fields)
    rank, axis = len(shape_of(start.var)), int(call.attrs.axis)
    require(axis % rank == 1, f"axis {axis} of rank {rank}, expected 1")
    require(len(parts) > 1, "one operand alone")
    require(all(constant_value(p) is None for p in parts), "an operand is a constant")
    check_limits(row, [*parts, start.var])
    attrs = {"axis": axis % rank}
    return make_found(row, [start], "concatenate", [operand(p) for p in parts], attrs)


def match_pad(table: Table, _bindings: Bindings, start: Binding) -> Found:
    """Return a pad with zeros, by reflection or by the edge, along H and W."""
    call, row = start.value, table["pad"]
    widths, mode = ints(call.attrs.pad_width), str(call.attrs.pad_mode)
    require(len(widths) == 8 and not any(widths[:4]), f"widths {widths}, expected H and W alone")
    require(min(widths) >= 0, f"widths {widths}, expected none below 0")
    require(mode in ("constant", "reflect"), f"mode {mode}, expected constant or reflect")
    value = float(call.attrs.pad_value)
    require(mode != "constant" or value == 0.0, f"value {value}, expected 0")
    check_limits(row, [call.args[0], start.var])
    attrs = {"pad_mode": mode, "pad_width": widths[4:]}
    return make_found(row, [start], "nn.pad", [operand(call.args[0])], attrs)


def match_upsampling(table: Table, _bindings: Bindings, start: Binding) -> Found:
    """Return a bilinear resize that does not ask for half-pixel centres."""
    call, row = start.value, table["upsampling"]
    a = call.attrs
    require(str(a.layout) == "NCHW", f"layout {a.layout}, expected NCHW")
    require(str(a.method) == "linear", f"method {a.method}, expected linear")
    mode = str(a.coordinate_transformation_mode)
    require(
        mode in ("align_corners", "asymmetric"),
        f"{mode} coordinates, expected align_corners or asymmetric",
    )
    source = call.args[0]
    check_limits(row, [source, start.var])
    grows = all(o >= i for i, o in zip(shape_of(source), shape_of(start.var), strict=True))
    require(grows, f"{shape_of(source)} to {shape_of(start.var)}, expected a larger plane")
    attrs = {"align_corners": int(mode == "align_corners")}
    return make_found(row, [start], "nn.upsampling", [operand(source)], attrs)


OPERATORS: dict[str, Matcher] = {
    "relax.nn.conv2d": match_conv2d,
    "relax.nn.conv2d_transpose": match_conv2d_transpose,
    "relax.nn.batch_norm": match_batch_norm,
    "relax.nn.relu": match_relu,
    "relax.clip": match_clip,
    "relax.nn.max_pool2d": match_pool,
    "relax.nn.avg_pool2d": match_pool,
    "relax.mean": match_global_pool,
    "relax.max": match_global_pool,
    "relax.nn.softmax": match_softmax,
    "relax.concat": match_concat,
    "relax.nn.pad": match_pad,
    "relax.image.resize2d": match_upsampling,
    **dict.fromkeys(
        (
            "relax.add",
            "relax.subtract",
            "relax.multiply",
            "relax.divide",
            "relax.maximum",
            "relax.minimum",
        ),
        match_binary,
    ),
}
"""Relax operator -> what finds the pattern that starts with it."""
