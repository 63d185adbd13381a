"""Sessions of onnxruntime whose numbers others are held against: made here, and nowhere else.

Their integers are exact on every CPU (`_move_to_unsigned`), and their settings those under which
onnxruntime computes what the file says.

Products of signed by unsigned bytes as products of unsigned bytes, which every CPU adds exactly.

Before -> after (w and its zero point are int8, x is uint8):
    y = QLinearConv(x, .., w, .., zero)     y = QLinearConv(x, .., w + 128, .., zero + 128)

Both are the same numbers.  onnxruntime multiplies uint8 by int8 with an instruction that adds pairs
of products in 16 bits, and saturates, where a CPU has AVX2 and no VNNI (AMD before Zen 4, Intel
before Cascade Lake).  Its setting `session.x64quantprecision` mends some of these products: of
constants alone, with graph optimisations alone, and not of QLinearMatMul.

Models of halves as models of floats, and of floats as of doubles: what they compute where no
tensor is rounded.

Before -> after:
    y = MatMul(x, w), all float16       y = MatMul(x, w), all float32, w the same numbers

Processors compute such models in float32 and round what they store: each kernel of onnxruntime some
of the tensors, as fits it.  How far its result is from that of no rounding is no error of ours.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from adrenoc.base.errors import InputError
from adrenoc.base.host.extras import import_onnxruntime
from adrenoc.bundle.chat import EMBEDDINGS, IMAGE_ROWS, TOKENS
from adrenoc.importers.formats import find_model_files
from adrenoc.importers.onnx.graph import all_nodes, inner_graphs
from adrenoc.importers.onnx.load import load_onnx, read_proto

_PRODUCTS = {
    "ConvInteger": (0, 2, 1, 3),
    "MatMulInteger": (0, 2, 1, 3),
    "MatMulIntegerToFloat": (0, 4, 1, 5),
    "QAttention": (0, 6, 1, 7),
    "QGemm": (0, 2, 3, 5),
    "QLinearConv": (0, 2, 3, 5),
    "QLinearMatMul": (0, 2, 3, 5),
}
"""Operators that multiply bytes: which inputs are data, their zero point, weights and theirs."""
_OWN_BYTES = {"DynamicQuantizeMatMul": (1, 3)}
"""Operators that round data to uint8 themselves: which inputs are the weights and their zero."""
_FLOAT_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Operators that onnxruntime computes in bytes where they read what is made of bytes."""
MOVES = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity")
"""Operators whose results are the numbers that they read."""
_OPENS = "DequantizeLinear"
_SHIFT = 128
_MOST_MOVES = 64
"""Nodes to look back over for what a tensor is made of; a damaged file may go in circles."""


@dataclass(frozen=True, kw_only=True)
class _Scope:
    """What the names of a graph, and of those around it, stand for."""

    constants: ChainMap[str, TensorProto] = field(default_factory=ChainMap)
    makers: ChainMap[str, NodeProto] = field(default_factory=ChainMap)
    declared: ChainMap[str, int] = field(default_factory=ChainMap)

    def enter(self, graph: onnx.GraphProto) -> _Scope:
        return _Scope(
            constants=self.constants.new_child({t.name: t for t in graph.initializer}),
            makers=self.makers.new_child({name: n for n in graph.node for name in n.output}),
            declared=self.declared.new_child(
                {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.value_info)}
            ),
        )

    def find_type(self, name: str) -> int:
        """Return the element type of a tensor of integers; 0 where it is not known."""
        for _ in range(_MOST_MOVES):
            if name in self.constants:
                return self.constants[name].data_type
            element, maker = self.declared.get(name, 0), self.makers.get(name)
            if not element and maker is not None:
                element, name = _find_made(maker)
            if element or maker is None:
                return element
        return 0

    def find_opened(self, name: str) -> NodeProto | None:
        """Return this graph's node that makes floats of bytes for a tensor; None for any other."""
        own = self.makers.maps[0]
        for _ in range(_MOST_MOVES):
            maker = own.get(name)
            if maker is None or maker.op_type == _OPENS:
                return maker
            name = _input(maker, 0) if maker.op_type in MOVES else ""
        return None


@dataclass(frozen=True, kw_only=True)
class _Signed:
    """A signed operand of a product with an unsigned one: inputs of `node`, it and its zero."""

    scope: _Scope
    graph: onnx.GraphProto
    node: NodeProto
    place: int
    zero: int


