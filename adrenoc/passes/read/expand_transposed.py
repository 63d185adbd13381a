"""Transposed convolutions of other layouts than TVM's lowering takes, where none may stay whole.

Before -> after:
    R.nn.conv2d_transpose(x, w, data_layout="NHWC")
        x1 = R.permute_dims(x, [0, 3, 1, 2]); y = R.nn.conv2d_transpose(x1, w)
        R.permute_dims(y, [0, 2, 3, 1])
"""

from __future__ import annotations

from typing import Any

from adrenoc.base.tvmapi import tvm

_DATA, _KERNEL = "NCHW", "IOHW"


def expand_transposed(call: Any, name: str) -> Any | None:
    """Return the convolution between transposes of its operands; None where TVM lowers it as it
    is."""
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
