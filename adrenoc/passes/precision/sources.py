"""Where the numbers of each tensor come from, and between which they lie: one walk forward.

Operators are not known by name here: records say what an operator's numbers are (`Numbers`), and
expressions are computed at many points (`probe.py`).
"""

import math
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np
from tvm_ffi.structural import structural_map

from adrenoc.base.tvmapi import BufferLoad, decl_buffer, tirx, tvm
from adrenoc.ir.graph import PROLOGUE_SHAPE, Body, Graph, Node, Tensor, find_loaded_buffers
from adrenoc.ir.half import HALF_MAX, HALF_NORMAL, explain_not_half
from adrenoc.kernels.body_cost import parts_of_kind
from adrenoc.kernels.families.operators import changed_input, gives, is_kind, terms_of
from adrenoc.kernels.families.shared.operator import Kind, NotKnownError, Numbers
from adrenoc.passes.precision.analysis import ANY, Analysis, Interval
from adrenoc.passes.precision.probe import LARGE, ExprProbe, ValueRange

WHOLE_IN_HALF = 2048.0
"""Whole numbers up to this are what they are in half."""
MANY = 16
"""Terms of a sum that are as large as they may be make a sum that is not."""
OF_INPUTS = "it is a formula of the inputs alone"
GROWS = f"it may grow beyond {HALF_MAX:.0f}, where half ends"
_SAMPLES, _CHANNELS = 80, 2
"""Sound has so many samples at least (10 ms of a telephone's), and so many channels at most."""
_UNBOUNDED = 1e4
"""What stands for the ends of operands that have none."""
_ROOT = 10.0
"""A root grows more, a logarithm less, from operands of one to those of `LARGE`."""
_GROWN = 4.0
"""Results that are no more times larger than their operands are as large as these: of several that
are added up, few are at their largest together."""


class Origin(Enum):
    """Where the numbers of a tensor come from."""

    EXACT = "whole numbers that halves hold"
    GIVEN = "the model's inputs, moved, shifted and scaled"
    WRITTEN = "a formula"
    LEARNED = "a learned product, attention or norm, and maps of it"


@dataclass(frozen=True, kw_only=True)
class Source:
    """What is known of the numbers of a tensor; `why` says what made a formula of it."""

    origin: Origin
    span: ValueRange = field(default_factory=ValueRange)
    why: str = ""
    trained: bool = False
    """Whether an activation, a norm or attention comes between it and the first product.  Products
    with none between are one linear transform, as Fourier's, of inputs of any size."""
    of_sound: bool = False
    """Whether it is such a transform, or a move, of sound: at most one, or 32768."""
    of_spectrum: bool = False
    """Whether it grows with sizes of such a transform, through layers and activations that do."""

    @property
    def is_transform(self) -> bool:
        """Return whether it is a linear transform of the inputs."""
        return self.origin is Origin.LEARNED and not self.trained

    @property
    def are_shares(self) -> bool:
        """Return whether its numbers weigh others, as a softmax's do."""
        return self.origin is Origin.LEARNED and self.span.low >= 0 and self.span.high <= 1


_LEARNED = Source(origin=Origin.LEARNED, trained=True)


