"""Support vector machines (domain ai.onnx.ml), as kernels of all vectors and one product.

Before -> after:
    y = SVMRegressor(x)             near[n, s] = kernel(x[n], vector[s])
                                    y = near @ coefficients + rho
    label, z = SVMClassifier(x)     z = near @ coefficients of each pair of classes + rho
                                    label = the class that wins most pairs

Distances are sums of squared differences: expanded into products they would lose the digits that
near vectors differ in.

Source: the reference of ONNX's ML operators; onnxruntime for the scores of two classes.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np

from adrenoc.importers.onnx.classical import (
    list_attribute,
    read_classes,
    read_floats,
    write_labels,
)
from adrenoc.importers.onnx.writer import CannotWriteError, Writer

_MOST_DIFFERENCES = 2**24
"""The most differences of numbers that distances are summed from, for all rows and vectors."""


def _compute_kernel(write: Writer, vectors: np.ndarray) -> str:
    """kernel(x, vector) of each row and each vector, [rows, vectors]."""
    rows, features = write.shape(write.input(0))
    count, kind = len(vectors), write.text("kernel_type", "LINEAR")
    gamma, offset, degree = (*list_attribute(write, "kernel_params"), 0.0, 0.0, 0.0)[:3]
    x = read_floats(write)
    if kind == "RBF":
        if rows * vectors.size > _MOST_DIFFERENCES:
            raise CannotWriteError(
                f"{rows} rows and {count} vectors of {features} features are "
                f"{rows * vectors.size} differences; expected up to {_MOST_DIFFERENCES}"
            )
        line = write.reshape(x, rows, 1, features)
        apart = write("Sub", line, write.array(vectors[np.newaxis]))
        distance = write.total(write("Mul", apart, apart), 2)
        return write("Exp", write("Mul", distance, write.array(np.float32(-gamma))))
    product = write("MatMul", x, write.array(np.ascontiguousarray(vectors.T)))
    if kind == "LINEAR":
        return product
    scaled = write("Mul", product, write.array(np.float32(gamma)))
    moved = write("Add", scaled, write.array(np.float32(offset)))
    if kind == "POLY":
        return write("Pow", moved, write.array(np.float32(degree)))
    if kind == "SIGMOID":
        return write("Tanh", moved)
    raise CannotWriteError(f"kernel {kind} is none of LINEAR, POLY, RBF and SIGMOID")


def _read_vectors(write: Writer, count: int) -> np.ndarray:
    """The support vectors, [vectors, features]."""
    shape = write.shape(write.input(0))
    if len(shape) != 2:
        raise CannotWriteError(f"it reads {list(shape)}; expected rows of features")
    vectors = list_attribute(write, "support_vectors")
    if not count or vectors.size != count * shape[1]:
        raise CannotWriteError(
            f"it has {vectors.size} numbers of {count} support vectors for {shape[1]} features"
        )
    return vectors.reshape(count, -1)


def _check_plain(write: Writer) -> None:
    if write.text("post_transform", "NONE") != "NONE":
        raise CannotWriteError("its sums are transformed at the end; expected post_transform NONE")


def _svm_regressor(write: Writer) -> None:
    """One class is 1 where its sum is above zero, else -1."""
    _check_plain(write)
    vectors = _read_vectors(write, int(write.number("n_supports", 0)))
    weights, rho = (list_attribute(write, name) for name in ("coefficients", "rho"))
    if len(weights) != len(vectors) or len(rho) != 1:
        raise CannotWriteError(
            f"it has {len(weights)} coefficients and {len(rho)} rho for {len(vectors)} vectors"
        )
    near = _compute_kernel(write, vectors)
    product = write("MatMul", near, write.array(weights[:, np.newaxis]))
    is_class = bool(write.number("one_class", 0))
    total = write("Add", product, write.array(rho), out="" if is_class else write.result)
    if is_class:
        above = write("Greater", total, write.array(np.float32(0)))
        ends = (write.array(np.float32(end)) for end in (1, -1))
        write("Where", above, *ends, out=write.result)


def _svm_classifier(write: Writer) -> None:
    _check_plain(write)
    if write.attrs.get("prob_a"):
        raise CannotWriteError(
            "its probabilities are found by iteration: train it with probability=False"
        )
    classes = read_classes(write)
    sizes = list_attribute(write, "vectors_per_class", np.int64)
    vectors = _read_vectors(write, int(sizes.sum()))
    weights, rho = (list_attribute(write, name) for name in ("coefficients", "rho"))
    pairs = list(combinations(range(len(classes)), 2))
    wanted = (len(classes) - 1) * len(vectors)
    if len(sizes) != len(classes) or len(rho) != len(pairs) or weights.size != wanted:
        raise CannotWriteError(
            f"it has {weights.size} coefficients, {len(rho)} rho and {len(sizes)} counts of "
            f"vectors for {len(classes)} classes and {len(vectors)} vectors"
        )
    of_pairs = _spread_weights(weights.reshape(-1, len(vectors)), sizes, pairs)
    near = _compute_kernel(write, vectors)
    product = write("MatMul", near, write.array(of_pairs))
    scores = write("Add", product, write.array(rho))
    write_labels(write, _count_votes(write, scores, pairs, len(classes)), classes)
    if not write.output(1):
        return
    if len(pairs) > 1:
        write("Identity", scores, out=write.output(1))
    else:
        write("Mul", scores, write.array(np.array([-1, 1], np.float32)), out=write.output(1))


def _spread_weights(
    weights: np.ndarray, sizes: np.ndarray, pairs: list[tuple[int, int]]
) -> np.ndarray:
    """The coefficient of each vector in each pair of classes, [vectors, pairs].

    A vector of a class has a coefficient against each other class, in their order.
    """
    starts = np.concatenate([[0], np.cumsum(sizes)])
    spread = np.zeros((weights.shape[1], len(pairs)), np.float32)
    for column, (one, other) in enumerate(pairs):
        mine, theirs = (slice(starts[at], starts[at + 1]) for at in (one, other))
        spread[mine, column] = weights[other - 1, mine]
        spread[theirs, column] = weights[one, theirs]
    return spread


def _count_votes(write: Writer, scores: str, pairs: list[tuple[int, int]], classes: int) -> str:
    """How many pairs each class wins: the first of two where the score is above zero."""
    won, lost = np.zeros((2, len(pairs), classes), np.float32)
    for row, (one, other) in enumerate(pairs):
        won[row, one], lost[row, other] = 1, 1
    above = write("Cast", write("Greater", scores, write.array(np.float32(0))), to=1)
    gained = write("MatMul", above, write.array(won - lost))
    return write("Add", gained, write.array(lost.sum(axis=0)))


SUPPORT_VECTORS: dict[str, Callable[[Writer], None]] = {
    "SVMClassifier": _svm_classifier,
    "SVMRegressor": _svm_regressor,
}
