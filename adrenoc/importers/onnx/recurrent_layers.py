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

Attention without a softmax, whose keys and values are one matrix that each token changes.

Before -> after, of one token:
    y, next = com.microsoft.LinearAttention(q, k, v, past, decay, beta)

    kept = past * exp(decay)
    next = kept + k^T * beta * (v - k kept)     without a rule of deltas: + k^T * v
    y = scale * q next

Of several tokens the same as products of matrices: what each token adds hangs on what those before
it added, by a triangle whose inverse is made of blocks of one token, of two, of four, ...

    total = CumSum(decay);  along = exp(total_i - total_j) of the tokens j up to i
    added = (1 + beta * (k k^T * along) below the diagonal)^-1  beta * (v - exp(total) * (k past))
    next = exp(last total) * past + (k * exp(last total - total))^T added
    y = scale * (exp(total) * (q past) + (q k^T * along) added)

Source: onnxruntime's ContribOperators reference, and version 1.32 of it tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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


def _causal_conv(write: Writer) -> None:
    """Channels first, as the standard has them; with `channels_last` turned to that."""
    write.refuse_odd(_PLAIN_CONV)
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


_HIDDEN = -1e4
"""What has no share: its exponential is zero in all floats."""
_RULES = {
    "linear": (False, False),
    "gated": (True, False),
    "delta": (False, True),
    "gated_delta": (True, True),
}
"""Rule -> whether the state decays, and whether what it says of a key already is taken off."""


@dataclass(frozen=True, kw_only=True)
class _Operands:
    """Tensors [1, heads, tokens, ...], a head a state; `decay` and `beta` have one number a token.

    Those that the rule does not know are empty.
    """

    q: str
    k: str
    v: str
    past: str
    decay: str
    beta: str
    heads: int
    tokens: int
    key: int
    value: int
    scale: float


def _linear_attention(write: Writer) -> None:
    write.refuse_odd({"state_window": (0,)})
    o = _read_operands(write)
    mixed, state = _take_one(write, o) if o.tokens == 1 else _take_several(write, o)
    if o.scale != 1.0:
        mixed = write("Mul", mixed, write.constant(o.scale))
    rows = write("Transpose", mixed, perm=[0, 2, 1, 3])
    write.reshape(rows, 1, o.tokens, o.heads * o.value, out=write.result)
    if write.output(1):
        write("Identity", state, out=write.output(1))


def _read_operands(write: Writer) -> _Operands:
    q, k, v, past, decay, beta = (write.input(index) for index in range(6))
    queries, heads = int(write.number("q_num_heads", 0)), int(write.number("kv_num_heads", 0))
    rule = write.text("update_rule", "gated_delta")
    batch, tokens, width = write.shape(q)
    if batch != 1 or not queries or not heads or rule not in _RULES:
        raise RefusedError(
            f"it has a batch of {batch}, {queries} and {heads} heads and the rule {rule}; expected "
            f"a batch of 1 and one of {', '.join(_RULES)}"
        )
    key, value = width // queries, write.shape(v)[-1] // heads
    kept = write.shape(k)[-1] // key
    if heads % queries or heads % kept:
        raise RefusedError(f"{queries} heads of queries share {heads} states; expected no more")
    decays, corrects = _RULES[rule]
    if decays and write.shape(decay)[-1] != heads:
        raise RefusedError(
            f"its decay is {write.shape(decay)[-1]} numbers a token, expected one of each of "
            f"{heads} heads"
        )
    state = (1, heads, key, value)
    return _Operands(
        q=_spread(write, q, (queries, heads), tokens, key),
        k=_spread(write, k, (kept, heads), tokens, key),
        v=_spread(write, v, (heads, heads), tokens, value),
        past=past or write.array(np.zeros(state, np.dtype(write.dtype(q)))),
        decay=_by_heads(write, decay) if decays else "",
        beta=_by_heads(write, beta) if corrects else "",
        heads=heads,
        tokens=tokens,
        key=key,
        value=value,
        scale=write.number("scale", 0.0) or key**-0.5,
    )


