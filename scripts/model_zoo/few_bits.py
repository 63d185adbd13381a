"""Weights of few bits as files of decoders have them, in NumPy."""

import numpy as np


def quantise(
    weight: np.ndarray, block: int, *, zeros: bool, bits: int = 4
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Round [N, K] to few bits in blocks along K: bytes [N, blocks, a block's], scales, zeros.

    Without zero points the range lies around zero, and the middle of the codes stands for it.
    """
    n, k = weight.shape
    blocks, most = -(-k // block), (1 << bits) - 1
    padded = np.zeros((n, blocks * block))
    padded[:, :k] = weight
    parts = padded.reshape(n, blocks, block)
    middle = float(1 << (bits - 1))
    if zeros:
        low, high = np.minimum(parts.min(-1), 0), np.maximum(parts.max(-1), 0)
        scales = np.maximum((high - low) / most, 1e-8)
        zero = np.clip(np.round(-low / scales), 0, most)
    else:
        scales = np.maximum(np.abs(parts).max(-1) / max(middle - 1, 1), 1e-8)
        zero = np.full((n, blocks), middle)
    codes = np.clip(np.round(parts / scales[..., None] + zero[..., None]), 0, most).astype(np.uint8)
    points = pack_bits(zero.astype(np.uint8), bits) if zeros else None
    return pack_bits(codes, bits), scales.astype(np.float32), points


def pack_bits(codes: np.ndarray, bits: int) -> np.ndarray:
    """Numbers along the last axis as bytes, the first in the low bits; zeros fill the last up."""
    share = 8 // bits
    even = np.zeros((*codes.shape[:-1], -(-codes.shape[-1] // share) * share), np.uint8)
    even[..., : codes.shape[-1]] = codes
    packed = np.zeros((*even.shape[:-1], even.shape[-1] // share), np.uint8)
    for number in range(share):
        packed |= even[..., number::share] << np.uint8(number * bits)
    return packed