class Sources:
    """The sources of a graph's tensors, and the probes of its expressions."""

    def __init__(self, analysis: Analysis) -> None:
        """Walk through the graph of an analysis."""
        self._analysis = analysis
        self._graph: Graph = analysis.graph
        self._of: dict[str, Source] = {}
        self.probes: dict[str, list[tuple[Body, ExprProbe]]] = {}
        """Tensor -> the expressions of the node that makes it."""
        for name in self._graph.inputs:
            span = _span_of(analysis[name].interval)
            of_sound = _is_sound(self._graph.tensors[name])
            self._of[name] = Source(origin=Origin.GIVEN, span=span, of_sound=of_sound)
        for node in self._graph.nodes:
            self._of[node.output] = self._visit(node)

    def __getitem__(self, name: str) -> Source:
        """Return the source of a tensor that is no constant."""
        return self._of[name]

    def get(self, name: str) -> Source | None:
        """Return the source of a tensor; None of a constant."""
        return self._of.get(name)

    def _visit(self, node: Node) -> Source:
        if not node.has_kernel:
            return self._make_written(node, "")
        shape = self._graph.tensors[node.output].shape
        if node.body is not None:
            made = _fold(self._graph, node.body, self._probe(node, node.body, shape, self._of))
        else:
            made = self._visit_operator(node, self._first_of(node))
        if node.epilogue is not None:
            beside = replace(made, span=ValueRange())
            # Not a copy of all sources: probes keep what they ask, one for each node.
            reads = ChainMap({Node.RESULT: made, Node.BESIDE: beside}, self._of)
            made = self._probe(node, node.epilogue, shape, reads)
        for body in node.parts.values():
            self._remember(node, body, shape, self._of)
        known = self._analysis[node.output]
        if known.whole and known.interval.most <= WHOLE_IN_HALF:
            made = replace(made, origin=Origin.EXACT, span=_span_of(known.interval))
        return made

    # Operators

    def _first_of(self, node: Node) -> Source:
        """Return what an operator reads as its first operand, or computes where it reads it."""
        if node.prologue is not None:
            extents = node.attrs.get(PROLOGUE_SHAPE, self._graph.tensors[node.inputs[0]].shape)
            return self._probe(node, node.prologue, extents, self._of)
        first = self._of.get(node.inputs[0]) if node.inputs else None
        return first or Source(origin=Origin.WRITTEN)

    def _visit_operator(self, node: Node, first: Source) -> Source:
        """Return what an operator makes of its first operand."""
        why = ""
        if is_kind(node, Kind.CONVOLUTION, Kind.PRODUCT):
            return self._multiply(node, first)
        resets = is_kind(node, Kind.NORM, Kind.ATTENTION)
        if resets and first.origin is not Origin.LEARNED and not first.trained:
            return replace(self._make_written(node, OF_INPUTS), of_spectrum=False)
        if gives(node, Numbers.SHARES):
            length = self._graph.tensors[node.inputs[0]].shape[int(node.attrs.get("axis", -1))]
            return replace(_LEARNED, span=ValueRange(low=0.0, high=1.0, size=1.0 / max(length, 1)))
        if gives(node, Numbers.PICKED, Numbers.AVERAGED) and changed_input(node) is None:
            return first
        if gives(node, Numbers.SUMMED):
            terms = max(terms_of(self._graph, node), 1)
            if terms < MANY:
                return replace(first, span=_scale(first.span, terms))
            why = f"it adds up {terms} numbers"
        elif gives(node, Numbers.MULTIPLIED, Numbers.CARRIED):
            why = "each of its numbers is computed of the one before"
        elif gives(node, Numbers.LOG_SHARES):
            why = "it takes logarithms"
        return self._make_written(node, why) if why else _LEARNED

    def _multiply(self, node: Node, first: Source) -> Source:
        """Return what a product makes: learned, by weights that halves hold, or by shares."""
        weights = self._graph.tensors[node.inputs[1]] if len(node.inputs) > 1 else None
        if weights is None or weights.value is None:
            other = self._of[node.inputs[1]] if weights is not None else first
            if not (first.are_shares or other.are_shares):
                return self._make_written(node, "it multiplies data by data")
            same = first.origin is other.origin
            return _LEARNED if same else self._make_written(node, other.why)
        if why := explain_not_half(weights.value):
            return self._make_written(node, f"its weights {weights.name}: {why}")
        most = first.span.most
        if first.origin is Origin.GIVEN and LARGE < most < math.inf:
            results = self._graph.tensors[node.output].shape[-1:]
            terms = weights.value.size / math.prod(results)
            sums = most * float(np.abs(weights.value).mean()) * math.sqrt(max(terms, 1.0))
            if max(most, sums) > HALF_MAX:
                return self._make_written(node, f"the inputs may be {most:.3g}")
        return replace(
            _LEARNED, trained=first.trained, of_sound=first.of_sound, of_spectrum=first.of_spectrum
        )

    def _make_written(self, node: Node, why: str) -> Source:
        read = [self._of[name] for name in node.inputs if name in self._of]
        return Source(
            origin=Origin.WRITTEN,
            span=_span_of(self._analysis[node.output].interval),
            why=why,
            trained=any(source.trained for source in read),
            of_spectrum=any(source.of_spectrum for source in read),
        )

    # Expressions

    def _operand(self, name: str, reads: Mapping[str, Source]) -> ValueRange | np.ndarray:
        tensor = self._graph.tensors.get(name)
        if tensor is not None and tensor.value is not None:
            return tensor.value
        span = reads[name].span if name in reads else ValueRange()
        low, high = max(span.low, -_UNBOUNDED), min(span.high, _UNBOUNDED)
        return replace(span, low=min(low, high), high=max(low, high))

    def _remember(
        self, node: Node, body: Body, extents: tuple[int, ...], reads: Mapping[str, Source]
    ) -> ExprProbe:
        probe = ExprProbe(body, extents, lambda name: self._operand(name, reads))
        self.probes.setdefault(node.output, []).append((body, probe))
        return probe

    def _probe(
        self, node: Node, body: Body, extents: tuple[int, ...], reads: Mapping[str, Source]
    ) -> Source:
        """Return what an expression makes of what it reads."""
        probe = self._remember(node, body, extents, reads)
        centred = _put_centred(self._graph, body)
        if centred is not None and any(reads[n].trained for n in probe.names if n in reads):
            body, most = centred
            span = ValueRange(low=-most, high=most, size=1.0)
            reads = {**reads, _CENTRED: replace(_LEARNED, span=span)}
            probe = ExprProbe(body, extents, lambda name: self._operand(name, reads))
        # In one order: the first gives the reason, and equal models give equal bundles.
        operands = [reads[name] for name in sorted(probe.names) if name in reads]
        trained = any(source.trained for source in operands)
        sounds = {name for name in probe.names if name in reads and reads[name].of_sound}
        last = body is (node.epilogue if node.epilogue is not None else node.body)
        span = _span_of(self._analysis[node.output].interval if last else ANY)
        written = Source(origin=Origin.WRITTEN, span=span, trained=trained)
        try:
            found = probe.results(LARGE)
            affine, size = probe.is_affine(), probe.usual_size()
        except NotKnownError:
            return replace(written, why="its formula is not known")
        sizes = bool(sounds) and not affine and probe.is_even(sounds.__contains__)
        sizes = sizes or any(source.of_spectrum for source in operands)
        of_spectrum = sizes and (affine or _grows(probe))
        written = replace(written, of_spectrum=of_spectrum)
        given = {source.origin for source in operands} <= {Origin.GIVEN, Origin.EXACT}
        if operands and affine and given:
            return replace(written, origin=Origin.GIVEN, of_sound=bool(sounds))
        if why := _why_written(body, operands, found, size):
            return replace(written, why=why)
        span = _settle(found, operands, size)
        trained = trained or not affine
        return Source(
            origin=Origin.LEARNED,
            span=span,
            trained=trained,
            of_sound=bool(sounds) and not trained,
            of_spectrum=of_spectrum,
        )


