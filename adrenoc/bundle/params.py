"""The packed constants of a bundle as a file of safetensors."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from adrenoc.bundle.manifest import ParamSpec
from adrenoc.errors import BundleError

if TYPE_CHECKING:
    import numpy as np


def read_params(path: Path, specs: Sequence[ParamSpec], *, where: str) -> dict[str, np.ndarray]:
    """The constants by name, each as `specs` say; `where` names the file in messages.

    Raises:
        BundleError: the file is damaged, or holds others.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    hint = "compile the model again: adrenoc compile MODEL --device DEVICE"
    try:
        loaded: dict[str, np.ndarray] = load_file(path)
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        raise BundleError(f"{where} holds no constants: {error}", hint=hint) from error
    for spec in specs:
        seen = loaded.get(spec.name)
        if seen is None or (seen.shape, str(seen.dtype)) != (spec.shape, spec.dtype):
            found = "nothing" if seen is None else f"{seen.dtype} {list(seen.shape)}"
            raise BundleError(
                f"{where} holds {found} at `{spec.name}`, expected {spec.dtype} {list(spec.shape)}",
                hint=hint,
            )
    return loaded


def write_params(path: Path, params: Mapping[str, np.ndarray]) -> None:
    """Write packed constants, by name, as safetensors.

    Raises:
        OSError: it cannot be written.
    """
    import numpy as np
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    # safetensors writes the memory as it lies, strides and all.
    dense = {name: np.ascontiguousarray(array) for name, array in params.items()}
    try:
        save_file(dense, path)
    except SafetensorError as error:
        # It hides the system's error in its text: "... No space left on device (os error 28)".
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        code = int(number.group(1))
        raise OSError(code, os.strerror(code), str(path)) from error
