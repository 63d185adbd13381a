"""Channels in an order in which nothing has to move them: shuffles, and splits within blocks.

A convolution makes its results in any order and reads them in any order, by weights in that order.
So what a channel shuffle or an uneven split picks from a result lies side by side there from the
start, each pick from a whole block of four on; what is read becomes a concatenation of such ranges,
which `join_blocks` writes in place.

Before -> after (ShuffleNetV2, 58 channels):
    s = shuffle(concat(x, y)); a = s[:58]; b = s[58:]     x' and y' of 64 channels, in 29 + 29 each
    conv2d(b); concat(a, ...)                             b' = concat(x'[32:], y'[32:]); conv2d(b')

Where something else reads such a tensor, all stays as it was.

A plan finds the orders that everything can do with.  A bin is a tensor that is put together of
channels of others, and read by something that does not only move them on.  Orders start from
convolutions, whose channels lie by where they go, and pass through what keeps them; where something
cannot read one, its convolution or bin is given up, and all is decided again.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, zip_longest

import numpy as np
import tvm
from tvm import relax

from adrenoc.base.decision import DecisionLog
from adrenoc.importers.relax.values import (
    Binding,
    FlatFunction,
    flatten,
    rebuild,
    replace_main,
    static_shape,
    substitute,
    variables,
)
from adrenoc.ir.layout import LANES
from adrenoc.passes.rewrites.channel_slots import (
    Moved,
    OrderConflictError,
    Slots,
    Unit,
    find_moves,
    kept_order,
    kept_source,
    makes_any_order,
    output_axis,
    reorder_call,
)

MOST_PADDING = 2.0
"""How many times its channels a tensor may hold in places: blocks of four that are not full.

