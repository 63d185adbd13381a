"""TfIdfVectorizer over numbers: how often each n-gram of a list occurs.

Before -> after (bigrams, no skip):
    y = TfIdfVectorizer(x)    y[g] = sum_p (x[p] == g[0]) * (x[p + 1] == g[1])

Source: ONNX operator reference: TfIdfVectorizer-9.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax

from adrenoc.importers.onnx.node import Node
from adrenoc.relax.fold import check_grown
from adrenoc.relax.values import dtype_of, make_constant


def _tfidf(node: Node) -> relax.Expr:
    pool, attrs = node.attrs.get("pool_int64s"), node.attrs
    if pool is None:
        raise ValueError("it counts strings, which no GPU holds; expected pool_int64s")
    shape = node.shape()
    columns = max(attrs["ngram_indexes"]) + 1
    x = node.emit(relax.op.reshape(node.inputs[0], (1, *shape))) if len(shape) == 1 else None
    rows = node.inputs[0] if x is None else x
    batch, length = (shape if x is None else (1, *shape))[:2]
    found: list[relax.Expr] = []
    numbers: list[int] = []
    first = 0
    for gram, grams in enumerate(_grams(pool, attrs["ngram_counts"]), start=1):
        own = attrs["ngram_indexes"][first : first + len(grams)]
        first += len(grams)
        if not len(grams) or not attrs["min_gram_length"] <= gram <= attrs["max_gram_length"]:
            continue
        counted = _counts(node, rows, length, grams, int(attrs["max_skip_count"]))
        if counted is not None:
            found.append(counted)
            numbers += own
    if not found:
        check_grown(batch * columns)
        result = make_constant(np.zeros((batch, columns), np.float32))
    else:
        joined = found[0] if len(found) == 1 else node.emit(relax.op.concat(found, axis=1))
        check_grown(len(numbers) * columns)
        spread = np.zeros((len(numbers), columns), np.float32)
        spread[np.arange(len(numbers)), numbers] = 1
        result = node.emit(relax.op.matmul(joined, make_constant(spread)))
        result = _weight(node, result, columns)
    return result if x is None else relax.op.reshape(result, (columns,))


def _grams(pool: list[int], starts: list[int]) -> list[np.ndarray]:
    """The n-grams [count, n] of each length n from 1 on."""
    ends = [*starts[1:], len(pool)]
    return [
        np.asarray(pool[start:end]).reshape(-1, size)
        for size, (start, end) in enumerate(zip(starts, ends, strict=True), start=1)
    ]


def _counts(
    node: Node, rows: relax.Expr, length: int, grams: np.ndarray, skips: int
) -> relax.Expr | None:
    """How often each n-gram occurs in each row; None where the rows are too short for any."""
    dtype, size = dtype_of(rows), grams.shape[1]
    total = None
    # Skips lie between the parts of an n-gram: one part has none.
    for step in range(1, (skips if size > 1 else 0) + 2):
        positions = length - (size - 1) * step
        if positions < 1:
            break
        hit = None
        for part in range(size):
            begin = part * step
            window = node.emit(relax.op.strided_slice(rows, [1], [begin], [begin + positions]))
            window = node.emit(relax.op.expand_dims(window, [1]))
            wanted = make_constant(grams[None, :, part, None].astype(dtype))
            same = node.emit(relax.op.equal(window, wanted))
            hit = same if hit is None else node.emit(relax.op.logical_and(hit, same))
        counted = node.emit(relax.op.sum(node.emit(relax.op.astype(hit, "float32")), axis=[2]))
        total = counted if total is None else node.emit(relax.op.add(total, counted))
    return total


def _weight(node: Node, counts: relax.Expr, columns: int) -> relax.Expr:
    mode = node.text("mode", "TF")
    if mode == "TF":
        return counts
    weights = np.ones(columns, np.float32)
    given = node.attrs.get("weights")
    if given is not None:
        weights[np.asarray(node.attrs["ngram_indexes"])] = given
    if mode == "IDF":
        zero = make_constant(np.float32(0))
        some = node.emit(relax.op.greater(counts, zero))
        counts = node.emit(relax.op.astype(some, "float32"))
    elif mode != "TFIDF":
        raise ValueError(f"unknown mode '{mode}'")
    return node.emit(relax.op.multiply(counts, make_constant(weights)))


TFIDF_OPS: dict[str, Callable[[Node], relax.Expr]] = {"TfIdfVectorizer": _tfidf}
