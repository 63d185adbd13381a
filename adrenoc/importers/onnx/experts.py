"""Mixtures of experts as onnxruntime's own domain has them, in products over all experts at once.

Before -> after:
    y = com.microsoft.QMoE(x, scores of experts, weights of each)

    shares = softmax of the k largest scores of a token, zero of the others
    h = activation of x by the first weights of all experts, beside each other
    y = (h * shares of their experts) by the second weights of all experts, above each other

The products read the weights of experts whose share is zero too: as right, and so much slower.

Source: onnxruntime's ContribOperators reference: QMoE, and version 1.31 of it tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from adrenoc.importers.onnx.n_bits import N_BITS, unpack_bits
from adrenoc.importers.onnx.writer import CannotWriteError, Writer

_ROUTER, _ROUTER_WEIGHTS = 1, 14
_FIRST, _SECOND, _THIRD = (2, 3, 4, 11), (5, 6, 7, 12), (8, 9, 10, 13)
"""Inputs of each product: weights, scales, biases, zero points."""
_LEAST_BLOCK, _MOST_BLOCK = 16, 128
"""Numbers of a block that a row with one scale is taken in."""
_INTERLEAVED, _BESIDE = 1, 2
"""What `swiglu_fusion` says of gates and of what they let through."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Experts:
    """Weights of all experts: [E, N, blocks, bytes], scales and zero points [E, N, blocks]."""

    bits: int
    block: int
    packed: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray | None
    bias: np.ndarray | None

    def take(self, rows: slice) -> _Experts:
        """Those of some rows of each."""
        return _Experts(
            bits=self.bits,
            block=self.block,
            packed=self.packed[:, rows],
            scales=self.scales[:, rows],
            zeros=None if self.zeros is None else self.zeros[:, rows],
            bias=None if self.bias is None else self.bias[:, rows],
        )


def _mixture(write: Writer) -> None:
    _check_covered(write)
    x = write.input(0)
    shape = write.shape(x)
    tokens = int(np.prod(shape[:-1]))
    first, second = (_read_experts(write, at) for at in (_FIRST, _SECOND))
    count, wide = first.packed.shape[0], second.packed.shape[2] * second.block
    shares = _share(write, tokens, count)
    rows = write.reshape(x, 1, tokens, shape[-1])
    hidden = _activate(write, rows, first)
    apart = write.reshape(hidden, tokens, count, wide)
    weighed = write("Mul", apart, write.reshape(shares, tokens, count, 1))
    whole = write.reshape(weighed, 1, tokens, count * wide)
    mixed = _mix(write, whole, second)
    if second.bias is not None:
        held = write.array(second.bias.astype(write.dtype(x)))
        mixed = write("Add", mixed, write("MatMul", shares, held))
    write.reshape(mixed, *shape, out=write.result)


def _check_covered(write: Writer) -> None:
    plain: dict[str, tuple[object, ...]] = {
        "quant_type": (b"int",),
        "use_sparse_mixer": (0,),
        "weights_prepacked": (0, -1),
    }
    odd = [name for name, good in plain.items() if write.attrs.get(name, good[0]) not in good]
    given = [index for index in range(_ROUTER_WEIGHTS + 1, 20) if write.input(index)]
    if odd or given:
        what = [f"{name} {write.attrs[name]}" for name in odd] or ["scales of whole experts"]
        raise CannotWriteError(f"it has {', '.join(what)}, which is not covered")


