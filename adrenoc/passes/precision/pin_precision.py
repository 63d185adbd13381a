"""Mark the tensors that are computed and stored in float32, whatever the preset says.

A precision policy names them; `spread_precision` adds, after fusion, what goes with them.

Before -> after (policy: logits):
    %logits = conv2d(%x, %w)       the same, and %logits stays in float32

In deep networks the first convolutions add up in float, as far as a little time goes
(`widen_sums`). Every layer hands on the errors of those before it, and a network without training
data at hand does not tell which of them it damps: MobileNetV2 at 224 x 224 makes ten times more of
an error in its first layers than in its last.  The first convolutions are also the cheapest to
mend: they have few channels, and wait for memory more than for arithmetic.  So a deep network
spends `SHARE` of the estimated time of its convolutions on float arithmetic, from its inputs on.

Before -> after (fp16, 40 convolutions or more):
    %c0 = conv2d(%x, %w0); ...     the same, and c0, ... have `wide_sums`

A gate times what it lets through is stored at a sixteenth of its size, where halves would end
(`divide_gates`).  The two factors of a gated layer (GEGLU, SwiGLU) were learned, so each is in
halves; their product may be beyond them, and is in few layers that people have trained: 256 times
262 in a Llama (issue 27179 of transformers), more in Laguna XS 2.1 (pull request 25389 of
llama.cpp).  In float32 it would cost both products around it half of their arithmetic.  A factor of
a power of two moves no digit, and the weights that read the product take it back: halves hold both
factors up to 1023 then.

Before -> after (fp16):
    %z = map %up * silu(%gate); %y = matmul(%z, %w)
    %z = map %up * silu(%gate) / 16; %y = matmul(%z, %w * 16)      z lies in half
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from adrenoc.base.errors import PrecisionPolicyError
from adrenoc.base.text.spelling import did_you_mean
from adrenoc.base.tvmapi import dtype_of, tirx
from adrenoc.bundle.chat import TOKENS
from adrenoc.ir.graph import Body, Graph, Node, Tensor
from adrenoc.ir.half import HALF_MAX, range_of
from adrenoc.ir.options import CompileOptions
from adrenoc.kernels.families.operators import OPERATORS, is_kind
from adrenoc.kernels.families.shared.conv_geometry import ConvWork
from adrenoc.kernels.families.shared.operator import ChannelSums, Kind
from adrenoc.passes.context import Context


def pin_precision(graph: Graph, context: Context) -> Graph:
    """Mark the tensors that the policy names, by the model's own names or by those of the graph."""
    computed = [n for n, t in graph.tensors.items() if t.value is None]
    known: dict[str, list[str]] = {}
    for name in computed:
        known.setdefault(context.names.get(name, name), []).append(name)
    exact: set[str] = set()
    for name in context.options.float32_tensors:
        if name in known:
            exact.update(known[name])
        elif name in computed:
            exact.add(name)
        elif _only_fills_caches(context):
            context.log.add(name, "not pinned", "a run of several tokens does not compute it")
        else:
            raise PrecisionPolicyError(
                f"the precision policy pins the tensor '{name}', which the compiled graph does "
                f"not hold{did_you_mean(name, list(known))}",
                hint="make the policy again: adrenoc check-accuracy MODEL -o POLICY.json",
            )
    return graph.change_precision(exact, float32=True)


def _only_fills_caches(context: Context) -> bool:
    """Return whether this is a decoder's entry point of several tokens, which makes no logits."""
    tokens = dict(context.options.shapes).get(TOKENS, (1,))[-1]
    return bool(context.options.caches or context.options.recurrent) and tokens > 1


def spread_precision(graph: Graph, context: Context) -> Graph:
    """Keep in float32 also what only moves such tensors, and the constants that they are made of.
    Kernels convert where they load and store, so that no edge between the two costs a kernel; each
    such edge is a Decision."""
    options, log, exact = context.options, context.log, set(graph.float32_names)
    if (options.storage_dtype, options.compute_dtype) == ("float32", "float32"):
        return graph.change_precision(exact, float32=False)
    for node in graph.nodes:
        if node.output not in exact and node.moves_alone and node.inputs[0] in exact:
            exact.add(node.output)
            log.add(node.output, "float32", f"it moves {node.inputs[0]}, which is float32")
        elif node.output in exact:
            exact.update(n for n in node.inputs if graph.tensors[n].value is not None)
            log.add(node.output, "float32 arithmetic and storage", "pinned")
    for node in graph.nodes:
        if node.output in exact:
            read = [n for n in node.inputs if n not in exact and graph.tensors[n].is_float]
            stored, computed = options.storage_dtype, "float32"
        else:
            read = [n for n in node.inputs if n in exact and graph.tensors[n].value is None]
            stored, computed = "float32", options.compute_dtype
        if read:
            log.add(
                node.output,
                f"converts on load: {stored}",
                f"its kernel reads {', '.join(read)} in {stored} and computes in {computed}; the "
                "load converts, no copy is added",
            )
    return graph.change_precision(exact, float32=True)


DEEP = 40
"""Convolutions of a network whose errors add up to more than the bar of 1e-2 of the range."""


def is_deep(graph: Graph) -> bool:
    """Return whether so many convolutions follow each other that the errors of the first matter."""
    found = (channel_sums_of(node) for node in graph.nodes)
    return sum(sums.convolutions for sums in found if sums is not None) >= DEEP


def channel_sums_of(node: Node) -> ChannelSums | None:
    """Return what a node adds up over channels; None of an operator that does not."""
    operator = OPERATORS.get(node.op)
    return None if operator is None else operator.channel_sums


SHARE = 0.04
"""The share of the estimated time of all convolutions that a deep network spends on float sums."""


def widen_sums(graph: Graph, context: Context) -> Graph:
    """Mark the first convolutions of a deep network, which compute in float32."""
    costs, log = context.costs, context.log
    options = costs.options
    if options.compute_dtype != "float16" or not is_deep(graph):
        return graph
    works = [found for found in _works(graph, options) if found[2].half]
    budget = SHARE * sum(sums.clocks(node, work, costs) for node, sums, work in works)
    left, wide = budget, []
    for node, sums, work in works:
        in_float = sums.clocks(node, replace(work, half=False), costs)
        left -= max(0.0, in_float - sums.clocks(node, work, costs))
        if left < 0 or not sums.in_float:
            break
        wide.append(node.output)
    if wide:
        log.add(
            f"{wide[0]} to {wide[-1]}",
            "float32 arithmetic",
            f"the first {len(wide)} of {len(works)} convolutions in half: all later ones hand on "
            f"their errors; at most {SHARE:.0%} of the convolutions' estimated time",
        )
    return graph.change_precision(wide, wide_sums=True)


def _works(graph: Graph, options: CompileOptions) -> Iterator[tuple[Node, ChannelSums, ConvWork]]:
    """Yield the convolutions over channels, in order."""
    for node in graph.nodes:
        sums = channel_sums_of(node)
        if sums is None or graph.precision(node.output).is_special:
            continue
        work = sums.work(graph, node, options)
        if work is not None:
            yield node, sums, work


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
    Weights of few bits have their scales behind them."""
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
