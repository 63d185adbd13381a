"""Which operators take truth values: those that move, choose, compare or combine them.

All others compute numbers, and LiteRT has no kernel for them that takes bools.

Source: LiteRT 2.3, tried with operands of bool for each operator.
"""

from __future__ import annotations

from collections.abc import Sequence

from adrenoc.base.refused import RefusedError
from adrenoc.importers.tflite.control import CONTROL_OPS
from adrenoc.importers.tflite.file import TensorInfo
from adrenoc.importers.tflite.move import MOVE_OPS
from adrenoc.importers.tflite.slice import SLICE_OPS

_TAKE_BOOLS = frozenset(
    {
        *CONTROL_OPS,
        *(MOVE_OPS.keys() - {"RANGE"}),
        *SLICE_OPS,
        *("ARG_MAX", "ARG_MIN", "CAST", "EQUAL", "NOT_EQUAL", "REDUCE_ALL", "REDUCE_ANY"),
        *("LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR", "SELECT", "SELECT_V2", "ZEROS_LIKE"),
        *("EMBEDDING_LOOKUP", "GATHER", "GATHER_ND", "HASHTABLE_LOOKUP", "STABLEHLO_GATHER"),
        *("MATRIX_DIAG", "MATRIX_SET_DIAG", "ONE_HOT", "SCATTER_ND", "SPARSE_TO_DENSE", "WHERE"),
        "STABLEHLO_PAD",
    }
)


def check_bools(kind: str, operands: Sequence[TensorInfo | None]) -> None:
    """Check that an operator which computes numbers gets no truth values.

    Raises:
        RefusedError: naming the operand.
    """
    if kind in _TAKE_BOOLS:
        return
    for index, info in enumerate(operands):
        if info is not None and info.dtype == "bool":
            raise RefusedError(f"input {index} ('{info.name}') holds bool; {kind} takes numbers")
