"""Kernels in plain C for every operator: right on any core, and what faster ones fall back to.

Kernels that there is one way to write: plain C for sums, products, means, tables and moves.

An LSTM is among them; of it the products alone go by pairs or vectors where a core has them.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import singledispatch

import numpy as np

from adrenoc.base.refused import RefusedError
from adrenoc.firmware.mcu.fixed_point import one_product, results_of, sum_product, sum_range
from adrenoc.firmware.mcu.kernel import Array, FirmwareKernel, fields_of, pair_text
from adrenoc.firmware.mcu.network import Network, image_extents, shape4
from adrenoc.firmware.mcu.operators import (
    Bilinear,
    Convolution,
    Depthwise,
    FloatBilinear,
    FloatPool,
    FloatSoftmax,
    Gate,
    Join,
    Lookup,
    Lstm,
    Mean,
    Move,
    Operator,
    Pool,
    Product,
    Requantise,
    Reshape,
    Softmax,
    Sum,
    Svdf,
    WordSum,
)


@singledispatch
def plain_kernel(operator: Operator, network: Network) -> FirmwareKernel:
    """Return the kernel of an operator in plain C."""
    raise TypeError(type(operator))


def repeat_call(
    operator: Sum | WordSum | Product, network: Network, function: str, counted: str = ""
) -> tuple[str, int, int | None]:
    """Return a call for each part of the first operand that the second one repeats along, its size,
    and the `gap_bytes` of the kernel: none where a part is read again."""
    count = network.tensors[operator.sources[1]].elements
    times = network.tensors[operator.sources[0]].elements // count
    gap = 0 if count == network.tensors[operator.result].elements else None
    last = counted.format(count)
    if times == 1:
        return f"{function}(&{{layer}}, {{in0}}, {{in1}}, {{out}}{last});", count, gap
    step = count * network.tensors[operator.result].width
    first, out = f"{{in0}} + i * {step}", f"{{out}} + i * {step}"
    loop = f"for (int32_t i = 0; i < {times}; ++i)"
    return f"{loop} {function}(&{{layer}}, {first}, {{in1}}, {out}{last});", count, gap


def _one_rule(rule: Requantise) -> dict[str, int]:
    return {
        "multiplier": int(rule.multipliers[0]),
        "shift": int(rule.shifts[0]),
        "zero_out": rule.zero,
        "low": rule.low,
        "high": rule.high,
    }


def _product_rule(operator: Product) -> dict[str, int | str]:
    rule = operator.requantise
    ways: dict[str, int | str] = {"once": 0, "single": 0, "offset": 0}
    if not rule.reals.size:
        return {**ways, **_one_rule(rule)}
    ways |= {"zero_out": rule.zero, "low": rule.low, "high": rule.high}
    ends = [(-128 - zero, 127 - zero) for zero in operator.zeros]
    corners = np.array([[a * b] for a in ends[0] for b in ends[1]])
    try:
        found = [int(v[0]) for v in one_product(rule, corners.min(0), corners.max(0))]
    except RefusedError:
        bits = int(rule.reals.astype(np.float32).view(np.int32)[0])
        return {**ways, "multiplier": bits, "shift": 0, "single": "requantise_single"}
    return {**ways, "multiplier": found[0], "shift": found[1], "once": 1, "offset": found[2]}


@plain_kernel.register
def _(operator: Product, network: Network) -> FirmwareKernel:
    call, count, gap = repeat_call(operator, network, "multiply_tensors")
    zeros = {"zero_first": operator.zeros[0], "zero_second": operator.zeros[1]}
    numbers = {"count": count, **zeros, **_product_rule(operator)}
    return FirmwareKernel(
        call=call,
        how="plain C",
        snippets=("requantise", "multiply_tensors"),
        struct="product_of_two_layer",
        fields=fields_of(numbers),
        gap_bytes=gap,
    )


@plain_kernel.register
def _(operator: Mean, network: Network) -> FirmwareKernel:
    extents = dict(zip(("outer", "count", "inner"), operator.extents, strict=True))
    numbers = {**extents, "zero_in": operator.zero_in, **_one_rule(operator.requantise)}
    return FirmwareKernel(
        call="mean_of_axis(&{layer}, {in0}, {out});",
        how="plain C",
        snippets=("requantise", "mean"),
        struct="mean_layer",
        fields=fields_of(numbers),
    )


@plain_kernel.register
def _(operator: Move, network: Network) -> FirmwareKernel:
    last = operator.offsets[3]
    run = int(len(last) > 1 and (np.diff(last) == 1).all() and last[0] >= 0)
    names = ("first", "second", "third", "fourth")
    pairs = list(zip(names, operator.offsets, strict=True))
    return FirmwareKernel(
        call="move_elements(&{layer}, {in0}, {out});",
        how="tables of offsets",
        snippets=("move_layer", "move"),
        arrays=tuple(Array(suffix=n, ctype="int32_t", values=v) for n, v in pairs),
        struct="move_layer",
        fields=(
            ("extents", "{{" + ", ".join(str(len(v)) for _, v in pairs) + "}}"),
            ("fill", str(operator.fill)),
            ("run", str(run)),
            ("offsets", "{{" + ", ".join("{layer}_" + n for n in names) + "}}"),
        ),
    )


def _bits(number: np.float32) -> int:
    return int(np.float32(number).view(np.int32))


def _float_rule(operator: FloatPool | FloatBilinear) -> dict[str, int]:
    return {
        "scale_in": _bits(operator.scales[0]),
        "scale_out": _bits(operator.scales[1]),
        "zero_in": operator.zeros[0],
        "zero_out": operator.zeros[1],
        "offset": operator.offset,
    }


@plain_kernel.register
def _(operator: FloatPool, network: Network) -> FirmwareKernel:
    numbers = {
        **image_extents(operator, network),
        **operator.window.steps(),
        "top": operator.window.top,
        "left": operator.window.left,
        **_float_rule(operator),
        "whole": int(operator.whole),
    }
    return FirmwareKernel(
        call="float_pool(&{layer}, {in0}, {out});",
        how="plain C, in float32",
        snippets=("requantise", "nearest", "float_pool"),
        struct="float_pool_layer",
        fields=fields_of(numbers),
    )


@plain_kernel.register
def _(operator: Svdf, network: Network) -> FirmwareKernel:
    filters, depth = operator.feature.shape
    arrays = (
        Array(suffix="feature", ctype="int8_t", values=operator.feature),
        Array(suffix="time", ctype="int16_t", values=operator.time),
        Array(suffix="bias", ctype="int32_t", values=operator.bias),
    )
    numbers = {
        "depth": depth,
        "filters": filters,
        "memory": operator.time.shape[1],
        "rank": operator.rank,
        "zero_in": operator.zero_in,
        "kept_multiplier": operator.kept[0],
        "kept_shift": operator.kept[1],
        **_one_rule(operator.requantise),
    }
    return FirmwareKernel(
        call="svdf(&{layer}, {in0}, {out}, (int16_t *)({state}));",
        how="plain C, with a state",
        snippets=("requantise", "svdf"),
        arrays=arrays,
        struct="svdf_layer",
        fields=fields_of(numbers, arrays),
        state_bytes=2 * operator.time.size,
    )


@plain_kernel.register
def _(operator: FloatSoftmax, network: Network) -> FirmwareKernel:
    n, h, w, depth = shape4(network.tensors[operator.result].shape)
    table = operator.exponentials.astype(np.float32).view(np.int32)
    numbers = f"{n * h * w}, {depth}, {_bits(operator.scale)}, {operator.zero}"
    return FirmwareKernel(
        call=f"float_softmax({{layer}}_exponentials, {{in0}}, {{out}}, {numbers});",
        how="a table, in float32",
        snippets=("requantise", "nearest", "float_softmax"),
        arrays=(Array(suffix="exponentials", ctype="int32_t", values=table),),
        gap_bytes=0,
    )


def _between(
    operator: Bilinear | FloatBilinear, network: Network, ctypes: dict[str, str]
) -> tuple[list[Array], dict[str, int]]:
    """Return what both axes of a resized image read and weigh, and its extents."""
    _, _, width, channels = network.shape4(operator.source)
    _, out_height, out_width, _ = network.shape4(operator.result)
    arrays = []
    for axis, between in (("row", operator.rows), ("column", operator.columns)):
        for name, ctype in ctypes.items():
            values = getattr(between, name)
            values = values.astype(np.float32).view(np.int32) if ctype == "int32_t" else values
            suffix = f"{name.removesuffix('s')}_{axis}"
            arrays.append(Array(suffix=suffix, ctype=ctype, values=values))
    numbers = {"in_width": width, "channels": channels}
    return arrays, {**numbers, "out_height": out_height, "out_width": out_width}


@plain_kernel.register
def _(operator: Bilinear, network: Network) -> FirmwareKernel:
    ctypes = dict.fromkeys(("first", "second", "weights"), "int16_t")
    arrays, numbers = _between(operator, network, ctypes)
    return FirmwareKernel(
        call="resize_bilinear(&{layer}, {in0}, {out});",
        how="plain C",
        snippets=("bilinear_layer", "resize_bilinear"),
        arrays=tuple(arrays),
        struct="bilinear_layer",
        fields=fields_of(numbers, arrays),
    )


@plain_kernel.register
def _(operator: FloatBilinear, network: Network) -> FirmwareKernel:
    places = dict.fromkeys(("first", "second"), "int16_t")
    shares = dict.fromkeys(("of_first", "of_second"), "int32_t")
    arrays, numbers = _between(operator, network, places | shares)
    return FirmwareKernel(
        call="float_bilinear(&{layer}, {in0}, {out});",
        how="plain C, in float32",
        snippets=("requantise", "nearest", "float_bilinear"),
        arrays=tuple(arrays),
        struct="float_bilinear_layer",
        fields=fields_of(numbers | _float_rule(operator), arrays),
    )


@plain_kernel.register
def _(operator: Join, network: Network) -> FirmwareKernel:
    stride, calls, at = sum(operator.chunks), [], 0
    for number, chunk in enumerate(operator.chunks):
        place = f"{{in{number}}}, {{out}} + {at}"
        calls.append(f"join_part({place}, {operator.count}, {chunk}, {stride});")
        at += chunk
    return FirmwareKernel(call=" ".join(calls), how="copies", snippets=("join",))


@plain_kernel.register
def _(operator: Lookup, network: Network) -> FirmwareKernel:
    count = network.tensors[operator.result].elements
    return FirmwareKernel(
        call=f"look_up({{layer}}_table, {{in0}}, {{out}}, {count});",
        how="a table",
        snippets=("look_up",),
        arrays=(Array(suffix="table", ctype="int8_t", values=operator.table),),
        gap_bytes=0,
    )


@plain_kernel.register
def _(operator: Sum, network: Network) -> FirmwareKernel:
    try:
        return _lines(operator, network)
    except RefusedError:
        return _tables(operator, network)


def _lines(operator: Sum, network: Network) -> FirmwareKernel:
    product = sum_product(operator)
    call, _, gap = repeat_call(operator, network, "add_lines", ", {}")
    bounds = {"low": operator.requantise.low, "high": operator.requantise.high}
    numbers = {**asdict(product), **bounds}
    return FirmwareKernel(
        call=call,
        how="two products",
        snippets=("requantise", "add_lines"),
        struct="line_layer",
        fields=fields_of(numbers),
        gap_bytes=gap,
    )


def _pairs(operator: Sum, network: Network) -> FirmwareKernel:
    call, _, gap = repeat_call(operator, network, "look_up_pairs", ", {}")
    return FirmwareKernel(
        call=call.replace("&{layer}", "{layer}_pairs"),
        how="a table of pairs",
        snippets=("look_up_pairs",),
        arrays=(Array(suffix="pairs", ctype="int8_t", values=results_of(operator)),),
        gap_bytes=gap,
    )


def _tables(operator: Sum, network: Network) -> FirmwareKernel:
    if operator.wanted is not None:
        return _pairs(operator, network)
    call, count, gap = repeat_call(operator, network, "add_tensors")
    arrays = tuple(
        Array(suffix=suffix, ctype="int32_t", values=table)
        for suffix, table in zip(("first", "second"), operator.tables, strict=True)
    )
    numbers = {"count": count, **_one_rule(operator.requantise)}
    fields = [(array.suffix, "{layer}_" + array.suffix) for array in arrays]
    return FirmwareKernel(
        call=call,
        how="two tables",
        snippets=("requantise", "add_tensors"),
        arrays=arrays,
        struct="sum_layer",
        fields=(*fields, *fields_of(numbers)),
        gap_bytes=gap,
    )


@plain_kernel.register
def _(operator: Softmax, network: Network) -> FirmwareKernel:
    n, h, w, depth = shape4(network.tensors[operator.result].shape)
    return FirmwareKernel(
        call=f"softmax({{layer}}_exponentials, {{in0}}, {{out}}, {n * h * w}, {depth});",
        how="a table",
        snippets=("requantise", "softmax"),
        arrays=(Array(suffix="exponentials", ctype="int32_t", values=operator.exponentials),),
        gap_bytes=0,
    )


_COMMON = ("requantise", "short_functions", "pairs", "add_two", "byte_dot")


@plain_kernel.register
def _(operator: Lstm, network: Network) -> FirmwareKernel:
    """Keeps cells of int16 and the last result."""
    cells, depth = operator.gates[1].weights[0].shape
    rows = network.tensors[operator.result].elements // cells
    arrays, texts = [], []
    for place, gate in enumerate(operator.gates):
        constants = [] if gate is None else _constants(gate, f"gate{place}_")
        arrays += constants
        # What is left out is null.
        text = "0" if gate is None else _text(gate, constants)
        texts.append("{{" + text + "}}")
    norms = any(gate is not None and gate.norm is not None for gate in operator.gates)
    numbers = {
        "rows": rows,
        "depth": depth,
        "cells": cells,
        "cell_bits": operator.cell_bits,
        "clip": operator.clip,
        "zero_out": operator.zero,
    }
    return FirmwareKernel(
        call="lstm(&{layer}, {in0}, {out}, (int16_t *)({state}), (int16_t *)({scratch}));",
        how="an LSTM, with a state",
        snippets=(*_COMMON, *(("lstm_norm",) if norms else ()), "lstm"),
        arrays=tuple(arrays),
        struct="lstm_layer",
        fields=(
            *fields_of(numbers),
            ("hidden", pair_text(operator.hidden)),
            ("gates", "{{" + ", ".join(texts) + "}}"),
        ),
        scratch_bytes=4 * 2 * cells,
        state_bytes=3 * cells,
        state_end=(cells, operator.start),
    )


def _constants(gate: Gate, prefix: str) -> list[Array]:
    found = []
    ends = ("input", "recurrent")
    for end, weights, bias in zip(ends, gate.weights, gate.biases, strict=True):
        found.append(Array(suffix=prefix + end, ctype="int8_t", values=weights))
        found.append(Array(suffix=prefix + end + "_bias", ctype="int32_t", values=bias))
    if gate.norm is not None:
        weights, bias = gate.norm.weights, gate.norm.bias
        found.append(Array(suffix=prefix + "norm", ctype="int16_t", values=weights))
        found.append(Array(suffix=prefix + "norm_bias", ctype="int32_t", values=bias))
    return found


def _text(gate: Gate, constants: list[Array]) -> str:
    """Return a gate as C initialises it."""
    parts = {a.suffix.split("_", 1)[1]: "{layer}_" + a.suffix for a in constants}
    factors = zip(("input_factor", "recurrent_factor"), gate.factors, strict=True)
    parts |= {name: pair_text(factor) for name, factor in factors}
    if gate.norm is not None:
        parts["normalise"] = "lstm_norm"
        parts["norm_factor"] = pair_text(gate.norm.factor)
        parts["guard"] = str(gate.norm.guard)
    return ", ".join(f".{name} = {text}" for name, text in parts.items())


@plain_kernel.register
def _(operator: Convolution, network: Network) -> FirmwareKernel:
    return _filter_kernel(operator, network, "plain_convolution")


@plain_kernel.register
def _(operator: Depthwise, network: Network) -> FirmwareKernel:
    return _filter_kernel(operator, network, "plain_depthwise")


def _filter_kernel(
    operator: Convolution | Depthwise, network: Network, name: str
) -> FirmwareKernel:
    if isinstance(operator, Convolution) and operator.joined is not None:
        raise TypeError("a sum was given to a convolution whose own code has no place for it")
    arrays, fields = plain_parts(operator, network)
    return FirmwareKernel(
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
    fields = list(fields_of(numbers))
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
def _(operator: Pool, network: Network) -> FirmwareKernel:
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
    return FirmwareKernel(
        call=f"{operator.kind}_pool(&{{layer}}, {{in0}}, {{out}});",
        how="plain C",
        snippets=("requantise", "pool", f"{operator.kind}_pool"),
        struct="pool_layer",
        fields=fields_of(numbers),
        gap_bytes=0 if window.top == window.left == 0 and out_width <= width else None,
    )


@plain_kernel.register
def _(operator: Reshape, network: Network) -> FirmwareKernel:
    """Only for what goes from the model's input to its output: else it is no kernel at all."""
    size = network.tensors[operator.result].size_bytes
    return FirmwareKernel(
        call=f"copy_bytes({{in0}}, {{out}}, {size});", how="a copy", snippets=("copy",)
    )
