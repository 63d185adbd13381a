"""Sums become part of the convolution before them: one tensor less in the arena.

*Before -> after*: t = convolution(x); y = t + s -> y = convolution(x) + s, a strip of pixels at a
time, and y lies where s lay.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from adrenoc.base.decision import Decision
from adrenoc.base.refused import RefusedError
from adrenoc.firmware.mcu.dsp.products import covers
from adrenoc.firmware.mcu.network import Network, sources_of
from adrenoc.firmware.mcu.operators import Convolution, Operator, Sum
from adrenoc.firmware.mcu.sum_product import sum_product


def fuse_sums(network: Network, decisions: list[Decision]) -> Network:
    """Return the same function; sums whose later operand is a convolution's only reader are
    gone."""
    readers = Counter(index for o in network.operators for index in sources_of(o))
    makers = {operator.result: n for n, operator in enumerate(network.operators)}
    operators: list[Operator | None] = list(network.operators)
    labels = list(network.labels)
    for number, operator in enumerate(network.operators):
        if not isinstance(operator, Sum):
            continue
        made = max(operator.sources, key=lambda index: makers.get(index, -1))
        before = operators[makers[made]] if made in makers else None
        if not isinstance(before, Convolution) or not _fits(network, before, operator):
            continue
        if readers[made] != 1 or made in network.outputs:
            continue
        joined = operator if made == operator.sources[0] else _swap_operands(operator)
        operators[makers[made]] = None
        operators[number] = replace(before, result=operator.result, joined=joined)
        labels[number] = f"{labels[makers[made]]} + {labels[number]}"
        decisions.append(
            Decision(
                subject=network.tensors[operator.result].name,
                taken="added by the convolution",
                reason="a strip at a time, over the other operand",
            )
        )
    kept = [n for n, operator in enumerate(operators) if operator is not None]
    return replace(
        network,
        operators=tuple(o for o in operators if o is not None),
        labels=tuple(labels[n] for n in kept),
    )


def _swap_operands(operator: Sum) -> Sum:
    first, second = operator.tables
    return replace(
        operator,
        sources=operator.sources[::-1],
        tables=(second, first),
        wanted=None if operator.wanted is None else operator.wanted.T,
    )


def _fits(network: Network, before: Convolution, operator: Sum) -> bool:
    """Return whether a convolution can take this sum: its own code, equal shapes, and a sum of
    lines."""
    shapes = {network.tensors[index].shape for index in (*operator.sources, operator.result)}
    varies = not any(index in network.constants for index in operator.sources)
    if len(shapes) != 1 or before.joined is not None or not varies:
        return False
    try:
        sum_product(operator)
    except RefusedError:
        return False
    return covers(before, network)
