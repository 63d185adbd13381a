"""Read a TFLite file as a network of integers: operators that cannot go are named, all at once.

What only converters need is taken out first:
    SHAPE(x) -> STRIDED_SLICE -> PACK -> RESHAPE, written for an open batch, becomes RESHAPE to a
    constant: the batch is one here
    float32 x -> QUANTIZE -> int8 q ... int8 r -> DEQUANTIZE -> float32 y becomes q ... r, under
    the names x and y; the same for uint8, and with int16 in place of int8
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from adrenoc.base.errors import (
    CompileError,
    ModelFormatError,
    RefusedError,
    UnsupportedOperatorError,
)
from adrenoc.base.text.spelling import list_first, quote_word
from adrenoc.firmware.mcu.network import WIDTHS, Network
from adrenoc.firmware.mcu.tflite.context import TfliteContext, Translation
from adrenoc.firmware.mcu.tflite.elementwise import ELEMENTWISE, TABLES, WORDS
from adrenoc.firmware.mcu.tflite.filters import BATCHES, FILTERS
from adrenoc.firmware.mcu.tflite.moves import MOVES
from adrenoc.firmware.mcu.tflite.recurrent import RECURRENT
from adrenoc.importers.tflite.file import GraphInfo, OperatorInfo, TensorInfo, TFLiteFile

_CONVERSIONS = ("DEQUANTIZE", "QUANTIZE")
_TRANSLATIONS = {**BATCHES, **FILTERS, **ELEMENTWISE, **MOVES, **RECURRENT, **TABLES}
QUANTISE_HINT = (
    "quantise it to int8: tf.lite.TFLiteConverter with optimizations, a representative_dataset "
    "and target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]"
)


def network_of(path: Path, file: TFLiteFile) -> Network:
    """Return the network of a verified file. Raises ModelFormatError where its operators are in no
    order in which they can be computed; CompileError where its data are neither int8 nor int16;
    UnsupportedOperatorError where it holds operators that cannot go, each named with the reason."""
    if len(file.graphs) > 1:
        raise CompileError(
            f"{path} holds {len(file.graphs)} graphs; integer kernels take models of one",
            hint="convert it without control flow",
        )
    _refuse_disorder(path, file.main)
    graph, dtypes = strip_borders(fold_shapes(file.main))
    _refuse_other_data(path, graph)
    _refuse_other_outputs(path, graph)
    made = TfliteContext(graph=graph)
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
    read = {index for operator in made.operators for index in operator.sources}
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


def _translation(graph: GraphInfo, operator: OperatorInfo) -> Translation:
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


def fold_shapes(graph: GraphInfo) -> GraphInfo:
    """Return the graph without operators on whole numbers that are known."""
    tensors, left = list(graph.tensors), []
    for operator in graph.operators:
        value = _value(operator, [tensors[i] for i in operator.inputs if i >= 0])
        if value is None or operator.outputs[0] in graph.outputs:
            left.append(operator)
            continue
        made = tensors[operator.outputs[0]]
        tensors[operator.outputs[0]] = replace(
            made, value=value.astype(made.dtype), shape=value.shape
        )
    return replace(graph, tensors=tuple(tensors), operators=tuple(left))


def _value(operator: OperatorInfo, inputs: Sequence[TensorInfo]) -> np.ndarray | None:
    """Return what an operator makes, where it is one of these and that is known."""
    if operator.custom or len(operator.outputs) != 1:
        return None
    if operator.kind == "SHAPE":
        return np.array(inputs[0].shape, np.int64)
    compute = _ARITHMETIC.get(operator.kind)
    values = [i.value for i in inputs if i.value is not None and i.dtype in ("int32", "int64")]
    if compute is None or len(values) < len(inputs):
        return None
    return compute(operator, values)


def _slice(operator: OperatorInfo, values: Sequence[np.ndarray]) -> np.ndarray | None:
    option = operator.options.get
    data, *parts = values
    if data.ndim != 1 or option("EllipsisMask") or option("NewAxisMask"):
        return None
    begin, end, step = (int(part.reshape(-1)[0]) for part in parts)
    if option("ShrinkAxisMask"):
        return np.asarray(data[begin])
    return data[None if option("BeginMask") else begin : None if option("EndMask") else end : step]


def _pack(operator: OperatorInfo, values: Sequence[np.ndarray]) -> np.ndarray | None:
    return np.stack(values, int(operator.options.get("Axis", 0)))


_ARITHMETIC: dict[str, Callable[[OperatorInfo, Sequence[np.ndarray]], np.ndarray | None]] = {
    "MUL": lambda operator, values: values[0] * values[1],
    "PACK": _pack,
    "STRIDED_SLICE": _slice,
}


_SHIFT = 128
_BORDERS = ("QUANTIZE", "DEQUANTIZE")


def strip_borders(graph: GraphInfo) -> tuple[GraphInfo, dict[int, str]]:
    """Return the graph without borders, and the file's dtype of each tensor that had one."""
    readers = Counter(index for o in graph.operators for index in o.inputs)
    tensors, dtypes = list(graph.tensors), {}
    gone: set[int] = set()
    inputs, outputs = list(graph.inputs), list(graph.outputs)
    for number, operator in enumerate(graph.operators):
        if operator.kind not in _BORDERS or operator.custom:
            continue
        source, result = operator.inputs[0], operator.outputs[0]
        pair = tensors[source], tensors[result]
        if source in inputs and readers[source] == 1 and _converts(*pair):
            inner, ends, end = result, inputs, source
        elif result in outputs and not readers[result] and _converts(*pair[::-1]):
            inner, ends, end = source, outputs, result
        else:
            continue
        if inner in dtypes or ends.count(end) != 1 or inner in (*inputs, *outputs):
            continue
        ends[ends.index(end)] = inner
        dtypes[inner] = tensors[end].dtype
        tensors[inner] = replace(tensors[inner], name=tensors[end].name)
        gone.add(number)
    stripped = replace(
        graph,
        tensors=tuple(tensors),
        operators=tuple(o for n, o in enumerate(graph.operators) if n not in gone),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
    )
    return stripped, dtypes


def _converts(outer: TensorInfo, inner: TensorInfo) -> bool:
    """Return whether a border stands for the integers behind it, number by number."""
    if inner.dtype not in WIDTHS or inner.scales.size != 1 or outer.value is not None:
        return False
    if outer.dtype == "float32":
        return True
    same = outer.scales.size == 1 and outer.scale == inner.scale
    return (
        outer.dtype == "uint8"
        and inner.dtype == "int8"
        and same
        and outer.zero == inner.zero + _SHIFT
    )
