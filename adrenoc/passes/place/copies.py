"""Where copies stand: between textures and what cannot read them (CPU, CLML), and nowhere else.

Before -> after:
    x -> cpu[cumsum] -> y -> relu       x -> to_cpu -> cpu[cumsum] -> y -> to_gpu -> relu
    y -> relu, y -> clml[conv2d]        y -> relu, y -> layout -> y_rows -> clml[conv2d]

A region of CLML reads row-major memory.  What only regions read is written so by its producer; what
other kernels read as well stays in a texture, and the region gets a copy.  Memory that is a buffer
and an image at once (cl_khr_image2d_from_buffer) would need no copy, but such an image is an
`image2d_t` alone, and the kernels that TVM's code generator prints read and write
`image2d_array_t`.

Maps that leave every texel where it is are no kernels: transposes, squeezes and flattens.

Before -> after:
    lv[1, 1280, 1, 1]:NCHW4c -> reshape -> lv1[1, 1280]:WC4c      lv1 is lv: no kernel
    x:NHWC4c -> permute_dims -> y:NCHW4c                          y is x: no kernel
    q:bytes from 0 -> add(-117) -> y:bytes from -117              y is q: no kernel
    q:from 0 to 255 -> astype(uint8) -> astype(float32) -> y      y is q: no kernel
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from adrenoc.base.tvmapi import const_int, tirx, tvm
from adrenoc.ir.graph import ALLOC, CLML, CPU, TO_CPU, TO_GPU, Body, Graph, Node, Tensor
from adrenoc.ir.layout import Memory
from adrenoc.passes.context import Context
from adrenoc.passes.precision.analysis import Analysis, Expression, Known


def copy_node(source: str, target: Tensor, kind: str) -> Node:
    """Return a map that copies one tensor element by element."""
    body = Body.reading(source, target.shape, dtype=target.dtype)
    return Node(
        name=target.name,
        op="map",
        inputs=(source,),
        output=target.name,
        body=body,
        fused=(kind,),
    )


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


def elide_copies(graph: Graph, _context: Context) -> Graph:
    """Make the output of such a map another name for its source's memory."""
    aliases = dict(graph.aliases)
    rounded = any(asked.rounded for asked in graph.precisions.values())
    known = Analysis(graph).known if rounded else {}
    nodes = []
    for node in graph.nodes:
        if _moves_nothing(graph, node, known):
            source = node.inputs[0]
            aliases[node.output] = aliases.get(source, source)
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes), aliases=aliases)


def _moves_nothing(graph: Graph, node: Node, known: Mapping[str, Known]) -> bool:
    body = node.body
    if not node.is_map or body is None or node.epilogue is not None or len(node.inputs) != 1:
        return False
    source, target = graph.operand(node.inputs[0]), graph.operand(node.output)
    if (
        Memory.PLAIN in (source.memory, target.memory)
        or (source.memory, source.dtype, source.physical)
        != (target.memory, target.dtype, target.physical)
        or source.roles.order is not target.roles.order
        or graph.tensors[node.inputs[0]].value is not None
        or source.extents != target.extents
    ):
        return False
    # What a byte stands for is part of the name: another offset moves nothing either.
    shifted = _shift_of(body, known)
    if shifted is None or shifted[1] != target.low - source.low:
        return False
    load = shifted[0]
    for position, index in enumerate(load.indices):
        if source.shape[position] == 1:
            continue
        role = source.roles.roles[position]
        axis = target.roles.axis(role)
        if axis is None or const_int(index) is not None or not index.same_as(body.axes[axis]):
            return False
    return True


def _shift_of(body: Body, known: Mapping[str, Known]) -> tuple[Any, float] | None:
    """(load, number) of an expression that adds a number to an element, whatever it converts."""
    expression = Expression(body, known)
    expr: Any = body.value
    shift = 0.0
    while not isinstance(expr, tvm.ir.TensorLoad):
        if isinstance(expr, tirx.Cast):
            inner = expression[expr.value]
            if not inner.whole or expression[expr].interval != inner.interval:
                return None
            expr = expr.value
        elif isinstance(expr, tirx.Add) and isinstance(expr.b, tirx.FloatImm):
            expr, shift = expr.a, shift + float(expr.b.value)
        else:
            return None
    return expr, shift
