"""Name the cause of a layer's error by what its numbers show.

The kernels of a decoder by the layers of the model: which of them error enters by.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm_ffi.structural import structural_map

from adrenoc.base.text.report import Table, tabulate
from adrenoc.base.text.spelling import Figure
from adrenoc.base.tvmapi import tirx, tvm
from adrenoc.check.accuracy.result import Cause, LayerAccuracy
from adrenoc.ir.graph import Body, Graph, Node
from adrenoc.ir.half import HALF_MAX, HALF_NORMAL, HALF_TINY
from adrenoc.kernels.families.operators import gives, is_kind, terms_of
from adrenoc.kernels.families.shared.operator import Kind, Numbers

_NUMBER = re.compile(r"(?<!\w)(\d+)(?=[./])")
"""A part of a tensor's name that is a number, as in `/model/layers.3/mlp` or `present.3.key`."""
_BEFORE, _AFTER = "embedding", "head"


def number_of_layer(name: str) -> str:
    """Return the layer that a tensor's name says; empty where it says none."""
    found = _NUMBER.search(name)
    return "" if found is None else found[1]


def number_layers(nodes: Sequence[Node], name_of: Callable[[str], str]) -> dict[str, str]:
    """Tensor -> the layer of the model that its node belongs to, by the exporter's names. A product
    belongs to the layer that made what it multiplies: the sum behind it may have the name of the
    layer that comes next."""
    found: dict[str, str] = {}
    place = _BEFORE
    for node in nodes:
        read = node.inputs[:1] if is_kind(node, Kind.PRODUCT) else ()
        numbers = [number_of_layer(name_of(name)) for name in (*read, node.output)]
        known = [number for number in numbers if number]
        place = known[0] if known else place if place == _BEFORE else _AFTER
        found[node.output] = place
    return found


@dataclass(frozen=True, kw_only=True)
class DecoderLayer:
    """A layer of the model, by its number, or what lies before or behind all of them. The largest
    error that a kernel of it adds by its weights, by its activations and by the caches, and what
    the network up to its last kernel has come to."""

    name: str
    weights: float
    activations: float
    cache: float
    total_error: float


def list_decoder_layers(layers: Sequence[LayerAccuracy]) -> Table:
    """List what enters by each layer of a decoder; no rows of another model."""
    return tabulate(
        group_layers(layers),
        {
            "decoder layer": lambda one: one.name,
            "by weights": lambda one: show_error(one.weights),
            "by activations": lambda one: show_error(one.activations),
            "by the cache": lambda one: show_error(one.cache),
            "error so far": lambda one: show_error(one.total_error),
        },
        title="Decoder layers",
        note="The most that a kernel of the layer adds where these alone are rounded.",
    )


def show_error(error: float) -> Figure:
    """Show an error over a range."""
    return Figure(f"{error:.1e}" if math.isfinite(error) else "not finite")


def group_layers(layers: Sequence[LayerAccuracy]) -> tuple[DecoderLayer, ...]:
    """Return the layers of a decoder in order; none of models whose kernels have no parts."""
    groups: dict[str, list[LayerAccuracy]] = {}
    for layer in layers:
        if layer.parts is not None:
            groups.setdefault(layer.part_of, []).append(layer)
    return tuple(
        DecoderLayer(
            name=name,
            weights=max(x.parts.weights for x in members if x.parts),
            activations=max(x.parts.activations for x in members if x.parts),
            cache=max(x.parts.cache for x in members if x.parts),
            total_error=members[-1].total_error,
        )
        for name, members in groups.items()
    )


HALF_ROUNDING = 2.0**-11
"""The largest relative error of rounding to half."""

