"""Tells model formats apart by content, and names the files that make up a model.

Imports no TVM: the compile cache calls this before anything heavy is loaded.

What files are that are neither ONNX nor TFLite, and how to come to one that is.
"""

from __future__ import annotations

import errno
import hashlib
import os
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from adrenoc.base.errors import ModelFormatError, ModelNotFoundError
from adrenoc.base.files.read import open_plain
from adrenoc.base.files.spill import read_aligned
from adrenoc.base.text.spelling import quote_word
from adrenoc.bundle.chat import EMBEDDINGS, TOKENS
from adrenoc.importers.containers import find_embedding, is_container, read_contents
from adrenoc.importers.onnx_wire import (
    External,
    TooManyNodesError,
    WireError,
    external_of,
    read_outline,
)

_TFLITE_MAGIC = b"TFL3"
_ORT_MAGIC = b"ORTM"
_CHUNK_BYTES = 1 << 20


MOST_FILE_BYTES = 2**31 - 1
"""The most bytes of a model file alone: both formats count their bytes in 31 bits."""

MOST_DATA_BYTES = 16 << 30
"""The most bytes of tensors in data files: all of it is read, and no phone holds more."""

MOST_TENSORS_OF_A_BYTE = 8
FREE_DATA_BYTES = 1 << 30
"""Tensors may share a byte of a data file, as tied weights do; each takes memory of its own."""

MOST_HOLE_BYTES = 1 << 30
"""The most bytes of a data file that were never written; weights have none."""


@dataclass(frozen=True, kw_only=True)
class DataRange:
    """Bytes of a data file that tensors name: `length` of them from `offset` on."""

    path: Path
    offset: int
    length: int


@dataclass(frozen=True, kw_only=True)
class ModelFiles:
    """The format ("onnx" or "tflite") of a model, and its files, the model itself first.

    `data` is what its tensors name of the other files, in order, each byte once; `spans` are the
    tensors' own parts of that.  `part` is where the model lies in a container, whose `tokenizer`,
    as it is stored, may lie beside it, and which may say the tokens that end a text (`ends`) and
    the model's checksum (`crc32`, else 0).  `embedding` is the model beside it, whose files are
    among `paths`, that looks up what it takes in place of tokens.  Who needs no digest of what is
    read saves its time (`digested`)."""

    format: str
    paths: tuple[Path, ...]
    data: tuple[DataRange, ...] = ()
    spans: tuple[DataRange, ...] = ()
    part: DataRange | None = None
    tokenizer: DataRange | None = None
    ends: tuple[int, ...] = ()
    crc32: int = 0
    embedding: ModelFiles | None = None
    digested: bool = True

    def sha256(self) -> str:
        """Return the digest of the model's file and of what its tensors name of others, in order.

        Of a file that is all of the model it is the file's own SHA-256.  What else lies in a data
        file is not read: it may be as long as a disk."""
        digest = hashlib.sha256()
        model = self.paths[0]
        whole = DataRange(path=model, offset=0, length=model.stat().st_size)
        for part in (self.part or whole, *self.data):
            digest.update(self._head(part))
            with _open_file(part.path) as file:
                _go_to(file, part.offset)
                left = part.length
                while left and (chunk := file.read(min(left, _CHUNK_BYTES))):
                    digest.update(chunk)
                    left -= len(chunk)
        own = digest.hexdigest()
        return own if self.embedding is None else join_digests(own, self.embedding.sha256())

    @property
    def is_whole(self) -> bool:
        """Return whether the model's file is the model, no more and no less."""
        return len(self.paths) == 1 and self.part is None and not self.data

    def read(self) -> tuple[bytes, str]:
        """Return the model's own file, and the digest (`sha256`) of all that was read for it."""
        content = b""

        def begin(own: OwnBytes) -> TakeData:
            nonlocal content
            content = own.read()
            return lambda span, data: None

        sha256 = self.read_parts(begin)
        return content, sha256

    def read_parts(self, begin: Callable[[OwnBytes], TakeData]) -> str:
        """Read all parts, each once, and return their digest (`sha256`), the embedding's left out;
        nothing where it is not `digested`.

        `begin` reads the model's own file and gives what takes the bytes of each of `spans`.  So
        what is digested is what is compiled, whoever writes to the files meanwhile. Raises
        ModelFormatError where the model has another checksum than its container says."""
        model = self.paths[0]
        with _open_file(model) as file:
            whole = DataRange(path=model, offset=0, length=os.fstat(file.fileno()).st_size)
            own = self.part or whole
            digest = hashlib.sha256(self._head(own)) if self.digested else _NoDigest()
            _go_to(file, own.offset)
            left = OwnBytes(file, own.length, digest, sums=bool(self.crc32))
            take = begin(left)
            left.read()
        if self.crc32 and left.crc32 != self.crc32:
            raise ModelFormatError(
                f"{model} is damaged: its model has the checksum {left.crc32:08x}, and the archive "
                f"says {self.crc32:08x}",
                hint="download it again",
            )
        for part in self.data:
            digest.update(self._head(part))
            with _open_file(part.path) as file:
                for piece, spans in _pieces(part, self.spans):
                    _go_to(file, piece.offset)
                    data = read_aligned(file, piece.length)
                    digest.update(data.data)
                    for span in spans:
                        first = span.offset - piece.offset
                        take(span, data[first : first + span.length])
        return digest.hexdigest()

    def _head(self, part: DataRange) -> bytes:
        # Names do not change what a model computes; numbers keep two ranges from being read as one.
        if self.is_whole:
            return b""
        begin = f"{part.offset}:" if part.offset else ""
        return f"{self.paths.index(part.path)}:{begin}{part.length}\n".encode()


