"""Pipelines of scikit-learn, support vectors and ensembles of trees beside onnxruntime."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from adrenoc.errors import CustomDomainError
from adrenoc.importers import import_model
from tests.ir.import_and_run import check

_RNG = np.random.default_rng(7)
ROWS, FEATURES = 40, 5


def floats(*shape: int) -> list[float]:
    return [float(v) for v in _RNG.standard_normal(shape).reshape(-1).astype(np.float32)]


def grow(kind: str, targets: list[int], *, count: int, mode: str, **more: Any) -> dict[str, Any]:
    """The attributes of `count` trees, the first a leaf alone; weights by leaf and target."""
    nodes: dict[str, list[Any]] = {
        name: []
        for name in (
            *("treeids", "nodeids", "featureids", "modes", "values"),
            *("truenodeids", "falsenodeids", "missing_value_tracks_true"),
        )
    }
    leaves: dict[str, list[Any]] = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(count):
        inner = 0 if tree == 0 else int(_RNG.integers(1, 6))
        for node in range(2 * inner + 1):
            is_leaf = node >= inner
            value = 0.0 if is_leaf else float(np.float32(_RNG.integers(-3, 4) / 4))
            for name, one in (
                ("treeids", tree),
                ("nodeids", node),
                ("featureids", 0 if is_leaf else int(_RNG.integers(FEATURES))),
                ("modes", "LEAF" if is_leaf else mode),
                ("values", value),
                ("truenodeids", 0 if is_leaf else 2 * node + 1),
                ("falsenodeids", 0 if is_leaf else 2 * node + 2),
                ("missing_value_tracks_true", int(_RNG.integers(2))),
            ):
                nodes[name].append(one)
            for target in targets if is_leaf else ():
                leaves["treeids"].append(tree)
                leaves["nodeids"].append(node)
                leaves["ids"].append(target)
                leaves["weights"].append(floats(1)[0])
    return {
        **{f"nodes_{name}": values for name, values in nodes.items()},
        **{f"{kind}_{name}": values for name, values in leaves.items()},
        **more,
    }


def share(attrs: dict[str, Any]) -> dict[str, Any]:
    """The same with weights that are probabilities."""
    weights = np.abs(attrs["class_weights"]) / np.sum(np.abs(attrs["class_weights"])) * 8
    return {**attrs, "class_weights": [float(w) for w in weights]}


@dataclass(frozen=True, kw_only=True)
class Case:
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: tuple[int, ...] = (TensorProto.FLOAT,)
    dtype: int = TensorProto.FLOAT
    more: tuple[np.ndarray, ...] = ()
    opset: int = 15


def lay_vectors(kind: str, sizes: list[int], **more: Any) -> dict[str, Any]:
    """The attributes of support vectors, with a coefficient each against each other class."""
    count, others = sum(sizes), max(1, len(sizes) - 1)
    return {
        "kernel_type": kind,
        "kernel_params": [0.25, 0.5, 3.0],
        "support_vectors": floats(count, FEATURES),
        "coefficients": floats(others, count),
        "rho": floats(len(sizes) * (len(sizes) - 1) // 2 or 1),
        **({"vectors_per_class": sizes} if len(sizes) > 1 else {"n_supports": count}),
        **more,
    }


LABELLED = (TensorProto.INT64, TensorProto.FLOAT)
_LINEAR = {"coefficients": floats(3, FEATURES), "intercepts": floats(3)}
CASES = {
    "ArrayFeatureExtractor": Case(more=(np.array([[4, 0, 0]]),)),
    "Binarizer": Case(attrs={"threshold": 0.25}),
    "Imputer": Case(attrs={"imputed_value_floats": floats(FEATURES), "replaced_value_float": 0.0}),
    "LabelEncoder": Case(
        attrs={"keys_int64s": [1, 0, 1, -1], "values_int64s": [30, 10, 5, 20], "default_int64": 7},
        outputs=(TensorProto.INT64,),
        dtype=TensorProto.INT64,
    ),
    "LabelEncoder to floats": Case(
        attrs={"keys_int64s": [1, 0], "values_floats": [0.5, 1.5], "default_float": -2.0},
        dtype=TensorProto.INT64,
    ),
    "LinearClassifier": Case(
        attrs={**_LINEAR, "classlabels_ints": [4, 9, 2], "post_transform": "SOFTMAX"},
        outputs=LABELLED,
    ),
    "LinearClassifier each": Case(
        attrs={**_LINEAR, "classlabels_ints": [0, 1, 2], "post_transform": "LOGISTIC"},
        outputs=LABELLED,
    ),
    "LinearRegressor": Case(attrs={**_LINEAR, "targets": 3}),
    "Normalizer L1": Case(attrs={"norm": "L1"}),
    "Normalizer L2": Case(attrs={"norm": "L2"}),
    "Normalizer MAX": Case(attrs={"norm": "MAX"}, opset=18),
    "OneHotEncoder": Case(attrs={"cats_int64s": [1, 0, 3]}, dtype=TensorProto.INT64),
    "OneHotEncoder of floats": Case(attrs={"cats_int64s": [0, 1], "zeros": 1}),
    "SVMClassifier": Case(
        attrs=lay_vectors("RBF", [4, 6, 3], classlabels_ints=[2, 0, 9]), outputs=LABELLED
    ),
    "SVMClassifier of four": Case(
        attrs=lay_vectors("SIGMOID", [4, 6, 3, 5], classlabels_ints=[0, 1, 2, 3]), outputs=LABELLED
    ),
    "SVMClassifier of two": Case(
        attrs=lay_vectors("POLY", [5, 4], classlabels_ints=[0, 1]), outputs=LABELLED
    ),
    "SVMRegressor": Case(attrs=lay_vectors("RBF", [9])),
    "SVMRegressor linear": Case(attrs=lay_vectors("LINEAR", [9])),
    "SVMRegressor of one class": Case(attrs=lay_vectors("POLY", [9], one_class=1)),
    "Scaler": Case(attrs={"offset": floats(FEATURES), "scale": floats(FEATURES)}),
    "Scaler of integers": Case(attrs={"offset": [1.5], "scale": [0.5]}, dtype=TensorProto.INT64),
    "TreeEnsembleRegressor": Case(
        attrs=grow("target", [0], count=9, mode="BRANCH_LEQ", base_values=[0.5], n_targets=1)
    ),
    "TreeEnsembleRegressor old": Case(
        attrs=grow("target", [0, 2], count=4, mode="BRANCH_LT", n_targets=3), opset=8
    ),
    "TreeEnsembleRegressor mean": Case(
        attrs=grow(
            "target", [0], count=6, mode="BRANCH_GTE", aggregate_function="AVERAGE", n_targets=1
        )
    ),
    "TreeEnsembleClassifier": Case(
        attrs=grow(
            *("class", [0, 1, 2]),
            count=5,
            mode="BRANCH_GT",
            classlabels_int64s=[3, 5, 7],
            post_transform="SOFTMAX",
        ),
        outputs=LABELLED,
    ),
    "TreeEnsembleClassifier of two": Case(
        attrs=grow(
            *("class", [0]),
            count=5,
            mode="BRANCH_LEQ",
            classlabels_int64s=[0, 1],
            post_transform="LOGISTIC",
            base_values=[0.125],
        ),
        outputs=LABELLED,
    ),
    "TreeEnsembleClassifier of logits": Case(
        attrs=share(
            grow(
                "class",
                [0],
                count=5,
                mode="BRANCH_LEQ",
                classlabels_int64s=[3, 8],
                post_transform="LOGISTIC",
            )
        ),
        outputs=LABELLED,
    ),
    "TreeEnsembleClassifier of shares": Case(
        attrs=share(grow("class", [0], count=5, mode="BRANCH_LEQ", classlabels_int64s=[0, 1])),
        outputs=LABELLED,
    ),
}


def save(name: str, case: Case, path: Path) -> Path:
    operator = name.split(maxsplit=1)[0]
    more = [f"k{place}" for place in range(len(case.more))]
    outputs = ["label", "scores"] if len(case.outputs) == 2 else ["y"]
    graph = helper.make_graph(
        [helper.make_node(operator, ["x", *more], outputs, domain="ai.onnx.ml", **case.attrs)],
        "classical",
        [helper.make_tensor_value_info("x", case.dtype, (ROWS, FEATURES))],
        [
            helper.make_tensor_value_info(output, element, None)
            for output, element in zip(outputs, case.outputs, strict=True)
        ],
        [onnx.numpy_helper.from_array(v, k) for k, v in zip(more, case.more, strict=True)],
    )
    opsets = [helper.make_opsetid("", case.opset), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


@pytest.mark.parametrize("name", CASES)
def test_classical_operator(name: str, tmp_path: Path) -> None:
    imported, _ = check(save(name, CASES[name], tmp_path / "classical.onnx"), tolerance=1e-5)
    subject = f"ai.onnx.ml.{name.split(maxsplit=1)[0]}"
    assert any(d.subject == subject for d in imported.decisions)


@pytest.mark.parametrize(
    ("name", "case", "why"),
    (
        ("ZipMap", Case(attrs={"classlabels_int64s": [0, 1]}), "zipmap"),
        (
            "LinearClassifier",
            Case(attrs={**_LINEAR, "classlabels_strings": ["a", "b", "c"]}, outputs=LABELLED),
            "classes are words",
        ),
        ("OneHotEncoder", Case(attrs={"cats_strings": ["a"]}), "categories are words"),
        (
            "LabelEncoder",
            Case(attrs={"keys_strings": ["a"], "values_floats": [1.0]}),
            "keys are words",
        ),
        (
            "SVMClassifier",
            Case(
                attrs=lay_vectors("RBF", [4, 5], classlabels_ints=[0], prob_a=[1.0], prob_b=[0.0]),
                outputs=LABELLED,
            ),
            "probability=False",
        ),
        ("SVMRegressor", Case(attrs=lay_vectors("RBF", [9], n_supports=8)), "8 support vectors"),
        (
            "TreeEnsembleClassifier",
            Case(
                attrs=grow("class", [0, 1], count=3, mode="BRANCH_LT", classlabels_int64s=[0, 1]),
                outputs=LABELLED,
            ),
            "both of its two classes",
        ),
        (
            "TreeEnsembleRegressor",
            Case(attrs=grow("target", [0], count=3, mode="BRANCH_EQ")),
            "BRANCH_EQ",
        ),
    ),
)
def test_refusals_say_why(name: str, case: Case, why: str, tmp_path: Path) -> None:
    path = save(name, case, tmp_path / "classical.onnx")
    with pytest.raises(CustomDomainError, match=rf"ai.onnx.ml.{name} \(1x\).*{why}"):
        import_model(path, shapes={})
