"""A TFLite file as a network of integers: every operator that cannot go is named, all at once."""

from __future__ import annotations

from pathlib import Path

from adrenoc.base.errors import CompileError, ModelFormatError, UnsupportedOperatorError
from adrenoc.base.refused import RefusedError
from adrenoc.base.text.spelling import list_first, quote_word
from adrenoc.firmware.mcu.network import WIDTHS, Network, sources_of
from adrenoc.firmware.mcu.tflite.batches import BATCHES
from adrenoc.firmware.mcu.tflite.context import Importing, Translation
from adrenoc.firmware.mcu.tflite.elementwise import ELEMENTWISE
from adrenoc.firmware.mcu.tflite.filters import FILTERS
from adrenoc.firmware.mcu.tflite.fold_shapes import fold_shapes
from adrenoc.firmware.mcu.tflite.moves import MOVES
from adrenoc.firmware.mcu.tflite.recurrent import RECURRENT
from adrenoc.firmware.mcu.tflite.strip_borders import strip_borders
from adrenoc.firmware.mcu.tflite.tables import TABLES
from adrenoc.firmware.mcu.tflite.words import WORDS
from adrenoc.importers.tflite.file import GraphInfo, Operator, TFLiteFile

_CONVERSIONS = ("DEQUANTIZE", "QUANTIZE")
_TRANSLATIONS = {**BATCHES, **FILTERS, **ELEMENTWISE, **MOVES, **RECURRENT, **TABLES}
QUANTISE_HINT = (
    "quantise it to int8: tf.lite.TFLiteConverter with optimizations, a representative_dataset "
    "and target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]"
)


def network_of(path: Path, file: TFLiteFile) -> Network:
    """Return the network of a verified file.

    Raises:
        ModelFormatError: its operators are in no order in which they can be computed.
        CompileError: its data are neither int8 nor int16.
        UnsupportedOperatorError: it holds operators that cannot go, each named with the reason.
    """
    if len(file.graphs) > 1:
        raise CompileError(
            f"{path} holds {len(file.graphs)} graphs; integer kernels take models of one",
            hint="convert it without control flow",
        )
    _refuse_disorder(path, file.main)
    graph, dtypes = strip_borders(fold_shapes(file.main))
    _refuse_other_data(path, graph)
    _refuse_other_outputs(path, graph)
    made = Importing(graph=graph)
    refused = []
    for operator in graph.operators:
        try:
            translate = _translation(graph, operator)
            made.operators.append(translate(made, operator))
            made.labels += [operator.kind] * (len(made.operators) - len(made.labels))
        except KeyError as error:
            refused.append(f"{operator.kind} {graph.label(operator)}: it has no option {error}")
        except (RefusedError, ValueError) as error:
            refused.append(f"{operator.kind} {graph.label(operator)}: {error}")
    if refused:
        raise UnsupportedOperatorError(
            f"{path} holds {len(refused)} operators that have no integer kernel: "
            + "; ".join(refused),
            hint=f"adrenoc check {quote_word(path)} --device adreno, or take them out of the model",
        )
    read = {index for operator in made.operators for index in sources_of(operator)}
    return Network(
        name=path.stem,
        tensors=tuple(made.tensors),
        operators=tuple(made.operators),
        inputs=graph.inputs,
        outputs=graph.outputs,
        labels=tuple(made.labels),
        constants={index: value for index, value in made.constants.items() if index in read},
        dtypes=dtypes,
    )


def _translation(graph: GraphInfo, operator: Operator) -> Translation:
    if operator.custom or operator.kind not in _TRANSLATIONS:
        raise RefusedError("no integer kernel yet")
    tensors = [graph.tensors[i] for i in (*operator.inputs, *operator.outputs) if i >= 0]
    data = [tensor for tensor in tensors if tensor.value is None and not tensor.is_variable]
    if all(tensor.dtype != "int16" for tensor in data):
        return _TRANSLATIONS[operator.kind]
    if operator.kind not in WORDS:
        raise RefusedError("no kernel of int16 yet")
    return WORDS[operator.kind]


def _refuse_disorder(path: Path, graph: GraphInfo) -> None:
    """Operators are computed in the order of the file: what one reads is there, and made once."""
    there = {i for i, tensor in enumerate(graph.tensors) if tensor.value is not None}
    there |= {i for i, tensor in enumerate(graph.tensors) if tensor.is_variable}
    there |= set(graph.inputs)
    for operator in graph.operators:
        missing = [i for i in operator.inputs if i >= 0 and i not in there]
        again = [i for i in operator.outputs if i in there]
        if missing or again:
            name = graph.tensors[(missing or again)[0]].name
            what = "which nothing before it makes" if missing else "which is there before"
            raise ModelFormatError(
                f"{path} is damaged: {operator.kind} {graph.label(operator)} "
                f"{'reads' if missing else 'writes'} '{name}', {what}",
                hint="convert or download the model again",
            )
        there.update(operator.outputs)


def _refuse_other_outputs(path: Path, graph: GraphInfo) -> None:
    """Each output is a place of its own that an operator writes."""
    made = {index for operator in graph.operators for index in operator.outputs}
    for number, index in enumerate(graph.outputs):
        twice = index in graph.outputs[:number]
        if twice or index not in made:
            what = "is an output twice" if twice else "is computed by no operator"
            raise CompileError(
                f"{path}: '{graph.tensors[index].name}' {what}; for integer kernels each output "
                "is one that an operator makes",
                hint="take that output out of the model",
            )


def _refuse_float_operators(path: Path, graph: GraphInfo) -> None:
    """Name what a converter left in floats within a model that is quantised."""
    computing = [o for o in graph.operators if o.kind not in _CONVERSIONS]
    made = [{graph.tensors[i].dtype for i in operator.outputs} for operator in computing]
    left = [o for o, dtypes in zip(computing, made, strict=True) if "float32" in dtypes]
    if left and any(dtypes & {"int8", "int16"} for dtypes in made):
        raise UnsupportedOperatorError(
            f"{path} is quantised, but {len(left)} of its operators compute in float32, as its "
            "converter left them: " + list_first([f"{o.kind} {graph.label(o)}" for o in left]),
            hint=f"adrenoc check {quote_word(path)} --device adreno, or take them out of the model",
        )


def _refuse_other_data(path: Path, graph: GraphInfo) -> None:
    """Say how to quantise a float model, before its operators are looked at."""
    used = {i for o in graph.operators for i in (*o.inputs[:1], *o.outputs) if i >= 0}
    used |= {*graph.inputs, *graph.outputs}
    other = [graph.tensors[i] for i in sorted(used) if graph.tensors[i].dtype not in WIDTHS]
    other = [tensor for tensor in other if tensor.value is None]
    if not other:
        return
    _refuse_float_operators(path, graph)
    kinds = sorted({tensor.dtype for tensor in other})
    floats = "float32" in kinds
    raise CompileError(
        f"{path}: {len(other)} of its tensors are {' and '.join(kinds)} (the first is "
        f"'{other[0].name}'); integer kernels take models whose data are int8 or int16, "
        "inputs and outputs too",
        hint=QUANTISE_HINT
        if floats
        else "convert it with inference_input_type = inference_output_type = tf.int8",
    )
