"""Doubles that scale and round to whole numbers are computed in single precision."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper

from adrenoc.importers.relax.values import dtype_of
from adrenoc.passes.rewrites.simplify import simplify
from tests.ir.import_and_run import check
from tests.models import graph, parse_nodes, write

node = helper.make_node
DOUBLE, FLOAT = onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT
HELD = {
    "m": np.array(1234567890.0),
    "e": np.array(2.0**33),
    "by_row": np.array([[3.0], [5.0]]),
    "shift": np.array(-7.0),
    "third": np.array(1 / 3),
}


def doubles(module: tvm.IRModule) -> int:
    """How many bindings of the main function are in double."""
    (block,) = module["main"].body.blocks
    return sum(dtype_of(binding.var) == "float64" for binding in block.bindings)


def imported(folder: Path, nodes: list[onnx.NodeProto], *outputs: str) -> tvm.IRModule:
    """The module, which is held against onnxruntime."""
    begin = [node("Cast", ["x"], ["d"], to=DOUBLE), node("Cast", ["z"], ["f"], to=DOUBLE)]
    model = graph([*begin, *nodes], {"x": (2, 5), "z": (2, 5)}, list(outputs), HELD)
    found, module = check(write(model, folder))
    told = any("in double computed in float32" in d.taken for d in simplify(found.module)[1])
    assert told == (doubles(module) == 0)
    return module


SCALED = parse_nodes("a = Mul(d, m) b = Div(a, e) r = Round(b)")
NARROW = {
    "a factor of two constants": [*SCALED, node("Cast", ["r"], ["y"], to=FLOAT)],
    "a factor by row": [
        *SCALED,
        node("Mul", ["r", "by_row"], ["c"]),
        node("Round", ["c"], ["s"]),
        node("Cast", ["s"], ["y"], to=FLOAT),
    ],
    "a sum of whole numbers": [
        *SCALED,
        node("Round", ["f"], ["t"]),
        node("Add", ["r", "t"], ["u"]),
        node("Cast", ["u"], ["y"], to=FLOAT),
    ],
    "a product of a sum with a constant": [
        node("Add", ["f", "shift"], ["g"]),
        node("Mul", ["d", "g"], ["h"]),
        node("Round", ["h"], ["i"]),
        node("Cast", ["i"], ["y"], to=FLOAT),
    ],
}


@pytest.mark.parametrize("name", NARROW)
def test_what_is_rounded_needs_no_doubles(tmp_path, name):
    assert doubles(imported(tmp_path, NARROW[name], "y")) == 0


WIDE = {
    "what is not rounded": [node("Mul", ["d", "m"], ["a"]), node("Cast", ["a"], ["y"], to=FLOAT)],
    "a difference of products": [
        node("Mul", ["d", "third"], ["a"]),
        node("Mul", ["f", "third"], ["b"]),
        node("Sub", ["a", "b"], ["c"]),
        node("Round", ["c"], ["r"]),
        node("Cast", ["r"], ["y"], to=FLOAT),
    ],
    "a constant of more digits in a sum": [
        node("Add", ["d", "third"], ["c"]),
        node("Round", ["c"], ["r"]),
        node("Cast", ["r"], ["y"], to=FLOAT),
    ],
    "what is read in double, too": [
        *SCALED,
        node("Sin", ["b"], ["s"]),
        node("Add", ["r", "s"], ["t"]),
        node("Cast", ["t"], ["y"], to=FLOAT),
    ],
    "an output in double": [*SCALED, node("Identity", ["r"], ["y"])],
}


@pytest.mark.parametrize("name", WIDE)
def test_other_doubles_stay(tmp_path, name):
    assert doubles(imported(tmp_path, WIDE[name], "y")) > 0
