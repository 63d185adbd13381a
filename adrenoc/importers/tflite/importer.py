"""TFLite files to Relax IR with static shapes and constant weights.

The graph stays NHWC, as the file has it; `passes` choose layouts.  The translation is our own:
TVM's frontend keeps quantised networks in integers by operators of a dialect that has no kernels
here, refuses data in float with weights in integers, and leaves TFLite's rounding out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from adrenoc.bundle.manifest import TensorSpec
from adrenoc.errors import ShapeError, UnsupportedOperatorError
from adrenoc.importers.formats import ModelFiles
from adrenoc.importers.imported import Imported
from adrenoc.importers.shapes import check_names
from adrenoc.importers.states import check_states
from adrenoc.importers.tflite.converter import NUMERIC_DTYPES, GraphConverter
from adrenoc.importers.tflite.decoder.importer import import_call
from adrenoc.importers.tflite.decoder.roles import is_decoder
from adrenoc.importers.tflite.file import TensorInfo, TFLiteFile, read_tflite
from adrenoc.importers.tflite.refusals import check_imported, check_operators
from adrenoc.text.spelling import list_first


def import_tflite(
    files: ModelFiles,
    *,
    shapes: Mapping[str, tuple[int, ...]],
    states: Sequence[tuple[str, str]] = (),
    caches: Sequence[tuple[str, str]] = (),
) -> Imported:
    """Import the TFLite model in `files`.

    A TFLite file fixes the shape of each tensor, but for axes that it leaves open: `shapes` may
    give inputs other extents there.  `states` are pairs of an input and the output that it is in
    the next run; with `caches` it is a decoder, of which `shapes` chooses a call.

    Raises:
        ModelFormatError: damaged or cut off.
        CustomDomainError, UnsupportedOperatorError: every operator concerned is named.
        ShapeError: `shapes` names an unknown input or another shape.
        OptionError: `states` are not what the model has.
    """
    content, sha256 = files.read()
    whole = read_tflite(files.paths[0], content)
    if caches:
        return import_call(whole, sha256, shapes)
    file = _put_states_last(whole, states)
    main = file.main
    _check_signatures(file)
    check_operators(file.graphs)
    for i in main.outputs:
        _spec(main.tensors[i])
    infos = [main.tensors[i] for i in main.inputs]
    inputs = _apply_shapes(infos, [_spec(info) for info in infos], shapes)
    converter = GraphConverter(file, inputs)
    module = converter.convert()
    check_imported(converter)
    outputs = tuple(
        replace(_spec(main.tensors[i]), shape=shape)
        for i, shape in zip(main.outputs, converter.shapes, strict=True)
    )
    check_states(states, inputs, outputs)
    return Imported(
        module=module,
        format="tflite",
        inputs=inputs,
        outputs=outputs[: len(outputs) - len(states)],
        decisions=converter.decisions(),
        model_sha256=sha256,
        tensors=converter.names,
        states=tuple(states),
    )


def _put_states_last(file: TFLiteFile, states: Sequence[tuple[str, str]]) -> TFLiteFile:
    """The same with the outputs that are states behind all others, in their order."""
    main, rest = file.graphs[0], file.graphs[1:]
    order = {present: at for at, (_, present) in enumerate(states, start=1)}
    outputs = sorted(main.outputs, key=lambda i: order.get(main.tensors[i].name, 0))
    return replace(file, graphs=(replace(main, outputs=tuple(outputs)), *rest))


def _check_signatures(file: TFLiteFile) -> None:
    """Refuse a language model as one graph: its prefill and decode are calls that share caches."""
    if is_decoder(file):
        keys = list_first((signature.key for signature in file.signatures), between=", ")
        raise UnsupportedOperatorError(
            f"the file has the signatures {keys} of a language model, which share caches; "
            "expected to compile them together",
            hint="adrenoc compile MODEL without --shape and --state",
        )


def _apply_shapes(
    infos: Sequence[TensorInfo],
    specs: Sequence[TensorSpec],
    shapes: Mapping[str, tuple[int, ...]],
) -> tuple[TensorSpec, ...]:
    """The inputs with the extents that `shapes` gives to axes which the file leaves open."""
    check_names(shapes, [spec.name for spec in specs])
    for info in infos:
        wanted = tuple(shapes.get(info.name, info.shape))
        if not info.admits(wanted):
            given = ",".join(
                "D" if a in info.open_axes else str(d) for a, d in enumerate(info.shape)
            )
            raise ShapeError(
                f"--shape {info.name}:{','.join(map(str, wanted))} differs from "
                f"{list(info.shape)}, which the TFLite file fixes for all its tensors",
                hint=f"--shape {info.name}:{given}"
                if info.open_axes
                else "leave --shape out, or convert the model with that input shape",
            )
    return tuple(replace(spec, shape=tuple(shapes.get(spec.name, spec.shape))) for spec in specs)


def _spec(info: TensorInfo) -> TensorSpec:
    if any(extent <= 0 for extent in info.shape):
        raise ShapeError(
            f"'{info.name}' has the shape {list(info.shape)} in the TFLite file, expected fixed "
            "extents above zero",
            hint="convert the model with a fixed input shape",
        )
    if info.dtype not in NUMERIC_DTYPES:
        raise UnsupportedOperatorError(
            f"'{info.name}' holds {info.dtype}, which no OpenCL device computes",
            hint="cut the model where it holds numbers",
        )
    return TensorSpec(name=info.name, shape=info.shape, dtype=info.dtype)
