"""Attention over caches in a decoder's graph, told by its two products and by numbers.

    scores = BATCH_MATMUL(queries, keys); y = BATCH_MATMUL(SOFTMAX(scores ... mask), values)

What lies between a cache and its product (transposes, heads that are repeated), and between scores
and softmax (a scale, a cap, masks), is not read but tried: numbers go in, and what comes out says
which row of which head lies where.

Exporters write masks, places of new rows and repeated heads in as many ways as there are exporters;
for a past of some rows all that the graph makes of positions and of known tensors is constants.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from adrenoc.base.errors import RefusedError
from adrenoc.importers.tflite.converter import GraphConverter
from adrenoc.importers.tflite.decoder_calls import Call, DecoderCache, mask_values
from adrenoc.importers.tflite.file import OperatorInfo, TFLiteFile


class CallProber:
    """Evaluates tensors of a call's graph."""

    def __init__(self, file: TFLiteFile, call: Call) -> None:
        self._file, self.call = file, call

    @cached_property
    def makers(self) -> dict[int, OperatorInfo]:
        """Tensor -> the operator that makes it."""
        return {index: one for one in self.call.graph.operators for index in one.outputs}

    @cached_property
    def readers(self) -> dict[int, list[OperatorInfo]]:
        """Tensor -> the operators that read it."""
        found: dict[int, list[OperatorInfo]] = {}
        for one in self.call.graph.operators:
            for index in set(one.inputs):
                found.setdefault(index, []).append(one)
        return found

    def at(self, past: int) -> dict[int, np.ndarray]:
        """Return what a caller gives for positions and mask behind `past` tokens."""
        call, given = self.call, {}
        mine = past + np.arange(call.length)
        if call.positions >= 0:
            info = call.graph.tensors[call.positions]
            given[call.positions] = mine.astype(info.dtype).reshape(info.shape)
        if call.mask >= 0:
            info = call.graph.tensors[call.mask]
            given[call.mask] = mask_values(mine, info.shape, info.dtype)
        return given

    def values(
        self, wanted: Sequence[int], given: Mapping[int, np.ndarray]
    ) -> dict[int, np.ndarray]:
        """Return what tensors hold where `given` ones hold that, but for those of more."""
        graph = self.call.graph
        needed, left = set(), [index for index in wanted if index not in given]
        while left:
            maker = self.makers.get(left.pop())
            if maker is None or id(maker) in needed:
                continue
            needed.add(id(maker))
            left += [i for i in maker.inputs if i >= 0 and i not in given]
        part = replace(graph, operators=tuple(one for one in graph.operators if id(one) in needed))
        return GraphConverter(self._file).evaluate(part, given, wanted)


PRODUCT, SOFTMAX = "BATCH_MATMUL", "SOFTMAX"
_MOVES = frozenset(
    (
        *("BROADCAST_TO", "CAST", "CONCATENATION", "DIV", "EXPAND_DIMS", "GATHER", "MUL", "PACK"),
        *("RESHAPE", "SLICE", "SQUEEZE", "STRIDED_SLICE", "TILE", "TRANSPOSE"),
    )
)
"""Operators that may lie between a cache and its product."""
_SMALL, _LARGE = 2.0**-10, 2.0**20
"""Scores at which a cap does nothing, and all."""
_FAR = -9e3
"""What hides a row takes about ten thousand of its score or more, which may be above zero."""


@dataclass(frozen=True, kw_only=True)
class DecoderAttention:
    """An attention: its caches, its queries and result as [products, rows, numbers], its scores.

    `order` has the token of each row of a product, `kept` the head of the caches that each product
    reads."""

    keys: DecoderCache
    values: DecoderCache
    query: int
    turned: bool
    out: int
    scale: float
    cap: float
    window: int
    kept: tuple[int, ...]
    order: tuple[int, ...]


