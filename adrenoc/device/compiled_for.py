"""Which GPU a bundle was compiled for, and whether that is the one it runs on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from adrenoc.bundle.manifest import Manifest
from adrenoc.errors import TargetError
from adrenoc.target.target import load_target

# In "QUALCOMM Adreno(TM)" and "OpenCL 3.0 Adreno(TM) 750"; `Adreno 642L` too.
_ADRENO = re.compile(r"Adreno\s*(?:\(TM\))?\s*(\d{3}[a-z]?)\b", re.IGNORECASE)


def adreno_number(facts: Mapping[str, Any]) -> str:
    """The number of an Adreno GPU in what OpenCL tells of it ("750"); empty for another device."""
    for key in ("name", "version"):
        found = _ADRENO.search(str(facts.get(key, "")))
        if found is not None:
            return found[1].lower()
    return ""


def other_gpu_notes(manifest: Manifest, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """A note where a bundle for one Adreno GPU runs on another, with what would be faster.

    Kernels are right on any device that `check_device` lets pass; their tiles are for one.
    """
    seen = adreno_number(facts)
    try:
        wanted = load_target(manifest.target.name).gpu.name
    except TargetError:  # of another version of adrenoc
        wanted = ""
    if not seen or not wanted[:1].isdigit() or wanted == seen:
        return ()
    return (
        f"the kernels were compiled for Adreno {wanted.upper()}, and this is Adreno "
        f"{seen.upper()}: adrenoc compile {manifest.model.file} --device {_device_option(seen)} "
        "makes them for it",
    )


def _device_option(number: str) -> str:
    """What to compile for: the GPU, or where it is not known what fits all."""
    try:
        return load_target(f"adreno:{number}").name
    except TargetError:
        return "adreno"