To move the channels takes more: all are read and written once more, and what is cut off again.
"""


Class = tuple[int, ...]
"""Channels of one origin that go to the same places, in order."""

Goal = tuple[int, int, int]
"""Where a channel goes: the number of the bin, of the tensor that it is taken from, of a group."""


@dataclass(kw_only=True)
class OrderPlan:
    """Which tensors are put together anew (`bins`), and the orders of all that differ."""

    flat: FlatFunction
    moves: dict[relax.Var, Moved]
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
        self._readers: dict[relax.Var, list[relax.Var]] = defaultdict(list)
        for binding in self.flat.bindings:
            for var in set(variables(binding.value)):
                self._readers[var].append(binding.var)
        self._classes: dict[relax.Var, list[list[Class]]] = {}
        """Of each convolution: the channels of each group by where they go."""
        self._segments: dict[relax.Var, list[tuple[int, int]]] = {}
        """Convolution -> the ranges of places of its classes."""

    def settle(self) -> bool:
        """Find orders that everything can do with; whether any are left."""
        while True:
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
            if not any(map(self._is_needed, self.bins)):
                return False
            given_up = self._conflicts() or self._useless()
            if not given_up:
                break
            for var in given_up:
                if self.moves.pop(var, None) is None:
                    self._fixed.add(var)
        for bin_ in self.bins:
            places = self.orders[bin_].channels.size if bin_ in self.orders else 0
            count = len(self.moves[bin_].units)
            self.flat.log.add(
                self.flat.name(bin_),
                f"put together of {len(self.parts[bin_])} ranges",
                f"its {count} channels lie side by side where they are made, in {places} places",
            )
        return True

    # What is moved

    def _is_needed(self, var: relax.Var) -> bool:
        """Return whether a bin would take a kernel as it is: a range begins within a block."""
        return any(at % LANES or units[0][1] % LANES for at, units in _runs(self.moves[var].units))

    def origin(self, var: relax.Var) -> relax.Var | None:
        """Return the convolution that decides on a tensor's order; None where that is fixed."""
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
        self.orders, self.parts, self._cause, self._segments = {}, {}, {}, {}
        self._find_classes()
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
                slots = None  # what comes from it does not depend on that
            if slots is not None:
                self.orders[var], self._cause[var] = slots, self._cause[read[0]]
            elif var in self._classes:
                self.orders[var] = Slots(
                    axis=output_axis(binding.value), channels=self._lay_out(var)
                )
                self._cause[var] = var
        returned = (v for v in variables(self.flat.result) if v in self.orders)
        return given_up | {self._cause[v] for v in returned}

    def _find_classes(self) -> None:
        """Find for each convolution its channels by where they go, those of each group apart."""
        goals: dict[relax.Var, dict[int, list[Goal]]] = {}
        numbers: dict[relax.Var, int] = {}
        origins: dict[relax.Var, relax.Var | None] = {}
        for number, bin_ in enumerate(self.bins):
            moved = self.moves[bin_]
            share = len(moved.units) // self._groups(bin_)
            for at, (root, channel) in enumerate(moved.units):
                if root not in origins:  # it has many channels
                    origins[root] = self.origin(root)
                origin = origins[root]
                if origin is not None and output_axis(self._values[origin]) == moved.axis:
                    goal = (number, numbers.setdefault(root, len(numbers)), at // max(share, 1))
                    goals.setdefault(origin, {}).setdefault(channel, []).append(goal)
        self._classes = {}
        for origin, of_channel in goals.items():
            value = self._values[origin]
            count = (static_shape(origin) or ())[output_axis(value)]
            groups = int(value.attrs.groups)
            classes: list[dict[tuple[Goal, ...], list[int]]] = [{} for _ in range(groups)]
            for channel in range(count):
                group = classes[channel * groups // count]
                group.setdefault(tuple(of_channel.get(channel, ())), []).append(channel)
            self._classes[origin] = [[tuple(c) for c in group.values()] for group in classes]

    def _groups(self, var: relax.Var) -> int:
        """Return the most groups in which a convolution behind a tensor reads its channels."""
        found, waiting = 1, [var]
        while waiting:
            name = waiting.pop()
            for reader in self._readers.get(name, ()):
                value = self._values[reader]
                if kept_source(value) is not None:
                    waiting.append(reader)
                elif makes_any_order(value):
                    found = max(found, int(value.attrs.groups))
        return found

    def _lay_out(self, origin: relax.Var) -> np.ndarray:
        """Return the classes in order, each from a whole block on; groups are of equal size."""
        groups = self._classes[origin]
        sizes = [max(len(c) for c in members) for members in zip_longest(*groups, fillvalue=())]
        channels: list[int] = []
        segments: list[tuple[int, int]] = []
        for classes in groups:
            for number, size in enumerate(sizes):
                members = classes[number] if number < len(classes) else ()
                begin, places = len(channels), -(-size // LANES) * LANES
                channels += [*members, *[-1] * (places - len(members))]
                segments.append((begin, len(channels)))
        self._segments[origin] = segments
        return np.array(channels)

    def _fill(self, bin_: relax.Var) -> bool:
        """Order a bin by where its channels lie; whether that can be in whole blocks."""
        moved = self.moves[bin_]
        index = {unit: at for at, unit in enumerate(moved.units)}
        roots = list(dict.fromkeys(root for root, _ in moved.units))
        if len(index) != len(moved.units):
            return False  # a channel that stands there twice
        if any(r in self.orders and self.orders[r].axis != moved.axis for r in roots):
            return False
        pieces = [
            (root, begin, end, [index.get((root, int(c)), -1) for c in places[begin:end]])
            for root in roots
            for places in (self._places(root, moved.axis),)
            for begin, end in self._pieces(root, places, index)
        ]
        # What ends within a block comes last; a convolution in groups reads one after the other.
        pieces.sort(key=lambda piece: ((piece[2] - piece[1]) % LANES, max(piece[3])))
        channels: list[int] = []
        parts: list[tuple[relax.Var, int, int]] = []
        for root, begin, end, held in pieces:
            whole = end % LANES == 0 or end == self._places(root, moved.axis).size
            if begin % LANES or len(channels) % LANES or not whole:
                return False
            if parts and parts[-1][0].same_as(root) and parts[-1][2] == begin:
                parts[-1] = (root, parts[-1][1], end)
            else:
                parts.append((root, begin, end))
            channels += held
        self.parts[bin_] = parts
        if channels != list(range(len(moved.units))):
            self.orders[bin_] = Slots(axis=moved.axis, channels=np.array(channels))
            self._cause[bin_] = bin_
        return True

    def _pieces(
        self, root: relax.Var, places: np.ndarray, index: Mapping[Unit, int]
    ) -> Iterator[tuple[int, int]]:
        """Yield the ranges of a tensor's places that a bin takes: whole classes, if it has any."""
        wanted = [(root, int(channel)) in index for channel in places]
        origin = self._cause.get(root)
        if origin not in self._segments:
            for begin, end in _ranges(wanted):
                # What fills a block up behind them holds nothing, and moves with them.
                filled = min(-(-end // LANES) * LANES, len(places))
                yield begin, filled if (places[end:filled] < 0).all() else end
            return
        for begin, end in self._segments[origin]:
            if any(wanted[begin:end]):
                yield begin, end

    def _places(self, root: relax.Var, axis: int) -> np.ndarray:
        held = self.orders.get(root)
        return np.arange((static_shape(root) or ())[axis]) if held is None else held.channels

    # What is not worth it

    def _useless(self) -> set[relax.Var]:
        """Bins that need nothing of this, or whose tensors would hold too much that is unused."""
        for bin_ in self.bins:
            used = len(self.moves[bin_].units)
            if bin_ in self.orders and self.orders[bin_].channels.size > MOST_PADDING * used:
                places = self.orders[bin_].channels.size
                reason = f"its {used} channels would take {places} places in blocks of four"
                self.flat.log.add(self.flat.name(bin_), "its channels are moved", reason)
                return {bin_}
        needed = {self.origin(r) for b in self.bins if self._is_needed(b) for r in self._roots(b)}
        grown = True
        while grown:  # what shares a convolution with such a bin
            linked = {o for b in self.bins for o in self._origins(b) if self._origins(b) & needed}
            grown = not linked <= needed
            needed |= linked
        return {b for b in self.bins if not self._is_needed(b) and not self._origins(b) & needed}

    def _roots(self, bin_: relax.Var) -> set[relax.Var]:
        return {root for root, _ in self.moves[bin_].units}

    def _origins(self, bin_: relax.Var) -> set[relax.Var]:
        return {o for root in self._roots(bin_) if (o := self.origin(root)) is not None}


def _runs(units: Sequence[Unit]) -> Iterator[tuple[int, list[Unit]]]:
    """Yield channels of one tensor that follow each other: where they begin, and the channels."""
    begin = 0
    for at in range(1, len(units) + 1):
        before = units[at - 1]
        if at == len(units) or not units[at][0].same_as(before[0]) or units[at][1] != before[1] + 1:
            yield begin, list(units[begin:at])
            begin = at


def _ranges(wanted: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a row of places that are wanted."""
    end = 0
    for want, run in groupby(wanted):
        begin, end = end, end + len(list(run))
        if want:
            yield begin, end


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
            self._env[var] = self._new(var, self._shape(var))
            yield Binding(var=self._env[var], value=call)

    def _put_together(self, bin_: relax.Var) -> Iterator[Binding]:
        """Yield the ranges that a bin is, and their concatenation."""
        plan, axis = self._plan, self._plan.moves[bin_].axis
        fields: list[relax.Var] = []
        for root, begin, end in plan.parts[bin_]:
            source, shape = self._env.get(root, root), self._shape(root)
            if (begin, end) != (0, shape[axis]):
                part = self._new(bin_, (*shape[:axis], end - begin, *shape[axis + 1 :]))
                cut = relax.op.strided_slice(source, [axis], [begin], [end])
                yield Binding(var=part, value=cut)
                source = part
            fields.append(source)
        if len(fields) == 1:
            self._env[bin_] = fields[0]
            return
        self._env[bin_] = self._new(bin_, self._shape(bin_))
        yield Binding(var=self._env[bin_], value=relax.op.concat(relax.Tuple(fields), axis))

    def _shape(self, var: relax.Var) -> tuple[int, ...]:
        """Return the shape of a tensor as its channels lie by the plan."""
        slots, shape = self._plan.orders.get(var), static_shape(var) or ()
        return shape if slots is None else slots.shape(shape)

    def _new(self, like: relax.Var, shape: Sequence[int]) -> relax.Var:
        """Return a variable for a tensor that the model does not have, so none of its names."""
        return self._flat.new_var(
            f"{self._flat.name(like)}.ordered", relax.TensorType(shape, str(like.ty.dtype))
        )
