"""Operators of onnxruntime's own domain that exporters and optimisers emit, in standard ones.

Before -> after:
    y = com.microsoft.QuickGelu(x)      y = x * Sigmoid(1.702 * x)

Layers that carry a state from token to token, as onnxruntime's own domain has them.

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

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import NodeProto

from adrenoc.base.errors import RefusedError
from adrenoc.importers.imported import CONVERTER_ERRORS, quote
from adrenoc.importers.onnx.attention import ATTENTION
from adrenoc.importers.onnx.contrib_quantised import QUANTISED
from adrenoc.importers.onnx.graph import MICROSOFT, OnnxGraph, UnknownTypeError, Writer
from adrenoc.importers.onnx.n_bits import N_BITS_REWRITES
from adrenoc.importers.onnx.prepare import is_defined

INVERSE = "adrenoc.Inverse"


def _gelu(write: Writer, x: str) -> None:
    """Write x / 2 * (1 + erf(x / sqrt 2))."""
    inner = write("Erf", write("Mul", x, write.constant(math.sqrt(0.5))))
    grown = write("Add", inner, write.constant(1.0))
    write("Mul", write("Mul", x, write.constant(0.5)), grown, out=write.result)


def _quick_gelu(write: Writer) -> None:
    x = write.input(0)
    scaled = write("Mul", x, write.constant(write.number("alpha", 1.702)))
    write("Mul", x, write("Sigmoid", scaled), out=write.result)


def _fast_gelu(write: Writer) -> None:
    x = write.input(0)
    if write.input(1):
        x = write("Add", x, write.input(1))
    write.fast_gelu(x, out=write.result)


def _rewrite_fused_conv(write: Writer) -> None:
    own = {"activation", "activation_params"}
    kept = {k: v for k, v in write.attrs.items() if k not in own}
    result = write("Conv", *write.node.input[:3], **kept)
    if write.input(3):
        result = write("Add", result, write.input(3))
    params: Sequence[float] = write.attrs.get("activation_params", ())
    write.activate(write.text("activation"), result, params, out=write.result)


def _rewrite_fused_gemm(write: Writer) -> None:
    kept = {k: v for k, v in write.attrs.items() if not k.startswith("activation")}
    result = write("Gemm", *write.node.input, **kept)
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    params = [write.number(name, 0.0) for name in names if name in write.attrs]
    write.activate(write.text("activation"), result, params, out=write.result)


def _rewrite_fused_matmul(write: Writer) -> None:
    operands = []
    for index, side in enumerate("AB"):
        name = write.input(index)
        order = list(range(len(write.shape(name))))
        if write.attrs.get(f"transBatch{side}", 0):
            # The batch dimensions are those from 1 to the last but one: the first moves there.
            order = [*order[1:-1], order[0], order[-1]]
        if write.attrs.get(f"trans{side}", 0):
            order[-2:] = order[:-3:-1]
        moved = order != sorted(order)
        operands.append(write("Transpose", name, perm=order) if moved else name)
    alpha = write.number("alpha", 1.0)
    product = write("MatMul", *operands, out=write.result if alpha == 1.0 else "")
    if alpha != 1.0:
        write("Mul", product, write.constant(alpha), out=write.result)


def _add_skip(write: Writer, bias: int) -> str:
    """Return the sum of data, skip connection and bias, which may be wanted as an output too."""
    x, skip = write.input(0), write.input(1)
    if len(write.shape(skip)) == len(write.shape(x)) - 1:
        skip = write.reshape(skip, 1, *write.shape(skip))
    if any(write.output(index) for index in (1, 2)):
        raise RefusedError("mean and deviation are read, which are for training")
    wanted = write.output(3)
    if not write.input(bias):
        return write("Add", x, skip, out=wanted)
    return write("Add", write("Add", x, skip), write.input(bias), out=wanted)


def _skip_norm(write: Writer, kind: str, count: int) -> None:
    """Write a norm of a sum, by so many tensors of scales and offsets."""
    total, epsilon = _add_skip(write, 2 + count), write.number("epsilon", 1e-12)
    rest = [write.input(2 + at) for at in range(count)]
    write.like(kind, total, *rest, axis=-1, epsilon=epsilon, out=write.result)


def _rewrite_simplified_norm(write: Writer) -> None:
    if write.output(1):
        raise RefusedError("the deviation is read, which is for training")
    axis, epsilon = int(write.number("axis", -1)), write.number("epsilon", 1e-5)
    write.like(
        "RMSNormalization", *write.node.input[:2], axis=axis, epsilon=epsilon, out=write.result
    )


def _embed_layer_normalization(write: Writer) -> None:
    ids, segments, words, positions, parts, scale, offset, mask = (
        write.input(index) for index in range(8)
    )
    length = write.shape(ids)[1]
    total = write("Gather", words, ids, axis=0)
    if write.input(8):
        place = write("Gather", positions, write.input(8), axis=0)
    else:
        place = write.slice(positions, 0, length, 0)
    total = write("Add", total, place)
    if segments:
        total = write("Add", total, write("Gather", parts, segments, axis=0))
    if write.output(2):
        write("Identity", total, out=write.output(2))
    epsilon = write.number("epsilon", 1e-12)
    write("LayerNormalization", total, scale, offset, axis=-1, epsilon=epsilon, out=write.result)
    if write.output(1):
        _mask_lengths(write, mask, write.shape(ids)[0])


def _mask_lengths(write: Writer, mask: str, batch: int) -> None:
    """Write the number of words of each sentence, from a mask of ones and zeros."""
    if not mask:
        write("Identity", write.array(np.zeros(batch, np.int32)), out=write.output(1))
    else:
        write.total(mask, 1, out=write.output(1))


def _distances(write: Writer) -> None:
    """Write how far the rows of two matrices are apart, as Gaussian processes read it."""
    a, b = write.input(0), write.input(1)
    (rows, width), (columns, _) = write.shape(a), write.shape(b)
    metric = write.text("metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        raise RefusedError(f"metric {metric}, expected euclidean or sqeuclidean")
    spread = (write.reshape(a, rows, 1, width), write.reshape(b, 1, columns, width))
    difference = write("Sub", *spread)
    square = write("Mul", difference, difference)
    if metric == "sqeuclidean":
        write.total(square, 2, out=write.result)
    else:
        write("Sqrt", write.total(square, 2), out=write.result)


def _expand_dims(write: Writer) -> None:
    """Give a tensor one more axis, of one element, before the axis that a constant names."""
    axis = write.value(write.input(1))
    if axis is None:
        raise RefusedError("its axis is no constant")
    shape = list(write.shape(write.input(0)))
    place = int(axis.reshape(-1)[0])
    if not -len(shape) - 1 <= place <= len(shape):
        raise RefusedError(f"axis {place} of a result with {len(shape) + 1} axes")
    shape.insert(place % (len(shape) + 1), 1)
    write.reshape(write.input(0), *shape, out=write.result)


def _inverse(write: Writer) -> None:
    """Write an operator of our own, which a family computes."""
    x = write.input(0)
    shape = write.shape(x)
    if len(shape) < 2 or shape[-2] != shape[-1]:
        raise RefusedError(f"of {list(shape)}, expected matrices of as many rows as columns")
    write.own(INVERSE, x, shape=shape, out=write.result, like=x)


def _standard(write: Writer) -> None:
    """Write an operator that the standard has by the same name and form."""
    write(write.node.op_type, *write.node.input, out=write.result, **write.attrs)


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
    """Put channels first, as the standard has them, where `channels_last` says they are not."""
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
        shape = (write.shape(write.input(0))[0], channels, before)
        past = write.array(np.zeros(shape, np.dtype(write.dtype(write.input(0)))))
    length = write.shape(write.input(0))[1 if is_last else 2]
    whole = write("Concat", past, x, axis=2)
    how: dict[str, Any] = {"group": channels, "dilations": [dilation], "kernel_shape": [taps]}
    made = write("Conv", whole, weight, bias, **how)
    activation = write.text("activation", "none")
    if activation in ("silu", "swish"):
        made = write("Mul", made, write("Sigmoid", made))
    elif activation != "none":
        raise RefusedError(f"its activation is {activation}, expected silu, swish or none")
    state = write.slice(whole, length, length + before, 2)
    _name(write, made, write.result, is_last)
    if write.output(1):
        _name(write, state, write.output(1), is_last)


def _name(write: Writer, x: str, out: str, is_turned: bool) -> None:
    """Give a result its name, with the channels last where they were."""
    if is_turned:
        write("Transpose", x, perm=[0, 2, 1], out=out)
    else:
        write("Identity", x, out=out)


def _attention_gate(write: Writer) -> None:
    a, bias, scale, b = (write.input(index) for index in range(4))
    wide = a if write.dtype(a) == "float32" else write("Cast", a, to=1)  # it computes so
    grown = write("Softplus", write("Add", wide, bias))
    write("Cast", write("Mul", grown, scale), to=write.element(a), out=write.result)
    if write.output(1):
        write("Sigmoid", b, out=write.output(1))


def _gated_norm(write: Writer) -> None:
    """Write the norm of each run of as many numbers as there are gains."""
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
    Those that the rule does not know are empty."""

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
    """Return [1, tokens, heads * size] as [1, heads, tokens, size], heads as often as read."""
    there, wanted = heads
    apart = write("Transpose", write.reshape(x, 1, tokens, there, size), perm=[0, 2, 1, 3])
    if there == wanted:
        return apart
    times = wanted // there
    alone = write.reshape(apart, 1, there, 1, tokens, size)
    extents = write.array(np.array([1, there, times, tokens, size], np.int64))
    return write.reshape(write("Expand", alone, extents), 1, wanted, tokens, size)


