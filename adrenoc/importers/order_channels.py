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

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import tvm
from tvm import relax

from adrenoc.decision import Decision
from adrenoc.importers.channel_moves import Moved, Unit, find_moves
from adrenoc.importers.channel_slots import (
    OrderConflictError,
    Slots,
    kept_order,
    kept_source,
    makes_any_order,
    out_axis,
    reordered,
)
from adrenoc.importers.flat import (
    Binding,
    FlatFunction,
    flatten,
    rebuild,
    replace_main,
    substitute,
    variables,
)
from adrenoc.importers.relax_values import static_shape
from adrenoc.layout import LANES

MOST_PADDING = 2.0
"""How many times its channels a tensor may hold in places: blocks of four that are not full.

To move the channels takes more: all are read and written once more, and what is cut off again.
"""


def order_channels(module: tvm.IRModule) -> tuple[tvm.IRModule, list[Decision]]:
    """Choose orders of channels for `main`, and rewrite it."""
    flat = flatten(module["main"])
    plan = _Plan(flat=flat, moves=find_moves(flat))
    if not plan.settle():
        return module, plan.decisions
    _Writer(plan).write()
    flat.drop_unused()
    main, _ = rebuild(flat)
    return replace_main(module, main), plan.decisions


Class = tuple[int, ...]
"""Channels of one origin that go to the same places, in order."""


@dataclass(kw_only=True)
class _Plan:
    """Which tensors are put together anew (`bins`), and the orders of all that differ."""

    flat: FlatFunction
    moves: dict[relax.Var, Moved]
    decisions: list[Decision] = field(default_factory=list)
    bins: list[relax.Var] = field(default_factory=list)
    orders: dict[relax.Var, Slots] = field(default_factory=dict)
    parts: dict[relax.Var, list[tuple[relax.Var, int, int]]] = field(default_factory=dict)
    """Bin -> the ranges of places of other tensors that it is, in order."""
    _fixed: set[relax.Var] = field(default_factory=set)
    """Convolutions whose results stay in order."""
    _cause: dict[relax.Var, relax.Var] = field(default_factory=dict)
    """A tensor in another order -> the convolution or bin that its order comes from."""

    def __post_init__(self) -> None:
        self._values = {b.var: b.value for b in self.flat.bindings}

    def settle(self) -> bool:
        """Find orders that everything can do with; whether any are left."""
        while True:
            self._find_bins()
            if not any(map(self._needed, self.bins)):
                return False
            given_up = self._conflicts() or self._useless()
            if not given_up:
                break
            for var in given_up:
                if self.moves.pop(var, None) is None:
                    self._fixed.add(var)
        for bin_ in self.bins:
            places = self.orders[bin_].channels.size if bin_ in self.orders else 0
            self.decisions.append(
                Decision(
                    subject=self.flat.name(bin_),
                    taken=f"put together of {len(self.parts[bin_])} ranges",
                    reason=f"its {len(self.moves[bin_].units)} channels lie side by side where "
                    f"they are made, in {places} places",
                )
            )
        return True

    # What is moved

    def _find_bins(self) -> None:
        """Moved tensors that something reads which does not move them on."""
        live = set(variables(self.flat.result))
        bins = {var for var in live if var in self.moves}
        for binding in reversed(self.flat.bindings):
            if binding.var not in live:
                continue
            if binding.var in self.moves:
                read = {root for root, _ in self.moves[binding.var].units}
            else:
                read = set(variables(binding.value))
            live |= read
            bins |= {var for var in read if var in self.moves}
        self.live = live
        self.bins = [b.var for b in self.flat.bindings if b.var in bins]

    def _needed(self, var: relax.Var) -> bool:
        """Whether a bin would take a kernel as it is: a range begins within a block."""
        return any(at % LANES or units[0][1] % LANES for at, units in _runs(self.moves[var].units))

    def origin(self, var: relax.Var) -> relax.Var | None:
        """The convolution that decides on the order of a tensor; None where that is fixed."""
        while var in self._values and var not in self.moves:
            value = self._values[var]
            if makes_any_order(value):
                return None if var in self._fixed else var
            source = kept_source(value)
            if source is None:
                return None
            var = source
        return None

    # Orders

    def _conflicts(self) -> set[relax.Var]:
        """Decide on all orders; what has to be given up, for someone cannot read it so."""
        given_up = set()
        self.orders, self.parts, self._cause = {}, {}, {}
        self._classes = self._find_classes()
        for binding in self.flat.bindings:
            var = binding.var
            if var not in self.live:
                continue
            if var in self.moves:
                if not self._fill(var):
                    given_up.add(var)
                continue
            read = [v for v in variables(binding.value) if v in self.orders]
            try:
                slots = kept_order(var, binding.value, self.orders)
            except OrderConflictError:
                given_up.update(self._cause[v] for v in read)
                continue
            if slots is not None:
                self.orders[var], self._cause[var] = slots, self._cause[read[0]]
            elif var in self._classes:
                self.orders[var] = self._padded(var)
                self._cause[var] = var
        returned = (v for v in variables(self.flat.result) if v in self.orders)
        return given_up | {self._cause[v] for v in returned}

    def _find_classes(self) -> dict[relax.Var, list[Class]]:
        """Of each convolution: its channels by where they go."""
        goals: dict[relax.Var, dict[int, list[tuple[int, int]]]] = {}
        numbers: dict[relax.Var, int] = {}
        for number, bin_ in enumerate(self.bins):
            moved = self.moves[bin_]
            for root, channel in moved.units:
                origin = self.origin(root)
                if origin is not None and out_axis(self._values[origin]) == moved.axis:
                    which = numbers.setdefault(root, len(numbers))
                    goals.setdefault(origin, {}).setdefault(channel, []).append((number, which))
        found = {}
        for origin, of_channel in goals.items():
            axis = out_axis(self._values[origin])
            classes: dict[tuple[tuple[int, int], ...], list[int]] = defaultdict(list)
            for channel in range((static_shape(origin) or ())[axis]):
                classes[tuple(of_channel.get(channel, ()))].append(channel)
            found[origin] = [tuple(channels) for channels in classes.values()]
        return found

    def _padded(self, origin: relax.Var) -> Slots:
        """The classes one after the other, each from a whole block on."""
        channels: list[int] = []
        for members in self._classes[origin]:
            channels += [*members, *[-1] * (-len(members) % LANES)]
        return Slots(axis=out_axis(self._values[origin]), channels=np.array(channels))

    def _fill(self, bin_: relax.Var) -> bool:
        """Order a bin by where its channels lie; whether that can be in whole blocks."""
        moved = self.moves[bin_]
        index = {unit: at for at, unit in enumerate(moved.units)}
        roots = list(dict.fromkeys(root for root, _ in moved.units))
        if len(index) != len(moved.units):
            return False  # a channel that stands there twice
        channels: list[int] = []
        parts: list[tuple[relax.Var, int, int]] = []
        # What ends within a block comes last.
        for root in sorted(roots, key=lambda root: len(self._places(root, moved.axis)) % LANES):
            held = self.orders.get(root)
            if held is not None and held.axis != moved.axis:
                return False
            for begin, end in _ranges(self._wanted(root, moved.axis, index)):
                whole = end % LANES == 0 or end == self._places(root, moved.axis).size
                if begin % LANES or len(channels) % LANES or not whole:
                    return False
                parts.append((root, begin, end))
                places = self._places(root, moved.axis)[begin:end]
                channels += [index[root, int(c)] if c >= 0 else -1 for c in places]
        self.parts[bin_] = parts
        if channels != list(range(len(moved.units))):
            self.orders[bin_] = Slots(axis=moved.axis, channels=np.array(channels))
            self._cause[bin_] = bin_
        return True

    def _places(self, root: relax.Var, axis: int) -> np.ndarray:
        held = self.orders.get(root)
        return np.arange((static_shape(root) or ())[axis]) if held is None else held.channels

    def _wanted(self, root: relax.Var, axis: int, index: Mapping[Unit, int]) -> list[bool]:
        """Which places of a tensor a bin takes: those of its channels, and unused ones behind."""
        wanted: list[bool] = []
        for channel in self._places(root, axis):
            wanted.append((root, int(channel)) in index if channel >= 0 else wanted[-1])
        return wanted

    # What is not worth it

    def _useless(self) -> set[relax.Var]:
        """Bins that need nothing of this, or whose tensors would hold too much that is unused."""
        for bin_ in self.bins:
            used = len(self.moves[bin_].units)
            if bin_ in self.orders and self.orders[bin_].channels.size > MOST_PADDING * used:
                self.decisions.append(
                    Decision(
                        subject=self.flat.name(bin_),
                        taken="its channels are moved",
                        reason=f"its {used} channels would take {self.orders[bin_].channels.size} "
                        "places in blocks of four",
                    )
                )
                return {bin_}
        needed = {self.origin(r) for b in self.bins if self._needed(b) for r in self._roots(b)}
        grown = True
        while grown:  # what shares a convolution with such a bin
            linked = {o for b in self.bins for o in self._origins(b) if self._origins(b) & needed}
            grown = not linked <= needed
            needed |= linked
        return {b for b in self.bins if not self._needed(b) and not self._origins(b) & needed}

    def _roots(self, bin_: relax.Var) -> set[relax.Var]:
        return {root for root, _ in self.moves[bin_].units}

    def _origins(self, bin_: relax.Var) -> set[relax.Var]:
        return {o for root in self._roots(bin_) if (o := self.origin(root)) is not None}


