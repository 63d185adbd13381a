"""Loops of TIR whose extents hang on a number in memory, and what threads then read and write.

A kernel over a cache goes over the rows that are there, which a number in memory says.  With that
number given, and each thread the middle one of its kind, every extent is a number.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

STORES = "texture2d_store"
_BINARY: dict[str, Callable[[int, int], int]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "FloorDiv": lambda a, b: a // b,
    "FloorMod": lambda a, b: a % b,
    "Min": min,
    "Max": max,
    "LT": lambda a, b: int(a < b),
    "LE": lambda a, b: int(a <= b),
    "GT": lambda a, b: int(a > b),
    "GE": lambda a, b: int(a >= b),
}


class KnownExtents:
    """A function's loops where each integer that it reads from memory is `stored`."""

    def __init__(self, func: Any, stored: int = 0) -> None:
        self._func, self._stored = func, stored
        self._bound: dict[Any, Any] = {}
        self._numbers: dict[Any, int] = {}
        self._note(func.body)

    def extent(self, loop: Any) -> int:
        """How often a loop runs."""
        return max(self._value(loop.extent), 0)

    def bytes_moved(self, threads: int) -> Counter[str]:
        """Bytes that so many threads read or write of each argument, by its name, some often.

        An argument that has no entry is moved by means that are not known here.
        """
        found: Counter[str] = Counter()
        for times, stmt in self._statements_in(self._func.body, threads):
            for buffer, lanes in [*_reads_of(stmt.value), *_writes_of(stmt)]:
                if buffer in self._func.params:
                    size = np.dtype(str(buffer.dtype)).itemsize
                    found[buffer.name] += times * lanes * size
        return found

    def _value(self, expr: Any) -> int:
        from tvm.ir import TensorLoad

        from adrenoc.base.tvmapi import Call, Var, tirx

        kind = type(expr).__name__
        if isinstance(expr, tirx.IntImm):
            return int(expr.value)
        if isinstance(expr, Var):
            if expr not in self._numbers:
                bound = self._bound.get(expr)
                self._numbers[expr] = 0 if bound is None else self._value(bound)
            return self._numbers[expr]
        if kind in _BINARY:
            return _BINARY[kind](self._value(expr.a), self._value(expr.b))
        if isinstance(expr, tirx.Cast):
            return self._value(expr.value)
        if isinstance(expr, Call) and len(expr.args) == 3:  # if_then_else
            return self._value(expr.args[1 if self._value(expr.args[0]) else 2])
        if isinstance(expr, TensorLoad):
            return self._stored
        raise ValueError(f"no number is known of {expr}")

    def _note(self, stmt: Any) -> None:
        """Note what variables stand for."""
        from adrenoc.base.tvmapi import AttrStmt, Bind, IterVar

        if isinstance(stmt, Bind):
            self._bound[stmt.var] = stmt.value
        if isinstance(stmt, AttrStmt) and isinstance(stmt.node, IterVar):
            self._numbers[stmt.node.var] = int(stmt.value) // 2
        for _, part in parts_of(stmt, lambda _: 1):
            self._note(part)

    def _statements_in(self, stmt: Any, times: int) -> Iterator[tuple[int, Any]]:
        from adrenoc.base.tvmapi import Bind, BufferStore, Evaluate

        if isinstance(stmt, BufferStore | Bind | Evaluate):
            yield times, stmt
        for runs, part in parts_of(stmt, self.extent):
            yield from self._statements_in(part, times * runs)


def parts_of(stmt: Any, extent: Callable[[Any], int]) -> list[tuple[int, Any]]:
    """The statements within one, each with how often it runs."""
    from adrenoc.base.tvmapi import AttrStmt, For, IfThenElse, SeqStmt

    if isinstance(stmt, SeqStmt):
        return [(1, part) for part in stmt.seq]
    if isinstance(stmt, For):
        return [(extent(stmt), stmt.body)]
    if isinstance(stmt, AttrStmt):
        return [(1, stmt.body)]
    if isinstance(stmt, IfThenElse):
        branches = (stmt.then_case, stmt.else_case)
        return [(1, branch) for branch in branches if branch is not None]
    return []


def _reads_of(expr: Any) -> list[tuple[Any, int]]:
    """The buffers that an expression reads, each with how many numbers at a time."""
    from tvm.ir import TensorLoad
    from tvm_ffi.structural import structural_walk

    from adrenoc.base.tvmapi import Call, dtype_of

    found: list[tuple[Any, int]] = []

    def call(node: Any) -> None:
        for arg in node.args if STORES not in str(node.op) else ():
            if isinstance(arg, Call) and "buffer_data" in str(arg.op):
                found.append((arg.args[0], lanes_of(dtype_of(node))))

    def load(node: Any) -> None:
        found.append((node.source, lanes_of(dtype_of(node))))

    structural_walk(expr, (Call, call))
    structural_walk(expr, (TensorLoad, load))
    return found


def _writes_of(stmt: Any) -> list[tuple[Any, int]]:
    """The buffer or the image that a statement stores to, with how many numbers at a time."""
    from adrenoc.base.tvmapi import BufferStore, Call, Evaluate, dtype_of

    if isinstance(stmt, BufferStore):
        return [(stmt.buffer, lanes_of(dtype_of(stmt.value)))]
    call = stmt.value
    if not isinstance(stmt, Evaluate) or not isinstance(call, Call) or STORES not in str(call.op):
        return []
    image = call.args[0]
    held = isinstance(image, Call) and "buffer_data" in str(image.op)
    return [(image.args[0], lanes_of(dtype_of(call.args[-1])))] if held else []


def lanes_of(dtype: str) -> int:
    """How many numbers a vector has: 4 of "float16x4"."""
    return int(dtype.partition("x")[2] or 1)
