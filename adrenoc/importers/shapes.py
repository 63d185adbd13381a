"""Fixes the shapes of graph inputs: what the model says, completed by `--shape`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

import onnx

from adrenoc.bundle.manifest import TensorSpec
from adrenoc.errors import ModelFormatError, ShapeError, UnsupportedOperatorError
from adrenoc.text.spelling import list_first

# One dimension: a number, a symbol that several inputs may share, or nothing at all.
Dim = int | str | None


def fix_input_shapes(
    graph: onnx.GraphProto, shapes: Mapping[str, tuple[int, ...]]
) -> list[TensorSpec]:
    """The inputs of `graph` (initialisers left out) with static shapes.

    A symbolic dimension that `shapes` fixes at one input is fixed wherever it occurs.

    Raises:
        ShapeError: an unknown input, a wrong rank, a contradiction, or a dimension left open.
    """
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    check_names(shapes, [value.name for value in inputs])
    dtypes = [_dtype(value) for value in inputs]  # first: what is no tensor has no shape either
    dims = {value.name: _dims(value) for value in inputs}
    symbols: dict[str, int] = {}
    for name, wanted in shapes.items():
        _bind(name, dims[name], wanted, symbols)
    options = _options(dims, shapes, symbols)
    if len(options) > 1:
        raise ShapeError(
            f"inputs have open dimensions: {_format_open(dims, shapes)}; "
            "adrenoc compiles for fixed shapes",
            hint=f"add {' '.join(options)} (with the extents that you feed)",
        )
    return [
        TensorSpec(
            name=value.name,
            shape=_static(value.name, dims[value.name], shapes.get(value.name), symbols),
            dtype=dtype,
        )
        for value, dtype in zip(inputs, dtypes, strict=True)
    ]


def _options(
    dims: Mapping[str, list[Dim] | None],
    shapes: Mapping[str, tuple[int, ...]],
    symbols: Mapping[str, int],
) -> list[str]:
    """An option for each input that is still open, with an example of its extents.

    What one of them gives to a symbol holds for those after it.
    """
    bound, options = dict(symbols), []
    for name, axes in dims.items():
        if name in shapes or axes is None:
            continue
        known = _known(axes, bound)
        if all(isinstance(d, int) for d in known):
            continue
        given = _example(known)
        options.append(f"--shape {name}:{given}")
        extents = map(int, given.split(","))
        bound |= {d: e for d, e in zip(axes, extents, strict=True) if isinstance(d, str)}
    return options


def _format_open(
    dims: Mapping[str, list[Dim] | None], shapes: Mapping[str, tuple[int, ...]]
) -> str:
    return ", ".join(
        f"'{name}' [{', '.join('?' if d is None else str(d) for d in axes)}]"
        for name, axes in dims.items()
        if axes is not None and name not in shapes and not all(isinstance(d, int) for d in axes)
    )


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


def open_dims_error(name: str, dims: Sequence[Dim] | None) -> ShapeError:
    """The error for an input whose shape is not fixed, with an option to type."""
    if dims is None:
        return ShapeError(
            f"input '{name}' has no shape in the model; adrenoc compiles for fixed shapes",
            hint=f"add --shape {name}:1,3,224,224 (with the extents that you feed)",
        )
    shown = ", ".join(str(d) if d is not None else "?" for d in dims)
    return ShapeError(
        f"input '{name}' has open dimensions [{shown}]; adrenoc compiles for fixed shapes",
        hint=f"add --shape {name}:{_example(dims)} (with the extents that you feed)",
    )


def _example(dims: Sequence[Dim]) -> str:
    extent = 224 if len(dims) == 4 else 128
    return ",".join(
        str(d) if isinstance(d, int) else "1" if axis == 0 else str(extent)
        for axis, d in enumerate(dims)
    )


def _dims(value: onnx.ValueInfoProto) -> list[Dim] | None:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return [
        # Some exporters write 0 or -1 for "any".
        d.dim_value if d.dim_value > 0 else d.dim_param or None
        for d in tensor.shape.dim
    ]


def _bind(
    name: str, dims: list[Dim] | None, wanted: tuple[int, ...], symbols: dict[str, int]
) -> None:
    given = ",".join(map(str, wanted))
    if any(extent < 0 for extent in wanted):
        raise ShapeError(
            f"--shape {name}:{given} has an extent below 0", hint=f"--shape {name}:1,..."
        )
    if dims is None:
        return
    shown = ", ".join(str(d) if d is not None else "?" for d in dims)
    if len(dims) != len(wanted):
        raise ShapeError(
            f"--shape {name}:{given} has {len(wanted)} dimensions, but input '{name}' has "
            f"{len(dims)}: [{shown}]",
            hint=f"--shape {name}:{_example(_known(dims, symbols))}",
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


def _known(dims: Sequence[Dim], symbols: Mapping[str, int]) -> list[Dim]:
    return [symbols.get(d, d) if isinstance(d, str) else d for d in dims]


def _static(
    name: str, dims: list[Dim] | None, wanted: tuple[int, ...] | None, symbols: dict[str, int]
) -> tuple[int, ...]:
    if wanted is not None:
        return wanted
    if dims is None:
        raise open_dims_error(name, None)
    known = _known(dims, symbols)
    static = tuple(d for d in known if isinstance(d, int))
    if len(static) != len(known):
        raise open_dims_error(name, known)
    return static


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
