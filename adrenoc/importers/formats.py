"""Tells model formats apart by content, and names the files that make up a model.

Imports neither TVM nor onnx: the compile cache calls this before anything heavy is loaded.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from adrenoc.errors import ModelFormatError, ModelNotFoundError
from adrenoc.importers.onnx_wire import External, TooManyNodesError, WireError, outline

EXPORT_AGAIN = "export or download the model again"
"""What to do about a damaged model."""
_TFLITE_MAGIC = b"TFL3"
_CHUNK_BYTES = 1 << 20


MOST_FILE_BYTES = 2**31 - 1
"""Of a model file, without its data files: both formats count their bytes in 31 bits."""

MOST_DATA_BYTES = 16 << 30
"""That tensors may take in data files: all of it is read, and no phone holds more."""


@dataclass(frozen=True, kw_only=True)
class DataRange:
    """Bytes of a data file that tensors name: `length` of them from `offset` on."""

    path: Path
    offset: int
    length: int


@dataclass(frozen=True, kw_only=True)
class ModelFiles:
    """The format ("onnx" or "tflite") of a model, and its files, the model itself first.

    `data` is what its tensors name of the other files, in order, each byte once.
    """

    format: str
    paths: tuple[Path, ...]
    data: tuple[DataRange, ...] = ()

    def sha256(self) -> str:
        """Digest of the model's file and of what its tensors name of others, in order.

        What else lies in a data file is not read: it may be as long as a disk.
        """
        digest = hashlib.sha256()
        model = self.paths[0]
        ranges = (DataRange(path=model, offset=0, length=model.stat().st_size), *self.data)
        for part in ranges:
            # Names do not change what a model computes; numbers keep two ranges from being read
            # as one.
            begin = f"{part.offset}:" if part.offset else ""
            digest.update(f"{self.paths.index(part.path)}:{begin}{part.length}\n".encode())
            with part.path.open("rb") as file:
                file.seek(part.offset)
                left = part.length
                while left and (chunk := file.read(min(left, _CHUNK_BYTES))):
                    digest.update(chunk)
                    left -= len(chunk)
        return digest.hexdigest()


def find_model_files(path: Path) -> ModelFiles:
    """Recognise the model at `path` by its content and find its external data files.

    Raises:
        ModelNotFoundError: the file, or an external data file that it names, cannot be read.
        ModelFormatError: it is empty, cut off, neither ONNX nor TFLite, or holds more than
            `MOST_FILE_BYTES` itself or `MOST_DATA_BYTES` in data files.
    """
    head = _read_head(path)
    if not head:
        raise ModelFormatError(
            f"{path} is empty (0 bytes); expected an ONNX or a TFLite model",
            hint=EXPORT_AGAIN,
        )
    size = path.stat().st_size
    if size > MOST_FILE_BYTES:
        raise ModelFormatError(
            f"{path} has {size} bytes; expected up to {MOST_FILE_BYTES}, as its format counts them",
            hint="save weights beside it: onnx.save(model, path, save_as_external_data=True)",
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
    places = {name: _external(path, name) for name in sorted({e.file for e in found.external})}
    return ModelFiles(
        format="onnx",
        paths=(path, *places.values()),
        data=tuple(_data_of(path, found.external, places)),
    )


def _data_of(
    model: Path, external: Iterable[External], places: Mapping[str, Path]
) -> Iterator[DataRange]:
    """What tensors name of data files, by file and offset; ranges that meet are one."""
    total = 0
    spans: dict[str, list[tuple[int, int]]] = {name: [] for name in places}
    for tensor in external:
        total += tensor.length
        spans[tensor.file].append((tensor.offset, tensor.offset + tensor.length))
    if total > MOST_DATA_BYTES:
        raise ModelFormatError(
            f"the tensors of {model} take {total} bytes of data files; expected up to "
            f"{MOST_DATA_BYTES}",
            hint=EXPORT_AGAIN,
        )
    for name, path in places.items():
        begin = end = min((first for first, _ in spans[name]), default=0)
        for first, last in sorted(spans[name]):
            if first > end:
                yield DataRange(path=path, offset=begin, length=end - begin)
                begin = first
            end = max(end, last)
        yield DataRange(path=path, offset=begin, length=end - begin)


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