_CENTRED = "@centred"


def _put_centred(graph: Graph, body: Body) -> tuple[Body, float] | None:
    """Return the body with one operand in place of numbers that are less their mean and over their
    deviation, as a norm is written that no kernel covers, and how large one can be: of N numbers
    none is further from the mean than the root of N deviations.

    Before -> after:
        silu((x - mean) / deviation * g + b)    silu(centred * g + b)
    """
    numbers: list[int] = []
    sources = dict(body.sources)

    def put(part: Any) -> Any:
        above, below = part.a, part.b
        loads: tuple[Any, ...] = (getattr(above, "a", None), getattr(above, "b", None), below)
        if not all(isinstance(load, tvm.ir.TensorLoad) for load in loads):
            return part
        x, mean, deviation = (body.source_of(load.source) or "" for load in loads)
        maker, folded = graph.producers.get(deviation), graph.producers.get(mean)
        if maker is None or folded is None or maker.operators != _DEVIATION:
            return part
        if maker.inputs[:2] != (x, mean) or folded.operators != ("mean",):
            return part
        shape = graph.tensors[x].shape
        numbers.append(math.prod(shape) // math.prod(graph.tensors[mean].shape))
        sources[centred := decl_buffer(shape, "float32", name="centred")] = _CENTRED
        return BufferLoad(centred, list(above.a.indices))

    value = structural_map(body.value, (tirx.Div, put))
    if not numbers:
        return None
    return replace(body, value=value, sources=sources).drop_unread(), math.sqrt(max(numbers))


_DEVIATION = ("subtract", "multiply", "mean", "add", "sqrt")


def _is_sound(tensor: Tensor) -> bool:
    """Return whether an input is a row of many samples, whose scale nobody knows."""
    longest = max(tensor.shape, default=0)
    rows = math.prod(tensor.shape) / max(longest, 1)
    return tensor.is_float and longest >= _SAMPLES and rows <= _CHANNELS


def pointers_of(body: Body) -> frozenset[str]:
    """Return the tensors that say where a body reads others."""
    loads = parts_of_kind(body.value, tvm.ir.TensorLoad)
    buffers = (b for load in loads for index in load.indices for b in find_loaded_buffers(index))
    return frozenset(body.sources.get(buffer, "") for buffer in buffers) - {""}


def _why_written(body: Body, operands: list[Source], found: np.ndarray, size: float) -> str:
    """Return why an expression makes a formula's numbers; empty where a network knows such."""
    if not operands and not pointers_of(body):
        return "it is computed of no data"
    if operands and all(source.origin is not Origin.LEARNED for source in operands):
        return next((source.why for source in operands if source.why), OF_INPUTS)
    for source in operands:
        if source.origin not in (Origin.LEARNED, Origin.EXACT) and source.span.most > LARGE:
            return source.why or "it reads inputs of any size"
    if not (np.abs(found[~np.isnan(found)]) <= HALF_MAX).all():
        return GROWS
    if 0 < size < HALF_NORMAL:
        return f"it is about {size:.1g}: half loses digits below {HALF_NORMAL:.2g}"
    return ""


def _grows(probe: ExprProbe) -> bool:
    """Return whether results grow about as operands do: roots and ramps, but not logarithms."""
    found = (np.abs(probe.results(limit)) for limit in (1.0, LARGE))
    at_one, at_large = (sizes[np.isfinite(sizes)].max(initial=0.0) for sizes in found)
    return bool(at_large > at_one * _ROOT)


def _fold(graph: Graph, body: Body, made: Source) -> Source:
    """Return what a fold makes of its terms: sums of products by weights are a learned product."""
    if not body.reduced or not isinstance(body.value, tirx.Add):
        return made
    terms = math.prod(extent for _, extent in body.reduced)
    weighted = any(
        graph.tensors[name].value is not None
        for name in body.sources.values()
        if name in graph.tensors
    )
    if made.origin is Origin.LEARNED and (weighted or terms < MANY):
        return replace(made, span=ValueRange() if weighted else _scale(made.span, terms))
    return replace(made, origin=Origin.WRITTEN, why=made.why or f"it adds up {terms} numbers")


def _scale(span: ValueRange, factor: float) -> ValueRange:
    return ValueRange(low=span.low * factor, high=span.high * factor, size=span.size * factor)


def _span_of(interval: Interval) -> ValueRange:
    return ValueRange(low=interval.low, high=interval.high)


def _settle(found: np.ndarray, operands: list[Source], size: float) -> ValueRange:
    """Return the span of a result; what grows little is as large as its operands."""
    finite = found[np.isfinite(found)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (-LARGE, LARGE)
    before = max((source.span.most for source in operands), default=LARGE)
    if max(abs(low), abs(high)) <= _GROWN * before:
        low, high = max(low, -before), min(high, before)
        size = min(size, max((source.span.size for source in operands), default=size))
    return ValueRange(low=low, high=high, size=size)
