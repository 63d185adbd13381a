"""Relax module -> planning graph: the two-part legalisation.

Operators of a family keep their attributes, since layout, scope and schedule decide by them.
Every other operator is lowered by TVM's own legalisation at once, and what it computes is kept
as a scalar expression (`Body`): fusion, layouts and vectorisation then need no list of
operators.

Before -> after:
    lv = R.nn.conv2d(x, w, strides=[2, 2])      node conv2d, attrs strides=[2, 2]
    lv1 = R.nn.relu(lv)                         node map, value max(lv[i, j, k, l], 0)

A case of such an operator that no rule of its family covers is refused with a reason; it is then
lowered to a plain loop nest like any other operator, which is slower and just as right.

Write constants of one element into the expressions that read them: no argument, no read.

Before -> after:
    max(lv[i, j, k, l], const3[])       max(lv[i, j, k, l], 0.0)

`--set forbid=cpu` or `forbid=buffer` turn a step down the ladder into an error.  For builds that
must not slow down in silence: the error names every operator that would take the step, and why.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from tvm_ffi.structural import structural_map

from adrenoc.base.decision import Decision, DecisionLog
from adrenoc.base.errors import CompileError, TargetError
from adrenoc.base.text.spelling import did_you_mean, list_first
from adrenoc.base.tvmapi import tirx, tvm
from adrenoc.importers.relax.values import array_view
from adrenoc.ir.graph import Body, Graph, Node, Tensor
from adrenoc.ir.layout import Memory, default_layout
from adrenoc.kernels.families.operators import OF_RELAX, OPERATORS
from adrenoc.kernels.families.shared.operator import Operator
from adrenoc.passes.analyse.cpu_nodes import cpu_nodes, region_nodes, wide_dtype
from adrenoc.passes.analyse.scalar_body import NotScalarError, ScalarBlock, blocks_of
from adrenoc.passes.context import Context
from adrenoc.passes.read.expansions import EXPANSIONS
from adrenoc.passes.read.fold_nests import FOLD_NESTS, fields_of, is_mirror, mirror_nest
from adrenoc.target.gpu import OPERATOR, describe_quirk
from adrenoc.target.target import Target


def avoid_decisions(target: Target) -> Iterator[Decision]:
    """Yield a decision for each thing that is left out."""
    for word, reason in target.avoided.items():
        yield Decision(subject=target.title, taken=f"without {word}", reason=reason)
    if target.own is None:
        return
    for quirk in target.gpu.quirks:
        bounds = (
            ("work-groups", quirk.work_group_items_below, "threads"),
            ("images", quirk.image_extent_below, "texels a side"),
            ("local memory", quirk.local_bytes_below, "bytes"),
        )
        for what, below, unit in bounds:
            if below is not None:
                taken = f"{what} of less than {below} {unit}"
                yield Decision(subject=target.title, taken=taken, reason=describe_quirk(quirk))
        if quirk.banned_work_groups:
            shapes = ", ".join(" x ".join(map(str, g)) for g in quirk.banned_work_groups)
            taken = f"no work-groups of {shapes}"
            yield Decision(subject=target.title, taken=taken, reason=describe_quirk(quirk))


def avoided_operators(target: Target) -> dict[str, str]:
    """Return operator -> why the target is to do without its kernels."""
    found = {}
    for word, reason in target.avoided.items():
        kind, _, name = word.partition(":")
        if kind != OPERATOR:
            continue
        if name not in OPERATORS:
            raise TargetError(
                f'{target.title} avoids the unknown operator "{name}"'
                f"{did_you_mean(name, list(OPERATORS))} ({reason}), expected one of "
                + ", ".join(OPERATORS),
                hint="adrenoc device verify -o device.json makes a report of this version",
            )
        found[name] = reason
    return found


def forbid_cpu(graph: Graph, context: Context) -> Graph:
    """Refuse operators on the CPU where the options forbid them."""
    if "cpu" in context.options.forbid:
        found = (node.output for node in graph.nodes if node.is_on_cpu)
        _refuse(found, "the CPU", "cpu", context.log)
    return graph


def forbid_buffers(graph: Graph, context: Context) -> Graph:
    """Refuse operators that write to a buffer, other than to the graph's own outputs."""
    if "buffer" in context.options.forbid:
        found = (
            node.output
            for node in graph.nodes
            if node.output not in graph.output_names
            and graph.placements[node.output].memory in (Memory.BLOCKED, Memory.PLAIN)
        )
        _refuse(found, "a buffer", "buffer", context.log)
    return graph


