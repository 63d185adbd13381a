"""Make a decoder whose past grows by concatenation one whose caches are memory of fixed rows.

Before -> after:
    attention_mask [1, T]         computed: ones up to the last new token, of all rows
    position_ids [1, S]           computed: the numbers of the new tokens
    position_ids [3, 1, S]        those, expanded: time, height and width are the same in a text
    past, present                 one memory of N rows; `past_length`, an input, are there
    logits of one token           with `next_token`, the largest of them
    logits of up to 8 tokens      left out, but for `next_token`, the largest after each of them
    logits of more tokens         left out: they only fill the caches, up to `filled` rows

What fills up the last tokens of a prompt writes rows behind it, which the next ones replace.

Casts between attention and inputs and outputs of another type are left out.  onnxruntime's
converter to halves writes such models (`keep_io_types`); what a cast to more bits gives is what the
cast back takes, so caches hold the same numbers.

Source: onnxruntime's ContribOperators reference (MRotaryEmbedding).
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from onnx import NodeProto, TensorProto, helper

from adrenoc.base.errors import OptionError, UnsupportedOperatorError
from adrenoc.bundle.chat import (
    FILLED,
    LOGITS,
    MASK,
    NEXT_TOKEN,
    PAST_LENGTH,
    POSITIONS,
    TOKENS,
)
from adrenoc.bundle.manifest import TensorSpec
from adrenoc.importers.onnx.attention import APPEND_ROWS, FIRST_ROW
from adrenoc.importers.onnx.graph import OnnxGraph, TensorType
from adrenoc.importers.onnx.join_attention import join_attention
from adrenoc.importers.onnx.join_heads import join_heads, join_norms
from adrenoc.importers.onnx.join_rotations import join_biases, join_rotations

_COSINES = {"RotaryEmbedding": 2, "GroupQueryAttention": 7}
"""Operator of onnxruntime's -> the input that holds its cosines."""

Caches = Sequence[tuple[str, str]]

MOST_GUESSED = 8
"""The most tokens of a run that picks one after each: guesses are checked by it."""
NO_END = 1 << 30
"""The most tokens of a decoder that keeps none of them apart."""


def keep_cache(graph: OnnxGraph, caches: Caches, recurrent: Caches = ()) -> None:
    """Change `graph` in place; `caches` are pairs of an input and the output that it is next.

    `recurrent` are those of states that every token changes as a whole. Raises OptionError where it
    has no such input or output."""
    kept = (*caches, *recurrent)
    _check_names(graph, kept)
    tokens = next(spec for spec in graph.inputs if spec.name == TOKENS).shape[-1]
    past = {name for name, _ in kept}
    rows = _count_rows(graph, caches)
    join_streams(graph)
    join_attention(graph, caches, tokens, rows)
    join_biases(graph, caches, tokens, rows)
    join_norms(graph)
    bounds = (0, max(rows - tokens, 0))
    graph.inputs.append(TensorSpec(name=PAST_LENGTH, shape=(1,), dtype="int32", bounds=bounds))
    graph.types[PAST_LENGTH] = TensorType(element=TensorProto.INT32, shape=(1,))
    counted = _know_first_rows(graph)
    _tell_kept(graph, caches, recurrent, rows, len(counted))
    join_rotations(graph, counted, POSITIONS)
    join_heads(graph, counted)
    # Refuse rotations by tables that end before the cache does: there is no row to read there.
    for node in graph.nodes:
        at = _COSINES.get(node.op_type, len(node.input))
        name = node.input[at] if at < len(node.input) else ""
        table = graph.constants.get(name)
        if table is not None and len(table) < rows:
            raise OptionError(
                f"the cosines '{name}' have {len(table)} rows, expected at least the context's "
                f"{rows}",
                hint=f"adrenoc compile MODEL --context {len(table)}",
            )
    before = [*_mask_nodes(graph, tokens), *_position_nodes(graph, tokens, rows)]
    if tokens <= MOST_GUESSED:
        graph.nodes += _pick_nodes(graph)
        results = [LOGITS, NEXT_TOKEN] if tokens == 1 else [NEXT_TOKEN]
    else:
        graph.set_constant("filled/tokens", np.array([tokens], np.int32))
        before.append(helper.make_node("Add", [PAST_LENGTH, "filled/tokens"], [FILLED]))
        results = [FILLED]
    graph.nodes[:0] = before
    gone = {MASK, POSITIONS}
    others = [spec for spec in graph.inputs if spec.name not in past | gone]
    order = {name: number for number, (name, _) in enumerate(kept)}
    held = sorted((s for s in graph.inputs if s.name in past), key=lambda s: order[s.name])
    graph.inputs = [*others, *held]
    graph.outputs = [*results, *(present for _, present in kept)]


