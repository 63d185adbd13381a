"""What a target's quirks leave out of a compilation, and what the user forbids it.

`--set forbid=cpu` or `forbid=buffer` turn a step down the ladder into an error.  For builds that
must not slow down in silence: the error names every operator that would take the step, and why.
"""

from collections.abc import Iterable, Iterator

from adrenoc.base.decision import Decision, DecisionLog
from adrenoc.base.errors import CompileError, TargetError
from adrenoc.base.text.spelling import did_you_mean, list_first
from adrenoc.ir.graph import Graph
from adrenoc.ir.layout import Memory
from adrenoc.kernels.families.operators import OPERATORS
from adrenoc.passes.context import Context
from adrenoc.target.gpu import OPERATOR, describe_quirk
from adrenoc.target.target import Target


def avoid_decisions(target: Target) -> Iterator[Decision]:
    """Yield a decision for each thing that is left out."""
    for word, reason in target.avoided.items():
        yield Decision(subject=target.title, taken=f"without {word}", reason=reason)
    if target.own is None:
        return
    for quirk in target.gpu.quirks:
        bounds = (
            ("work-groups", quirk.work_group_items_below, "threads"),
            ("images", quirk.image_extent_below, "texels a side"),
            ("local memory", quirk.local_bytes_below, "bytes"),
        )
        for what, below, unit in bounds:
            if below is not None:
                taken = f"{what} of less than {below} {unit}"
                yield Decision(subject=target.title, taken=taken, reason=describe_quirk(quirk))
        if quirk.banned_work_groups:
            shapes = ", ".join(" x ".join(map(str, g)) for g in quirk.banned_work_groups)
            taken = f"no work-groups of {shapes}"
            yield Decision(subject=target.title, taken=taken, reason=describe_quirk(quirk))


def avoided_operators(target: Target) -> dict[str, str]:
    """Return operator -> why the target is to do without its kernels.

    Raises:
        TargetError: a quirk names one that there is not.
    """
    found = {}
    for word, reason in target.avoided.items():
        kind, _, name = word.partition(":")
        if kind != OPERATOR:
            continue
        if name not in OPERATORS:
            raise TargetError(
                f'{target.title} avoids the unknown operator "{name}"'
                f"{did_you_mean(name, list(OPERATORS))} ({reason}), expected one of "
                + ", ".join(OPERATORS),
                hint="adrenoc device verify -o device.json makes a report of this version",
            )
        found[name] = reason
    return found


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
