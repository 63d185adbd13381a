"""What a decoder's graph computes of extents, masks and positions alone, for a past of some rows.

Exporters write masks and positions in as many ways as there are exporters; with the extents known
and a mask of ones all of that is constants, whichever way they took.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import onnx

from adrenoc.bundle.decoder_names import MASK, POSITIONS, TOKENS
from adrenoc.importers.onnx.fold import fold_constants
from adrenoc.importers.onnx.graph import OnnxGraph, TensorType, copy_node


def choose_pasts(tokens: int, rows: int) -> tuple[int, int]:
    """Two lengths of a past to look at a graph with, within caches of `rows` if these have room."""
    room = max(rows - tokens, 2)
    return min(5, room - 1), min(9, room)


@dataclass(frozen=True, kw_only=True)
class Prober:
    """A graph whose inputs get other extents: `caches` are its pasts."""

    graph: OnnxGraph
    caches: frozenset[str]
    _known: dict[tuple[tuple[str, ...], int, int], dict[str, np.ndarray]] = field(
        default_factory=dict
    )

    def fold(self, tokens: int, past: int, outputs: Sequence[str] = ()) -> OnnxGraph:
        """Return a copy, folded, for so many tokens behind so many; of `outputs` alone where some
        are."""
        source = self.graph
        copy = OnnxGraph(
            nodes=[copy_node(node) for node in source.nodes],
            inputs=list(source.inputs),
            outputs=list(outputs or source.outputs),
            opset=source.opset,
            constants=dict(source.constants),
            types=dict(source.types),
        )
        if outputs:
            copy.drop_unused()
        for spec in source.inputs:
            shape = list(spec.shape)
            if spec.name in self.caches:
                shape[2] = past
            elif spec.name == MASK:
                shape[-1] = tokens + past
            elif spec.name in (POSITIONS, TOKENS):
                shape[-1] = tokens
            copy.types[spec.name] = replace(source.types[spec.name], shape=tuple(shape))
            if spec.name == MASK:
                copy.set_constant(MASK, np.ones(shape, spec.dtype))
            elif spec.name == POSITIONS:
                rows = np.arange(past, past + tokens, dtype=spec.dtype)
                copy.set_constant(POSITIONS, np.broadcast_to(rows, shape).copy())
        fold_constants(copy)
        return copy

    def values(self, names: Sequence[str], tokens: int, past: int) -> dict[str, np.ndarray]:
        """Return what tensors that hang on extents alone hold then."""
        key = (tuple(names), tokens, past)
        if key not in self._known:  # layers share masks and tables
            held = self.fold(tokens, past, names).constants
            self._known[key] = {name: held[name] for name in names if name in held}
        return self._known[key]

    def find_hanging(self, names: Iterable[str]) -> list[str]:
        """Find which of `names` are computed of an input, if only of its extents."""
        return [name for name in names if name in self._touched]

    @cached_property
    def _touched(self) -> frozenset[str]:
        touched = {spec.name for spec in self.graph.inputs}
        for node in self.graph.nodes:
            if touched.intersection(node.input):
                touched.update(name for name in node.output if name)
        return frozenset(touched)


def evaluate_chain(
    graph: OnnxGraph, nodes: Sequence[onnx.NodeProto], given: Mapping[str, np.ndarray], result: str
) -> np.ndarray | None:
    """Return what `nodes` make of the values `given` in place of tensors; None where they do
    more."""
    held = {n: graph.constants[n] for node in nodes for n in node.input if n in graph.constants}
    types = {n: graph.types[n] for n in held}
    for name, value in given.items():
        element = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
        types[name] = TensorType(element=element, shape=value.shape)
    part = OnnxGraph(
        nodes=[copy_node(node) for node in nodes],
        inputs=[],
        outputs=[result],
        opset=graph.opset,
        constants={**held, **given},
        types=types,
    )
    fold_constants(part)
    return part.constants.get(result)