def _refuse(names: Iterable[str], place: str, word: str, log: DecisionLog) -> None:
    offenders = []
    for name in names:
        reasons = [f"{d.taken}: {d.reason}" for d in log.find(name)]
        offenders.append(f"{name} ({reasons[-1] if reasons else 'its values are no floats'})")
    if offenders:
        raise CompileError(
            f"{len(offenders)} operators would run on {place}, which forbid={word} rules out: "
            + list_first(offenders),
            hint=f"adrenoc compile MODEL --explain, without forbid={word}",
        )


def refusal(node: Node, operator: Operator, tensors: Mapping[str, Tensor]) -> str | None:
    """Return why a node must be a loop nest; None where it can stay whole."""
    changed = operator.writes_into if operator.writes_into is not None else len(node.inputs)
    for position, name in zip(
        (*range(len(node.inputs)), changed), (*node.inputs, node.output), strict=True
    ):
        tensor = tensors[name]
        if position in operator.whole_numbers:
            continue
        if not tensor.is_float:
            return f"{name} is {tensor.dtype}, expected float"
        packed = tensor.value is not None and position > 0  # as its reader wants it
        if not packed and default_layout(tensor.shape) is None:
            return f"{name} of shape {tensor.shape} has too many extents above one"
    return operator.refuses(node, tensors)


_HINT = "ADRENOC_DUMP_DIR=DIR adrenoc compile MODEL shows the operators after each stage"


def read_graph(
    module: Any,
    log: DecisionLog,
    function: str = "main",
    *,
    avoided: Mapping[str, str] = MappingProxyType({}),
) -> Graph:
    """Read a function of a simplified Relax module; `avoided` operators do not stay whole."""
    return _Reader(module, log, avoided).read(function)


