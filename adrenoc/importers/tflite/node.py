"""What an operator's translation sees of a TFLite operator: values in the form that it wants.

A quantised tensor is kept as its stored integers less the zero point, in float32: `quanta`.
Integers of eight bits are exact in half and in float, zero padding is zero, and a convolution
takes them as they are.  real = scale * quanta.

Quantised numbers of TFLite as floats that hold integers.

A product of two 8-bit values is below 2^16, so sums of 256 products and more come out exactly;
longer ones are off by less than one part in 2^24, which can move a result that lies on the
border between two quanta by one.

Source: TFLite 8-bit quantization specification.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from tvm import relax

from adrenoc.base.errors import RefusedError
from adrenoc.importers.relax.values import (
    Emitter,
    constant_value,
    dtype_of,
    make_constant,
    static_shape,
)
from adrenoc.importers.tflite.file import OperatorInfo, TensorInfo

Ints: TypeAlias = Sequence[int]
QUANTISED_RANGES = {
    "int4": (-8, 7),
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-32768, 32767),
}
"""dtype -> the least and the greatest integer that it stores."""


@dataclass(frozen=True, kw_only=True, eq=False)
class QuantisedResult:
    """A result in units of `scale`: real = scale * expr.

    `scale` has one value, or one for each channel of the last axis.  `is_integer` says that `expr`
    holds integers already.  `bounds` are real numbers that a fused activation keeps to.
    `by_fifteen_bits` says that LiteRT scales these by a multiplier of so many bits, as it does sums
    of 64 bits: a fiftieth of all words is a quantum off by any other.  `copied` is the tensor whose
    integers these are, as LiteRT copies them: whatever the result's scale is, it holds them."""

    expr: relax.Expr
    scale: np.ndarray | np.float32
    is_integer: bool = False
    bounds: tuple[float, float] | None = None
    by_fifteen_bits: bool = False
    copied: TensorInfo | None = None

    def factor(self, unit: float) -> np.ndarray:
        """Return what turns `expr` into multiples of `unit`, rounded once."""
        ratio = np.asarray(self.scale, np.float64) / np.float64(unit)
        if self.by_fifteen_bits:
            # LiteRT's multipliers for sums of 64 bits: 31 bits of each ratio, then 15.
            mantissa, exponent = np.frexp(ratio)
            whole = np.rint(mantissa * 2.0**31)
            short = np.minimum(np.floor((whole + 2.0**15) / 2.0**16), 2.0**15 - 1)
            ratio = np.ldexp(short, exponent - 15)
        return np.asarray(ratio if ratio.size > 1 else ratio.reshape(()), np.float32)


def subtract_zeros(info: TensorInfo) -> np.ndarray:
    """Return a quantised constant less its zero points, in float32."""
    value = np.asarray(info.value).astype(np.float32)
    return np.asarray(value - info.lay_along(info.zeros).astype(np.float32))


