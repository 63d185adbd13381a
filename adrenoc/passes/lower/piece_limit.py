"""Refuse what no driver gives in one piece: a GPU has a limit for one buffer or image."""

from __future__ import annotations

from collections.abc import Iterator

from adrenoc.base.errors import MemoryLimitError
from adrenoc.ir.operand import Memory, OperandSpec
from adrenoc.ir.program import Program
from adrenoc.passes.lower.plan_memory import allocated_bytes
from adrenoc.target.gpu import Limits

_MIB = 1 << 20


def check_pieces(program: Program, limits: Limits) -> None:
    """Hold each tensor and constant of the GPU against the largest allocation, in bytes.

    Raises:
        MemoryLimitError: naming the largest that is beyond it.
    """
    most = limits.max_alloc_bytes
    if most is None:
        return
    name, taken = max(_pieces(program), key=lambda piece: piece[1], default=("", 0))
    if taken <= most:
        return
    what = "its constant" if name in program.params else "its tensor"
    raise MemoryLimitError(
        f"{what} {name} takes {taken / _MIB:.1f} MiB in one piece, expected at most "
        f"{most / _MIB:.1f} MiB: the GPU gives no larger buffer or image",
        hint="compile for a smaller input (--shape NAME:D,D,...), or with half storage "
        "(--preset mixed)",
    )


def _pieces(program: Program) -> Iterator[tuple[str, int]]:
    """(name, bytes) of all that lies on the GPU."""
    for name, param in program.params.items():
        yield name, allocated_bytes(param.spec)
    for step in program.steps:
        for name in step.arguments:
            if name not in program.params:
                spec: OperandSpec = program.graph.operand(program.graph.owner(name))
                if spec.memory is not Memory.CPU:
                    yield name, allocated_bytes(spec)
    for part in program.regions.values():
        yield from _pieces(part)