@dataclass
class _Reader:
    module: Any
    log: DecisionLog
    avoided: Mapping[str, str]
    """Operator -> why it is a loop nest on this target."""
    tensors: dict[str, Tensor] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    names: dict[Any, Any] = field(default_factory=dict)
    """Relax variable -> tensor name, or a tuple of names."""
    numbers: Iterator[int] = field(default_factory=itertools.count)
    legalised: dict[Any, tuple[Any, list[int]]] = field(default_factory=dict)
    """TIR functions by what they were made for, with the places of their operands."""

    def read(self, function: str) -> Graph:
        main = self.module[function]
        inputs = [self._declare(p, p.name) for p in main.params]
        for block in main.body.blocks:
            for binding in block.bindings:
                self._read_binding(binding)
        result = self._names_of(main.body.body)
        outputs = (result,) if isinstance(result, str) else tuple(result)
        graph = Graph(
            tensors=self.tensors, nodes=tuple(self.nodes), inputs=tuple(inputs), outputs=outputs
        )
        return graph.drop_unread()

    def _read_binding(self, binding: Any) -> None:
        value, var = binding.value, binding.var
        if isinstance(value, tvm.ir.Call):
            self._read_call(var, value)
        else:
            self.names[var] = self._names_of(value)

    def _read_call(self, var: Any, call: Any) -> None:
        name = call.op.name if isinstance(call.op, tvm.ir.Op) else str(call.op)
        if name == "relax.call_tir":
            args = [self._name_of(a) for a in call.args[1].fields]
            self._read_prim_func(var, self.module[call.args[0]], args, call.args[0].name_hint)
        elif name == "relax.call_dps_packed":
            # A region of CLML: its function stands in the module under the name that is called.
            arguments = [self._name_of(a) for a in call.args[1].fields]
            results = self._declare_results(var)
            self.nodes += region_nodes(str(call.args[0].global_symbol), arguments, results)
        elif (refused := self._keep_whole(var, call, name)) is not None:
            self._read_apart(var, call, name, refused)

    def _read_apart(self, var: Any, call: Any, name: str, refused: str) -> None:
        """Read an operator in parts or as loop nests; `refused` says why it is not one node."""
        parts = EXPANSIONS[name](call, var.name) if name in EXPANSIONS else None
        if refused:
            how = "as a plain loop nest" if parts is None else "in parts"
            self.log.add(var.name, f"{OF_RELAX[name].name} {how}", refused)
        if parts is not None:
            for param, arg in zip(parts.params, call.args, strict=True):
                self.names[param] = self._names_of(arg)
            for block in parts.body.blocks:
                for binding in block.bindings:
                    self._read_binding(binding)
            self.names[var] = self._names_of(parts.body.body)
        elif (nest := mirror_nest if is_mirror(call, name) else FOLD_NESTS.get(name)) is not None:
            args = [self._name_of(a) for a in call.args]
            self._read_prim_func(var, nest(call), args, name.removeprefix("relax."))
        else:
            func, operands = self._legalise_once(call, name, var.name)
            args = [self._name_of(operand) for operand in operands]
            self._read_prim_func(var, func, args, name.removeprefix("relax."))

    def _declare_results(self, var: Any) -> list[str]:
        """Return the tensors that a call gives, one or a tuple."""
        fields = fields_of(var)
        outputs = [f"{var.name}_{i}" for i in range(len(fields))]
        if not isinstance(var.ty, tvm.relax.TupleType):
            outputs = [var.name]
        for output, ty in zip(outputs, fields, strict=True):
            self._declare_type(output, ty)
        self.names[var] = outputs[0] if len(fields) == 1 else tuple(outputs)
        return outputs

    def _keep_whole(self, var: Any, call: Any, name: str) -> str | None:
        """Keep an operator of a family as one node, unless it is a case that no rule covers.  None
        where it is kept; else why a case is not, empty for what no family has."""
        whole = OF_RELAX.get(name)
        if whole is None or not _is_tensor(var):
            return ""
        output = self._declare(var, var.name)
        node = Node(
            name=output,
            op=whole.name,
            inputs=tuple(self._name_of(a) for a in call.args if _is_tensor(a)),
            output=output,
            attrs=_attrs(call.attrs),
            fused=(whole.name,),
        )
        reason = self.avoided.get(whole.name) or refusal(node, whole, self.tensors)
        if reason is None:
            self.nodes.append(node)
        return reason

    def _legalise_once(self, call: Any, name: str, where: str) -> tuple[Any, list[Any]]:
        """Return an operator's TIR function and the operands that it takes.  Most calls of a
        network are like an earlier one: theirs is its function with variables of its own."""
        leaves = [a for arg in call.args for a in getattr(arg, "fields", (arg,))]
        key = (name, repr(_attrs(call.attrs)), *(self._kind_of(leaf, leaves) for leaf in leaves))
        if key in self.legalised:
            func, places = self.legalised[key]
            return tvm.s_tir.renew_defs(func), [leaves[place] for place in places]
        lowered, func = self._legalise(call, name, where)
        operands = list(lowered.args[1].fields)
        places = [p for o in operands for p in _places_of(o, leaves)[:1]]
        if len(places) == len(operands):
            self.legalised[key] = func, places
        return func, operands

    def _kind_of(self, leaf: Any, leaves: list[Any]) -> Any:
        """Return all that a lowering may read of an operand."""
        first = _places_of(leaf, leaves)[0]
        if isinstance(leaf, tvm.ir.GenericConst):
            array = leaf.value
            number = array_view(array).tobytes() if math.prod(array.shape) == 1 else b""
            return first, tuple(array.shape), str(array.dtype), number
        if isinstance(name := self.names.get(leaf), str):
            return first, self.tensors[name].shape, self.tensors[name].dtype
        return str(leaf)

    def _legalise(self, call: Any, name: str, where: str) -> tuple[Any, Any]:
        rule = call.op.get_attr("FLegalize") if isinstance(call.op, tvm.ir.Op) else None
        if rule is None:
            raise CompileError(
                f"operator {name} (binding {where}) has no lowering to scalar code", hint=_HINT
            )
        builder = tvm.relax.BlockBuilder()
        try:
            lowered = rule(builder, call)
        except (AssertionError, RuntimeError, TypeError, ValueError) as error:  # as TVM's rules do
            raise CompileError(
                f"operator {name} (binding {where}) cannot be lowered: "
                f"{(str(error).strip().splitlines() or [type(error).__name__])[-1]}",
                hint=_HINT,
            ) from error
        if not (isinstance(lowered, tvm.ir.Call) and lowered.op == tvm.ir.Op.get("relax.call_tir")):
            raise CompileError(
                f"operator {name} (binding {where}) lowers to {type(lowered).__name__}, "
                "expected one call to a TIR function",
                hint=_HINT,
            )
        return lowered, builder.get()[lowered.args[0]]

    def _read_prim_func(self, var: Any, func: Any, args: list[str], op: str) -> None:
        """One node for each block of the function; the last ones write its results."""
        outputs = self._declare_results(var)
        buffers = dict(zip(func.params, [*args, *outputs], strict=True))
        reason = wide_dtype(func)
        blocks: list[ScalarBlock] = []
        if reason is None:
            try:
                blocks = list(blocks_of(func))
            except NotScalarError as error:
                reason = f"no plain loop nest: {error}"
        if reason is not None:
            self.nodes.extend(cpu_nodes(func, args, outputs, op=op, reason=reason, log=self.log))
        for block in blocks:
            if block.target not in buffers:
                name = f"{var.name}_{block.target.name}"
                temporary = name
                while temporary in self.tensors:
                    temporary = f"{name}_{next(self.numbers)}"
                buffers[block.target] = temporary
                self.tensors[temporary] = Tensor(
                    name=temporary,
                    shape=tuple(int(d) for d in block.target.shape),
                    dtype=str(block.target.dtype),
                )
            body = Body(
                axes=block.axes,
                value=block.value,
                sources={b: buffers[b] for b in block.reads},
                reduced=block.reduced,
                init=block.init,
                accumulator=block.target if block.reduced else None,
            )
            self.nodes.append(
                Node(
                    name=buffers[block.target],
                    op="fold" if block.reduced else "map",
                    inputs=tuple(dict.fromkeys(body.sources.values())),
                    output=buffers[block.target],
                    body=body,
                    fused=(op,),
                )
            )

    # Tensors and names

    def _declare(self, var: Any, name: str) -> str:
        self.names[var] = name
        return self._declare_type(name, var.ty)

    def _declare_type(self, name: str, ty: Any) -> str:
        self.tensors[name] = Tensor(name=name, shape=_shape(name, ty), dtype=str(ty.dtype))
        return name

    def _name_of(self, expr: Any) -> str:
        name = self._names_of(expr)
        if not isinstance(name, str):
            raise CompileError(f"{expr} is a tuple where a tensor is expected", hint=_HINT)
        return name

    def _names_of(self, expr: Any) -> Any:
        if isinstance(expr, tvm.ir.GenericConst):
            return self._constant(expr)
        if isinstance(expr, tvm.relax.Tuple):
            return tuple(self._name_of(f) for f in expr.fields)
        if isinstance(expr, tvm.relax.TupleGetItem):
            return self._names_of(expr.tuple_value)[expr.index]
        return self.names[expr]

    def _constant(self, expr: Any) -> str:
        known = self.names.get(expr)
        if known is not None:
            return str(known)
        name = f"const{next(self.numbers)}"
        value = array_view(expr.value)  # weights are held once
        self.tensors[name] = Tensor(
            name=name, shape=tuple(value.shape), dtype=str(value.dtype), value=value
        )
        self.names[expr] = name
        return name


