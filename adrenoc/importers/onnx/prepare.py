"""Make the message of an ONNX file the graph that the importer works on, with static inputs.

Before -> after:
    F(a) = Relu(Neg(a)); y = F(x)       functions that the model defines for itself are inlined:
                                        n = Neg(x); y = Relu(n)
    logits, present = If(use_cache_branch) {then: with past} {else: without}
                                        of a decoder with two graphs the nodes of `then` are taken

Expands operators by the function bodies that the ONNX standard gives them.

Put the model that looks tokens up before the decoder that takes what it gives.

Before -> after:
    x = Gather(table, input_ids)    of another file, is what f(inputs_embeds) reads
    x = Gather(table, input_ids)    text = Gather(table, Max(input_ids, 0))
                                    rows = Gather(image_features, Max(-1 - input_ids, 0))
                                    x = Where(input_ids < 0, rows, text)
"""

import graphlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from pathlib import Path

import numpy as np
import onnx
from onnx import (
    NodeProto,
    TensorProto,
    checker,
    compose,
    helper,
    inliner,
    numpy_helper,
    shape_inference,
    version_converter,
)

from adrenoc.base.decision import DecisionLog
from adrenoc.base.errors import ModelFormatError
from adrenoc.base.text.spelling import list_first, list_names
from adrenoc.bundle.chat import EMBEDDINGS, IMAGE_ROWS, PAST_BRANCH, TOKENS
from adrenoc.importers.onnx.graph import (
    STANDARD_DOMAINS,
    OnnxGraph,
    TensorType,
    all_nodes,
    copy_node,
    damaged,
    is_standard,
    load_constants,
    make_model,
)
from adrenoc.importers.onnx.unroll import branch_taken, inline_branch, rename
from adrenoc.importers.onnx_wire import MOST_NODES
from adrenoc.importers.shapes import OpenInputs, fix_input_shapes, write_options
from adrenoc.importers.signature import fill_ports, ports_of, tell_fixed

OPSET_OF_OURS = 17
"""What is written in place of other domains' operators, where the model names no opset."""


def opset_of(model: onnx.ModelProto) -> int:
    """Return the opset of the standard's operators; one of ours where a model has none of them."""
    versions = [o.version for o in model.opset_import if o.domain in STANDARD_DOMAINS]
    nodes = [*model.graph.node, *(node for one in model.functions for node in one.node)]
    has_standard = any(node.domain in STANDARD_DOMAINS for node in all_nodes(nodes))
    return max(versions, default=1 if has_standard else OPSET_OF_OURS)


def convert_opset(model: onnx.ModelProto, opset: int, path: Path) -> onnx.ModelProto:
    """Return the model of `path` in an opset: itself, where it is in that. Raises ModelFormatError
    where onnx cannot convert it."""
    own = opset_of(model)
    if own == opset:
        return model
    try:
        return version_converter.convert_version(model, opset)
    except (
        RuntimeError,
        checker.ValidationError,
        shape_inference.InferenceError,
        version_converter.ConvertError,
    ) as error:
        raise ModelFormatError(
            f"{path} uses opset {own}, and onnx cannot convert it to {opset}: {error}",
            hint="export the model again with a newer opset",
        ) from error


