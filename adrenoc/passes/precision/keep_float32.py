"""Keep in float32 the tensors that have no licence for half, fine maps, and what is small.

`docs/explanation/precision.md` says why.  A licence is what a tensor earns by its origin: what
learned products, attention and norms make has one, and so have maps between two of those.

Before -> after (mixed):
    %a = map %position * %frequency         a, s, c: float32, of the inputs alone
    %s, %c = map sin(%a), cos(%a)
    %q = matmul(%x, %w)                     q, r: half, learned
    %r = map %q * %c + %t * %s              of what is learned and what is at most one
    %p = map exp(%z), z of a convolution    z, p: float32, a rounding of z would grow

Maps as fine as the picture stay exact with all that they are computed of, and so do the smallest
tensors and constants, as far as they take `SHARE` of the numbers that halves would hold.

Before -> after (mixed):
    %a = conv2d(%x); ... %m = conv2d_transpose(%z)     the same, a to z, m and weights in float32
    %gate = conv2d(%mean, %w) of 1 x 1       gate, mean and the weights that are small: float32
"""

import math
from collections.abc import Iterator
from enum import Enum
from functools import partial

import numpy as np

from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.half import HALF_MAX, HALF_NORMAL, HALF_TINY, changes_in_half, explain_not_half
from adrenoc.kernels.families.operators import (
    OPERATORS,
    changed_input,
    gives,
    is_kind,
    is_product,
    terms_of,
)
from adrenoc.kernels.families.shared.operator import Kind, Numbers
from adrenoc.passes.context import Context
from adrenoc.passes.precision.analysis import Analysis
from adrenoc.passes.precision.keep_integers import led_by
from adrenoc.passes.precision.pin_precision import FACTOR, divide_gates, find_gates
from adrenoc.passes.precision.probe import OF_A_SUM, OF_TERMS
from adrenoc.passes.precision.sources import GROWS, OF_INPUTS, Origin, Sources, pointers_of
from adrenoc.passes.precision.typical import find_typical
from adrenoc.target.gpu import HALF_DENORMALS

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
    """To be stored in float32, and what its digits come of: it is compared or an address."""
    EXACT = 3
    """To be computed of float32 weights, too: what it is off by grows."""
    OF_EXACT = 4
    """To be computed of what is so itself, back to the inputs: it grows as much, whichever product
    it was rounded before."""


_ALL_EXACT = (Asks.EXACT, Asks.OF_EXACT)
_SOON = 2**21
"""Multiply-adds that a GPU does in half the time that it takes to launch one kernel."""
_TO_READ = 32
"""Multiply-adds in the time that a GPU takes to read one number more of a constant."""
_MOST_MOVED = 2.0**-8
"""How far the roundings of one layer's halves may move a result, as a share of the largest."""


def find_unlicensed(analysis: Analysis, *, least_half: float) -> dict[str, str]:
    """Find the tensors that halves will not do for, each with its reason.  What goes with another
    tensor has an empty reason.  Halves below `least_half` are zero."""
    walk = _Walk(analysis, least_half)
    walk.run()
    return walk.refused