def _places_of(expr: Any, leaves: list[Any]) -> list[int]:
    return [place for place, leaf in enumerate(leaves) if leaf.same_as(expr)]


def _is_tensor(expr: Any) -> bool:
    return isinstance(expr.ty, tvm.relax.TensorType)


def _shape(name: str, ty: Any) -> tuple[int, ...]:
    dims = ty.shape
    if dims is None or not all(isinstance(d, tirx.IntImm) for d in dims):
        raise CompileError(
            f"tensor {name} has the shape {dims}, expected fixed extents",
            hint="give the extents of the inputs: adrenoc compile --shape INPUT:1,3,224,224",
        )
    return tuple(int(d) for d in dims)


def _attrs(attrs: Any) -> dict[str, Any]:
    """Return the operator's attributes as plain Python values."""
    if attrs is None:
        return {}
    if isinstance(attrs, tvm.ir.attrs.DictAttrs):  # of our own operators
        return {str(name): _plain(value) for name, value in attrs.items()}
    fields = type(attrs).__tvm_ffi_type_info__.fields
    return {f.name: _plain(getattr(attrs, f.name)) for f in fields}


def _plain(value: Any) -> Any:
    if isinstance(value, tirx.IntImm):
        return int(value)
    if isinstance(value, tirx.FloatImm):
        return float(value)
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        return value
    return [_plain(v) for v in value]


def inline_scalars(graph: Graph, _context: Context) -> Graph:
    """Replace reads of one-element constants by their value."""
    scalars = {
        name: tensor.value.reshape(-1)[0].item()
        for name, tensor in graph.tensors.items()
        if tensor.value is not None and tensor.value.size == 1
    }
    return graph.replace_nodes(_inline_node(node, scalars) for node in graph.nodes)


def _inline_node(node: Node, scalars: dict[str, Any]) -> Node:
    if node.body is None or not any(name in scalars for name in node.inputs):
        return node
    body = _substitute_values(node.body, scalars)
    return replace(node, body=body, inputs=tuple(dict.fromkeys(body.sources.values())))


def _substitute_values(body: Body, scalars: dict[str, Any]) -> Body:
    def value_of(load: Any) -> Any:
        name = body.source_of(load.source)
        return tirx.const(scalars[name], str(load.ty)) if name in scalars else load

    value = structural_map(body.value, (tvm.ir.TensorLoad, value_of))
    return replace(body, value=value).drop_unread()
