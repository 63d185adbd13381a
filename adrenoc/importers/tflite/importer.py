"""TFLite files to Relax IR with static shapes and constant weights.

The graph stays NHWC, as the file has it; `passes` choose layouts.  The translation is our own:
TVM's frontend keeps quantised networks in integers by operators of a dialect that has no kernels
here, refuses data in float with weights in integers, and leaves TFLite's rounding out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from adrenoc.base.errors import AdrenocError, UnsupportedOperatorError
from adrenoc.base.text.spelling import list_first
from adrenoc.bundle.manifest import TensorSpec
from adrenoc.importers.fixed_inputs import fill_ports, tell_fixed
from adrenoc.importers.formats import ModelFiles
from adrenoc.importers.imported import Imported
from adrenoc.importers.shapes import OpenInputs
from adrenoc.importers.signature import port_of
from adrenoc.importers.states import check_states
from adrenoc.importers.suggest_shapes import suggest_shapes
from adrenoc.importers.tflite.converter import GraphConverter
from adrenoc.importers.tflite.decoder.importer import import_call
from adrenoc.importers.tflite.decoder.roles import is_decoder
from adrenoc.importers.tflite.file import TFLiteFile, read_tflite
from adrenoc.importers.tflite.open_shapes import check_numbers, shape_inputs
from adrenoc.importers.tflite.refusals import check_imported, check_operators
from adrenoc.importers.tflite.signatures import replace_main, take_signature, tell_signature
from adrenoc.importers.tflite.variables import lift_variables


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

    Raises:
        ModelFormatError: damaged or cut off.
        CustomDomainError, UnsupportedOperatorError: every operator concerned is named.
        ShapeError: `shapes` names an unknown input or another shape.
        OptionError: `states`, `fixed` or `signature` are not what the model has.
    """
    content, sha256 = files.read()
    whole = read_tflite(files.paths[0], content)
    if caches:
        return import_call(whole, sha256, shapes)
    whole = lift_variables(take_signature(whole, signature)).file
    settings = fill_ports((port_of(whole.main.tensors[i]) for i in whole.main.inputs), tuple(fixed))
    told = [*tell_signature(whole, signature), *tell_fixed(settings, fixed)]
    file = _put_states_last(_fix_inputs(whole, settings), states)
    main = file.main
    _check_graphs(file, signature)
    said = {"states": states, "fixed": fixed, "signature": signature}
    infos = [main.tensors[i] for i in main.inputs]
    inputs, assumed = shape_inputs(infos, shapes, partial(_suggest, files, shapes, said))
    converter = GraphConverter(file, inputs)
    module = converter.convert()
    check_imported(converter)
    outputs = tuple(
        TensorSpec(name=main.tensors[i].name, shape=shape, dtype=main.tensors[i].dtype)
        for i, shape in zip(main.outputs, converter.shapes, strict=True)
    )
    check_states(states, inputs, outputs)
    return Imported(
        module=module,
        format="tflite",
        inputs=inputs,
        outputs=outputs[: len(outputs) - len(states)],
        decisions=(*told, *assumed, *converter.decisions()),
        model_sha256=sha256,
        tensors=converter.names,
        states=tuple(states),
    )


def _suggest(
    files: ModelFiles,
    shapes: Mapping[str, tuple[int, ...]],
    said: Mapping[str, Any],
    found: OpenInputs,
) -> str:
    """Return a hint for open inputs of which is known that the model can be imported by it."""

    def fits(others: Mapping[str, tuple[int, ...]]) -> bool:
        try:
            import_tflite(files, shapes={**shapes, **others}, **said)
        except AdrenocError:
            return False
        return True

    return suggest_shapes(found, files.paths[0], fits)


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


def _check_graphs(file: TFLiteFile, signature: str) -> None:
    """Refuse operators that nothing translates, and outputs of no numbers.

    A language model as one graph is refused, too: its prefill and decode are calls that share
    caches.
    """
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
