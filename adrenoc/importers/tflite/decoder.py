"""A decoder's call, by operators that write and read caches in place.

Before -> after:
    keys = DYNAMIC_UPDATE_SLICE(past, k, position); y = BATCH_MATMUL(SOFTMAX(scores), ...)
    keys = adrenoc.AppendRows(past, k, past_length); y = adrenoc.CachedAttention(q, keys, values)

    input_pos                     past_length and the numbers of the new tokens, added up
    mask                          left out: attention sees the rows up to each token
    FULLY_CONNECTED, 4 or 8 bits  adrenoc.NBits: weights stay in their few bits

Operators that rewrites put into a decoder's graph, and what they are in Relax.

A call of a TFLite decoder, for some tokens and over caches of some rows, to Relax.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from adrenoc.base.decision import Decision
from adrenoc.base.errors import OptionError, RefusedError
from adrenoc.base.text.spelling import list_first
from adrenoc.bundle.chat import FILLED, LOGITS, NEXT_TOKEN, PAST_LENGTH, TOKENS
from adrenoc.bundle.manifest import TensorSpec
from adrenoc.importers.imported import Imported
from adrenoc.importers.relax import own
from adrenoc.importers.relax.values import make_constant
from adrenoc.importers.tflite.converter import GraphConverter, check_operators
from adrenoc.importers.tflite.decoder_attention import (
    CallProber,
    DecoderAttention,
    find_attention,
)
from adrenoc.importers.tflite.decoder_calls import (
    Call,
    DecoderCache,
    check_starts,
    find_caches,
    not_covered,
    read_calls,
)
from adrenoc.importers.tflite.elementwise import Convert
from adrenoc.importers.tflite.file import GraphInfo, OperatorInfo, TensorInfo, TFLiteFile
from adrenoc.importers.tflite.node import Result, TfliteNode

APPEND, ATTEND, PRODUCT = "adrenoc.AppendRows", "adrenoc.CachedAttention", "adrenoc.NBits"

_BYTE_BITS = 8


def _append_rows(node: TfliteNode) -> Result:
    """Take the cache, its new rows as [1, tokens, heads * numbers], the first row's number."""
    operands = [node.data(index) for index in range(3)]
    return own.call_own(own.APPEND_ROWS, operands, shape=node.shape(), **own.PLAIN)


def _cached_attention(node: TfliteNode) -> Result:
    """Take queries as [1, tokens, heads * numbers], the first one's row, keys, values."""
    operands = [node.data(index) for index in range(4)]
    told = {name: node.option(name) for name in ("heads", "scale", "cap", "window")}
    held = {"sunk": 0, "biased": 0, **own.PLAIN, **told}
    return own.call_own(own.CACHED_ATTENTION, operands, shape=node.shape(), **held)


