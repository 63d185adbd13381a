"""A folded ONNX graph to Relax, through TVM's ONNX frontend.

The frontend is driven node by node.  That gives each variable the name of the ONNX tensor that it
holds, lets operators that the frontend gets wrong go to `ops` instead, checks every shape
against ONNX's own shape inference, and collects all failures instead of stopping at the first.

Source: tvm.relax.frontend.onnx of apache-tvm 0.27.0.
"""

import contextlib
import io
import warnings
from typing import Any

import onnx
import tvm
from onnx import NodeProto
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter, _get_convert_map

from adrenoc.base.errors import RefusedError
from adrenoc.base.files.spill import forget_pages
from adrenoc.base.host.memory import is_out_of_memory
from adrenoc.importers.imported import CONVERTER_ERRORS, quote
from adrenoc.importers.onnx.graph import MOST_AXES, OnnxGraph, all_nodes
from adrenoc.importers.onnx.index import INDEX_OPS
from adrenoc.importers.onnx.infer import FIRST_OPSETS
from adrenoc.importers.onnx.math import MATH_OPS
from adrenoc.importers.onnx.node import OnnxNode
from adrenoc.importers.onnx.ops import OWN as OWN_OPS
from adrenoc.importers.onnx.quantised import QUANTISED_OPS
from adrenoc.importers.onnx.refusals import Refused
from adrenoc.importers.onnx.resize import convert_resize
from adrenoc.importers.onnx.rnn import RNN_OPS
from adrenoc.importers.relax.values import (
    UniqueNames,
    constant_value,
    emit_named,
    static_shape,
    take_constant,
)

OWN = {
    **OWN_OPS,
    **INDEX_OPS,
    **MATH_OPS,
    **QUANTISED_OPS,
    **RNN_OPS,
    "Resize": convert_resize,
    "Upsample": convert_resize,
}

# The frontend translates these, but what comes out cannot run on a GPU with static shapes:
# sequences, optionals, and results whose shape depends on data.
_NOT_STATIC = frozenset(
    {
        *("AllClassNMS", "Attention", "Compress", "ConcatFromSequence", "EmbedLayerNormalization"),
        *("Loop", "NonMaxSuppression", "NonZero", "Optional", "OptionalGetElement"),
        *("OptionalHasElement", "Scan", "SequenceAt", "SequenceConstruct", "SequenceEmpty"),
        *("SequenceErase", "SequenceInsert", "SequenceLength", "SkipLayerNormalization"),
        *("SplitToSequence", "Unique"),
    }
)
_OF_AXES = ("Expand", "Pad", "Reshape", "Slice", "Squeeze", "Tile", "Unsqueeze")
"""Operators whose second input has a number, or two, for each axis."""

_SHAPE_OF_DATA = "the shape of its result depends on data, and is not known before the model runs"


def supported_operators() -> frozenset[str]:
    """Return the operators of the standard domain that can be imported."""
    return frozenset(_get_convert_map()) - _NOT_STATIC | frozenset(OWN)


def convert(
    graph: OnnxGraph, unknown: frozenset[str]
) -> tuple[tvm.IRModule, dict[str, str], list[Refused]]:
    """Translate `graph`; return the module, the tensor of each variable, and all failures.

    The constants leave `graph`, lest weights are held twice.  Nodes that make a tensor of `unknown`
    are left out.  The module is of use only where there are neither these nor failures."""
    importer = _Importer(graph, unknown)
    proto = onnx.GraphProto(node=graph.nodes)
    for spec in graph.inputs:
        element = graph.types[spec.name].element
        proto.input.append(onnx.helper.make_tensor_value_info(spec.name, element, spec.shape))
    proto.output.extend(onnx.ValueInfoProto(name=name) for name in graph.outputs)
    with warnings.catch_warnings():
        # It warns of each input that it renames; the names are ours to keep.
        warnings.simplefilter("ignore")
        module = importer.from_onnx(proto, graph.opset)
    return module, importer.tensors, importer.failures


