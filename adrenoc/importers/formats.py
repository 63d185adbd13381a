"""Tells model formats apart by content, and names the files that make up a model.

Imports neither TVM nor onnx: the compile cache calls this before anything heavy is loaded.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from adrenoc.errors import ModelFormatError, ModelNotFoundError
from adrenoc.importers.onnx_wire import TooManyNodesError, WireError, outline

EXPORT_AGAIN = "export or download the model again"
"""What to do about a damaged model."""
_TFLITE_MAGIC = b"TFL3"
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class ModelFiles:
    """The format ("onnx" or "tflite") of a model, and its files, the model itself first."""

    format: str
    paths: tuple[Path, ...]

    def sha256(self) -> str:
        """Digest of the names and the content of all files, in order."""
        digest = hashlib.sha256()
        for index, path in enumerate(self.paths):
            # The model's own name does not change what it computes; those of its data files do
            # not either, but they keep two files from being read as one.
            digest.update(f"{index}:{path.stat().st_size}\n".encode())
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK_BYTES):
                    digest.update(chunk)
        return digest.hexdigest()


def find_model_files(path: Path) -> ModelFiles:
    """Recognise the model at `path` by its content and find its external data files.

    Raises:
        ModelNotFoundError: the file, or an external data file that it names, cannot be read.
        ModelFormatError: it is empty, cut off, or neither ONNX nor TFLite.
    """
    head = _read_head(path)
    if not head:
        raise ModelFormatError(
            f"{path} is empty (0 bytes); expected an ONNX or a TFLite model",
            hint=EXPORT_AGAIN,
        )
    if head[4:8] == _TFLITE_MAGIC:
        return ModelFiles(format="tflite", paths=(path,))
    try:
        found = outline(path)
    except WireError as error:
        raise ModelFormatError(
            _not_a_model(path, head, str(error)), hint=_format_hint(path)
        ) from error
    except TooManyNodesError as error:
        raise ModelFormatError(
            f"{path} has {error} with those of its branches and loops", hint=EXPORT_AGAIN
        ) from error
    if not found.has_graph:
        raise ModelFormatError(
            _not_a_model(path, head, "it holds no graph"), hint=_format_hint(path)
        )
    return ModelFiles(
        format="onnx", paths=(path, *(_external(path, n) for n in sorted(found.external_files)))
    )


def _read_head(path: Path) -> bytes:
    hint = "check the path: ls " + str(path.parent)
    if path.is_dir():
        raise ModelNotFoundError(f"{path} is a folder; expected a model file", hint=hint)
    try:
        with path.open("rb") as file:
            return file.read(512)
    except FileNotFoundError as error:
        raise ModelNotFoundError(f"model file {path} does not exist", hint=hint) from error
    except OSError as error:
        raise ModelNotFoundError(
            f"model file {path} cannot be read: {os.strerror(error.errno or 0)}", hint=hint
        ) from error


def _external(model: Path, name: str) -> Path:
    relative = Path(name)
    if relative.is_absolute() or ".." in relative.parts or not name:
        raise ModelFormatError(
            f"{model} names the external data file '{name}'; expected a path below {model.parent}",
            hint="save the model again with its data file beside it",
        )
    data = model.parent / relative
    try:
        is_file = data.is_file()
    except OSError:  # its name is too long
        is_file = False
    if not is_file:
        raise ModelNotFoundError(
            f"{model} keeps weights in '{name}', but {data} does not exist",
            hint=f"put '{name}' into {model.parent}",
        )
    return data


def _not_a_model(path: Path, head: bytes, why: str) -> str:
    if head.startswith(b"version https://git-lfs"):
        return f"{path} is a Git LFS pointer, not the model itself"
    if head[:2] == b"PK":
        return f"{path} is a zip archive (a PyTorch checkpoint?); expected ONNX or TFLite"
    text = all(byte >= 0x20 or byte in b"\t\r\n" for byte in head)
    if text:
        start = head[:40].decode("utf-8", "replace").splitlines()[0] if head.strip() else ""
        return f"{path} is a text file (it starts with '{start}'); expected ONNX or TFLite"
    return f"{path} is neither a whole ONNX file nor a TFLite file: {why}"


def _format_hint(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix in (".pt", ".pth", ".ckpt"):
        return "export it first: torch.onnx.export(model, inputs, 'model.onnx')"
    if suffix in (".pb", ".h5", ".keras"):
        return "convert it first: tf.lite.TFLiteConverter"
    return f"{EXPORT_AGAIN}; `git lfs pull` if it comes from a repository"