_MUCH_LARGER = 16.0
"""Operands so many times larger than the result leave half seven digits of eleven, or fewer."""
_LARGER_PRODUCTS = 4.0
"""The same for a convolution's products by size, each of two rounded operands."""
_MENDED = 3.0
"""A float sum is the remedy where it makes the error so many times smaller."""
_EXPONENTIALS = {"tirx.exp", "tirx.exp2", "tirx.exp10"}


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What is known of one layer: true tensors by name, and its own errors.

    `products` is the largest sum of |x| |w| over one element's products, None where it is not
    known.  `local_error` is with the arithmetic of the preset, `float_error` with float
    arithmetic and the same storage (None where the preset computes in float).
    """

    graph: Graph
    node: Node
    truth: Mapping[str, np.ndarray]
    local_error: float
    products: float | None
    float_error: float | None
    name_of: Callable[[str], str]

    @property
    def result(self) -> np.ndarray:
        """Return what the layer should make."""
        return self.truth[self.node.output]

    def operands(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the tensors that it reads, constants too, as far as they hold numbers."""
        for name in self.node.inputs:
            value = self.graph.tensors[name].value
            value = self.truth.get(name) if value is None else np.asarray(value)
            if value is not None and value.size and value.dtype.kind == "f":
                yield name, value

    def is_constant(self, name: str) -> bool:
        """Return whether a tensor is a constant of the model."""
        return self.graph.tensors[name].value is not None


def causes_of(seen: Observed) -> tuple[Cause, ...]:
    """Return all causes that the numbers show, the gravest first, rounding at last."""
    overflow = _overflow(seen)
    if overflow is not None:
        return (overflow,)  # what else is seen follows from it
    tests = (_tiny_epsilon, _long_reduction, _sharp_softmax, _cancellation)
    found = tuple(cause for cause in (test(seen) for test in tests) if cause is not None)
    if found:
        return found
    return (_overflow_within(seen) or _rounding(seen),)


def largest_of(values: np.ndarray) -> float:
    """Return the largest size of a finite value, 0 where there is none."""
    sizes = np.abs(values[np.isfinite(values)])
    return float(sizes.max(initial=0.0))


def _overflow(seen: Observed) -> Cause | None:
    if largest_of(seen.result) > HALF_MAX:
        return Cause(
            name="overflow",
            evidence=f"its values reach {largest_of(seen.result):.3g}; half ends at {HALF_MAX:.0f}",
        )
    for name, value in seen.operands():
        if largest_of(value) > HALF_MAX:
            what = "constant" if seen.is_constant(name) else "input"
            return Cause(
                name="overflow",
                evidence=f"its {what} {seen.name_of(name)} reaches {largest_of(value):.3g}; half "
                f"ends at {HALF_MAX:.0f}",
                operands=() if seen.is_constant(name) else (name,),
            )
    return None


def _overflow_within(seen: Observed) -> Cause | None:
    if math.isinf(seen.local_error):
        return Cause(
            name="overflow",
            evidence="it gives infinity or NaN where its result is at most "
            f"{largest_of(seen.result):.3g}: a value on the way there is beyond {HALF_MAX:.0f}",
        )
    return None


def _tiny_epsilon(seen: Observed) -> Cause | None:
    for name, value in (*seen.operands(), (seen.node.output, seen.result)):
        # Numbers within an expression are computed with in float; what is stored is not.
        largest = largest_of(value)
        if 0 < largest < HALF_NORMAL:
            own = name == seen.node.output
            what = "its largest value is" if own else f"its input {seen.name_of(name)} is at most"
            return Cause(
                name="tiny epsilon",
                evidence=f"{what} {_small(largest)}",
                operands=() if own or seen.is_constant(name) else (name,),
            )
    return None


def _small(number: float) -> str:
    if abs(number) < HALF_TINY / 2:
        return f"{number:.3g}, which half flushes to zero (it ends at {HALF_TINY:.1e})"
    return f"{number:.3g}, of which half keeps few digits (all only from {HALF_NORMAL:.1e} on)"


def _long_reduction(seen: Observed) -> Cause | None:
    if seen.float_error is None or math.isinf(seen.local_error):
        return None
    if not seen.local_error > _MENDED * seen.float_error:
        return None
    terms = _terms(seen)
    if terms < 2:
        return None
    return Cause(
        name="long reduction",
        evidence=f"it adds {terms} terms: {seen.local_error:.1e} of the range in half, "
        f"{seen.float_error:.1e} with float sums",
    )


