"""Where copies stand: between textures and what cannot read them (CPU, CLML), and for states.

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

States lie in the memory of the next run's inputs, other outputs where they are computed.  An
operator that changes a part of its operand (`Operator.writes_into`) does so in place where that
is the state and nobody reads what was there before; else it changes a copy.  A state that a run
only reads stays where it is; any other is copied to its memory when all else is done.

Before -> after:
    present = append_rows(past, x)              present is past, whose rows are written
    present = append_rows(past, x); f(past)     begun = copy of past; present is begun; ...; kept
    h1 = tanh(x + h0)                           h1 = tanh(x + h0); kept = copy of h1; kept is h0

What a policy or a rule keeps in float32 under one of a state's two names is so under both.

`expose_layers` makes every tensor that the model names an output, to compare layer by layer.  It
runs after fusion, so that the kernels are those of the model as it is shipped; what fusion
swallowed has no tensor and is not compared.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from adrenoc.base.tvmapi import const_int, tirx, tvm
from adrenoc.ir.graph import ALLOC, CLML, CPU, TO_CPU, TO_GPU, Body, Graph, Node, Tensor
from adrenoc.ir.layout import Memory
from adrenoc.kernels.families.operators import changed_input
from adrenoc.passes.context import Context
from adrenoc.passes.precision.analysis import Analysis, Expression, Known


def copy_node(source: str, target: Tensor, kind: str) -> Node:
    """Return a map that copies one tensor element by element."""
    body = Body.reading(source, target.shape, dtype=target.dtype)
    return Node(
        name=target.name, op="map", inputs=(source,), output=target.name, body=body, fused=(kind,)
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
            else:
                self._need_on_gpu(node.inputs)
                self._nodes.append(node)
        self._need_on_gpu(self._graph.outputs)
        return self._graph.replace_nodes(self._nodes, self._tensors)

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


def keep_states(graph: Graph, context: Context) -> Graph:
    """Give every state one memory, and every operator that changes an operand one to change."""
    changing = any(changed_input(node) is not None for node in graph.nodes)
    if not changing and not graph.states:
        return graph
    return _Keeper(_widen_both_names(graph, context), context).run()


def _widen_both_names(graph: Graph, context: Context) -> Graph:
    """Have both names of a state in float32 where one is: one memory has one dtype."""
    exact = graph.float32_names
    more = set()
    for present, past in graph.states.items():
        if (present in exact) != (past in exact):
            asking, other = (present, past) if present in exact else (past, present)
            context.log.add(other, "float32", f"it is the memory of {asking}, which is float32")
            more.add(other)
    return graph.change_precision(more, float32=True)


@dataclass
class _Keeper:
    graph: Graph
    context: Context
    nodes: list[Node] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)

    def run(self) -> Graph:
        graph = self.graph
        last_read = {name: at for at, node in enumerate(graph.nodes) for name in node.inputs}
        for at, node in enumerate(graph.nodes):
            position = changed_input(node)
            if position is None:
                self.nodes.append(node)
            else:
                read_later = last_read[node.inputs[position]] > at
                self.nodes.append(self._change(node, position, read_later))
        renamed = self._copy_back()
        states = {renamed.get(name, name): past for name, past in graph.states.items()}
        outputs = tuple(renamed.get(name, name) for name in graph.outputs)
        aliases = {**graph.aliases, **self.aliases}
        graph = replace(graph, outputs=outputs, states=states, aliases=aliases)
        return graph.replace_nodes(self.nodes, self.tensors)

    def _change(self, node: Node, position: int, read_later: bool) -> Node:
        """Return a node that changes its operand in place, or a copy where others read it later."""
        source = node.inputs[position]
        read_later = read_later or source in self.graph.output_names
        if self.graph.states.get(node.output) == source and not read_later:
            self.aliases[node.output] = source
            return node
        begun = replace(self.graph.tensors[source], name=f"{node.output}_begun", value=None)
        self.tensors.append(begun)
        self.nodes.append(copy_node(source, begun, "layout"))
        self.context.log.add(
            node.output,
            f"changes a copy of {source}",
            "what was there before is read again, or is the user's own",
        )
        self.aliases[node.output] = begun.name
        inputs = (*node.inputs[:position], begun.name, *node.inputs[position + 1 :])
        return replace(node, inputs=inputs)

    def _copy_back(self) -> dict[str, str]:
        """Copy the states that were not changed in place; output -> the copy that it is then."""
        left = {n: past for n, past in self.graph.states.items() if self.aliases.get(n, n) != past}
        sources = {name: name for name in left}
        for name in left:  # one state may be what another was
            if name in self.graph.input_names:
                held = replace(self.graph.tensors[name], name=f"{name}_held", value=None)
                self.tensors.append(held)
                self.nodes.append(copy_node(name, held, "layout"))
                sources[name] = held.name
        renamed = {}
        for name, past in left.items():
            kept = replace(self.graph.tensors[past], name=f"{past}_kept", value=None)
            self.tensors.append(kept)
            self.nodes.append(copy_node(sources[name], kept, "layout"))
            self.aliases[kept.name] = past
            self.context.log.add(
                past, "copied back when all else is done", f"{name} is made apart from it"
            )
            renamed[name] = kept.name
        return renamed


def expose_layers(graph: Graph, context: Context) -> Graph:
    """Return the graph with its named float tensors as further outputs, in execution order."""
    kept = [
        node.output
        for node in graph.nodes
        if node.output in context.names
        and node.output not in graph.output_names
        and graph.tensors[node.output].is_float
    ]
    return replace(graph, outputs=(*graph.outputs, *kept))
