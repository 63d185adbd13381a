"""Whether a bundle was compiled from the model file that it is compared with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from adrenoc.base.errors import BundleError
from adrenoc.base.text.spelling import quote_word
from adrenoc.bundle.bundle import Bundle
from adrenoc.check.generation import TokenCheck
from adrenoc.device.compare import CheckResult
from adrenoc.importers.formats import find_model_files

Checked = TypeVar("Checked", CheckResult, TokenCheck)


def note_other_file(checked: Checked, bundle: Bundle, model: Path) -> Checked:
    """Return a comparison whose note says, first, where `bundle` is not of the file `model`."""
    told = _tell_other_file(bundle, model)
    return replace(checked, note="; ".join(filter(None, (told, checked.note))))


def refuse_other_file(bundle: Bundle, model: Path) -> None:
    """Do nothing where `bundle` was compiled from the file `model`, or one of the same bytes.

    Raises:
        BundleError: it was compiled from another one.
    """
    told = _tell_other_file(bundle, model)
    if told:
        raise BundleError(
            told, hint=f"adrenoc compile {quote_word(model)} --device {bundle.manifest.target.name}"
        )


def _tell_other_file(bundle: Bundle, model: Path) -> str:
    """Say which file `bundle` was compiled from, where that is not `model`; else nothing."""
    own, other = bundle.manifest.model, find_model_files(model).sha256()
    if own.sha256 == other:
        return ""
    return (
        f"{bundle.path} was compiled from {own.file} with SHA-256 {own.sha256[:12]}, {model} has "
        f"{other[:12]}"
    )
