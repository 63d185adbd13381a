"""Kernels in plain C for every operator: right on any core, and what faster ones fall back to. Of
an LSTM the products alone go by pairs or vectors where a core has them."""

from dataclasses import asdict
from functools import singledispatch
from typing import Any

import numpy as np

from adrenoc.base.errors import RefusedError
from adrenoc.firmware.mcu import operators as op
from adrenoc.firmware.mcu.fixed_point import one_product, results_of, sum_product, sum_range
from adrenoc.firmware.mcu.kernel import (
    Array,
    Fields,
    FirmwareKernel,
    fields_of,
    layer_kernel,
    pair_text,
)
from adrenoc.firmware.mcu.network import Network, image_fields


@singledispatch
def plain_kernel(operator: op.Operator, network: Network) -> FirmwareKernel:
    """Return the kernel of an operator in plain C."""
    raise TypeError(type(operator))


def pair_kernel(
    operator: op.TwoSources, network: Network, call: str, **others: Any
) -> FirmwareKernel:
    """Return a kernel that calls a function for each part of the first operand that the second one
    repeats along: where it does, no result may lie over what is read again."""
    first, second = (network.tensors[index].elements for index in operator.sources)
    result = network.tensors[operator.result]
    if first > second:
        for place in ("{in0}", "{out}"):
            call = call.replace(place, f"{place} + i * {second * result.width}")
        call = f"for (int32_t i = 0; i < {first // second}; ++i) {call}"
    gap = 0 if second == result.elements else None
    return FirmwareKernel(call=call, gap_bytes=gap, **others)


def _bounds(rule: op.Requantise | op.Pool) -> dict[str, int]:
    return {"low": rule.low, "high": rule.high}


def _one_rule(rule: op.Requantise) -> dict[str, int]:
    factor = {"multiplier": int(rule.multipliers[0]), "shift": int(rule.shifts[0])}
    return {**factor, "zero_out": rule.zero, **_bounds(rule)}


def _product_rule(operator: op.Product) -> dict[str, int | str]:
    rule = operator.requantise
    ways: dict[str, int | str] = {"once": 0, "single": 0, "offset": 0}
    if not rule.reals.size:
        return {**ways, **_one_rule(rule)}
    ways |= {"zero_out": rule.zero, **_bounds(rule)}
    ends = [(-128 - zero, 127 - zero) for zero in operator.zeros]
    corners = np.array([[a * b] for a in ends[0] for b in ends[1]])
    try:
        found = [int(v[0]) for v in one_product(rule, corners.min(0), corners.max(0))]
    except RefusedError:
        bits = _bits(rule.reals[0])
        return {**ways, "multiplier": bits, "shift": 0, "single": "requantise_single"}
    return {**ways, "multiplier": found[0], "shift": found[1], "once": 1, "offset": found[2]}


@plain_kernel.register
def _(operator: op.Product, network: Network) -> FirmwareKernel:
    count = network.tensors[operator.sources[1]].elements
    zeros = {"zero_first": operator.zeros[0], "zero_second": operator.zeros[1]}
    return pair_kernel(
        operator,
        network,
        "multiply_tensors(&{layer}, {in0}, {in1}, {out});",
        how="plain C",
        snippets=("requantise", "multiply_tensors"),
        struct="product_of_two_layer",
        fields=fields_of({"count": count, **zeros, **_product_rule(operator)}),
    )


@plain_kernel.register
def _(operator: op.Mean, network: Network) -> FirmwareKernel:
    extents = dict(zip(("outer", "count", "inner"), operator.extents, strict=True))
    numbers = {**extents, "zero_in": operator.zero_in, **_one_rule(operator.requantise)}
    return layer_kernel("mean_of_axis", "mean_layer", numbers, snippets=("requantise", "mean"))


@plain_kernel.register
def _(operator: op.Move, network: Network) -> FirmwareKernel:
    last = operator.offsets[3]
    run = int(len(last) > 1 and (np.diff(last) == 1).all() and last[0] >= 0)
    names = ("first", "second", "third", "fourth")
    pairs = zip(names, operator.offsets, strict=True)
    numbers = {
        "extents": "{{" + ", ".join(str(len(v)) for v in operator.offsets) + "}}",
        "fill": operator.fill,
        "run": run,
        "offsets": "{{" + ", ".join("{layer}_" + n for n in names) + "}}",
    }
    return FirmwareKernel(
        call="move_elements(&{layer}, {in0}, {out});",
        how="tables of offsets",
        snippets=("move_layer", "move"),
        arrays=tuple(Array(suffix=n, ctype="int32_t", values=v) for n, v in pairs),
        struct="move_layer",
        fields=fields_of(numbers),
    )


