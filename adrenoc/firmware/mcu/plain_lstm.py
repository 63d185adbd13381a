"""The kernel of an LSTM: its products by pairs or vectors, the rest in plain C."""

from __future__ import annotations

from adrenoc.firmware.mcu.kernel import Array, Kernel, pair_text
from adrenoc.firmware.mcu.network import Network
from adrenoc.firmware.mcu.operators import Gate, Lstm

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
