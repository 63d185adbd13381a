"""Kernels of int16: filters with weights of int8, and plain C for all others, on any core. Sums of
products become int16 by the constants that c/word_layer.c takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import singledispatch

import numpy as np

from adrenoc.base.errors import CompileError
from adrenoc.firmware.mcu import operators as op
from adrenoc.firmware.mcu.core import Core
from adrenoc.firmware.mcu.fixed_point import (
    exponential_points,
    logistic_points,
    reciprocal_points,
    reduced_factor,
)
from adrenoc.firmware.mcu.kernel import (
    Array,
    Fields,
    FirmwareKernel,
    fields_of,
    layer_kernel,
    pair_text,
)
from adrenoc.firmware.mcu.network import Network
from adrenoc.firmware.mcu.plain import images_of, pair_kernel, plain_kernel, window_numbers

_PIECE = 508
"""Products of 23 bits that a sum of 32 bits holds, in whole groups of four."""
_COMMON = ("requantise", "words", "word_layer")
_HOW = {"plain": "plain C, of int16", "dsp": "pairs of int16 by SMLAD", "mve": "vectors of int16"}


def word_filter(operator: op.Filter, network: Network, core: Core) -> FirmwareKernel:
    """Return the kernel of a filter. Raises CompileError where its sums may grow beyond what any
    converter writes."""
    rule = word_rule(operator, network.tensors[operator.result].name)
    if isinstance(operator, op.Depthwise):
        return _depthwise(operator, network, core, rule)
    taps = operator.weights[0].size
    weights = operator.weights.reshape(-1, taps)
    snippets: tuple[str, ...] = ("word_dots",)
    if core.facts.arithmetic == "dsp":
        snippets, weights = ("pairs", "add_two", "word_paired_dots"), _order_pairs(weights)
    elif core.facts.arithmetic == "mve":
        snippets = ("word_vector_dots",)
    fits = most_products(operator).max() <= MOST_SHORT or rule.goes_around
    piece = taps if fits else _PIECE
    constants = (Array(suffix="weights", ctype="int8_t", values=weights),)
    arrays, fields = _layer(operator, network, rule, constants, taps=taps, piece=piece)
    direct = isinstance(operator, op.Convolution) and operator.is_dense
    return FirmwareKernel(
        call="word_convolution(&{layer}, {in0}, {out}, (int16_t *)({scratch}));",
        how=_HOW[core.facts.arithmetic],
        snippets=(*_COMMON, *snippets, "word_convolution"),
        arrays=arrays,
        struct="word_layer",
        fields=fields,
        scratch_bytes=0 if direct else 2 * 2 * taps,
    )


def _depthwise(
    operator: op.Depthwise, network: Network, core: Core, rule: WordRule
) -> FirmwareKernel:
    """Weights of int16 for pairs of channels; several results of a channel go by plain C."""
    kernel_height, kernel_width, _ = operator.weights.shape
    if kernel_width > _PIECE:
        raise CompileError(
            f"the depthwise layer '{network.tensors[operator.result].name}' of int16 has a window "
            f"{kernel_width} wide, expected at most {_PIECE}",
            hint="convert the model again",
        )
    (_, _, depth), (_, _, channels) = images_of(operator, network)
    each = depth == channels
    fits = kernel_height * kernel_width <= _PIECE
    snippets: tuple[str, ...] = ("word_plain_depthwise",)
    how = "plain"
    constants = (Array(suffix="weights", ctype="int8_t", values=operator.weights),)
    if core.facts.arithmetic == "dsp" and each and fits and channels % 2 == 0:
        snippets, how = ("pairs", "word_paired_depthwise"), "dsp"
        constants = (Array(suffix="pairs", ctype="int16_t", values=operator.weights),)
    elif core.facts.arithmetic == "mve" and each and fits:
        snippets, how = ("word_vector_depthwise",), "mve"
    arrays, fields = _layer(operator, network, rule, constants, taps=0, piece=0)
    return FirmwareKernel(
        call="word_depthwise_" + how + "(&{layer}, {in0}, {out});",
        how=_HOW[how],
        snippets=(*_COMMON, "word_depthwise", *snippets),
        arrays=arrays,
        struct="word_layer",
        fields=fields,
    )


def _layer(
    operator: op.Filter, network: Network, rule: WordRule, arrays: tuple[Array, ...], **more: int
) -> tuple[tuple[Array, ...], Fields]:
    """Return all constants of a layer and the fields of its struct."""
    bias = Array(suffix="bias", ctype="int32_t", values=operator.bias)
    if np.abs(operator.bias).max() > MOST_SHORT:
        bias = Array(suffix="wide_bias", ctype="int64_t", values=operator.bias)
    arrays = (*arrays, bias, *rule.arrays)
    bounds = {"low": operator.requantise.low, "high": operator.requantise.high}
    numbers = {**window_numbers(operator, network), **bounds, **more}
    return arrays, fields_of(numbers, arrays, {"way": rule.way})


def _order_pairs(weights: np.ndarray) -> np.ndarray:
    """Return each whole group of four in the order 0 2 1 3: two instructions make pairs of it."""
    whole = weights.shape[1] // 4 * 4
    groups = weights[:, :whole].reshape(len(weights), -1, 4)[:, :, [0, 2, 1, 3]]
    return np.concatenate([groups.reshape(len(weights), whole), weights[:, whole:]], 1)


_WHOLE = 33
"""The shift of a product whose upper half is taken, and halved at least once."""
_LEAST_WHOLE = 17
_MOST_SUM = 1 << 42
MOST_SHORT = (1 << 31) - 1
"""What a sum of 32 bits holds."""
_REAL_BITS = 53
_STEPS = 1 << 15


class _OutsideError(ValueError):
    """What a layer has that no kernel computes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class WordRule:
    """Constants of each channel, by the way that the C code takes."""

    way: str
    multiplier: np.ndarray
    shift: np.ndarray
    fraction: np.ndarray | None = None
    nudge: np.ndarray | None = None

    @property
    def goes_around(self) -> bool:
        """Return whether sums have 32 bits, and what is beyond is lost."""
        return self.way in ("WORD_TWICE", "WORD_SHORT_REAL")

    @property
    def arrays(self) -> tuple[Array, ...]:
        """Return the rule's numbers as constants in flash."""
        made = [
            Array(suffix="multiplier", ctype="int32_t", values=self.multiplier),
            Array(suffix="shift", ctype="int8_t", values=self.shift),
        ]
        if self.fraction is not None and self.nudge is not None:
            made.append(Array(suffix="fraction", ctype="uint32_t", values=self.fraction))
            made.append(Array(suffix="nudge", ctype="int32_t", values=self.nudge))
        return tuple(made)