def prepare(
    model: onnx.ModelProto,
    weights: Mapping[str, np.ndarray],
    shapes: Mapping[str, tuple[int, ...]],
    fixed: Sequence[tuple[str, str]],
    log: DecisionLog,
    suggest: Callable[[OpenInputs], str] = write_options,
) -> OnnxGraph:
    """Return the graph with static shapes of its inputs; what is assumed of these goes into `log`.

    `weights` are initialisers that `model` lacks the data of.  Inputs that are `fixed` are
    constants.  `suggest` writes the hint of an error for inputs whose shapes stay open. Raises
    ShapeError where a shape is missing or does not fit; ModelFormatError where an output is
    computed by nothing; OptionError where an input that is fixed is unknown, or takes no such
    value."""
    source = model.graph
    settings = fill_ports(ports_of(source), tuple(fixed), shapes)
    forms = {**shapes, **{name: array.shape for name, array in settings.items()}}
    inputs, assumed = fix_input_shapes(source, forms, suggest)
    graph = OnnxGraph(
        nodes=[copy_node(node) for node in source.node],
        inputs=inputs,
        outputs=[value.name for value in source.output],
        opset=opset_of(model),
        log=log,
    )
    elements = {value.name: value.type.tensor_type.elem_type for value in source.input}
    for spec in graph.inputs:
        graph.types[spec.name] = TensorType(element=elements[spec.name], shape=spec.shape)
        if spec.name in settings:
            graph.set_constant(spec.name, settings[spec.name])
        elif 0 in spec.shape:  # it holds nothing, which makes it a constant
            graph.set_constant(spec.name, np.empty(spec.shape, spec.dtype))
    graph.inputs = [spec for spec in graph.inputs if spec.name not in graph.constants]
    for name, value in load_constants(source, weights).items():
        graph.set_constant(name, value)
    made = {*graph.types, *(name for node in source.node for name in node.output)}
    for name in graph.outputs:
        if name not in made:
            raise ModelFormatError(
                f"the graph promises the output '{name}', but no node computes it",
                hint="export the model again",
            )
    log.extend([*assumed, *tell_fixed(settings, fixed)])
    known = {spec.name for spec in graph.inputs} | {tensor.name for tensor in source.initializer}
    for name in (value.name for value in source.input if value.name not in known):
        shape = graph.shape_of(name) or ()
        if 0 in shape:
            graph.log.add(name, "left the input out", f"its shape {list(shape)} holds no element")
    return graph


Key = tuple[str, str, str]


def inline_functions(model: onnx.ModelProto, log: DecisionLog) -> onnx.ModelProto:
    """`model` with its functions inlined; ModelFormatError: they call themselves or grow."""
    _check_sizes(model)
    names = list_first(sorted({f.name for f in model.functions}), between=", ")
    log.add("graph", "inlined its functions", f"it defines {names}")
    try:
        # A function may be of another opset than its model: `True` brings it to the model's.
        inlined = inliner.inline_local_functions(model, True)
        # The model with its functions of its own opsets, as onnxruntime takes them.
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        versions = {one.domain: one.version for one in model.opset_import}
        for function in copy.functions:
            for one in function.opset_import:
                one.version = versions.get(one.domain, one.version)
        as_written = inliner.inline_local_functions(copy)
    except (
        RuntimeError,
        ValueError,
        checker.ValidationError,
        version_converter.ConvertError,
    ) as error:
        raise damaged(f"the functions of the model cannot be inlined: {error}") from error
    if _forms(inlined) != _forms(as_written):
        raise damaged(
            f"among the functions of the model ({names}) are some of another opset than the "
            "model's, in which their operators mean something else; ONNX wants them alike"
        )
    return inlined


def _forms(model: onnx.ModelProto) -> list[tuple[str, list[bytes]]]:
    """Return operators and attributes, in order."""
    return [
        (node.op_type, [a.SerializeToString() for a in node.attribute if not a.HasField("g")])
        for node in all_nodes(model.graph.node)
    ]


def _check_sizes(model: onnx.ModelProto) -> None:
    """Check that no function calls itself, and that inlining ends with a model of some size."""
    bodies = {(f.domain, f.name, f.overload): f.node for f in model.functions}
    called = {
        key: {_key(n) for n in all_nodes(body)} & bodies.keys() for key, body in bodies.items()
    }
    sizes: dict[Key, int] = {}
    try:
        for key in graphlib.TopologicalSorter(called).static_order():
            sizes[key] = _size(bodies[key], sizes)
    except graphlib.CycleError as error:
        name = error.args[1][0][1]
        raise damaged(f"the function '{name}' of the model calls itself") from error
    # Thirty that call each other twice are 2^30.
    count = _size(model.graph.node, sizes)
    if count > MOST_NODES:
        raise damaged(
            f"the model has {count} nodes with its functions inlined, expected up to {MOST_NODES}"
        )


