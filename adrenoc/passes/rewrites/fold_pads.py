"""Pads of zeros become part of the convolutions that read them.

A convolution reads zeros beyond the edges of an image for nothing, as many as it is told to.

Before -> after:
    p = pad(x, rows 0..1, columns 0..1); y = conv2d(p, w)      y = conv2d(x, w, padding 0, 0, 1, 1)
"""

from __future__ import annotations

import tvm
from tvm import relax

from adrenoc.base.decision import DecisionLog
from adrenoc.importers.relax.flat import Binding, FlatFunction, flatten, rebuild, replace_main
from adrenoc.importers.relax.values import op_name, static_shape

_CONVOLUTIONS = {"relax.nn.conv1d": "W", "relax.nn.conv2d": "HW"}
"""And the axes along which they are padded."""


def fold_pads(module: tvm.IRModule) -> tuple[tvm.IRModule, DecisionLog]:
    """Let convolutions in `main` pad what a pad of zeros before them does."""
    flat = flatten(module["main"])
    values: dict[relax.Var, relax.Expr] = {}
    bindings = []
    for binding in flat.bindings:
        value = _fold_pad(flat, binding.value, values)
        values[binding.var] = value
        bindings.append(Binding(var=binding.var, value=value))
    if not flat.log:
        return module, flat.log
    flat.bindings = bindings
    flat.drop_unused()
    main, _ = rebuild(flat)
    return replace_main(module, main), flat.log


def _fold_pad(
    flat: FlatFunction, value: relax.Expr, values: dict[relax.Var, relax.Expr]
) -> relax.Expr:
    """Return the convolution on what the pad before it reads; anything else as it is."""
    letters = _CONVOLUTIONS.get(op_name(value))
    if letters is None or not isinstance(value, relax.Call):
        return value
    source = value.args[0]
    while isinstance(source, relax.Var) and source in values:
        pad = values[source]
        widths = _zeros(pad, str(value.attrs.data_layout), letters)
        if widths is None:
            break
        taken = "zeros that its convolution reads beyond the edges"
        reason = f"{widths[0]} before and {widths[1]} after along {letters}"
        flat.log.add(flat.name(source), taken, reason)
        value = _pad_convolution(value, pad.args[0], widths)
        source = pad.args[0]
    return value


def _zeros(
    pad: relax.Expr, layout: str, letters: str
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the zeros before and after each of these axes; None where it is no pad of those
    alone."""
    if op_name(pad) != "relax.nn.pad" or str(pad.attrs.pad_mode) != "constant":
        return None
    widths = [int(n) for n in pad.attrs.pad_width]
    if float(pad.attrs.pad_value) != 0.0 or len(widths) != 2 * len(layout):
        return None
    if static_shape(pad.args[0]) is None or min(widths) < 0:
        return None
    by_letter = {c: (widths[2 * axis], widths[2 * axis + 1]) for axis, c in enumerate(layout)}
    if any(any(pair) for letter, pair in by_letter.items() if letter not in letters):
        return None
    return tuple(by_letter[c][0] for c in letters), tuple(by_letter[c][1] for c in letters)


def _pad_convolution(
    conv: relax.Call, source: relax.Expr, widths: tuple[tuple[int, ...], tuple[int, ...]]
) -> relax.Call:
    """Return the convolution with more padding."""
    attrs = conv.attrs
    padding = [
        int(p) + more for p, more in zip(attrs.padding, (*widths[0], *widths[1]), strict=True)
    ]
    make = relax.op.nn.conv2d if op_name(conv) == "relax.nn.conv2d" else relax.op.nn.conv1d
    call = make(
        source,
        conv.args[1],
        strides=[int(n) for n in attrs.strides],
        padding=padding,
        dilation=[int(n) for n in attrs.dilation],
        groups=int(attrs.groups),
        data_layout=str(attrs.data_layout),
        kernel_layout=str(attrs.kernel_layout),
        out_layout=str(attrs.out_layout or attrs.data_layout),
        out_dtype=str(attrs.out_dtype) if attrs.out_dtype is not None else None,
    )
    return relax.Call(conv.op, list(call.args), call.attrs, call.ty_args)