def mixes_signs(model: onnx.ModelProto, *, as_unsigned: bool = False) -> bool:
    """Return whether a model multiplies signed by unsigned bytes; external data may be missing."""
    return any(True for _ in _find_signed(model.graph, _Scope(), as_unsigned))


def _move_to_unsigned(model: onnx.ModelProto, *, as_unsigned: bool = False) -> None:
    """Make unsigned bytes of the signed ones that a model multiplies by unsigned ones, in place.

    `as_unsigned` says that onnxruntime makes unsigned bytes of signed data, so that all signed
    weights meet these."""
    for signed in list(_find_signed(model.graph, _Scope(), as_unsigned)):
        _move(signed)


def _find_signed(graph: onnx.GraphProto, around: _Scope, as_unsigned: bool) -> Iterator[_Signed]:
    scope = around.enter(graph)
    seen: set[str] = set()
    for node in graph.node:
        for inner in inner_graphs(node):
            yield from _find_signed(inner, scope, as_unsigned)
        for found, place, zero in _find_operands(node, scope, as_unsigned):
            if found.op_type != _OPENS or found.output[0] not in seen:
                seen.add(found.output[0])
                yield _Signed(scope=scope, graph=graph, node=found, place=place, zero=zero)


def _find_operands(
    node: NodeProto, scope: _Scope, as_unsigned: bool
) -> Iterator[tuple[NodeProto, int, int]]:
    """Yield the signed operand of products by unsigned bytes: node, place, its zero's place."""
    if node.op_type in _OWN_BYTES:
        place, zero = _OWN_BYTES[node.op_type]
        if scope.find_type(_input(node, place)) == TensorProto.INT8:
            yield node, place, zero
    elif node.op_type in _PRODUCTS:
        data, data_zero, weights, weights_zero = _PRODUCTS[node.op_type]
        pair = ((node, data, data_zero), (node, weights, weights_zero))
        yield from _pick_signed(pair, scope)
    elif node.op_type in _FLOAT_PRODUCTS:
        opened = [scope.find_opened(_input(node, place)) for place in (0, 1)]
        if opened[0] is not None and opened[1] is not None:
            yield from _pick_signed(
                ((opened[0], 0, 2), (opened[1], 0, 2)), scope, as_unsigned=as_unsigned
            )


def _pick_signed(
    pair: tuple[tuple[NodeProto, int, int], tuple[NodeProto, int, int]],
    scope: _Scope,
    *,
    as_unsigned: bool = False,
) -> Iterator[tuple[NodeProto, int, int]]:
    types = [
        scope.find_type(_input(node, zero)) or scope.find_type(_input(node, place))
        for node, place, zero in pair
    ]
    if types[1] == TensorProto.INT8 and (as_unsigned or types[0] == TensorProto.UINT8):
        yield pair[1]
    elif types == [TensorProto.INT8, TensorProto.UINT8]:
        yield pair[0]


def _find_made(maker: NodeProto) -> tuple[int, str]:
    """Return the type that an operator states of its result, or the input that has the same."""
    if maker.op_type == "DynamicQuantizeLinear":
        return TensorProto.UINT8, ""
    for attribute in maker.attribute:
        if attribute.name in ("to", "output_dtype") and attribute.i:
            return attribute.i, ""
        if maker.op_type == "Constant" and attribute.name == "value":
            return attribute.t.data_type, ""
    if maker.op_type == "QuantizeLinear":
        zero = _input(maker, 2)
        return (0, zero) if zero else (TensorProto.UINT8, "")
    return 0, _input(maker, 0)


def _move(signed: _Signed) -> None:
    """Let the node read unsigned bytes, and their zero point."""
    node, scope, graph = signed.node, signed.scope, signed.graph
    while len(node.input) <= signed.zero:
        node.input.append("")
    node.input[signed.place] = _shift(node.input[signed.place], scope, graph, node)
    if node.input[signed.zero]:
        node.input[signed.zero] = _shift(node.input[signed.zero], scope, graph, node)
        return
    # A zero point has an element for each of the scale, where what it belongs to has one.
    scale = scope.constants.get(_input(node, 1)) if node.op_type == _OPENS else None
    name = f"{node.output[0]}/zero"
    zeros = np.full(() if scale is None else tuple(scale.dims), _SHIFT, np.uint8)
    graph.initializer.append(numpy_helper.from_array(zeros, name))
    node.input[signed.zero] = name


