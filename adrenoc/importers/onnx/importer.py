"""Import ONNX files as Relax IR with static shapes and constant weights.

Tensors that no kernel could hold are refused: of text, of too many elements or axes, or of none.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import onnx
from onnx import TensorProto

from adrenoc.base.decision import DecisionLog
from adrenoc.base.errors import ModelFormatError, ShapeError, UnsupportedOperatorError
from adrenoc.base.text.spelling import list_names
from adrenoc.bundle.chat import EMBEDDINGS, IMAGE_ROWS, PAST_BRANCH
from adrenoc.bundle.manifest import TensorSpec
from adrenoc.importers.formats import EXPORT_AGAIN, ModelFiles
from adrenoc.importers.imported import Imported
from adrenoc.importers.onnx.contrib_quantised import fuse_qdq
from adrenoc.importers.onnx.counted import mask_outputs
from adrenoc.importers.onnx.fold import fold_constants
from adrenoc.importers.onnx.graph import (
    MOST_AXES,
    MOST_ELEMENTS,
    OnnxGraph,
    settings_of,
    sort_nodes,
    write_switches,
)
from adrenoc.importers.onnx.infer import note_differences
from adrenoc.importers.onnx.load import LoadedModel, load_parts
from adrenoc.importers.onnx.n_bits import keep_block_weights
from adrenoc.importers.onnx.prepare import (
    convert_opset,
    inline_functions,
    opset_of,
    prepare,
    take_past_branch,
    take_rows,
)
from adrenoc.importers.onnx.refusals import find_refused, raise_refusals, validate_model
from adrenoc.importers.onnx.steady_cache import check_kept, drop_casts, keep_cache
from adrenoc.importers.shapes import OpenInputs, suggest_shapes
from adrenoc.importers.states import check_states

OLDEST_OPSET = 7
"""The oldest opset that is translated as it is; older models are converted to it first."""


def import_onnx(
    files: ModelFiles,
    *,
    shapes: Mapping[str, tuple[int, ...]],
    states: Sequence[tuple[str, str]] = (),
    caches: Sequence[tuple[str, str]] = (),
    recurrent: Sequence[tuple[str, str]] = (),
    fixed: Sequence[tuple[str, str]] = (),
) -> Imported:
    """Import the ONNX model in `files`; `shapes` fixes dynamic dimensions by input name.

    `states` are pairs of an input and the output that it is in the next run; `caches` those of a
    decoder whose past grows (`steady_cache.py`), `recurrent` those of its states that do not.
    `fixed` are inputs that are constants, with their values. Raises ModelFormatError where it is
    damaged, inconsistent, or of an opset outside of what onnx knows; CustomDomainError or
    UnsupportedOperatorError, naming every node concerned; ShapeError where a shape is missing or
    does not fit; OptionError where `states`, `caches`, `recurrent` or `fixed` are not what the
    model has."""
    from adrenoc.importers.onnx.convert import convert, supported_operators

    said = {"states": states, "caches": caches, "recurrent": recurrent, "fixed": fixed}
    graph, sha256 = _open(files, shapes, said)
    if caches:
        take_past_branch(graph)
    keep_block_weights(graph)
    if caches or recurrent:
        drop_casts(graph, (*caches, *recurrent))
        keep_cache(graph, caches, recurrent)
    pairs = (*caches, *recurrent, *states)
    # States come behind all other outputs, each once and in their order.
    kept = [present for _, present in pairs if present in graph.outputs]
    graph.outputs = [*(name for name in graph.outputs if name not in kept), *kept]
    fuse_qdq(graph)
    fold_constants(graph)
    _expand_functions(graph)
    mask_outputs(graph)
    note_differences(graph)
    for name in graph.outputs:
        if name in graph.constants and graph.constants[name].dtype.kind in "OSU":
            raise _make_text_error(f"output '{name}'")
    refused, unknown = find_refused(graph, supported_operators())
    if graph.vast:
        raise_refusals(graph, refused)  # before the constants take memory
    if not unknown:
        check_extents(graph)
        check_dtypes(graph)
    module, tensors, failed = convert(graph, unknown)
    raise_refusals(graph, refused, failed)
    check_kept(graph, caches)
    outputs = tuple(_require_shape(graph, name) for name in graph.outputs)
    check_states((*recurrent, *states), graph.inputs, outputs)
    return Imported(
        module=module,
        format="onnx",
        inputs=tuple(graph.inputs),
        outputs=outputs[: len(outputs) - len(pairs)],
        decisions=tuple(graph.log),
        model_sha256=sha256,
        tensors=tensors,
        nodes={name: node.name for node in graph.nodes for name in node.output if node.name},
        states=pairs,
    )


def _open(
    files: ModelFiles,
    shapes: Mapping[str, tuple[int, ...]],
    said: Mapping[str, Sequence[tuple[str, str]]],
) -> tuple[OnnxGraph, str]:
    """Return the graph with static shapes, and the digest of its files."""
    loaded, log = _load(files)
    if files.embedding is not None and IMAGE_ROWS in shapes:
        take_rows(loaded.model, shapes[IMAGE_ROWS])
        reason = "--shape gives that input, of an encoder of pictures"
        log.add("tokens below zero", f"rows of {IMAGE_ROWS}", reason)
    settings = settings_of(loaded.model.graph, loaded.weights)
    suggest = partial(_suggest, settings, files, shapes, said)
    graph = prepare(loaded.model, loaded.weights, shapes, said["fixed"], log, suggest)
    return graph, loaded.sha256


def _suggest(
    settings: Mapping[str, str],
    files: ModelFiles,
    shapes: Mapping[str, tuple[int, ...]],
    said: Mapping[str, Sequence[tuple[str, str]]],
    found: OpenInputs,
) -> str:
    """Return a hint for open inputs of which is known that the model can be imported by it."""
    known = {PAST_BRANCH, *dict(said["fixed"])}
    switches = {name: value for name, value in settings.items() if name not in known}
    fixed = [*said["fixed"], *((name, value) for name, value in switches.items() if value)]

    def read(others: Mapping[str, tuple[int, ...]]) -> object:
        return import_onnx(files, shapes={**shapes, **others}, **{**said, "fixed": fixed})

    hint = suggest_shapes(found, files.paths[0], read)
    if not switches:
        return hint
    which = list_names(switches)
    return (
        f"add {write_switches(switches)} (an If hangs on {which}) and {hint.removeprefix('add ')}"
    )


def _load(files: ModelFiles) -> tuple[LoadedModel, DecisionLog]:
    """Return the model in an opset that is translated, without functions, and what was decided."""
    log = DecisionLog()
    loaded = load_parts(files)
    if files.embedding is not None:
        taken = f"looked up by {files.embedding.paths[0].name}"
        log.add(EMBEDDINGS, taken, "the decoder takes rows of it")
    _check(loaded.model, files, log)
    loaded = _convert_opset(loaded, files, log)
    if not loaded.model.functions:
        return loaded, log
    model = inline_functions(loaded.model, log)
    # The nodes of functions are what their callers make of them.
    validate_model(model, opset=opset_of(model))
    return replace(loaded, model=model), log


def read_quantised_graph(files: ModelFiles) -> tuple[OnnxGraph, str]:
    """Return the graph with quantised operators where conversions stood, and the digest of its
    files. Raises ModelFormatError where it is damaged, inconsistent, or of an opset outside of what
    onnx knows; ShapeError where a shape is missing."""
    loaded, log = _load(files)
    graph = prepare(loaded.model, loaded.weights, {}, (), log)
    fuse_qdq(graph)
    return graph, loaded.sha256


def _check(model: onnx.ModelProto, files: ModelFiles, log: DecisionLog) -> None:
    """Check that a model can be imported; sort its nodes where they stand in no order."""
    path = files.paths[0]
    hint = EXPORT_AGAIN
    if not model.graph.output or not model.graph.node:
        raise ModelFormatError(
            f"{path} holds a graph with {len(model.graph.node)} nodes and "
            f"{len(model.graph.output)} outputs; expected at least one of each",
            hint=hint,
        )
    newest = onnx.defs.onnx_opset_version()
    opset = opset_of(model)
    if not 1 <= opset <= newest:
        raise ModelFormatError(
            f"{path} uses opset {opset}; expected 1 to {newest}",
            hint="pip install --upgrade onnx" if opset > newest else hint,
        )
    if sort_nodes(model.graph):
        log.add("graph", "sorted its nodes", "some stood before what they read")
    validate_model(model, opset=opset)
    if model.graph.sparse_initializer:
        names = list_names(t.values.name for t in model.graph.sparse_initializer)
        raise UnsupportedOperatorError(
            f"{path} holds sparse weights ({names}); adrenoc takes dense ones",
            hint="export the model with dense weights",
        )


def _convert_opset(loaded: LoadedModel, files: ModelFiles, log: DecisionLog) -> LoadedModel:
    """Return `loaded` in the oldest opset that is translated, where it is older than that."""
    opset = opset_of(loaded.model)
    if opset >= OLDEST_OPSET:
        return loaded
    converted = convert_opset(loaded.fill(), OLDEST_OPSET, files.paths[0])
    reason = "older operators broadcast and count by rules of their own"
    log.add("graph", f"converted from opset {opset} to {OLDEST_OPSET}", reason)
    return replace(loaded, model=converted)


def _expand_functions(graph: OnnxGraph) -> None:
    """Replace operators that the frontend lacks by what the ONNX standard defines them as."""
    from adrenoc.importers.onnx.convert import supported_operators
    from adrenoc.importers.onnx.prepare import expand_standard_functions

    while True:  # a definition may hold operators that need theirs
        missing = {n.op_type for n in graph.nodes} - supported_operators()
        expanded = expand_standard_functions(graph, missing)
        if not expanded:
            return
        for op_type, count in sorted(expanded.items()):
            reason = "the ONNX standard defines it by other operators, and TVM lacks it"
            graph.log.add(op_type, f"expanded {count} nodes into their definition", reason)
        fold_constants(graph)


def _require_shape(graph: OnnxGraph, name: str) -> TensorSpec:
    known = graph.types.get(name)
    if known is None or known.shape is None:
        raise UnsupportedOperatorError(
            f"the shape of output '{name}' depends on data; adrenoc compiles for fixed shapes",
            hint="cut the model before that output with onnx.utils.extract_model",
        )
    return TensorSpec(name=name, shape=known.shape, dtype=known.dtype)


_ONLY_CONSTANT = frozenset(
    value
    for name, value in TensorProto.DataType.items()
    if name.startswith(("BFLOAT", "FLOAT4", "FLOAT8", "INT2", "INT4", "UINT2", "UINT4"))
)


def _make_text_error(what: str) -> UnsupportedOperatorError:
    return UnsupportedOperatorError(
        f"{what} holds text; adrenoc computes tensors of numbers",
        hint="cut that part off with onnx.utils.extract_model",
    )


def check_dtypes(graph: OnnxGraph) -> None:
    """Refuse tensors of text, and of numbers that only constants can hold, which are folded."""
    read = {n for node in graph.nodes for n in node.input if n not in graph.constants}
    for name in sorted(read.union(graph.outputs)):
        known = graph.types.get(name)
        if known is not None and known.element == TensorProto.STRING:
            raise _make_text_error(f"tensor '{name}'")
        if known is not None and known.element in _ONLY_CONSTANT:
            raise UnsupportedOperatorError(
                f"tensor '{name}' holds {TensorProto.DataType.Name(known.element).lower()}, which "
                "no OpenCL device computes",
                hint="export the model in float32 or float16",
            )


_CUT = "cut the model before that tensor with onnx.utils.extract_model"


def check_extents(graph: OnnxGraph) -> None:
    """Refuse tensors that hold too much, or nothing and are not operands that say so."""
    constants = graph.constants
    read = {n for node in graph.nodes for n in node.input if n not in constants}
    for name in sorted(read.union(graph.outputs)):
        shape = graph.shape_of(name) or (1,)
        what, hint = f"has the shape {list(shape)}", _CUT
        if len(shape) > MOST_AXES:
            what = f"has {len(shape)} dimensions; expected up to {MOST_AXES}"
        elif min(shape) < 0:
            what += ": a window is larger than what it slides over"
            hint = "compile for a larger input: --shape NAME:D,D,..."
        elif 0 in shape:
            what += ": it holds no element, and no kernel can compute it"
        elif (count := math.prod(shape)) > MOST_ELEMENTS:
            what += f", which is {count} elements; expected up to {MOST_ELEMENTS}"
            hint = f"compile for a smaller input: --shape NAME:D,D,..., or {_CUT}"
        else:
            continue
        raise ShapeError(f"tensor '{name}' {what}", hint=hint)
