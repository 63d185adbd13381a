"""What a runtime is fed, and asked for, held against what the model takes and computes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from adrenoc.base.errors import InputError
from adrenoc.base.text.spelling import list_first


def check_tensor(model: Path, name: str, known: Iterable[str]) -> None:
    """Refuse the name of a tensor that the model does not compute.

    Raises:
        InputError: naming the nearest.
    """
    names = list(known)
    if name in names:
        return
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    raise InputError(
        f"{model} computes no tensor '{name}'",
        hint=f"ask for '{near[0]}'" if near else "list its tensors with netron or onnx",
    )


def select_feeds(
    model: Path, inputs: Mapping[str, np.ndarray], names: list[str]
) -> dict[str, np.ndarray]:
    """Return the arrays of these inputs.

    Raises:
        InputError: one is missing.
    """
    missing = [name for name in names if name not in inputs]
    if missing:
        raise InputError(
            f"{model} takes {list_first(map(repr, names), between=', ')}; there is no array for "
            f"{list_first(map(repr, missing), between=', ')}",
            hint=f"--input {missing[0]}=FILE.npy",
        )
    return {name: inputs[name] for name in names}


def check_feed(model: Path, detail: dict[str, Any], array: np.ndarray) -> None:
    """Refuse an array that LiteRT's input cannot hold.

    Raises:
        InputError: its shape or its type is another.
    """
    shape, dtype = tuple(int(d) for d in detail["shape"]), np.dtype(detail["dtype"])
    if array.shape != shape or array.dtype != dtype:
        raise InputError(
            f"the array for '{detail['name']}' of {model} is {array.dtype} {list(array.shape)}; "
            f"expected {dtype} {list(shape)}",
            hint=f"--input {detail['name']}=FILE.npy with that shape",
        )
