"""Channels in an order in which nothing has to move them: shuffles, and splits within blocks.

A convolution makes its results in any order and reads them in any order, by weights in that order.
So what a channel shuffle or an uneven split picks from a result lies side by side there from the
start, each pick from a whole block of four on; what is read becomes a concatenation of such ranges,
which `join_blocks` writes in place.

Before -> after (ShuffleNetV2, 58 channels):
    s = shuffle(concat(x, y)); a = s[:58]; b = s[58:]     x' and y' of 64 channels, in 29 + 29 each
    conv2d(b); concat(a, ...)                             b' = concat(x'[32:], y'[32:]); conv2d(b')

Where something else reads such a tensor, all stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import tvm
from tvm import relax

from adrenoc.base.decision import DecisionLog
from adrenoc.importers.relax.flat import (
    Binding,
    flatten,
    rebuild,
    replace_main,
    substitute,
    variables,
)
from adrenoc.importers.relax.values import static_shape
from adrenoc.passes.rewrites.channel_moves import find_moves
from adrenoc.passes.rewrites.channel_plan import OrderPlan
from adrenoc.passes.rewrites.channel_slots import reorder_call


def order_channels(module: tvm.IRModule) -> tuple[tvm.IRModule, DecisionLog]:
    """Choose orders of channels for `main`, and rewrite it."""
    flat = flatten(module["main"])
    plan = OrderPlan(flat=flat, moves=find_moves(flat))
    if not plan.settle():
        return module, flat.log
    _Writer(plan).write()
    flat.drop_unused()
    main, _ = rebuild(flat)
    return replace_main(module, main), flat.log


class _Writer:
    """Writes the bindings of a plan."""

    def __init__(self, plan: OrderPlan) -> None:
        self._plan, self._flat = plan, plan.flat
        self._env: dict[relax.Var, relax.Var] = {}

    def write(self) -> None:
        """Replace the bindings of the function; what is not read any more is left."""
        kept = []
        for binding in self._flat.bindings:
            kept += list(self._write_binding(binding))
        self._flat.bindings = kept
        self._flat.result = substitute(self._flat.result, self._env)

    def _write_binding(self, binding: Binding) -> Iterator[Binding]:
        plan, var, value = self._plan, binding.var, binding.value
        if var in plan.parts:
            yield from self._put_together(var)
            return
        touched = isinstance(value, relax.Call) and any(
            v in plan.orders or v in self._env for v in variables(value)
        )
        if var not in plan.live or not (touched or var in plan.orders):
            yield binding
            return
        slots = plan.orders.get(var)
        call = reorder_call(value, plan.orders, slots, self._env)
        if slots is None:
            yield Binding(var=var, value=call)
        else:
            self._env[var] = self._new(var, slots.shape(static_shape(var) or ()))
            yield Binding(var=self._env[var], value=call)

    def _put_together(self, bin_: relax.Var) -> Iterator[Binding]:
        """Yield the ranges that a bin is, and their concatenation."""
        plan, axis = self._plan, self._plan.moves[bin_].axis
        fields: list[relax.Var] = []
        for root, begin, end in plan.parts[bin_]:
            source = self._env.get(root, root)
            held = plan.orders.get(root)
            shape = (
                static_shape(root) or () if held is None else held.shape(static_shape(root) or ())
            )
            if (begin, end) != (0, shape[axis]):
                part = self._new(bin_, (*shape[:axis], end - begin, *shape[axis + 1 :]))
                cut = relax.op.strided_slice(source, [axis], [begin], [end])
                yield Binding(var=part, value=cut)
                source = part
            fields.append(source)
        if len(fields) == 1:
            self._env[bin_] = fields[0]
            return
        shape = static_shape(bin_) or ()
        slots = plan.orders.get(bin_)
        made = self._new(bin_, shape if slots is None else slots.shape(shape))
        self._env[bin_] = made
        yield Binding(var=made, value=relax.op.concat(relax.Tuple(fields), axis))

    def _new(self, like: relax.Var, shape: Sequence[int]) -> relax.Var:
        """Return a variable for a tensor that the model does not have, so none of its names."""
        return self._flat.new_var(
            f"{self._flat.name(like)}.ordered", relax.TensorType(shape, str(like.ty.dtype))
        )
