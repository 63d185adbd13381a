"""Kernels in plain C for every operator: right on any core, and what faster ones fall back to."""

from __future__ import annotations

from functools import singledispatch

import numpy as np

from adrenoc.base.refused import RefusedError
from adrenoc.firmware.mcu.high_product import sum_range
from adrenoc.firmware.mcu.kernel import Array, Kernel
from adrenoc.firmware.mcu.network import Network, image_extents
from adrenoc.firmware.mcu.operators import Convolution, Depthwise, Operator, Pool, Reshape
from adrenoc.firmware.mcu.plain_elementwise import elementwise_kernel
from adrenoc.firmware.mcu.wide_product import one_product


@singledispatch
def plain_kernel(operator: Operator, network: Network) -> Kernel:
    """Return the kernel of an operator in plain C."""
    return elementwise_kernel(operator, network)


@plain_kernel.register
def _(operator: Convolution, network: Network) -> Kernel:
    return _filter_kernel(operator, network, "plain_convolution")


@plain_kernel.register
def _(operator: Depthwise, network: Network) -> Kernel:
    return _filter_kernel(operator, network, "plain_depthwise")


def _filter_kernel(operator: Convolution | Depthwise, network: Network, name: str) -> Kernel:
    if isinstance(operator, Convolution) and operator.joined is not None:
        raise TypeError("a sum was given to a convolution whose own code has no place for it")
    arrays, fields = plain_parts(operator, network)
    return Kernel(
        call=name + "(&{layer}, {in0}, {out});",
        how="plain C",
        snippets=("requantise", "plain_layer", name),
        arrays=arrays,
        struct="plain_layer",
        fields=fields,
        gap_bytes=_gap(operator, images_of(operator, network)),
    )


def plain_parts(
    operator: Convolution | Depthwise, network: Network
) -> tuple[tuple[Array, ...], tuple[tuple[str, str], ...]]:
    """Return the constants of a filter and the fields of its `plain_layer`."""
    rule = operator.requantise
    arrays = [
        Array(suffix="weights", ctype="int8_t", values=operator.weights),
        Array(suffix="bias", ctype="int32_t", values=operator.bias),
    ]
    multipliers, shifts, single = rule.multipliers, rule.shifts, False
    if rule.reals.size:
        try:
            multipliers, shifts, offsets = one_product(rule, *sum_range(operator))
            arrays.append(Array(suffix="offset", ctype="int64_t", values=offsets))
        except RefusedError:
            if rule.reals.dtype != np.float32:
                raise
            single = True
            multipliers, shifts = rule.reals.view(np.int32), np.zeros(len(rule.reals), np.int64)
    arrays.append(Array(suffix="multiplier", ctype="int32_t", values=multipliers))
    arrays.append(Array(suffix="shift", ctype="int8_t", values=shifts))
    numbers = {**window_numbers(operator, network), "zero_in": operator.zero_in}
    numbers |= {"zero_out": rule.zero, "low": rule.low, "high": rule.high}
    fields = [(key, str(value)) for key, value in numbers.items()]
    fields.append(("single", "requantise_single" if single else "0"))
    fields += [(array.suffix, "{layer}_" + array.suffix) for array in arrays]
    return tuple(arrays), tuple(fields)


def window_numbers(operator: Convolution | Depthwise, network: Network) -> dict[str, int]:
    """Images and window by the names that structs of filters have for them."""
    images, window = images_of(operator, network), operator.window
    numbers = dict(zip(("in_height", "in_width", "in_channels"), images[0], strict=True))
    numbers |= dict(zip(("out_height", "out_width", "out_channels"), images[1], strict=True))
    numbers |= window.steps()
    numbers |= dict(zip(("dilation_y", "dilation_x"), window.dilations, strict=True))
    return {**numbers, "top": window.top, "left": window.left}


def images_of(
    operator: Convolution | Depthwise | Pool, network: Network
) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """H, W, C of what is read and what is made; the rows of a dense layer are pixels."""
    if isinstance(operator, Convolution) and operator.window.kernel == (1, 1):
        depth, channels = operator.weights.shape[3], operator.weights.shape[0]
        if operator.window.strides == (1, 1):
            pixels = network.tensors[operator.source].elements // depth
            return (1, pixels, depth), (1, pixels, channels)
    source = network.shape4(operator.source)
    result = network.shape4(operator.result)
    return source[1:], result[1:]


def _gap(
    operator: Convolution | Depthwise, images: tuple[tuple[int, int, int], tuple[int, int, int]]
) -> int | None:
    """Return how far before the input the output has to begin, of products of single pixels."""
    if not isinstance(operator, Convolution) or operator.window.kernel != (1, 1):
        return None
    if operator.window.strides != (1, 1):
        return None
    (_, pixels, depth), (_, _, channels) = images
    return channels + max(0, (pixels - 1) * (channels - depth))


@plain_kernel.register
def _(operator: Pool, network: Network) -> Kernel:
    (_, width, _), (_, out_width, _) = images_of(operator, network)
    window = operator.window
    numbers = {
        **image_extents(operator, network),
        **window.steps(),
        "top": window.top,
        "left": window.left,
        "low": operator.low,
        "high": operator.high,
    }
    return Kernel(
        call=f"{operator.kind}_pool(&{{layer}}, {{in0}}, {{out}});",
        how="plain C",
        snippets=("requantise", "pool", f"{operator.kind}_pool"),
        struct="pool_layer",
        fields=tuple((key, str(value)) for key, value in numbers.items()),
        gap_bytes=0 if window.top == window.left == 0 and out_width <= width else None,
    )


@plain_kernel.register
def _(operator: Reshape, network: Network) -> Kernel:
    """Only for what goes from the model's input to its output: else it is no kernel at all."""
    count = network.tensors[operator.result].elements
    return Kernel(call=f"copy_bytes({{in0}}, {{out}}, {count});", how="a copy", snippets=("copy",))
