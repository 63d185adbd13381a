"""A region: operators of one model that CLML runs as one graph, which TVM's runtime reads as JSON.

The form is the one of TVM 0.27's `JSONSerializer`: inputs first, constants where they are first
read, kernels after their inputs; attributes are typed; `shape` and `dtype` hold an entry for each
output; kernels count their inputs and outputs.

A region becomes a runtime module of kind "clml", with the constants that it is started with.
The modules are made by the native runtime (`runtime.clml_runtime_create`), since TVM's wheel has
no such kind.  TVM links them as it links those of its own code generators: the module is given
them with the attributes `external_mods` and `const_name_to_constant`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
import tvm_ffi

from adrenoc import native


@dataclass(frozen=True, kw_only=True, eq=False)
class Operand:
    """A tensor that an operator reads: one of the graph by name, or a constant by value."""

    name: str = ""
    value: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class ClmlOperator:
    """One node of the JSON graph.

    `name` is what the runtime dispatches on (a composite name of TVM's, matched by its ending),
    `output` the tensor of the graph that it makes, with its shape.  `attrs` hold int, float, str,
    or flat lists of these.  `row` is the row of the pattern table that it came from, and `covers`
    names the operators of the model that it stands for.
    """

    name: str
    inputs: tuple[Operand, ...]
    output: str
    shape: tuple[int, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    row: str = ""
    covers: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class ClmlRegion:
    """Operators in execution order; tensors of `inputs` come in, those of `outputs` go out.

    `shapes` holds the shape of each input; all floats of the graph have the one `dtype`.
    `version` is the oldest CLML interface that has all of the operators.  Halves are added up as
    `sum_dtype`; "" leaves it to the runtime, which takes halves as TVM's does.
    """

    symbol: str
    dtype: str
    version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]]
    operators: tuple[ClmlOperator, ...]
    sum_dtype: str = ""

    def constants(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield (name, value) of each constant in the order in which the graph first reads it."""
        for number, operand in enumerate(self.constant_operands()):
            if operand.value is None:
                raise ValueError(f"{self.symbol}: operand {operand.name} is no constant")
            name = f"{self.symbol}_openclml_const_{number}"
            yield name, np.ascontiguousarray(operand.value.astype(self.dtype))

    def constant_operands(self) -> Iterator[Operand]:
        """Yield the constant operands; one that two operators share comes once."""
        seen: set[int] = set()
        for operator in self.operators:
            for operand in operator.inputs:
                if operand.value is not None and id(operand) not in seen:
                    seen.add(id(operand))
                    yield operand


class GraphWriter:
    """Builds a graph node by node; every node has one output."""

    def __init__(self) -> None:
        self._nodes: list[dict[str, Any]] = []

    def leaf(self, kind: str, name: str, shape: Sequence[int], dtype: str) -> int:
        """Add an `input` or a `const`; returns the node's index."""
        self._nodes.append(
            {"op": kind, "name": name, "attrs": {"shape": [list(shape)], "dtype": [dtype]}}
        )
        return len(self._nodes) - 1

    def kernel(
        self,
        name: str,
        inputs: Sequence[int],
        shape: Sequence[int],
        dtype: str,
        attrs: Mapping[str, Any],
    ) -> int:
        """Add an operator; returns the node's index."""
        node = self.leaf("kernel", name, shape, dtype)
        self._nodes[node]["inputs"] = [[index, 0, 0] for index in inputs]
        self._nodes[node]["attrs"].update({**attrs, "num_inputs": len(inputs), "num_outputs": 1})
        return node

    def finish(self, outputs: Sequence[int]) -> dict[str, Any]:
        """Return the whole graph as plain data."""
        leaves = [i for i, node in enumerate(self._nodes) if node["op"] != "kernel"]
        return {
            "nodes": self._nodes,
            "arg_nodes": leaves,
            "heads": [[index, 0, 0] for index in outputs],
            "node_row_ptr": list(range(len(self._nodes) + 1)),
        }


def document(region: ClmlRegion) -> dict[str, Any]:
    """Return the graph of a region as plain data."""
    writer = GraphWriter()
    names = {
        id(operand): name
        for operand, (name, _) in zip(region.constant_operands(), region.constants(), strict=True)
    }
    by_tensor = {
        name: writer.leaf("input", name, region.shapes[name], region.dtype)
        for name in region.inputs
    }
    by_constant: dict[int, int] = {}

    def index_of(operand: Operand) -> int:
        if operand.value is None:
            return by_tensor[operand.name]
        key = id(operand)
        if key not in by_constant:
            shape = operand.value.shape
            by_constant[key] = writer.leaf("const", names[key], shape, region.dtype)
        return by_constant[key]

    for operator in region.operators:
        inputs = [index_of(operand) for operand in operator.inputs]
        attrs = operator.attrs
        if region.sum_dtype:
            attrs = {**attrs, "sum_dtype": region.sum_dtype}
        by_tensor[operator.output] = writer.kernel(
            operator.name, inputs, operator.shape, region.dtype, attrs
        )
    return writer.finish([by_tensor[name] for name in region.outputs])


def document_text(region: ClmlRegion) -> str:
    """Return the graph of a region as compact JSON."""
    return plain_text(document(region))


def plain_text(graph: dict[str, Any]) -> str:
    """Return a graph as compact JSON."""
    return json.dumps(graph, separators=(",", ":"), ensure_ascii=False)


def attach_regions(module: tvm.IRModule, regions: Sequence[ClmlRegion]) -> tvm.IRModule:
    """Return the module with what TVM needs to link the regions; the same where there are none.

    Raises:
        DependencyError: the native runtime cannot be built (it needs a C++ compiler).
    """
    if not regions:
        return module
    constants = {
        name: tvm.runtime.tensor(value) for region in regions for name, value in region.constants()
    }
    return module.with_attrs(
        {
            "external_mods": [runtime_module(region) for region in regions],
            "const_name_to_constant": constants,
        }
    )


def runtime_module(region: ClmlRegion) -> Any:
    """Return the module of one region."""
    native.load()
    create = tvm_ffi.get_global_func("runtime.clml_runtime_create")
    names = [name for name, _ in region.constants()]
    return create(region.symbol, document_text(region), names)