def _bits(number: np.float32) -> int:
    return int(np.float32(number).view(np.int32))


def _float_rule(operator: op.FloatImage) -> dict[str, int]:
    scales, zeros = operator.scales, operator.zeros
    rule = {"scale_in": _bits(scales[0]), "scale_out": _bits(scales[1])}
    return {**rule, "zero_in": zeros[0], "zero_out": zeros[1], "offset": operator.offset}


@plain_kernel.register
def _(operator: op.FloatPool, network: Network) -> FirmwareKernel:
    numbers = {**image_fields(operator, network), **operator.window.fields()}
    numbers |= {**_float_rule(operator), "whole": int(operator.whole)}
    snippets = ("requantise", "nearest", "float_pool")
    how = "plain C, in float32"
    return layer_kernel("float_pool", "float_pool_layer", numbers, how=how, snippets=snippets)


@plain_kernel.register
def _(operator: op.Svdf, network: Network) -> FirmwareKernel:
    filters, depth = operator.feature.shape
    arrays = (
        Array(suffix="feature", ctype="int8_t", values=operator.feature),
        Array(suffix="time", ctype="int16_t", values=operator.time),
        Array(suffix="bias", ctype="int32_t", values=operator.bias),
    )
    numbers = {"depth": depth, "filters": filters, "memory": operator.time.shape[1]}
    numbers |= {"rank": operator.rank, "zero_in": operator.zero_in}
    numbers |= dict(zip(("kept_multiplier", "kept_shift"), operator.kept, strict=True))
    return layer_kernel(
        "svdf",
        "svdf_layer",
        numbers | _one_rule(operator.requantise),
        arrays,
        more=", (int16_t *)({state})",
        how="plain C, with a state",
        snippets=("requantise", "svdf"),
        state_bytes=2 * operator.time.size,
    )


@plain_kernel.register
def _(operator: op.FloatSoftmax, network: Network) -> FirmwareKernel:
    made = network.tensors[operator.result]
    table = operator.exponentials.astype(np.float32).view(np.int32)
    numbers = f"{made.rows}, {made.shape[-1]}, {_bits(operator.scale)}, {operator.zero}"
    return FirmwareKernel(
        call=f"float_softmax({{layer}}_exponentials, {{in0}}, {{out}}, {numbers});",
        how="a table, in float32",
        snippets=("requantise", "nearest", "float_softmax"),
        arrays=(Array(suffix="exponentials", ctype="int32_t", values=table),),
        gap_bytes=0,
    )


def _between(
    operator: op.Bilinear | op.FloatBilinear, network: Network, ctypes: dict[str, str]
) -> tuple[dict[str, int], list[Array]]:
    """Return the extents of a resized image, and what both of its axes read and weigh."""
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
    return {**numbers, "out_height": out_height, "out_width": out_width}, arrays


@plain_kernel.register
def _(operator: op.Bilinear, network: Network) -> FirmwareKernel:
    ctypes = dict.fromkeys(("first", "second", "weights"), "int16_t")
    parts = _between(operator, network, ctypes)
    snippets = ("bilinear_layer", "resize_bilinear")
    return layer_kernel("resize_bilinear", "bilinear_layer", *parts, snippets=snippets)


@plain_kernel.register
def _(operator: op.FloatBilinear, network: Network) -> FirmwareKernel:
    places = dict.fromkeys(("first", "second"), "int16_t")
    shares = dict.fromkeys(("of_first", "of_second"), "int32_t")
    numbers, arrays = _between(operator, network, places | shares)
    return layer_kernel(
        "float_bilinear",
        "float_bilinear_layer",
        numbers | _float_rule(operator),
        arrays,
        how="plain C, in float32",
        snippets=("requantise", "nearest", "float_bilinear"),
    )


