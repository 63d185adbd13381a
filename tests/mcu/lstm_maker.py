"""LSTMs of TFLite for the maker of int8 networks: every scale, weight and zero point is drawn."""

from dataclasses import replace
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.mcu.maker import Maker, Value
from tests.tflite.build import T


def add_lstm(
    make: Maker,
    x: Value,
    cells: int,
    *,
    coupled: bool = False,
    norm: bool = False,
    clip: float = 0.0,
    cell_bits: int = 11,
    time_major: bool = False,
    more: dict[int, T] | None = None,
) -> Value:
    """One over all rows of `x`; `coupled`: what is not forgotten enters; `more`: other inputs."""
    random, depth = make.random, x.shape[-1]
    inputs: list[T | None] = [None] * 24
    hidden = float(np.float32(1 / random.uniform(100, 140)))
    zero = int(random.integers(-20, 20))
    for place in range(1 if coupled else 0, 4):
        for first, width, scale in ((1, depth, x.scale), (5, cells, hidden)):
            weights = random.integers(-127, 128, (cells, width)).astype(np.int8)
            within = float(np.float32(random.uniform(0.3, 3) / (scale * 127 * 70 * np.sqrt(width))))
            inputs[first + place] = _constant(weights, "int8", within)
        size = 2.0**-12 / 3 if norm else x.scale * inputs[1 + place].scales[0]
        bias = (random.normal(0, 0.5, cells) / size).astype(np.int32)
        if norm:
            bias = random.integers(-(1 << 15), 1 << 15, cells).astype(np.int32)
            weights = random.integers(-32767, 32768, cells).astype(np.int16)
            inputs[20 + place] = _constant(weights, "int16", float(random.uniform(1e-5, 6e-5)))
        inputs[12 + place] = _constant(bias, "int32", size)
    inputs[18] = T(dtype="int8", shape=(1, cells), scales=[hidden], zeros=[zero], is_variable=True)
    inputs[19] = T(
        dtype="int16", shape=(1, cells), scales=[2.0**-cell_bits], zeros=[0], is_variable=True
    )
    for place, tensor in (more or {}).items():
        inputs[place] = tensor
    gates = [T(dtype="int16", shape=(0,), scales=[random.uniform(1e-4, 1e-3)], zeros=[0])] * 4
    within = [*gates, T(dtype="int8", shape=(0,), scales=[hidden], zeros=[zero])]
    shape = (*x.shape[:-1], cells)
    options: dict[str, Any] = {
        "fusedActivationFunction": schema.ActivationFunctionType.TANH,
        "cellClip": clip,
        "timeMajor": time_major,
    }
    (index,) = make.graph.op(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        [x.index, *(make.graph.add(tensor) for tensor in inputs[1:])],
        [T(dtype="int8", shape=shape, scales=[hidden], zeros=[zero])],
        "UnidirectionalSequenceLSTMOptions",
        options,
        intermediates=[make.graph.add(replace(tensor)) for tensor in within],
    )
    return Value(index=index, shape=shape, scale=hidden, zero=zero)


def _constant(data: np.ndarray, dtype: str, scale: float) -> T:
    return T(dtype=dtype, data=data, is_constant=True, scales=[scale], zeros=[0])
