"""Paths as TVM and its runtime take them: in UTF-8 alone."""

from __future__ import annotations

import os
from pathlib import Path

from adrenoc.base.errors import OptionError

OTHER_CACHE_FOLDER = "export ADRENOC_CACHE_DIR=/a/folder/of/yours"
"""What to type where the cache folder is none that can be used."""


def spell_native_path(path: Path, *, hint: str) -> str:
    """Return the path in Unicode, whatever the locale reads its bytes as.

    Raises:
        OptionError: its bytes are not UTF-8.
    """
    try:
        return os.fsencode(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise OptionError(
            f"the path {path} is not UTF-8, which is all that TVM can open", hint=hint
        ) from error
