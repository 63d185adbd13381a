"""Decide which tensors may lie in half precision: a licence that a tensor earns by its origin.

Halves fail where a person wrote arithmetic, not where a network learned it.  What a learned
product, attention or a norm makes is of about one size, and later layers were trained on numbers
that are no more exact; maps between two of those keep both.  All else stays in float32: what comes
before the first learned product and after the last, whatever makes numbers large or small by a
formula, and whatever a reader turns a rounding into more than that.

Before -> after (mixed):
    %a = map %position * %frequency         a, s, c: float32, of the inputs alone
    %s, %c = map sin(%a), cos(%a)
    %q = matmul(%x, %w)                     q, r: half, learned
    %r = map %q * %c + %t * %s              of what is learned and what is at most one
    %p = map exp(%z), z of a convolution    z, p: float32, a rounding of z would grow
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from functools import partial

import numpy as np

from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.half import HALF_MAX, changes_in_half, explain_not_half
from adrenoc.kernels.families.operators import OPERATORS, changed_input, gives, is_kind, is_product
from adrenoc.kernels.families.shared.operator import Kind, Numbers
from adrenoc.passes.precision.analysis import Analysis
from adrenoc.passes.precision.probe import OF_A_SUM, OF_TERMS
from adrenoc.passes.precision.sources import OF_INPUTS, Origin, Sources, pointers_of
from adrenoc.passes.precision.typical import find_typical

_ROOM = 4.0
"""How much larger than one the inputs may be, and numbers than those of the middle."""
_ROOM_WHERE_GROWN = 256.0
"""The same in a network that outgrows half: in StarNet the estimate was up to 380 times short."""
_BROUGHT_BACK = 2.0**10
"""How many times larger than most the weights are that read a tiny channel."""
_RESETTING = (Kind.ATTENTION, Kind.NORM, Kind.CONVOLUTION, Kind.PRODUCT)
"""What is asked of their results is not asked of what they read."""


class Asks(Enum):
    """What the readers of a tensor ask of it."""

    NOTHING = 0
    ALONE = 1
    """To be stored in float32, for it is small, whatever it is computed of."""
    STORED = 2
    """To be stored in float32, and what its digits come of: they are compared, or say where to
    read."""
    EXACT = 3
    """To be computed of float32 weights, too: what it is off by grows."""
    OF_EXACT = 4
    """To be computed of what is so itself, back to the inputs: it grows as much, whichever product
    it was rounded before."""


_ALL_EXACT = (Asks.EXACT, Asks.OF_EXACT)
_MOST_MOVED = 2.0**-8
"""How far the roundings of one layer's halves may move a result, as a share of the largest."""


def find_unlicensed(analysis: Analysis, *, least_half: float) -> dict[str, str]:
    """Find the tensors that halves will not do for, each with its reason.

    What goes with another tensor has an empty reason.  Halves below `least_half` are zero.
    """
    walk = _Walk(analysis.graph, Sources(analysis), least_half)
    walk.run()
    return walk.refused


