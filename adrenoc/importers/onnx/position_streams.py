"""Positions of time, height and width, which are one and the same in a text.

Before -> after:
    position_ids [3, 1, tokens]                          position_ids [1, tokens]
    com.microsoft.MRotaryEmbedding(x, position_ids, ..)  RotaryEmbedding(x, position_ids, ..)
    what else reads them                                 reads an Expand of them

Source: onnxruntime's ContribOperators reference.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from onnx import helper

from adrenoc.bundle.decoder_names import POSITIONS
from adrenoc.importers.onnx.graph import OnnxGraph

_STREAMS = "positions/streams"
_ONLY_OF_STREAMS = ("mrope_section", "mrope_layout")
"""Attributes that say which stream turns which numbers."""


def join_streams(graph: OnnxGraph) -> None:
    """Change `graph` in place, where its positions have an axis of streams."""
    extents = graph.shape_of(POSITIONS)
    if extents is None or len(extents) != 3:
        return
    streams, batch, tokens = extents
    turned = 0
    for node in graph.nodes:
        if node.op_type == "MRotaryEmbedding" and node.input[1] == POSITIONS:
            kept = [one for one in node.attribute if one.name not in _ONLY_OF_STREAMS]
            del node.attribute[:]
            node.attribute.extend(kept)
            node.op_type = "RotaryEmbedding"
            turned += 1
        else:
            node.input[:] = [_STREAMS if name == POSITIONS else name for name in node.input]
    if any(_STREAMS in node.input for node in graph.nodes):
        graph.set_constant("positions/extents", np.array([streams, batch, tokens], np.int64))
        inputs = [POSITIONS, "positions/extents"]
        graph.nodes.insert(0, helper.make_node("Expand", inputs, [_STREAMS]))
    shape = (batch, tokens)
    graph.types[POSITIONS] = replace(graph.types[POSITIONS], shape=shape)
    graph.inputs = [
        replace(spec, shape=shape) if spec.name == POSITIONS else spec for spec in graph.inputs
    ]
    reason = f"those of a text are the same; {turned} rotations read it as it is"
    graph.log.add(POSITIONS, f"one stream in place of {streams}", reason)