Result: TypeAlias = "relax.Expr | QuantisedResult"
"""What a translation gives: real numbers or plain integers, or quanta of some scale."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TensorValue:
    """A tensor of the file, and what computes it; of what nothing does the file has the numbers."""

    info: TensorInfo
    made: relax.Expr | None = None

    @cached_property
    def expr(self) -> relax.Expr:
        """Return what it holds: of a quantised tensor the quanta, else the numbers."""
        if self.made is not None:
            return self.made
        if self.info.value is None:
            raise RefusedError(f"'{self.info.name}' of type {self.info.dtype} holds no numbers")
        # When it is asked for: weights that stay in their few bits are never floats.
        stored = subtract_zeros(self.info) if self.info.is_quantised else self.info.value
        return make_constant(stored)


@dataclass(frozen=True, kw_only=True, eq=False)
class TfliteNode:
    """One operator with translated inputs; `inputs` holds None for one that is left out."""

    emit: Emitter
    operator: OperatorInfo
    inputs: Sequence[TensorValue | None]
    results: Sequence[TensorInfo]
    call: Any = None
    """Translates another graph of the file: (number, values) -> values."""

    def option(self, name: str, default: Any = 0) -> Any:
        """Return an option, or its default where the file leaves all options out."""
        return self.operator.options.get(name, default)

    def steps(self, names: str, axes: str = "HW") -> list[int]:
        """Return strides or dilations, of options called like "Stride{}", for each of `axes`."""
        steps = [int(self.option(names.format(axis), 1)) for axis in axes]
        if min(steps) < 1:
            raise RefusedError(f"{names.format(axes)} of {steps}; expected 1 or more")
        return steps

    def has(self, index: int) -> bool:
        """Return whether input `index` is there."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def value(self, index: int) -> TensorValue:
        """Return input `index`."""
        found = self.inputs[index] if index < len(self.inputs) else None
        if found is None:
            raise RefusedError(f"input {index} is missing")
        return found

    def info(self, index: int = 0) -> TensorInfo:
        """Return the type of an input."""
        return self.value(index).info

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """Return the static shape of an input."""
        shape = static_shape(self.value(index).expr)
        if shape is None:
            raise RefusedError(f"input {index} has no static shape")
        return shape

    def dtype(self, index: int = 0) -> str:
        """Return the dtype in which an input is at hand."""
        return dtype_of(self.value(index).expr)

    def is_constant(self, index: int) -> bool:
        """Return whether the value of an input is known."""
        return constant_value(self.value(index).expr) is not None

    def constant(self, index: int) -> np.ndarray:
        """Return the value of a constant input, as stored less its zero point."""
        value = constant_value(self.value(index).expr)
        if value is None:
            raise RefusedError(f"input {index} must be constant")
        return value

    def ints(self, index: int) -> list[int]:
        """Return a constant input as integers."""
        return [int(v) for v in self.constant(index).reshape(-1)]

    def scalar(self, index: int) -> Any:
        """Return a constant input of one element."""
        return self.constant(index).reshape(-1)[0].item()

    # Forms of an input

    def data(self, index: int = 0) -> relax.Expr:
        """Return an input as it is at hand: quanta where it is quantised."""
        return self.value(index).expr

    def real(self, index: int = 0) -> relax.Expr:
        """Return an input as real numbers in float; unquantised integers stay integers."""
        value = self.value(index)
        if value.info.is_quantised:
            scales = value.info.lay_along(value.info.scales)
            return self.emit(value.expr * make_constant(scales))
        if dtype_of(value.expr) == "float16":
            return self.emit(value.expr.astype("float32"))
        return value.expr

    def store(self, index: int = 0) -> relax.Expr:
        """Return an input as the file would store it: integers with their zero point."""
        return store(self.emit, self.value(index))

    def like(self, value: Any, index: int = 0) -> relax.Expr:
        """Return a constant of the dtype in which an input is at hand."""
        return make_constant(np.asarray(value).astype(self.dtype(index)))

    # Results

    def move(self, expr: relax.Expr, index: int = 0) -> Result:
        """Return a result that holds elements of input `index` at other places."""
        info = self.info(index)
        if not info.is_quantised:
            return expr
        return QuantisedResult(expr=expr, scale=info.scales, is_integer=True, copied=info)

    def data_like(self, index: int, other: int) -> relax.Expr:
        """Return input `index` less the zero point of another, to be compared as stored."""
        zero = self.info(index).zero - self.info(other).zero
        data = self.data(index)
        if not zero:
            return data
        return self.emit(data + make_constant(np.float32(zero)))

    def activate(self, result: Result) -> Result:
        """Return the result with the operator's fused activation."""
        kind = int(self.option("FusedActivationFunction", 0))
        if kind == 0:
            return result
        bounds = _BOUNDS.get(kind)
        if isinstance(result, QuantisedResult) and bounds is not None:
            return replace(result, bounds=bounds)
        expr = self.emit(result)
        if kind == 1:
            return relax.op.nn.relu(expr)
        if bounds is not None:
            low, high = (b if dtype_of(expr).startswith("float") else int(b) for b in bounds)
            return relax.op.clip(expr, low, high)
        if kind == _TANH:
            return relax.op.tanh(expr)
        known = ", ".join(map(str, (0, *_BOUNDS, _TANH)))
        raise RefusedError(f"the fused activation number {kind}, expected one of {known}")


_TANH = 4
_BOUNDS = {1: (0.0, float("inf")), 2: (-1.0, 1.0), 3: (0.0, 6.0)}
"""ActivationFunctionType -> the interval that it keeps: RELU, RELU_N1_TO_1, RELU6."""


COPIED = (
    "integers of another scale as they are stored",
    "LiteRT copies them from the input, whose scale or zero point is another one",
)
"""What is taken and why, where an operator that moves numbers has a result of another scale."""


def value_of(emit: Emitter, info: TensorInfo, expr: relax.Expr) -> TensorValue:
    """Return a tensor from what the file or the user stores."""
    if info.is_quantised:
        expr = expr.astype("float32")
        if info.zero:
            expr -= make_constant(np.float32(info.zero))
    return TensorValue(info=info, made=emit(expr))


def store(emit: Emitter, value: TensorValue) -> relax.Expr:
    """Return a tensor as the file would store it."""
    info, expr = value.info, value.expr
    if not info.is_quantised:
        return expr
    if info.zero:
        expr += make_constant(np.float32(info.zero))
    return emit(expr.astype(info.dtype))


def finish(emit: Emitter, info: TensorInfo, result: Result, name: str = "") -> TensorValue:
    """Return a tensor from what a translation gives: requantised where the file wants integers."""
    if not info.is_quantised:
        if isinstance(result, QuantisedResult):
            result = result.expr * make_constant(result.factor(1.0))
        expr = emit(result, name)
        if info.dtype == "float16" and dtype_of(expr) == "float32":
            expr = emit(expr.astype("float16"))
        return TensorValue(info=info, made=expr)
    if not isinstance(result, QuantisedResult):
        result = QuantisedResult(expr=emit(result), scale=np.float32(1.0))
    expr = emit(result.expr)
    copied = result.copied
    if copied is not None and (copied.scale, copied.zero) != (info.scale, info.zero):
        if copied.zero != info.zero:
            expr = emit(expr + make_constant(np.float32(copied.zero - info.zero)))
        result = replace(result, expr=expr, scale=info.scales)
        emit.decisions.setdefault(COPIED, []).append(info.name)
    factor = result.factor(info.scale)
    same = bool(np.all(factor == 1.0))
    if not same:
        expr = emit(expr * make_constant(factor))
    if not (same and result.is_integer):
        expr = emit(relax.op.round(emit(expr)))  # ties to even, as LiteRT with XNNPACK
    low, high = (float(bound - info.zero) for bound in QUANTISED_RANGES[info.dtype])
    if result.bounds is not None:
        low = max(low, float(np.round(result.bounds[0] / info.scale)))
        high = min(high, float(np.round(min(result.bounds[1], 1e30) / info.scale)))
    elif same and result.is_integer:
        return TensorValue(info=info, made=expr)
    return TensorValue(info=info, made=emit(relax.op.clip(expr, low, high), name))
