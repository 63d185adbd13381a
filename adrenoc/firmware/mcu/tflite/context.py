"""A TFLite graph while it becomes a network: its tensors, checks of them, and where each index of
an axis reads in a move."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import tflite

from adrenoc.base.errors import RefusedError
from adrenoc.firmware.mcu.network import WIDTHS, FirmwareTensor, offsets_of
from adrenoc.firmware.mcu.operators import Move
from adrenoc.firmware.mcu.operators import Operator as NetworkOperator
from adrenoc.importers.tflite.file import GraphInfo, OperatorInfo, TensorInfo

_ACTIVATIONS = {v: k for k, v in vars(tflite.ActivationFunctionType).items() if isinstance(v, int)}


@dataclass(kw_only=True)
class TfliteContext:
    """A translation under way; `tensors` has one for each of the file's, by its index."""

    graph: GraphInfo
    operators: list[NetworkOperator] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    constants: dict[int, np.ndarray] = field(default_factory=dict)
    tensors: list[FirmwareTensor] = field(init=False)

    def __post_init__(self) -> None:
        self.tensors = [
            FirmwareTensor(
                name=t.name,
                shape=t.shape,
                scale=_scale(t),
                zero=t.zero if t.zeros.size else 0,
                dtype=t.dtype if t.dtype in WIDTHS else "int8",
            )
            for t in self.graph.tensors
        ]

    def info(self, operator: OperatorInfo, index: int) -> TensorInfo:
        """Return what the file says of an input."""
        if index >= len(operator.inputs) or operator.inputs[index] < 0:
            raise RefusedError(f"input {index} is missing")
        return self.graph.tensors[operator.inputs[index]]

    def constant(self, operator: OperatorInfo, index: int, *dtypes: str) -> np.ndarray:
        """Return the value of an input that has to be known."""
        info = self.info(operator, index)
        if info.value is None:
            raise RefusedError(f"input {index} is not a constant")
        if info.dtype not in dtypes:
            expected = " or ".join(dtypes)
            raise RefusedError(f"input {index} is {info.dtype}, expected {expected}")
        return info.value

    def data(self, operator: OperatorInfo, index: int = 0) -> int:
        """Return the tensor of an input that varies."""
        info = self.info(operator, index)
        if info.value is not None:
            raise RefusedError(f"input {index} is a constant")
        if info.dtype not in WIDTHS:
            raise RefusedError(f"input {index} is {info.dtype}, expected int8 or int16")
        if not info.scales.size:
            raise RefusedError(f"input {index} says no scale")
        info.scale  # noqa: B018  (refuses one for each channel)
        if info.dtype == "int16" and info.zero:
            raise RefusedError(f"input {index} is int16 with a zero point of {info.zero}")
        return operator.inputs[index]

    def operand(self, operator: OperatorInfo, index: int) -> int:
        """Return the tensor of an input that may be a constant."""
        info = self.info(operator, index)
        if info.value is None:
            return self.data(operator, index)
        if info.dtype not in WIDTHS or info.scales.size != 1:
            raise RefusedError(f"input {index} is a constant of {info.dtype}")
        self.constants.setdefault(operator.inputs[index], info.value)
        return operator.inputs[index]

    def new_tensor(self, tensor: FirmwareTensor) -> int:
        """Return a tensor that the file does not have."""
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def move(self, source: int, name: str, indices: Sequence[np.ndarray]) -> int:
        """Return a new tensor of a source's elements: where each index of an axis reads, or -1."""
        tensor = self.tensors[source]
        grown = self.new_tensor(replace(tensor, name=name, shape=tuple(map(len, indices))))
        offsets = offsets_of(tensor.shape, indices)
        self.operators.append(Move(source=source, result=grown, offsets=offsets, fill=tensor.zero))
        return grown

    def result(self, operator: OperatorInfo) -> TensorInfo:
        """Return what the file says of the output."""
        info = self.graph.tensors[operator.outputs[0]]
        if not info.scales.size:
            raise RefusedError("the output says no scale")
        if info.dtype == "int16" and info.zero:
            raise RefusedError(f"the output is int16 with a zero point of {info.zero}")
        return info


def _scale(info: TensorInfo) -> float:
    return float(info.scales[0]) if info.scales.size else 0.0


def activation_of(operator: OperatorInfo) -> str:
    """Return the name of the activation that is fused to it."""
    return _ACTIVATIONS[int(operator.options.get("FusedActivationFunction", 0))]


def check_one_image(made: TfliteContext, operator: OperatorInfo) -> None:
    """Refuse all but one image of several channels."""
    shape = made.info(operator, 0).shape
    if len(shape) != 4 or shape[0] != 1:
        raise RefusedError(f"an input of {list(shape)}, expected a batch of one image")


def check_one_type(*tensors: TensorInfo) -> None:
    """Refuse tensors of both int8 and int16."""
    kinds = list(dict.fromkeys(tensor.dtype for tensor in tensors))
    if len(kinds) > 1:
        raise RefusedError(f"{' and '.join(kinds)}, expected one type")


def check_same_quanta(source: TensorInfo, result: TensorInfo) -> None:
    """Refuse another scale or zero point at the output, and another type."""
    check_one_type(source, result)
    if abs(source.scale - result.scale) > 1e-6 or source.zero != result.zero:
        raise RefusedError("input and output with different scales or zero points")


Translation: TypeAlias = Callable[[TfliteContext, OperatorInfo], NetworkOperator]
"""From an operator of the file to one of the network.

Raises:
    RefusedError: it is of a kind that has no kernel, with the reason.
    ValueError: the file contradicts itself.
"""
