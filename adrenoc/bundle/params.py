"""The packed constants of a bundle as a file of safetensors."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from adrenoc.bundle.manifest import ParamSpec
from adrenoc.bundle.moves import Move
from adrenoc.errors import BundleError

if TYPE_CHECKING:
    import numpy as np


def read_params(
    path: Path, specs: Sequence[ParamSpec], *, where: str, moves: Mapping[str, Move] | None = None
) -> dict[str, np.ndarray]:
    """The constants that `specs` say, by name; `where` names the file in messages.

    Those that `moves` make come of others of the file, which are read for them alone.

    Raises:
        BundleError: the file is damaged, or holds others.
    """
    from safetensors import SafetensorError, safe_open

    hint = "compile the model again: adrenoc compile MODEL --device DEVICE"
    moved = moves or {}
    wanted = {moved[s.name].source if s.name in moved else s.name for s in specs}
    stored: dict[str, np.ndarray] = {}
    try:
        with safe_open(path, framework="numpy") as file:
            for name in sorted(wanted & set(file.keys())):
                stored[name] = file.get_tensor(name)
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        raise BundleError(f"{where} holds no constants: {error}", hint=hint) from error
    loaded = {}
    for spec in specs:
        move = moved.get(spec.name)
        seen = stored.get(spec.name if move is None else move.source)
        if move is not None and seen is not None:
            seen = move.bring(seen, where)
        if seen is None or (seen.shape, str(seen.dtype)) != (spec.shape, spec.dtype):
            found = "nothing" if seen is None else f"{seen.dtype} {list(seen.shape)}"
            raise BundleError(
                f"{where} holds {found} at `{spec.name}`, expected {spec.dtype} {list(spec.shape)}",
                hint=hint,
            )
        loaded[spec.name] = seen
    return loaded


def write_params(path: Path, params: Mapping[str, np.ndarray]) -> None:
    """Write packed constants, by name, as safetensors.

    Raises:
        OSError: it cannot be written.
    """
    import numpy as np
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    # safetensors writes the memory as it lies, strides and all.  `ascontiguousarray` would make
    # scalars arrays of one element.
    dense = {name: np.asarray(array, order="C") for name, array in params.items()}
    try:
        save_file(dense, path)
    except SafetensorError as error:
        # It hides the system's error in its text: "... No space left on device (os error 28)".
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        code = int(number.group(1))
        raise OSError(code, os.strerror(code), str(path)) from error