def most_products(operator: op.Filter) -> np.ndarray:
    """Return how large the sums of each channel's products may be."""
    return np.abs(operator.rows).sum(1) << 15


def word_rule(operator: op.Filter, name: str) -> WordRule:
    """Return the constants of a filter's rule; messages call the layer `name`. Raises CompileError
    where its sums may grow beyond what any converter writes, or its factors are."""
    try:
        rule = operator.requantise
        most = int((most_products(operator) + np.abs(operator.bias)).max())
        if most > _MOST_SUM:
            raise _OutsideError(f"has sums up to {most}, expected at most {_MOST_SUM}")
        if rule.reals.size:
            return _real_rule(rule)
        if not rule.wide:
            return WordRule(way="WORD_TWICE", multiplier=rule.multipliers, shift=rule.shifts)
        multiplier, right = reduced_factor(rule.multipliers, rule.shifts)
        right = np.where(multiplier == 0, _WHOLE, right)  # nothing is nothing at any shift
        if most <= MOST_SHORT and right.min() >= _LEAST_WHOLE:
            up = np.maximum(_WHOLE - right, 0)
            shift = np.maximum(right, _WHOLE) - 32
            return WordRule(way="WORD_HIGH", multiplier=multiplier << up, shift=shift)
        return WordRule(way="WORD_FIFTEEN", multiplier=multiplier, shift=right)
    except _OutsideError as error:
        raise CompileError(
            f"the layer '{name}' of int16 {error}, as no converter writes it",
            hint="convert the model again",
        ) from error


