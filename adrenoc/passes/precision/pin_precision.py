"""Mark the tensors that are computed and stored in float32, whatever the preset says.

A precision policy names them; `spread_precision` adds, after fusion, what goes with them.

Before -> after (policy: logits):
    %logits = conv2d(%x, %w)       the same, and %logits stays in float32
"""

from __future__ import annotations

from adrenoc.base.errors import PrecisionPolicyError
from adrenoc.base.text.spelling import did_you_mean
from adrenoc.base.tvmapi import tvm
from adrenoc.bundle.decoder_names import TOKENS
from adrenoc.ir.graph import Graph, Node
from adrenoc.passes.context import Context


def pin_precision(graph: Graph, context: Context) -> Graph:
    """Mark the tensors that the policy names, by the model's own names or by those of the graph.

    Raises:
        PrecisionPolicyError: the graph has no tensor of that name, and is a whole model.
    """
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
    """Return whether this is an entry point of a decoder for several tokens: what makes logits is
    left out there."""
    tokens = dict(context.options.shapes).get(TOKENS, (1,))[-1]
    return bool(context.options.caches or context.options.recurrent) and tokens > 1


def spread_precision(graph: Graph, context: Context) -> Graph:
    """Keep in float32 also what only moves such tensors, and the constants that they are made of.

    Kernels convert where they load and store, so that no edge between the two costs a kernel;
    each such edge is a Decision.
    """
    options, log = context.options, context.log
    exact = set(graph.float32_names)
    if (options.storage_dtype, options.compute_dtype) == ("float32", "float32"):
        return graph.change_precision(exact, float32=False)
    for node in graph.nodes:
        if node.output not in exact and moves(node) and node.inputs[0] in exact:
            exact.add(node.output)
            log.add(node.output, "float32", f"it moves {node.inputs[0]}, which is float32")
        elif node.output in exact:
            exact.update(n for n in node.inputs if graph.tensors[n].value is not None)
            log.add(node.output, "float32 arithmetic and storage", "pinned")
    for node in graph.nodes:
        wide = [n for n in node.inputs if n in exact and graph.tensors[n].value is None]
        narrow = [n for n in node.inputs if n not in exact and graph.tensors[n].is_float]
        if wide and node.output not in exact:
            log.add(
                node.output,
                "converts on load: float32",
                f"its kernel reads {', '.join(wide)} in float32 and computes in "
                f"{options.compute_dtype}; the load converts, no copy is added",
            )
        if narrow and node.output in exact:
            log.add(
                node.output,
                f"converts on load: {options.storage_dtype}",
                f"its kernel reads {', '.join(narrow)} in {options.storage_dtype} and computes in "
                "float32; the load converts, no copy is added",
            )
    return graph.change_precision(exact, float32=True)


def moves(node: Node) -> bool:
    """Return whether each element of the output is an element of the one input."""
    return (
        node.is_map
        and len(node.inputs) == 1
        and node.epilogue is None
        and node.body is not None
        and isinstance(node.body.value, tvm.ir.TensorLoad)
    )
