"""Operators that are read as simpler ones where they cannot stay whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adrenoc.passes.read.expand_norm import NORMS
from adrenoc.passes.read.expand_transposed import expand_transposed

_EXPANSIONS: dict[str, Callable[[Any, str], Any]] = {
    **NORMS,
    "relax.nn.conv2d_transpose": expand_transposed,
}


def expand_call(call: Any, operator: str, name: str) -> Any | None:
    """Return a function of the call's arguments, of parts; None where TVM's own lowering is taken.

    `name` is what the call is bound to.
    """
    expand = _EXPANSIONS.get(operator)
    return None if expand is None else expand(call, name)
