"""Damage to an ONNX model that knows what a graph is: it parses, and says odd things."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

EXTREMES = (
    *(0, 1, -1, 2, 3, 5, 7, 8, 64, 127, 255, 1000, 1024, 1025, 4096, 16384, 16385, 65535),
    *(2**20, 2**24 + 1, 2**26, 2**28, 2**30, 2**31 - 1, -(2**31), 2**31, 2**33, 2**40, 2**62),
    *(2**63 - 1, -(2**63), -2, -3, -7, -1000),
)
MOST_BYTES = 1 << 24
"""Of a model that is made: what reads it is tested, not the machine that writes it."""

FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e-7, 3.4e38, 1e30, float("inf"), float("nan"))
_DTYPES = ("float32", "float16", "float64", "int8", "uint8", "int16", "int32", "int64", "bool")


def rewire(content: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    """Edit the graph one to four times; `others` are models that parts may be taken of."""
    model = onnx.ModelProto.FromString(content)
    graphs = _graphs(model.graph)
    for _ in range(rng.choice((1, 1, 2, 3, 4))):
        graph = rng.choice(graphs) if rng.random() < 0.3 else model.graph
        edit = rng.choice(_EDITS)
        if edit is _graft:
            _graft(model, onnx.ModelProto.FromString(rng.choice(others)), rng)
        else:
            edit(graph, rng)
    if rng.random() < 0.05:
        rng.choice(model.opset_import).version = rng.choice((7, 8, 9, 11, 13, 17, 18, 21, 23))
    return bytes(model.SerializeToString())


def _graphs(graph: onnx.GraphProto) -> list[onnx.GraphProto]:
    found = [graph]
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found += _graphs(attribute.g)
    return found


def _tensors(graph: onnx.GraphProto) -> list[str]:
    names = [v.name for v in graph.input] + [t.name for t in graph.initializer]
    return names + [name for node in graph.node for name in node.output if name]


def _swap_inputs(graph: onnx.GraphProto, rng: random.Random) -> None:
    node = _node(graph, rng)
    if node is not None and len(node.input) > 1:
        a, b = rng.sample(range(len(node.input)), 2)
        node.input[a], node.input[b] = node.input[b], node.input[a]


def _read_another(graph: onnx.GraphProto, rng: random.Random) -> None:
    node, names = _node(graph, rng), _tensors(graph)
    if node is not None and node.input and names:
        node.input[rng.randrange(len(node.input))] = rng.choice([*names, ""])


def _more_inputs(graph: onnx.GraphProto, rng: random.Random) -> None:
    node, names = _node(graph, rng), _tensors(graph)
    if node is not None and names:
        node.input.extend([rng.choice(names)] * rng.choice((1, 1, 2, 40, 300)))


def _drop_node(graph: onnx.GraphProto, rng: random.Random) -> None:
    """Its readers get what it read."""
    node = _node(graph, rng)
    if node is None:
        return
    instead = next((name for name in node.input if name), "")
    for reader in graph.node:
        for index, name in enumerate(reader.input):
            if name in node.output:
                reader.input[index] = instead
    graph.node.remove(node)


def _double_node(graph: onnx.GraphProto, rng: random.Random) -> None:
    """A node again, behind itself: up to a hundred times in a row."""
    node = _node(graph, rng)
    if node is None or not node.output or not node.input:
        return
    last = node.output[0]
    readers = [n for n in graph.node if last in n.input]
    for count in range(rng.choice((1, 2, 8, 100))):
        copy = graph.node.add()
        copy.CopyFrom(node)
        copy.input[rng.randrange(len(copy.input))] = last
        for index, name in enumerate(copy.output):
            copy.output[index] = f"{name}/again{count}" if name else ""
        last = copy.output[0]
    for reader in readers:
        reader.input[:] = [last if name == node.output[0] else name for name in reader.input]


def _another_operator(graph: onnx.GraphProto, rng: random.Random) -> None:
    node = _node(graph, rng)
    if node is not None:
        node.op_type = rng.choice(_OPERATORS)
        if rng.random() < 0.5:
            del node.attribute[:]


def _another_attribute(graph: onnx.GraphProto, rng: random.Random) -> None:
    """An attribute of the operator's schema at values that it can hardly have."""
    node = _node(graph, rng)
    if node is None or not onnx.defs.has(node.op_type):
        return
    known = onnx.defs.get_schema(node.op_type).attributes
    if not known:
        return
    name = rng.choice(sorted(known))
    kept = [a for a in node.attribute if a.name != name]
    kind = known[name].type.value
    value: Any
    if kind == AttributeProto.INT:
        value = rng.choice(EXTREMES)
    elif kind == AttributeProto.FLOAT:
        value = float(rng.choice(FLOATS))
    elif kind == AttributeProto.INTS:
        count = rng.choice((0, 1, 2, 2, 3, 4, 4, 8, 1000))
        small = rng.random() < 0.5
        value = [rng.randrange(-2, 9) if small else rng.choice(EXTREMES) for _ in range(count)]
    elif kind == AttributeProto.FLOATS:
        value = [float(rng.choice(FLOATS)) for _ in range(rng.choice((0, 1, 2, 4)))]
    elif kind == AttributeProto.STRING:
        value = rng.choice(("linear", "cubic", "SAME_UPPER", "SAME_LOWER", "VALID", "add", "x" * 9))
    else:
        return
    made = helper.make_attribute(name, value, attr_type=kind)
    del node.attribute[:]
    node.attribute.extend([*kept, made])


