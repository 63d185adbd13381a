"""Kernels that there is one way to write: plain C for sums, products, means, tables and moves.

An LSTM is among them; of it the products alone go by pairs or vectors where a core has them.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import singledispatch

import numpy as np

from adrenoc.base.refused import RefusedError
from adrenoc.firmware.mcu.kernel import Array, Kernel, pair_text
from adrenoc.firmware.mcu.network import Network, image_extents, shape4
from adrenoc.firmware.mcu.operators import (
    Bilinear,
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
    Product,
    Requantise,
    Softmax,
    Sum,
    Svdf,
    WordSum,
)
from adrenoc.firmware.mcu.sum_product import results_of, sum_product
from adrenoc.firmware.mcu.wide_product import one_product


@singledispatch
def elementwise_kernel(operator: Operator, network: Network) -> Kernel:
    """Return the kernel of an operator in plain C."""
    raise TypeError(type(operator))


def repeat_call(
    operator: Sum | WordSum | Product, network: Network, function: str, counted: str = ""
) -> tuple[str, int]:
    """Return a call for each part of the first operand that the second one repeats along, and its
    size."""
    count = network.tensors[operator.sources[1]].elements
    times = network.tensors[operator.sources[0]].elements // count
    last = counted.format(count)
    if times == 1:
        return f"{function}(&{{layer}}, {{in0}}, {{in1}}, {{out}}{last});", count
    step = count * network.tensors[operator.result].width
    first, out = f"{{in0}} + i * {step}", f"{{out}} + i * {step}"
    loop = f"for (int32_t i = 0; i < {times}; ++i)"
    return f"{loop} {function}(&{{layer}}, {first}, {{in1}}, {out}{last});", count


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


@elementwise_kernel.register
def _(operator: Product, network: Network) -> Kernel:
    call, count = repeat_call(operator, network, "multiply_tensors")
    zeros = {"zero_first": operator.zeros[0], "zero_second": operator.zeros[1]}
    numbers = {"count": count, **zeros, **_product_rule(operator)}
    return Kernel(
        call=call,
        how="plain C",
        snippets=("requantise", "multiply_tensors"),
        struct="product_of_two_layer",
        fields=tuple((key, str(value)) for key, value in numbers.items()),
        gap_bytes=0 if count == network.tensors[operator.result].elements else None,
    )


@elementwise_kernel.register
def _(operator: Mean, network: Network) -> Kernel:
    extents = dict(zip(("outer", "count", "inner"), operator.extents, strict=True))
    numbers = {**extents, "zero_in": operator.zero_in, **_one_rule(operator.requantise)}
    return Kernel(
        call="mean_of_axis(&{layer}, {in0}, {out});",
        how="plain C",
        snippets=("requantise", "mean"),
        struct="mean_layer",
        fields=tuple((key, str(value)) for key, value in numbers.items()),
    )


@elementwise_kernel.register
def _(operator: Move, network: Network) -> Kernel:
    last = operator.offsets[3]
    run = int(len(last) > 1 and (np.diff(last) == 1).all() and last[0] >= 0)
    names = ("first", "second", "third", "fourth")
    pairs = list(zip(names, operator.offsets, strict=True))
    return Kernel(
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


@elementwise_kernel.register
def _(operator: FloatPool, network: Network) -> Kernel:
    numbers = {
        **image_extents(operator, network),
        **operator.window.steps(),
        "top": operator.window.top,
        "left": operator.window.left,
        "scale_in": _bits(operator.scales[0]),
        "scale_out": _bits(operator.scales[1]),
        "zero_in": operator.zeros[0],
        "zero_out": operator.zeros[1],
        "offset": operator.offset,
        "whole": int(operator.whole),
    }
    return Kernel(
        call="float_pool(&{layer}, {in0}, {out});",
        how="plain C, in float32",
        snippets=("requantise", "nearest", "float_pool"),
        struct="float_pool_layer",
        fields=tuple((key, str(value)) for key, value in numbers.items()),
    )


@elementwise_kernel.register
def _(operator: Svdf, network: Network) -> Kernel:
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
    return Kernel(
        call="svdf(&{layer}, {in0}, {out}, (int16_t *)({state}));",
        how="plain C, with a state",
        snippets=("requantise", "svdf"),
        arrays=arrays,
        struct="svdf_layer",
        fields=(
            *((key, str(value)) for key, value in numbers.items()),
            *((array.suffix, "{layer}_" + array.suffix) for array in arrays),
        ),
        state_bytes=2 * operator.time.size,
    )


@elementwise_kernel.register
def _(operator: Lstm, network: Network) -> Kernel:
    return lstm_kernel(operator, network)


@elementwise_kernel.register
def _(operator: FloatSoftmax, network: Network) -> Kernel:
    n, h, w, depth = shape4(network.tensors[operator.result].shape)
    table = operator.exponentials.astype(np.float32).view(np.int32)
    numbers = f"{n * h * w}, {depth}, {_bits(operator.scale)}, {operator.zero}"
    return Kernel(
        call=f"float_softmax({{layer}}_exponentials, {{in0}}, {{out}}, {numbers});",
        how="a table, in float32",
        snippets=("requantise", "nearest", "float_softmax"),
        arrays=(Array(suffix="exponentials", ctype="int32_t", values=table),),
        gap_bytes=0,
    )


@elementwise_kernel.register
def _(operator: Bilinear, network: Network) -> Kernel:
    _, _, width, channels = network.shape4(operator.source)
    _, out_height, out_width, _ = network.shape4(operator.result)
    arrays = []
    ends = (("first", "first"), ("second", "second"), ("weight", "weights"))
    for axis, between in (("row", operator.rows), ("column", operator.columns)):
        for name, key in ends:
            values = getattr(between, key)
            arrays.append(Array(suffix=f"{name}_{axis}", ctype="int16_t", values=values))
    numbers = {"in_width": width, "channels": channels}
    numbers |= {"out_height": out_height, "out_width": out_width}
    return Kernel(
        call="resize_bilinear(&{layer}, {in0}, {out});",
        how="plain C",
        snippets=("bilinear_layer", "resize_bilinear"),
        arrays=tuple(arrays),
        struct="bilinear_layer",
        fields=(
            *((key, str(value)) for key, value in numbers.items()),
            *((array.suffix, "{layer}_" + array.suffix) for array in arrays),
        ),
    )


@elementwise_kernel.register
def _(operator: FloatBilinear, network: Network) -> Kernel:
    _, _, width, channels = network.shape4(operator.source)
    _, out_height, out_width, _ = network.shape4(operator.result)
    arrays = []
    for axis, between in (("row", operator.rows), ("column", operator.columns)):
        for name in ("first", "second"):
            values = getattr(between, name)
            arrays.append(Array(suffix=f"{name}_{axis}", ctype="int16_t", values=values))
        for name in ("of_first", "of_second"):
            bits = getattr(between, name).astype(np.float32).view(np.int32)
            arrays.append(Array(suffix=f"{name}_{axis}", ctype="int32_t", values=bits))
    numbers = {
        "in_width": width,
        "channels": channels,
        "out_height": out_height,
        "out_width": out_width,
        "scale_in": _bits(operator.scales[0]),
        "scale_out": _bits(operator.scales[1]),
        "zero_in": operator.zeros[0],
        "zero_out": operator.zeros[1],
        "offset": operator.offset,
    }
    return Kernel(
        call="float_bilinear(&{layer}, {in0}, {out});",
        how="plain C, in float32",
        snippets=("requantise", "nearest", "float_bilinear"),
        arrays=tuple(arrays),
        struct="float_bilinear_layer",
        fields=(
            *((key, str(value)) for key, value in numbers.items()),
            *((array.suffix, "{layer}_" + array.suffix) for array in arrays),
        ),
    )


@elementwise_kernel.register
def _(operator: Join, network: Network) -> Kernel:
    stride, calls, at = sum(operator.chunks), [], 0
    for number, chunk in enumerate(operator.chunks):
        place = f"{{in{number}}}, {{out}} + {at}"
        calls.append(f"join_part({place}, {operator.count}, {chunk}, {stride});")
        at += chunk
    return Kernel(call=" ".join(calls), how="copies", snippets=("join",))


@elementwise_kernel.register
def _(operator: Lookup, network: Network) -> Kernel:
    count = network.tensors[operator.result].elements
    return Kernel(
        call=f"look_up({{layer}}_table, {{in0}}, {{out}}, {count});",
        how="a table",
        snippets=("look_up",),
        arrays=(Array(suffix="table", ctype="int8_t", values=operator.table),),
        gap_bytes=0,
    )


@elementwise_kernel.register
def _(operator: Sum, network: Network) -> Kernel:
    try:
        return _lines(operator, network)
    except RefusedError:
        return _tables(operator, network)


def _lines(operator: Sum, network: Network) -> Kernel:
    product = sum_product(operator)
    call, count = repeat_call(operator, network, "add_lines", ", {}")
    bounds = {"low": operator.requantise.low, "high": operator.requantise.high}
    numbers = {**asdict(product), **bounds}
    return Kernel(
        call=call,
        how="two products",
        snippets=("requantise", "add_lines"),
        struct="line_layer",
        fields=tuple((key, str(value)) for key, value in numbers.items()),
        gap_bytes=0 if count == network.tensors[operator.result].elements else None,
    )


def _pairs(operator: Sum, network: Network) -> Kernel:
    call, count = repeat_call(operator, network, "look_up_pairs", ", {}")
    return Kernel(
        call=call.replace("&{layer}", "{layer}_pairs"),
        how="a table of pairs",
        snippets=("look_up_pairs",),
        arrays=(Array(suffix="pairs", ctype="int8_t", values=results_of(operator)),),
        gap_bytes=0 if count == network.tensors[operator.result].elements else None,
    )


def _tables(operator: Sum, network: Network) -> Kernel:
    if operator.wanted is not None:
        return _pairs(operator, network)
    call, count = repeat_call(operator, network, "add_tensors")
    arrays = tuple(
        Array(suffix=suffix, ctype="int32_t", values=table)
        for suffix, table in zip(("first", "second"), operator.tables, strict=True)
    )
    numbers = {"count": count, **_one_rule(operator.requantise)}
    fields = [(array.suffix, "{layer}_" + array.suffix) for array in arrays]
    return Kernel(
        call=call,
        how="two tables",
        snippets=("requantise", "add_tensors"),
        arrays=arrays,
        struct="sum_layer",
        fields=(*fields, *((key, str(value)) for key, value in numbers.items())),
        gap_bytes=0 if count == network.tensors[operator.result].elements else None,
    )


@elementwise_kernel.register
def _(operator: Softmax, network: Network) -> Kernel:
    n, h, w, depth = shape4(network.tensors[operator.result].shape)
    return Kernel(
        call=f"softmax({{layer}}_exponentials, {{in0}}, {{out}}, {n * h * w}, {depth});",
        how="a table",
        snippets=("requantise", "softmax"),
        arrays=(Array(suffix="exponentials", ctype="int32_t", values=operator.exponentials),),
        gap_bytes=0,
    )


_COMMON = ("requantise", "short_functions", "pairs", "add_two", "byte_dot")


def lstm_kernel(operator: Lstm, network: Network) -> Kernel:
    """Return the kernel, which keeps cells of int16 and the last result."""
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
    return Kernel(
        call="lstm(&{layer}, {in0}, {out}, (int16_t *)({state}), (int16_t *)({scratch}));",
        how="an LSTM, with a state",
        snippets=(*_COMMON, *(("lstm_norm",) if norms else ()), "lstm"),
        arrays=tuple(arrays),
        struct="lstm_layer",
        fields=(
            *((key, str(value)) for key, value in numbers.items()),
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
