"""Import TFLite files as Relax IR with static shapes and constant weights.

The graph stays NHWC, as the file has it; `passes` choose layouts.  The translation is our own:
TVM's frontend keeps quantised networks in integers by operators of a dialect that has no kernels
here, refuses data in float with weights in integers, and leaves TFLite's rounding out.

Shapes of inputs are the file's own, but for axes that it leaves open.  A converter writes some
extent for each of these, mostly 1: for a batch that is as good as another, for an image or a sound
it is nothing that anybody feeds, and is asked for.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from adrenoc.base.decision import ASSUMED, Decision
from adrenoc.base.errors import ShapeError, UnsupportedOperatorError
from adrenoc.base.text.spelling import list_first
from adrenoc.bundle.manifest import TensorSpec
from adrenoc.importers.formats import ModelFiles
from adrenoc.importers.imported import Imported
from adrenoc.importers.shapes import (
    OpenInputs,
    check_names,
    list_options,
    suggest_shapes,
    write_options,
)
from adrenoc.importers.signature import fill_ports, port_of, tell_fixed
from adrenoc.importers.tflite.converter import NUMERIC_DTYPES, GraphConverter, check_operators
from adrenoc.importers.tflite.decoder import import_call
from adrenoc.importers.tflite.decoder_calls import is_decoder
from adrenoc.importers.tflite.file import TensorInfo, TFLiteFile, read_tflite
from adrenoc.importers.tflite.variables import (
    lift_variables,
    replace_main,
    take_signature,
    tell_signature,
)


def import_tflite(
    files: ModelFiles,
    *,
    shapes: Mapping[str, tuple[int, ...]],
    states: Sequence[tuple[str, str]] = (),
    caches: Sequence[tuple[str, str]] = (),
    fixed: Sequence[tuple[str, str]] = (),
    signature: str = "",
) -> Imported:
    """Import the TFLite model in `files`.

    A TFLite file fixes the shape of each tensor, but for axes that it leaves open: `shapes` may
    give inputs other extents there.  `states` are pairs of an input and the output that it is in
    the next run; with `caches` it is a decoder, of which `shapes` chooses a call.  `fixed` are
    inputs that are constants, with their values.  Of several signatures `signature` names one.
    Raises ModelFormatError where it is damaged or cut off; CustomDomainError or
    UnsupportedOperatorError, naming every operator concerned; ShapeError where `shapes` names an
    unknown input or another shape; OptionError where `states`, `fixed` or `signature` are not what
    the model has."""
    content, sha256 = files.read()
    whole = read_tflite(files.paths[0], content)
    if caches:
        return import_call(whole, sha256, shapes)
    whole, _ = lift_variables(take_signature(whole, signature))
    ports = (port_of(whole.main.tensors[i]) for i in whole.main.inputs)
    settings = fill_ports(ports, tuple(fixed), shapes)
    told = [*tell_signature(whole, signature), *tell_fixed(settings, fixed)]
    file = _put_states_last(_fix_inputs(whole, settings), states)
    main = file.main
    # Refuse operators that nothing translates, and outputs of no numbers. A language model as one
    # graph is refused, too: its prefill and decode are calls that share caches.
    check_operators(file.graphs)
    for i in file.main.outputs:
        check_numbers(file.main.tensors[i])
    if is_decoder(file) and not signature:
        keys = list_first((signature.key for signature in file.signatures), between=", ")
        raise UnsupportedOperatorError(
            f"the file has the signatures {keys} of a language model, which share caches; "
            "expected to compile them together",
            hint="adrenoc compile MODEL without --shape and --state",
        )
    said: dict[str, Any] = {"states": states, "fixed": fixed, "signature": signature}
    infos = [main.tensors[i] for i in main.inputs]

    def suggest(found: OpenInputs) -> str:
        return suggest_shapes(
            found,
            files.paths[0],
            lambda others: import_tflite(files, shapes={**shapes, **others}, **said),
        )

    inputs, assumed = shape_inputs(infos, shapes, suggest)
    return GraphConverter(file, inputs).import_main(sha256, (*told, *assumed), states)


def _fix_inputs(file: TFLiteFile, settings: Mapping[str, np.ndarray]) -> TFLiteFile:
    """Return the same with the inputs that are settings as constants."""
    main = file.main
    is_fixed = {i: main.tensors[i].name in settings for i in main.inputs}
    tensors = [
        replace(one, value=settings[one.name]) if is_fixed.get(i, False) else one
        for i, one in enumerate(main.tensors)
    ]
    inputs = tuple(i for i, fixed in is_fixed.items() if not fixed)
    return replace_main(file, replace(main, tensors=tuple(tensors), inputs=inputs))


def _put_states_last(file: TFLiteFile, states: Sequence[tuple[str, str]]) -> TFLiteFile:
    """Return the same with the outputs that are states behind all others, in their order."""
    main = file.main
    order = {present: at for at, (_, present) in enumerate(states, start=1)}
    outputs = sorted(main.outputs, key=lambda i: order.get(main.tensors[i].name, 0))
    return replace_main(file, replace(main, outputs=tuple(outputs)))


def shape_inputs(
    infos: Sequence[TensorInfo],
    shapes: Mapping[str, tuple[int, ...]],
    suggest: Callable[[OpenInputs], str] = write_options,
) -> tuple[tuple[TensorSpec, ...], list[Decision]]:
    """Return the inputs with the extents that `shapes` gives to open axes, and what was assumed of
    others.

    `suggest` writes the hint of an error for inputs of which the file says no extent of worth.
    Raises ShapeError where `shapes` names an unknown input or another shape, or leaves one unknown;
    UnsupportedOperatorError where an input holds no numbers."""
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
    """Refuse a tensor at the border of the graph that holds no numbers. Raises
    UnsupportedOperatorError where it holds none."""
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