class _Walk:
    """The walk back from readers to what they read."""

    def __init__(self, analysis: Analysis, least_half: float) -> None:
        self.graph, self.sources = analysis.graph, Sources(analysis)
        self._before_epilogues = analysis.results
        self.refused: dict[str, str] = {}
        self._least = least_half
        self._asked: dict[str, tuple[Asks, str]] = {}
        self._ahead: set[str] = set()
        """Tensors behind which a learned product still comes."""
        self._typical = find_typical(self.graph)
        sizes = {
            name: size
            for name, size in self._typical.sizes.items()
            if self._may_be_half(name) and not self.graph.precision(name).rounded
        }
        outgrown = any(size * _ROOM > HALF_MAX for size in sizes.values())
        room = _ROOM_WHERE_GROWN if outgrown else _ROOM
        self._outgrown = {
            name: f"weights make it about {size:.1g} of data of one: half ends at {HALF_MAX:.0f}"
            for name, size in sizes.items()
            if size * room > HALF_MAX
        }
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
        if asks is Asks.EXACT and self._is_soon_made(name):
            asks = Asks.OF_EXACT
        if asks.value > self._asked.get(name, (Asks.NOTHING, ""))[0].value:
            self._asked[name] = (asks, why)

    def _is_soon_made(self, name: str) -> bool:
        """Return whether a tensor and all that it is computed of take less time than a launch, so
        that it may be exact to the inputs: what a product reads is off as much as its weights.
        What earlier runs left was computed of all that they were given."""
        work, seen, waiting = 0, set(), [name]
        while waiting and work <= _SOON:
            if (name := waiting.pop()) in self.graph.state_names:
                return False
            node = self.graph.producers.get(name)
            if node is None or not node.has_kernel or node.output in seen:
                continue
            seen.add(node.output)
            terms = max(1, terms_of(self.graph, node))
            work += math.prod(self.graph.tensors[node.output].shape) * terms
            values = (self.graph.tensors[read].value for read in node.inputs)
            work += _TO_READ * sum(value.size for value in values if value is not None)
            waiting += node.inputs
        return work <= _SOON

    def _asked_by(self, node: Node) -> Iterator[tuple[str, Asks, str]]:
        """Yield what a node asks for: tensors, how exact they are to be, and why."""
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
        elif is_kind(node, Kind.NORM):
            yield from self._asked_by_norm(node)
        yield from self._asked_of_origin(node, formula=source.origin is Origin.WRITTEN)
        for body, probe in self.sources.probes.get(node.output, ()):
            absolute = partial(self._lost_by_terms, node)
            for name in sorted(probe.find_amplified(self._loses, self._least, absolute)):
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

    def _asked_by_norm(self, node: Node) -> Iterator[tuple[str, Asks, str]]:
        """Ask for exact weights of the first convolution, and of whatever is soon made: a norm
        takes away what the inputs' mean, which may be large, makes of it, but not what that was
        rounded by at borders, and divides by the little that is left."""
        name = node.inputs[0]
        maker = self.graph.producers.get(name)
        if maker is None:
            return
        first = self.sources.get(maker.inputs[0]) if is_kind(maker, Kind.CONVOLUTION) else None
        why = f"{node.name} takes away its mean, and makes more of the rest"
        if self._is_soon_made(name):
            yield name, Asks.OF_EXACT, why
        elif first is not None and first.origin is Origin.GIVEN:
            yield name, Asks.EXACT, why

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
        """Return whether weights are so much larger for single channels that these must be tiny."""
        operator = OPERATORS[node.op]
        if operator.channel_weights is None:
            return False
        weights = operator.channel_weights(self.graph, node)
        sizes = weights.largest("I" if weights.mixes else "O")
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
        """Return what a tensor that a node reads, or its sum, is off by near zero."""
        source, maker = self.sources.get(name), self.graph.producers.get(name)
        transforms = source is not None and source.is_transform
        if name == Node.RESULT:
            first, maker = self.sources.get(node.inputs[0]), node
            product = is_kind(node, Kind.CONVOLUTION, Kind.PRODUCT)
            transforms = product and first is not None and not first.trained
        transforms = transforms or self._sums_halves(name)
        sums = maker is not None and is_kind(maker, Kind.ATTENTION, Kind.CONVOLUTION, Kind.PRODUCT)
        return OF_TERMS if transforms else OF_A_SUM if sums else 0.0

    def _loses(self, name: str) -> bool:
        """Return whether a tensor may be off by what halves lose: its own, or a sum's terms."""
        return self._may_be_half(name) or self._sums_halves(name)

    def _sums_halves(self, name: str) -> bool:
        """Return whether a tensor is made of sums of halves, of which little may be left."""
        maker = self.graph.producers.get(name)
        if maker is None or not gives(maker, Numbers.SUMMED):
            return False
        before = self._before_epilogues[name].interval
        return before.low < 0 < before.high and self._may_be_half(maker.inputs[0])

    def _may_be_half(self, name: str) -> bool:
        """Return whether a tensor would be in half, or of halves, if no reader asked for more."""
        if name == Node.RESULT:
            return True
        tensor, source = self.graph.tensors.get(name), self.sources.get(name)
        if tensor is None or not tensor.is_float:
            return False
        if tensor.value is not None:
            return changes_in_half(tensor.value)
        return source is not None and source.origin is Origin.LEARNED

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


WIDENED = 64
"""How many times more places a map has than there are where it is narrowest: a detector's levels
differ by 16."""
PICTURE = 100 * 100
"""How many places a map has at least: those of networks that take noise away have 96 by 96."""
STEM = 4
"""How many times fewer places a network's first layer has than the picture, at most."""


def find_fine_maps(graph: Graph) -> list[str]:
    """Find the maps of a network that are as fine as any, and computed of far fewer places."""
    places: dict[str, float] = {}
    finest: dict[str, float] = {}
    narrowest: dict[str, tuple[float, float]] = {}  # its places, and those of the finest before it
    widened = []
    for node in graph.nodes:
        known = [name for name in node.inputs if name in places]
        least, most = min((narrowest[name] for name in known), default=(math.inf, 0.0))
        fine = max((finest[name] for name in known), default=0.0)
        convolves = is_kind(node, Kind.CONVOLUTION)
        if convolves and OPERATORS[node.op].channel_weights is not None:
            operator, shape = OPERATORS[node.op], graph.tensors[node.output].shape
            assert operator.channel_weights is not None
            channels = shape[operator.channel_weights(graph, node).axis]
            here: float = math.prod(shape[1:]) // channels
            # What has one place is a gate or a mean of its network, and narrows nothing.
            if 1 < here < least:
                least, most = here, fine
        elif known:
            here = _resize(graph, node, max(known, key=lambda name: places[name]), places)
        else:
            continue
        name = node.output
        places[name], finest[name], narrowest[name] = here, max(fine, here), (least, most)
        if here >= max(WIDENED * least, PICTURE) and STEM * most >= here:
            widened.append(name)
    most_places = max(places.values(), default=0.0)
    return [name for name in widened if places[name] >= most_places]