def _real_rule(rule: op.Requantise) -> WordRule:
    """Factors of float64: a product is rounded to such a number before it is to an integer."""
    found = {float(real): _real_factor(float(real)) for real in np.unique(rule.reals)}
    factors = [found[float(real)] for real in rule.reals]
    return WordRule(
        way="WORD_REAL" if rule.wide else "WORD_SHORT_REAL",
        multiplier=np.array([mantissa >> 32 for mantissa, _, _ in factors]),
        shift=np.array([shift - 32 for _, shift, _ in factors]),
        fraction=np.array([mantissa & 0xFFFFFFFF for mantissa, _, _ in factors]),
        nudge=np.array([nudge for _, _, nudge in factors]),
    )


def _real_factor(real: float) -> tuple[int, int, int]:
    """Return a factor as mantissa / 2^shift, and what makes halves of the rounded product exact.

    The nudge counts 2^32 parts; it is zero but where a sum comes so near to a half that float64
    takes it for one.
    """
    if real == 0.0:
        return 0, 64, 0
    fraction, exponent = np.frexp(real)
    mantissa, shift = int(np.ldexp(fraction, _REAL_BITS)), _REAL_BITS - int(exponent)
    if not 32 < shift < 96:
        raise _OutsideError(f"has the factor {real:.6g}, expected 2^-43 to 2^20")
    halves = np.arange(1, _STEPS + 1) - 0.5
    near = np.floor(halves / real)
    short = 0
    for step in (0.0, 1.0):
        ties = np.nonzero((near + step) * real == halves)[0]
        for place in ties:
            exact = int(near[place] + step) * mantissa
            short = max(short, (2 * int(place) + 1 << (shift - 1)) - exact)
    nudge = -(-short >> 32)
    if nudge:
        _check_nudge(real, mantissa, shift, nudge)
    return mantissa, shift, nudge


def _check_nudge(real: float, mantissa: int, shift: int, nudge: int) -> None:
    """See that all steps lie where float64 has them: look at the four sums about each.

    Raises:
        _OutsideError: one of them does not.
    """
    numbers = np.arange(1, _STEPS + 1)
    first = ((numbers - 0.5) / real).astype(np.int64) - 1
    totals = (first[:, None] + np.arange(4)).reshape(-1)
    numbers = numbers.repeat(4)[totals <= _MOST_SUM]  # no sum is beyond
    totals = totals[totals <= _MOST_SUM]
    reached = totals * real >= numbers - 0.5
    if int(totals.max()) * mantissa >> 32 >= 1 << 62:
        totals = totals.astype(object)  # slower, for integers of any length
    products = _multiply_high(totals, mantissa) + (1 << (shift - 33)) + nudge
    if (reached != (products >> (shift - 32) >= numbers)).any():
        raise _OutsideError(f"has the factor {real!r}, whose halves no integer gives")


def _multiply_high(sums: np.ndarray, mantissa: int) -> np.ndarray:
    """`sums * mantissa >> 32` of sums up to 2^42 and 53 bits, in 64 bits where the result fits."""
    high, low = mantissa >> 32, mantissa & 0xFFFFFFFF
    # The sum in two parts of 21 bits, for its product with `low` has 74.
    upper, lower = (sums >> 21) * low, (sums & (1 << 21) - 1) * low
    return sums * high + (upper >> 11) + (((upper & (1 << 11) - 1) << 21) + lower >> 32)


@singledispatch
def word_kernel(operator: op.Operator, network: Network) -> FirmwareKernel:
    """Return the kernel of an operator that reads or makes int16."""
    raise TypeError(type(operator))


word_kernel.register(op.Reshape, plain_kernel)


def _rule(rule: op.Requantise) -> dict[str, int | str]:
    factor = {"multiplier": int(rule.multipliers[0]), "shift": int(rule.shifts[0])}
    return {**factor, "low": rule.low, "high": rule.high}


