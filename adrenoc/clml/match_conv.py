"""Convolutions with what may be fused into them: pad, bias, batch norm, ReLU and ReLU6."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from adrenoc.base.refused import RefusedError
from adrenoc.clml.found import (
    Bindings,
    Found,
    check_limits,
    constant,
    ints,
    make_found,
    operand,
    require,
    shape_of,
)
from adrenoc.clml.patterns import Table
from adrenoc.clml.region import Operand
from adrenoc.importers.relax.flat import Binding
from adrenoc.importers.relax.values import constant_value, op_name


@dataclass(frozen=True, kw_only=True)
class Tail:
    """What follows a convolution: `tags` of the composite name, operands, attributes."""

    bindings: tuple[Binding, ...]
    tags: tuple[str, ...]
    operands: tuple[Operand, ...]
    attrs: dict[str, Any]


def match_conv2d(table: Table, bindings: Bindings, start: Binding) -> Found:
    """conv2d, full or depthwise.

    Raises:
        RefusedError: a layout, a grouping or weights that CLML does not have.
    """
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
            max(attrs["dilation"]) == 1,
            f"depthwise with dilation {attrs['dilation']}, expected 1",
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
        attrs["padding"] = _add_lists(attrs["padding"], _spatial(pad.value))
    kind = "nn.depthwise_conv2d" if depthwise else "nn.conv2d"
    return make_found(
        row,
        (*before, *tail.bindings),
        ".".join(("openclml", *tags, kind)),
        (operand(source), constant(weights), *tail.operands),
        {**attrs, **tail.attrs},
    )


def match_conv2d_transpose(table: Table, bindings: Bindings, start: Binding) -> Found:
    """conv2d_transpose; the weights become OIHW.

    Raises:
        RefusedError: groups, an output padding, a layout.
    """
    call, row = start.value, table["conv2d_transpose"]
    attrs = conv_attrs(call.attrs)
    attrs["output_padding"] = ints(call.attrs.output_padding)
    require(attrs["data_layout"] == "NCHW", f"layout {attrs['data_layout']}, expected NCHW")
    require(attrs["groups"] == 1, f"{attrs['groups']} groups, expected 1")
    require(
        not any(attrs["output_padding"]),
        f"output padding {attrs['output_padding']}, expected none",
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
    """Bias, batch norm and activation behind `start`, as far as they follow."""
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
    """`relu`, `relu6`, or None for a clip to other limits."""
    if op_name(call) == "relax.nn.relu":
        return "relu"
    return "relu6" if clip_limits(call) == (0.0, 6.0) else None


def clip_limits(call: Any) -> tuple[float, float]:
    """(min, max) of a clip."""
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


def _spatial(pad: Any) -> list[int]:
    widths = ints(pad.attrs.pad_width)
    return [widths[4], widths[6], widths[5], widths[7]]


def _add_lists(first: list[int], second: list[int]) -> list[int]:
    return [a + b for a, b in zip(first, second, strict=True)]


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
