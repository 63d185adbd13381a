"""What is known of the parts of one expression, from what is known of the tensors that it reads.

Parts are visited once each, those below before those above, without recursion: an expression may
be deep, and may share parts.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from adrenoc.ir.half import HALF_MAX
from adrenoc.passes.analyse.scalar_body import parts_of
from adrenoc.passes.precision.forms import Forms, form_of
from adrenoc.passes.precision.known import (
    NOTHING,
    ONE,
    Known,
    size_of_number,
)
from adrenoc.tvmapi import Call, Expr, tirx, tvm


class Expression(Forms):
    """What is known of each part of a body's expression."""

    def __getitem__(self, part: Expr) -> Known:
        """What is known of a part."""
        if part not in self._of:
            for below in parts_of(part, values_of):
                if below not in self._of:
                    self._of[below] = self._visit(below)
        return self._of[part]

    def parts(self, *kinds: type) -> list[Any]:
        """The parts of these kinds, without those that say where a load reads."""
        self[self.body.value]
        return [part for part in self._of if type(part) in kinds]

    def reads(self, part: Expr) -> frozenset[str]:
        """The tensors that a part reads."""
        return self[part].reads - {""}

    def find_tensor(self, part: Any) -> str:
        """The tensor of which a part is an element, empty where it is none."""
        is_load = isinstance(part, tvm.ir.TensorLoad)
        return self.body.sources.get(part.source, "") if is_load else ""

    def element(self) -> Known:
        """What is known of an element of the body; of a fold, of what all terms come to."""
        body, value = self.body, self.body.value
        known = self[value]
        if not body.reduced:
            return known
        folded = replace(NOTHING, ends=known.ends, reads=known.reads)
        if not isinstance(value, tirx.Add | tirx.Max | tirx.Min):
            return folded
        term = self[value.b if self.is_accumulator(value.a) else value.a]
        size = term.size
        if isinstance(value, tirx.Add) and size is not None and len(term.reads) == 1:
            # Sums of products have terms of both signs: they are about as large as their terms.
            size = size.times(size_of_number(math.prod(extent for _, extent in body.reduced)))
        added = isinstance(value, tirx.Add)
        return replace(
            folded,
            interval=known.interval.of_sign if added else known.interval,
            size=ONE if size is None else size,
            floor=known.floor,
            is_product=added and self._contracts(value),
        )

    def _contracts(self, value: Any) -> bool:
        """Whether a fold adds up products of two computed tensors, as one of matrices does."""
        terms = [side for side in (value.a, value.b) if isinstance(side, tirx.Mul)]
        return len(terms) == 1 and all(self.is_computed(s) for s in (terms[0].a, terms[0].b))

    def _visit(self, part: Any) -> Known:
        sides = [self._of[side] for side in values_of(part)]
        reads = frozenset().union(*(side.reads for side in sides))
        form = form_of(part.__class__)
        if form is None:
            return replace(NOTHING, reads=reads)
        known = form(self, part, replace(NOTHING, reads=reads))
        vast = known.size is not None and known.size.most > HALF_MAX
        loads = isinstance(part, tvm.ir.TensorLoad)
        below = known.hides or (known.interval.never_positive and not loads)
        return replace(known, hides=vast and below)


def values_of(part: Any) -> tuple[Expr, ...]:
    """What the number of a part comes of: not where a load reads it."""
    if isinstance(part, tvm.ir.TensorLoad):
        return ()
    if isinstance(part, Call):
        return tuple(part.args)
    if isinstance(part, tirx.Select):
        return (part.condition, part.true_value, part.false_value)
    if isinstance(part, tirx.Cast):
        return (part.value,)
    return tuple(getattr(part, name) for name in ("a", "b") if hasattr(part, name))
