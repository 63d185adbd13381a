"""Operators of onnxruntime's domain compute what onnxruntime computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.ir.import_and_run import check

RANDOM = np.random.default_rng(0)

# Operator -> shape of x, constant operands, attributes
CASES = {
    "BiasGelu": ((2, 5, 7), [(7,)], {}),
    "FastGelu": ((2, 5, 7), [(7,)], {}),
    "FusedConv": ((1, 3, 6, 5), [(4, 3, 3, 3), (4,)], {"activation": "Relu"}),
    "Gelu": ((2, 5, 7), [], {}),
    "QuickGelu": ((2, 5, 7), [], {"alpha": 1.5}),
    "SkipLayerNormalization": ((2, 5, 7), [(2, 5, 7), (7,), (7,), (7,)], {"epsilon": 1e-5}),
}


@pytest.mark.parametrize("name", CASES)
def test_contrib_operator(name: str, tmp_path: Path) -> None:
    shape, constants, attrs = CASES[name]
    operands = [f"k{i}" for i in range(len(constants))]
    graph = helper.make_graph(
        [helper.make_node(name, ["x", *operands], ["y"], domain="com.microsoft", **attrs)],
        "contrib",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(RANDOM.uniform(-1, 1, s).astype(np.float32), k)
            for k, s in zip(operands, constants, strict=True)
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 9
    onnx.save(model, tmp_path / "contrib.onnx")
    imported, _ = check(tmp_path / "contrib.onnx")
    assert any(d.subject == f"com.microsoft.{name}" for d in imported.decisions)