def _another_constant(graph: onnx.GraphProto, rng: random.Random) -> None:
    """A constant of other values, of another dtype or another shape."""
    held = list(graph.initializer)
    held += [a.t for node in graph.node for a in node.attribute if a.HasField("t")]
    if not held:
        return
    tensor = rng.choice(held)
    try:
        value = numpy_helper.to_array(tensor)
    except (ValueError, TypeError):  # an earlier edit
        return
    if value.dtype.kind not in "fiub":
        return
    kind = rng.random()
    if kind < 0.4:
        value = np.array(value)
        for _ in range(rng.choice((1, 1, 3))):
            if value.size:
                value.reshape(-1)[rng.randrange(value.size)] = _number(value.dtype, rng)
    elif kind < 0.6:
        with np.errstate(all="ignore"):
            value = value.astype(rng.choice(_DTYPES))
    elif kind < 0.8:
        shape = list(value.shape)
        rng.shuffle(shape)
        value = value.reshape(rng.choice((shape, [-1], [1, *value.shape], [*value.shape, 1])))
    else:
        shape = [rng.choice((0, 1, 2, 3, 5, 17)) for _ in range(rng.choice((0, 1, 2, 3, 4)))]
        value = np.resize(value, shape) if value.size else value
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(value), tensor.name))


def _number(dtype: np.dtype, rng: random.Random) -> Any:
    if dtype.kind == "f":
        return rng.choice(FLOATS)
    if dtype.kind == "b":
        return rng.random() < 0.5
    limits = np.iinfo(dtype)
    return min(max(rng.choice(EXTREMES), limits.min), limits.max)


def _another_input(graph: onnx.GraphProto, rng: random.Random) -> None:
    """An input of another shape or dtype, or open dimensions."""
    if not graph.input:
        return
    tensor = rng.choice(graph.input).type.tensor_type
    if rng.random() < 0.3:
        tensor.elem_type = rng.choice((1, 2, 3, 6, 7, 9, 10, 11, 16, 8, 14))
        return
    dims = tensor.shape.dim
    choice = rng.random()
    if dims and choice < 0.6:
        rng.choice(dims).dim_value = rng.choice((0, 1, 2, 3, 5, 8, 17, 224, 16385, 2**20, 2**31))
    elif choice < 0.8:
        dims.add().dim_value = rng.choice((1, 1, 2, 7))
    elif dims:
        del dims[rng.randrange(len(dims))]


def _constant_to_input(graph: onnx.GraphProto, rng: random.Random) -> None:
    """What was constant is only known when the model runs."""
    if graph.initializer:
        tensor = graph.initializer.pop(rng.randrange(len(graph.initializer)))
        graph.input.append(
            helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
        )


def _input_to_constant(graph: onnx.GraphProto, rng: random.Random) -> None:
    if len(graph.input) == 0:
        return
    value = graph.input.pop(rng.randrange(len(graph.input)))
    shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
    if all(0 <= d < 1 << 10 for d in shape) and int(np.prod(shape)) < 1 << 20:
        made = np.full(shape, rng.choice((0, 1, 2, -1)), np.float32)
        tensor = numpy_helper.from_array(made, value.name)
        tensor.CopyFrom(numpy_helper.from_array(made, value.name))
        graph.initializer.append(tensor)


