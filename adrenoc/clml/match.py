"""Find in a Relax function what CLML computes, by the rows of the pattern table.

Operators are tried in execution order, and each takes in what may be fused behind it, so the
longest pattern wins.  What is refused is a Decision with the reason.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from adrenoc.base.decision import Decision
from adrenoc.base.errors import RefusedError
from adrenoc.clml.match_operators import OPERATORS, Matcher, padding_before
from adrenoc.clml.region import (
    Bindings,
    ClmlOperator,
    Found,
    Operand,
    Table,
    check_limits,
    constant,
    ints,
    make_found,
    operand,
    operator,
    require,
    shape_of,
)
from adrenoc.importers.relax.values import Binding, FlatFunction, constant_value, op_name
from adrenoc.ir.half import explain_not_half


def match_reshape(table: Table, bindings: Bindings, start: Binding) -> Found:
    """Return a reshape, or the three operators that are a depth-to-space in order DCR."""
    blocks = _depth_to_space(table, bindings, start)
    if blocks is not None:
        return blocks
    row, source = table["reshape"], start.value.args[0]
    check_limits(row, [source, start.var])
    return make_found(row, [start], "openclml.reshape", [operand(source)])


def _depth_to_space(table: Table, bindings: Bindings, start: Binding) -> Found | None:
    """reshape [n, b, b, c, h, w], permute [0, 3, 4, 1, 5, 2], reshape [n, c, h*b, w*b]."""
    source, inner = start.value.args[0], shape_of(start.var)
    permuted = bindings.next(start, "relax.permute_dims")
    if permuted is None or len(inner) != 6 or inner[1] != inner[2]:
        return None
    axes = permuted.value.attrs.axes
    last = bindings.next(permuted, "relax.reshape")
    if axes is None or ints(axes) != [0, 3, 4, 1, 5, 2] or last is None:
        return None
    n, block, _, c, h, w = inner
    if shape_of(source) != (n, c * block * block, h, w):
        return None
    if shape_of(last.var) != (n, c, h * block, w * block):
        return None
    row = table["depth_to_space"]
    check_limits(row, [source, last.var])
    attrs = {"block_size": block}
    return make_found(row, [start, permuted, last], "nn.depth_to_space", [operand(source)], attrs)


def match_matmul(table: Table, bindings: Bindings, start: Binding) -> Found:
    """Return a product by constant weights, with its bias, or of two computed matrices. Rank 2 is
    TVM's `nn.dense` (weights [O, I]), rank 3 with batch 1 `nn.batch_matmul`."""
    left, right = start.value.args
    rank, weights = len(shape_of(left)), constant_value(right)
    if rank == 2:
        require(len(shape_of(right)) == 2, f"a right operand of rank {len(shape_of(right))}")
        if weights is None:
            raise RefusedError("its weights are computed, expected a constant")
        return _dense(table, bindings, start, weights)
    row = table["batch_matmul"]
    require(rank == 3, f"rank {rank}, expected 2 or 3")
    check_limits(row, [left, start.var])
    if weights is None:
        require(len(shape_of(right)) == 3, f"a right operand of rank {len(shape_of(right))}")
        check_limits(row, [right])
        transpose = transpose_before(bindings, start.value)
        chain = [start] if transpose is None else [transpose, start]
        pair = (operand(left), operand(right if transpose is None else transpose.value.args[0]))
        return make_found(
            row, chain, "nn.batch_matmul", pair, {"transpose_b": int(transpose is not None)}
        )
    require(math.prod(weights.shape[:-2]) == 1, f"weights {weights.shape}, expected one matrix")
    check_limits(row, [right], batched=False)
    turned = np.ascontiguousarray(weights.reshape(weights.shape[-2:]).T)[np.newaxis]
    pair = (operand(left), constant(turned))
    return _append_bias(
        bindings, start, make_found(row, [start], "nn.batch_matmul", pair, {"transpose_b": 1})
    )


def transpose_before(bindings: Bindings, call: Any) -> Binding | None:
    """Return the transpose of the right matrix that the product `call` of rank 3 alone reads."""
    transpose = bindings.producer(call.args[1])
    if (
        transpose is None
        or op_name(transpose.value) != "relax.permute_dims"
        or not bindings.inner(transpose.var)
    ):
        return None
    axes = transpose.value.attrs.axes
    return transpose if axes is not None and ints(axes) == [0, 2, 1] else None


def _dense(table: Table, bindings: Bindings, start: Binding, weights: np.ndarray) -> Found:
    row, left = table["dense"], start.value.args[0]
    check_limits(row, [left, start.value.args[1], start.var])
    rows, units = shape_of(start.var)
    pair = (operand(left), constant(np.ascontiguousarray(weights.T)))
    attrs = {"units": units}
    bias = _bias(bindings, start)
    if rows == 1 and bias is not None:
        added, value = bias
        triple = (*pair, constant(value.reshape(1, units)))
        return make_found(row, [start, added], "nn.dense", triple, attrs)
    return _append_bias(bindings, start, make_found(row, [start], "nn.dense", pair, attrs))


