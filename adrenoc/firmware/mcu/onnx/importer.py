"""A quantised ONNX file as an int8 network: every operator that cannot go is named, all at once."""

import copy
from dataclasses import replace

import onnx

from adrenoc.base.errors import CompileError, RefusedError, UnsupportedOperatorError
from adrenoc.base.text.spelling import quote_word
from adrenoc.firmware.mcu.network import Network
from adrenoc.firmware.mcu.onnx.context import OnnxContext, close_islands
from adrenoc.firmware.mcu.onnx.elementwise import ELEMENTWISE, MOVES
from adrenoc.firmware.mcu.onnx.filters import FILTERS, SOFTMAX
from adrenoc.importers.formats import ModelFiles
from adrenoc.importers.onnx.fold import fold_constants
from adrenoc.importers.onnx.graph import OnnxGraph, node_label
from adrenoc.importers.onnx.importer import read_quantised_graph

_TRANSLATIONS = {**FILTERS, **ELEMENTWISE, **MOVES, **SOFTMAX}
_NAMES = {onnx.TensorProto.INT8: "int8", onnx.TensorProto.UINT8: "uint8"}
_NO_KERNEL = "no integer kernel between bytes"
_IN_FLOATS = "ONNX computes it in floats alone; TFLite has an LSTM of int8, which can go"
_REASONS = dict.fromkeys(("LSTM", "GRU", "RNN", "DynamicQuantizeLSTM"), _IN_FLOATS)
QUANTISE_HINT = (
    "quantise it: onnxruntime.quantization.quantize_static with a CalibrationDataReader, "
    "activation_type and weight_type QuantType.QInt8, per_channel=True"
)


def network_of_onnx(files: ModelFiles) -> tuple[Network, str]:
    """Return the network of an ONNX model, and the digest of its files. Raises ModelFormatError
    where it is damaged; CompileError where its data are not quantised; UnsupportedOperatorError
    where it holds operators that cannot go, each named with the reason."""
    path = files.paths[0]
    graph, sha256 = read_quantised_graph(files)
    known = copy.deepcopy(graph)
    fold_constants(known)
    graph.types, graph.constants = known.types, {**known.constants, **graph.constants}
    if not any(node.op_type.startswith("Q") for node in graph.nodes):
        raise CompileError(
            f"{path}: its data are not quantised; integer kernels take models in int8",
            hint=QUANTISE_HINT,
        )
    close_islands(graph)
    made = OnnxContext(graph=graph)
    dtypes: dict[int, str] = {}
    inputs = tuple(_input(made, spec.name, dtypes) for spec in graph.inputs)
    refused = _translate(made)
    outputs = tuple(_output(made, name, dtypes, refused) for name in graph.outputs)
    if refused:
        raise UnsupportedOperatorError(
            f"{path} holds {len(refused)} operators that have no integer kernel: "
            + "; ".join(refused),
            hint=f"adrenoc check {quote_word(path)} --device adreno, or take them out of the model",
        )
    if len(set(outputs)) < len(outputs) or set(outputs) & set(inputs):
        raise CompileError(
            f"{path}: an output is an input, or an output twice; for integer kernels each "
            "output is one that an operator makes",
            hint="take that output out of the model",
        )
    network = Network(
        name=path.stem,
        tensors=tuple(made.tensors),
        operators=tuple(made.operators),
        inputs=inputs,
        outputs=outputs,
        labels=tuple(made.labels),
        dtypes=dtypes,
    )
    return network, sha256


def _input(made: OnnxContext, name: str, dtypes: dict[int, str]) -> int:
    """Return the tensor of an input, in the file's order of axes, without its conversion."""
    graph = made.graph
    readers = [node for node in graph.nodes if name in node.input]
    shape = made.shape(name)
    if len(readers) == 1 and readers[0].op_type == "QuantizeLinear":
        node = readers[0]
        inner, outer = node.output[0], "float32"
        scale = float(made.number(node, 1))
        zero = int(made.number(node, 2)) if made.given(node, 2) else 0
        graph.nodes.remove(node)
    else:
        inner, outer = name, _NAMES.get(graph.types[name].element, "float32")
        scale, zero = _quanta(graph, name)
    try:
        offset = made.offset(inner)
    except RefusedError:
        raise CompileError(
            f"the input '{name}' is read as {outer}; integer kernels take models whose data are "
            "quantised to bytes",
            hint=QUANTISE_HINT,
        ) from None
    index = made.add(shape, name, scale, zero - offset)
    if outer != "int8":
        dtypes[index] = outer
    made.places[inner] = made.channels_last(index)
    return index


def _quanta(graph: OnnxGraph, name: str) -> tuple[float, int]:
    """Return scale and zero point of a tensor of bytes, as its readers have it."""
    for node in graph.nodes:
        for index, read in enumerate(node.input[:-2]):
            pair = [graph.constants.get(n) for n in node.input[index + 1 : index + 3]]
            if read == name and all(p is not None and p.size == 1 for p in pair):
                return float(pair[0].reshape(-1)[0]), int(pair[1].reshape(-1)[0])  # type: ignore[union-attr]
    return 1.0, 0


def _translate(made: OnnxContext) -> list[str]:
    """Translate all nodes; what cannot go, with the reason of each."""
    refused = []
    outputs = set(made.graph.outputs)
    for node in made.graph.nodes:
        last = node.op_type == "DequantizeLinear" and outputs.issuperset(node.output)
        if last and node.input[0] in made.places:
            continue
        translate = _TRANSLATIONS.get(node.op_type)
        try:
            if translate is None:
                raise RefusedError(_REASONS.get(node.op_type, _NO_KERNEL))
            translate(made, node)
        except (RefusedError, ValueError, KeyError) as error:
            refused.append(f"{node.op_type} {node_label(node)}: {error}")
        made.labels += [node.op_type] * (len(made.operators) - len(made.labels))
    return refused


def _output(made: OnnxContext, name: str, dtypes: dict[int, str], refused: list[str]) -> int:
    """Return the tensor of an output, in the file's order of axes, without its conversion."""
    makers = [node for node in made.graph.nodes if name in node.output]
    inner, outer = name, _NAMES.get(made.graph.types[name].element, "float32")
    if makers and makers[0].op_type == "DequantizeLinear":
        inner = makers[0].input[0]
    if inner not in made.places:
        if not refused:
            refused.append(f"the output '{name}' is not made of bytes")
        return -1
    place = made.channels_first(made.places[inner])
    made.tensors[place] = replace(made.tensors[place], name=name)
    if outer != "int8":
        dtypes[place] = outer
    return place
