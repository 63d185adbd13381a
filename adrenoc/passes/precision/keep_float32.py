"""Keep in float32 the tensors that have no licence for half (`licence.py`), and what is small."""

from __future__ import annotations

from adrenoc.ir.graph import Graph
from adrenoc.ir.half import HALF_NORMAL, HALF_TINY
from adrenoc.kernels.families.operators import is_product
from adrenoc.passes.context import Context
from adrenoc.passes.precision.analysis import Analysis
from adrenoc.passes.precision.dynamic_quanta import led_by
from adrenoc.passes.precision.fine_maps import find_fine_maps
from adrenoc.passes.precision.licence import find_unlicensed
from adrenoc.passes.precision.small_halves import SHARE, find_small
from adrenoc.target.avoid import HALF_DENORMALS

_COLOURS, _SIDE = 3, 16
"""A picture has so many channels, and at least so many pixels each way."""


def keep_float32(graph: Graph, context: Context) -> Graph:
    """Mark the tensors without a licence; each that has a reason of its own is a Decision."""
    least = HALF_NORMAL if context.avoids(HALF_DENORMALS) else HALF_TINY
    refused = find_unlicensed(Analysis(graph), least_half=least)
    if context.options.compute_dtype == "float16":
        for name in _find_pictures(graph):
            refused.pop(name, None)
            why = "a picture: its numbers are taken to be those of 8 bits, at most 255"
            context.log.add(name, "float16 arithmetic", why)
    else:
        fine = find_fine_maps(graph)
        sources = led_by(graph, fine, rounded=(), ranges={})
        if fine:
            why = (
                "it is as fine as the picture and computed of far fewer places: at single ones on "
                "an edge it may make of halves' roundings more than a hundredth of its range"
            )
            context.log.add(fine[-1], f"float32, with {len(sources)} tensors and constants", why)
        refused |= dict.fromkeys(sources, "")
        small = find_small(graph, graph.float32_names.union(refused))
        if small:
            why = f"halves of what takes {SHARE:.0%} of them save next to nothing"
            context.log.add(f"the {len(small)} smallest tensors and constants", "float32", why)
        refused |= dict.fromkeys(small, "")
    kept = graph.float32_names
    for name, reason in refused.items():
        if reason and name not in kept:
            context.log.add(name, "float32", reason)
    return graph.change_precision(refused, float32=True)


def _find_pictures(graph: Graph) -> list[str]:
    """The inputs that are pictures by their extents, and that products alone read."""
    return [
        name
        for name in graph.inputs
        if _is_picture(graph.tensors[name].shape)
        and all(is_product(reader) for reader in graph.consumers[name])
    ]


def _is_picture(shape: tuple[int, ...]) -> bool:
    colours_and_sides = (shape[1:2] + shape[2:], shape[3:] + shape[1:3])
    return len(shape) == 4 and any(
        channels == _COLOURS and min(sides) >= _SIDE for channels, *sides in colours_and_sides
    )