def _append_bias(bindings: Bindings, start: Binding, product: Found) -> Found:
    """Return a product with its bias as an addition of equal shapes, which is what CLML has."""
    bias = _bias(bindings, start)
    if bias is None:
        return product
    added, value = bias
    whole = constant(np.ascontiguousarray(np.broadcast_to(value, shape_of(added.var))))
    name = str(start.var.name)
    plus: ClmlOperator = operator(
        product.row, [added], "openclml.relax.add", (Operand(name=name), whole)
    )
    return Found(
        row=product.row, bindings=(*product.bindings, added), operators=(*product.operators, plus)
    )


def _bias(bindings: Bindings, start: Binding) -> tuple[Binding, np.ndarray] | None:
    """Return the addition of one number a column that follows, and the numbers."""
    added = bindings.next(start, "relax.add")
    if added is None:
        return None
    left, right = added.value.args
    value, columns = constant_value(right if left.same_as(start.var) else left), None
    if value is not None and value.dtype.kind == "f":
        columns = shape_of(start.var)[-1]
    if value is None or value.size != columns or value.shape[-1:] != (columns,):
        return None
    if shape_of(added.var) != shape_of(start.var):
        return None
    return added, value.reshape(-1)


MATCHERS: dict[str, Matcher] = {
    **OPERATORS,
    "relax.reshape": match_reshape,
    "relax.matmul": match_matmul,
}
"""Relax operator -> what finds the pattern that starts with it."""

_ANCHORS = ("relax.nn.conv2d", "relax.nn.conv2d_transpose", "relax.matmul")


@dataclass(frozen=True, kw_only=True)
class Matches:
    """What was found, in execution order, and why the rest was not taken."""

    found: tuple[Found, ...]
    refusals: tuple[Decision, ...]


def find_matches(flat: FlatFunction, table: Table, *, version: int, dtype: str = "") -> Matches:
    """Match every operator of `flat` against the rows that interface `version` has. With a `dtype`,
    rows that lack it are refused: what regions will hold may not be what the model says."""
    bindings = Bindings(flat, version=version)
    claimed: set[relax.Var] = set()
    taken: list[Found] = []
    refusals: list[Decision] = []
    for binding in flat.bindings:
        name = op_name(binding.value)
        if binding.var in claimed or not name or _waits(bindings, binding):
            continue
        subject = str(binding.var.name)
        what = name.removeprefix("relax.")
        matcher = MATCHERS.get(name)
        if matcher is None:
            refusals.append(_refusal(subject, what, "no row of the CLML table has it"))
            continue
        try:
            match = matcher(table, bindings, binding)
        except RefusedError as error:
            refusals.append(_refusal(subject, what, str(error)))
            claimed.update(_epilogue(bindings, binding))
            continue
        if match.row.version > version:
            reason = f"needs CLML {match.row.version}, the target has {version}"
            refusals.append(_refusal(subject, what, reason))
            continue
        if dtype and dtype not in match.row.dtypes:
            refusals.append(_refusal(subject, what, f"{match.row.name} has no {dtype}"))
            continue
        if beyond := _explain_not_half(match) if dtype == "float16" else "":
            refusals.append(_refusal(subject, what, beyond))
            claimed.update(_epilogue(bindings, binding))
            continue
        claimed.update(b.var for b in match.bindings)
        taken.append(match)
    return Matches(found=tuple(taken), refusals=tuple(refusals))


def _explain_not_half(match: Found) -> str:
    """Return why the operators' constants are no halves, empty where they can be."""
    for found in match.operators:
        for read in found.inputs:
            if read.value is not None and (reason := explain_not_half(read.value)):
                return f"{read.name}: {reason}"
    return ""


def _epilogue(bindings: Bindings, binding: Binding) -> Iterator[relax.Var]:
    """Yield what the texture kernel of a refused convolution or product computes on its way: cut
    off from it, a bias or a ReLU alone would cost two copies."""
    if op_name(binding.value) not in _ANCHORS:
        return
    following: Binding | None = binding
    while following is not None:
        following = bindings.next(following, "relax.add", "relax.nn.relu", "relax.clip")
        if following is not None:
            yield following.var


def _refusal(subject: str, what: str, reason: str) -> Decision:
    return Decision(subject=subject, taken=f"{what} stays in textures", reason=reason)


def _waits(bindings: Bindings, binding: Binding) -> bool:
    """Return whether a pad or a transpose will be taken in by what reads it."""
    name = op_name(binding.value)
    if name == "relax.nn.pad":
        conv = bindings.next(binding, "relax.nn.conv2d")
        return conv is not None and padding_before(bindings, conv.value) is not None
    if name == "relax.permute_dims":
        product = bindings.next(binding, "relax.matmul")
        return product is not None and transpose_before(bindings, product.value) is not None
    return False
