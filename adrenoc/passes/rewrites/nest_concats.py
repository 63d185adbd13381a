"""Concatenations of very many tensors become concatenations of concatenations.

A kernel takes 128 arguments on most GPUs, and each operand of a concatenation is one.  Long before
that they cost: a thread asks of every operand whether its element is there, and LLVM's time grows
with the square of the arguments that the launching code checks.

A stack of very many is a concatenation of such stacks: the results of a recurrent network's steps.

Before -> after:
    concat(t0, ..., t80)        concat(concat(t0, ..., t31), concat(t32, ..., t63), concat(...))
    stack(t0, ..., t80)         concat(stack(t0, ..., t31), stack(t32, ..., t63), stack(...))
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from adrenoc.importers.relax.flat import Binding, FlatFunction
from adrenoc.importers.relax.values import op_name, static_shape

MOST_PARTS = 32
"""A multiple of four: what the groups hold begins at whole blocks of channels."""

MOST_WHOLE_PARTS = 96
"""Where each operand begins at a whole block, it may be written in place, without a kernel."""

_LANES = 4

Join = Callable[[relax.Expr, int], relax.Expr]

_JOINS: dict[str, Join] = {"relax.concat": relax.op.concat, "relax.stack": relax.op.stack}


def nest_concats(flat: FlatFunction) -> None:
    """Nest the concatenations of `flat` that have too many operands, in place."""
    bindings: list[Binding] = []
    for binding in flat.bindings:
        value, join = binding.value, _join_of(binding.value)
        parts = list(value.args[0].fields) if join is not None else []
        if join is not None and len(parts) > MOST_PARTS and len(parts) > _most(parts, value):
            reason = f"it has {len(parts)} operands: too many arguments for one kernel"
            taken = f"concatenated in groups of {MOST_PARTS}"
            flat.log.add(flat.name(binding.var), taken, reason)
            axis = _axis(binding)
            while len(parts) > MOST_PARTS:
                parts = _group_parts(flat, binding, parts, join, bindings)
                join = relax.op.concat  # what was stacked has the axis
            value = relax.op.concat(relax.Tuple(parts), axis)
        bindings.append(Binding(var=binding.var, value=value))
    flat.bindings = bindings


def _join_of(value: relax.Expr) -> Join | None:
    """Return the operator by which `value` joins the fields of a tuple."""
    named = isinstance(value, relax.Call) and isinstance(value.args[0], relax.Tuple)
    return _JOINS.get(op_name(value)) if named else None


def _axis(binding: Binding) -> int:
    """Return the axis of the result along which its parts lie."""
    return int(binding.value.attrs.axis or 0) % len(static_shape(binding.var) or (0,))


def _most(parts: list[relax.Expr], joined: relax.Call) -> int:
    shapes = [static_shape(part) for part in parts]
    if op_name(joined) != "relax.concat" or not all(shapes):
        return MOST_PARTS
    axis = int(joined.attrs.axis)
    whole = all(shape is not None and shape[axis] % _LANES == 0 for shape in shapes)
    return MOST_WHOLE_PARTS if whole else MOST_PARTS


def _group_parts(
    flat: FlatFunction, whole: Binding, parts: list[relax.Expr], join: Join, bindings: list[Binding]
) -> list[relax.Expr]:
    """Return the groups of `parts`, each bound to a variable of its own."""
    axis, stacked = _axis(whole), join is relax.op.stack
    groups: list[relax.Expr] = []
    for first in range(0, len(parts), MOST_PARTS):
        members = parts[first : first + MOST_PARTS]
        if len(members) == 1 and not stacked:
            groups += members
            continue
        extents = list(static_shape(whole.var) or ())
        lengths = (1 if stacked else (static_shape(member) or ())[axis] for member in members)
        extents[axis] = sum(lengths)
        ty = relax.TensorType(extents, str(whole.var.ty.dtype))
        var = flat.new_var(f"{flat.name(whole.var)}_group", ty)
        bindings.append(Binding(var=var, value=join(relax.Tuple(members), axis)))
        groups.append(var)
    return groups
