"""Shapes of a TFLite graph's inputs: the file's own, but for axes that it leaves open.

A converter writes some extent for each open axis, mostly 1: for a batch that is as good as another,
for an image or a sound it is nothing that anybody feeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from adrenoc.base.decision import ASSUMED, Decision
from adrenoc.base.errors import ShapeError, UnsupportedOperatorError
from adrenoc.base.text.spelling import list_first
from adrenoc.bundle.manifest import TensorSpec
from adrenoc.importers.shapes import OpenInputs, check_names, list_options, write_options
from adrenoc.importers.signature import port_of
from adrenoc.importers.tflite.converter import NUMERIC_DTYPES
from adrenoc.importers.tflite.file import TensorInfo


def shape_inputs(
    infos: Sequence[TensorInfo],
    shapes: Mapping[str, tuple[int, ...]],
    suggest: Callable[[OpenInputs], str] = write_options,
) -> tuple[tuple[TensorSpec, ...], list[Decision]]:
    """Return the inputs with the extents that `shapes` gives to open axes, and what was assumed of
    others.

    `suggest` writes the hint of an error for inputs of which the file says no extent of worth.

    Raises:
        ShapeError: `shapes` names an unknown input or another shape, or leaves one unknown.
        UnsupportedOperatorError: an input holds no numbers.
    """
    check_names(shapes, [info.name for info in infos])
    specs = []
    for info in infos:
        check_numbers(info)
        wanted = tuple(shapes.get(info.name, info.shape))
        if info.name in shapes and not info.admits(wanted):
            raise _unlike(info, wanted)
        specs.append(TensorSpec(name=info.name, shape=wanted, dtype=info.dtype))
    asked = [info for info in infos if info.name not in shapes]
    unknown = [info for info in asked if any(_is_unknown(info, a) for a in range(len(info.shape)))]
    if unknown:
        raise _ask(unknown, suggest)
    return tuple(specs), _tell([info for info in asked if info.open_axes])


def check_numbers(info: TensorInfo) -> None:
    """Refuse a tensor at the border of the graph that holds no numbers.

    Raises:
        UnsupportedOperatorError: it holds none.
    """
    if info.dtype not in NUMERIC_DTYPES:
        raise UnsupportedOperatorError(
            f"'{info.name}' holds {info.dtype}, which no OpenCL device computes",
            hint="cut the model where it holds numbers",
        )


def _is_unknown(info: TensorInfo, axis: int) -> bool:
    """Return whether the file says no extent of an axis that anybody could mean."""
    extent = info.shape[axis]
    stands_in = extent == 1 and axis in info.open_axes and (axis > 0 or len(info.shape) == 1)
    return extent <= 0 or stands_in


def _unlike(info: TensorInfo, wanted: tuple[int, ...]) -> ShapeError:
    given = ",".join("D" if a in info.open_axes else str(d) for a, d in enumerate(info.shape))
    return ShapeError(
        f"--shape {info.name}:{','.join(map(str, wanted))} differs from {list(info.shape)}, which "
        "the TFLite file fixes for all its tensors",
        hint=f"--shape {info.name}:{given}"
        if info.open_axes
        else "leave --shape out, or convert the model with that input shape",
    )


def _ask(unknown: Sequence[TensorInfo], suggest: Callable[[OpenInputs], str]) -> ShapeError:
    fixed = next(
        (i for i in unknown for a, d in enumerate(i.shape) if d <= 0 and a not in i.open_axes), None
    )
    if fixed is not None:
        return ShapeError(
            f"'{fixed.name}' has the shape {list(fixed.shape)} in the TFLite file, expected fixed "
            "extents above zero",
            hint="convert the model with a fixed input shape",
        )
    axes = {info.name: port_of(info).axes or () for info in unknown}
    shown = list_first(
        (f"'{n}' [{', '.join('?' if d is None else str(d) for d in a)}]" for n, a in axes.items()),
        between=", ",
    )
    found = OpenInputs(
        axes=axes,
        dtypes={info.name: info.dtype for info in unknown},
        batches=frozenset((n, 0) for n, a in axes.items() if len(a) > 1 and a[0] is None),
    )
    return ShapeError(
        f"inputs have open dimensions: {shown}; adrenoc compiles for fixed shapes",
        hint=suggest(found),
    )


def _tell(taken: Sequence[TensorInfo]) -> list[Decision]:
    """Return what was taken of axes that stay open: the extents that the file has there."""
    decisions = []
    for info in taken:
        letters = [
            "N" if a in info.open_axes and a == 0 else "D" if a in info.open_axes else d
            for a, d in enumerate(info.shape)
        ]
        found = OpenInputs(axes={info.name: (None,)}, dtypes={}, batches=frozenset())
        is_batch = info.open_axes == {0} and len(info.shape) > 1
        what = f"a batch of {info.shape[0]}" if is_batch else f"the shape {list(info.shape)}"
        option = list_options(found, {info.name: [str(d) for d in letters]})
        decisions.append(
            Decision(
                subject=info.name,
                taken=f"{ASSUMED} {what}",
                reason=f"the file leaves it open; {option} takes another",
            )
        )
    return decisions