def _pick_nodes(graph: OnnxGraph) -> list[NodeProto]:
    """Return what picks the likeliest token; one beyond the last where logits are no numbers.
    ArgMax itself gives the first place then, which would be a token like any other."""
    for name, value in (("begin", 0), ("end", 1), ("last", -1)):
        graph.set_constant(f"pick/{name}", np.array([value], np.int64))
    edges = ["pick/begin", "pick/end", "pick/last"]
    return [
        helper.make_node("ArgMax", [LOGITS], ["pick/largest"], axis=-1, keepdims=0),
        helper.make_node("Shape", [LOGITS], ["pick/extents"]),
        helper.make_node("Slice", ["pick/extents", "pick/begin", "pick/last"], ["pick/kept"]),
        helper.make_node("Gather", ["pick/extents", "pick/last"], ["pick/none"]),
        helper.make_node("Slice", [LOGITS, *edges], ["pick/first"]),
        helper.make_node("Reshape", ["pick/first", "pick/kept"], ["pick/one"]),
        helper.make_node("IsNaN", ["pick/one"], ["pick/is_none"]),
        helper.make_node("Where", ["pick/is_none", "pick/none", "pick/largest"], [NEXT_TOKEN]),
    ]


def _count_rows(graph: OnnxGraph, caches: Caches) -> int:
    """Return how many tokens there may be: a cache's or a mask's rows, else without end."""
    past = {name for name, _ in caches}
    masks = [spec.shape[-1] for spec in graph.inputs if spec.name == MASK]
    held = [spec.shape[2] for spec in graph.inputs if spec.name in past]
    return max((*masks, *held), default=NO_END)


def _tell_kept(
    graph: OnnxGraph, caches: Caches, recurrent: Caches, rows: int, counted: int
) -> None:
    reason = "exporters call an input and an output so"
    if caches:
        graph.log.add(
            f"{len(caches)} states",
            f"caches of {rows} rows, written in place",
            f"{reason}; {counted} operators read {PAST_LENGTH} itself",
        )
    if recurrent:
        graph.log.add(
            f"{len(recurrent)} recurrent states",
            "kept from token to token, with copies of earlier ones to go back to",
            f"{reason}, and both are of one shape; every token changes them as a whole, so prompts "
            "go through runs that they fill",
        )


def check_kept(graph: OnnxGraph, caches: Caches) -> None:
    """Refuse caches that no operator adds rows to: of others nobody knows what N rows mean. Raises
    UnsupportedOperatorError, naming them, with what makes the first."""
    makers = graph.makers()
    grown = [
        (present, makers[present].op_type if present in makers else "nothing")
        for past, present in caches
        if present not in makers
        or makers[present].op_type != APPEND_ROWS
        or makers[present].input[0] != past
    ]
    if grown:
        name, maker = grown[0]
        raise UnsupportedOperatorError(
            f"{len(grown)} of {len(caches)} caches are not added to in place: '{name}' is made by "
            f"{maker}, expected GroupQueryAttention",
            hint="adrenoc compile MODEL --shape INPUT:1,... for each input compiles the graph as "
            "it is, for one length of its past",
        )


def _check_names(graph: OnnxGraph, caches: Caches) -> None:
    inputs, outputs = {spec.name for spec in graph.inputs}, set(graph.outputs)
    for names, known, what in (
        ([TOKENS, *(past for past, _ in caches)], inputs, "input"),
        ([LOGITS, *(present for _, present in caches)], outputs, "output"),
    ):
        missing = [name for name in names if name not in known]
        if missing:
            raise OptionError(
                f"the model has no {what} '{missing[0]}', which a decoder with caches has; its "
                f"{what}s are {', '.join(sorted(known))}",
                hint="adrenoc compile MODEL --shape INPUT:1,... compiles it for fixed shapes",
            )


def _know_first_rows(graph: OnnxGraph) -> list[NodeProto]:
    """Let operators whose length is the sum of the mask read `past_length`; these operators."""
    makers = graph.makers()
    counted = []
    for node in graph.nodes:
        if node.op_type != "GroupQueryAttention" or len(node.input) < 6:
            continue
        if node.input[5] == PAST_LENGTH:
            counted.append(node)
        elif _is_sum_of_mask(makers, node.input[5]):
            node.input[5] = PAST_LENGTH
            node.attribute.append(helper.make_attribute(FIRST_ROW, 1))
            counted.append(node)
    return counted


def _is_sum_of_mask(makers: dict[str, NodeProto], name: str) -> bool:
    """Return whether a tensor is Cast(Sub(ReduceSum(mask), 1))."""
    for op in ("Cast", "Sub", "ReduceSum"):
        node = makers.get(name)
        if node is None or node.op_type != op:
            return False
        name = node.input[0]
    return name == MASK


