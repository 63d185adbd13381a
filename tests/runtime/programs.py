"""What a test gives to a program of the runtime, and how that ended."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Finished:
    """How a program ended."""

    code: int
    out: str
    err: str

    def json(self) -> dict[str, Any]:
        """What it printed, parsed."""
        found: dict[str, Any] = json.loads(self.out)
        return found


@dataclass(frozen=True, kw_only=True)
class Case:
    """Inputs as files, and the outputs that Python computed from them."""

    arrays: dict[str, np.ndarray]
    files: dict[str, Path]
    outputs: dict[str, np.ndarray]
