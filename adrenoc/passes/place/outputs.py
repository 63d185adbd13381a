"""Where outputs lie: states in the memory of the next run's inputs, others where they are computed.

An operator that changes a part of its operand (`Operator.writes_into`) does so in place where that
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

Before -> after:
    outputs probabilities       outputs probabilities, conv1, pool1, conv2, ...
"""

from dataclasses import dataclass, field, replace

from adrenoc.ir.graph import Graph, Node, Tensor
from adrenoc.kernels.families.operators import changed_input
from adrenoc.passes.context import Context
from adrenoc.passes.place.copies import copy_node


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
