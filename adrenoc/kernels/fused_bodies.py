"""Bodies that a kernel computes beside its own operator: of what it reads, and of its result.

An epilogue computes in float, also where the operator multiplies halves: it runs once a result.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

from adrenoc.base.tvmapi import Expr, dtype_of, iconst, minimum
from adrenoc.ir.graph import Body, Node
from adrenoc.ir.layout import LANES, OperandSpec
from adrenoc.kernels.access import Access, BlockedAccess, index_of
from adrenoc.kernels.body_cost import CALL_INSTRUCTIONS, body_instructions, loads_of
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.expression import Evaluator, Texel, fill_vector, know_position
from adrenoc.kernels.statements import Registers, Statements
from adrenoc.kernels.walk import ACCUMULATOR, widen


class ComputedAccess(Access):
    """Reads of a map's result, each of which evaluates the map's body there.  `spec` gives the
    shape and the roles; `accesses` serve the tensors that the body reads.  Lanes beyond the last
    channel hold anything.  With `border` the body says what is read beyond the first and last row
    and column too."""

    def __init__(
        self,
        statements: Statements,
        body: Body,
        accesses: Mapping[str, Access],
        spec: OperandSpec,
        *,
        border: bool = False,
    ) -> None:
        super().__init__(spec, None, statements)
        self._border = border
        reads: dict[Any, Access | Texel] = {
            buffer: accesses[name] for buffer, name in body.sources.items()
        }
        self._anywhere = all(accesses[name].safe_outside for name in body.sources.values())
        self._reads = reads
        self._of_channels = {
            buffer: access
            for buffer, name in body.sources.items()
            if is_of_channels(body, buffer, access := accesses[name], spec)
        }
        self._evaluator = self._evaluator_of(body)
        self._raw = [
            self._evaluator_of(replace(body, value=load))
            for load in loads_of(body.value)
            if not any(load.source.same_as(buffer) for buffer in self._of_channels)
        ]

    def _evaluator_of(self, body: Body) -> Evaluator:
        evaluator = Evaluator(self._statements, body, self._reads)
        evaluator.know_channels(self.extents.c)
        return evaluator

    @property
    def channel_reads(self) -> tuple[Access, ...]:
        """Return the tensors of which a texel is read for each block, whatever the pixel."""
        return tuple(self._of_channels.values())

    def give(self, texels: Sequence[Expr]) -> None:
        """Take these texels for those of `channel_reads` from now on: a kernel has them at hand."""
        for buffer, texel in zip(self._of_channels, texels, strict=True):
            self._reads[buffer] = partial(_same, texel)

    def element(self, index: Sequence[Expr]) -> Expr:
        """Return one element at a logical index."""
        return self._evaluator.scalar(index)

    def texel(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        """Return four channels at a position inside of the tensor."""
        return self._cast_to_compute(fill_vector(self._evaluate(self._evaluator, n, block, h, w)))

    def _evaluate(self, evaluator: Evaluator, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        e = self.extents
        known = [(n, e.n), (block, e.blocks)]
        for var, extent in known if self._border else [*known, (h, e.h), (w, e.w)]:
            evaluator.know(var, extent)
        index = self.index(n, block * iconst(LANES), h, w)
        with self._statements.computing(ACCUMULATOR):  # as a kernel of its own would
            return evaluator.texel(index, self.spec.roles.axis("C"))

    def ask(self, n: Expr, block: Expr, h: Expr, w: Expr) -> None:
        """Read what `padded_texel` of this place will need: its reads are then under way."""
        h, w = self._clamp_position(h, w)
        for evaluator in self._raw:
            self._evaluate(evaluator, n, block, h, w)

    def padded_texel(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        """Compute a texel; where (h, w) lies outside of the tensor it may be any number.  Zeros
        there would cost a test, and those that read beyond an edge without padding drop it."""
        h, w = self._clamp_position(h, w)
        # TVM puts an expression that only has a name into each place that uses it.
        held = self._statements.registers(1)
        held[0] = self.texel(n, block, h, w)
        return held[0]

    def _clamp_position(self, h: Expr, w: Expr) -> tuple[Expr, Expr]:
        """Return a row and a column where reading does no harm."""
        if self._anywhere:
            return h, w
        e = self.extents
        return minimum(h, iconst(e.h - 1)), minimum(w, iconst(e.w - 1))


def _same(texel: Expr) -> Expr:
    return texel


def is_of_channels(body: Body, buffer: Any, access: Access, spec: OperandSpec) -> bool:
    """Return whether all that is read of a tensor is what it holds for the element's channel."""
    if not isinstance(access, BlockedAccess):
        return False
    mine, other = access.extents, spec.extents
    if (mine.c, mine.h, mine.w) != (other.c, 1, 1) or mine.n not in (1, other.n):
        return False
    wanted = {role: spec.roles.axis(role) for role in "NC"}
    for load in loads_of(body.value):
        if not load.source.same_as(buffer):
            continue
        for role, index, extent in zip(
            access.spec.roles.roles, load.indices, access.spec.shape, strict=True
        ):
            axis = wanted.get(role)
            if extent != 1 and (axis is None or not index.same_as(body.axes[axis])):
                return False
    return True


