"""Read operators as simpler ones where they cannot stay whole.

Norms become reductions and element-wise operators, where no norm kernel covers them (TVM's own
lowering folds two values at once, which no scalar expression can say); transposed convolutions get
the layout that TVM's lowering takes.

Before -> after:
    R.nn.layer_norm(x, g, b, axes)    (x - mean(x)) * rsqrt(mean((x - mean(x))^2) + eps) * g + b
    R.nn.conv2d_transpose(x, w, data_layout="NHWC")
        x1 = R.permute_dims(x, [0, 3, 1, 2]); y = R.nn.conv2d_transpose(x1, w)
        R.permute_dims(y, [0, 2, 3, 1])
"""

from collections.abc import Callable, Sequence
from typing import Any

from adrenoc.base.tvmapi import tvm

_HALF, _WIDE = "float16", "float32"

Expand = Callable[[Any, str], Any]
"""Gives for a call, and the name of what it is bound to, a function of the call's arguments, or
None where TVM's own lowering is taken."""


def _group_norm(call: Any, name: str) -> Any:
    """Split the channels into groups and members, which share their statistics."""
    shape, channel, groups = _shape(call), _channel(call), int(call.attrs.num_groups)
    split = [*shape[:channel], groups, shape[channel] // groups, *shape[channel + 1 :]]
    axes = [channel + 1, *(a + 1 if a > channel else a for a in _axes(call))]
    return _norm(call, name, axes=axes, affine_axes=[channel], split=split)


def _norm(
    call: Any,
    name: str,
    *,
    axes: Sequence[int],
    affine_axes: Sequence[int],
    split: Sequence[int] | None = None,
    centred: bool = True,
) -> Any:
    """Return the norm over `axes` of x, seen in the shape `split` meanwhile."""
    relax = tvm.relax
    op = relax.op
    builder = relax.BlockBuilder()
    params = [relax.Var(f"{name}_arg{i}", arg.ty) for i, arg in enumerate(call.args)]
    shape, dtype = _shape(call), str(call.args[0].ty.dtype)

    def emit(value: Any, part: str) -> Any:
        return builder.emit(value, f"{name}_{part}")

    with builder.function("norm", params):
        with builder.dataflow():
            # Squares of halves overflow from 256 on.
            wide = [emit(op.astype(p, _WIDE), "wide") if dtype == _HALF else p for p in params]
            x = wide[0] if split is None else emit(op.reshape(wide[0], split), "groups")
            deviations = x
            if centred:
                # Subtracted twice, for each of the two that read it alone: no tensor holds it.
                mean = emit(op.mean(x, list(axes), keepdims=True), "mean")
                deviations = emit(op.subtract(x, mean), "deviations")
                x = emit(op.subtract(x, mean), "centred")
            square = emit(op.multiply(deviations, deviations), "square")
            variance = emit(op.mean(square, list(axes), keepdims=True), "variance")
            epsilon = relax.const(float(call.attrs.epsilon), _WIDE if dtype == _HALF else dtype)
            deviation = emit(op.sqrt(emit(op.add(variance, epsilon), "shifted")), "deviation")
            y = emit(op.divide(x, deviation), "scaled")
            if split is not None:
                y = emit(op.reshape(y, shape), "joined")
            along = [shape[a] if a in affine_axes else 1 for a in range(len(shape))]
            for position, combine, switch in ((1, op.multiply, "scale"), (2, op.add, "center")):
                if position < len(params) and getattr(call.attrs, switch, True):
                    factor = emit(op.reshape(wide[position], along), f"affine{position}")
                    y = emit(combine(y, factor), f"with{position}")
            if dtype == _HALF:
                y = emit(op.astype(y, dtype), "narrow")
            result = builder.emit_output(y, f"{name}_norm")
        builder.emit_func_output(result)
    return builder.get()["norm"]


def _shape(call: Any) -> list[int]:
    return [int(d) for d in call.args[0].ty.shape]


def _axes(call: Any) -> list[int]:
    return [int(a) % len(_shape(call)) for a in call.attrs.axes]


def _channel(call: Any) -> int:
    return int(call.attrs.channel_axis) % len(_shape(call))


_DATA, _KERNEL = "NCHW", "IOHW"


def _expand_transposed(call: Any, name: str) -> Any | None:
    """Return the convolution between transposes; None where TVM lowers it as it is."""
    attrs = call.attrs
    data, kernel = str(attrs.data_layout), str(attrs.kernel_layout)
    out = str(attrs.out_layout) or data
    if (data, kernel, out) == (_DATA, _KERNEL, _DATA):
        return None
    relax = tvm.relax
    builder = relax.BlockBuilder()
    params = [relax.Var(f"{name}_arg{i}", arg.ty) for i, arg in enumerate(call.args)]

    def permute(value: Any, layout: str, wanted: str, part: str) -> Any:
        axes = [layout.index(letter) for letter in wanted]
        return builder.emit(relax.op.permute_dims(value, axes), f"{name}_{part}")

    with builder.function("transposed", params):
        with builder.dataflow():
            x = permute(params[0], data, _DATA, "image")
            weight = permute(params[1], kernel, _KERNEL, "weights")
            total = relax.op.nn.conv2d_transpose(
                x,
                weight,
                strides=attrs.strides,
                padding=attrs.padding,
                output_padding=attrs.output_padding,
                dilation=attrs.dilation,
                groups=int(attrs.groups),
                data_layout=_DATA,
                kernel_layout=_KERNEL,
                out_dtype=attrs.out_dtype,
            )
            total = builder.emit(total, f"{name}_sums")
            result = builder.emit_output(permute(total, _DATA, out, "result"), f"{name}_placed")
        builder.emit_func_output(result)
    return builder.get()["transposed"]


EXPANSIONS: dict[str, Expand] = {
    "relax.nn.conv2d_transpose": _expand_transposed,
    "relax.nn.group_norm": _group_norm,
    "relax.nn.instance_norm": lambda call, name: _norm(
        call, name, axes=_axes(call), affine_axes=[_channel(call)]
    ),
    "relax.nn.layer_norm": lambda call, name: _norm(
        call, name, axes=_axes(call), affine_axes=_axes(call)
    ),
    "relax.nn.rms_norm": lambda call, name: _norm(
        call, name, axes=_axes(call), affine_axes=_axes(call), centred=False
    ),
}
"""Relax operator -> its parts."""
