"""What an operator's translation sees of an ONNX node."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from adrenoc.base.errors import RefusedError
from adrenoc.importers.relax.values import constant_value, dtype_of, make_constant, static_shape


@dataclass(frozen=True, kw_only=True)
class OnnxNode:
    """One ONNX node with translated inputs.

    `inputs` holds None for an optional input that is left out; strings in `attrs` are bytes;
    `outputs` counts the outputs up to the last one that the graph names."""

    bb: relax.BlockBuilder
    inputs: list[Any]
    attrs: dict[str, Any]
    opset: int
    outputs: int = 1

    def input(self, index: int) -> relax.Expr | None:
        """Return input `index`, or None where it is left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def constant(self, index: int) -> np.ndarray | None:
        """Return the value of a constant input, or None where it is left out."""
        expr = self.input(index)
        if expr is None:
            return None
        value = constant_value(expr)
        if value is None:
            raise RefusedError(f"input {index} must be constant")
        return value

    def number(self, index: int) -> float | int | bool | None:
        """Return the number in a constant input, of several the first; None where left out."""
        value = self.constant(index)
        if value is None:
            return None
        if not value.size:
            raise RefusedError(f"input {index} holds nothing, expected one number")
        number: float | int | bool = value.reshape(-1)[0].item()
        return number

    def ints(self, index: int, name: str) -> list[int] | None:
        """Return integers from a constant input or, in old opsets, from an attribute."""
        value = self.constant(index)
        if value is not None:
            return [int(v) for v in value.reshape(-1)]
        found = self.attrs.get(name)
        return None if found is None else [int(v) for v in found]

    def text(self, name: str, default: str) -> str:
        """Return a string attribute."""
        value = self.attrs.get(name)
        return value.decode() if isinstance(value, bytes) else default

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """Return the static shape of an input."""
        shape = static_shape(self.inputs[index])
        if shape is None:
            raise RefusedError(f"input {index} has no static shape")
        return shape

    def emit(self, expr: relax.Expr) -> relax.Var:
        """Bind an intermediate result."""
        return self.bb.emit(expr)

    def like(self, value: object, index: int = 0) -> relax.Expr:
        """Return a constant of the dtype of an input."""
        dtype = dtype_of(self.inputs[index])
        return make_constant(np.asarray(value).astype(dtype, copy=False))
