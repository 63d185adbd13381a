"""Put a copy wherever a tensor crosses between textures and what cannot read them: CPU, or CLML.

Before -> after:
    x -> cpu[cumsum] -> y -> relu       x -> to_cpu -> cpu[cumsum] -> y -> to_gpu -> relu
    y -> relu, y -> clml[conv2d]        y -> relu, y -> layout -> y_rows -> clml[conv2d]

A region of CLML reads row-major memory.  What only regions read is written so by its producer; what
other kernels read as well stays in a texture, and the region gets a copy.  Memory that is a buffer
and an image at once (cl_khr_image2d_from_buffer) would need no copy, but such an image is an
`image2d_t` alone, and the kernels that TVM's code generator prints read and write
`image2d_array_t`.
"""

from __future__ import annotations

from dataclasses import replace

from adrenoc.ir.graph import Graph, Node, Tensor
from adrenoc.ir.node_kinds import ALLOC, CLML, CPU, TO_CPU, TO_GPU
from adrenoc.passes.context import Context
from adrenoc.passes.place.copy_node import copy_node


def bridge_devices(graph: Graph, _context: Context) -> Graph:
    """Insert the copies; every `cpu` node then reads and writes tensors of the CPU alone."""
    if not any(node.is_on_cpu for node in graph.nodes):
        return graph
    return _Bridge(graph).run()


class _Bridge:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._nodes: list[Node] = []
        self._tensors: list[Tensor] = []
        self._on_cpu: dict[str, str] = {}
        """Tensor of the model -> its name on the CPU."""
        self._on_gpu: set[str] = set()
        """Tensors that the CPU makes and that have come to the GPU."""

    def run(self) -> Graph:
        for node in self._graph.nodes:
            if node.is_on_cpu:
                self._add_cpu_node(node)
            else:
                self._need_on_gpu(node.inputs)
                self._nodes.append(node)
        self._need_on_gpu(self._graph.outputs)
        return self._graph.replace_nodes(self._nodes, self._tensors)

    def _add_cpu_node(self, node: Node) -> None:
        names = {name: self._bring_to_cpu(name) for name in node.inputs}
        made = self._twin(node.output)
        names[node.output] = self._on_cpu[node.output] = made
        arguments = tuple(names[name] for name in node.attrs["arguments"])
        self._nodes.append(
            replace(
                node,
                inputs=tuple(names[name] for name in node.inputs),
                output=made,
                attrs={**node.attrs, "arguments": arguments},
            )
        )

    def _bring_to_cpu(self, name: str) -> str:
        if name in self._on_cpu:
            return self._on_cpu[name]
        graph, source = self._graph, name
        tensor = graph.tensors[name]
        if tensor.is_float and tensor.value is None and name not in graph.input_names:
            # It may lie in a texture; what is copied to the CPU is row-major.
            rows = replace(tensor, name=f"{name}_rows")
            self._tensors.append(rows)
            self._nodes.append(copy_node(name, rows, "layout"))
            source = rows.name
        copied = self._twin(name)
        self._nodes.append(
            Node(name=copied, op=TO_CPU, inputs=(source,), output=copied, fused=(TO_CPU,))
        )
        self._on_cpu[name] = copied
        return copied

    def _need_on_gpu(self, names: tuple[str, ...]) -> None:
        for name in names:
            if name in self._graph.producers and self._graph.producers[name].is_on_cpu:
                if name not in self._on_gpu:
                    made = self._on_cpu[name]
                    self._nodes.append(
                        Node(name=name, op=TO_GPU, inputs=(made,), output=name, fused=(TO_GPU,))
                    )
                self._on_gpu.add(name)

    def _twin(self, name: str) -> str:
        """Return a tensor of the same shape on the CPU."""
        twin = replace(self._graph.tensors[name], name=f"{name}_cpu", value=None)
        self._tensors.append(twin)
        return twin.name


def bridge_regions(graph: Graph, _context: Context) -> Graph:
    """Insert the copies that regions of OpenCL ML read, and those of what they make."""
    if not any(node.is_region for node in graph.nodes):
        return graph
    nodes: list[Node] = []
    tensors: list[Tensor] = []
    copied: dict[str, str] = {}
    for node in graph.nodes:
        if not node.is_region:
            nodes.append(node)
            continue
        for name in node.inputs:
            if name not in copied and _needs_copy(graph, name):
                rows = replace(graph.tensors[name], name=f"{name}_rows", value=None)
                tensors.append(rows)
                nodes.append(copy_node(name, rows, "layout"))
                copied[name] = rows.name
        nodes.append(_rename_arguments(node, copied))
    return graph.replace_nodes(nodes, tensors)


def _needs_copy(graph: Graph, name: str) -> bool:
    if graph.tensors[name].value is not None:
        return True
    if name in graph.input_names:
        return False
    maker = graph.producers[name].op
    if maker in (CLML, ALLOC):
        return False
    return (
        maker == CPU
        or name in graph.output_names
        or any(not reader.is_region for reader in graph.consumers[name])
    )


def _rename_arguments(node: Node, copied: dict[str, str]) -> Node:
    arguments = tuple(copied.get(n, n) for n in node.attrs["arguments"])
    inputs = (*dict.fromkeys(arguments), *node.attrs["results"][1:])
    return replace(node, inputs=inputs, attrs={**node.attrs, "arguments": arguments})
