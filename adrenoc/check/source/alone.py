"""A product of a file as a model of its own, and in the place of the same one of another file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from adrenoc.base.errors import InputError
from adrenoc.check.source.products import WeightedProduct
from adrenoc.importers.onnx.unroll import rename

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
_TAKEN = "source/"
"""Before the names of what comes from the other file."""
READ, MADE = "read", "made"
"""The input and the output of a product alone."""
_MICROSOFT = "com.microsoft"
_ROUNDING = "accuracy_level"


def make_alone(model: onnx.ModelProto, product: WeightedProduct, element: int) -> onnx.ModelProto:
    """Return a model of one product, of an input `READ` of this data type; what it makes is
    `MADE`."""
    nodes = [_copy(node) for node in (*product.before, product.node)]
    rename(nodes[-1], {product.read: READ, product.made: MADE})
    exact = [a for a in nodes[-1].attribute if a.name != _ROUNDING]
    del nodes[-1].attribute[:]
    nodes[-1].attribute.extend(exact)
    graph = helper.make_graph(
        nodes,
        "alone",
        [helper.make_tensor_value_info(READ, element, None)],
        [onnx.ValueInfoProto(name=MADE)],
        initializer=list(product.constants),
    )
    alone = helper.make_model(graph, opset_imports=list(model.opset_import))
    alone.ir_version = model.ir_version
    return alone


def take_products(
    shipped: onnx.ModelProto,
    source: onnx.ModelProto,
    pairs: Iterable[tuple[WeightedProduct, WeightedProduct]],
    elements: Mapping[str, int],
) -> onnx.ModelProto:
    """`shipped` with the second of each pair, of `source`, in place of the first.

    Constants in floats get the data type that the place has by `elements`, by the name of what is
    made there.

    Raises:
        InputError: a weight of the source is beyond that data type.
    """
    mended = onnx.ModelProto()
    mended.CopyFrom(shipped)
    taken = {old.made: (old, new) for old, new in pairs}
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, TensorProto] = {}
    known: set[str] = set()
    for node in mended.graph.node:
        old, new = taken.get(node.output[0] if node.output else "", (None, None))
        if old is None or new is None:
            nodes.append(node)
            continue
        inside = {name for one in new.before for name in one.output}
        inside |= {tensor.name for tensor in new.constants}
        names = {name: _TAKEN + name for name in inside}
        for tensor in new.constants:
            constants[_TAKEN + tensor.name] = _convert(tensor, elements[old.made])
        for one in new.before:
            if _TAKEN + one.output[0] not in known:
                known.add(_TAKEN + one.output[0])
                nodes.append(_renamed(one, names))
        nodes.append(_renamed(new.node, {**names, new.read: old.read, new.made: old.made}))
    kept = [_copy(node) for node in nodes]
    del mended.graph.node[:]
    mended.graph.node.extend(kept)
    _keep_read(mended.graph, constants)
    _add_domains(mended, source)
    return mended


def _keep_read(graph: onnx.GraphProto, more: Mapping[str, TensorProto]) -> None:
    """Leave the constants that a node reads, or that are outputs, and add others."""
    read = {name for node in graph.node for name in node.input}
    read |= {value.name for value in graph.output}
    nested = any(a.HasField("g") for node in graph.node for a in node.attribute)
    kept = [tensor for tensor in graph.initializer if nested or tensor.name in read]
    kept = [_copy_tensor(tensor) for tensor in (*kept, *more.values())]
    del graph.initializer[:]
    graph.initializer.extend(kept)


def _add_domains(model: onnx.ModelProto, source: onnx.ModelProto) -> None:
    known = {one.domain for one in model.opset_import}
    used = {node.domain for node in model.graph.node} - {""}
    for one in source.opset_import:
        if one.domain in used - known:
            model.opset_import.append(one)


def _convert(tensor: TensorProto, element: int) -> TensorProto:
    """Return a copy under the name that it gets, in floats of this type if it is of floats."""
    copy = _copy_tensor(tensor)
    if tensor.data_type in _FLOATS and element in _FLOATS and tensor.data_type != element:
        wanted = helper.tensor_dtype_to_np_dtype(element)
        value = numpy_helper.to_array(tensor)
        with np.errstate(over="ignore"):
            cast = value.astype(wanted)
        if not np.isfinite(cast.astype(np.float32)).all():
            raise InputError(
                f"the source's '{tensor.name}' holds {np.abs(value).max():.3g}, which {wanted} of "
                "the model does not",
                hint="--source takes a model whose weights fit the shipped one's type",
            )
        copy = numpy_helper.from_array(cast, tensor.name)
    copy.name = _TAKEN + tensor.name
    return copy


def _copy(node: onnx.NodeProto) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    return copy


def _renamed(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    copy = _copy(node)
    rename(copy, names)
    return copy


def _copy_tensor(tensor: TensorProto) -> TensorProto:
    copy = TensorProto()
    copy.CopyFrom(tensor)
    return copy