class _NoDigest:
    """What takes the place of a digest that nobody asks for."""

    def update(self, data: bytes | memoryview) -> None:
        """Do nothing."""

    def hexdigest(self) -> str:
        """Return an empty text."""
        return ""


class OwnBytes:
    """The bytes of a model's own file, in order; each counts for the digest as it is read, and
    where it `sums` for the CRC-32."""

    def __init__(
        self, file: BinaryIO, size: int, digest: hashlib._Hash | _NoDigest, *, sums: bool = False
    ) -> None:
        self.left = size
        self.crc32 = 0
        self._file = file
        self._digest = digest
        self._sums = sums

    def peek(self, size: int) -> bytes:
        """Return the next bytes, which stay to be read."""
        found = self._file.read(min(size, self.left))
        self._file.seek(-len(found), os.SEEK_CUR)
        return found

    def read(self, size: int | None = None) -> bytes:
        """Return the next bytes, all that are left without a number; fewer at the end."""
        wanted = self.left if size is None else min(size, self.left)
        data = self._file.read(wanted)
        self._count(wanted, data)
        return data

    def read_array(self, size: int) -> np.ndarray:
        """Return the next bytes in memory that TVM takes as it is; fewer at the end."""
        wanted = min(size, self.left)
        data = read_aligned(self._file, wanted)
        self._count(wanted, data.data)
        return data

    def _count(self, wanted: int, data: bytes | memoryview) -> None:
        self.left -= wanted
        self._digest.update(data)
        if self._sums:
            self.crc32 = zlib.crc32(data, self.crc32)


def join_digests(own: str, embedding: str) -> str:
    """Return the digest of a decoder with its embedding, of the digest of each."""
    return hashlib.sha256(f"{own}{embedding}".encode()).hexdigest()


TakeData = Callable[[DataRange, np.ndarray], None]
"""Takes the bytes of a tensor; fewer than it names where its file ends early."""


def find_model_files(path: Path) -> ModelFiles:
    """Recognise the model at `path` by its content and find its external data files. Raises
    ModelNotFoundError where the file, or an external data file that it names, cannot be read;
    ModelFormatError where it is empty, cut off, neither ONNX nor TFLite, or holds more than
    `MOST_FILE_BYTES` itself or `MOST_DATA_BYTES` in data files."""
    head = _read_head(path)
    if not head:
        raise malformed(f"{path} is empty (0 bytes); expected an ONNX or a TFLite model")
    if is_container(head, path):
        return _find_in_container(path)
    size = path.stat().st_size
    if size > MOST_FILE_BYTES:
        raise ModelFormatError(
            f"{path} has {size} bytes; expected up to {MOST_FILE_BYTES}, as its format counts them",
            hint="save weights beside it: onnx.save(model, path, save_as_external_data=True)",
        )
    if head[4:8] == _TFLITE_MAGIC:
        return ModelFiles(format="tflite", paths=(path,))
    if is_ort(head):
        return ModelFiles(format="onnx", paths=(path,))
    try:
        found = read_outline(path)
    except WireError as error:
        raise ModelFormatError(
            _describe_other(path, head, str(error)), hint=_hint_at_other(path)
        ) from error
    except RecursionError:
        raise malformed(f"{path} holds branches within branches, too deeply to be read") from None
    except TooManyNodesError as error:
        raise malformed(f"{path} has {error}, with those of its branches and loops") from error
    try:
        external = [external_of(tensor) for tensor in found.external]
    except ValueError as error:
        raise malformed(f"the external data of {path} does not fit the model: {error}") from error
    places = {name: _external(path, name) for name in sorted({e.file for e in external})}
    spans = {DataRange(path=places[e.file], offset=e.offset, length=e.length) for e in external}
    data = tuple(_data_of(path, external, places))
    _refuse_repeats(path, sum(e.length for e in external), sum(d.length for d in data))
    _refuse_holes(path, data)
    taken = {port.name for port in found.model.graph.input}
    takes_rows = EMBEDDINGS in taken and TOKENS not in taken
    beside = find_embedding(path) if takes_rows else None
    embedding = None if beside is None else find_model_files(beside)
    others = () if embedding is None else embedding.paths
    return ModelFiles(
        format="onnx",
        paths=(path, *places.values(), *others),
        data=data,
        spans=tuple(sorted(spans, key=_order)),
        embedding=embedding,
    )


