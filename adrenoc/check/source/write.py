"""Writes an ONNX model, with its weights beside it where one file cannot hold them."""

from __future__ import annotations

from pathlib import Path

import onnx

from adrenoc.base.files.outputs import output_error, write_atomically
from adrenoc.importers.formats import MOST_FILE_BYTES


def write_model(model: onnx.ModelProto, path: Path) -> None:
    """Write `model` to `path`; weights of more than 2 GiB go to `path`.data.

    Raises:
        OutputError: it cannot be written.
    """
    if model.ByteSize() <= MOST_FILE_BYTES:
        write_atomically(path, model.SerializeToString())
        return
    data = path.with_name(f"{path.name}.data")
    try:
        data.unlink(missing_ok=True)  # onnx appends to it
        onnx.save(model, path, save_as_external_data=True, location=data.name)
    except OSError as error:
        raise output_error(path, error) from error
