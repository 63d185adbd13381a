"""What happens to an operator's result before it is stored: the fused epilogue.

It computes in float, also where the operator multiplies halves: it runs once a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adrenoc.graph import Body, Node
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.expression import Evaluator, Texel, know_position, splatted
from adrenoc.kernels.walk import ACCUMULATOR, widened
from adrenoc.layout import LANES
from adrenoc.tvmapi import Expr, dtype_of, iconst


class Epilogue:
    """Applies a node's body to four channels of its result and stores them."""

    def __init__(
        self,
        builder: KernelBuilder,
        body: Body | None,
        accesses: Mapping[str, Access],
        out: Access,
    ) -> None:
        self._builder, self._body, self._out = builder, body, out
        self._accesses = accesses

    def write(self, n: Expr, block: Expr, h: Expr, w: Expr, value: Expr) -> None:
        """Store the finished four channels at a position inside of the output."""
        if self._body is None:
            self._out.write(n, block, h, w, value)
            return
        with self._builder.computing(ACCUMULATOR):
            if dtype_of(value).startswith("float"):
                value = widened(value)
            value = splatted(self._finished(self._body, n, block, h, w, value))
            self._out.write(n, block, h, w, value)

    def _finished(self, body: Body, n: Expr, block: Expr, h: Expr, w: Expr, value: Expr) -> Expr:
        result = self._builder.let(value, "result")
        reads: dict[Any, Access | Texel] = {}
        for buffer, name in body.sources.items():
            reads[buffer] = (lambda: result) if name == Node.RESULT else self._accesses[name]
        evaluator = Evaluator(self._builder, body, reads)
        out = self._out
        know_position(evaluator, out.spec, n, block, h, w)
        index = out.index(n, block * iconst(LANES), h, w)
        return evaluator.texel(index, out.spec.roles.axis("C"))