def _n_bits(node: TfliteNode) -> Result:
    """Multiply by weights that stay in their few bits."""
    info = node.info(1)
    bits = 4 if info.dtype == "int4" else _BYTE_BITS
    codes = np.asarray(info.value).astype(np.int16) + (1 << (bits - 1))
    units, depth = codes.shape
    block = info.block or depth
    packed = codes.astype(np.uint8)
    if bits < _BYTE_BITS:
        packed = packed[:, 0::2] | packed[:, 1::2] << np.uint8(bits)
    shape = node.shape()
    rows = int(np.prod(shape)) // depth
    keep = bool(node.option("KeepNumDims", False)) and shape[-1] == depth
    x = node.data()
    if not keep:
        x = node.emit(relax.op.reshape(x, [rows, depth]))
    product = own.call_own(
        own.N_BITS,
        [
            x,
            make_constant(packed.reshape(units, depth // block, block * bits // _BYTE_BITS)),
            make_constant(info.scales.reshape(units, -1)),
        ],
        shape=[*shape[:-1], units] if keep else [rows, units],
        block=block,
        bits=bits,
        zero=float(1 << (bits - 1)),
        zeros=0,
    )
    if node.has(2):
        product = node.emit(product) + node.real(2)
    result = node.activate(product)
    return relax.op.reshape(node.emit(result), list(node.results[0].shape))


_DECODER_OPS: dict[str, Convert] = {
    APPEND: _append_rows,
    ATTEND: _cached_attention,
    PRODUCT: _n_bits,
}


_FLOATS = ("float32", "float16")
_WORD_BITS = 32
_BITS = {"int4": 4, "int8": 8}


def _join_call(file: TFLiteFile, call: Call, rows: int) -> tuple[GraphInfo, list[DecoderAttention]]:
    """Return the graph of a call over caches of `rows`, with inputs and outputs as a bundle has
    them. Raises UnsupportedOperatorError where caches or attention are in no form that is known;
    OptionError where the file's caches have fewer rows."""
    caches = find_caches(call)
    prober = CallProber(file, call)
    short = [cache for cache in caches.values() if cache.rows < rows]
    if short:
        raise OptionError(
            f"the cache '{short[0].name}' has {short[0].rows} rows in the file, expected at least "
            f"the context's {rows}",
            hint=f"adrenoc compile MODEL --context {short[0].rows}",
        )
    found = _find_all(prober, caches, rows)
    writer = _Writer(call.graph)
    past = writer.add(TensorInfo(name=PAST_LENGTH, shape=(1,), dtype="int32"))
    writer.write_positions(call, past)
    kept = {cache.name: writer.append_rows(call, cache, rows, past) for cache in caches.values()}
    for one in found:
        writer.attend(call, one, kept, past)
    return writer.finish(call, caches, kept, past), found


def _find_all(
    prober: CallProber, caches: Mapping[str, DecoderCache], rows: int
) -> list[DecoderAttention]:
    found, odd = [], []
    names = list(caches)
    for first, second in zip(names[0::2], names[1::2], strict=False):
        keys, values = caches[first], caches[second]
        try:
            for cache in (keys, values):
                for past in (0, min(3, cache.rows - prober.call.length)):
                    starts = prober.values([cache.starts], prober.at(past)).get(cache.starts)
                    if why := check_starts(cache, starts, past):
                        raise RefusedError(why)
            # The last layer of a prompt's run may only leave its rows.
            if any(prober.readers.get(cache.after) for cache in (keys, values)):
                found.append(find_attention(prober, keys, values, rows))
        except RefusedError as error:
            odd.append(f"over '{first}' and '{second}': {error}")
    if len(names) % 2:
        odd.append(f"'{names[-1]}' is a cache of keys or values alone")
    if odd:
        raise not_covered(
            f"attention of the signature '{prober.call.key}' in a form that is not known: "
            f"{list_first(odd)}"
        )
    return found


class _Writer:
    """A graph under construction: a call's own, with operators put in the places of others."""

    def __init__(self, graph: GraphInfo) -> None:
        self._graph = graph
        self.tensors = list(graph.tensors)
        self._made: list[OperatorInfo] = []

    def add(self, info: TensorInfo) -> int:
        """Return a further tensor."""
        is_taken = any(info.name == other.name for other in self.tensors)
        name = f"{info.name}__{len(self.tensors)}" if is_taken else info.name
        self.tensors.append(replace(info, name=name))
        return len(self.tensors) - 1

    def write(
        self,
        kind: str,
        inputs: Sequence[int],
        out: int | TensorInfo,
        *,
        custom: bool = False,
        **options: Any,
    ) -> int:
        """Return a further operator; the tensor that it makes."""
        index = out if isinstance(out, int) else self.add(out)
        self._made.append(
            OperatorInfo(
                kind=kind, custom=custom, inputs=tuple(inputs), outputs=(index,), options=options
            )
        )
        return index

    def write_positions(self, call: Call, past: int) -> None:
        """Write the numbers of the new tokens where the call takes them."""
        if call.positions < 0:
            return
        info = self.tensors[call.positions]
        new = self.constant(np.arange(call.length, dtype=np.int32))
        whole = TensorInfo(name="positions/new", shape=(call.length,), dtype="int32")
        mine = self.write("ADD", [past, new], whole)
        if info.dtype != "int32":
            mine = self.write("CAST", [mine], replace(whole, dtype=info.dtype))
        self.reshape(mine, info.shape, call.positions)

    def append_rows(self, call: Call, cache: DecoderCache, rows: int, past: int) -> tuple[int, int]:
        """Return a cache in place: before and after."""
        shape = (1, cache.heads, rows, cache.head)
        before, after = (
            self.add(TensorInfo(name=name, shape=shape, dtype=cache.dtype))
            for name in (cache.name, f"{cache.name}/next")
        )
        x = self.transpose(cache.update, (0, *cache.axes))
        x = self.reshape(x, (1, call.length, cache.heads * cache.head))
        self.write(APPEND, [before, x, past], after, custom=True)
        return before, after

    def attend(
        self, call: Call, one: DecoderAttention, kept: Mapping[str, tuple[int, int]], past: int
    ) -> None:
        """Write attention over caches in the place of products and a softmax."""
        heads, group, axes = _arrange(one, call.length)
        head = one.keys.head
        q = one.query
        if one.turned:
            rank = len(self.tensors[q].shape)
            q = self.transpose(q, (*range(rank - 2), rank - 1, rank - 2))
        extents = {"t": call.length, "k": one.keys.heads, "g": group}
        apart = self.transpose(
            self.reshape(q, (*(extents[axis] for axis in axes), head)),
            (*(axes.index(a) for a in "tkg"), 3),
        )
        flat = self.reshape(apart, (1, call.length, heads * head))
        info = self.tensors[one.out]
        mixed = self.write(
            ATTEND,
            [flat, past, kept[one.keys.name][1], kept[one.values.name][1]],
            TensorInfo(name=f"{info.name}/mixed", shape=(1, call.length, heads * head),
                       dtype=info.dtype),
            custom=True,
            heads=heads,
            scale=one.scale,
            cap=one.cap,
            window=one.window,
        )  # fmt: skip
        by_head = self.reshape(mixed, (call.length, one.keys.heads, group, head))
        back = self.transpose(by_head, (*("tkg".index(a) for a in axes), 3))
        self.reshape(back, info.shape, one.out)

    def reshape(self, x: int, shape: Sequence[int], out: int | None = None) -> int:
        """Return the same numbers in another shape."""
        info = self.tensors[x]
        if out is None and info.shape == tuple(shape):
            return x
        form = self.constant(np.asarray(shape, np.int32))
        made = TensorInfo(name=f"{info.name}/shaped", shape=tuple(shape), dtype=info.dtype)
        return self.write("RESHAPE", [x, form], made if out is None else out)

    def transpose(self, x: int, order: Sequence[int]) -> int:
        """Return it with its axes in another order."""
        info = self.tensors[x]
        if list(order) == sorted(order):
            return x
        axes = self.constant(np.asarray(order, np.int32))
        shape = tuple(info.shape[a] for a in order)
        made = TensorInfo(name=f"{info.name}/turned", shape=shape, dtype=info.dtype)
        return self.write("TRANSPOSE", [x, axes], made)

    def constant(self, value: np.ndarray) -> int:
        """Return a further constant."""
        dtype = str(value.dtype)
        return self.add(TensorInfo(name="constant", shape=value.shape, dtype=dtype, value=value))

    def finish(
        self,
        call: Call,
        caches: Mapping[str, DecoderCache],
        kept: Mapping[str, tuple[int, int]],
        past: int,
    ) -> GraphInfo:
        """Return the graph of what a run of these tokens is asked for. Raises
        UnsupportedOperatorError where more reads the caches or the mask."""
        self.tensors[call.tokens] = replace(self.tensors[call.tokens], name=TOKENS)
        if call.length == 1:
            self.tensors[call.logits] = replace(self.tensors[call.logits], name=LOGITS)
            results = [call.logits, self._pick(call.logits)]
        else:
            count = self.constant(np.array([call.length], np.int32))
            filled = TensorInfo(name=FILLED, shape=(1,), dtype="int32")
            results = [self.write("ADD", [past, count], filled)]
        inputs = [call.tokens, past, *(before for before, _ in kept.values())]
        outputs = [*results, *(after for _, after in kept.values())]
        operators = _needed([*self._graph.operators, *self._made], self._made, outputs)
        gone = {index for pair in call.caches.values() for index in pair}
        _check_readers(call, self.tensors, operators, gone | {call.mask} - {-1})
        operators = [_keep_bits(self.tensors, one) for one in operators]
        return GraphInfo(
            name=self._graph.name,
            tensors=tuple(self.tensors),
            operators=tuple(operators),
            inputs=tuple(inputs),
            outputs=tuple(outputs),
        )

    def _pick(self, logits: int) -> int:
        """Pick the likeliest token; one beyond the last where logits are no numbers."""
        info = self.tensors[logits]
        kept, last = info.shape[:-1], len(info.shape) - 1
        axis = self.constant(np.array([last], np.int32))
        largest = TensorInfo(name="pick/largest", shape=kept, dtype="int64")
        largest_at = self.write("ARG_MAX", [logits, axis], largest, OutputType=_INT64)
        edges = [np.zeros(last + 1, np.int32), np.array([*kept, 1], np.int32)]
        first = TensorInfo(name="pick/first", shape=(*kept, 1), dtype=info.dtype)
        one = self.write("SLICE", [logits, *map(self.constant, edges)], first)
        one = self.reshape(one, kept)
        is_none = TensorInfo(name="pick/is_none", shape=kept, dtype="bool")
        none = self.constant(np.full(kept, info.shape[-1], np.int64))
        asked = self.write("NOT_EQUAL", [one, one], is_none)
        picked = TensorInfo(name=NEXT_TOKEN, shape=kept, dtype="int64")
        return self.write("SELECT_V2", [asked, none, largest_at], picked)


_INT64 = 4
"""As the schema numbers types."""


def _arrange(one: DecoderAttention, tokens: int) -> tuple[int, int, str]:
    """Return heads of queries, how many share a head of the cache, and how they lie in the
    products.

    The last is an order of t (tokens), k (heads of the cache) and g (those that share one)."""
    products, rows = len(one.kept), len(one.order)
    group = products * rows // (tokens * one.keys.heads)
    each, order = rows // tokens, list(one.order)
    one_each = list(one.kept) == list(range(one.keys.heads))
    repeated = [token for _ in range(each) for token in range(tokens)]
    in_order = [token for token in range(tokens) for _ in range(each)]
    if (each == 1 and list(one.kept) == sorted(one.kept)) or (one_each and order == repeated):
        axes = "kgt"
    elif one_each and order == in_order:
        axes = "ktg"
    else:
        raise not_covered(
            f"attention over '{one.keys.name}' has its heads in an order that is not known: "
            f"{list_first(map(str, one.kept), between=', ')}"
        )
    return one.keys.heads * group, group, axes


def _needed(
    operators: Sequence[OperatorInfo], made: Sequence[OperatorInfo], outputs: Sequence[int]
) -> list[OperatorInfo]:
    """Return what the outputs hang on, makers before readers; of two makers the `made` one."""
    makers = {index: one for one in operators for index in one.outputs}
    makers.update({index: one for one in made for index in one.outputs})
    found: list[OperatorInfo] = []
    state: dict[int, bool] = {}
    left: list[tuple[OperatorInfo, bool]] = [
        (makers[index], False) for index in reversed(outputs) if index in makers
    ]
    while left:
        one, is_ready = left.pop()
        if is_ready:
            found.append(one)
            continue
        if id(one) in state:
            continue
        state[id(one)] = True
        left.append((one, True))
        left += [(makers[i], False) for i in reversed(one.inputs) if i in makers]
    return found


def _check_readers(
    call: Call, tensors: Sequence[TensorInfo], operators: Sequence[OperatorInfo], gone: set[int]
) -> None:
    """Refuse what else reads a cache or the mask: rows that hold no token yet."""
    others = [
        f"{one.kind} reads '{tensors[index].name}'"
        for one in operators
        for index in one.inputs
        if index in gone
    ]
    if others:
        raise not_covered(
            f"{len(others)} operators of the signature '{call.key}' beside attention read caches "
            f"or the mask: {list_first(others, between=', ')}; expected attention alone to"
        )


def _keep_bits(tensors: Sequence[TensorInfo], operator: OperatorInfo) -> OperatorInfo:
    """Return a product whose constant weights stay in the few bits that the file has them in."""
    if operator.kind != "FULLY_CONNECTED":
        return operator
    x, weights = (tensors[index] for index in operator.inputs[:2])
    bits = _BITS.get(weights.dtype, 0)
    if (
        x.dtype not in _FLOATS
        or not bits
        or not weights.is_quantised
        or weights.value is None
        or weights.zeros.any()
        or (weights.scales.size > 1 and weights.axis != 0 and not weights.block)
        or weights.shape[1] * bits % _WORD_BITS
    ):
        return operator
    return replace(operator, kind=PRODUCT, custom=True)


def import_call(file: TFLiteFile, sha256: str, shapes: Mapping[str, tuple[int, ...]]) -> Imported:
    """Import the call of the tokens that `shapes` has, over caches of its rows. Raises OptionError
    where the file has no such call, or caches of fewer rows; CustomDomainError or
    UnsupportedOperatorError, naming every operator concerned."""
    call, rows = _choose(file, shapes)
    graph, found = _join_call(file, call, rows)
    check_operators((graph,), _DECODER_OPS)
    inputs = [_spec(graph.tensors[index], rows, call.length) for index in graph.inputs]
    whole = replace(file, graphs=(graph, *file.graphs), entry=0)
    states = [(name, f"{name}/next") for name in call.caches]
    told = _explain(call, graph, found, rows)
    return GraphConverter(whole, inputs, _DECODER_OPS).import_main(sha256, told, states)


def _choose(file: TFLiteFile, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Call, int]:
    calls = {call.length: call for call in read_calls(file)}
    wanted = shapes.get(TOKENS, (1, 1))[-1]
    call = calls.get(wanted)
    if call is None:
        lengths = list_first(map(str, calls), between=", ")
        raise OptionError(
            f"the file has no signature of {wanted} tokens, expected one of {lengths}",
            hint=f"adrenoc compile MODEL --prefill {max(calls)}",
        )
    rows = next(shapes[name][2] for name in call.caches)
    return call, rows


def _spec(info: TensorInfo, rows: int, tokens: int) -> TensorSpec:
    bounds = (0, max(rows - tokens, 0)) if info.name == PAST_LENGTH else ()
    return TensorSpec(name=info.name, shape=info.shape, dtype=info.dtype, bounds=bounds)


def _explain(
    call: Call, graph: GraphInfo, found: list[DecoderAttention], rows: int
) -> list[Decision]:
    windows = sorted({one.window for one in found if one.window})
    kept = [one for one in graph.operators if one.kind == PRODUCT]
    decisions = [
        Decision(
            subject=f"{len(call.caches)} states",
            taken=f"caches of {rows} rows, written in place",
            reason=f"the signature '{call.key}' takes and gives them under one name",
        ),
        Decision(
            subject=f"{len(found)} attentions",
            taken="read and write their caches in place",
            reason="products, masks and softmax are those of an attention over the rows up to "
            "each token" + (f", of the last {windows[0]} in some" if windows else ""),
        ),
    ]
    if kept:
        decisions.append(
            Decision(
                subject=f"{len(kept)} products",
                taken="weights stay in the 4 or 8 bits of the file, data in floats",
                reason="a token waits for weights; LiteRT rounds data to 8 bits beside them",
            )
        )
    return decisions