def is_ort(head: bytes) -> bool:
    """Return whether a file that begins so is of onnxruntime's own format."""
    return head[4:8] == _ORT_MAGIC


def _find_in_container(path: Path) -> ModelFiles:
    """Return the decoder in a container of LiteRT-LM."""
    with _open_file(path) as file:
        found = read_contents(file, path)
        model = found.model
        _go_to(file, model.offset)
        head = file.read(8)
    if head[4:] != _TFLITE_MAGIC or model.length > MOST_FILE_BYTES:
        raise ModelFormatError(
            f"{path} holds {model.length} bytes as its decoder that begin with {head!r}; expected "
            f"a TFLite model of at most {MOST_FILE_BYTES} bytes",
            hint="download it again",
        )
    at, words = model.offset, found.tokenizer
    return ModelFiles(
        format="tflite",
        paths=(path,),
        part=DataRange(path=path, offset=at, length=model.length),
        tokenizer=None
        if words is None
        else DataRange(path=path, offset=words.offset, length=words.length),
        ends=found.ends,
        crc32=model.crc32,
    )


def _data_of(
    model: Path, external: Iterable[External], places: Mapping[str, Path]
) -> Iterator[DataRange]:
    """Yield what tensors name of data files, by file and offset; ranges that meet are one."""
    total = 0
    spans: dict[str, list[tuple[int, int]]] = {name: [] for name in places}
    for tensor in external:
        total += tensor.length
        spans[tensor.file].append((tensor.offset, tensor.offset + tensor.length))
    if total > MOST_DATA_BYTES:
        raise malformed(
            f"the tensors of {model} take {total} bytes of data files; expected up to "
            f"{MOST_DATA_BYTES}"
        )
    for name, path in places.items():
        begin = end = min((first for first, _ in spans[name]), default=0)
        for first, last in sorted(spans[name]):
            if first > end:
                yield DataRange(path=path, offset=begin, length=end - begin)
                begin = first
            end = max(end, last)
        yield DataRange(path=path, offset=begin, length=end - begin)


def _refuse_repeats(model: Path, taken: int, read: int) -> None:
    """Refuse few bytes that many tensors name: these would take the memory of a model of GiBs."""
    if taken > max(FREE_DATA_BYTES, MOST_TENSORS_OF_A_BYTE * read):
        raise malformed(
            f"the tensors of {model} take {taken} bytes of {read} in data files; expected each "
            f"byte in up to {MOST_TENSORS_OF_A_BYTE} tensors"
        )


def _refuse_holes(model: Path, parts: Iterable[DataRange]) -> None:
    """Refuse data files of which most was never written: reading the holes would take minutes."""
    for part in parts:
        if part.length <= MOST_HOLE_BYTES:
            continue
        with _open_file(part.path) as file:
            holes = _hole_bytes(file.fileno(), part)
        if holes > MOST_HOLE_BYTES:
            raise ModelFormatError(
                f"{holes} of the {part.length} bytes that {model} takes from {part.path} were "
                f"never written: the file has holes",
                hint="download or export the weights again",
            )


def _hole_bytes(descriptor: int, part: DataRange) -> int:
    """Return how many bytes of a part of a file were never written."""
    at, end = part.offset, part.offset + part.length
    holes = 0
    while at < end:
        try:
            data = min(os.lseek(descriptor, at, os.SEEK_DATA), end)
        except OSError:  # no data from here on
            return holes + min(end, max(os.fstat(descriptor).st_size, at)) - at
        holes += data - at
        if data == end:
            break
        at = os.lseek(descriptor, data, os.SEEK_HOLE)
    return holes


def _pieces(
    part: DataRange, spans: Sequence[DataRange]
) -> Iterator[tuple[DataRange, list[DataRange]]]:
    """Yield `part` in pieces that cut through no span, with their spans; those that overlap are in
    one. `spans` are sorted by `_order`, and all that begin in `part` end in it."""
    end = part.offset
    held: list[DataRange] = []

    def piece() -> tuple[DataRange, list[DataRange]]:
        begin = held[0].offset
        return DataRange(path=part.path, offset=begin, length=end - begin), held

    for span in spans[bisect_left(spans, _order(part)[:2], key=lambda s: _order(s)[:2]) :]:
        if span.path != part.path or span.offset >= part.offset + part.length:
            break
        if held and span.offset >= end:
            yield piece()
            held = []
        held.append(span)
        end = max(end, span.offset + span.length)
    if held and end > held[0].offset:
        yield piece()