def find_attention(
    prober: CallProber, keys: DecoderCache, values: DecoderCache, rows: int
) -> DecoderAttention:
    """Return the attention over two caches of a layer."""
    scores, query = _product_over(prober, keys)
    mix, powers = _product_over(prober, values)
    softmax = _climb(prober, mix.inputs[powers], (SOFTMAX,))
    kept = _check_operand(prober, keys, scores, 1 - query, is_turned=True)
    if kept != _check_operand(prober, values, mix, 1 - powers, is_turned=False):
        raise RefusedError("keys and values are of different heads")
    if (query, powers) != (0, 0):
        raise RefusedError("its products have the caches first")
    if bool(mix.options.get("AdjX")):
        raise RefusedError("its probabilities are transposed")
    curve = _Scores(prober=prober, scores=scores.outputs[0], logits=softmax.inputs[0])
    scale, cap = curve.read_curve()
    scale *= float(softmax.options.get("Beta", 1.0) or 1.0)
    if cap and softmax.options.get("Beta", 1.0) not in (0.0, 1.0):
        raise RefusedError("its softmax scales what has a cap")
    window, order = curve.read_mask(rows)
    return DecoderAttention(
        keys=keys,
        values=values,
        query=scores.inputs[query],
        turned=bool(scores.options.get("AdjX")),
        out=mix.outputs[0],
        scale=scale * _factor(prober, keys, scores.inputs[1 - query]),
        cap=cap,
        window=window,
        kept=kept,
        order=order,
    )


def _product_over(prober: CallProber, cache: DecoderCache) -> tuple[OperatorInfo, int]:
    """Return the one product that reads a cache, and which of its operands is the other one."""
    moved, left, found = {cache.after}, [cache.after], []
    while left:
        for reader in prober.readers.get(left.pop(), []):
            if reader.kind == PRODUCT:
                found.append(reader)
            elif reader.kind in _MOVES and reader.outputs[0] not in moved:
                moved.add(reader.outputs[0])
                left.append(reader.outputs[0])
            elif reader.kind not in _MOVES:
                raise RefusedError(f"{reader.kind} reads '{cache.name}'")
    if len(found) != 1:
        raise RefusedError(f"{len(found)} products read '{cache.name}', expected one")
    sides = [n for n in (0, 1) if found[0].inputs[n] not in moved]
    if len(sides) != 1:
        raise RefusedError(f"a product of '{cache.name}' with itself")
    return found[0], sides[0]


def _climb(prober: CallProber, index: int, kinds: Sequence[str]) -> OperatorInfo:
    """Return the operator of one of `kinds` that makes a tensor, behind moves and conversions."""
    while True:
        maker = prober.makers.get(index)
        if maker is None or maker.kind not in (*kinds, "RESHAPE", "CAST"):
            kind = "nothing" if maker is None else maker.kind
            raise RefusedError(f"{kind} makes its probabilities, expected {SOFTMAX}")
        if maker.kind in kinds:
            return maker
        index = maker.inputs[0]


def _coded(prober: CallProber, cache: DecoderCache, axis: int, operand: int) -> np.ndarray:
    """Return a product's operand where a cache holds numbers of places along an axis."""
    info = prober.call.graph.tensors[cache.after]
    along = [-1 if a == axis else 1 for a in range(len(info.shape))]
    places = np.arange(1, info.shape[axis] + 1).reshape(along)
    value = np.broadcast_to(places, info.shape).astype(info.dtype)
    return _known(prober, operand, {cache.after: value}, f"the product's operand of '{cache.name}'")


def _known(
    prober: CallProber, index: int, given: Mapping[int, np.ndarray], what: str
) -> np.ndarray:
    found = prober.values([index], {**prober.at(0), **given}).get(index)
    if found is None:
        raise RefusedError(f"{what} is computed of more")
    return found.astype(np.float64)


def _factor(prober: CallProber, cache: DecoderCache, operand: int) -> float:
    """Return what a cache is multiplied by on its way to its product."""
    shape = prober.call.graph.tensors[cache.after].shape
    ones = {cache.after: np.ones(shape, cache.dtype)}
    value = _known(prober, operand, ones, f"the product's operand of '{cache.name}'")
    if not value.min() == value.max() > 0:
        raise RefusedError(f"'{cache.name}' is multiplied by several numbers")
    return float(value.max())


