"""Weights of few bits in blocks, and mixtures of experts, as onnxruntime's own domain has them.

Before -> after:
    y = com.microsoft.MatMulNBits(x, bytes, scales)    y = adrenoc.NBits(x, bytes, scales)

Weights of 2, 4 and 8 bits stay as they are: a family of kernels multiplies them so.  Rows that are
no whole words are opened here, once, as floats.  Products by weights that a DequantizeLinear in
blocks opens become MatMulNBits, as in onnxruntime.

Before -> after:
    y = com.microsoft.QMoE(x, scores of experts, weights of each in few bits)
    y = com.microsoft.MoE(x, scores of experts, weights of each as floats)

    shares = softmax of the k largest scores of a token, zero of the others
    h = activation of x by the first weights of all experts, beside each other
    y = (h * shares of their experts) by the second weights of all experts, above each other

MoE keeps the k largest of a softmax of all scores, and lets them add up to one only where
`normalize_routing_weights` says so.

The products read the weights of experts whose share is zero too: as right, and so much slower.

Source: onnxruntime's ContribOperators reference, and versions 1.31 and 1.32 of it tried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from adrenoc.base.errors import RefusedError
from adrenoc.importers.onnx.graph import (
    MICROSOFT,
    OnnxGraph,
    Writer,
    array_of,
    attributes,
    is_standard,
)

N_BITS = "adrenoc.NBits"
"""Our own operator: x, bytes [N, blocks, a block's], scales [N, blocks], perhaps zero points."""

_KEPT_BITS, _BYTE, _WORD_BITS = 4, 8, 32

_TYPED = {"int4": 8, "uint4": 0}
"""Types of four bits -> what makes numbers from 0 to 15 of them, which is their zero then."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Weights:
    """N rows of blocks of whole numbers, each with a scale, and perhaps with a zero point."""

    bits: int
    block: int
    inputs: int
    packed: np.ndarray
    """[N, blocks, bytes], low bits first."""
    scales: np.ndarray
    zeros: np.ndarray | None

    @property
    def middle(self) -> float:
        """Return what stands for zero where no zero points are given."""
        return float(1 << (self.bits - 1))

    def open(self) -> np.ndarray:
        """Return [N, K] in float32."""
        n, blocks, _ = self.packed.shape
        values = unpack_bits(self.packed, self.bits)[:, :, : self.block].astype(np.float32)
        zeros = np.float32(self.middle) if self.zeros is None else self.zeros[:, :, None]
        opened = (values - zeros) * self.scales.astype(np.float32)[:, :, None]
        return np.asarray(opened.reshape(n, blocks * self.block)[:, : self.inputs])


def _matmul_n_bits(write: Writer) -> None:
    weights = _read_weights(write)
    x, bias = write.input(0), write.input(5)
    result = "" if bias else write.result
    if weights.inputs * weights.bits % _WORD_BITS == 0:
        given = (weights.packed, weights.scales, weights.zeros)
        product = write.own(
            N_BITS,
            x,
            *(write.array(value) for value in given if value is not None),
            shape=(*write.shape(x)[:-1], len(weights.packed)),
            out=result,
            like=x,
            block=weights.block,
            zero=weights.middle,
            bits=weights.bits,
        )
    else:
        dtype = np.dtype(write.dtype(x))
        held = write.array(np.ascontiguousarray(weights.open().T).astype(dtype))
        product = write("MatMul", x, held, out=result)
    if bias:
        write("Add", product, bias, out=write.result)


def _read_weights(write: Writer) -> _Weights:
    """Read the weights of a MatMulNBits in one form."""
    bits, block = int(write.number("bits", 4)), int(write.number("block_size", 32))
    k, n = int(write.number("K", 0)), int(write.number("N", 0))
    packed, scales = write.value(write.input(1)), write.value(write.input(2))
    zeros = write.value(write.input(3)) if write.input(3) else None
    if bits not in (2, 4, 8) or packed is None or scales is None:
        raise RefusedError("its weights are no constants of 2, 4 or 8 bits")
    if write.input(3) and zeros is None:
        raise RefusedError("its zero points are no constants")
    if write.input(4):
        raise RefusedError("its rows are reordered (g_idx)")
    if write.number("weight_prepacked", 0):
        raise RefusedError("its weights lie as one GPU wants them (weight_prepacked)")
    blocks = -(-k // block)
    return _Weights(
        bits=bits,
        block=block,
        inputs=k,
        packed=packed.reshape(n, blocks, block * bits // 8),
        scales=scales.reshape(n, blocks),
        zeros=None if zeros is None else _zero_points(zeros, n, blocks, bits),
    )


def _zero_points(zeros: np.ndarray, n: int, blocks: int, bits: int) -> np.ndarray:
    """Return [N, blocks] in float32, of packed bytes or of numbers."""
    if zeros.dtype != np.uint8:
        return zeros.reshape(n, blocks).astype(np.float32)
    return unpack_bits(zeros.reshape(n, -1), bits)[:, :blocks].astype(np.float32)


def unpack_bits(packed: np.ndarray, bits: int) -> np.ndarray:
    """Return bytes along the last axis as the numbers packed in them, lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return numbers.reshape(*packed.shape[:-1], -1)


def _gather_block_quantized(write: Writer) -> None:
    """Write a lookup in a table of 4 bits: bytes of the rows that are asked for, opened then."""
    data, ids, scales, zeros = (write.input(index) for index in range(4))
    bits, block = int(write.number("bits", 4)), int(write.number("block_size", 128))
    table, steps, given = write.value(data), write.value(scales), write.value(zeros)
    axes = (int(write.number("gather_axis", 0)), int(write.number("quantize_axis", 1)))
    if table is None or steps is None or (zeros and given is None):
        raise RefusedError("its table is computed, expected constants")
    typed = _TYPED.get(str(table.dtype))
    bits = bits if typed is None else _KEPT_BITS
    if (
        (table.dtype != np.uint8 and typed is None)
        or bits not in (_KEPT_BITS, _BYTE)
        or table.ndim != 2
        or axes not in ((0, 1), (0, -1))
    ):
        raise RefusedError(
            f"its table is of {table.dtype} with {bits} bits, gathered along axis {axes[0]} and "
            f"quantised along {axes[1]}; expected 4 or 8 bits along axes 0 and 1"
        )
    if typed is not None:
        data = write.array(_pack_pairs(table.astype(np.int8) + typed))
        given = None if given is None else given.astype(np.float32) + typed
    shape = write.shape(ids)
    depth, blocks = (
        table.shape[1] * (1 if typed is not None or bits == _BYTE else 2),
        steps.shape[1],
    )
    if blocks * block != depth:
        raise RefusedError(f"its rows of {depth} are no whole blocks of {block}")
    dtype = int(write.element(scales))
    whole = write("Gather", data, ids, axis=0)
    codes = whole if bits == _BYTE else _split_nibbles(write, whole, (*shape, depth // 2, 1))
    grouped = write.reshape(write("Cast", codes, to=dtype), *shape, blocks, block)
    if given is not None:
        points = _zero_points(given, len(table), blocks, bits)
        held = write.array(points.astype(steps.dtype))
        zero = write.reshape(write("Gather", held, ids, axis=0), *shape, blocks, 1)
    else:
        middle = 1 << (bits - 1) if typed is None else typed
        zero = write.array(np.array(middle, steps.dtype))
    step = write.reshape(write("Gather", scales, ids, axis=0), *shape, blocks, 1)
    opened = write("Mul", write("Sub", grouped, zero), step)
    write.reshape(opened, *shape, depth, out=write.result)


def _pack_pairs(codes: np.ndarray) -> np.ndarray:
    """Return rows of numbers from 0 to 15 as bytes, the first in the low bits."""
    wide = codes.astype(np.uint8)
    return np.asarray(wide[..., 0::2] | (wide[..., 1::2] << np.uint8(4)))


def _split_nibbles(write: Writer, data: str, shape: tuple[int, ...]) -> str:
    """Return bytes as the two numbers of each, along a last axis."""
    whole = write("Cast", data, to=6)
    sixteen = write.array(np.array(16, np.int32))
    high = write("Div", whole, sixteen)
    low = write("Sub", whole, write("Mul", high, sixteen))
    apart = [write.reshape(part, *shape) for part in (low, high)]
    return write("Concat", *apart, axis=len(shape) - 1)


_LEAST_BLOCK = 16
_ZERO_OF = {**_TYPED, "int8": 128, "uint8": 0}
"""Type -> what makes numbers from zero on of it."""


def keep_block_weights(graph: OnnxGraph) -> None:
    """Change such products of `graph`, in place."""
    makers = graph.makers()
    changed = 0
    for at, node in enumerate(graph.nodes):
        product = _keep_codes(graph, makers, node)
        if product is not None:
            graph.nodes[at] = product
            changed += 1
    if changed:
        graph.drop_unused()
        reason = "a DequantizeLinear in blocks along what is added up opens them"
        graph.log.add(f"{changed} products", "keep their weights in few bits", reason)


def _keep_codes(
    graph: OnnxGraph, makers: Mapping[str, NodeProto], node: NodeProto
) -> NodeProto | None:
    """Return a product whose weights are opened in blocks as the operator of weights in few bits,
    with zero points as numbers; None for any other node."""
    opened, turned = _opening(makers, node)
    if opened is None:
        return None
    own = attributes(opened)
    block, axis = own.get("block_size", 0), own.get("axis", 1)
    values = [_value(graph, makers, name) for name in opened.input if name]
    if any(value is None for value in values) or block < _LEAST_BLOCK or block & (block - 1):
        return None
    codes, scales, *rest = (np.asarray(value) for value in values)
    kind = str(codes.dtype)
    floats = scales.dtype in (np.float32, np.float16)
    if codes.ndim != 2 or kind not in _ZERO_OF or axis % 2 != int(turned) or not floats:
        return None
    zero = _ZERO_OF[kind]
    if not turned:
        codes, scales, rest = codes.T, scales.T, [one.T for one in rest]
    n, k = codes.shape
    if k != scales.shape[1] * block:
        return None
    packed = (codes.astype(np.int16) + zero).astype(np.uint8).reshape(n, k // block, block)
    held = [_pack_pairs(packed) if kind in _TYPED else packed, scales]
    if rest or not zero:  # else zero is the middle, which goes without saying
        points = rest[0].astype(np.int16) + zero if rest else np.zeros(scales.shape)
        held.append(points.astype(scales.dtype))
    names = [f"{node.output[0]}/{what}" for what in ("codes", "scales", "zeros")][: len(held)]
    for name, value in zip(names, held, strict=True):
        graph.set_constant(name, np.ascontiguousarray(value))
    return helper.make_node(
        "MatMulNBits",
        [node.input[0], *names],
        list(node.output),
        name=node.name,
        domain=MICROSOFT,
        K=k,
        N=n,
        bits=_KEPT_BITS if kind in _TYPED else _BYTE,
        block_size=block,
    )


def _opening(makers: Mapping[str, NodeProto], node: NodeProto) -> tuple[NodeProto | None, bool]:
    """Return what opens the weights of a product, and whether they are turned then."""
    opened, turned = None, False
    if node.op_type == "MatMul" and is_standard(node):
        opened = makers.get(node.input[1])
    if opened is not None and opened.op_type == "Transpose" and is_standard(opened):
        turned = attributes(opened).get("perm", [1, 0]) == [1, 0]
        opened = makers.get(opened.input[0]) if turned else None
    known = opened is not None and opened.op_type == "DequantizeLinear"
    return (opened if known else None), turned


def _value(graph: OnnxGraph, makers: Mapping[str, NodeProto], name: str) -> np.ndarray | None:
    """Return a constant, of an initialiser or of a node."""
    if name in graph.constants:
        return graph.constants[name]
    node = makers.get(name)
    if node is None or node.op_type != "Constant":
        return None
    return next((array_of(a.t) for a in node.attribute if a.name == "value"), None)


_MOST_BLOCK = 128
"""Numbers of a block that a row with one scale is taken in."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Experts:
    """The weights of a product by each expert: `held` are floats [E, N, K], or bytes [E, N, blocks,
    bytes] with scales and perhaps zero points [E, N, blocks], of which `few_bits` says the form.

    `bias` [E, N] is added to the outputs."""

    held: tuple[np.ndarray, ...]
    bias: np.ndarray | None
    inputs: int
    few_bits: dict[str, Any] = field(default_factory=dict)

    def take(self, rows: slice) -> _Experts:
        """Return those of some outputs of each."""
        bias = None if self.bias is None else self.bias[:, rows]
        return replace(self, held=tuple(value[:, rows] for value in self.held), bias=bias)

    def write(self, write: Writer, x: str, tokens: int, *, is_summed: bool) -> str:
        """Write the products by each of `x` [1, tokens, K], beside each other: [1, tokens, E * N];
        or those of [1, tokens, E * K], added up: [1, tokens, N]."""
        laid = [_lay_beside(v) if is_summed else v.reshape(-1, *v.shape[2:]) for v in self.held]
        shape, like = (1, tokens, len(laid[0])), write.input(0)
        if self.few_bits:
            held = [write.array(np.ascontiguousarray(value)) for value in laid]
            return write.own(N_BITS, x, *held, shape=shape, out="", like=like, **self.few_bits)
        product = write("MatMul", x, write.array(np.ascontiguousarray(laid[0].T)))
        write.know(product, like=like, shape=shape)
        return product


def _lay_beside(value: np.ndarray) -> np.ndarray:
    """Return [E, N, K, ...] as [N, E * K, ...]: what experts have, along the inputs."""
    turned = np.moveaxis(value, 0, 1)
    return np.ascontiguousarray(turned).reshape(turned.shape[0], -1, *turned.shape[3:])


def _read_floats(write: Writer, weights: str, bias: str) -> _Experts:
    """Return the weights of one product of MoE."""
    held, added = write.value(weights), write.value(bias)
    if held is None or held.ndim != 3:
        raise RefusedError(f"its weights '{weights}' are no constants of three axes")
    if bias and added is None:
        raise RefusedError(f"its biases '{bias}' are no constants")
    return _Experts(held=(held,), bias=added, inputs=held.shape[2])


def _read_few_bits(write: Writer, number: int, at: Sequence[int]) -> _Experts:
    """Return the weights of a product of QMoE by its number; `at` are the inputs that hold weights,
    scales, biases, zero points."""
    said = f"fc{number}_expert_weight_bits"
    bits = int(write.number(said, write.number("expert_weight_bits", 4)))
    names = [write.input(index) for index in at]
    packed, scales, bias, zeros = (write.value(name) for name in names)
    if packed is None or scales is None or packed.ndim != 3 or bits not in (2, 4, 8):
        raise RefusedError(f"its weights '{names[0]}' are no constants of 2, 4 or 8 bits")
    if any(name and value is None for name, value in zip(names, (0, 0, bias, zeros), strict=True)):
        raise RefusedError(f"biases or zero points beside '{names[0]}' are no constants")
    experts, outputs, width = packed.shape
    inputs = width * 8 // bits
    wide = scales.reshape(experts, outputs, -1)
    block = int(write.number("block_size", 0))
    if block == 0:  # one scale a row
        block = next((b for b in (_MOST_BLOCK, 64, 32, _LEAST_BLOCK) if inputs % b == 0), inputs)
    blocks = inputs // block
    opened = None if zeros is None else _read_zeros(zeros, (experts, outputs, wide.shape[2]), bits)
    shape = (experts, outputs, blocks)
    held = [packed.reshape(*shape, block * bits // 8), np.broadcast_to(wide, shape)]
    if opened is not None:
        held.append(np.broadcast_to(opened, shape))
    form = {"block": block, "zero": float(1 << (bits - 1)), "bits": bits}
    return _Experts(held=tuple(held), bias=bias, inputs=blocks * block, few_bits=form)


def _read_zeros(zeros: np.ndarray, shape: tuple[int, int, int], bits: int) -> np.ndarray:
    """Return zero points [E, N, blocks] in float32; of one scale a row, packed along N."""
    experts, outputs, blocks = shape
    if zeros.ndim == 2:
        return unpack_bits(zeros, bits)[:, :outputs, None].astype(np.float32)
    flat = unpack_bits(zeros.reshape(experts * outputs, -1), bits)[:, :blocks]
    return flat.reshape(experts, outputs, blocks).astype(np.float32)


_ROUTER, _ROUTER_WEIGHTS = 1, 14
_FEW_BITS = ((2, 3, 4, 11), (5, 6, 7, 12), (8, 9, 10, 13))
"""Inputs of QMoE's products: weights, scales, biases, zero points."""
_FLOATS = ((2, 3), (4, 5), (6, 7))
"""Inputs of MoE's: weights, biases."""
_INTERLEAVED, _BESIDE = 1, 2
"""What `swiglu_fusion` says of gates and of what they let through."""
_PLAIN: dict[str, tuple[object, ...]] = {
    "quant_type": (b"int",),
    "use_sparse_mixer": (0,),
    "swiglu_limit_after_activation": (0,),
    "weights_prepacked": (0, -1),
}
"""Attribute -> the values that are covered, the default first."""


def _few_bits(write: Writer) -> None:
    """Write QMoE."""
    given = [index for index in range(_ROUTER_WEIGHTS + 1, 20) if write.input(index)]
    write.refuse_odd(_PLAIN, *(["scales of whole experts"] if given else []))
    shape = write.shape(write.input(0))
    shares = _share_few_bits(write, int(np.prod(shape[:-1])))
    products = [
        _read_few_bits(write, number, at) if write.input(at[0]) else None
        for number, at in enumerate(_FEW_BITS, 1)
    ]
    _mix(write, shares, products)


def _floats(write: Writer) -> None:
    """Write MoE."""
    write.refuse_odd(_PLAIN)
    products = [
        _read_floats(write, write.input(weights), write.input(bias))
        if write.input(weights)
        else None
        for weights, bias in _FLOATS
    ]
    scores = write.input(_ROUTER)
    is_normed = bool(write.number("normalize_routing_weights", 0))
    if not is_normed:
        scores = write("Softmax", scores, axis=-1)
    values, picks = _pick(write, scores)
    _mix(
        write,
        _spread(write, write("Softmax", values, axis=-1) if is_normed else values, picks),
        products,
    )


def _share_few_bits(write: Writer, tokens: int) -> str:
    """Write what each expert has in a token's result: [tokens, experts]."""
    values, picks = _pick(write, write.input(_ROUTER))
    if not write.input(_ROUTER_WEIGHTS):
        return _spread(write, write("Softmax", values, axis=-1), picks)
    _, count = write.shape(write.input(_ROUTER))
    given = write.reshape(write.input(_ROUTER_WEIGHTS), tokens, count)
    shares = write("Mul", write.total(picks, 1), given)
    if not write.number("normalize_routing_weights", 0):
        return shares
    return write("Div", shares, write.reshape(write.total(shares, 1), tokens, 1))


def _pick(write: Writer, scores: str) -> tuple[str, str]:
    """Return the k largest scores of a token, and [tokens, k, experts]: which expert each is of."""
    tokens, count = write.shape(write.input(_ROUTER))
    k = int(write.number("k", 1))
    values, chosen = write.largest(scores, k)
    numbers = write.array(np.arange(count, dtype=np.int64).reshape(1, 1, count))
    same = write("Equal", write.reshape(chosen, tokens, k, 1), numbers)
    return values, write("Cast", same, to=write.element(write.input(_ROUTER)))


def _spread(write: Writer, shares: str, picks: str) -> str:
    """Write [tokens, experts] of the shares of those that were picked."""
    tokens, _ = write.shape(write.input(_ROUTER))
    k = int(write.number("k", 1))
    return write.total(write("Mul", picks, write.reshape(shares, tokens, k, 1)), 1)


def _mix(write: Writer, shares: str, products: Sequence[_Experts | None]) -> None:
    """Write what all experts make of `x`, by their shares."""
    first, second, third = products
    if first is None or second is None:
        raise RefusedError("it has no weights of two products")
    x = write.input(0)
    shape = write.shape(x)
    tokens = int(np.prod(shape[:-1]))
    count, wide = len(second.held[0]), second.inputs
    rows = write.reshape(x, 1, tokens, shape[-1])
    hidden = _activate(write, rows, first, third)
    apart = write.reshape(hidden, tokens, count, wide)
    weighed = write("Mul", apart, write.reshape(shares, tokens, count, 1))
    whole = write.reshape(weighed, 1, tokens, count * wide)
    mixed = second.write(write, whole, tokens, is_summed=True)
    if second.bias is not None:
        held = write.array(second.bias.astype(write.dtype(x)))
        mixed = write("Add", mixed, write("MatMul", shares, held))
    write.reshape(mixed, *shape, out=write.result)


def _activate(write: Writer, rows: str, first: _Experts, third: _Experts | None) -> str:
    """Write [1, tokens, experts * width] behind the activation."""
    kind = write.text("activation_type", "relu")
    fusion = int(write.number("swiglu_fusion", 0))
    parts = [first]
    if kind == "swiglu" and fusion == _INTERLEAVED:
        parts = [first.take(slice(0, None, 2)), first.take(slice(1, None, 2))]
    elif kind == "swiglu" and fusion == _BESIDE:
        half = first.held[0].shape[1] // 2
        parts = [first.take(slice(0, half)), first.take(slice(half, None))]
    elif third is not None:
        parts = [first, third]
    made = [_multiply(write, rows, part) for part in parts]
    if kind == "swiglu" and len(made) > 1:
        return _gate(write, made[0], made[1])
    activations: dict[str, Callable[[str], str]] = {
        "relu": lambda x: write("Relu", x),
        "gelu": write.fast_gelu,  # as onnxruntime computes it here
        "silu": lambda x: write("Mul", x, write("Sigmoid", x)),
        "identity": lambda x: x,
    }
    if kind not in activations:
        raise RefusedError(f"its activation_type is {kind}, expected {', '.join(activations)}")
    active = activations[kind](made[0])
    return write("Mul", active, made[1]) if len(made) > 1 else active


def _gate(write: Writer, gate: str, passed: str) -> str:
    """Write SwiGLU: gate * sigmoid(alpha * gate) * (passed + beta), both within a limit."""
    alpha, beta = write.number("activation_alpha", 1.0), write.number("activation_beta", 0.0)
    dtype = write.dtype(write.input(0))
    limit = write.number("swiglu_limit", np.inf)
    if np.isfinite(limit):
        bounds = [write.array(np.array(bound, dtype)) for bound in (-limit, limit)]
        gate, passed = write("Min", gate, bounds[1]), write("Clip", passed, *bounds)
    steep = write("Mul", gate, write.array(np.array(alpha, dtype))) if alpha != 1 else gate
    active = write("Mul", gate, write("Sigmoid", steep))
    raised = write("Add", passed, write.array(np.array(beta, dtype))) if beta else passed
    return write("Mul", active, raised)


def _multiply(write: Writer, x: str, part: _Experts) -> str:
    """Write [1, tokens, experts * N]: the products by all experts beside each other."""
    tokens = int(np.prod(write.shape(write.input(0))[:-1]))
    product = part.write(write, x, tokens, is_summed=False)
    if part.bias is None:
        return product
    bias = np.ascontiguousarray(part.bias).reshape(-1).astype(write.dtype(write.input(0)))
    return write("Add", product, write.array(bias))


N_BITS_REWRITES: dict[str, Callable[[Writer], None]] = {
    "GatherBlockQuantized": _gather_block_quantized,
    "MatMulNBits": _matmul_n_bits,
    "MoE": _floats,
    "QMoE": _few_bits,
}