def _sharp_softmax(seen: Observed) -> Cause | None:
    if math.isinf(seen.local_error):
        return None
    exponential = is_kind(seen.node, Kind.SOFTMAX)
    exponential |= any(_calls(body, _EXPONENTIALS) for body in _bodies(seen.node))
    if not exponential:
        return None
    steepest, size = "", 0.0
    for name, value in seen.operands():
        if not seen.is_constant(name) and largest_of(value) > size:
            steepest, size = name, largest_of(value)
    rounding = size * HALF_ROUNDING
    if rounding < 0.25 * seen.local_error:
        return None
    return Cause(
        name="sharp softmax",
        evidence=f"its argument {seen.name_of(steepest)} reaches {size:.3g}: half rounds it by up "
        f"to {rounding:.1e}, which changes an exponential by {math.expm1(min(rounding, 50.0)):.1%}",
        operands=(steepest,),
    )


def _cancellation(seen: Observed) -> Cause | None:
    if seen.products is not None:
        return _cancelling_products(seen, seen.products)
    subtracts = any(_adds(body) for body in _bodies(seen.node))
    spread = float(np.ptp(seen.result)) if seen.result.size else 0.0
    reads = [(n, v) for n, v in seen.operands() if not seen.is_constant(n)]
    if is_kind(seen.node, Kind.NORM):
        reads, subtracts = reads[:1], True
        spread = float(np.ptp(reads[0][1])) if reads else 0.0
    elif is_kind(seen.node, Kind.REDUCTION) and gives(seen.node, Numbers.SUMMED, Numbers.AVERAGED):
        reads, subtracts = reads[:1], True
    if not subtracts or not reads or not spread:
        return None
    larger = [(largest_of(v), n) for n, v in reads if largest_of(v) >= _MUCH_LARGER * spread]
    if not larger:
        return None
    size, name = max(larger)
    return Cause(
        name="cancellation",
        evidence=f"its operand {seen.name_of(name)} reaches {size:.3g} where what remains spans "
        f"{spread:.3g}: {size / spread:.0f} times less, and half rounds the operand by up to "
        f"{size * HALF_ROUNDING:.1e}",
        operands=tuple(n for _, n in larger),
    )


def _cancelling_products(seen: Observed, products: float) -> Cause | None:
    """Return a convolution or matrix product whose terms are larger than their sum."""
    largest = largest_of(seen.result)
    if not largest or products < _LARGER_PRODUCTS * largest:
        return None
    return Cause(
        name="cancellation",
        evidence=f"its products are {products:.3g} in size together where the result is at most "
        f"{largest:.3g}, {products / largest:.0f} times less; half rounds the factors of each by "
        f"up to {HALF_ROUNDING:.1e} of their size",
    )


def _rounding(seen: Observed) -> Cause:
    times = seen.local_error / HALF_ROUNDING
    return Cause(
        name="rounding",
        evidence=f"it adds {times:.1f} roundings of half ({HALF_ROUNDING:.1e} each), by no cause "
        "that its numbers show",
    )


def _terms(seen: Observed) -> int:
    """Return how many products or elements one element of a result adds up; 1 for a map."""
    if seen.node.body is not None:
        return math.prod(extent for _, extent in seen.node.body.reduced)
    return max(1, terms_of(seen.graph, seen.node))


def _bodies(node: Node) -> tuple[Body, ...]:
    return tuple(b for b in (node.prologue, node.body, node.epilogue) if b is not None)


def _calls(body: Body, names: set[str]) -> bool:
    return _any(body, lambda part: isinstance(part, tvm.ir.Call) and part.op.name in names)


def _adds(body: Body) -> bool:
    """Return whether it adds or subtracts floating-point values that are both read."""

    def holds(part: Any) -> bool:
        if not isinstance(part, (tirx.Add, tirx.Sub)) or not str(part.ty).startswith("float"):
            return False
        return not isinstance(part.a, tirx.FloatImm) and not isinstance(part.b, tirx.FloatImm)

    return _any(body, holds)


def _any(body: Body, holds: Callable[[Any], bool]) -> bool:
    found = False

    def look(part: Any) -> Any:
        nonlocal found
        found |= holds(part)
        return part

    structural_map(body.value, (tvm.ir.Expr, look))
    return found