def _shift(name: str, scope: _Scope, graph: onnx.GraphProto, reader: NodeProto) -> str:
    """Return the name of `name` + 128, unsigned: a constant, or what nodes before it make."""
    shifted = f"{name}/unsigned"
    if shifted in scope.constants or shifted in scope.makers:
        return shifted
    constant = scope.constants.get(name)
    if constant is not None:
        values = numpy_helper.to_array(constant).view(np.uint8) ^ np.uint8(_SHIFT)
        made = numpy_helper.from_array(values, shifted)
        graph.initializer.append(made)
        scope.constants[shifted] = made
        return shifted
    nodes = (
        helper.make_node("Cast", [name], [f"{shifted}/wide"], to=TensorProto.INT32),
        helper.make_node("Add", [f"{shifted}/wide", f"{shifted}/by"], [f"{shifted}/sum"]),
        helper.make_node("Cast", [f"{shifted}/sum"], [shifted], to=TensorProto.UINT8),
    )
    by = numpy_helper.from_array(np.int32(_SHIFT), f"{shifted}/by")
    graph.initializer.append(by)
    at = next(place for place, node in enumerate(graph.node) if node is reader)
    for offset, node in enumerate(nodes):
        graph.node.insert(at + offset, node)
        scope.makers.update(dict.fromkeys(node.output, node))
    return shifted


def _input(node: NodeProto, place: int) -> str:
    return str(node.input[place]) if place < len(node.input) else ""


_HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
_NAMES_TYPE = ("to", "dtype", "output_dtype", "stash_type")
"""Attributes that name the type of what a node makes."""


def stores_halves(graph: onnx.GraphProto) -> bool:
    """Return whether constants, inputs or outputs of a graph are of 16 bits."""
    values = [*graph.input, *graph.output]
    return any(c.data_type in _HALVES for c in graph.initializer) or any(
        value.type.tensor_type.elem_type in _HALVES for value in values
    )


def widen_tensors(model: onnx.ModelProto, wide: int = TensorProto.FLOAT) -> None:
    """Make floats of all halves, or doubles of both, inputs and outputs too, in place."""
    given = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    nodes = list(all_nodes(given))
    for graph in (model.graph, *(inner for node in nodes for inner in inner_graphs(node))):
        for tensor in graph.initializer:
            _widen_tensor(tensor, wide)
        _widen_values((*graph.input, *graph.output, *graph.value_info), wide)
    for function in model.functions:
        _widen_values(function.value_info, wide)
    for attribute in (a for node in nodes for a in node.attribute):
        if attribute.name in _NAMES_TYPE and _is_narrow(attribute.i, wide):
            attribute.i = wide
        for tensor in (attribute.t, *attribute.tensors):
            _widen_tensor(tensor, wide)


def _is_narrow(element: int, wide: int) -> bool:
    return element in _HALVES or (wide == TensorProto.DOUBLE and element == TensorProto.FLOAT)


def _widen_tensor(tensor: TensorProto, wide: int) -> None:
    if _is_narrow(tensor.data_type, wide):
        value = numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(wide))
        tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))


def _widen_values(values: Iterable[onnx.ValueInfoProto], wide: int) -> None:
    for value in values:
        if _is_narrow(value.type.tensor_type.elem_type, wide):
            value.type.tensor_type.elem_type = wide


_SIGNED_BYTES = ("session.qdqisint8allowed", "1")
"""onnxruntime's setting by which it computes on signed bytes between conversions, everywhere as on
arm64 (source: onnxruntime_session_options_config_keys.h)."""
_EXACT_PRODUCTS = ("session.qdq_matmulnbits_accuracy_level", "1")
"""onnxruntime's setting by which it multiplies weights of 4 bits in float, as the file says, and
rounds no data to bytes for it (source: the same)."""
_DATA_FOLDER = "session.model_external_initializers_file_folder_path"
"""onnxruntime's setting for where a model's weights lie that comes as bytes (source: the same)."""
_PROVIDERS = ("CPUExecutionProvider",)
_PROTOBUF_MAX_BYTES = 2**31 - 1  # it refuses to serialise more


