"""Turn a step down the ladder into an error: `--set forbid=cpu`, `forbid=buffer`.

For builds that must not slow down in silence: the error names every operator that would take the
step, and why.
"""

from __future__ import annotations

from collections.abc import Iterable

from adrenoc.base.decision import DecisionLog
from adrenoc.base.errors import CompileError
from adrenoc.base.text.spelling import list_first
from adrenoc.ir.graph import Graph
from adrenoc.ir.operand import Memory
from adrenoc.passes.context import Context


def forbid_cpu(graph: Graph, context: Context) -> Graph:
    """Refuse operators on the CPU where the options forbid them.

    Raises:
        CompileError: naming all of them.
    """
    if "cpu" in context.options.forbid:
        found = (node.output for node in graph.nodes if node.is_on_cpu)
        _refuse(found, "the CPU", "cpu", context.log)
    return graph


def forbid_buffers(graph: Graph, context: Context) -> Graph:
    """Refuse operators that write to a buffer, other than to the graph's own outputs.

    Raises:
        CompileError: naming all of them.
    """
    if "buffer" in context.options.forbid:
        found = (
            node.output
            for node in graph.nodes
            if node.output not in graph.output_names
            and graph.placements[node.output].memory in (Memory.BLOCKED, Memory.PLAIN)
        )
        _refuse(found, "a buffer", "buffer", context.log)
    return graph


def _refuse(names: Iterable[str], place: str, word: str, log: DecisionLog) -> None:
    offenders = []
    for name in names:
        reasons = [f"{d.taken}: {d.reason}" for d in log.find(name)]
        offenders.append(f"{name} ({reasons[-1] if reasons else 'its values are no floats'})")
    if offenders:
        raise CompileError(
            f"{len(offenders)} operators would run on {place}, which forbid={word} rules out: "
            + list_first(offenders),
            hint=f"adrenoc compile MODEL --explain, without forbid={word}",
        )
