"""A Relax function as a flat list of bindings, for passes that rewrite it as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import tvm
from tvm import relax

from adrenoc.base.decision import DecisionLog
from adrenoc.base.errors import UnsupportedOperatorError
from adrenoc.importers.relax.values import UniqueNames, emit_named

_ROUNDING = ("relax.ceil", "relax.floor", "relax.round", "relax.trunc")


@dataclass(frozen=True, kw_only=True)
class Binding:
    """`var` = `value`; the variable's type is known, the value may be a fresh call without one."""

    var: relax.Var
    value: relax.Expr


@dataclass
class FlatFunction:
    """Parameters, bindings in order, and what the function returns.

    `aliases` holds better names for variables that have no name of their own, `log` what those
    decided that rewrote it.
    """

    params: list[relax.Var]
    bindings: list[Binding]
    result: relax.Expr
    names: UniqueNames = field(default_factory=UniqueNames)
    aliases: dict[relax.Var, str] = field(default_factory=dict)
    log: DecisionLog = field(default_factory=DecisionLog)

    def name(self, var: relax.Var) -> str:
        """Return what `var` will be called in the end, names that are taken aside."""
        return self.aliases.get(var, str(var.name))

    def find_rounded(self) -> set[relax.Var]:
        """Return what is rounded to integers as it is, and so must not be off in its last digit."""
        calls = (b.value for b in self.bindings if isinstance(b.value, relax.Call))
        return {
            call.args[0] for call in calls if _rounds(call) and isinstance(call.args[0], relax.Var)
        }

    def uses(self) -> Counter[relax.Var]:
        """Return how often each variable is read, the result included."""
        counts: Counter[relax.Var] = Counter()
        for binding in self.bindings:
            counts.update(variables(binding.value))
        counts.update(variables(self.result))
        return counts

    def drop_unused(self) -> int:
        """Remove bindings that the result does not need; return how many went."""
        needed = set(variables(self.result))
        kept = []
        for binding in reversed(self.bindings):
            if binding.var in needed:
                kept.append(binding)
                needed.update(variables(binding.value))
        dropped = len(self.bindings) - len(kept)
        self.bindings = kept[::-1]
        return dropped

    def new_var(self, like: str, ty: relax.TensorType) -> relax.Var:
        """Return a variable for a new binding, with a name that nothing else has."""
        return relax.Var(self.names.take(like), ty)


def flatten(function: relax.Function) -> FlatFunction:
    """Read `function` into a list.

    Raises:
        UnsupportedOperatorError: it holds control flow or run-time shapes.
    """
    bindings = []
    body = function.body
    for block in body.blocks:
        for binding in block.bindings:
            if not isinstance(binding, relax.VarBinding) or isinstance(binding.value, relax.If):
                raise UnsupportedOperatorError(
                    f"'{binding.var.name}' depends on data at run time (control flow or a shape)",
                    hint="export the model with static shapes and without branches",
                )
            bindings.append(Binding(var=binding.var, value=binding.value))
    names = UniqueNames(p.name for p in function.params)
    return FlatFunction(
        params=list(function.params), bindings=bindings, result=body.body, names=names
    )


def rebuild(flat: FlatFunction) -> tuple[relax.Function, dict[str, str]]:
    """Return the function again: one dataflow block, unique names, types derived anew.

    Returns it with a map from each new variable's name to its name in `flat`.
    """
    builder = relax.BlockBuilder()
    names = UniqueNames(p.name for p in flat.params)
    env: dict[relax.Var, relax.Expr] = {}
    origin = {p.name: p.name for p in flat.params}
    returned = set(variables(flat.result))
    with builder.function("main", flat.params):
        with builder.dataflow():
            for binding in flat.bindings:
                name = names.take(flat.name(binding.var))
                env[binding.var] = emit_named(
                    builder, substitute(binding.value, env), name, output=binding.var in returned
                )
                origin[name] = binding.var.name
            result = substitute(flat.result, env)
            if not returned.issubset(env) or not returned:
                # An input or a constant that the model returns as it is needs a binding.
                result = emit_named(builder, result, names.take("result"), output=True)
        builder.emit_func_output(result)
    return builder.get()["main"], origin


def substitute(expr: relax.Expr, env: dict[relax.Var, relax.Expr]) -> relax.Expr:
    """`expr` with its variables replaced as `env` says."""
    if isinstance(expr, relax.Var):
        return env.get(expr, expr)
    if isinstance(expr, relax.Tuple):
        return relax.Tuple([substitute(f, env) for f in expr.fields])
    if isinstance(expr, relax.TupleGetItem):
        return relax.TupleGetItem(substitute(expr.tuple_value, env), expr.index)
    if isinstance(expr, relax.Call):
        args = [substitute(a, env) for a in expr.args]
        return relax.Call(expr.op, args, expr.attrs, expr.ty_args)
    return expr


def variables(expr: relax.Expr) -> Iterator[relax.Var]:
    """Yield the variables that `expr` reads, each as often as it reads it."""
    if isinstance(expr, relax.Var):
        yield expr
    elif isinstance(expr, relax.Tuple):
        for part in expr.fields:
            yield from variables(part)
    elif isinstance(expr, relax.TupleGetItem):
        yield from variables(expr.tuple_value)
    elif isinstance(expr, relax.Call):
        for arg in expr.args:
            yield from variables(arg)


def replace_main(module: tvm.IRModule, main: relax.Function) -> tvm.IRModule:
    """Return a module with `main` and, of the old functions, those that `main` still calls."""
    wanted = {
        arg
        for block in main.body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Call)
        for arg in binding.value.args
        if isinstance(arg, relax.GlobalVar)
    }
    kept = {gv: f for gv, f in module.functions.items() if gv in wanted}
    result = tvm.IRModule(kept)
    result["main"] = main.with_attr("global_symbol", "main")
    return result


def _rounds(call: relax.Call) -> bool:
    """Tell whether a call makes whole numbers of its operand."""
    name = str(getattr(call.op, "name", ""))
    return name in _ROUNDING or (name == "relax.astype" and "int" in str(call.attrs.dtype))
