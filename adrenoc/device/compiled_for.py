"""Which GPU a bundle was compiled for, and whether that is the one it runs on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from adrenoc.base.errors import BundleError, TargetError
from adrenoc.base.text.spelling import quote_word
from adrenoc.bundle.bundle import TARGET, Bundle
from adrenoc.ir.options import DEFAULT_PRESET, list_entered
from adrenoc.target.device_report import load_listed
from adrenoc.target.own_file import OwnFile, is_for_host, own_path
from adrenoc.target.target import Target, load_own_target, load_target

# In "QUALCOMM Adreno(TM)" and "OpenCL 3.0 Adreno(TM) 750"; `Adreno 642L` too, `Adreno X1-85`, and
# Mesa's `FD750`.
_ADRENO = re.compile(r"(?:Adreno\s*(?:\(TM\))?\s*|^FD)(\d{3}[a-z]?|X\d-\d\d)\b", re.IGNORECASE)


def adreno_number(facts: Mapping[str, Any]) -> str:
    """Return the number of an Adreno GPU in what OpenCL tells of it ("750"); empty for another
    device."""
    for key in ("name", "version"):
        found = _ADRENO.search(str(facts.get(key, "")))
        if found is not None:
            return found[1].lower()
    return ""


def target_of(bundle: Bundle) -> Target:
    """Return what a bundle was compiled for: a listed device, or the target file that lies in it.

    Raises:
        TargetError: this version of adrenoc knows no such device, or the file is wrong.
        BundleError: the file is not there.
    """
    name = bundle.manifest.target.name
    path = own_path(name)
    if path is None:
        return load_target(name)
    if TARGET not in {entry.path for entry in bundle.manifest.files}:
        raise BundleError(
            f"{bundle.path} was compiled for the target file {path.name}, and holds no {TARGET}",
            hint=compile_again(bundle, quote_word(path.name)),
        )
    file = OwnFile.read(bundle.root / TARGET, name=path.name)
    return load_own_target(file, host=is_for_host(name))


def compile_again(bundle: Bundle, device: str) -> str:
    """Return the command that compiles the model of a bundle, entered as it was, for a device."""
    options = bundle.manifest.options
    words = [f"adrenoc compile {quote_word(bundle.manifest.model.file)} --device {device}"]
    if options.preset != DEFAULT_PRESET:
        words.append(f"--preset {quote_word(options.preset)}")
    entered = (options.values.get(key, ()) for key in ("shapes", "fixed"))
    return " ".join([*words, *list_entered(*entered)])


def twin_name(bundle: Bundle) -> str:
    """Return the device to compile for, so that this computer has the kernels of a bundle."""
    try:
        return target_of(bundle).host_name
    except (TargetError, BundleError):  # of another version of adrenoc
        return "host"


def other_gpu_notes(bundle: Bundle, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a note where a bundle for one Adreno GPU runs on another, with what would be faster.

    Kernels are right on any device that `check_device` lets pass; their tiles are for one.
    """
    seen = adreno_number(facts)
    try:
        wanted = target_of(bundle).gpu.name
    except (TargetError, BundleError):  # of another version of adrenoc
        wanted = ""
    if not seen or not wanted[:1].isdigit() or wanted == seen:
        return ()
    return (
        f"the kernels were compiled for Adreno {wanted.upper()}, and this is Adreno "
        f"{seen.upper()}: {compile_again(bundle, load_listed(seen).name)} makes them for it",
    )