class _Writer:
    """Writes the bindings of a plan."""

    def __init__(self, plan: _Plan) -> None:
        self._plan, self._flat = plan, plan.flat
        self._env: dict[relax.Var, relax.Var] = {}

    def write(self) -> None:
        """Replace the bindings of the function; what is not read any more is left."""
        kept = []
        for binding in self._flat.bindings:
            kept += list(self._written(binding))
        self._flat.bindings = kept
        self._flat.result = substitute(self._flat.result, self._env)

    def _written(self, binding: Binding) -> Iterator[Binding]:
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
        call = reordered(value, plan.orders, slots, self._env)
        if slots is None:
            yield Binding(var=var, value=call)
        else:
            self._env[var] = self._new(var, slots.shape(static_shape(var) or ()))
            yield Binding(var=self._env[var], value=call)

    def _put_together(self, bin_: relax.Var) -> Iterator[Binding]:
        """The ranges that a bin is, and their concatenation."""
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
        """A variable for a tensor that the model does not have, so none of its names."""
        return self._flat.new_var(
            f"{self._flat.name(like)}.ordered", relax.TensorType(shape, str(like.ty.dtype))
        )


def _runs(
    units: Sequence[Unit],
) -> Iterator[tuple[int, list[Unit]]]:
    """Channels of one tensor that follow each other: where they begin, and the channels."""
    begin = 0
    for at in range(1, len(units) + 1):
        before = units[at - 1]
        if at == len(units) or not units[at][0].same_as(before[0]) or units[at][1] != before[1] + 1:
            yield begin, list(units[begin:at])
            begin = at


def _ranges(wanted: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """The ranges of a row of places that are wanted."""
    begin = None
    for at, want in enumerate((*wanted, False)):
        if want and begin is None:
            begin = at
        elif not want and begin is not None:
            yield begin, at
            begin = None
