"""Operators of Relax that are adrenoc's own: what TVM has none for, and a family computes whole.

Their attributes say the shape and the dtype of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax
from tvm.ir import Call, Op
from tvm.ir import op as registry

from adrenoc.importers.relax.own_nests import (
    append_rows_nest,
    cached_attention_nest,
    inverse_nest,
    n_bits_nest,
)
from adrenoc.importers.relax.recurrent_nest import recurrent_nest

N_BITS = "adrenoc.n_bits"
"""x [..., K] by weights in 2, 4 or 8 bits: bytes, scales and perhaps zero points."""
APPEND_ROWS = "adrenoc.append_rows"
"""A cache [1, heads, rows, head] with the rows of some tokens from a given one on."""
RECURRENT = "adrenoc.recurrent"
"""All steps of an RNN, GRU or LSTM, of what their inputs add to the gates."""
INVERSE = "adrenoc.inverse"
"""The inverse of each matrix [..., rows, rows]."""
CACHED_ATTENTION = "adrenoc.cached_attention"
"""Queries, from a given row on, over the rows of keys and values up to their own."""

_SHAPE, _DTYPE = "result_shape", "result_dtype"
_NESTS = {
    N_BITS: n_bits_nest,
    APPEND_ROWS: append_rows_nest,
    CACHED_ATTENTION: cached_attention_nest,
    INVERSE: inverse_nest,
    RECURRENT: recurrent_nest,
}
"""Operator -> what lowers it to plain loop nests, where its family does not compute it."""


def call_own(
    name: str, inputs: Sequence[relax.Expr], *, shape: Sequence[int], dtype: str, **attrs: Any
) -> relax.Expr:
    """Return a call of one of our operators; attributes are numbers, texts, or lists of numbers."""
    held = {**attrs, _SHAPE: [int(extent) for extent in shape], _DTYPE: dtype}
    return Call(Op.get(name), list(inputs), tvm.ir.make_node("ir.DictAttrs", **held), [])


def _result_type(call: Any, _builder: Any) -> Any:
    return relax.TensorType([int(d) for d in call.attrs[_SHAPE]], str(call.attrs[_DTYPE]))


def _register() -> None:
    for name in set(_NESTS).difference(map(str, Op.list_op_names())):
        registry._ffi_api.RegisterOp(name, "adrenoc's own")
        registry.register_op_attr(name, "FInferType", _result_type)
        registry.register_op_attr(name, "FPurity", True)
        registry.register_op_attr(name, "FLegalize", _NESTS[name])


_register()