class _Importer(ONNXGraphImporter):
    def __init__(self, graph: OnnxGraph, unknown: frozenset[str]) -> None:
        super().__init__({}, "float32", sanitize=True)
        self._unknown = unknown
        self._untold: set[str] = set()
        """Tensors of failed nodes of which no shape is known: what reads them is not named."""
        self.tensors: dict[str, str] = {}
        self.failures: list[Refused] = []
        self._graph = graph
        self._unique = UniqueNames()
        self._current = NodeProto()

    def _sanitize_name(self, name: str) -> str:
        taken = self._unique.take(name)
        self.tensors[taken] = name
        return taken

    def _parse_graph_initializers(self, graph: onnx.GraphProto) -> None:
        constants = self._graph.constants
        while constants:  # what TVM copies need not be kept here
            name, value = constants.popitem()
            if value.dtype.kind not in "OSU":  # text: read only by nodes that are refused by name
                self._nodes[name] = take_constant(value)
                forget_pages(value)

    def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
        """Do nothing: it was done before, with all nodes named."""

    def _construct_nodes(self, graph: onnx.GraphProto) -> None:
        printed = io.StringIO()
        for node in graph.node:
            self._current = node
            if self._unknown.intersection(node.output) or any(
                not self._untold.isdisjoint(inner.input) for inner in all_nodes([node])
            ):
                self._stand_in(node)
                continue
            try:
                # The frontend prints the inputs of a node that fails.
                with contextlib.redirect_stdout(printed):
                    super()._construct_nodes(onnx.GraphProto(node=[node]))
                for name in node.output:
                    if name:
                        self._bind(name)
            except CONVERTER_ERRORS as error:
                if is_out_of_memory(error):
                    raise
                reason = _SHAPE_OF_DATA if self._asks_for_data(node) else quote(error)
                self.failures.append(Refused(node=node, reason=reason))
                self._stand_in(node)

    def _asks_for_data(self, node: NodeProto) -> bool:
        """Return whether a node fills a shape that is computed: TVM says so in words of its own."""
        asked = self._nodes.get(node.input[0]) if node.op_type == "ConstantOfShape" else None
        return asked is not None and constant_value(asked) is None

    def _convert_operator(
        self, op_name: str, inputs: list[Any], attrs: dict[str, Any], opset: int
    ) -> relax.Expr:
        if op_name in _OF_AXES and len(inputs) > 1:
            extents = constant_value(inputs[1])
            if extents is not None and extents.size > 2 * MOST_AXES:
                raise RefusedError(f"numbers for {extents.size} axes; expected up to {MOST_AXES}")
            if op_name == "Reshape" and extents is None and static_shape(inputs[1]) is not None:
                raise RefusedError(_SHAPE_OF_DATA)
        own = OWN.get(op_name)
        if own is None:
            if op_name == "BatchNormalization" and attrs.get("training_mode", 0):
                raise RefusedError("it trains: export the model for inference")
            if op_name == "Split" and len(self._current.output) == 1:
                return inputs[0]  # TVM takes the tuple of one part for the part
            opset = max(opset, FIRST_OPSETS.get(op_name, 0))
            return super()._convert_operator(op_name, inputs, attrs, opset)
        outputs = max(at for at, name in enumerate(self._current.output, 1) if name)
        node = OnnxNode(bb=self.bb, inputs=list(inputs), attrs=attrs, opset=opset, outputs=outputs)
        return self.bb.normalize(own(node))

    def _bind(self, name: str) -> None:
        """Give the value of the ONNX tensor `name` a variable of that name."""
        value = self._nodes[name]
        # An anonymous result of the frontend; `simplify` passes the name on to it.
        anonymous = isinstance(value, relax.Var) and value.name not in self.tensors
        if anonymous or isinstance(value, relax.Call | relax.TupleGetItem):
            value = emit_named(self.bb, value, self._unique.take(name))
        self._nodes[name] = value
        if isinstance(value, relax.Var):
            self.tensors.setdefault(value.name, name)
        expected = self._graph.shape_of(name)
        found = static_shape(value)
        if found is None:
            raise RefusedError(_SHAPE_OF_DATA)
        if expected not in (None, found):
            raise RefusedError(
                f"TVM's frontend gives '{name}' the shape {list(found)}, ONNX says "
                f"{list(expected or ())}"
            )

    def _stand_in(self, node: NodeProto) -> None:
        """Bind the outputs of a failed node to something of the right type, to go on."""
        for name in (name for name in node.output if name):
            known, shape = self._graph.types.get(name), self._graph.shape_of(name)
            if shape is None:
                self._untold.add(name)
                shape = (1,)
            dtype = known.dtype if known else "float32"
            self._nodes[name] = self.bb.emit(relax.op.zeros(shape, dtype))
