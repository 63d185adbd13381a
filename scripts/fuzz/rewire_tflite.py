"""Damage to a TFLite model that knows what a graph is: it parses, and says odd things."""

import random
from collections.abc import Callable
from typing import Any

import flatbuffers
import numpy as np

from fuzz.rewire_onnx import EXTREMES, FLOATS


def rewire(content: bytes, rng: random.Random) -> bytes:
    """Edit the model one to four times, through the object interface of the schema."""
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(content, 0)
    for _ in range(rng.choice((1, 1, 2, 3, 4))):
        rng.choice(_EDITS)(schema, model, rng.choice(model.subgraphs), rng)
    builder = flatbuffers.Builder(len(content))
    try:
        builder.Finish(model.Pack(builder), b"TFL3")
    except (TypeError, ValueError, AttributeError, OverflowError):  # a number beyond its field
        return content
    return bytes(builder.Output())


def _another_operator(schema: Any, model: Any, graph: Any, rng: random.Random) -> None:
    """An operator code of another number: its options are then those of another table."""
    code = rng.choice(model.operatorCodes)
    number = rng.randrange(0, 210)
    code.builtinCode, code.deprecatedBuiltinCode = number, min(number, 127)


def _other_options(schema: Any, model: Any, graph: Any, rng: random.Random) -> None:
    """The options of another operator, or none."""
    if not graph.operators:
        return
    operator = rng.choice(graph.operators)
    names = [n for n in vars(schema.BuiltinOptions) if n[0].isupper() and n != "NONE"]
    name = rng.choice([*names, ""])
    operator.builtinOptionsType = getattr(schema.BuiltinOptions, name) if name else 0
    operator.builtinOptions = getattr(schema, f"{name}T")() if name else None


def _another_option(schema: Any, model: Any, graph: Any, rng: random.Random) -> None:
    """A field of an operator's options at a value that it can hardly have."""
    operators = [o for o in graph.operators or () if o.builtinOptions is not None]
    if not operators:
        return
    options = rng.choice(operators).builtinOptions
    fields = sorted(vars(options))
    if not fields:
        return
    name = rng.choice(fields)
    value = getattr(options, name)
    if isinstance(value, bool):
        setattr(options, name, not value)
    elif isinstance(value, int):
        small = rng.random() < 0.5
        drawn = rng.randrange(-2, 9) if small else rng.choice(EXTREMES)
        setattr(options, name, max(-(2**31), min(2**31 - 1, drawn)))
    elif isinstance(value, float):
        setattr(options, name, rng.choice(FLOATS))


def _swap_tensors(schema: Any, model: Any, graph: Any, rng: random.Random) -> None:
    """An operator reads, or makes, another tensor."""
    if not graph.operators:
        return
    operator = rng.choice(graph.operators)
    for name in rng.sample(("inputs", "outputs"), 1):
        indices = list(getattr(operator, name) if getattr(operator, name) is not None else ())
        choice = rng.random()
        if indices and choice < 0.5:
            indices[rng.randrange(len(indices))] = rng.randrange(-1, len(graph.tensors))
        elif len(indices) > 1 and choice < 0.8:
            rng.shuffle(indices)
        else:
            indices += [rng.randrange(len(graph.tensors))] * rng.choice((1, 1, 50))
        setattr(operator, name, indices)


def _drop_operator(schema: Any, model: Any, graph: Any, rng: random.Random) -> None:
    if graph.operators:
        graph.operators.pop(rng.randrange(len(graph.operators)))


def _double_operator(schema: Any, model: Any, graph: Any, rng: random.Random) -> None:
    if graph.operators:
        at = rng.randrange(len(graph.operators))
        graph.operators[at:at] = [graph.operators[at]] * rng.choice((1, 2, 50))


