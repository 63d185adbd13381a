"""Find in a Relax function what CLML computes, by the rows of the pattern table.

Operators are tried in execution order, and each takes in what may be fused behind it, so the
longest pattern wins.  What is refused is a Decision with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tvm import relax

from adrenoc.base.decision import Decision
from adrenoc.base.refused import RefusedError
from adrenoc.clml.found import Bindings, Found
from adrenoc.clml.match_conv import match_conv2d, match_conv2d_transpose, padding_before
from adrenoc.clml.match_shape import match_matmul, match_reshape, transpose_before
from adrenoc.clml.match_simple import (
    match_adaptive_pool,
    match_batch_norm,
    match_binary,
    match_clip,
    match_concat,
    match_global_pool,
    match_pad,
    match_pool,
    match_relu,
    match_softmax,
    match_upsampling,
)
from adrenoc.clml.patterns import Table
from adrenoc.importers.relax.flat import Binding, FlatFunction
from adrenoc.importers.relax.values import op_name
from adrenoc.ir.half import explain_not_half

Matcher = Callable[[Table, Bindings, Binding], Found]

MATCHERS: dict[str, Matcher] = {
    "relax.nn.conv2d": match_conv2d,
    "relax.nn.conv2d_transpose": match_conv2d_transpose,
    "relax.nn.batch_norm": match_batch_norm,
    "relax.nn.relu": match_relu,
    "relax.clip": match_clip,
    "relax.nn.max_pool2d": match_pool,
    "relax.nn.avg_pool2d": match_pool,
    "relax.nn.adaptive_avg_pool2d": match_adaptive_pool,
    "relax.mean": match_global_pool,
    "relax.max": match_global_pool,
    "relax.nn.softmax": match_softmax,
    "relax.reshape": match_reshape,
    "relax.concat": match_concat,
    "relax.nn.pad": match_pad,
    "relax.matmul": match_matmul,
    "relax.image.resize2d": match_upsampling,
    **dict.fromkeys(
        (
            "relax.add",
            "relax.subtract",
            "relax.multiply",
            "relax.divide",
            "relax.maximum",
            "relax.minimum",
        ),
        match_binary,
    ),
}
"""Relax operator -> what finds the pattern that starts with it."""

_ANCHORS = ("relax.nn.conv2d", "relax.nn.conv2d_transpose", "relax.matmul")


@dataclass(frozen=True, kw_only=True)
class Matches:
    """What was found, in execution order, and why the rest was not taken."""

    found: tuple[Found, ...]
    refusals: tuple[Decision, ...]


def find_matches(flat: FlatFunction, table: Table, *, version: int, dtype: str = "") -> Matches:
    """Match every operator of `flat` against the rows that interface `version` has.

    With a `dtype`, rows that lack it are refused: what regions will hold may not be what the
    model says.
    """
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
    for operator in match.operators:
        for operand in operator.inputs:
            if operand.value is not None and (reason := explain_not_half(operand.value)):
                return f"{operand.name}: {reason}"
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