def open_session(
    model: Path | onnx.ModelProto,
    *,
    beside: Path | None = None,
    plain: bool = False,
    signed: bool = True,
    threads: int = 0,
) -> Any:
    """Open a session on a file, or on a model with all its weights, which may be changed for it.

    Weights of a model that multiplies no signed by unsigned bytes may also lie in the folder
    `beside`, as it says.  With `plain` onnxruntime fuses nothing; with `signed` off it makes
    unsigned bytes of signed data between conversions.  Its own exceptions (`runtime_errors`) are
    passed on. Raises ImportError where it is not installed; InputError where a model is too large
    to be handed over in memory."""
    runtime = import_onnxruntime()
    options = runtime.SessionOptions()
    options.log_severity_level = 4  # It prints what it also raises.
    options.intra_op_num_threads = threads
    options.add_session_config_entry(*_EXACT_PRODUCTS)
    if beside is not None:
        options.add_session_config_entry(_DATA_FOLDER, str(beside))
    if signed:
        options.add_session_config_entry(*_SIGNED_BYTES)
    if plain:
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    source = _write_unsigned(model, as_unsigned=not signed)
    return runtime.InferenceSession(source, options, providers=list(_PROVIDERS))


class _Embedded:
    """A decoder's session behind that of the model that looks its tokens up, as one of tokens."""

    def __init__(self, embedding: Any, decoder: Any) -> None:
        self._embedding, self._decoder = embedding, decoder

    def get_inputs(self) -> list[Any]:
        """List what both take."""
        own = [one for one in self._decoder.get_inputs() if one.name != EMBEDDINGS]
        return [*self._embedding.get_inputs(), *own]

    def get_outputs(self) -> list[Any]:
        """List what the decoder gives."""
        outputs: list[Any] = self._decoder.get_outputs()
        return outputs

    def run(self, names: list[str], feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Run one after the other."""
        tokens = feeds[TOKENS]
        (rows,) = self._embedding.run(None, {TOKENS: np.maximum(tokens, 0)})
        if IMAGE_ROWS in feeds:
            pictures = feeds[IMAGE_ROWS].reshape(-1, rows.shape[-1])
            rows[tokens < 0] = pictures[-1 - tokens[tokens < 0]]
        wants = next(one.type for one in self._decoder.get_inputs() if one.name == EMBEDDINGS)
        rest = {name: value for name, value in feeds.items() if name not in (TOKENS, IMAGE_ROWS)}
        rows = rows.astype(np.float16 if "float16" in wants else np.float32)
        made: list[np.ndarray] = self._decoder.run(names, {**rest, EMBEDDINGS: rows})
        return made


def with_embedding(model: Path, session: Any) -> Any:
    """Return the session of a model, with that of its embedding before it where it takes rows.
    Raises ImportError or InputError as `open_session` does."""
    embedding = find_model_files(model).embedding
    takes_rows = EMBEDDINGS in {one.name for one in session.get_inputs()}
    if embedding is None or not takes_rows:
        return session
    return _Embedded(open_session(embedding.paths[0]), session)


def open_as_installed(model: Path | onnx.ModelProto) -> Any:
    """Open the session that a user's own program has: no setting, and the model as it is. Raises
    ImportError where onnxruntime is not installed."""
    runtime = import_onnxruntime()
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    return runtime.InferenceSession(source, options, providers=list(_PROVIDERS))


@cache
def saturates() -> bool:
    """Return whether onnxruntime's own products of uint8 by int8 are wrong on this CPU. Raises
    ImportError where it is not installed."""
    ones = np.full((4, 4), np.iinfo(np.int8).max, np.int8)
    data = np.full((4, 4), np.iinfo(np.uint8).max, np.uint8)
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "saturates",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, data.shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT32, (4, 4))],
        [numpy_helper.from_array(ones, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    (seen,) = open_as_installed(model).run(None, {"x": data})
    return not np.array_equal(seen, data.astype(np.int32) @ ones.astype(np.int32))


def _write_unsigned(model: Path | onnx.ModelProto, *, as_unsigned: bool) -> str | bytes:
    """Return a file's name where nothing in it is to change; else the bytes of the model."""
    if isinstance(model, Path):
        thin = read_proto(model)
        if not mixes_signs(thin, as_unsigned=as_unsigned):
            return str(model)
        name = str(model)
        model, _ = load_onnx(find_model_files(model))
        if model.ByteSize() > _PROTOBUF_MAX_BYTES and not saturates():
            return name  # which this CPU multiplies exactly by itself
    else:
        name = model.graph.name
    _move_to_unsigned(model, as_unsigned=as_unsigned)
    size = model.ByteSize()
    if size > _PROTOBUF_MAX_BYTES:
        raise InputError(
            f"{name} holds {size} bytes with its weights; what is changed for the reference, as "
            "where intermediate tensors are read and bytes are multiplied exactly, can be up to "
            f"{_PROTOBUF_MAX_BYTES} bytes",
            hint="compare a part of the model, or its outputs alone",
        )
    return model.SerializeToString()
