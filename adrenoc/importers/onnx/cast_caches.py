"""Keep caches as attention reads them, where a decoder's inputs and outputs are of another type.

Before -> after:
    Cast(past) -> attention -> Cast to present      past and present of attention's own type

onnxruntime's converter to halves writes such models (`keep_io_types`).  What a cast to more bits
gives is what the cast back takes, so caches hold the same numbers.
"""

from collections.abc import Sequence
from dataclasses import replace

from adrenoc.importers.onnx.graph import OnnxGraph


def drop_casts(graph: OnnxGraph, kept: Sequence[tuple[str, str]]) -> None:
    """Change `graph` in place; `kept` are pairs of an input and the output that it is next."""
    makers, readers = graph.makers(), graph.readers()
    renamed: dict[str, str] = {}
    own: dict[str, int] = {}
    for past, present in kept:
        reading, making = readers.get(past, []), makers.get(present)
        if making is None or not reading or {n.op_type for n in (*reading, making)} != {"Cast"}:
            continue
        (element, *others) = {node.attribute[0].i for node in reading}
        made = graph.types.get(making.input[0])
        if others or (made is not None and made.element != element):
            continue
        renamed |= {node.output[0]: past for node in reading} | {making.input[0]: present}
        own |= {past: element, present: element}
    if not own:
        return
    gone = {*renamed, *own}
    graph.nodes = [
        node
        for node in graph.nodes
        if not (node.op_type == "Cast" and node.input[0] in gone and node.output[0] in gone)
    ]
    for node in graph.nodes:
        for names in (node.input, node.output):
            names[:] = [renamed.get(name, name) for name in names]
    graph.types |= {
        name: replace(known, element=own[name])
        for name, known in graph.types.items()
        if name in own
    }
    graph.inputs = [
        replace(spec, dtype=graph.types[spec.name].dtype) if spec.name in own else spec
        for spec in graph.inputs
    ]
    graph.log.add(
        f"{len(own)} casts around states",
        "left out",
        "the model's inputs and outputs have another type than what reads and makes them",
    )