def _spread(write: Writer, x: str, heads: tuple[int, int], tokens: int, size: int) -> str:
    """[1, tokens, heads * size] as [1, heads, tokens, size], a head as often as states read it."""
    there, wanted = heads
    apart = write("Transpose", write.reshape(x, 1, tokens, there, size), perm=[0, 2, 1, 3])
    if there == wanted:
        return apart
    times = wanted // there
    alone = write.reshape(apart, 1, there, 1, tokens, size)
    extents = write.array(np.array([1, there, times, tokens, size], np.int64))
    return write.reshape(write("Expand", alone, extents), 1, wanted, tokens, size)


def _by_heads(write: Writer, x: str) -> str:
    """[1, tokens, heads], or one number for all heads, as [1, heads, tokens, 1]."""
    _, tokens, heads = write.shape(x)
    return write.reshape(write("Transpose", x, perm=[0, 2, 1]), 1, heads, tokens, 1)


def _take_one(write: Writer, o: _Operands) -> tuple[str, str]:
    """Return what one token reads, and the state after it."""
    kept = write("Mul", o.past, write("Exp", o.decay)) if o.decay else o.past
    added = o.v
    if o.beta:
        added = write("Mul", write("Sub", o.v, write("MatMul", o.k, kept)), o.beta)
    column = write("Transpose", o.k, perm=[0, 1, 3, 2])
    state = write("Add", kept, write("Mul", column, added))
    return write("MatMul", o.q, state), state


def _take_several(write: Writer, o: _Operands) -> tuple[str, str]:
    """Return the same of several tokens, each behind those before it."""
    turned = write("Transpose", o.k, perm=[0, 1, 3, 2])
    seen, before = write("MatMul", o.q, o.past), write("MatMul", o.k, o.past)
    fallen = last = ""
    if o.decay:
        total = write("CumSum", o.decay, write.array(np.array(2, np.int64)))
        fallen = write("Exp", total)
        seen, before = write("Mul", seen, fallen), write("Mul", before, fallen)
        last = write.slice(total, o.tokens - 1, o.tokens, 2)
        left = write("Transpose", write("Exp", write("Sub", last, total)), perm=[0, 1, 3, 2])
    else:
        total = ""
    along = _fall_along(write, o, total)
    added = o.v
    if o.beta:
        told = write("Mul", write("MatMul", o.k, turned), along)
        inverse = _invert(write, write("Mul", told, o.beta), o.tokens)
        added = write("MatMul", inverse, write("Mul", write("Sub", o.v, before), o.beta))
    scores = write("Mul", write("MatMul", o.q, turned), along)
    mixed = write("Add", seen, write("MatMul", scores, added))
    if o.decay:
        turned = write("Mul", turned, left)
    made = write("MatMul", turned, added)
    kept = write("Mul", o.past, write("Exp", last)) if o.decay else o.past
    return mixed, write("Add", kept, made)


def _fall_along(write: Writer, o: _Operands, total: str) -> str:
    """Return how much of what each token added is left at later ones; nothing of it at earlier
    ones."""
    ones = np.tril(np.ones((o.tokens, o.tokens), np.float32))
    if not total:
        return write.array(ones.astype(np.dtype(write.dtype(write.input(0)))))
    others = write("Transpose", total, perm=[0, 1, 3, 2])
    apart = write("Sub", total, others)
    hidden = write.constant(_HIDDEN)
    return write("Exp", write("Where", write.array(ones.astype(bool)), apart, hidden))


def _invert(write: Writer, told: str, tokens: int) -> str:
    """(1 + told below the diagonal)^-1, from blocks of one token to one of all.

    With X the inverse within blocks of some tokens and B what lies between the two halves of blocks
    of twice as many, the inverse within these is X - X B X: no more, since B X B is zero.
    """
    dtype = np.dtype(write.dtype(write.input(0)))
    place = np.arange(tokens)
    inverse, size = "", 1
    while size < tokens:
        block, half = place // (2 * size), place // size % 2
        between = (block[:, None] == block) & (half[:, None] > half)
        part = write("Mul", told, write.array(between.astype(dtype)))
        if not inverse:
            inverse = write("Sub", write.array(np.eye(tokens, dtype=dtype)), part)
        else:
            moved = write("MatMul", inverse, write("MatMul", part, inverse))
            inverse = write("Sub", inverse, moved)
        size *= 2
    return inverse


RECURRENT: dict[str, Callable[[Writer], None]] = {
    "CausalConvWithState": _causal_conv,
    "GatedRMSNorm": _gated_norm,
    "LinearAttention": _linear_attention,
    "LinearAttentionGate": _attention_gate,
}
