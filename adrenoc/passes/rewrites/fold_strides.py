"""A strided convolution of one row of samples becomes one of as many channels as it strides over.

    x [N, 1, L], K taps, stride s     [N, s, L / s], ceil(K / s) taps, stride 1

Before, a texel of four channels held one sample, and each output read all of its K taps by itself.
Models of sound begin so: short-time Fourier transforms, learned filters of raw samples.
"""

import numpy as np
from tvm import relax

from adrenoc.importers.relax.values import (
    Binding,
    FlatFunction,
    constant_value,
    dtype_of,
    make_constant,
    op_name,
    static_shape,
)
from adrenoc.ir.layout import LANES

_LEAST_STRIDE = 4
"""Samples of a texel: with fewer, channels would lie empty again."""


def fold_strides(flat: FlatFunction) -> None:
    """Rewrite each convolution of `flat` of one row of samples that has so many multiply-adds."""
    bindings: list[Binding] = []
    for binding in flat.bindings:
        folded = _fold(flat, binding, bindings)
        bindings.append(binding if folded is None else Binding(var=binding.var, value=folded))
    flat.bindings = bindings


def _fold(flat: FlatFunction, binding: Binding, bindings: list[Binding]) -> relax.Call | None:
    """Bind what the new convolution reads, and return it; None: the old one stays."""
    conv = binding.value
    if not isinstance(conv, relax.Call) or op_name(conv) != "relax.nn.conv1d":
        return None
    attrs, (x, kernel) = conv.attrs, conv.args
    layouts = str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout or "NCW")
    weight, shape, result = constant_value(kernel), static_shape(x), static_shape(binding.var)
    if weight is None or shape is None or result is None or layouts != ("NCW", "OIW", "NCW"):
        return None
    (stride,), (dilation,) = attrs.strides, attrs.dilation
    stride, (before, _) = int(stride), (int(width) for width in attrs.padding)
    taps = -(-weight.shape[2] // stride)
    whole = taps * -(-stride // LANES) * LANES
    if shape[1] != 1 or dilation != 1 or stride < _LEAST_STRIDE or whole > 2 * weight.shape[2]:
        return None
    batch, dtype = shape[0], dtype_of(x)
    columns = result[2] + taps - 1
    read = shape[2] if before + shape[2] <= columns * stride else columns * stride - before

    def bind(value: relax.Expr, *extents: int) -> relax.Var:
        var = flat.new_var(f"{flat.name(binding.var)}_folded", relax.TensorType(extents, dtype))
        bindings.append(Binding(var=var, value=value))
        return var

    if read < shape[2]:
        x = bind(relax.op.strided_slice(x, [2], [0], [read]), batch, 1, read)
    after = columns * stride - before - read
    if before or after:
        widths = [0, 0, 0, 0, before, after]
        x = bind(relax.op.nn.pad(x, widths), batch, 1, columns * stride)
    x = bind(relax.op.reshape(x, (batch, columns, stride)), batch, columns, stride)
    x = bind(relax.op.permute_dims(x, [0, 2, 1]), batch, stride, columns)
    filled = np.pad(weight[:, 0], ((0, 0), (0, taps * stride - weight.shape[2])))
    folded = filled.reshape(-1, taps, stride).transpose(0, 2, 1)
    flat.log.add(
        flat.name(binding.var),
        f"{stride} channels, {taps} taps",
        f"one channel and {weight.shape[2]} taps by {stride}, where a texel would hold one sample",
    )
    return relax.op.nn.conv1d(x, make_constant(folded), out_dtype=dtype_of(binding.var))
