"""A graph with the graphs that its composites stand for in their places.

Before -> after:
    y = STABLEHLO_COMPOSITE(x) {graph f}        the operators of f(x)

Exporters mark norms and attentions so, for runtimes that have a kernel for the whole.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from adrenoc.base.errors import ModelFormatError
from adrenoc.importers.formats import EXPORT_AGAIN
from adrenoc.importers.tflite.file import MOST_TABLES, GraphInfo, Operator, TensorInfo, TFLiteFile

COMPOSITE, BODY = "STABLEHLO_COMPOSITE", "DecompositionSubgraphIndex"


def inline_composites(file: TFLiteFile, graph: GraphInfo) -> GraphInfo:
    """Return the same as `graph` without composites.

    Raises:
        ModelFormatError: one stands for itself, or for more than any model has.
    """
    if not any(operator.kind == COMPOSITE for operator in graph.operators):
        return graph
    inliner = _Inliner(file, list(graph.tensors))
    inliner.write(graph.operators, {}, ())
    return replace(graph, tensors=tuple(inliner.tensors), operators=tuple(inliner.operators))


class _Inliner:
    def __init__(self, file: TFLiteFile, tensors: list[TensorInfo]) -> None:
        self.file = file
        self.tensors = tensors
        self.operators: list[Operator] = []

    def write(
        self, operators: tuple[Operator, ...], places: dict[int, int], active: tuple[int, ...]
    ) -> None:
        """Write operators; `places` has the tensors here for theirs, where these differ."""
        for one in operators:
            operator = replace(
                one,
                inputs=tuple(places.get(i, i) for i in one.inputs),
                outputs=tuple(places.get(i, i) for i in one.outputs),
            )
            if operator.kind == COMPOSITE:
                self._open(operator, active)
            else:
                self.operators.append(operator)
            if len(self.operators) + len(self.tensors) > MOST_TABLES:
                raise ModelFormatError(
                    f"its composites stand for more than {MOST_TABLES} operators and tensors",
                    hint=EXPORT_AGAIN,
                )

    def _open(self, composite: Operator, active: tuple[int, ...]) -> None:
        number = int(composite.options.get(BODY, -1))
        if not 0 < number < len(self.file.graphs) or number in active:
            raise ModelFormatError(
                f"a composite stands for graph {number} of {len(self.file.graphs)}, expected "
                "another one than those that it is in",
                hint=EXPORT_AGAIN,
            )
        body = self.file.graphs[number]
        if (len(body.inputs), len(body.outputs)) != (len(composite.inputs), len(composite.outputs)):
            raise ModelFormatError(
                f"a composite has {len(composite.inputs)} inputs and {len(composite.outputs)} "
                f"outputs, its graph {len(body.inputs)} and {len(body.outputs)}",
                hint=EXPORT_AGAIN,
            )
        places = {index: len(self.tensors) + index for index in range(len(body.tensors))}
        self.tensors += [
            replace(info, name=f"{info.name}__{len(self.operators)}") for info in body.tensors
        ]
        places[-1] = -1
        places.update(zip(body.inputs, composite.inputs, strict=True))
        made = [i for i in body.outputs if i not in body.inputs]
        places.update(
            (inner, outer)
            for inner, outer in zip(body.outputs, composite.outputs, strict=True)
            if inner in made
        )
        self.write(body.operators, places, (*active, number))
        for inner, outer in zip(body.outputs, composite.outputs, strict=True):
            if inner in body.inputs:  # handed through as it is
                self._copy(places[inner], outer)

    def _copy(self, source: int, to: int) -> None:
        shape = len(self.tensors)
        self.tensors.append(_shape_of(self.tensors[to], shape))
        self.operators.append(
            Operator(kind="RESHAPE", custom=False, inputs=(source, shape), outputs=(to,))
        )


def _shape_of(info: TensorInfo, number: int) -> TensorInfo:
    value = np.asarray(info.shape, np.int32)
    return TensorInfo(name=f"shape_{number}", shape=value.shape, dtype="int32", value=value)
