"""Layers that carry a state from token to token, as onnxruntime's own domain has them.

Before -> after:
    y, next = com.microsoft.CausalConvWithState(x, weight, bias, past)

    whole = Concat(past, x, axis 2)             past: the last numbers of earlier tokens
    y = Conv(whole, weight, bias, group = channels)
    next = the end of whole

    decay, beta = com.microsoft.LinearAttentionGate(a, bias, scale, b)
                                                scale * Softplus(a + bias), Sigmoid(b)
    y = com.microsoft.GatedRMSNorm(x, scale, gate)
                                                RMSNormalization of each head, times SiLU(gate)

Source: onnxruntime's ContribOperators reference, and version 1.32 of it tried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from adrenoc.base.refused import RefusedError
from adrenoc.importers.onnx.writer import Writer

_PLAIN_CONV = {
    "ndim": (1,),
    "state_window": (0,),
    "state_update_capacity": (0,),
    "state_channels_last": (-1,),
    "state_length": (0,),
    "input_channel_offset": (0,),
    "input_channels": (0,),
}
"""Attribute -> the values that are covered, the default among them."""


def check_plain(write: Writer, covered: Mapping[str, Sequence[int]]) -> None:
    """Refuse attributes with values that would be another result.

    Raises:
        RefusedError: naming them all.
    """
    if odd := write.odd_attributes(covered):
        raise RefusedError(f"it has {', '.join(odd)}, which is not covered")


def _causal_conv(write: Writer) -> None:
    """Channels first, as the standard has them; with `channels_last` turned to that."""
    check_plain(write, _PLAIN_CONV)
    x, weight, bias, past = (write.input(index) for index in range(4))
    is_last = bool(write.number("channels_last", 0))
    if is_last and len(write.shape(x)) != 3:
        raise RefusedError(f"its input has the shape {list(write.shape(x))}, expected 3 axes")
    dilation = int(write.number("dilation", 1))
    channels, _, taps = write.shape(weight)
    before = (taps - 1) * dilation
    if is_last:
        x = write("Transpose", x, perm=[0, 2, 1])
        past = write("Transpose", past, perm=[0, 2, 1]) if past else ""
    if not past:
        past = write.array(
            np.zeros((write.shape(write.input(0))[0], channels, before), _type(write))
        )
    length = write.shape(write.input(0))[1 if is_last else 2]
    whole = write("Concat", past, x, axis=2)
    operands = [whole, weight, *([bias] if bias else [])]
    made = write("Conv", *operands, group=channels, dilations=[dilation], kernel_shape=[taps])
    activation = write.text("activation", "none")
    if activation in ("silu", "swish"):
        made = write("Mul", made, write("Sigmoid", made))
    elif activation != "none":
        raise RefusedError(f"its activation is {activation}, expected silu, swish or none")
    state = write.slice(whole, length, length + before, 2)
    _name(write, made, write.result, is_last)
    if write.output(1):
        _name(write, state, write.output(1), is_last)


def _type(write: Writer) -> np.dtype[np.generic]:
    return np.dtype(write.dtype(write.input(0)))


def _name(write: Writer, x: str, out: str, is_turned: bool) -> None:
    """Give a result its name, with the channels last where they were."""
    if is_turned:
        write("Transpose", x, perm=[0, 2, 1], out=out)
    else:
        write("Identity", x, out=out)


def _attention_gate(write: Writer) -> None:
    a, bias, scale, b = (write.input(index) for index in range(4))
    grown = write("Softplus", write("Add", _widen(write, a), bias))
    _narrow(write, write("Mul", grown, scale), write.result)
    if write.output(1):
        write("Sigmoid", b, out=write.output(1))


def _gated_norm(write: Writer) -> None:
    """The norm of each run of as many numbers as there are gains."""
    x, scale, gate = (write.input(index) for index in range(3))
    shape, (size,) = write.shape(x), write.shape(scale)
    activation = write.text("activation", "silu")
    if activation not in ("silu", "swish", "sigmoid"):
        raise RefusedError(f"its activation is {activation}, expected silu, swish or sigmoid")
    apart = (*shape[:-1], shape[-1] // size, size)
    heads = write.reshape(x, *apart)
    write.know(heads, like=x, shape=apart)
    normed = write("RMSNormalization", heads, scale, axis=-1, epsilon=write.number("epsilon", 1e-5))
    write.know(normed, like=x, shape=apart)
    gated = write("Sigmoid", gate)
    if activation != "sigmoid":
        gated = write("Mul", gate, gated)
    write("Mul", write.reshape(normed, *shape), gated, out=write.result)


def _widen(write: Writer, x: str) -> str:
    """In float32, in which the operator computes."""
    return x if write.dtype(x) == "float32" else write("Cast", x, to=1)


def _narrow(write: Writer, x: str, out: str) -> None:
    """In the type of the first input."""
    write("Cast", x, to=write.element(write.input(0)), out=out)


RECURRENT: dict[str, Callable[[Writer], None]] = {
    "CausalConvWithState": _causal_conv,
    "GatedRMSNorm": _gated_norm,
    "LinearAttentionGate": _attention_gate,
}
