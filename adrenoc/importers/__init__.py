"""Model files to Relax IR: `import_model` recognises the format and calls the right importer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adrenoc.importers.formats import ModelFiles, find_model_files

if TYPE_CHECKING:
    from adrenoc.importers.imported import Imported

__all__ = ["ModelFiles", "find_model_files", "import_model"]


def import_model(
    path: Path,
    *,
    shapes: Mapping[str, tuple[int, ...]],
    states: Sequence[tuple[str, str]] = (),
    caches: Sequence[tuple[str, str]] = (),
    recurrent: Sequence[tuple[str, str]] = (),
    fixed: Sequence[tuple[str, str]] = (),
    signature: str = "",
    digested: bool = True,
) -> Imported:
    """Import the ONNX or TFLite model at `path`; `shapes` fixes its dynamic dimensions.

    `states` are inputs, each with the output that it is in the next run; `caches` those of a
    decoder, whose past grows from run to run in the file and is made memory of fixed rows. `fixed`
    are inputs that are constants, each with its value as `--fix` has it; `signature` names one of a
    TFLite file that has several.  Without `digested` there is no `model_sha256`. Raises
    ModelNotFoundError or ModelFormatError as `find_model_files` does; CustomDomainError or
    UnsupportedOperatorError with every node that cannot be imported; ShapeError where a shape is
    missing, unknown or does not fit; OptionError where an input that is fixed is unknown, or takes
    no such value."""
    from dataclasses import replace

    from adrenoc.importers.index_bounds import find_bounds

    files = replace(find_model_files(path), digested=digested)
    entry: dict[str, Any] = {"fixed": fixed, "signature": signature}
    if files.format == "tflite":
        from adrenoc.importers.tflite.importer import import_tflite

        imported = import_tflite(files, shapes=shapes, states=states, caches=caches, **entry)
    else:
        from adrenoc.importers.onnx.importer import import_onnx

        said = {"states": states, "caches": caches, "recurrent": recurrent, "fixed": fixed}
        imported = import_onnx(files, shapes=shapes, **said)
    return replace(imported, inputs=find_bounds(imported.module, imported.inputs))
