"""What happens to an operator's result before it is stored: the fused epilogue.

It computes in float, also where the operator multiplies halves: it runs once a result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any

from adrenoc.base.tvmapi import Expr, dtype_of, iconst
from adrenoc.ir.body import Body
from adrenoc.ir.graph import Node
from adrenoc.ir.layout import LANES
from adrenoc.ir.operand import OperandSpec
from adrenoc.kernels.access import Access, index_of
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.expression import Evaluator, Texel, fill_vector, know_position
from adrenoc.kernels.team import ACCUMULATOR
from adrenoc.kernels.walk import widen

AT_ONCE = 4
"""Results that a thread finishes beside each other: each takes a register and what is added to it
one more, and compilers would have all of them wait for their texels at the same time."""


class Finished:
    """What a body makes of the results of an operator, four channels at a time.

    `spec` gives the shape and the roles of the finished tensor.
    """

    def __init__(
        self,
        builder: KernelBuilder,
        body: Body | None,
        accesses: Mapping[str, Access],
        spec: OperandSpec,
    ) -> None:
        self._builder, self._body, self._accesses = builder, body, accesses
        self._spec = spec

    def value(
        self,
        n: Expr,
        block: Expr,
        h: Expr,
        w: Expr,
        value: Expr,
        given: Mapping[str, Expr] | None = None,
    ) -> Expr:
        """Return the finished four channels, in float where there is a body.

        `given` are tensors of which the four channels are at hand.
        """
        if self._body is None:
            return value
        with self._builder.computing(ACCUMULATOR):
            if dtype_of(value).startswith("float"):
                value = widen(value)
            at_hand = {**(given or {}), Node.RESULT: self._builder.let(value, "result")}
            return fill_vector(self._evaluate(self._body, n, block, h, w, at_hand))

    def _evaluate(
        self, body: Body, n: Expr, block: Expr, h: Expr, w: Expr, at_hand: Mapping[str, Expr]
    ) -> Expr:
        reads: dict[Any, Access | Texel] = {}
        for buffer, name in body.sources.items():
            known = name in at_hand
            reads[buffer] = partial(_same, at_hand[name]) if known else self._accesses[name]
        evaluator = Evaluator(self._builder, body, reads)
        know_position(evaluator, self._spec, n, block, h, w)
        index = index_of(self._spec.roles, n, block * iconst(LANES), h, w)
        return evaluator.texel(index, self._spec.roles.axis("C"))


def _same(texel: Expr) -> Expr:
    return texel


class Epilogue:
    """Applies a node's body to four channels of its result and stores them."""

    def __init__(
        self, builder: KernelBuilder, body: Body | None, accesses: Mapping[str, Access], out: Access
    ) -> None:
        self._builder, self._out = builder, out
        self._plain = body is None
        read = set() if body is None else {*body.sources.values()} - {Node.RESULT}
        self._reads = bool(read)
        spread = (accesses[name].spec.extents for name in read if name in accesses)
        self._reads_pixels = any(e.h * e.w > 1 for e in spread)
        self._finished = Finished(builder, body, accesses, out.spec)

    def write(
        self,
        n: Expr,
        block: Expr,
        h: Expr,
        w: Expr,
        value: Expr,
        given: Mapping[str, Expr] | None = None,
    ) -> None:
        """Store the finished four channels at a position inside of the output."""
        if self._plain:
            self._out.write(n, block, h, w, value)
            return
        with self._builder.computing(ACCUMULATOR):
            finished = self._finished.value(n, block, h, w, value, given)
            self._out.write(n, block, h, w, finished)

    def parts(self, blocks: int, pixels: int) -> Iterator[tuple[range, range]]:
        """Yield the results of so many blocks and pixels, as blocks and pixels of a few at a time.

        What is written there stays apart.  One part is all there is where the epilogue reads
        nothing; pixels are cut too where it reads a number for each.
        """
        blocks_at_once, pixels_at_once = max(1, AT_ONCE // pixels), pixels
        if self._reads_pixels:
            pixels_at_once = -(-pixels // -(-pixels // AT_ONCE))
        if not self._reads or (blocks <= blocks_at_once and pixels == pixels_at_once):
            yield range(blocks), range(pixels)
            return
        starts = product(range(0, blocks, blocks_at_once), range(0, pixels, pixels_at_once))
        for number, (block, pixel) in enumerate(starts, 1):
            with self._builder.apart(number):
                yield (
                    range(block, min(block + blocks_at_once, blocks)),
                    range(pixel, min(pixel + pixels_at_once, pixels)),
                )