def _check_operand(
    prober: CallProber, cache: DecoderCache, product: OperatorInfo, side: int, *, is_turned: bool
) -> tuple[int, ...]:
    """Return the head that each of the products of matrices reads; rows and numbers have to lie in
    order. `is_turned`: rows are the product's last axis, as those of keys are."""
    operand = product.inputs[side]
    factor = _factor(prober, cache, operand)
    adjoint = bool(product.options.get("AdjY" if side else "AdjX"))
    rows_last = is_turned != adjoint
    if not is_turned and factor != 1.0:
        raise RefusedError(f"'{cache.name}' is multiplied by {factor}")
    places = []
    for axis in cache.axes:
        coded = np.rint(_coded(prober, cache, axis, operand) / factor).astype(np.int64) - 1
        coded = coded.reshape(-1, *coded.shape[-2:])
        places.append(coded.swapaxes(1, 2) if rows_last else coded)
    row, head, number = places
    fits = (
        (row == np.arange(cache.rows)[:, None]).all()
        and (number == np.arange(cache.head)).all()
        and (head == head[:, :1, :1]).all()
    )
    if not fits:
        raise RefusedError(f"rows or numbers of '{cache.name}' lie in another order")
    return tuple(int(h) for h in head[:, 0, 0])


@dataclass(frozen=True, kw_only=True)
class _Scores:
    """What lies between the scores and the softmax."""

    prober: CallProber
    scores: int
    logits: int

    def read_curve(self) -> tuple[float, float]:
        """Return the scale, and the cap, 0 where there is none."""
        past = self._deepest
        seen = self._see(self._at(0.0, past))
        small = self._at(_SMALL, past)[seen] / _SMALL
        large = self._at(_LARGE, past)[seen]
        scale, cap = float(small.mean()), float(large.mean())
        if cap > scale * _LARGE / 2:
            cap = 0.0
        random = np.random.default_rng(0).normal(0, 5, self._shape).astype(np.float32)
        found = self._at(random, past)[seen]
        wide = random.astype(np.float64).reshape(seen.shape)[seen] * scale
        expected = cap * np.tanh(wide / cap) if cap else wide
        if not np.allclose(found, expected, rtol=1e-4, atol=1e-4):
            raise RefusedError("its scores are more than scaled, capped and masked")
        return scale, cap

    def read_mask(self, rows: int) -> tuple[int, tuple[int, ...]]:
        """Return how many rows a token sees, 0 for all, and the token of each row of a product."""
        tokens = self.prober.call.length
        past = self._deepest
        seen = self._see(self._at(0.0, past))
        last = seen.shape[-1] - 1 - seen[:, :, ::-1].argmax(-1)
        order = last[0] - past
        if (last != last[:1]).any() or sorted(set(order)) != list(range(tokens)):
            raise RefusedError("its mask hides other rows than those after each token")
        width = int(seen[0, int(order.argmax())].sum())
        window = 0 if width == past + tokens else width
        for before in sorted({0, min(5, past), past, min(window + 2, past)}):
            mine = (before + order)[:, None]
            columns = np.arange(seen.shape[-1])
            expected = (columns <= mine) & ((columns > mine - window) if window else True)
            if not (self._see(self._at(0.0, before)) == expected).all():
                raise RefusedError("its mask hides other rows than those after each token")
        return (0 if window >= rows else window), tuple(int(token) for token in order)

    @property
    def _deepest(self) -> int:
        """Return the longest past."""
        return self.prober.call.graph.tensors[self.scores].shape[-1] - self.prober.call.length

    @property
    def _shape(self) -> tuple[int, ...]:
        return self.prober.call.graph.tensors[self.scores].shape

    def _at(self, value: float | np.ndarray, past: int) -> np.ndarray:
        """Return the logits of scores, as [products, rows of each, rows of the cache]."""
        given = {self.scores: np.broadcast_to(np.float32(value), self._shape)}
        found = self.prober.values([self.logits], {**self.prober.at(past), **given})
        if self.logits not in found:
            raise RefusedError("its scores are mixed with more than positions")
        wide = found[self.logits].astype(np.float64)
        if wide.size != prod(self._shape):
            raise RefusedError("more goes into its softmax than its scores")
        return wide.reshape(-1, *self._shape[-2:])

    def _see(self, logits: np.ndarray) -> np.ndarray:
        """Return which rows are seen, of the logits of scores that are all zero."""
        seen = logits == 0
        if not (seen | (logits < _FAR)).all():
            raise RefusedError("its mask adds more than a hidden row takes")
        return np.asarray(seen)
