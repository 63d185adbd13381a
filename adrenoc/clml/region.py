"""What CLML computes: the table of operators with their limits (`targets/clml.toml`), what is found
by it, and regions, which run as one graph that TVM's runtime reads as JSON.

The form is the one of TVM 0.27's `JSONSerializer`: inputs first, constants where they are first
read, kernels after their inputs; attributes are typed; `shape` and `dtype` hold an entry for each
output; kernels count their inputs and outputs.

A region becomes a runtime module of kind "clml", made by the native runtime
(`runtime.clml_runtime_create`), since TVM's wheel has no such kind.  TVM links them as it links
those of its own code generators: the module is given them with the attributes `external_mods` and
`const_name_to_constant`.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from adrenoc import native
from adrenoc.base.errors import OptionError, RefusedError
from adrenoc.base.files.read import data_folder, read_toml
from adrenoc.base.text.spelling import quote_word
from adrenoc.importers.relax.values import (
    Binding,
    FlatFunction,
    constant_value,
    dtype_of,
    op_name,
    static_shape,
    variables,
)


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
    names the operators of the model that it stands for."""

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

    `shapes` holds the shape of each input; all floats of the graph have the one `dtype`. `version`
    is the oldest CLML interface that has all of the operators.  Halves are added up as `sum_dtype`;
    "" leaves it to the runtime, which takes halves as TVM's does."""

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
    Raises DependencyError where the native runtime cannot be built (it needs a C++ compiler)."""
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


@dataclass(frozen=True, kw_only=True)
class PatternRow:
    """One operator family and its limits.

    `version` is the first interface that has it.  `gain` is the time of a texture kernel over that
    of CLML for the same operator, in float32 and in float16, `pointwise_gain` the same for windows
    of one element.  `source` tells where all are from."""

    name: str
    operators: tuple[str, ...]
    version: int
    dtypes: tuple[str, ...]
    max_rank: int
    max_batch: int
    max_extent: int
    gain: tuple[float, float]
    source: str
    pointwise_gain: tuple[float, float] | None = None

    def gain_of(self, dtype: str, *, pointwise: bool) -> float:
        """Return the gain of one operator."""
        pair = self.pointwise_gain if pointwise and self.pointwise_gain is not None else self.gain
        return pair[dtype == "float16"]


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What the cost model reckons with.

    `gflops` and `gb_per_s` stand in for a target that does not tell, `efficiency` is the part of
    the peak that a good kernel reaches.  An operator of a recording takes `recorded_us`, a launch
    what the target tells.  CLML has to be `margin` times faster.  `sources` says of each where it
    is from."""

    gflops: float
    gb_per_s: float
    efficiency: float
    recorded_us: float
    margin: float
    default_version: int
    sources: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Table:
    """All rows by name, and the figures of the cost model."""

    rows: dict[str, PatternRow]
    costs: Costs

    def __getitem__(self, name: str) -> PatternRow:
        return self.rows[name]


@cache
def load_table() -> Table:
    """Read `targets/clml.toml`; raises OptionError where it lacks a key or has one too many."""
    path = data_folder("targets") / "clml.toml"
    data = read_toml(path)
    try:
        shared: dict[str, Any] = data["limits"]
        rows = {name: _row(name, {**shared, **row}) for name, row in data["rows"].items()}
        return Table(rows=rows, costs=_costs(data["costs"], data["sources"]))
    except (KeyError, TypeError) as error:
        raise OptionError(
            f"{path}: {error}",
            hint=f"correct {quote_word(path)} after the rows beside the wrong one",
        ) from error


def _costs(entries: dict[str, Any], shared: Mapping[str, str]) -> Costs:
    sources = {}
    for key, entry in entries.items():
        cited, _, rest = entry["source"].partition(":")
        whole = cited.startswith("@")
        sources[key] = f"{shared[cited[1:]]}:{rest}" if whole else entry["source"]
    return Costs(**{key: entry["value"] for key, entry in entries.items()}, sources=sources)


def _row(name: str, values: dict[str, Any]) -> PatternRow:
    for key in ("operators", "dtypes", "gain", "pointwise_gain"):
        if key in values:
            values[key] = tuple(values[key])
    return PatternRow(name=name, **values)


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """Operators of CLML that stand for `bindings` of the function; the last one is the result."""

    row: PatternRow
    bindings: tuple[Binding, ...]
    operators: tuple[ClmlOperator, ...]

    @property
    def output(self) -> relax.Var:
        """Return the variable that is bound to the result."""
        return self.bindings[-1].var


