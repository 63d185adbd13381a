"""Operators of TFLite that keep a state between calls: SVDF and LSTM. Weights and results of the
LSTM are int8, its gates and cells int16."""

import numpy as np

from adrenoc.base.errors import RefusedError
from adrenoc.firmware.mcu import operators as op
from adrenoc.firmware.mcu.fixed_point import INT8, multiplier_of
from adrenoc.firmware.mcu.network import FirmwareTensor
from adrenoc.firmware.mcu.tflite.context import TfliteContext, Translation, activation_of
from adrenoc.firmware.mcu.tflite.filters import bias_of
from adrenoc.importers.tflite.file import OperatorInfo

_INPUT, _RECURRENT, _PEEPHOLES = 1, 5, range(9, 12)
_BIAS, _PROJECTION, _RESULT, _CELL, _NORM = 12, 16, 18, 19, 20
"""Which inputs hold what; four in turn for input, forget, cell and output."""
_HIDDEN = 4
"""Which intermediate says how a result is rounded before a projection."""
_GATE_SCALE = np.float32(2.0**-12)
_GUARD = 10000
_FEWEST_CELL_BITS = 9
_MOST_DEPTH = 1 << 15


def lstm(made: TfliteContext, operator: OperatorInfo) -> op.Operator:
    """Return an LSTM over all rows of its input, without peepholes and projection."""
    _refuse_others(made, operator)
    source, result = made.info(operator, 0), made.result(operator)
    cell = made.info(operator, _CELL)
    rows = source.shape[1] if len(source.shape) == 3 else 1
    if len(source.shape) == 3 and operator.options.get("TimeMajor"):
        rows = source.shape[0]
    cells, depth = made.constant(operator, _INPUT + 1, "int8").shape
    expected = {(1, rows, cells), (rows, 1, cells)} if len(source.shape) == 3 else {(1, cells)}
    alike = result.shape in expected and source.shape[-1] == depth
    if not alike or rows * depth != np.prod(source.shape):
        raise RefusedError(f"{list(source.shape)} to {list(result.shape)}, expected one row")
    if max(depth, cells) > _MOST_DEPTH:
        raise RefusedError(f"sums of {max(depth, cells)} products")
    hidden = _intermediate(made, operator, _HIDDEN)
    # TFLite multiplies and divides in float32 where powers of two do not make it float64.
    real = np.float32(2.0**-15 / float(np.float32(hidden.scale)) * 2.0**-15)
    gates = [_gate(made, operator, place, (cells, depth)) for place in range(4)]
    if gates[1] is None or gates[2] is None or gates[3] is None:
        raise RefusedError("it lacks weights of a gate that every LSTM has")
    clip = float(operator.options.get("CellClip", 0.0))
    fraction, exponent = np.frexp(cell.scale)
    bits = 1 - int(exponent)
    if fraction != 0.5 or not _FEWEST_CELL_BITS <= bits <= 15:
        raise RefusedError(
            f"cells at a scale of {cell.scale:.6g}, no power of two from 1/32768 to 1/512"
        )
    return op.Lstm(
        source=made.data(operator),
        result=operator.outputs[0],
        gates=(gates[0], gates[1], gates[2], gates[3]),
        cell_bits=bits,
        clip=int(min(np.float32(clip) / np.float32(cell.scale), 32767.0)) if clip > 0 else 0,
        hidden=multiplier_of(float(real)),
        zero=hidden.zero,
        start=made.info(operator, _RESULT).zero,
    )


def _refuse_others(made: TfliteContext, operator: OperatorInfo) -> None:
    if activation_of(operator) != "TANH":
        raise RefusedError(f"the activation {activation_of(operator)}, expected TANH")
    if operator.options.get("DiagonalRecurrentTensors"):
        raise RefusedError("diagonal recurrent weights")
    if any(_there(operator, index) for index in _PEEPHOLES):
        raise RefusedError("peepholes, from cells to gates")
    if _there(operator, _PROJECTION):
        raise RefusedError("a projection")
    kinds = (("result", _RESULT, "int8"), ("cells", _CELL, "int16"))
    for what, index, dtype in kinds:
        info = made.info(operator, index)
        if info.dtype != dtype or not info.is_variable:
            raise RefusedError(f"{what} of {info.dtype}, expected a variable of {dtype}")


def _there(operator: OperatorInfo, index: int) -> bool:
    return len(operator.inputs) > index and operator.inputs[index] >= 0