@plain_kernel.register
def _(operator: op.Join, network: Network) -> FirmwareKernel:
    stride, calls, at = sum(operator.chunks), [], 0
    for number, chunk in enumerate(operator.chunks):
        place = f"{{in{number}}}, {{out}} + {at}"
        calls.append(f"join_part({place}, {operator.count}, {chunk}, {stride});")
        at += chunk
    return FirmwareKernel(call=" ".join(calls), how="copies", snippets=("join",))


@plain_kernel.register
def _(operator: op.Lookup, network: Network) -> FirmwareKernel:
    count = network.tensors[operator.result].elements
    return FirmwareKernel(
        call=f"look_up({{layer}}_table, {{in0}}, {{out}}, {count});",
        how="a table",
        snippets=("look_up",),
        arrays=(Array(suffix="table", ctype="int8_t", values=operator.table),),
        gap_bytes=0,
    )


@plain_kernel.register
def _(operator: op.Sum, network: Network) -> FirmwareKernel:
    """Two products where they give the sum, else a table of pairs or of each operand."""
    count = network.tensors[operator.sources[1]].elements
    try:
        numbers = asdict(sum_product(operator)) | _bounds(operator.requantise)
        return pair_kernel(
            operator,
            network,
            f"add_lines(&{{layer}}, {{in0}}, {{in1}}, {{out}}, {count});",
            how="two products",
            snippets=("requantise", "add_lines"),
            struct="line_layer",
            fields=fields_of(numbers),
        )
    except RefusedError:
        pass
    if operator.wanted is not None:
        return pair_kernel(
            operator,
            network,
            f"look_up_pairs({{layer}}_pairs, {{in0}}, {{in1}}, {{out}}, {count});",
            how="a table of pairs",
            snippets=("look_up_pairs",),
            arrays=(Array(suffix="pairs", ctype="int8_t", values=results_of(operator)),),
        )
    tables = zip(("first", "second"), operator.tables, strict=True)
    arrays = tuple(Array(suffix=n, ctype="int32_t", values=table) for n, table in tables)
    return pair_kernel(
        operator,
        network,
        "add_tensors(&{layer}, {in0}, {in1}, {out});",
        how="two tables",
        snippets=("requantise", "add_tensors"),
        arrays=arrays,
        struct="sum_layer",
        fields=fields_of(arrays, {"count": count, **_one_rule(operator.requantise)}),
    )


@plain_kernel.register
def _(operator: op.Softmax, network: Network) -> FirmwareKernel:
    made = network.tensors[operator.result]
    numbers = f"{made.rows}, {made.shape[-1]}"
    return FirmwareKernel(
        call=f"softmax({{layer}}_exponentials, {{in0}}, {{out}}, {numbers});",
        how="a table",
        snippets=("requantise", "softmax"),
        arrays=(Array(suffix="exponentials", ctype="int32_t", values=operator.exponentials),),
        gap_bytes=0,
    )


@plain_kernel.register
def _(operator: op.Lstm, network: Network) -> FirmwareKernel:
    """Keeps cells of int16 and the last result."""
    cells, depth = operator.gates[1].weights[0].shape
    arrays, texts = [], []
    for place, gate in enumerate(operator.gates):
        constants = [] if gate is None else _constants(gate, f"gate{place}_")
        arrays += constants
        # What is left out is null.
        text = "0" if gate is None else _text(gate, constants)
        texts.append("{{" + text + "}}")
    norms = any(gate is not None and gate.norm is not None for gate in operator.gates)
    numbers: dict[str, int | str] = {
        "rows": network.tensors[operator.result].elements // cells,
        "depth": depth,
        "cells": cells,
        "cell_bits": operator.cell_bits,
        "clip": operator.clip,
        "zero_out": operator.zero,
        "hidden": pair_text(operator.hidden),
        "gates": "{{" + ", ".join(texts) + "}}",
    }
    common = ("requantise", "short_functions", "pairs", "add_two", "byte_dot")
    return FirmwareKernel(
        call="lstm(&{layer}, {in0}, {out}, (int16_t *)({state}), (int16_t *)({scratch}));",
        how="an LSTM, with a state",
        snippets=(*common, *(("lstm_norm",) if norms else ()), "lstm"),
        arrays=tuple(arrays),
        struct="lstm_layer",
        fields=fields_of(numbers),
        scratch_bytes=4 * 2 * cells,
        state_bytes=3 * cells,
        state_end=(cells, operator.start),
    )


