"""What a convolution does: window, strides, padding, and its weights in one order of letters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from adrenoc.ir.graph import Graph, Node


@dataclass(frozen=True, kw_only=True)
class ConvGeometry:
    """What a convolution does, apart from the extents of its tensors."""

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    """Zeros before the first row and before the first column."""
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1

    def columns(self, pixels: int) -> list[int]:
        """Columns that so many neighbours along W read of one kernel row, from the first one's."""
        return list(_columns(pixels, self.strides[1], self.kernel[1], self.dilation[1]))


@lru_cache(maxsize=1024)  # cost models ask for each of some thousand tiles
def _columns(pixels: int, stride: int, taps: int, dilation: int) -> tuple[int, ...]:
    found = {p * stride + kx * dilation for p in range(pixels) for kx in range(taps)}
    return tuple(sorted(found))


def is_depthwise(graph: Graph, node: Node) -> bool:
    """Return whether each channel of a convolution's output is made of one channel of its own."""
    out_channels, per_in, _, _ = _extents(
        graph.tensors[node.inputs[1]].shape, str(node.attrs["kernel_layout"])
    )
    in_channels = graph.operand(node.inputs[0]).extents.c
    return int(node.attrs["groups"]) == in_channels == out_channels and per_in == 1


def conv_geometry(graph: Graph, node: Node) -> ConvGeometry:
    """Return the geometry of a two-dimensional convolution."""
    shape = graph.tensors[node.inputs[1]].shape
    _, _, kh, kw = _extents(shape, str(node.attrs["kernel_layout"]))
    return geometry_of(node.attrs, (kh, kw))


def geometry_of(attrs: Mapping[str, Any], kernel: tuple[int, int]) -> ConvGeometry:
    """Return the geometry that Relax's attributes state."""
    top, left = attrs["padding"][0], attrs["padding"][1]
    return ConvGeometry(
        kernel=kernel,
        strides=tuple(attrs["strides"]),
        padding=(top, left),
        dilation=tuple(attrs["dilation"]),
        groups=int(attrs["groups"]),
    )


def _extents(shape: tuple[int, ...], layout: str) -> tuple[int, int, int, int]:
    by_letter = dict(zip(layout, shape, strict=True))
    return by_letter["O"], by_letter["I"], by_letter.get("H", 1), by_letter["W"]


def add_row_axis(weight: np.ndarray, layout: str) -> tuple[np.ndarray, str]:
    """Weights of a one-dimensional convolution (`OIW`) as those of one row (`OIHW`)."""
    if "H" in layout:
        return weight, layout
    axis = layout.index("W")
    return np.expand_dims(weight, axis), f"{layout[:axis]}H{layout[axis:]}"


def transpose_to_oihw(weight: np.ndarray, layout: str) -> np.ndarray:
    """Weights of any layout as OIHW."""
    four, letters = add_row_axis(weight, layout)
    return four.transpose([letters.index(letter) for letter in "OIHW"])


Oihw = Callable[[np.ndarray], np.ndarray]
