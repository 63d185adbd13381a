"""Small ONNX models, an operator at a time: `net("Relu", x)` adds one and gives its output.

Inputs and weights are seeded by the case that they are of, and are numbers that a half holds
exactly, so that what a case gives does not depend on which others stand beside it.
"""

import zlib
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSET, IR_VERSION = 18, 8
CONTRIB = "com.microsoft"
"""The domain of onnxruntime's own operators."""
STEPS = 64
"""The steps in one: data are multiples of 1 / STEPS, from -1 to 1."""


class Net:
    """Operators of several cases; `begin` starts the next one."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(0)
        self._prefix = ""
        self._count = 0
        self.inputs: dict[str, np.ndarray] = {}
        self.outputs: list[str] = []
        self.of_case: dict[str, str] = {}
        """Output -> the case that gives it."""

    def begin(self, case: str) -> None:
        """Begin a case: what is added from now on is of it."""
        self._prefix, self._count, self._case = _identifier(case), 0, case
        self._random = np.random.default_rng(zlib.crc32(case.encode()))

    def input(self, *shape: int) -> str:
        """Return an input with random data of this shape."""
        return self.feed(self.values(*shape))

    def feed(self, values: np.ndarray) -> str:
        """Return an input with these values."""
        name = self._name("x")
        self.inputs[name] = np.ascontiguousarray(values, np.float32)
        return name

    def values(self, *shape: int) -> np.ndarray:
        """Draw numbers of this shape that a half holds exactly."""
        return self._random.integers(-STEPS, STEPS + 1, shape).astype(np.float32) / STEPS

    def weight(self, *shape: int, around: float = 0.0, terms: int = 1) -> str:
        """Return a constant of random data; of `terms` products a sum stays about one."""
        scale = 2.0 ** -round(np.log2(max(terms, 1)) / 2)
        return self.const(np.asarray(self.values(*shape) * scale + around, np.float16))

    def const(self, value: Any, dtype: Any = np.float32) -> str:
        """Return a constant of this value."""
        name = self._name("k")
        self._constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def whole(self, shape: tuple[int, ...], count: int) -> str:
        """Return a constant of random whole numbers below `count`, as bytes."""
        return self.const(self._random.integers(0, count, shape), np.uint8)

    def ints(self, *values: int) -> str:
        """Return a constant vector of int64: axes, shapes, pads."""
        return self.const(values, np.int64)

    def __call__(self, op: str, *inputs: str, **attrs: Any) -> str:
        """Add an operator; its only output."""
        name = self._name("t")
        self._nodes.append(helper.make_node(op, list(inputs), [name], **attrs))
        return name

    def several(self, op: str, inputs: list[str], outputs: int, **attrs: Any) -> list[str]:
        """Add an operator of several outputs."""
        names = [self._name("t") for _ in range(outputs)]
        self._nodes.append(helper.make_node(op, inputs, names, **attrs))
        return names

    def conv(
        self, x: str, channels: int, out: int, kernel: int | tuple[int, ...], **attrs: Any
    ) -> str:
        """Return a convolution with a bias; `group` and others as ONNX has them."""
        sides = (kernel, kernel) if isinstance(kernel, int) else kernel
        of_group = channels // attrs.get("group", 1)
        terms = of_group * int(np.prod(sides))
        weight = self.weight(out, of_group, *sides, terms=terms)
        return self("Conv", x, weight, self.weight(out), **attrs)

    def output(self, name: str) -> None:
        """Make a tensor an output of its case."""
        self.outputs.append(name)
        self.of_case[name] = self._case

    def model(self) -> bytes:
        """Return the ONNX file."""
        given = [
            helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, value.shape)
            for name, value in self.inputs.items()
        ]
        made = [
            helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
            for name in self.outputs
        ]
        graph = helper.make_graph(self._nodes, "suite", given, made, self._constants)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)],
            ir_version=IR_VERSION,
        )
        plain: bytes = onnx.shape_inference.infer_shapes(model).SerializeToString(
            deterministic=True
        )
        return plain

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{self._prefix}_{kind}{self._count}"


def _identifier(text: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in text)
