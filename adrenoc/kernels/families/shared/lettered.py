"""Operators whose attributes say their layouts in letters, as convolutions and pools do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adrenoc.ir.graph import Node, Tensor
from adrenoc.ir.layout import Layout
from adrenoc.kernels.families.shared.operator import MakesLayout, WantsLayout

_LETTERS = ("NCHW", "NHWC", "NCW", "NWC")


def letters_refused(node: Node, key: str) -> str | None:
    """Return why the layouts that attribute `key` and `out_layout` name cannot be read or
    written."""
    layout: Any = node.attrs[key]
    out = str(node.attrs["out_layout"] or layout)
    if str(layout) not in _LETTERS or out not in _LETTERS:
        return f"{key} {layout} to {out}, expected one of {', '.join(_LETTERS)}"
    return None


def wants_letters(key: str) -> WantsLayout:
    """Return the first input in the layout that attribute `key` names."""

    def want(node: Node, position: int, _tensors: Mapping[str, Tensor]) -> Layout | None:
        return Layout(str(node.attrs[key])) if position == 0 else None

    return want


def makes_letters(key: str) -> MakesLayout:
    """Return the output in the layout `out_layout`, or in that of the input where it names none."""

    def make(node: Node, _tensors: Mapping[str, Tensor], _source: Layout | None) -> Layout:
        return Layout(str(node.attrs["out_layout"] or node.attrs[key]))

    return make
