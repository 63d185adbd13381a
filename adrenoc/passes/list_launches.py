"""Program -> what each launch computes, by the model's own names, with its work."""

from __future__ import annotations

from collections.abc import Mapping

from adrenoc.launches import LaunchInfo
from adrenoc.passes.lower import Program
from adrenoc.passes.measure_work import measure_work
from adrenoc.roofline import Roofline


def list_launches(
    program: Program,
    *,
    half: bool,
    roofline: Roofline,
    tensors: Mapping[str, str],
    nodes: Mapping[str, str],
) -> tuple[LaunchInfo, ...]:
    """The launches on the GPU, in order.

    `half` says that kernels compute in half precision; `tensors` maps names of the graph to the
    model's, `nodes` a tensor of the model to the node that makes it, where nodes have names.
    """
    works = measure_work(program, half=half)
    launches = []
    for node, step, work in zip(program.graph.nodes, program.steps, works, strict=True):
        if step.place != "gpu":
            continue
        tensor = tensors.get(node.name, node.name)
        floor_us = roofline.estimate(work.work).time_us
        launches.append(
            LaunchInfo(
                kernel=step.kernel,
                node=nodes.get(tensor) or tensor,
                flops=work.work.flops,
                bytes=work.work.bytes_read + work.work.bytes_written,
                floor_us=None if floor_us is None else round(floor_us, 3),
            )
        )
    return tuple(launches)
