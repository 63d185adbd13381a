"""Convolutions, depthwise ones and dense layers of int16 by weights of int8, on any core."""

from __future__ import annotations

import numpy as np

from adrenoc.base.errors import CompileError
from adrenoc.firmware.mcu.core import Core
from adrenoc.firmware.mcu.kernel import Array, Kernel
from adrenoc.firmware.mcu.network import Network
from adrenoc.firmware.mcu.operators import Convolution, Depthwise
from adrenoc.firmware.mcu.plain import images_of, window_numbers
from adrenoc.firmware.mcu.words.rule import MOST_SHORT, WordRule, most_products, word_rule

_PIECE = 508
"""Products of 23 bits that a sum of 32 bits holds, in whole groups of four."""
_COMMON = ("requantise", "words", "word_layer")
_HOW = {
    "plain": "plain C, of int16",
    "dsp": "pairs of int16 by SMLAD",
    "mve": "vectors of int16",
}


def word_filter(operator: Convolution | Depthwise, network: Network, core: Core) -> Kernel:
    """Return the kernel of a filter.

    Raises:
        CompileError: its sums may grow beyond what any converter writes.
    """
    rule = word_rule(operator, network.tensors[operator.result].name)
    if isinstance(operator, Depthwise):
        return _depthwise(operator, network, core, rule)
    taps = operator.weights[0].size
    weights = operator.weights.reshape(-1, taps)
    direct = operator.window.kernel == (1, 1) and operator.window.strides == (1, 1)
    snippets: tuple[str, ...] = ("word_dots",)
    if core.facts.arithmetic == "dsp":
        snippets, weights = ("pairs", "add_two", "word_paired_dots"), _order_pairs(weights)
    elif core.facts.arithmetic == "mve":
        snippets = ("word_vector_dots",)
    fits = most_products(operator).max() <= MOST_SHORT or rule.goes_around
    piece = taps if fits else _PIECE
    constants = (Array(suffix="weights", ctype="int8_t", values=weights),)
    arrays, fields = _layer(operator, network, rule, constants, taps=taps, piece=piece)
    return Kernel(
        call="word_convolution(&{layer}, {in0}, {out}, (int16_t *)({scratch}));",
        how=_HOW[core.facts.arithmetic],
        snippets=(*_COMMON, *snippets, "word_convolution"),
        arrays=arrays,
        struct="word_layer",
        fields=fields,
        scratch_bytes=0 if direct else 2 * 2 * taps,
    )


def _depthwise(operator: Depthwise, network: Network, core: Core, rule: WordRule) -> Kernel:
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
    return Kernel(
        call="word_depthwise_" + how + "(&{layer}, {in0}, {out});",
        how=_HOW[how],
        snippets=(*_COMMON, "word_depthwise", *snippets),
        arrays=arrays,
        struct="word_layer",
        fields=fields,
    )


def _layer(
    operator: Convolution | Depthwise,
    network: Network,
    rule: WordRule,
    arrays: tuple[Array, ...],
    **more: int,
) -> tuple[tuple[Array, ...], tuple[tuple[str, str], ...]]:
    """All constants of a layer and the fields of its struct."""
    bias = Array(suffix="bias", ctype="int32_t", values=operator.bias)
    if np.abs(operator.bias).max() > MOST_SHORT:
        bias = Array(suffix="wide_bias", ctype="int64_t", values=operator.bias)
    arrays = (*arrays, bias, *rule.arrays)
    bounds = {"low": operator.requantise.low, "high": operator.requantise.high}
    numbers = {**window_numbers(operator, network), **bounds, **more}
    fields = [(key, str(value)) for key, value in numbers.items()]
    fields += [(array.suffix, "{layer}_" + array.suffix) for array in arrays]
    return arrays, (*fields, ("way", rule.way))


def _order_pairs(weights: np.ndarray) -> np.ndarray:
    """Each whole group of four in the order 0 2 1 3: two instructions make pairs of it."""
    whole = weights.shape[1] // 4 * 4
    groups = weights[:, :whole].reshape(len(weights), -1, 4)[:, :, [0, 2, 1, 3]]
    return np.concatenate([groups.reshape(len(weights), whole), weights[:, whole:]], 1)