def _mask_nodes(graph: OnnxGraph, tokens: int) -> list[NodeProto]:
    known = graph.types.get(MASK)
    if known is None or known.shape is None:
        return []
    graph.set_constant("mask/rows", np.arange(known.shape[-1], dtype=np.int32)[None])
    graph.set_constant("mask/tokens", np.array([tokens], np.int32))
    return [
        helper.make_node("Add", [PAST_LENGTH, "mask/tokens"], ["mask/there"]),
        helper.make_node("Less", ["mask/rows", "mask/there"], ["mask/seen"]),
        helper.make_node("Cast", ["mask/seen"], [MASK], to=known.element),
    ]


def _position_nodes(graph: OnnxGraph, tokens: int, rows: int) -> list[NodeProto]:
    known = graph.types.get(POSITIONS)
    if known is None:
        return []
    graph.set_constant("positions/new", np.arange(tokens, dtype=np.int64)[None])
    # What fills up the last tokens of a prompt may lie beyond the tables that positions index.
    graph.set_constant("positions/last", np.array([[rows - 1]], np.int64))
    return [
        helper.make_node("Cast", [PAST_LENGTH], ["positions/first"], to=TensorProto.INT64),
        helper.make_node("Add", ["positions/first", "positions/new"], ["positions/all"]),
        helper.make_node("Min", ["positions/all", "positions/last"], [POSITIONS]),
    ]


_STREAMS = "positions/streams"
_ONLY_OF_STREAMS = ("mrope_section", "mrope_layout")
"""Attributes that say which stream turns which numbers."""


def join_streams(graph: OnnxGraph) -> None:
    """Change `graph` in place, where its positions have an axis of streams."""
    extents = graph.shape_of(POSITIONS)
    if extents is None or len(extents) != 3:
        return
    streams, batch, tokens = extents
    turned = 0
    for node in graph.nodes:
        if node.op_type == "MRotaryEmbedding" and node.input[1] == POSITIONS:
            kept = [one for one in node.attribute if one.name not in _ONLY_OF_STREAMS]
            del node.attribute[:]
            node.attribute.extend(kept)
            node.op_type = "RotaryEmbedding"
            turned += 1
        else:
            node.input[:] = [_STREAMS if name == POSITIONS else name for name in node.input]
    if any(_STREAMS in node.input for node in graph.nodes):
        graph.set_constant("positions/extents", np.array([streams, batch, tokens], np.int64))
        inputs = [POSITIONS, "positions/extents"]
        graph.nodes.insert(0, helper.make_node("Expand", inputs, [_STREAMS]))
    shape = (batch, tokens)
    graph.types[POSITIONS] = replace(graph.types[POSITIONS], shape=shape)
    graph.inputs = [
        replace(spec, shape=shape) if spec.name == POSITIONS else spec for spec in graph.inputs
    ]
    reason = f"those of a text are the same; {turned} rotations read it as it is"
    graph.log.add(POSITIONS, f"one stream in place of {streams}", reason)


def drop_casts(graph: OnnxGraph, kept: Sequence[tuple[str, str]]) -> None:
    """Change `graph` in place; `kept` are pairs of an input and the output that it is next."""
    makers, readers = graph.makers(), graph.readers()
    renamed: dict[str, str] = {}
    own: dict[str, int] = {}
    for past, present in kept:
        reading, making = readers.get(past, []), makers.get(present)
        if making is None or not reading or {n.op_type for n in (*reading, making)} != {"Cast"}:
            continue
        (element, *others) = {node.attribute[0].i for node in reading}
        made = graph.types.get(making.input[0])
        if others or (made is not None and made.element != element):
            continue
        renamed |= {node.output[0]: past for node in reading} | {making.input[0]: present}
        own |= {past: element, present: element}
    if not own:
        return
    gone = {*renamed, *own}
    graph.nodes = [
        node
        for node in graph.nodes
        if not (node.op_type == "Cast" and node.input[0] in gone and node.output[0] in gone)
    ]
    for node in graph.nodes:
        for names in (node.input, node.output):
            names[:] = [renamed.get(name, name) for name in names]
    graph.types |= {
        name: replace(known, element=own[name])
        for name, known in graph.types.items()
        if name in own
    }
    graph.inputs = [
        replace(spec, dtype=graph.types[spec.name].dtype) if spec.name in own else spec
        for spec in graph.inputs
    ]
    graph.log.add(
        f"{len(own)} casts around states",
        "left out",
        "the model's inputs and outputs have another type than what reads and makes them",
    )
