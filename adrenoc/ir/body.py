"""One element of a tensor, as an expression of elements of others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tvm_ffi.structural import structural_map

from adrenoc.base.tvmapi import Expr, tvm


def find_loaded_buffers(expr: Expr) -> list[Any]:
    """Return the buffers that an expression reads, each once, in order of appearance."""
    found: list[Any] = []

    def note(load: Any) -> Any:
        if not any(load.source.same_as(b) for b in found):
            found.append(load.source)
        return load

    structural_map(expr, (tvm.ir.TensorLoad, note))
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Body:
    """One element of a node's output, as a TIR expression.

    `axes` are the variables of the logical output index.  A load from a buffer of `sources`
    reads that tensor of the graph.  With `reduced` axes the value is folded over them, starting
    from `init`: a load from `accumulator` stands for what was folded so far.
    """

    axes: tuple[Expr, ...]
    value: Expr
    sources: Mapping[Any, str]
    reduced: tuple[tuple[Expr, int], ...] = ()
    init: Expr | None = None
    accumulator: Any = None

    def source_of(self, buffer: Any) -> str | None:
        """Return the tensor that is read through a buffer; None of one that is none of the
        sources."""
        return next((name for b, name in self.sources.items() if b.same_as(buffer)), None)

    @property
    def term(self) -> Any:
        """What a fold adds up, multiplies or picks among; of others the value itself."""
        sides = (getattr(self.value, "a", None), getattr(self.value, "b", None))
        for one, other in (sides, sides[::-1]):
            if isinstance(one, tvm.ir.TensorLoad) and one.source.same_as(self.accumulator):
                return other
        return self.value

    def drop_unread(self) -> Body:
        """Drop the sources that the value does not read."""
        used = find_loaded_buffers(self.value)
        read = {b: n for b, n in self.sources.items() if any(b.same_as(u) for u in used)}
        return replace(self, sources=read)

    def name_of(self, load: Any) -> str:
        """Return the tensor that a load of the value reads.

        Raises:
            KeyError: it reads none of the sources, but what was folded so far.
        """
        name = self.source_of(load.source)
        if name is None:
            raise KeyError(f"{load} reads no tensor of the graph")
        return name
