"""Takes out of a network what cannot vary, exactly.

*Before -> after*: a channel whose every reachable sum gives the same output is a constant; who
reads it gets its share of the sums as bias; then neither is computed.  Channels that nothing reads
go the same way.  Tensors shrink to what is left, in whole groups of four channels.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from adrenoc.base.decision import Decision
from adrenoc.firmware.mcu import operators as op
from adrenoc.firmware.mcu.fixed_point import requantise
from adrenoc.firmware.mcu.network import FirmwareTensor, Network

_GROUP = 4
_MOST_SUM = (1 << 31) - 1
_VARIES = 1 << 20
"""In place of a constant's value."""


def fold_constants(network: Network, decisions: list[Decision], *, group: int = _GROUP) -> Network:
    """Return the same function with fewer channels, in whole groups of so many."""
    constants = _constants(network)
    operators = [_fold_operator(o, network, constants) for o in network.operators]
    folded = replace(network, operators=tuple(operators))
    kept = _pick_channels(folded, group)
    made = {operator.result for operator in network.operators}
    for index, tensor in enumerate(network.tensors):
        left = int(kept[index].sum())
        if left < len(kept[index]) and index in made:
            decisions.append(
                Decision(
                    subject=tensor.name,
                    taken=f"{left} of {len(kept[index])} channels",
                    reason="the others cannot vary, or nothing reads them",
                )
            )
    shrunk = [
        replace(tensor, shape=(*tensor.shape[:-1], int(mask.sum()))) if tensor.shape else tensor
        for tensor, mask in zip(network.tensors, kept, strict=True)
    ]
    sliced = tuple(_slice_operator(o, network, kept) for o in operators)
    return replace(folded, operators=sliced, tensors=tuple(shrunk), kept=tuple(kept))


# --- what is constant ---------------------------------------------------------------------------


def _constants(network: Network) -> list[np.ndarray]:
    """Return for each tensor the value of each channel, or `_VARIES`."""
    found = [np.full(_channels(tensor), _VARIES) for tensor in network.tensors]
    for operator in network.operators:
        result = found[operator.result]
        source = _find_sources(network, operator, found)
        if isinstance(operator, op.Filter):
            ends = network.tensors[operator.source].ends
            result[:] = _find_fixed_outputs(operator, source, ends)
        elif isinstance(operator, op.Pool):
            held = np.clip(source, operator.low, operator.high)
            result[:] = np.where(source == _VARIES, _VARIES, held)
        elif isinstance(operator, op.Lookup):
            looked = operator.table.astype(np.int64)[np.clip(source, -128, 127) + 128]
            result[:] = np.where(source == _VARIES, _VARIES, looked)
        elif isinstance(operator, op.Reshape) and len(source) == len(result):
            result[:] = source
    return found


def _find_sources(
    network: Network, operator: op.Operator, constants: Sequence[np.ndarray]
) -> np.ndarray:
    """Return the constants of what an operator reads; a product over several pixels sees none."""
    if isinstance(operator, op.Convolution) and not _is_whole(network, operator):
        return np.full(operator.weights.shape[3], _VARIES)
    return constants[operator.sources[0]]


def _channels(tensor: FirmwareTensor) -> int:
    return tensor.shape[-1] if tensor.shape else 1


def _taps(operator: op.Filter) -> np.ndarray:
    """Weights as (output channel, tap, input channel), of a depthwise one with one of those."""
    weights = operator.weights.astype(np.int64)
    if isinstance(operator, op.Convolution):
        return weights.reshape(weights.shape[0], -1, weights.shape[3])
    return weights.reshape(-1, weights.shape[2]).T[:, :, None]


def _read(operator: op.Filter, per_channel: np.ndarray) -> np.ndarray:
    """Return a row for each input channel as taps see it: (outputs or 1, 1, inputs)."""
    if isinstance(operator, op.Convolution):
        return per_channel[None, None, :]
    many = operator.weights.shape[2] // len(per_channel)
    return per_channel.repeat(many)[:, None, None]