def _resize(graph: Graph, node: Node, name: str, places: dict[str, float]) -> float:
    """Find how many places a result has: maps may repeat those that they read, pools join them."""
    read, made = graph.tensors[name].shape, graph.tensors[node.output].shape
    grown = math.prod(made) / max(math.prod(read), 1)
    if is_kind(node, Kind.POOL):
        return places[name] * grown
    repeats = node.is_map and not node.is_concat and len(read) == len(made) and places[name] > 1
    return places[name] * (max(1.0, grown) if repeats else 1.0)


SHARE = 0.01
"""Of the numbers that lie in half."""


def find_small(graph: Graph, refused: frozenset[str]) -> list[str]:
    """Find the smallest tensors and constants that halves round, beside those that are refused."""
    sizes = dict(_sizes_in_half(graph, refused))
    left = SHARE * sum(sizes.values())
    found = []
    for name in sorted(sizes, key=lambda name: sizes[name]):
        left -= sizes[name]
        if left < 0:
            break
        value = graph.tensors[name].value
        if value is None or changes_in_half(value):
            found.append(name)
    return _leave_moved(graph, found, refused)


def _leave_moved(graph: Graph, names: list[str], refused: frozenset[str]) -> list[str]:
    """Leave out what is moved to or from halves: where both are alike, one may lie in the other."""
    moves = [n for n in graph.nodes if n.is_concat or n.moves_alone]
    left = set(names)
    while mixed := [
        ends
        for ends in ({node.output, *node.inputs} for node in moves)
        if ends & left and ends - left - refused
    ]:
        left.difference_update(*mixed)
    return [name for name in names if name in left]


def _sizes_in_half(graph: Graph, refused: frozenset[str]) -> Iterator[tuple[str, int]]:
    """Yield the elements of each tensor and constant that a kernel makes or reads in half."""
    for node in graph.nodes:
        if not node.has_kernel:
            continue
        for name in (node.output, *node.inputs):
            tensor = graph.tensors[name]
            held = name in refused or name in graph.state_names or graph.precision(name).rounded
            made = name == node.output or tensor.value is not None
            if made and tensor.is_float and not held:
                yield name, math.prod(tensor.shape)


_COLOURS, _SIDE = 3, 16
"""A picture has so many channels, and at least so many pixels each way."""


def keep_float32(graph: Graph, context: Context) -> Graph:
    """Mark the tensors without a licence; each that has a reason of its own is a Decision."""
    least = HALF_NORMAL if context.avoids(HALF_DENORMALS) else HALF_TINY
    refused = find_unlicensed(Analysis(graph), least_half=least)
    if context.options.compute_dtype == "float16":
        graph, refused = _license_gates(graph, refused, least, context)
        for name in graph.inputs:
            products = all(is_product(reader) for reader in graph.consumers[name])
            if products and _is_picture(graph.tensors[name].shape):
                refused.pop(name, None)
                why = "a picture: its numbers are taken to be those of 8 bits, at most 255"
                context.log.add(name, "float16 arithmetic", why)
    else:
        fine = find_fine_maps(graph)
        sources = led_by(graph, fine, rounded=(), ranges={})
        if fine:
            why = (
                "it is as fine as the picture and computed of far fewer places: at single ones on "
                "an edge it may make of halves' roundings more than a hundredth of its range"
            )
            context.log.add(fine[-1], f"float32, with {len(sources)} tensors and constants", why)
        refused |= dict.fromkeys(sources, "")
        small = find_small(graph, graph.float32_names.union(refused))
        if small:
            why = f"halves of what takes {SHARE:.0%} of them save next to nothing"
            context.log.add(f"the {len(small)} smallest tensors and constants", "float32", why)
        refused |= dict.fromkeys(small, "")
    kept = graph.float32_names
    for name, reason in refused.items():
        if reason and name not in kept:
            context.log.add(name, "float32", reason)
    return graph.change_precision(refused, float32=True)


def _license_gates(
    graph: Graph, refused: dict[str, str], least: float, context: Context
) -> tuple[Graph, dict[str, str]]:
    """Divide the gates that have a licence then; return what has none still."""
    gates = find_gates(graph, (name for name, why in refused.items() if why == GROWS))
    while gates:
        divided = divide_gates(graph, gates)
        left = find_unlicensed(Analysis(divided), least_half=least)
        if not (still := gates & left.keys()):
            for name in sorted(gates):
                why = f"{GROWS}; the weights that read it are as many times as large"
                context.log.add(name, f"stored divided by {FACTOR:.0f}", why)
            return divided, left
        gates -= still
    return graph, refused


def _is_picture(shape: tuple[int, ...]) -> bool:
    colours_and_sides = (shape[1:2] + shape[2:], shape[3:] + shape[1:3])
    return len(shape) == 4 and any(
        channels == _COLOURS and min(sides) >= _SIDE for channels, *sides in colours_and_sides
    )
