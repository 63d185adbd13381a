"""A gate times what it lets through is stored at a sixteenth of its size, where halves would end.

The two factors of a gated layer (GEGLU, SwiGLU) were learned, so each is in halves; their product
may be beyond them, and is in few layers that people have trained: 256 times 262 in a Llama (issue
27179 of transformers), more in Laguna XS 2.1 (pull request 25389 of llama.cpp).  In float32 it
would cost both products around it half of their arithmetic.  A factor of a power of two moves no
digit, and the weights that read the product take it back: halves hold both factors up to 1023 then.

Before -> after (fp16):
    %z = map %up * silu(%gate); %y = matmul(%z, %w)
    %z = map %up * silu(%gate) / 16; %y = matmul(%z, %w * 16)      z lies in half
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from adrenoc.base.tvmapi import dtype_of, tirx
from adrenoc.ir.graph import Body, Graph, Node, Tensor
from adrenoc.ir.half import HALF_MAX, range_of
from adrenoc.kernels.families.operators import is_kind
from adrenoc.kernels.families.shared.operator import Kind

FACTOR = 16.0


def find_gates(graph: Graph, names: Iterable[str]) -> frozenset[str]:
    """Find those of these tensors that nothing but products by constant weights reads."""
    kept = graph.output_names | graph.state_names
    return frozenset(
        name
        for name in names
        if name not in kept
        and _expression_of(graph.producers[name]) is not None
        and graph.consumers[name]
        and all(_scaled_by(graph, reader, name) for reader in graph.consumers[name])
    )


def divide_gates(graph: Graph, gates: frozenset[str]) -> Graph:
    """Divide these tensors, and multiply the weights that read them."""
    made: dict[str, Node] = {node.output: node for node in graph.nodes}
    tensors: dict[str, Tensor] = {}
    for name in sorted(gates):
        made[name] = _divide(made[name])
        for reader in graph.consumers[name]:
            weights = _scaled_by(graph, reader, name)
            larger = graph.tensors[weights]
            assert larger.value is not None
            value = larger.value * np.asarray(FACTOR, larger.value.dtype)
            tensors[weights] = replace(larger, name=f"{weights}*{FACTOR:.0f}", value=value)
            inputs = (tensors[weights].name if n == weights else n for n in reader.inputs)
            made[reader.output] = replace(made[reader.output], inputs=tuple(inputs))
    return graph.replace_nodes(made.values(), tensors.values())


def _expression_of(node: Node) -> Body | None:
    """Return what finishes each number; None of a fold, and of an operator alone."""
    body = node.epilogue if node.epilogue is not None else node.body
    return None if body is None or body.reduced else body


def _divide(node: Node) -> Node:
    body = _expression_of(node)
    assert body is not None
    body = replace(body, value=body.value * tirx.const(1.0 / FACTOR, dtype_of(body.value)))
    return replace(node, body=body) if node.epilogue is None else replace(node, epilogue=body)


def _scaled_by(graph: Graph, reader: Node, name: str) -> str:
    """Return the constant by which a reader multiplies a tensor, and nothing else; empty: none.

    Weights of few bits have their scales behind them.
    """
    if not is_kind(reader, Kind.CONVOLUTION, Kind.PRODUCT) or reader.prologue is not None:
        return ""
    if reader.inputs.count(name) != 1 or reader.inputs[0] != name:
        return ""
    values = {n: graph.tensors[n].value for n in reader.inputs[1:3]}
    if not values or next(iter(values.values())) is None:
        return ""
    floats = (n for n, v in values.items() if v is not None and graph.tensors[n].is_float)
    weights = next(floats, "")
    value = values.get(weights)
    if value is None or reader.inputs.count(weights) != 1:
        return ""
    return weights if max(map(abs, range_of(value))) * FACTOR <= HALF_MAX else ""