def _find_fixed_outputs(
    operator: op.Filter, source: np.ndarray, ends: tuple[int, int]
) -> np.ndarray:
    """Return the outputs of a filter that are the same at both ends of their sums."""
    zero = operator.zero_in
    known = source != _VARIES
    low = np.where(known, source, ends[0]) - zero
    high = np.where(known, source, ends[1]) - zero
    if operator.window.kernel != (1, 1):  # a tap may lie outside of the image
        low, high = np.minimum(low, 0), np.maximum(high, 0)
    taps = _taps(operator)
    least_in, most_in = _read(operator, low), _read(operator, high)
    most = np.where(taps > 0, taps * most_in, taps * least_in).sum((1, 2)) + operator.bias
    least = np.where(taps > 0, taps * least_in, taps * most_in).sum((1, 2)) + operator.bias
    first, last = requantise(least, operator.requantise), requantise(most, operator.requantise)
    goes_around = (np.maximum(-least, most) > _MOST_SUM) & (not operator.requantise.wide)
    return np.where((first == last) & ~goes_around, first, _VARIES)


def _fold_operator(
    operator: op.Operator, network: Network, constants: Sequence[np.ndarray]
) -> op.Operator:
    """Weights of constant inputs become bias; of constant outputs, nothing but a bias is left."""
    if not isinstance(operator, op.Filter):
        return operator
    source, result = _find_sources(network, operator, constants), constants[operator.result]
    offset = source - operator.zero_in
    folds = source != _VARIES
    if operator.window.kernel != (1, 1):  # a tap may lie outside of the image
        folds = folds & (offset == 0)  # else the border differs from the rest
    taps = _taps(operator)
    share = np.where(_read(operator, folds), taps * _read(operator, offset), 0).sum((1, 2))
    bias = operator.bias + share
    taps = np.where(_read(operator, folds), 0, taps)
    fixed = result != _VARIES
    rule = operator.requantise
    # Inputs at their zero point leave the bias, whose output is the constant, too.
    silent = fixed & (requantise(np.zeros(len(bias), np.int64), rule) == result)
    taps = np.where(fixed[:, None, None], 0, taps)
    if isinstance(operator, op.Convolution):
        weights = taps.reshape(operator.weights.shape)
    else:
        weights = taps[:, :, 0].T.reshape(operator.weights.shape)
    return replace(
        operator,
        weights=weights.astype(np.int8),
        bias=np.where(silent, 0, bias),
        requantise=rule.change_channels(lambda values: np.where(silent, 0, values)),
    )


# --- what is read -------------------------------------------------------------------------------


def _pick_channels(network: Network, group: int) -> list[np.ndarray]:
    """Return for each tensor which channels stay: those that something reads, in whole groups.
    Tensors whose channels correspond share a mask."""
    masks = [np.zeros(_channels(tensor), bool) for tensor in network.tensors]
    for operator in network.operators:
        if _keeps_channels(network, operator):
            masks[operator.result] = masks[operator.sources[0]]
    for index in (*network.inputs, *network.outputs):
        masks[index][:] = True
    for operator in reversed(network.operators):
        if isinstance(operator, op.Convolution):
            result = masks[operator.result]
            missing = max(-int(result.sum()) % group, 0) if result.any() else group
            result[np.nonzero(~result)[0][:missing]] = True
            if not _is_whole(network, operator):
                masks[operator.source][:] = True
                continue
            masks[operator.source] |= (operator.weights[result] != 0).any((0, 1, 2))
        elif not _keeps_channels(network, operator):
            for index in (operator.result, *operator.sources):
                masks[index][:] = True
    return masks


def _is_whole(network: Network, operator: op.Convolution) -> bool:
    """Return whether the channels that a convolution reads are the last axis of its source."""
    return operator.weights.shape[3] == _channels(network.tensors[operator.source])


def _keeps_channels(network: Network, operator: op.Operator) -> bool:
    """Return whether channel c of the result is made of channel c of the source alone."""
    if isinstance(operator, op.Pool | op.Lookup):
        return True
    if isinstance(operator, op.Depthwise | op.Reshape):
        source, result = network.tensors[operator.source], network.tensors[operator.result]
        return _channels(source) == _channels(result)
    return False


# --- what is left -------------------------------------------------------------------------------


def _slice_operator(
    operator: op.Operator, network: Network, kept: Sequence[np.ndarray]
) -> op.Operator:
    if not isinstance(operator, op.Filter):
        return operator
    out = kept[operator.result]
    if isinstance(operator, op.Convolution):
        weights = operator.weights[out]
        if _is_whole(network, operator):
            weights = weights[..., kept[operator.source]]
    else:
        weights = operator.weights[..., out]
    return replace(
        operator,
        weights=np.ascontiguousarray(weights),
        bias=operator.bias[out],
        requantise=operator.requantise.change_channels(lambda values: values[out]),
    )
