"""Weights of all experts of a mixture, in few bits or as floats, and products by all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from adrenoc.base.refused import RefusedError
from adrenoc.importers.onnx.n_bits import N_BITS, unpack_bits
from adrenoc.importers.onnx.writer import Writer

_LEAST_BLOCK, _MOST_BLOCK = 16, 128
"""Numbers of a block that a row with one scale is taken in."""


class Experts(Protocol):
    """A matrix of `shape[1]` outputs by `shape[2]` inputs for each of `shape[0]` experts."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Experts, outputs, inputs."""

    @property
    def bias(self) -> np.ndarray | None:
        """What is added to each expert's outputs [E, N]."""

    def take(self, rows: slice) -> Experts:
        """Those of some outputs of each."""

    def write_beside(self, write: Writer, x: str, tokens: int) -> str:
        """[1, tokens, E * N] of `x` [1, tokens, K]: the products by each, beside each other."""

    def write_total(self, write: Writer, x: str, tokens: int) -> str:
        """[1, tokens, N] of `x` [1, tokens, E * K]: the products by each, added up."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FloatExperts:
    """Weights [E, N, K]."""

    weights: np.ndarray
    bias: np.ndarray | None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Experts, outputs, inputs."""
        experts, outputs, inputs = self.weights.shape
        return experts, outputs, inputs

    def take(self, rows: slice) -> FloatExperts:
        """Those of some outputs of each."""
        bias = None if self.bias is None else self.bias[:, rows]
        return FloatExperts(weights=self.weights[:, rows], bias=bias)

    def write_beside(self, write: Writer, x: str, tokens: int) -> str:
        """[1, tokens, E * N] of `x` [1, tokens, K]: the products by each, beside each other."""
        return self._write(write, x, tokens, self.weights.reshape(-1, self.shape[2]))

    def write_total(self, write: Writer, x: str, tokens: int) -> str:
        """[1, tokens, N] of `x` [1, tokens, E * K]: the products by each, added up."""
        return self._write(write, x, tokens, _lay_beside(self.weights))

    def _write(self, write: Writer, x: str, tokens: int, rows: np.ndarray) -> str:
        product = write("MatMul", x, write.array(np.ascontiguousarray(rows.T)))
        write.know(product, like=write.input(0), shape=(1, tokens, len(rows)))
        return product


@dataclass(frozen=True, kw_only=True, eq=False)
class FewBitExperts:
    """Weights [E, N, blocks, bytes], scales and zero points [E, N, blocks]."""

    bits: int
    block: int
    packed: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray | None
    bias: np.ndarray | None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Experts, outputs, inputs."""
        experts, outputs, blocks = self.packed.shape[:3]
        return experts, outputs, blocks * self.block

    def take(self, rows: slice) -> FewBitExperts:
        """Those of some outputs of each."""
        return FewBitExperts(
            bits=self.bits,
            block=self.block,
            packed=self.packed[:, rows],
            scales=self.scales[:, rows],
            zeros=None if self.zeros is None else self.zeros[:, rows],
            bias=None if self.bias is None else self.bias[:, rows],
        )

    def write_beside(self, write: Writer, x: str, tokens: int) -> str:
        """[1, tokens, E * N] of `x` [1, tokens, K]: the products by each, beside each other."""
        held = [value.reshape(-1, *value.shape[2:]) for value in self._held()]
        return self._write(write, x, tokens, held)

    def write_total(self, write: Writer, x: str, tokens: int) -> str:
        """[1, tokens, N] of `x` [1, tokens, E * K]: the products by each, added up."""
        return self._write(write, x, tokens, [_lay_beside(value) for value in self._held()])

    def _held(self) -> list[np.ndarray]:
        return [v for v in (self.packed, self.scales, self.zeros) if v is not None]

    def _write(self, write: Writer, x: str, tokens: int, held: Sequence[np.ndarray]) -> str:
        return write.own(
            N_BITS,
            x,
            *[write.array(np.ascontiguousarray(value)) for value in held],
            shape=(1, tokens, len(held[0])),
            out="",
            like=write.input(0),
            block=self.block,
            zero=float(1 << (self.bits - 1)),
            bits=self.bits,
        )


def _lay_beside(value: np.ndarray) -> np.ndarray:
    """[E, N, K, ...] as [N, E * K, ...]: what experts have along the inputs, one behind another."""
    turned = np.moveaxis(value, 0, 1)
    return np.ascontiguousarray(turned).reshape(turned.shape[0], -1, *turned.shape[3:])


def read_floats(write: Writer, weights: str, bias: str) -> FloatExperts:
    """Return the weights of one product of MoE.

    Raises:
        RefusedError: they are no constants.
    """
    held, added = write.value(weights), write.value(bias)
    if held is None or held.ndim != 3:
        raise RefusedError(f"its weights '{weights}' are no constants of three axes")
    if bias and added is None:
        raise RefusedError(f"its biases '{bias}' are no constants")
    return FloatExperts(weights=held, bias=added)


def read_few_bits(
    write: Writer, names: tuple[str, str, str, str], *, bits: int, block: int
) -> FewBitExperts:
    """Return the weights of one product of QMoE; `names` are of weights, scales, biases, zero
    points.

    A `block` of 0 is one scale a row.

    Raises:
        RefusedError: they are no constants, or of a form that nothing here reads.
    """
    packed, scales, bias, zeros = (write.value(name) for name in names)
    if packed is None or scales is None or packed.ndim != 3 or bits not in (2, 4, 8):
        raise RefusedError(f"its weights '{names[0]}' are no constants of 2, 4 or 8 bits")
    if any(name and value is None for name, value in zip(names, (0, 0, bias, zeros), strict=True)):
        raise RefusedError(f"biases or zero points beside '{names[0]}' are no constants")
    experts, outputs, width = packed.shape
    inputs = width * 8 // bits
    wide = scales.reshape(experts, outputs, -1)
    if block == 0:
        block = next((b for b in (_MOST_BLOCK, 64, 32, _LEAST_BLOCK) if inputs % b == 0), inputs)
    blocks = inputs // block
    opened = None if zeros is None else _read_zeros(zeros, (experts, outputs, wide.shape[2]), bits)
    return FewBitExperts(
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