def _by_heads(write: Writer, x: str) -> str:
    """Return [1, tokens, heads], or one number for all heads, as [1, heads, tokens, 1]."""
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
    """Return how much of what each token added is left at later ones, nothing at earlier ones."""
    ones = np.tril(np.ones((o.tokens, o.tokens), np.float32))
    if not total:
        return write.array(ones.astype(np.dtype(write.dtype(write.input(0)))))
    others = write("Transpose", total, perm=[0, 1, 3, 2])
    apart = write("Sub", total, others)
    hidden = write.constant(_HIDDEN)
    return write("Exp", write("Where", write.array(ones.astype(bool)), apart, hidden))


def _invert(write: Writer, told: str, tokens: int) -> str:
    """Write (1 + told below the diagonal)^-1, from blocks of one token to one of all.

    With X the inverse within blocks of some tokens and B what lies between the two halves of blocks
    of twice as many, the inverse within these is X - X B X: no more, since B X B is zero."""
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


REWRITES: dict[str, Callable[[Writer], None]] = {
    **ATTENTION,
    **QUANTISED,
    **N_BITS_REWRITES,
    "BiasGelu": lambda write: _gelu(write, write("Add", write.input(0), write.input(1))),
    "CDist": _distances,
    "CausalConvWithState": _causal_conv,
    "DequantizeLinear": _standard,
    "EmbedLayerNormalization": _embed_layer_normalization,
    "ExpandDims": _expand_dims,
    "FastGelu": _fast_gelu,
    "FusedConv": _rewrite_fused_conv,
    "FusedGemm": _rewrite_fused_gemm,
    "FusedMatMul": _rewrite_fused_matmul,
    "GatedRMSNorm": _gated_norm,
    "GatherND": _standard,
    "Gelu": lambda write: _gelu(write, write.input(0)),
    "Inverse": _inverse,
    "LinearAttention": _linear_attention,
    "LinearAttentionGate": _attention_gate,
    "QuantizeLinear": _standard,
    "QuickGelu": _quick_gelu,
    "SimplifiedLayerNormalization": _rewrite_simplified_norm,
    "SkipLayerNormalization": lambda write: _skip_norm(write, "LayerNormalization", 2),
    "SkipSimplifiedLayerNormalization": lambda write: _skip_norm(write, "RMSNormalization", 1),
    "TransposeMatMul": _rewrite_fused_matmul,
    "Trilu": _standard,
}