def _read_experts(write: Writer, at: tuple[int, int, int, int]) -> _Experts:
    """The weights of one product.

    Raises:
        CannotWriteError: they are no constants, or of a form that nothing here reads.
    """
    names = [write.input(index) for index in at]
    packed, scales, bias, zeros = (write.value(name) for name in names)
    number = {_FIRST: "fc1", _SECOND: "fc2", _THIRD: "fc3"}[at]
    bits = int(write.number(f"{number}_expert_weight_bits", write.number("expert_weight_bits", 4)))
    if packed is None or scales is None or packed.ndim != 3 or bits not in (2, 4, 8):
        raise CannotWriteError(f"its weights '{names[0]}' are no constants of 2, 4 or 8 bits")
    if any(name and value is None for name, value in zip(names, (0, 0, bias, zeros), strict=True)):
        raise CannotWriteError(f"biases or zero points beside '{names[0]}' are no constants")
    experts, outputs, width = packed.shape
    inputs, block = width * 8 // bits, int(write.number("block_size", 0))
    wide = scales.reshape(experts, outputs, -1)
    if block == 0:
        block = next((b for b in (_MOST_BLOCK, 64, 32, _LEAST_BLOCK) if inputs % b == 0), inputs)
    blocks = inputs // block
    opened = None if zeros is None else _read_zeros(zeros, (experts, outputs, wide.shape[2]), bits)
    return _Experts(
        bits=bits,
        block=block,
        packed=packed.reshape(experts, outputs, blocks, block * bits // 8),
        scales=np.broadcast_to(wide, (experts, outputs, blocks)),
        zeros=None if opened is None else np.broadcast_to(opened, (experts, outputs, blocks)),
        bias=bias,
    )


def _read_zeros(zeros: np.ndarray, shape: tuple[int, int, int], bits: int) -> np.ndarray:
    """Zero points [E, N, blocks] in float32; those of rows with one scale are packed along N."""
    experts, outputs, blocks = shape
    if zeros.ndim == 2:
        return unpack_bits(zeros, bits)[:, :outputs, None].astype(np.float32)
    flat = unpack_bits(zeros.reshape(experts * outputs, -1), bits)[:, :blocks]
    return flat.reshape(experts, outputs, blocks).astype(np.float32)


def _share(write: Writer, tokens: int, count: int) -> str:
    """[tokens, experts]: what each expert has in a token's result."""
    scores = write.reshape(write.input(_ROUTER), tokens, count)
    k = int(write.number("k", 1))
    values, chosen = write.largest(scores, k)
    numbers = write.array(np.arange(count, dtype=np.int64).reshape(1, 1, count))
    same = write("Equal", write.reshape(chosen, tokens, k, 1), numbers)
    picks = write("Cast", same, to=write.element(write.input(_ROUTER)))
    if not write.input(_ROUTER_WEIGHTS):
        shares = write.reshape(write("Softmax", values, axis=-1), tokens, k, 1)
        return write.total(write("Mul", picks, shares), 1)
    given = write.reshape(write.input(_ROUTER_WEIGHTS), tokens, count)
    shares = write("Mul", write.total(picks, 1), given)
    if not write.number("normalize_routing_weights", 0):
        return shares
    whole = write.reshape(write.total(shares, 1), tokens, 1)
    return write("Div", shares, whole)


def _activate(write: Writer, rows: str, first: _Experts) -> str:
    """[1, tokens, experts * width] behind the activation."""
    kind = write.text("activation_type", "relu")
    fusion = int(write.number("swiglu_fusion", 0))
    parts = [first]
    if kind == "swiglu" and fusion == _INTERLEAVED:
        parts = [first.take(slice(0, None, 2)), first.take(slice(1, None, 2))]
    elif kind == "swiglu" and fusion == _BESIDE:
        half = first.packed.shape[1] // 2
        parts = [first.take(slice(0, half)), first.take(slice(half, None))]
    elif write.input(_THIRD[0]):
        parts = [first, _read_experts(write, _THIRD)]
    made = [_multiply(write, rows, part) for part in parts]
    if kind == "swiglu" and len(made) > 1:
        return _gate(write, made[0], made[1])
    activations: dict[str, Callable[[str], str]] = {
        "relu": lambda x: write("Relu", x),
        "gelu": lambda x: _bend(write, x, first.packed.shape),
        "silu": lambda x: write("Mul", x, write("Sigmoid", x)),
        "identity": lambda x: x,
    }
    if kind not in activations:
        raise CannotWriteError(f"its activation_type is {kind}, expected {', '.join(activations)}")
    active = activations[kind](made[0])
    return write("Mul", active, made[1]) if len(made) > 1 else active


def _bend(write: Writer, x: str, weights: tuple[int, ...]) -> str:
    """Gelu by a hyperbolic tangent, as onnxruntime computes it here."""
    tokens = int(np.prod(write.shape(write.input(0))[:-1]))
    out = write("Gelu", x, approximate="tanh")
    write.know(out, like=write.input(0), shape=(1, tokens, weights[0] * weights[1]))
    return out


def _gate(write: Writer, gate: str, passed: str) -> str:
    """SwiGLU: gate * sigmoid(alpha * gate) * (passed + beta), both within a limit."""
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
    """[1, tokens, experts * N]: the products by all experts beside each other."""
    experts, outputs = part.packed.shape[:2]
    held = [_flatten(value) for value in (part.packed, part.scales, part.zeros)]
    product = _write_product(write, x, part, held, experts * outputs)
    if part.bias is None:
        return product
    bias = np.ascontiguousarray(part.bias).reshape(-1).astype(write.dtype(write.input(0)))
    return write("Add", product, write.array(bias))


def _flatten(value: np.ndarray | None) -> np.ndarray | None:
    """Experts above each other: [E * N, ...]."""
    if value is None:
        return None
    return np.ascontiguousarray(value).reshape(-1, *value.shape[2:])


def _mix(write: Writer, x: str, part: _Experts) -> str:
    """[1, tokens, N]: the products by all experts, added up."""
    held = [_lay_beside(value) for value in (part.packed, part.scales, part.zeros)]
    return _write_product(write, x, part, held, part.packed.shape[1])


def _lay_beside(value: np.ndarray | None) -> np.ndarray | None:
    """Blocks of experts behind each other in each row: [N, E * blocks, ...]."""
    if value is None:
        return None
    turned = np.moveaxis(value, 0, 1)
    return np.ascontiguousarray(turned).reshape(turned.shape[0], -1, *turned.shape[3:])


def _write_product(
    write: Writer, x: str, part: _Experts, held: list[np.ndarray | None], outputs: int
) -> str:
    constants = [write.array(value) for value in held if value is not None]
    tokens = int(np.prod(write.shape(write.input(0))[:-1]))
    return write.own(
        N_BITS,
        x,
        *constants,
        shape=(1, tokens, outputs),
        out="",
        like=write.input(0),
        block=part.block,
        zero=float(1 << (part.bits - 1)),
        bits=part.bits,
    )


EXPERTS: dict[str, Callable[[Writer], None]] = {"QMoE": _mixture}