def _constants(gate: op.Gate, prefix: str) -> list[Array]:
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


def _text(gate: op.Gate, constants: list[Array]) -> str:
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
def _(operator: op.Filter, network: Network) -> FirmwareKernel:
    name = "plain_convolution" if isinstance(operator, op.Convolution) else "plain_depthwise"
    gap = None
    if isinstance(operator, op.Convolution):
        if operator.joined is not None:
            raise TypeError("a sum was given to a convolution whose own code has no place for it")
        if operator.is_dense:
            (_, pixels, depth), (_, _, channels) = images_of(operator, network)
            gap = channels + max(0, (pixels - 1) * (channels - depth))
    arrays, fields = plain_parts(operator, network)
    return FirmwareKernel(
        call=name + "(&{layer}, {in0}, {out});",
        how="plain C",
        snippets=("requantise", "plain_layer", name),
        arrays=arrays,
        struct="plain_layer",
        fields=fields,
        gap_bytes=gap,
    )


def plain_parts(operator: op.Filter, network: Network) -> tuple[tuple[Array, ...], Fields]:
    """Return the constants of a filter and the fields of its `plain_layer`."""
    rule = operator.requantise
    arrays = [
        Array(suffix="weights", ctype="int8_t", values=operator.weights),
        Array(suffix="bias", ctype="int32_t", values=operator.bias),
    ]
    multipliers, shifts, single = rule.multipliers, rule.shifts, "0"
    if rule.reals.size:
        try:
            multipliers, shifts, offsets = one_product(rule, *sum_range(operator))
            arrays.append(Array(suffix="offset", ctype="int64_t", values=offsets))
        except RefusedError:
            if rule.reals.dtype != np.float32:
                raise
            single = "requantise_single"
            multipliers, shifts = rule.reals.view(np.int32), np.zeros(len(rule.reals), np.int64)
    arrays.append(Array(suffix="multiplier", ctype="int32_t", values=multipliers))
    arrays.append(Array(suffix="shift", ctype="int8_t", values=shifts))
    numbers = {**window_numbers(operator, network), "zero_in": operator.zero_in}
    numbers |= {"zero_out": rule.zero, **_bounds(rule)}
    return tuple(arrays), fields_of(numbers, {"single": single}, arrays)


def window_numbers(operator: op.Filter, network: Network) -> dict[str, int]:
    """Images and window by the names that structs of filters have for them."""
    images = images_of(operator, network)
    numbers = dict(zip(("in_height", "in_width", "in_channels"), images[0], strict=True))
    numbers |= dict(zip(("out_height", "out_width", "out_channels"), images[1], strict=True))
    return numbers | operator.window.fields(dilated=True)


def images_of(
    operator: op.Filter, network: Network
) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """H, W, C of what is read and what is made; the rows of a dense layer are pixels."""
    if isinstance(operator, op.Convolution) and operator.is_dense:
        channels, _, _, depth = operator.weights.shape
        pixels = network.tensors[operator.source].elements // depth
        return (1, pixels, depth), (1, pixels, channels)
    return network.shape4(operator.source)[1:], network.shape4(operator.result)[1:]


@plain_kernel.register
def _(operator: op.Pool, network: Network) -> FirmwareKernel:
    name, window = f"{operator.kind}_pool", operator.window
    images = image_fields(operator, network)
    inside = window.top == window.left == 0 and images["out_width"] <= images["in_width"]
    numbers = {**images, **window.fields(), **_bounds(operator)}
    snippets = ("requantise", "pool", name)
    gap = 0 if inside else None
    return layer_kernel(name, "pool_layer", numbers, snippets=snippets, gap_bytes=gap)


@plain_kernel.register
def _(operator: op.Reshape, network: Network) -> FirmwareKernel:
    """Only for what goes from the model's input to its output: else it is no kernel at all."""
    size = network.tensors[operator.result].size_bytes
    return FirmwareKernel(
        call=f"copy_bytes({{in0}}, {{out}}, {size});", how="a copy", snippets=("copy",)
    )