_ALL_EXPERTS = "each token reads the weights of all experts, of which most have no share in it"
_NOT_ROUNDED = (
    "its data and states stay floats, where onnxruntime rounds them to bytes at each step: results "
    "differ by that rounding, some thousandths of their range"
)
WHAT_IT_TAKES = {"DynamicQuantizeLSTM": _NOT_ROUNDED, "MoE": _ALL_EXPERTS, "QMoE": _ALL_EXPERTS}
"""Operator -> what is to be known of its standard form: what it costs, how far off it is."""

_IN_STANDARD_DOMAIN = ("CausalConvWithState", "LinearAttention", "SimplifiedLayerNormalization")
"""Operators that onnxruntime registers under the standard domain, which does not have them, and
those that the standard took over from opset 27 on, by the same inputs."""


def rewrite_contrib(graph: OnnxGraph, node: NodeProto) -> list[NodeProto] | None:
    """Return the standard nodes that take the place of a node of onnxruntime's domain. None where
    there are none; `graph.refusals` then says why, if it is for how the node is used."""
    ours = node.domain == MICROSOFT or node.op_type in _IN_STANDARD_DOMAIN
    rewrite = REWRITES.get(node.op_type) if ours else None
    if rewrite is None:
        return None
    writer = Writer(node, graph)
    try:
        rewrite(writer)
    except UnknownTypeError as error:
        graph.refusals[writer.result] = str(error)
        graph.untold.add(writer.result)
        return None
    except RefusedError as error:
        if not is_defined(graph, node):
            graph.refusals[writer.result] = str(error)
        return None
    except CONVERTER_ERRORS as error:  # operands of other ranks, sizes that do not fit
        graph.refusals[writer.result] = quote(error)
        return None
    return writer.nodes
