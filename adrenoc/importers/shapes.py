"""Fixes the shapes of graph inputs: what the model says, completed by `--shape`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import onnx

from adrenoc.base.decision import ASSUMED, Decision
from adrenoc.base.errors import ModelFormatError, ShapeError, UnsupportedOperatorError
from adrenoc.base.text.spelling import list_first, quote_word
from adrenoc.bundle.manifest import TensorSpec
from adrenoc.importers.onnx.find_batches import find_batches
from adrenoc.importers.signature import Extent, extent_of


@dataclass(frozen=True, kw_only=True)
class OpenInputs:
    """Inputs whose shapes are not known: the `axes` of each, and which of these are `batches`."""

    axes: Mapping[str, Sequence[Extent]]
    dtypes: Mapping[str, str]
    batches: frozenset[tuple[str, int]]


def list_options(found: OpenInputs, extents: Mapping[str, Sequence[Extent]]) -> str:
    """Return an option for each input that those before it leave open, with these extents."""
    bound: set[str] = set()
    words = []
    for name, axes in found.axes.items():
        asked = [d for a, d in enumerate(axes) if (name, a) not in found.batches]
        if any(d is None or (isinstance(d, str) and d not in bound) for d in asked):
            shape = ",".join("D" if d is None else str(d) for d in extents[name])
            words.append(f"--shape {quote_word(f'{name}:{shape}')}")
        bound.update(d for d in axes if isinstance(d, str))
    return " ".join(words)


def write_options(found: OpenInputs) -> str:
    """Return the options to type, with a letter or a name for each extent that only the user
    knows."""
    known = {
        name: [1 if (name, axis) in found.batches else d for axis, d in enumerate(axes)]
        for name, axes in found.axes.items()
    }
    open_axes = [d for axes in known.values() for d in axes if not isinstance(d, int)]
    names = list_first(dict.fromkeys(str(d or "D") for d in open_axes), between=", ")
    return f"add {list_options(found, known)} (with the extents that you feed in place of {names})"


def fix_input_shapes(
    graph: onnx.GraphProto,
    shapes: Mapping[str, tuple[int, ...]],
    suggest: Callable[[OpenInputs], str] = write_options,
) -> tuple[list[TensorSpec], list[Decision]]:
    """Return the inputs of `graph` (initialisers left out) with static shapes, and what was
    assumed.

    A symbolic dimension that `shapes` fixes at one input is fixed wherever it occurs.  Where
    batches alone stay open they are 1, or what `shapes` says of other batches.  `suggest` writes
    the hint of an error for inputs that stay open.

    Raises:
        ShapeError: an unknown input, a wrong rank, a contradiction, or a dimension left open.
    """
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    check_names(shapes, [value.name for value in inputs])
    dtypes = {v.name: _dtype(v) for v in inputs}  # first: what is no tensor has no shape either
    dims = {value.name: _dims(value) for value in inputs}
    symbols: dict[str, int] = {}
    for name, wanted in shapes.items():
        _bind(name, dims[name], wanted, symbols)
    ranked = {name: axes for name, axes in dims.items() if axes is not None}
    still = {
        name: _known(axes, symbols)
        for name, axes in ranked.items()
        if name not in shapes and not _are_fixed(_known(axes, symbols))
    }
    batches = find_batches(graph, ranked) if still else frozenset()
    given = {shapes[name][axis] for name, axis in batches if name in shapes}
    batch = given.pop() if len(given) == 1 else 1
    taken = {
        name: [batch if (name, axis) in batches else d for axis, d in enumerate(axes)]
        for name, axes in still.items()
    }
    if not all(map(_are_fixed, taken.values())):
        shown = ", ".join(f"'{n}' [{_format(ranked[n])}]" for n in still)
        what = "inputs have open dimensions: " + shown
        if len(still) == 1:
            what = f"input '{next(iter(still))}' has open dimensions [{_format(*still.values())}]"
        raise ShapeError(
            f"{what}; adrenoc compiles for fixed shapes",
            hint=suggest(OpenInputs(axes=still, dtypes=dtypes, batches=batches)),
        )
    static: dict[str, tuple[int, ...]] = {**shapes}
    for name, axes in dims.items():
        if axes is None and name not in shapes:
            raise ShapeError(
                f"input '{name}' has no shape in the model; adrenoc compiles for fixed shapes",
                hint=f"add --shape {name}:D,D,... with the extents that you feed",
            )
        if axes is not None and name not in shapes:
            extents = taken.get(name) or _known(axes, symbols)
            static[name] = tuple(d for d in extents if isinstance(d, int))
    specs = [TensorSpec(name=n, shape=static[n], dtype=dtype) for n, dtype in dtypes.items()]
    return specs, _tell_batch(still, batches, batch)


def _tell_batch(
    still: Mapping[str, Sequence[Extent]], batches: frozenset[tuple[str, int]], batch: int
) -> list[Decision]:
    if not still:
        return []
    name, axes = next(iter(still.items()))
    shown = ",".join("N" if (name, a) in batches else str(d) for a, d in enumerate(axes))
    return [
        Decision(
            subject=", ".join(still),
            taken=f"{ASSUMED} a batch of {batch}",
            reason="the file leaves it open; "
            f"--shape {quote_word(f'{name}:{shown}')} takes another",
        )
    ]


def _are_fixed(axes: Sequence[Extent]) -> bool:
    return all(isinstance(d, int) for d in axes)


def _format(axes: Sequence[Extent]) -> str:
    return ", ".join("?" if d is None else str(d) for d in axes)


def check_names(shapes: Mapping[str, object], known: Sequence[str]) -> None:
    """Refuse a `--shape` for an input that the model does not have."""
    for name in shapes:
        if name in known:
            continue
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
        guess = near[0] if near else known[0] if known else ""
        names = list_first((f"'{k}'" for k in known), between=", ")
        raise ShapeError(
            f"the model has no input '{name}'; its inputs are {names}",
            hint=f"--shape {guess}:..." if guess else "leave --shape out",
        )


def _dims(value: onnx.ValueInfoProto) -> list[Extent] | None:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    found = [extent_of(d) for d in tensor.shape.dim]
    # Some exporters write 0 for "any".
    return [d or None for d in found]


def _bind(
    name: str, dims: list[Extent] | None, wanted: tuple[int, ...], symbols: dict[str, int]
) -> None:
    given = ",".join(map(str, wanted))
    if any(extent < 0 for extent in wanted):
        raise ShapeError(
            f"--shape {name}:{given} has an extent below 0", hint=f"--shape {name}:1,..."
        )
    if dims is None:
        return
    shown = _format(dims)
    if len(dims) != len(wanted):
        raise ShapeError(
            f"--shape {name}:{given} has {len(wanted)} dimensions, but input '{name}' has "
            f"{len(dims)}: [{shown}]",
            hint=f"--shape {name}:{','.join(map(str, _known(dims, symbols)))}".replace("None", "D"),
        )
    for axis, (dim, extent) in enumerate(zip(dims, wanted, strict=True)):
        known = symbols.setdefault(dim, extent) if isinstance(dim, str) else dim
        if known is None or known == extent:
            continue
        fit = zip(_known(dims, symbols), wanted, strict=True)
        fitting = f"--shape {name}:{','.join(str(k if isinstance(k, int) else w) for k, w in fit)}"
        asked = f"--shape {name}:{given} asks for {extent} in dimension {axis}, where "
        if isinstance(dim, str):
            raise ShapeError(
                f"{asked}'{dim}' is {known} already: [{shown}]",
                hint=f"{fitting}, or another {dim} for all inputs",
            )
        raise ShapeError(
            f"{asked}the model has {known}: [{shown}]",
            hint=f"{fitting}, or export the model with that size",
        )


def _known(dims: Sequence[Extent], symbols: Mapping[str, int]) -> list[Extent]:
    return [symbols.get(d, d) if isinstance(d, str) else d for d in dims]


def _dtype(value: onnx.ValueInfoProto) -> str:
    kind = value.type.WhichOneof("value")
    element = value.type.tensor_type.elem_type
    if kind != "tensor_type" or element == onnx.TensorProto.STRING:
        what = "strings" if kind == "tensor_type" else str(kind).replace("_type", "s")
        raise UnsupportedOperatorError(
            f"input '{value.name}' holds {what}; adrenoc takes tensors of numbers",
            hint="cut that part off: onnx.utils.extract_model(...)",
        )
    if element in (onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128):
        raise UnsupportedOperatorError(
            f"input '{value.name}' holds complex numbers; adrenoc takes real ones",
            hint="feed real and imaginary parts along an axis, as DFT has them",
        )
    if element == onnx.TensorProto.UNDEFINED:
        raise ModelFormatError(
            f"input '{value.name}' has no element type", hint="export the model again"
        )
    return str(onnx.helper.tensor_dtype_to_np_dtype(element))
