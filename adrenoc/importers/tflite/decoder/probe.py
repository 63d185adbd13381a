"""What a decoder's graph makes of positions and of known tensors, looked at by numbers.

Exporters write masks, places of new rows and repeated heads in as many ways as there are exporters;
for a past of some rows all of that is constants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from adrenoc.importers.tflite.converter import GraphConverter
from adrenoc.importers.tflite.decoder.roles import Call, mask_values
from adrenoc.importers.tflite.file import Operator, TFLiteFile


class Prober:
    """Evaluates tensors of a call's graph."""

    def __init__(self, file: TFLiteFile, call: Call) -> None:
        self._file, self.call = file, call

    @cached_property
    def makers(self) -> dict[int, Operator]:
        """Tensor -> the operator that makes it."""
        return {index: one for one in self.call.graph.operators for index in one.outputs}

    @cached_property
    def readers(self) -> dict[int, list[Operator]]:
        """Tensor -> the operators that read it."""
        found: dict[int, list[Operator]] = {}
        for one in self.call.graph.operators:
            for index in set(one.inputs):
                found.setdefault(index, []).append(one)
        return found

    def at(self, past: int) -> dict[int, np.ndarray]:
        """Return what a caller gives for positions and mask behind `past` tokens."""
        call, given = self.call, {}
        mine = past + np.arange(call.length)
        if call.positions >= 0:
            info = call.graph.tensors[call.positions]
            given[call.positions] = mine.astype(info.dtype).reshape(info.shape)
        if call.mask >= 0:
            info = call.graph.tensors[call.mask]
            given[call.mask] = mask_values(mine, info.shape, info.dtype)
        return given

    def values(
        self, wanted: Sequence[int], given: Mapping[int, np.ndarray]
    ) -> dict[int, np.ndarray]:
        """Return what tensors hold where `given` tensors hold that; those that hang on more are
        left out.

        Raises:
            RefusedError: an operator on the way cannot be translated.
        """
        graph = self.call.graph
        needed, left = set(), [index for index in wanted if index not in given]
        while left:
            maker = self.makers.get(left.pop())
            if maker is None or id(maker) in needed:
                continue
            needed.add(id(maker))
            left += [i for i in maker.inputs if i >= 0 and i not in given]
        part = replace(graph, operators=tuple(one for one in graph.operators if id(one) in needed))
        return GraphConverter(self._file).evaluate(part, given, wanted)
