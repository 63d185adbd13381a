"""Mixtures of experts as onnxruntime's own domain has them, in products over all experts at once.

Before -> after:
    y = com.microsoft.QMoE(x, scores of experts, weights of each in few bits)
    y = com.microsoft.MoE(x, scores of experts, weights of each as floats)

    shares = softmax of the k largest scores of a token, zero of the others
    h = activation of x by the first weights of all experts, beside each other
    y = (h * shares of their experts) by the second weights of all experts, above each other

MoE keeps the k largest of a softmax of all scores, and lets them add up to one only where
`normalize_routing_weights` says so.

The products read the weights of experts whose share is zero too: as right, and so much slower.

Source: onnxruntime's ContribOperators reference: QMoE, MoE, and versions 1.31 and 1.32 of it tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from adrenoc.base.refused import RefusedError
from adrenoc.importers.onnx.n_bits import N_BITS, unpack_bits
from adrenoc.importers.onnx.writer import Writer

_LEAST_BLOCK, _MOST_BLOCK = 16, 128
"""Numbers of a block that a row with one scale is taken in."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Experts:
    """The weights of a product by each expert: `held` are floats [E, N, K], or bytes [E, N, blocks,
    bytes] with scales and perhaps zero points [E, N, blocks], of which `few_bits` says the form.

    `bias` [E, N] is added to the outputs.
    """

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
    """Return the weights of one product of MoE.

    Raises:
        RefusedError: they are no constants.
    """
    held, added = write.value(weights), write.value(bias)
    if held is None or held.ndim != 3:
        raise RefusedError(f"its weights '{weights}' are no constants of three axes")
    if bias and added is None:
        raise RefusedError(f"its biases '{bias}' are no constants")
    return _Experts(held=(held,), bias=added, inputs=held.shape[2])


def _read_few_bits(write: Writer, number: int, at: Sequence[int]) -> _Experts:
    """Return the weights of a product of QMoE by its number; `at` are the inputs that hold
    weights, scales, biases, zero points.

    Raises:
        RefusedError: they are no constants, or of a form that nothing here reads.
    """
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
    _mix(write, _share_floats(write), products)


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


def _share_floats(write: Writer) -> str:
    """Return the same of MoE: the largest shares of all, or of themselves if normed."""
    scores = write.input(_ROUTER)
    is_normed = bool(write.number("normalize_routing_weights", 0))
    if not is_normed:
        scores = write("Softmax", scores, axis=-1)
    values, picks = _pick(write, scores)
    return _spread(write, write("Softmax", values, axis=-1) if is_normed else values, picks)


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


EXPERTS: dict[str, Callable[[Writer], None]] = {"MoE": _floats, "QMoE": _few_bits}