class Bindings:
    """The bindings of a function, asked by who makes and who reads what. `version` is the interface
    that they are matched for."""

    def __init__(self, flat: FlatFunction, *, version: int) -> None:
        self.version = version
        self._uses: Counter[relax.Var] = flat.uses()
        self._returned = set(variables(flat.result))
        self._values: dict[relax.Var, Binding] = {b.var: b for b in flat.bindings}
        self._readers: dict[relax.Var, list[Binding]] = {}
        for binding in flat.bindings:
            for var in dict.fromkeys(variables(binding.value)):
                self._readers.setdefault(var, []).append(binding)

    def producer(self, expr: Any) -> Binding | None:
        """Return the binding of a variable, None for parameters and constants."""
        return self._values.get(expr) if isinstance(expr, relax.Var) else None

    def inner(self, var: relax.Var) -> bool:
        """Return whether one place alone reads a variable, and the function does not return it."""
        return self._uses[var] == 1 and var not in self._returned

    def next(self, binding: Binding, *names: str) -> Binding | None:
        """Return the one reader of a binding's result, if it is an operator of `names`."""
        if not self.inner(binding.var):
            return None
        (reader,) = self._readers[binding.var]
        return reader if op_name(reader.value) in names else None

    def next_item(self, binding: Binding) -> Binding | None:
        """Return the binding of item 0 of a tuple, if nothing else of the tuple is read."""
        if not self.inner(binding.var):
            return None
        (reader,) = self._readers[binding.var]
        value = reader.value
        return reader if isinstance(value, relax.TupleGetItem) and value.index == 0 else None


def operand(expr: Any) -> Operand:
    """Return a variable or a constant as an operand."""
    value = constant_value(expr)
    return Operand(name="" if value is not None else str(expr.name), value=value)


def constant(value: np.ndarray) -> Operand:
    """Return a constant operand."""
    return Operand(value=value)


def shape_of(expr: Any) -> tuple[int, ...]:
    """Return the shape of a tensor."""
    shape = static_shape(expr)
    if shape is None:
        raise RefusedError("its shape is not static")
    return shape


def ints(values: Sequence[Any]) -> list[int]:
    """Whole numbers out of an attribute."""
    return [int(v) for v in values]


def require(holds: bool, reason: str) -> None:
    """Refuse a case unless `holds`."""
    if not holds:
        raise RefusedError(reason)


def check_limits(row: PatternRow, tensors: Sequence[Any], *, batched: bool = True) -> None:
    """Compare dtypes, rank, batch and extents of tensor expressions with the row's limits."""
    dtypes = {dtype_of(t) for t in tensors}
    require(len(dtypes) == 1, f"operands of {' and '.join(sorted(dtypes))}, expected one dtype")
    (dtype,) = dtypes
    require(dtype in row.dtypes, f"{dtype} data, expected {' or '.join(row.dtypes)}")
    for tensor in tensors:
        shape = shape_of(tensor)
        require(1 <= len(shape) <= row.max_rank, f"rank {len(shape)}, expected 1 to {row.max_rank}")
        require(
            max(shape) <= row.max_extent, f"extent {max(shape)}, expected at most {row.max_extent}"
        )
        is_data = batched and constant_value(tensor) is None
        require(
            not is_data or shape[0] <= row.max_batch,
            f"batch {shape[0]}, expected at most {row.max_batch}",
        )


def make_found(
    row: PatternRow,
    bindings: Sequence[Binding],
    name: str,
    inputs: Sequence[Operand],
    attrs: Mapping[str, Any] | None = None,
) -> Found:
    """Return one operator that stands for `bindings`."""
    return Found(
        row=row, bindings=tuple(bindings), operators=(operator(row, bindings, name, inputs, attrs),)
    )


def operator(
    row: PatternRow,
    bindings: Sequence[Binding],
    name: str,
    inputs: Sequence[Operand],
    attrs: Mapping[str, Any] | None = None,
) -> ClmlOperator:
    """Return a node of the graph that makes the result of the last of `bindings`."""
    result = bindings[-1].var
    return ClmlOperator(
        name=name,
        inputs=tuple(inputs),
        output=str(result.name),
        shape=shape_of(result),
        attrs=dict(attrs or {}),
        row=row.name,
        covers=tuple(op_name(b.value).removeprefix("relax.") for b in bindings),
    )