def _another_shape(schema: Any, model: Any, graph: Any, rng: random.Random) -> None:
    tensor = rng.choice(graph.tensors)
    shape = [int(d) for d in (tensor.shape if tensor.shape is not None else ())]
    choice = rng.random()
    if shape and choice < 0.5:
        extents = (-1, 0, 1, 2, 3, 5, 17, 1000, 16385, 2**20, 2**31 - 1)
        shape[rng.randrange(len(shape))] = rng.choice(extents)
    elif choice < 0.75:
        rng.shuffle(shape)
    elif choice < 0.9:
        shape.insert(rng.randrange(len(shape) + 1), 1)
    else:
        shape = shape[1:]
    if rng.random() < 0.3:
        tensor.shapeSignature = [rng.choice((-1, d)) for d in shape]
    tensor.shape = shape


def _another_dtype(schema: Any, model: Any, graph: Any, rng: random.Random) -> None:
    rng.choice(graph.tensors).type = rng.randrange(0, 19)


def _another_scale(schema: Any, model: Any, graph: Any, rng: random.Random) -> None:
    """A quantisation of other numbers, of more of them, or none."""
    tensor = rng.choice(graph.tensors)
    if rng.random() < 0.2:
        tensor.quantization = None
        return
    made = tensor.quantization or schema.QuantizationParametersT()
    scales = (*FLOATS[:8], 1e-6, 0.02, 2.0)
    count = rng.choice((1, 1, 1, 2, 8, len(made.scale) if made.scale is not None else 1))
    made.scale = [float(rng.choice(scales)) for _ in range(count)]
    made.zeroPoint = [rng.choice((0, 0, 1, -1, 127, 128, -128, 2**40)) for _ in range(count)]
    made.quantizedDimension = rng.choice((0, 0, 1, 3, -1, 9))
    tensor.quantization = made


def _another_constant(schema: Any, model: Any, graph: Any, rng: random.Random) -> None:
    """Numbers of a constant, as its dtype has them: shapes, axes, paddings."""
    dtypes = {0: np.float32, 2: np.int32, 4: np.int64, 9: np.int8, 3: np.uint8}
    held = [t for t in graph.tensors if _stored(model, t) and t.type in dtypes]
    if not held:
        return
    tensor = rng.choice(held)
    buffer = model.buffers[tensor.buffer]
    raw = np.asarray(buffer.data, np.uint8)
    dtype = np.dtype(dtypes[tensor.type])
    if raw.size % dtype.itemsize or not raw.size:
        return
    values = raw.copy().view(dtype)
    for _ in range(rng.choice((1, 1, 3))):
        at = rng.randrange(values.size)
        if dtype.kind == "f":
            values[at] = rng.choice(FLOATS)
        else:
            limits = np.iinfo(dtype)
            small = rng.random() < 0.5
            drawn = rng.randrange(-3, 12) if small else rng.choice(EXTREMES)
            values[at] = min(max(drawn, limits.min), limits.max)
    buffer.data = values.view(np.uint8)


def _constant_to_nothing(schema: Any, model: Any, graph: Any, rng: random.Random) -> None:
    """What was stored is stored nowhere, or elsewhere."""
    tensor = rng.choice(graph.tensors)
    tensor.buffer = rng.choice((0, rng.randrange(len(model.buffers))))


def _other_ends(schema: Any, model: Any, graph: Any, rng: random.Random) -> None:
    """A graph that takes or gives other tensors."""
    name = rng.choice(("inputs", "outputs"))
    indices = list(getattr(graph, name) if getattr(graph, name) is not None else ())
    indices.append(rng.randrange(len(graph.tensors)))
    rng.shuffle(indices)
    setattr(graph, name, indices[: rng.randrange(len(indices) + 1)])


def _stored(model: Any, tensor: Any) -> bool:
    return tensor.buffer < len(model.buffers) and model.buffers[tensor.buffer].data is not None


_EDITS: tuple[Callable[..., None], ...] = (
    *(_another_option, _another_option, _another_constant, _another_constant, _another_shape),
    *(_another_operator, _other_options, _swap_tensors, _drop_operator, _double_operator),
    *(_another_shape, _another_dtype, _another_scale, _constant_to_nothing, _other_ends),
)
