"""Program -> what each launch computes, by the model's own names, with its work."""

from __future__ import annotations

from collections.abc import Callable

from adrenoc.bundle.launches import LaunchInfo
from adrenoc.ir.program import Program
from adrenoc.passes.lower.measure_work import measure_work
from adrenoc.target.roofline import Roofline


def list_launches(
    program: Program,
    *,
    half: bool,
    roofline: Roofline,
    node_of: Callable[[str], str],
) -> tuple[LaunchInfo, ...]:
    """Return the launches on the GPU, in order.

    `half` says that kernels compute in half precision; `node_of` gives the model's node
    behind a node of the graph, or an empty string.
    """
    works = measure_work(program, half=half)
    launches = []
    for node, step, work in zip(program.graph.nodes, program.steps, works, strict=True):
        if step.place != "gpu":
            continue
        floor_us = roofline.estimate(work.work).time_us
        launches.append(
            LaunchInfo(
                kernel=step.kernel,
                node=" + ".join(node_of(name) or name for name in node.names),
                flops=work.work.flops,
                bytes=work.work.bytes_read + work.work.bytes_written,
                floor_us=None if floor_us is None else round(floor_us, 3),
                tensors=tuple(node.names),
            )
        )
    return tuple(launches)
