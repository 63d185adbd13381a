"""Plain C for all of int16 but filters: right on any core."""

from __future__ import annotations

from functools import singledispatch

from adrenoc.firmware.mcu.curves import exponential_points, logistic_points, reciprocal_points
from adrenoc.firmware.mcu.kernel import Array, Kernel, pair_text
from adrenoc.firmware.mcu.network import Network, shape4
from adrenoc.firmware.mcu.operators import (
    Bilinear,
    Curve,
    Join,
    Mean,
    Move,
    Operator,
    Pool,
    Product,
    Requantise,
    Rescale,
    Reshape,
    WordSoftmax,
    WordSum,
)
from adrenoc.firmware.mcu.plain import plain_kernel
from adrenoc.firmware.mcu.plain_elementwise import repeat_call

_HOW = "plain C, of int16"
_WIDTH = 2


@singledispatch
def word_kernel(operator: Operator, network: Network) -> Kernel:
    """Return the kernel of an operator that reads or makes int16."""
    raise TypeError(type(operator))


def _fields(numbers: dict[str, int | str]) -> tuple[tuple[str, str], ...]:
    return tuple((key, str(value)) for key, value in numbers.items())


def _rule(rule: Requantise) -> dict[str, int | str]:
    factor = {"multiplier": int(rule.multipliers[0]), "shift": int(rule.shifts[0])}
    return {**factor, "low": rule.low, "high": rule.high}


@word_kernel.register
def _(operator: WordSum, network: Network) -> Kernel:
    call, count = repeat_call(operator, network, "word_sum")
    pairs = {
        "first": pair_text(operator.factors[0]),
        "second": pair_text(operator.factors[1]),
        "signs": pair_text(operator.signs),
    }
    return Kernel(
        call=call,
        snippets=("requantise", "words", "word_sum"),
        gap_bytes=0 if count == network.tensors[operator.result].elements else None,
        how=_HOW,
        struct="word_sum_layer",
        fields=_fields({"count": count, **pairs, **_rule(operator.requantise)}),
    )


@word_kernel.register
def _(operator: Product, network: Network) -> Kernel:
    call, count = repeat_call(operator, network, "word_product")
    return Kernel(
        call=call,
        snippets=("requantise", "words", "word_product"),
        gap_bytes=0 if count == network.tensors[operator.result].elements else None,
        how=_HOW,
        struct="word_product_layer",
        fields=_fields({"count": count, **_rule(operator.requantise)}),
    )


@word_kernel.register
def _(operator: Mean, network: Network) -> Kernel:
    extents = dict(zip(("outer", "count", "inner"), operator.extents, strict=True))
    return Kernel(
        call="word_mean(&{layer}, {in0}, {out});",
        snippets=("requantise", "words", "word_mean"),
        how=_HOW,
        struct="word_mean_layer",
        fields=_fields({**extents, **_rule(operator.requantise)}),
    )


@word_kernel.register
def _(operator: Pool, network: Network) -> Kernel:
    plain = plain_kernel(operator, network)
    averages = int(operator.kind == "average")
    return Kernel(
        call=f"word_pool(&{{layer}}, {{in0}}, {{out}}, {averages});",
        how=_HOW,
        snippets=("requantise", "words", "pool", "word_pool"),
        struct=plain.struct,
        fields=plain.fields,
        gap_bytes=plain.gap_bytes,
    )


@word_kernel.register
def _(operator: Rescale, network: Network) -> Kernel:
    source, result = network.tensors[operator.source], network.tensors[operator.result]
    numbers: dict[str, int | str] = {
        "count": result.elements,
        "in_width": source.width,
        "out_width": result.width,
        "zero_in": operator.zero_in,
        "above": pair_text(operator.above),
        "below": pair_text(operator.below),
        "zero_out": operator.zero,
        "low": operator.low,
        "high": operator.high,
    }
    return Kernel(
        call="rescale(&{layer}, {in0}, {out});",
        snippets=("requantise", "words", "rescale"),
        gap_bytes=0 if source.width >= result.width else None,
        how=_HOW,
        struct="rescale_layer",
        fields=_fields(numbers),
    )


@word_kernel.register
def _(operator: Curve, network: Network) -> Kernel:
    count = network.tensors[operator.result].elements
    numbers = f"{count}, {operator.multiplier}, {operator.shift}"
    return Kernel(
        call=f"word_{operator.kind}({{layer}}_points, {{in0}}, {{out}}, {numbers});",
        how="lines of a table",
        snippets=("words", "word_curves"),
        arrays=(Array(suffix="points", ctype="uint16_t", values=logistic_points()),),
        gap_bytes=0,
    )


@word_kernel.register
def _(operator: WordSoftmax, network: Network) -> Kernel:
    n, h, w, depth = shape4(network.tensors[operator.result].shape)
    numbers = f"{n * h * w}, {depth}, {operator.factor[0]}, {operator.factor[1]}"
    tables = "{layer}_powers, {layer}_reciprocals"
    return Kernel(
        call=f"word_softmax({tables}, {{in0}}, {{out}}, {numbers});",
        how="lines of two tables",
        snippets=("requantise", "words", "word_softmax"),
        arrays=(
            Array(suffix="powers", ctype="int16_t", values=exponential_points()),
            Array(suffix="reciprocals", ctype="int16_t", values=reciprocal_points()),
        ),
        gap_bytes=0,
    )


@word_kernel.register
def _(operator: Move, network: Network) -> Kernel:
    plain = plain_kernel(operator, network)
    return Kernel(
        call="move_words(&{layer}, {in0}, {out});",
        how=plain.how,
        snippets=("move_layer", "word_move"),
        arrays=plain.arrays,
        struct=plain.struct,
        fields=plain.fields,
    )


@word_kernel.register
def _(operator: Bilinear, network: Network) -> Kernel:
    plain = plain_kernel(operator, network)
    return Kernel(
        call="resize_words(&{layer}, {in0}, {out});",
        how=_HOW,
        snippets=("bilinear_layer", "word_bilinear"),
        arrays=plain.arrays,
        struct=plain.struct,
        fields=plain.fields,
    )


@word_kernel.register
def _(operator: Join, network: Network) -> Kernel:
    """Copies of bytes, twice as many."""
    wider = Join(
        sources=operator.sources,
        result=operator.result,
        chunks=tuple(_WIDTH * chunk for chunk in operator.chunks),
        count=operator.count,
    )
    return plain_kernel(wider, network)


@word_kernel.register
def _(operator: Reshape, network: Network) -> Kernel:
    """Only for what goes from the model's input to its output."""
    size = network.tensors[operator.result].size_bytes
    return Kernel(call=f"copy_bytes({{in0}}, {{out}}, {size});", how="a copy", snippets=("copy",))
