"""Ensembles of decision trees (domain ai.onnx.ml), as products of matrices.

All inner nodes of all trees are asked at once.  A leaf is reached where the answers on its way are
the ones that lead there: a product of the answers with a matrix of ways counts those, and equals
the number of yeses that the leaf wants, and only then.

Before -> after:
    y = TreeEnsembleRegressor(x)    asked = x[:, features] <= values       [trees, rows, nodes]
                                    reached = asked @ ways == wanted       [trees, rows, leaves]
                                    y = sum over trees of reached @ weights

Source: the reference of ONNX's ML operators; onnxruntime for scores of two classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from adrenoc.importers.onnx.classical import (
    list_attribute,
    read_classes,
    read_floats,
    transform_scores,
    write_labels,
)
from adrenoc.importers.onnx.writer import CannotWriteError, Writer

_MOST_WAYS = 2**24
"""The most numbers of the matrix of ways: 64 MiB, above which a tree is better walked down."""
_LEAF = "LEAF"
_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT")


@dataclass(frozen=True, kw_only=True)
class _Trees:
    """All trees, filled up to those with the most nodes and leaves.

    Shapes:
        features, values, tracks: [trees * nodes]
        ways: [trees, nodes, leaves], 1 where a leaf is on the yes side of a node, -1 on the other
        wanted: [trees, 1, leaves], how many yeses lead to a leaf
        places: (tree, node id) -> (tree, leaf)
    """

    mode: str
    features: np.ndarray
    values: np.ndarray
    tracks: np.ndarray
    ways: np.ndarray
    wanted: np.ndarray
    places: dict[tuple[int, int], tuple[int, int]]


def _read_trees(write: Writer) -> _Trees:
    names = ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")
    trees, ids, features, yes, no = (list_attribute(write, f"nodes_{n}", np.int64) for n in names)
    modes = [m.decode() if isinstance(m, bytes) else m for m in write.attrs["nodes_modes"]]
    values = list_attribute(write, "nodes_values")
    tracks = list_attribute(write, "nodes_missing_value_tracks_true", np.int64)
    asked = sorted({mode for mode in modes if mode != _LEAF})
    if len(asked) > 1 or not set(asked) <= set(_MODES):
        raise CannotWriteError(
            f"its nodes ask {', '.join(asked)}; expected one of {', '.join(_MODES)}"
        )
    row = {(t, i): n for n, (t, i) in enumerate(zip(trees.tolist(), ids.tolist(), strict=True))}
    found = [list(_walk(tree, row, modes, yes, no)) for tree in sorted(set(trees.tolist()))]
    nodes = [sorted({n for _, way in ways for n, _ in way}) for ways in found]
    most_nodes = max([1, *map(len, nodes)])
    most_leaves = max(map(len, found))
    count = len(found) * most_nodes * most_leaves
    if count > _MOST_WAYS:
        raise CannotWriteError(
            f"its {len(found)} trees have up to {most_leaves} leaves, a matrix of {count} ways; "
            f"expected {_MOST_WAYS} at most: train it with a smaller max_depth"
        )
    held = np.zeros((3, len(found), most_nodes), np.float32)
    ways = np.zeros((len(found), most_nodes, most_leaves), np.float32)
    wanted = np.full((len(found), 1, most_leaves), most_nodes + 1, np.float32)
    places = {}
    for tree, (leaves, inner) in enumerate(zip(found, nodes, strict=True)):
        at = {node: place for place, node in enumerate(inner)}
        for node, place in at.items():
            track = tracks[node] if tracks.size else 0
            held[:, tree, place] = features[node], values[node], track
        for leaf, (node, way) in enumerate(leaves):
            for passed, answer in way:
                ways[tree, at[passed], leaf] = 1 if answer else -1
            wanted[tree, 0, leaf] = sum(answer for _, answer in way)
            places[int(trees[node]), int(ids[node])] = (tree, leaf)
    return _Trees(
        mode=asked[0] if asked else "BRANCH_LEQ",
        features=held[0].reshape(-1).astype(np.int64),
        values=held[1].reshape(-1),
        tracks=held[2].reshape(-1) > 0,
        ways=ways,
        wanted=wanted,
        places=places,
    )


_Way = list[tuple[int, bool]]


def _walk(
    tree: int, row: dict[tuple[int, int], int], modes: list[str], yes: np.ndarray, no: np.ndarray
) -> Iterator[tuple[int, _Way]]:
    """The leaves of a tree, each with the nodes on its way and their answers.

    Raises:
        CannotWriteError: it is no tree.
    """
    first = min(node for (t, _), node in row.items() if t == tree)
    left: list[tuple[int, _Way]] = [(first, [])]
    while left:
        node, way = left.pop()
        if len(way) > len(row):
            raise CannotWriteError(f"the nodes of its tree {tree} lead round in a circle")
        if modes[node] == _LEAF:
            yield node, way
            continue
        for answer, there in ((False, no), (True, yes)):
            following = row.get((tree, int(there[node])))
            if following is None:
                raise CannotWriteError(f"its tree {tree} lacks node {int(there[node])}")
            left.append((following, [*way, (node, answer)]))


def _sum_leaves(write: Writer, trees: _Trees, weights: np.ndarray) -> str:
    """The weights [trees, leaves, targets] of the leaves that each row reaches, added up."""
    x = read_floats(write)
    rows = write.shape(write.input(0))[0]
    count, nodes, _ = trees.ways.shape
    seen = write("Gather", x, write.array(trees.features), axis=1)
    asked = write.reshape(write("Cast", _ask(write, trees, seen), to=1), rows, count, nodes)
    yeses = write("MatMul", write("Transpose", asked, perm=[1, 0, 2]), write.array(trees.ways))
    # None has more than it wants.  Floats are compared for equality from opset 11 on alone.
    reached = write("Greater", yeses, write.array(trees.wanted - np.float32(0.5)))
    reached = write("Cast", reached, to=1)
    return write.total(write("MatMul", reached, write.array(weights)), 0)


def _ask(write: Writer, trees: _Trees, seen: str) -> str:
    """The answers of all nodes; what is no number gets a no, or what its node says of it."""
    values = write.array(trees.values)
    bounds = (write.array(np.float32(v)) for v in (-1, 1))
    either = (write(op, seen, bound) for op, bound in zip(("Greater", "Less"), bounds, strict=True))
    is_number = write("Or", *either)
    if trees.mode in ("BRANCH_LT", "BRANCH_GT"):
        answers = write("Less" if trees.mode == "BRANCH_LT" else "Greater", seen, values)
    else:
        other = write("Greater" if trees.mode == "BRANCH_LEQ" else "Less", seen, values)
        answers = write("And", write("Not", other), is_number)
    if not trees.tracks.any():
        return answers
    missing = write("And", write("Not", is_number), write.array(trees.tracks))
    return write("Or", answers, missing)


def _read_weights(write: Writer, trees: _Trees, kind: str, targets: int) -> np.ndarray:
    at, node, target = (
        list_attribute(write, f"{kind}_{name}", np.int64) for name in ("treeids", "nodeids", "ids")
    )
    made = np.zeros((trees.ways.shape[0], trees.ways.shape[2], targets), np.float32)
    for one in zip(at, node, target, list_attribute(write, f"{kind}_weights"), strict=True):
        tree, leaf = trees.places[int(one[0]), int(one[1])]
        made[tree, leaf, int(one[2])] += one[3]
    return made


def _regressor(write: Writer) -> None:
    trees, targets = _read_trees(write), int(write.number("n_targets", 1))
    weights = _read_weights(write, trees, "target", targets)
    aggregate = write.text("aggregate_function", "SUM")
    if aggregate not in ("SUM", "AVERAGE"):
        raise CannotWriteError(f"aggregate_function {aggregate} is none of SUM and AVERAGE")
    if aggregate == "AVERAGE":
        weights /= weights.shape[0]
    total = _sum_leaves(write, trees, weights)
    base = list_attribute(write, "base_values")
    if base.size:
        total = write("Add", total, write.array(base))
    transform_scores(write, total, write.result)


def _classifier(write: Writer) -> None:
    classes, trees = read_classes(write), _read_trees(write)
    ids = set(list_attribute(write, "class_ids", np.int64).tolist())
    if len(classes) == 2 and ids != {0}:
        raise CannotWriteError("both of its two classes have scores: onnxruntime reads one alone")
    count = len(classes) if len(classes) > 2 else 1
    scores = _sum_leaves(write, trees, _read_weights(write, trees, "class", count))
    base = list_attribute(write, "base_values")
    if base.size:
        scores = write("Add", scores, write.array(base))
    if count == 1:
        _classify_by_one(write, scores, classes)
        return
    write_labels(write, scores, classes)
    transform_scores(write, scores, write.output(1))


def _classify_by_one(write: Writer, score: str, classes: np.ndarray) -> None:
    """Two classes of which one has scores: probabilities, or sums that are above zero or below."""
    are_shares = bool((list_attribute(write, "class_weights") >= 0).all())
    bound = write.array(np.float32(0.5 if are_shares else 0.0))
    above = write.reshape(write("Cast", write("Greater", score, bound), to=7), -1)
    write("Gather", write.array(classes), above, out=write.result, axis=0)
    is_logistic = write.text("post_transform", "NONE") == "LOGISTIC"
    if are_shares and not is_logistic:
        other = write("Sub", write.array(np.float32(1)), score)
        write("Concat", other, score, out=write.output(1), axis=1)
        return
    both = write("Concat", write("Neg", score), score, axis=1)
    write("Sigmoid" if is_logistic else "Identity", both, out=write.output(1))


TREES: dict[str, Callable[[Writer], None]] = {
    "TreeEnsembleClassifier": _classifier,
    "TreeEnsembleRegressor": _regressor,
}
