"""A tensor that no memory holds: its elements are computed where a kernel reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from adrenoc.graph import Body
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.expression import Evaluator, splatted
from adrenoc.layout import LANES
from adrenoc.operand import OperandSpec
from adrenoc.tvmapi import Expr, iconst


class ComputedAccess(Access):
    """Reads of a map's result, each of which evaluates the map's body there.

    `spec` gives the shape and the roles; `accesses` serve the tensors that the body reads.  Lanes
    beyond the last channel hold anything.
    """

    def __init__(
        self,
        builder: KernelBuilder,
        body: Body,
        accesses: Mapping[str, Access],
        spec: OperandSpec,
    ) -> None:
        super().__init__(spec, None, builder)
        reads = {buffer: accesses[name] for buffer, name in body.sources.items()}
        self._evaluator = Evaluator(builder, body, reads)
        self._evaluator.know_channels(spec.extents.c)

    def element(self, index: Sequence[Expr]) -> Expr:
        """One element at a logical index."""
        return self._evaluator.scalar(index)

    def texel(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        """Four channels at a position inside of the tensor."""
        e = self.extents
        for var, extent in ((n, e.n), (block, e.blocks), (h, e.h), (w, e.w)):
            self._evaluator.know(var, extent)
        index = self.index(n, block * iconst(LANES), h, w)
        return splatted(self._evaluator.texel(index, self.spec.roles.axis("C")))

    def write(self, n: Expr, block: Expr, h: Expr, w: Expr, value: Expr) -> None:
        """Refuse: there is nothing to write to."""
        raise TypeError("a computed tensor cannot be written")