def _go_to(file: BinaryIO, offset: int) -> None:
    """Go to a byte, or to the end where there is none: systems refuse vast numbers."""
    file.seek(min(offset, os.fstat(file.fileno()).st_size))


def _order(span: DataRange) -> tuple[str, int, int]:
    return str(span.path), span.offset, span.length


def _open_file(path: Path) -> BinaryIO:
    try:
        return open_plain(path)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> ModelNotFoundError:
    hint = f"check the path: ls {quote_word(path.parent)}"
    if error.errno == errno.ENOENT:
        return ModelNotFoundError(f"model file {path} does not exist", hint=hint)
    if error.errno == errno.EISDIR and (path / "manifest.json").is_file():
        return ModelNotFoundError(
            f"{path} is a bundle, which has been compiled; expected a model file",
            hint=f"adrenoc run {quote_word(path)}",
        )
    if error.errno == errno.EISDIR:
        return ModelNotFoundError(f"{path} is a folder; expected a model file", hint=hint)
    return ModelNotFoundError(
        f"model file {path} cannot be read: {error.strerror or error}", hint=hint
    )


def _read_head(path: Path) -> bytes:
    try:
        with _open_file(path) as file:
            return file.read(512)
    except OSError as error:
        raise _unreadable(path, error) from error


def _external(model: Path, name: str) -> Path:
    relative = Path(name)
    if relative.is_absolute() or ".." in relative.parts or not name:
        raise ModelFormatError(
            f"{model} names the external data file '{name}'; expected a path below {model.parent}",
            hint="save the model again with its data file beside it",
        )
    data = model.parent / relative
    try:
        exists, is_file = os.path.lexists(data), data.is_file()
        # Caches of models link both files to a folder of their own.
        folders = {model.parent.resolve(), model.resolve().parent}
        outside = is_file and not folders & set(data.resolve().parents)
    except (OSError, RuntimeError, ValueError):  # too long, or a circle of links
        exists = is_file = outside = False
    if not is_file:
        why = "is no file" if exists else "does not exist"
        raise ModelNotFoundError(
            f"{model} keeps weights in '{name}', but {data} {why}",
            hint=f"put '{name}' into {model.parent}",
        )
    if outside:
        raise ModelFormatError(
            f"{model} keeps weights in '{name}', which is a link to {data.resolve()}; expected a "
            f"file below {model.parent}",
            hint=f"put '{name}' itself into {model.parent}",
        )
    return data


EXPORT_AGAIN = "export or download the model again"
"""What to do about a damaged model."""


def malformed(text: str) -> ModelFormatError:
    """Return the error of a file that is damaged, or of another kind than it says."""
    return ModelFormatError(text, hint=EXPORT_AGAIN)


_GGUF_MAGIC = b"GGUF"


def _describe_other(path: Path, head: bytes, why: str) -> str:
    """Return what a file is by its first bytes; `why` it is no model, where these tell nothing."""
    if head.startswith(b"version https://git-lfs"):
        return f"{path} is a Git LFS pointer, not the model itself"
    if head[:4] == _GGUF_MAGIC:
        return f"{path} is GGUF: weights for llama.cpp, without a graph; expected ONNX or TFLite"
    if path.suffix == ".safetensors":
        return f"{path} is safetensors: weights without a graph; expected ONNX or TFLite"
    if head[:2] == b"PK":
        return f"{path} is a zip archive (a PyTorch checkpoint?); expected ONNX or TFLite"
    text = all(byte >= 0x20 or byte in b"\t\r\n" for byte in head)
    if text:
        start = head[:40].decode("utf-8", "replace").splitlines()[0] if head.strip() else ""
        return f"{path} is a text file (it starts with '{start}'); expected ONNX or TFLite"
    return f"{path} is neither a whole ONNX file nor a TFLite file: {why}"


def _hint_at_other(path: Path) -> str:
    """Return what to do about a file by its name."""
    suffix = path.suffix.lower()
    if suffix in (".gguf", ".safetensors"):
        return (
            "export the checkpoint that it comes from: optimum-cli export onnx --model NAME FOLDER"
        )
    if suffix in (".pt", ".pth", ".ckpt"):
        return "export it first: torch.onnx.export(model, inputs, 'model.onnx')"
    if suffix in (".pb", ".h5", ".keras"):
        return "convert it first: tf.lite.TFLiteConverter"
    return f"{EXPORT_AGAIN}; `git lfs pull` if it comes from a repository"
