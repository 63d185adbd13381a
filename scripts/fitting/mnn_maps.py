"""What ours compute beside a layer and MNN in kernels of its own: functions, sums, copies.

MNN's convolutions for images add a bias and cut off below zero, or between zero and six.  A swish,
a GELU, any other function is a kernel that reads an image and writes another (`unary.cl`), and so
is each sum or product with a further tensor, as of residuals and of squeeze and excite
(`binary.cl`).  What a network hands out becomes floats in one more kernel.  To be rather too kind
to MNN: a chain of functions is one kernel of it, and small tensors are spread over large ones for
nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitting.mnn_kernels import LANES, Convolution, Launch, copy_ms, launch_ms

SWISH = "(convert_float4(in)*native_recip((float4)1+native_exp(convert_float4(-in))))"
"""MNN's text of its function that is used most."""
FUNCTIONS = frozenset(("sigmoid", "tanh", "erf", "exp", "log", "divide", "silu", "gelu"))
"""Operators that MNN's convolutions do not compute."""
STEPS = frozenset(("add", "subtract", "multiply", "divide", "maximum", "minimum"))
"""Operators that two tensors are joined by."""


@dataclass(frozen=True, kw_only=True)
class Beside:
    """What is computed beside one convolution: so many kernels of each kind, of so many texels."""

    pixels: int
    """Of the image that they write."""
    channels: int
    functions: int = 0
    joined: int = 0
    """Further tensors that its result, or what it reads, is added to or multiplied by."""
    handed_out: bool = False

    def ms(self, folder: Path, gpu: str, half: bool, estimator: Any) -> float:
        """Milliseconds of MNN's kernels for it."""
        texels = self.pixels * -(-self.channels // LANES)
        function = Launch(
            file="unary.cl",
            kernel="unary",
            threads=texels,
            trips=(),
            texels=2 * texels,
            defines=(f"OPERATOR={SWISH}",),
        )
        joining = Launch(
            file="binary.cl",
            kernel="binary",
            threads=texels,
            trips=(),
            texels=3 * texels,
            defines=("OPERATOR=in0+in1",),
        )
        found = 0.0
        if self.functions:
            found += self.functions * launch_ms(function, folder, gpu, half, estimator)
        if self.joined:
            found += self.joined * launch_ms(joining, folder, gpu, half, estimator)
        if self.handed_out:
            found += copy_ms(self.pixels, self.channels, half, estimator.GPUS[gpu])
        return found


def find_beside(
    graph: Any, known: Mapping[str, Convolution], program: Any
) -> dict[str, tuple[Beside, ...]]:
    """By convolution, what `program` computes in its kernel and `graph` has beside it.

    A map that the program has no kernel for is computed by what reads it.
    """
    computed = {name for node in program.graph.nodes for name in node.names}
    found: dict[str, list[Beside]] = defaultdict(list)
    for node in graph.nodes:
        if node.name in known:
            found[node.name].append(_count(graph, node))
        elif node.is_map and node.name not in computed:
            readers = [reader.name for reader in graph.consumers[node.output]]
            reader = next((name for name in readers if name in known), None)
            if reader is not None:
                found[reader].append(_count(graph, node))
    return {name: tuple(of_one) for name, of_one in found.items()}


def _count(graph: Any, node: Any) -> Beside:
    extents = graph.operand(node.output).extents
    body = node.body if node.is_map else node.epilogue
    read = set() if body is None else {*body.sources.values()} - {node.RESULT, node.BESIDE}
    tensors = sum(graph.tensors[name].value is None for name in read)
    joins = not STEPS.isdisjoint(node.operators)
    return Beside(
        pixels=extents.n * extents.h * extents.w,
        channels=extents.c,
        functions=not FUNCTIONS.isdisjoint(node.operators),
        joined=max(0, tensors - node.is_map) if joins else 0,
        handed_out=node.output in graph.output_names,
    )
