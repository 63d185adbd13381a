"""Weights that a bundle's code for the CPU need not hold: its kernels for the GPU have them too.

A packed constant is the model's own in another order.  Where each of its elements lies is a sum of
places, one for each axis, and a place is a sum over digits of the index.  These are a few numbers a
layer, by which `c/borrow.c` brings them into the order of the CPU's kernels as a library is loaded.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from adrenoc.firmware.mcu.operators import Convolution
from adrenoc.firmware.mcu.program import FirmwareProgram
from adrenoc.ir.layout import Digits, find_axis_digits, forms_of, pack_indices, read_places
from adrenoc.ir.program import Packing

_BORROWS = "neon_layer"
"""Kernels whose weights `c/borrow.c` knows how to lay out."""


@dataclass(frozen=True, kw_only=True)
class StoredWeights:
    """Weights within a packed constant of so many bytes: in elements of `width` bytes.

    `digits` give the place along each axis, counted from the element `first`: output channels, rows
    and columns of the window, input channels.
    """

    param: str
    param_bytes: int
    width: int
    first: int
    digits: tuple[Digits, ...]


@dataclass(frozen=True, kw_only=True)
class SharedWeight:
    """The weights of a step, of such `counts` along the same axes, and what holds the model's own.

    Where channels were left out, `outputs` and `inputs` are those that these are, -1 where all
    weights are zero.
    """

    step: str
    counts: tuple[int, ...]
    held: StoredWeights
    outputs: tuple[int, ...]
    inputs: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class _WeightSource:
    name: str
    value: np.ndarray
    constant: np.ndarray
    pack: Callable[[np.ndarray], np.ndarray]


def find_shared_weights(
    program: FirmwareProgram, params: Mapping[str, np.ndarray], packings: Mapping[str, Packing]
) -> tuple[SharedWeight, ...]:
    """Return the weights that packed constants of a bundle hold element by element."""
    sources: dict[int, list[_WeightSource]] = {}
    for name, packing in packings.items():
        if packing.pack is None:
            continue
        constant = packing.constant
        source = _WeightSource(name=name, value=params[name], constant=constant, pack=packing.pack)
        sources.setdefault(constant.size, []).append(source)
    operators = {operator.result: operator for operator in program.network.operators}
    originals = {operator.result: operator for operator in program.original.operators}
    found = []
    for step in program.steps:
        operator, original = operators[step.made], originals.get(step.made)
        if step.kernel.struct != _BORROWS or not isinstance(operator, Convolution):
            continue
        if not isinstance(original, Convolution):
            continue
        left = _what_is_left(operator, original, program.network.kept)
        held = _find_holder(original.weights, sources.get(original.weights.size, ()))
        if left is None or held is None:
            continue
        counts = operator.weights.shape
        weight = SharedWeight(
            step=step.name, counts=counts, held=held, outputs=left[0], inputs=left[1]
        )
        found.append(weight)
    return tuple(found)


def find_weight_sources(shared: Iterable[SharedWeight]) -> dict[str, int]:
    """Return the packed constants that shared weights lie in, in order, and their bytes."""
    return dict(sorted({(weight.held.param, weight.held.param_bytes) for weight in shared}))


def _what_is_left(
    operator: Convolution, original: Convolution, kept: Sequence[np.ndarray]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return which channels of the model's weights an operator has, of outputs and of inputs."""
    weights, left = original.weights, []
    for axis, tensor in ((0, operator.result), (3, operator.source)):
        channels = np.arange(weights.shape[axis])
        if operator.weights.shape[axis] < len(channels):
            channels = np.flatnonzero(kept[tensor])
        weights = weights.take(channels, axis)
        if weights.shape[axis] != operator.weights.shape[axis]:
            return None
        silent = ~operator.weights.any(tuple(a for a in range(4) if a != axis))
        left.append(np.where(silent, -1, channels))
    outputs, inputs = left
    held = (outputs[:, None, None, None] >= 0) & (inputs >= 0)
    if not np.array_equal(np.where(held, weights, 0), operator.weights):
        return None
    return _unless_all(outputs, len(original.weights)), _unless_all(
        inputs, original.weights.shape[3]
    )


def _unless_all(channels: np.ndarray, count: int) -> tuple[int, ...]:
    """Return the channels, none where they are all of them."""
    return () if np.array_equal(channels, np.arange(count)) else tuple(channels.tolist())


def _find_holder(weights: np.ndarray, sources: Iterable[_WeightSource]) -> StoredWeights | None:
    """Return the first of the constants that holds the model's weights, and how."""
    for source in sources:
        order = _order_of(weights, source.constant)
        if order is None:
            continue
        dtype = str(source.value.dtype)
        constant, pack = source.constant, source.pack
        packed = pack_indices(constant, pack, source.value.nbytes)
        for form in forms_of(dtype) if packed else ():
            places = read_places(packed, constant.size, form)
            if places is None:
                continue
            shape = [weights.shape[axis] for axis in order]
            found = _describe_places(
                source, form, weights, places.reshape(shape).transpose(np.argsort(order))
            )
            if found is not None:
                return found
    return None


def _describe_places(
    source: _WeightSource, form: str, weights: np.ndarray, places: np.ndarray
) -> StoredWeights | None:
    """Return the places of the weights as digits of their indices, where they are that."""
    elements = source.value.reshape(-1).view(form)
    digits = find_axis_digits(places)
    if digits is None or not np.array_equal(elements[places], weights):
        return None
    return StoredWeights(
        param=source.name,
        param_bytes=elements.nbytes,
        width=elements.itemsize,
        first=int(places.flat[0]),
        digits=digits,
    )


def _order_of(weights: np.ndarray, constant: np.ndarray) -> tuple[int, ...] | None:
    """Return the order of the weights' axes in which they are that constant."""
    for order in permutations(range(weights.ndim)):
        if np.array_equal(weights.transpose(order).reshape(-1), constant.reshape(-1)):
            return order
    return None