def _more_outputs(graph: onnx.GraphProto, rng: random.Random) -> None:
    names = _tensors(graph)
    if names:
        graph.output.append(onnx.ValueInfoProto(name=rng.choice(names)))


def _into_loop(graph: onnx.GraphProto, rng: random.Random) -> None:
    """A node becomes the body of a Loop, of an If, or of ten Ifs in each other."""
    node = _node(graph, rng)
    if node is None or len(node.output) != 1:
        return
    inner = onnx.NodeProto()
    inner.CopyFrom(node)
    value = onnx.ValueInfoProto(name=node.output[0])
    body = helper.make_graph([inner], "inner", [], [value])
    if rng.random() < 0.5:
        for _ in range(rng.choice((1, 2, 10))):
            if 2 * body.ByteSize() > MOST_BYTES:
                break
            chosen = helper.make_node("If", ["chosen"], node.output, then_branch=body)
            chosen.attribute.append(helper.make_attribute("else_branch", body))
            body = helper.make_graph([chosen], "inner", [], [value])
        is_known = rng.random() < 0.5
        _provide(graph, "chosen", np.array(True), known=is_known)
        node.CopyFrom(body.node[0])
        return
    count = rng.choice((0, 1, 3, 100, 1024, 2**31, 2**63 - 1))
    _provide(graph, "trips", np.array(count, np.int64), known=True)
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), inner],
        "inner",
        [
            helper.make_tensor_value_info("trip", TensorProto.INT64, ()),
            helper.make_tensor_value_info("go", TensorProto.BOOL, ()),
        ],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, ()), value],
    )
    node.CopyFrom(helper.make_node("Loop", ["trips", ""], list(node.output), body=body))


def _provide(graph: onnx.GraphProto, name: str, value: np.ndarray, *, known: bool) -> None:
    if name in _tensors(graph):
        return
    tensor = numpy_helper.from_array(value, name)
    if known:
        graph.initializer.append(tensor)
    else:
        graph.input.append(helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims)))


def _graft(model: onnx.ModelProto, other: onnx.ModelProto, rng: random.Random) -> None:
    """Another model behind this one: it reads what this one computes."""
    made = _tensors(model.graph)
    if not made or other.functions:
        return
    names = {name: f"grafted/{name}" for name in _tensors(other.graph)}
    if other.graph.input:
        names[rng.choice(other.graph.input).name] = rng.choice(made)
    for node in other.graph.node:
        copy = model.graph.node.add()
        copy.CopyFrom(node)
        copy.input[:] = [names.get(name, name) for name in node.input]
        copy.output[:] = [names.get(name, name) for name in node.output]
    for tensor in other.graph.initializer:
        model.graph.initializer.add().CopyFrom(tensor)
        model.graph.initializer[-1].name = names[tensor.name]
    for value in other.graph.input:
        if names[value.name].startswith("grafted/"):
            model.graph.input.add().CopyFrom(value)
            model.graph.input[-1].name = names[value.name]
    for value in other.graph.output:
        model.graph.output.append(onnx.ValueInfoProto(name=names.get(value.name, value.name)))
    known = {o.domain: o for o in model.opset_import}
    for opset in other.opset_import:
        if opset.domain in known:
            mine = known[opset.domain]
            mine.version = rng.choice((mine.version, max(mine.version, opset.version)))
        else:
            model.opset_import.add().CopyFrom(opset)


def _node(graph: onnx.GraphProto, rng: random.Random) -> onnx.NodeProto | None:
    return rng.choice(graph.node) if graph.node else None


_OPERATORS = sorted({s.name for s in onnx.defs.get_all_schemas() if not s.domain})
_EDITS: tuple[Callable[..., None], ...] = (
    *(_another_attribute, _another_attribute, _another_constant, _another_constant),
    *(_swap_inputs, _read_another, _more_inputs, _drop_node, _double_node, _another_operator),
    *(_another_input, _another_input, _constant_to_input, _input_to_constant, _more_outputs),
    *(_into_loop, _graft, _graft),
)
