"""Cases that are one ONNX graph, to be checked."""

from collections.abc import Callable
from pathlib import Path

import onnx
from onnx import helper

from tests.hostile.case import ENDED, Case
from tests.models import graph

X = {"x": (1, 4, 8, 8)}


def make_model(nodes: list[onnx.NodeProto], **more) -> onnx.ModelProto:
    """A model whose output is y; its input is `X` unless `inputs` says otherwise."""
    return graph(nodes, more.pop("inputs", X), ["y"], more.pop("constants", None), **more)


def make_node(kind: str, inputs: list[str], **attributes) -> onnx.NodeProto:
    """A node that makes the output."""
    return helper.make_node(kind, inputs, ["y"], **attributes)


def make_case(
    family: str, name: str, model: onnx.ModelProto | Callable[[], onnx.ModelProto]
) -> Case:
    """Whatever the graph is, or what makes it, it ends in a result or a typed error."""

    def write(folder: Path) -> None:
        made = model() if callable(model) else model
        (folder / "m.onnx").write_bytes(made.SerializeToString())

    return Case(family=family, name=name, make=write, command=("check", "m.onnx"), codes=ENDED)