AT_ONCE = 4
"""Results that a thread finishes beside each other: each takes a register and what is added to it
one more, and compilers would have all of them wait for their texels at the same time."""


class Finished:
    """What a body makes of the results of an operator, four channels at a time.  `spec` gives the
    shape and the roles of the finished tensor."""

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
        """Return the finished four channels, in float where there is a body.  `given` are tensors
        of which the four channels are at hand."""
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


class Epilogue:
    """Applies a node's body to four channels of its result and stores them."""

    def __init__(
        self, builder: KernelBuilder, body: Body | None, accesses: Mapping[str, Access], out: Access
    ) -> None:
        self._builder, self.out = builder, out
        self._plain = body is None
        read = set() if body is None else {*body.sources.values()} - {Node.RESULT}
        is_long = body is not None and body_instructions(body) >= CALL_INSTRUCTIONS
        self._takes_registers = bool(read) or is_long
        spread = (accesses[name].spec.extents for name in read if name in accesses)
        self._reads_pixels = any(e.h * e.w > 1 for e in spread)
        self._finished = Finished(builder, body, accesses, out.spec)
        self.total: Registers | None = None
        """What a kernel that sums its results up has: each that is stored is added to the first."""

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
            self._store(n, block, h, w, value)
            return
        with self._builder.computing(ACCUMULATOR):
            self._store(n, block, h, w, self._finished.value(n, block, h, w, value, given))

    def _store(self, n: Expr, block: Expr, h: Expr, w: Expr, finished: Expr) -> None:
        if self.total is not None:
            finished = self._builder.let(finished, "made")
            self.total[0] = self.total[0] + widen(finished)
        self.out.write(n, block, h, w, finished)

    def parts(self, blocks: int, pixels: int) -> Iterator[tuple[range, range]]:
        """Yield the results of so many blocks and pixels, as blocks and pixels of a few at a time.
        What is written there stays apart.  One part is all there is where the epilogue reads
        nothing and calls no function; pixels are cut too where it reads a number for each."""
        blocks_at_once, pixels_at_once = max(1, AT_ONCE // pixels), pixels
        if self._reads_pixels:
            pixels_at_once = -(-pixels // -(-pixels // AT_ONCE))
        if not self._takes_registers or (blocks <= blocks_at_once and pixels == pixels_at_once):
            yield range(blocks), range(pixels)
            return
        starts = product(range(0, blocks, blocks_at_once), range(0, pixels, pixels_at_once))
        for number, (block, pixel) in enumerate(starts, 1):
            with self._builder.apart(number):
                yield (
                    range(block, min(block + blocks_at_once, blocks)),
                    range(pixel, min(pixel + pixels_at_once, pixels)),
                )