class _Walk:
    """The walk back from readers to what they read."""

    def __init__(self, graph: Graph, sources: Sources, least_half: float) -> None:
        self.graph, self.sources = graph, sources
        self.refused: dict[str, str] = {}
        self._least = least_half
        self._asked: dict[str, tuple[Asks, str]] = {}
        self._ahead: set[str] = set()
        """Tensors behind which a learned product still comes."""
        self._typical = find_typical(graph)
        self._outgrown = self._find_outgrown()
        """Tensors that weights make too large -> why."""

    def run(self) -> None:
        """Ask for what each node reads, after all that read its own result have asked."""
        for present, past in self.graph.states.items():
            maker = self.graph.producers.get(present)
            if maker is not None and changed_input(maker) is None:
                self._ask(present, Asks.EXACT, f"it is what the next run reads as {past}")
                self._ask(past, Asks.EXACT, f"it is what {present} becomes")
        for node in reversed(self.graph.nodes):
            if is_product(node) or node.output in self._ahead:
                self._ahead.update(node.inputs)
            for name, asks, why in self._asked_by(node):
                self._ask(name, asks, why)
            self._decide(node)
        kept = self.graph.state_names
        inputs = (n for n in self.graph.inputs if n not in kept or n in self._asked)
        self.refused.update((n, "") for n in inputs if self.graph.tensors[n].is_float)

    def _ask(self, name: str, asks: Asks, why: str) -> None:
        tensor = self.graph.tensors.get(name)
        if tensor is None or not tensor.is_float or tensor.value is not None:
            return
        if asks.value > self._asked.get(name, (Asks.NOTHING, ""))[0].value:
            self._asked[name] = (asks, why)

    def _asked_by(self, node: Node) -> Iterator[tuple[str, Asks, str]]:
        """What a node asks for: tensors, how exact they are to be, and why."""
        if not node.has_kernel:
            why = f"{node.name} compares its numbers"
            yield from ((name, Asks.STORED, why) for name in node.inputs)
            return
        source = self.sources[node.output]
        if gives(node, Numbers.CARRIED):
            why = "a state is handed on from step to step, and what it is off by grows"
            yield node.output, Asks.EXACT, why
            yield node.inputs[0], Asks.EXACT, why
        if is_kind(node, Kind.CONVOLUTION, Kind.PRODUCT):
            yield from self._asked_by_product(node)
        yield from self._asked_of_origin(node, formula=source.origin is Origin.WRITTEN)
        for body, probe in self.sources.probes.get(node.output, ()):
            absolute = partial(self._lost_by_terms, node)
            for name in sorted(probe.find_amplified(self._may_be_half, self._least, absolute)):
                # What an epilogue reads is off by its weights' roundings, if by no other.
                of = node.output if name == Node.RESULT else name
                why = f"{node.name} makes more of a rounding"
                if of in self.graph.tensors and self.graph.tensors[of].value is not None:
                    self.refused.setdefault(of, why)
                yield of, Asks.EXACT, why
            for name in sorted(pointers_of(body)):
                yield name, Asks.STORED, f"{node.name} reads where it points"
        asks, why = self._asked.get(node.output, (Asks.NOTHING, ""))
        passes_on = asks in (Asks.STORED, Asks.EXACT) and not is_kind(node, *_RESETTING)
        # Of data by data nothing is learned: near zero it is off by what either lost.
        # An attention's queries, keys and values may lie in one tensor.
        of_data = is_kind(node, Kind.PRODUCT, Kind.ATTENTION) and all(
            self.graph.tensors[name].value is None for name in node.inputs[1:2]
        )
        if passes_on or asks is Asks.OF_EXACT or (asks is Asks.EXACT and of_data):
            yield from ((name, asks, why) for name in node.inputs)
        moved = self._typical.moved.get(node.output, 0.0)
        if moved > _MOST_MOVED and source.origin is not Origin.EXACT:
            why = f"{node.name} moves by {moved:.1g} of its range by what halves lose before it"
            yield from ((name, Asks.OF_EXACT, why) for name in node.inputs)
            yield node.output, Asks.EXACT, why

    def _asked_by_product(self, node: Node) -> Iterator[tuple[str, Asks, str]]:
        first = self.sources.get(node.inputs[0])
        weights = self.graph.tensors[node.inputs[1]].value
        if first is not None and first.origin is Origin.WRITTEN and not first.trained:
            yield node.output, Asks.EXACT, f"{node.inputs[0]} is a formula of the inputs alone"
        if first is not None and (first.of_sound or first.of_spectrum):
            yield (
                node.output,
                Asks.EXACT,
                f"{node.inputs[0]} is of sound, of which no scale is known",
            )
        if weights is not None and (explain_not_half(weights) or self._brings_back(node)):
            yield node.inputs[0], Asks.EXACT, f"{node.name} brings its digits back"
        asks, why = self._asked.get(node.output, (Asks.NOTHING, ""))
        if asks in _ALL_EXACT and first is not None and first.is_transform:
            yield node.inputs[0], asks, why

    def _brings_back(self, node: Node) -> bool:
        """Whether weights are so much larger for single channels that these must be tiny."""
        operator = OPERATORS[node.op]
        if operator.channel_weights is None:
            return False
        weights = operator.channel_weights(self.graph, node)
        sizes = weights.input_sizes if weights.mixes else weights.output_sizes
        return sizes is not None and bool(sizes.max() > _BROUGHT_BACK * np.median(sizes))

    def _asked_of_origin(self, node: Node, *, formula: bool) -> Iterator[tuple[str, Asks, str]]:
        """Ask for spectra and other transforms of the inputs that a formula reads, and for means
        that it reads, or that what they are of is held against: little may be left of either."""
        for name in node.inputs:
            source, maker = self.sources.get(name), self.graph.producers.get(name)
            if formula and source is not None and source.is_transform:
                yield name, Asks.EXACT, f"{node.name}, a formula, comes behind a transform"
            elif maker is None or not gives(maker, Numbers.AVERAGED):
                continue
            elif formula or maker.inputs[0] in node.inputs:
                yield name, Asks.ALONE, f"{node.name} holds means against others"

    def _lost_by_terms(self, node: Node, name: str) -> float:
        """What a tensor that a node reads, or its own sum, is off by near zero, of sums of one."""
        source, maker = self.sources.get(name), self.graph.producers.get(name)
        transforms = source is not None and source.is_transform
        if name == Node.RESULT:
            first, maker = self.sources.get(node.inputs[0]), node
            product = is_kind(node, Kind.CONVOLUTION, Kind.PRODUCT)
            transforms = product and first is not None and not first.trained
        sums = maker is not None and is_kind(maker, Kind.ATTENTION, Kind.CONVOLUTION, Kind.PRODUCT)
        return OF_TERMS if transforms else OF_A_SUM if sums else 0.0

    def _may_be_half(self, name: str) -> bool:
        """Whether a tensor would lie in half, or be computed of halves, if no reader asked for
        more."""
        if name == Node.RESULT:
            return True
        tensor, source = self.graph.tensors.get(name), self.sources.get(name)
        if tensor is None or not tensor.is_float:
            return False
        if tensor.value is not None:
            return changes_in_half(tensor.value)
        return source is not None and source.origin is Origin.LEARNED

    def _find_outgrown(self) -> dict[str, str]:
        """Find what weights make too large for half on data of about one.

        The sizes are those of data that are alike in all places, so that maxima are larger.  Where
        they once end beyond half, they were short on the way there.
        """
        sizes = {
            name: size
            for name, size in self._typical.sizes.items()
            if self._may_be_half(name) and not self.graph.precision(name).rounded
        }
        outgrown = any(size * _ROOM > HALF_MAX for size in sizes.values())
        room = _ROOM_WHERE_GROWN if outgrown else _ROOM
        return {
            name: f"weights make it about {size:.1g} of data of one: half ends at {HALF_MAX:.0f}"
            for name, size in sizes.items()
            if size * room > HALF_MAX
        }

    # Decisions

    def _decide(self, node: Node) -> None:
        """Refuse or grant the licence of what a node makes, and of its constants."""
        asks, why = self._asked.get(node.output, (Asks.NOTHING, ""))
        if not self.graph.tensors[node.output].is_float:
            return
        if not node.has_kernel:
            self.refused[node.output] = ""
        elif asks is not Asks.NOTHING or (why := self._why_unlicensed(node)):
            self.refused[node.output] = why
            self._refuse_constants(node, asks)
        else:
            for name in node.inputs:
                value = self.graph.tensors[name].value
                if value is not None and (why := explain_not_half(value)):
                    self.refused.setdefault(name, why)

    def _why_unlicensed(self, node: Node) -> str:
        """Why what a node makes has no licence; empty where it has one."""
        name = node.output
        source = self.sources[name]
        if self.graph.precision(name).rounded or source.origin is Origin.EXACT:
            return ""
        if source.of_sound:
            return "it is moved of sound, of which no scale is known"
        if source.of_spectrum:
            return "it grows with a spectrum of sound, of which no scale is known"
        if source.origin is not Origin.LEARNED:
            return source.why or OF_INPUTS
        # An output that a kernel makes is written in the model's own floats; what is read inside of
        # it is stored apart.
        is_end = name in self.graph.output_names and not self.graph.consumers[name]
        goes_on = name in self._ahead or is_end
        return self._outgrown.get(name, "" if goes_on else "no learned product comes behind it")

    def _refuse_constants(self, node: Node, asks: Asks) -> None:
        """Keep in float32 what a formula is written with; learned weights only if asked for."""
        product = is_kind(node, Kind.CONVOLUTION, Kind.PRODUCT)
        learned = self.sources[node.output].origin is Origin.LEARNED and asks not in _ALL_EXACT
        for name in node.inputs:
            value = self.graph.tensors[name].value
            weights = product and learned and name == node.inputs[1]
            if not weights and changes_in_half(value):
                self.refused.setdefault(name, "")