def _size(nodes: Iterable[NodeProto], sizes: dict[Key, int]) -> int:
    return sum(sizes.get(_key(node), 1) for node in all_nodes(nodes))


def _key(node: NodeProto) -> Key:
    return (node.domain, node.op_type, node.overload)


def take_past_branch(graph: OnnxGraph) -> None:
    """Fix the input that chooses, and have the nodes of the branch with a past in `graph`. A past
    of no rows is what the other branch is for."""
    if PAST_BRANCH not in graph.constants and all(s.name != PAST_BRANCH for s in graph.inputs):
        return
    graph.inputs = [spec for spec in graph.inputs if spec.name != PAST_BRANCH]
    graph.set_constant(PAST_BRANCH, np.array([True]))
    nodes, taken = [], "is true"
    for node in graph.nodes:
        if node.op_type == "If" and node.input[0] == PAST_BRANCH:
            taken = f"is true: the {branch_taken(graph, node).replace('_', ' ')} alone is compiled"
            nodes += inline_branch(graph, node, "")
        else:
            nodes.append(node)
    graph.nodes = nodes
    reason = "it computes the first tokens too, over a past of no rows"
    graph.log.add(PAST_BRANCH, taken, reason)


def expand_standard_functions(graph: OnnxGraph, op_types: Set[str]) -> dict[str, int]:
    """Replace, in place, nodes of `op_types` that have a function body; count them by type."""
    expanded: Counter[str] = Counter()
    nodes: list[NodeProto] = []
    for node in graph.nodes:
        # Whether a norm also gives the mean and the deviation, which no norm kernel does.
        wanted = is_standard(node) and (
            node.op_type in op_types
            or (node.op_type == "LayerNormalization" and any(node.output[1:]))
        )
        made = _expand(graph, node) if wanted else []
        nodes += made or [node]
        expanded.update([node.op_type] if made else [])
    graph.nodes = nodes
    return dict(expanded)


def is_defined(graph: OnnxGraph, node: NodeProto) -> bool:
    """Return whether the standard defines a node by other operators, in the file's version."""
    schema = _schema(graph, node)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def _schema(graph: OnnxGraph, node: NodeProto) -> onnx.defs.OpSchema | None:
    try:
        return onnx.defs.get_schema(node.op_type, graph.opset, "") if is_standard(node) else None
    except onnx.defs.SchemaError:
        return None


def _expand(graph: OnnxGraph, node: NodeProto) -> list[NodeProto]:
    """Return the nodes that the standard defines a node by; none where it does not."""
    schema, types = _schema(graph, node), graph.types
    is_known = all(name in types for name in node.input if name)
    if schema is None or not (schema.has_function or schema.has_context_dependent_function):
        return []
    if not (schema.has_function or is_known):
        return []  # onnx reads beyond what it is given where a type is not known
    whole, given = copy_node(node), {a.name for a in node.attribute}
    defaults = (a.default_value for a in schema.attributes.values())
    whole.attribute.extend(a for a in defaults if a.name and a.name not in given)
    model = make_model(whole, types, {}, graph.opset)
    # The inliner asks for the type of inputs that are left out, too, and ends where none is.
    model.graph.value_info.append(onnx.ValueInfoProto(name=""))
    wanted = [("", node.op_type)]
    inlined = inliner.inline_selected_functions(model, wanted, inline_schema_functions=True)
    made = [copy_node(one) for one in inlined.graph.node]
    prefix, own = f"{node.output[0]}/{node.op_type}/", {*node.input, *node.output}
    inner = {name for one in all_nodes(made) for name in one.output} - own
    for one in made:
        rename(one, {name: prefix + name.removesuffix("__1") for name in inner})
    return made


JOINED = "embed_tokens/"
"""What names of the embedding's tensors and nodes begin with beside the decoder's."""


