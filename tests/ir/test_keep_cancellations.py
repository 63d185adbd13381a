"""Numbers that may be alike under weights that cancel stay in float32; others stay as they were."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from planning import plan

from tests.models import graph

_FEATURES = {"Exp": ["Neg", "Exp"], "Relu": ["Relu"], "Tanh": ["Tanh"], "Softmax": ["Softmax"]}
_WEIGHTS = np.random.default_rng(1).uniform(-1, 1, (64, 8)).astype(np.float32)


def _said(functions: list[str], weights: np.ndarray) -> list[str]:
    """The reasons of the rule for functions of numbers that are not negative, times weights."""
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["p"]),
        helper.make_node("Sigmoid", ["p"], ["f0"]),
        *(helper.make_node(f, [f"f{i}"], [f"f{i + 1}"]) for i, f in enumerate(functions)),
        helper.make_node("MatMul", [f"f{len(functions)}", "w"], ["y"]),
    ]
    constants = {"v": _WEIGHTS.T, "w": weights}
    state = plan(graph(nodes, {"x": [16, 8]}, ["y"], constants), until="keep_float32")
    return [d.reason for d in state.log if "where they are alike" in d.reason]


def _centre(weights: np.ndarray) -> np.ndarray:
    return (weights - weights.mean(axis=0)).astype(np.float32)


@pytest.mark.parametrize("features", _FEATURES)
def test_only_what_a_formula_keeps_above_zero(features: str) -> None:
    """Features that may be zero, or that sum to one, differ from each other."""
    assert bool(_said(_FEATURES[features], _centre(_WEIGHTS))) == (features == "Exp")


def test_weights_that_do_not_cancel() -> None:
    assert not _said(_FEATURES["Exp"], _WEIGHTS)


def test_one_result_of_many_that_cancels_by_chance() -> None:
    weights = _WEIGHTS.copy()
    weights[:, 3] = _centre(weights)[:, 3]
    assert not _said(_FEATURES["Exp"], weights)
