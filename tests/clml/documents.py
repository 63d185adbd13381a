"""Graphs as a test writes them down: nodes with shapes and attributes, by hand.

The attributes are those that TVM's code generator writes (0.27), or that its v0.18 wrote.
"""

from dataclasses import dataclass, field
from typing import Any

from tests.clml.regions import Make, Shape, module_of


@dataclass(frozen=True, kw_only=True)
class Case:
    """One function and the nodes that it becomes.

    `row` is the one of the table that finds it.  `by_tvm`: the partition that TVM 0.27 ships gives
    the same nodes.
    """

    name: str
    row: str
    make: Make
    inputs: tuple[Shape, ...]
    nodes: tuple[Any, ...] = field(repr=False)
    by_tvm: bool = False

    def module(self, dtype: str = "float32"):
        return module_of(self.make, *self.inputs, dtype=dtype)


def inp(*shape: int) -> tuple[str, Shape]:
    return ("input", shape)


def const(*shape: int) -> tuple[str, Shape]:
    return ("const", shape)


def op(name: str, inputs: list[int], shape: Shape, **attrs) -> tuple[Any, ...]:
    """An operator that reads the nodes of these indices."""
    return ("kernel", name, inputs, shape, attrs)


def one(
    name: str,
    row: str,
    make: Make,
    inputs: tuple[Shape, ...],
    kernel: str,
    out: Shape = (),
    *,
    constants: tuple[Shape, ...] = (),
    by_tvm: bool = False,
    **attrs,
) -> Case:
    """A case of one operator that reads all inputs and then all constants.

    `out` is the result's shape where it is not that of the first input.
    """
    leaves = (*(inp(*s) for s in inputs), *(const(*s) for s in constants))
    node = op(kernel, list(range(len(leaves))), out or inputs[0], **attrs)
    return Case(name=name, row=row, make=make, inputs=inputs, nodes=(*leaves, node), by_tvm=by_tvm)


def expected_nodes(case: Case, dtype: str) -> list[dict[str, Any]]:
    """The nodes of a case as JSON, names of inputs and constants left out."""
    made = []
    for entry in case.nodes:
        if entry[0] != "kernel":
            attrs: dict[str, Any] = {"shape": [list(entry[1])], "dtype": [dtype]}
            made.append({"op": entry[0], "name": "", "attrs": attrs})
            continue
        _, name, inputs, shape, extra = entry
        facts = {"num_inputs": len(inputs), "num_outputs": 1, **extra}
        made.append(
            {
                "op": "kernel",
                "name": name,
                "inputs": [[index, 0, 0] for index in inputs],
                "attrs": {"shape": [list(shape)], "dtype": [dtype], **facts},
            }
        )
    return made


def conv_attrs(**changes) -> dict[str, Any]:
    return {
        "strides": [1, 1],
        "padding": [1, 1, 1, 1],
        "dilation": [1, 1],
        "groups": 1,
        "data_layout": "NCHW",
        "kernel_layout": "OIHW",
        "out_layout": "NCHW",
        "out_dtype": "",
        **changes,
    }


def pool_attrs(**changes) -> dict[str, Any]:
    return {
        "pool_size": [3, 3],
        "strides": [2, 2],
        "dilation": [1, 1],
        "padding": [0, 0, 0, 0],
        "ceil_mode": 0,
        "count_include_pad": 0,
        "layout": "NCHW",
        "out_layout": "NCHW",
        **changes,
    }


def norm_attrs(epsilon: float, training: int = 0) -> dict[str, Any]:
    shared = {"axis": 1, "momentum": 0.1, "center": 1, "scale": 1}
    return {**shared, "epsilon": epsilon, "training": training}