def join_embedding(
    decoder: onnx.ModelProto, embedding: onnx.ModelProto, path: Path
) -> onnx.ModelProto:
    """Return the decoder taking tokens, which the embedding from `path` looks up. Raises
    ModelFormatError where the embedding takes or gives something else, or its opset cannot be made
    the decoder's."""
    taken = [port.name for port in ports_of(embedding.graph)]
    if taken != [TOKENS] or len(embedding.graph.output) != 1:
        listed = list_names(taken)
        raise ModelFormatError(
            f"{path} takes {listed} and gives {len(embedding.graph.output)} tensors; expected one "
            f"that takes '{TOKENS}' alone, and gives what the decoder beside it takes",
            hint="export it again, or move it away from the decoder",
        )
    embedding = convert_opset(embedding, opset_of(decoder), path)
    graph = decoder.graph
    rows = next(port for port in graph.input if port.name == EMBEDDINGS)
    (given,) = embedding.graph.output
    tokens = next(port for port in embedding.graph.input if port.name == TOKENS)
    compose.add_prefix_graph(embedding.graph, JOINED, inplace=True)
    kind = rows.type.tensor_type.elem_type
    cast = helper.make_node("Cast", [given.name], [EMBEDDINGS], f"{JOINED}{EMBEDDINGS}", to=kind)
    tokens.type.tensor_type.shape.CopyFrom(rows.type.tensor_type.shape)
    del tokens.type.tensor_type.shape.dim[2:]
    ports = [tokens if port is rows else port for port in graph.input]
    nodes = [*embedding.graph.node, cast, *graph.node]
    for node in embedding.graph.node:
        node.input[:] = [TOKENS if name == tokens.name else name for name in node.input]
    tokens.name = TOKENS
    graph.initializer.extend(embedding.graph.initializer)
    known = {one.domain for one in decoder.opset_import}
    decoder.opset_import.extend(o for o in embedding.opset_import if o.domain not in known)
    del graph.input[:], graph.node[:]
    graph.input.extend(ports)
    graph.node.extend(nodes)
    return decoder


def take_rows(decoder: onnx.ModelProto, shape: Sequence[int]) -> None:
    """Have a decoder with its embedding also take rows of pictures, [..., width] of `shape`. A
    token below zero is one of them: -1 the first, -2 the second."""
    graph, make = decoder.graph, helper.make_node
    at, cast = next((n, one) for n, one in enumerate(graph.node) if EMBEDDINGS in one.output)
    looked_up, rest = [*graph.node[:at]], [*graph.node[at + 1 :]]
    zero, last, column, words, text, rows = (
        f"{JOINED}{name}" for name in ("zero", "last", "column", "words", "text", "rows")
    )
    for node in looked_up:
        node.input[:] = [words if name == TOKENS else name for name in node.input]
    cast.output[:] = [text]
    (kind,) = cast.attribute
    nodes = [
        make("Max", [TOKENS, zero], [words]),
        *looked_up,
        cast,
        make("Sub", [last, TOKENS], [f"{rows}/back"]),
        make("Max", [f"{rows}/back", zero], [f"{rows}/places"]),
        make("Flatten", [IMAGE_ROWS], [f"{rows}/all"], axis=-1),
        make("Gather", [f"{rows}/all", f"{rows}/places"], [f"{rows}/taken"]),
        make("Cast", [f"{rows}/taken"], [rows], to=kind.i),
        make("Less", [TOKENS, zero], [f"{rows}/flags"]),
        make("Reshape", [f"{rows}/flags", column], [f"{rows}/column"]),
        make("Where", [f"{rows}/column", rows, text], [EMBEDDINGS], f"{JOINED}{EMBEDDINGS}"),
    ]
    for name, value in ((zero, 0), (last, -1), (column, (0, -1, 1))):
        graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), name))
    graph.input.append(helper.make_tensor_value_info(IMAGE_ROWS, TensorProto.FLOAT, shape))
    del graph.node[:]
    graph.node.extend([*nodes, *rest])
