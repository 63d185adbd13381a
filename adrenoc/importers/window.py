"""Pads of sliding windows: what auto_pad and ceil_mode mean in numbers.

Pads are written as ONNX writes them: all beginnings, then all ends.
"""

from collections.abc import Sequence

from adrenoc.base.refused import RefusedError


def same_pads(
    auto_pad: str,
    pads: Sequence[int] | None,
    *,
    extents: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> list[int]:
    """Return the explicit pads of a convolution or pool.

    Raises:
        RefusedError: `auto_pad` is not one of NOTSET, VALID, SAME_UPPER and SAME_LOWER.
    """
    axes = len(extents)
    if auto_pad == "NOTSET":
        return list(pads) if pads else [0] * (2 * axes)
    if auto_pad == "VALID":
        return [0] * (2 * axes)
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        raise RefusedError(f"unknown auto_pad '{auto_pad}'")
    begin, end = [], []
    for extent, taps, stride, dilation in zip(extents, kernel, strides, dilations, strict=True):
        outputs = -(-extent // stride)
        total = max((outputs - 1) * stride + (taps - 1) * dilation + 1 - extent, 0)
        small, large = total // 2, total - total // 2
        begin.append(small if auto_pad == "SAME_UPPER" else large)
        end.append(large if auto_pad == "SAME_UPPER" else small)
    return begin + end


def ceil_pads(
    pads: Sequence[int],
    *,
    extents: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> list[int]:
    """Return `pads` grown at the end so that rounding down gives what ceil_mode asks for."""
    axes = len(extents)
    grown = list(pads)
    for axis in range(axes):
        span = (kernel[axis] - 1) * dilations[axis] + 1
        padded = extents[axis] + pads[axis] + pads[axis + axes]
        outputs = -(-(padded - span) // strides[axis]) + 1
        # A window may not start behind the data and its leading pad.
        if (outputs - 1) * strides[axis] >= extents[axis] + pads[axis]:
            outputs -= 1
        grown[axis + axes] += max((outputs - 1) * strides[axis] + span - padded, 0)
    return grown


def check_window(
    extents: Sequence[int], kernel: Sequence[int], dilations: Sequence[int], pads: Sequence[int]
) -> None:
    """Check that a window fits into the padded data once at least.

    Raises:
        RefusedError: it does not, or does not have as many axes as the data.
    """
    axes = len(extents)
    if (len(kernel), len(dilations), len(pads)) != (axes, axes, 2 * axes):
        raise RefusedError(f"a window {list(kernel)} does not go with {axes} axes")
    for axis, extent in enumerate(extents):
        span = (kernel[axis] - 1) * dilations[axis] + 1
        padded = extent + pads[axis] + pads[axis + axes]
        if not 0 < span <= padded:
            raise RefusedError(f"its window spans {span} elements of an axis that has {padded}")
