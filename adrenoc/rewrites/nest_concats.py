"""Concatenations of very many tensors become concatenations of concatenations.

A kernel takes 128 arguments on most GPUs, and each operand of a concatenation is one.  Long before
that they cost: a thread asks of every operand whether its element is there, and LLVM's time grows
with the square of the arguments that the launching code checks.

Before -> after:
    concat(t0, ..., t80)        concat(concat(t0, ..., t31), concat(t32, ..., t63), concat(...))
"""

from __future__ import annotations

from tvm import relax

from adrenoc.decision import Decision
from adrenoc.relax.flat import Binding, FlatFunction
from adrenoc.relax.values import op_name, static_shape

MOST_PARTS = 32
"""A multiple of four: what the groups hold begins at whole blocks of channels."""

MOST_WHOLE_PARTS = 96
"""Where each operand begins at a whole block, it may be written in place, without a kernel."""

_LANES = 4


def nest_concats(flat: FlatFunction) -> list[Decision]:
    """Nest the concatenations of `flat` that have too many operands, in place."""
    decisions: list[Decision] = []
    bindings: list[Binding] = []
    for binding in flat.bindings:
        value = binding.value
        parts = _parts(value)
        if len(parts) > MOST_PARTS and len(parts) > _most(parts, value):
            decisions.append(
                Decision(
                    subject=flat.name(binding.var),
                    taken=f"concatenated in groups of {MOST_PARTS}",
                    reason=f"it has {len(parts)} operands: too many arguments for one kernel",
                )
            )
            while len(parts) > MOST_PARTS:
                parts = _grouped(flat, binding, parts, bindings)
            value = relax.op.concat(relax.Tuple(parts), int(value.attrs.axis))
        bindings.append(Binding(var=binding.var, value=value))
    flat.bindings = bindings
    return decisions


def _parts(value: relax.Expr) -> list[relax.Expr]:
    is_concat = isinstance(value, relax.Call) and op_name(value) == "relax.concat"
    return list(value.args[0].fields) if is_concat else []


def _most(parts: list[relax.Expr], concat: relax.Expr) -> int:
    shapes = [static_shape(part) for part in parts]
    if not all(shapes):
        return MOST_PARTS
    axis = int(concat.attrs.axis)
    whole = all(shape is not None and shape[axis] % _LANES == 0 for shape in shapes)
    return MOST_WHOLE_PARTS if whole else MOST_PARTS


def _grouped(
    flat: FlatFunction, whole: Binding, parts: list[relax.Expr], bindings: list[Binding]
) -> list[relax.Expr]:
    """The groups of `parts`, each bound to a variable of its own."""
    axis = int(whole.value.attrs.axis)
    groups: list[relax.Expr] = []
    for first in range(0, len(parts), MOST_PARTS):
        members = parts[first : first + MOST_PARTS]
        if len(members) == 1:
            groups += members
            continue
        shapes = [static_shape(member) or () for member in members]
        extents = list(shapes[0])
        extents[axis] = sum(shape[axis] for shape in shapes)
        ty = relax.TensorType(extents, str(whole.var.ty.dtype))
        var = flat.new_var(f"{flat.name(whole.var)}_group", ty)
        bindings.append(Binding(var=var, value=relax.op.concat(relax.Tuple(members), axis)))
        groups.append(var)
    return groups