@word_kernel.register(op.WordSum)
@word_kernel.register(op.Product)
def _(operator: op.WordSum | op.Product, network: Network) -> FirmwareKernel:
    numbers: dict[str, int | str] = {"count": network.tensors[operator.sources[1]].elements}
    name = "word_product"
    if isinstance(operator, op.WordSum):
        name = "word_sum"
        pairs = (*operator.factors, operator.signs)
        numbers |= zip(("first", "second", "signs"), map(pair_text, pairs), strict=True)
    return pair_kernel(
        operator,
        network,
        name + "(&{layer}, {in0}, {in1}, {out});",
        snippets=("requantise", "words", name),
        how=_HOW["plain"],
        struct=f"{name}_layer",
        fields=fields_of(numbers, _rule(operator.requantise)),
    )


@word_kernel.register
def _(operator: op.Mean, network: Network) -> FirmwareKernel:
    extents = dict(zip(("outer", "count", "inner"), operator.extents, strict=True))
    numbers, snippets = extents | _rule(operator.requantise), ("requantise", "words", "word_mean")
    how = _HOW["plain"]
    return layer_kernel("word_mean", "word_mean_layer", numbers, how=how, snippets=snippets)


@word_kernel.register
def _(operator: op.Rescale, network: Network) -> FirmwareKernel:
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
    gap = 0 if source.width >= result.width else None
    how, snippets = _HOW["plain"], ("requantise", "words", "rescale")
    return layer_kernel(
        "rescale", "rescale_layer", numbers, how=how, snippets=snippets, gap_bytes=gap
    )


@word_kernel.register
def _(operator: op.Curve, network: Network) -> FirmwareKernel:
    count = network.tensors[operator.result].elements
    numbers = f"{count}, {operator.multiplier}, {operator.shift}"
    return FirmwareKernel(
        call=f"word_{operator.kind}({{layer}}_points, {{in0}}, {{out}}, {numbers});",
        how="lines of a table",
        snippets=("words", "word_curves"),
        arrays=(Array(suffix="points", ctype="uint16_t", values=logistic_points()),),
        gap_bytes=0,
    )


@word_kernel.register
def _(operator: op.WordSoftmax, network: Network) -> FirmwareKernel:
    made, (multiplier, shift) = network.tensors[operator.result], operator.factor
    numbers = f"{made.rows}, {made.shape[-1]}, {multiplier}, {shift}"
    tables = {"powers": exponential_points(), "reciprocals": reciprocal_points()}
    names = ", ".join("{layer}_" + name for name in tables)
    return FirmwareKernel(
        call=f"word_softmax({names}, {{in0}}, {{out}}, {numbers});",
        how="lines of two tables",
        snippets=("requantise", "words", "word_softmax"),
        arrays=tuple(Array(suffix=n, ctype="int16_t", values=v) for n, v in tables.items()),
        gap_bytes=0,
    )


@word_kernel.register(op.Pool)
@word_kernel.register(op.Move)
@word_kernel.register(op.Bilinear)
def _(operator: op.Pool | op.Move | op.Bilinear, network: Network) -> FirmwareKernel:
    """Write it by the struct of the plain kernel, and a function of its own."""
    plain = plain_kernel(operator, network)
    if isinstance(operator, op.Move):
        call = "move_words(&{layer}, {in0}, {out});"
        return replace(plain, call=call, snippets=("move_layer", "word_move"))
    if isinstance(operator, op.Bilinear):
        call, how = "resize_words(&{layer}, {in0}, {out});", _HOW["plain"]
        return replace(plain, call=call, how=how, snippets=("bilinear_layer", "word_bilinear"))
    call = f"word_pool(&{{layer}}, {{in0}}, {{out}}, {int(operator.kind == 'average')});"
    snippets = ("requantise", "words", "pool", "word_pool")
    return replace(plain, call=call, how=_HOW["plain"], snippets=snippets)


@word_kernel.register
def _(operator: op.Join, network: Network) -> FirmwareKernel:
    """Copies of bytes, two of each number."""
    chunks = tuple(2 * chunk for chunk in operator.chunks)
    return plain_kernel(replace(operator, chunks=chunks), network)