def _intermediate(made: TfliteContext, operator: OperatorInfo, place: int) -> FirmwareTensor:
    """Return what the file says of a number within; it has a scale of its own."""
    if len(operator.intermediates) <= place or operator.intermediates[place] < 0:
        raise RefusedError("it does not say how its results are rounded within")
    info = made.graph.tensors[operator.intermediates[place]]
    if info.scales.size != 1:
        raise RefusedError(f"a number within has {info.scales.size} scales, expected one")
    return FirmwareTensor(name=info.name, shape=(1,), scale=info.scale, zero=info.zero)


def _gate(
    made: TfliteContext, operator: OperatorInfo, place: int, shape: tuple[int, int]
) -> op.Gate | None:
    if not _there(operator, _INPUT + place):
        return None
    cells, depth = shape
    has_norm = _there(operator, _NORM + place)
    within = _GATE_SCALE
    if has_norm:
        within = np.float32(_intermediate(made, operator, place).scale)
    ends = (made.info(operator, 0), made.info(operator, _RESULT))
    found: list[tuple[np.ndarray, np.ndarray, op.Factor]] = []
    bias = made.constant(operator, _BIAS + place, "int32").reshape(-1).astype(np.int64)
    for end, first, width in zip(ends, (_INPUT, _RECURRENT), (depth, cells), strict=True):
        weights = made.constant(operator, first + place, "int8")
        if weights.shape != (cells, width) or bias.size != cells:
            raise RefusedError(f"weights of {list(weights.shape)}, expected {[cells, width]}")
        info = made.info(operator, first + place)
        if info.zeros.size and info.zeros.any():
            raise RefusedError("weights with a zero point")
        real = np.float32(info.scale) * np.float32(end.scale) / within
        own = bias if first == _INPUT and not has_norm else np.zeros(cells, np.int64)
        moved = own - end.zero * weights.astype(np.int64).sum(1)
        found.append((weights, moved, multiplier_of(float(real))))
    norm = None
    if has_norm:
        info = made.info(operator, _NORM + place)
        norm = op.GateNorm(
            weights=made.constant(operator, _NORM + place, "int16").reshape(-1),
            bias=bias,
            factor=multiplier_of(float(np.float32(info.scale))),
            guard=max(1, int(np.float32(_GUARD) * np.float32(info.scale))),
        )
    (a, b, c), (d, e, f) = found
    return op.Gate(weights=(a, d), biases=(b, e), factors=(c, f), norm=norm)


_STATE = 4
"""Which input holds it."""


def _svdf(made: TfliteContext, operator: OperatorInfo) -> op.Operator:
    source, result = made.info(operator, 0), made.result(operator)
    feature = made.constant(operator, 1, "int8")
    time = made.constant(operator, 2, "int16")
    state = made.info(operator, _STATE)
    filters, depth = feature.shape
    rank = int(operator.options.get("Rank", 1))
    if activation_of(operator) != "RELU":
        raise RefusedError(f"the activation {activation_of(operator)}, expected RELU")
    if len(source.shape) != 2 or source.shape[0] != 1:
        raise RefusedError(f"an input of {list(source.shape)}, expected one row")
    if state.dtype != "int16" or not state.is_variable:
        raise RefusedError(f"a state of {state.dtype}, expected a variable of int16")
    alike = time.shape[0] == filters and source.shape[1] == depth
    if rank < 1 or filters % rank or not alike or time.size != np.prod(state.shape):
        raise RefusedError(f"{filters} filters of rank {rank} for a state of {list(state.shape)}")
    if result.shape != (1, filters // rank):
        raise RefusedError(f"an output of {list(result.shape)} for {filters // rank} sums")
    bias = bias_of(made, operator, filters // rank, index=3)
    if depth > _MOST_DEPTH:
        raise RefusedError(f"sums of {depth} products, which 32 bits may not hold")
    one, two = made.info(operator, 1).scale, made.info(operator, 2).scale
    factor = multiplier_of(float(_scale(state.scale, two, result.scale)))
    return op.Svdf(
        source=made.data(operator),
        result=operator.outputs[0],
        feature=feature,
        time=time,
        bias=bias,
        rank=rank,
        zero_in=source.zero,
        kept=multiplier_of(float(_scale(source.scale, one, state.scale))),
        requantise=op.Requantise.by_one(factor, result.zero, INT8),
    )


def _scale(first: float, second: float, result: float) -> np.float32:
    """Multiply and divide scales as TFLite does: in float32."""
    return np.float32(np.float32(first) * np.float32(second)) / np.float32(result)


RECURRENT: dict[str, Translation] = {"SVDF": _svdf, "UNIDIRECTIONAL_SEQUENCE_LSTM": lstm}
