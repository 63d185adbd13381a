"""Where models lie: in containers of language models in TFLite, and in folders of their makers.

Imports neither TVM nor onnx, and opens nothing but the container's list of contents.

FOLDER/config.json, tokenizer.json, preprocessor_config.json
FOLDER/onnx/model.onnx, model_fp16.onnx, model_q4.onnx

A vision-language model is in parts: onnx/embed_tokens*.onnx looks tokens up, decoder_model_merged*
or decoder* takes what it gives.

Source: LiteRT-LM, `litertlm_header_schema.fbs` (`.litertlm`), `model_resources_task.cc` (`.task`).
"""

import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import flatbuffers

from adrenoc.base.decision import Decision
from adrenoc.base.errors import ModelFormatError, ModelNotFoundError, OptionError
from adrenoc.base.files.read import read_plain
from adrenoc.base.text.json_text import read_json
from adrenoc.base.text.spelling import did_you_mean, list_first, printable, quote_word
from adrenoc.importers.onnx_wire import WireError, read_varint, walk_fields

LITERTLM, ZIP = b"LITERTLM", b"PK\x03\x04"

_TASK_MODEL = "TF_LITE_PREFILL_DECODE"
_MODEL_TYPE, _PREFILL_DECODE = "model_type", "prefill_decode"
_MAJOR_VERSION = 1
_HEADER_AT, _MOST_HEADER_BYTES, _MOST_SECTIONS = 32, 1 << 20, 1000
_MOST_TOKENIZER_BYTES = 256 << 20
_KINDS = {
    3: "a TFLite model",
    4: "a SentencePiece tokeniser",
    5: "metadata",
    6: "a tokenizer.json",
    7: "weights",
}
_MODEL, _SENTENCES, _METADATA, _TOKENIZER, _WEIGHTS = _KINDS
_STOP_TOKENS = 2
"""The field of the metadata that has them."""
_TEXT = 9
"""The number of a text among the values that a section's words may have."""
_LOCAL_HEADER = struct.Struct("<4s22xHH")
_DOWNLOAD = "download it again"

_DAMAGE = (struct.error, IndexError, ValueError, TypeError, AttributeError, OverflowError)
"""What the flatbuffers runtime raises on an offset that leads out of the header."""
_NO_ARCHIVE = (zipfile.BadZipFile, NotImplementedError, OSError, *_DAMAGE)
"""What Python's zip reader raises, and a seek to where it says that something lies."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a container: its kind as the schema numbers it, what it is of, its bytes, and the
    CRC-32 of these; 0 where the container says none."""

    kind: int
    model_type: str
    offset: int
    length: int
    crc32: int = 0


@dataclass(frozen=True, kw_only=True)
class Contents:
    """Where the decoder lies, and where there are some its tokenizer.json, compressed, and the
    tokens that end a text."""

    model: Section
    tokenizer: Section | None = None
    ends: tuple[int, ...] = ()


def is_container(head: bytes, path: Path) -> bool:
    """Return whether a file is one by its first bytes; a zip archive is if it is called `.task`."""
    is_task = head.startswith(ZIP[:2]) and path.suffix.lower() == ".task"
    return head.startswith(LITERTLM) or is_task


def read_contents(file: BinaryIO, path: Path) -> Contents:
    """Find the decoder in an open container. Raises ModelFormatError where it is damaged, or holds
    none that lies in one piece."""
    file.seek(0)
    if file.read(len(LITERTLM)) != LITERTLM:
        return Contents(model=_find_in_task(file, path))
    try:
        sections = list(_read_sections(file))
    except _DAMAGE as error:
        raise ModelFormatError(
            f"{path} is damaged or cut off: its list of sections cannot be read: {error}",
            hint=_DOWNLOAD,
        ) from error
    outside = [s for s in sections if s.kind == _WEIGHTS and _is_decoder(s)]
    if outside:
        raise ModelFormatError(
            f"{path} keeps the weights of its decoder in a section of their own; expected them in "
            "the TFLite model",
            hint="build the container without external weights",
        )
    models = [s for s in sections if s.kind == _MODEL]
    chosen = [s for s in models if _is_decoder(s)] or models
    if len(chosen) != 1:
        kinds = [
            f"{_KINDS.get(s.kind, 'other data')} {printable(s.model_type)}".strip()
            for s in sections
        ]
        raise ModelFormatError(
            f"{path} holds {len(chosen)} models that may be its decoder, expected one "
            f"({_PREFILL_DECODE}); its sections are {list_first(kinds, between=', ')}",
            hint="build the container with one decoder",
        )
    tokenizers = [s for s in sections if s.kind == _TOKENIZER]
    told = [s for s in sections if s.kind == _METADATA and s.length <= _MOST_HEADER_BYTES]
    return Contents(
        model=chosen[0],
        tokenizer=tokenizers[0] if len(tokenizers) == 1 else None,
        ends=tuple(token for s in told for token in _read_ends(file, s)),
    )


def open_tokenizer(stored: bytes, path: Path) -> bytes:
    """Return the text of a tokenizer.json as a container stores it: its length, then zlib's bytes.
    Raises ModelFormatError where it is no such thing."""
    length = int.from_bytes(stored[:8], "little")
    if length <= _MOST_TOKENIZER_BYTES:
        try:
            text = zlib.decompressobj().decompress(stored[8:], length + 1)
        except zlib.error:
            text = b""
        if text and len(text) == length:
            return text
    raise ModelFormatError(
        f"{path} is damaged: its tokenizer.json cannot be decompressed", hint=_DOWNLOAD
    )


def _read_ends(file: BinaryIO, section: Section) -> Iterator[int]:
    """Yield the stop tokens of metadata, but for those that are several tokens or a text."""
    file.seek(section.offset)
    content = file.read(section.length)

    def parts(begin: int, end: int, number: int) -> list[tuple[int, int]]:
        return [(a, b) for n, a, b in walk_fields(content, begin, end) if n == number and a >= 0]

    try:
        for union in parts(0, len(content), _STOP_TOKENS):
            for ids in parts(*union, 1):
                packed = parts(*ids, 1)
                tokens = [] if len(packed) != 1 else _read_packed(content, *packed[0])
                if len(tokens) == 1:
                    yield tokens[0]
    except WireError:
        return  # a text without an end is better than none


def _read_packed(content: bytes, begin: int, end: int) -> list[int]:
    found = []
    while begin < end:
        value, begin = read_varint(content, begin, end)
        found.append(value)
    return found


def _is_decoder(section: Section) -> bool:
    return section.model_type.lower().endswith(_PREFILL_DECODE)


def _find_in_task(file: BinaryIO, path: Path) -> Section:
    """Return the decoder of a zip archive, which is stored as it is, so that phones can map it."""
    try:
        with zipfile.ZipFile(file) as archive:
            entries = {entry.filename: entry for entry in archive.infolist()[:_MOST_SECTIONS]}
        found = entries.get(_TASK_MODEL)
        file.seek(0 if found is None else found.header_offset)
        header = file.read(_LOCAL_HEADER.size)
        size = file.seek(0, os.SEEK_END)
    except _NO_ARCHIVE as error:
        raise ModelFormatError(f"{path} is damaged or cut off: {error}", hint=_DOWNLOAD) from error
    if found is None:
        raise ModelFormatError(
            f"{path} holds no language model ({_TASK_MODEL}); its entries are "
            f"{list_first(map(printable, entries), between=', ')}",
            hint=f"unzip {quote_word(path)}, and compile the .tflite files in it",
        )
    if found.compress_type != zipfile.ZIP_STORED or len(header) < _LOCAL_HEADER.size:
        raise ModelFormatError(
            f"{path} holds {_TASK_MODEL} compressed, expected it stored as it is",
            hint=f"unzip {quote_word(path)} {_TASK_MODEL}, and compile that",
        )
    magic, name, extra = _LOCAL_HEADER.unpack(header)
    begin = found.header_offset + len(header) + name + extra
    if magic != ZIP or begin + found.file_size > size:
        raise ModelFormatError(f"{path} is damaged or cut off", hint=_DOWNLOAD)
    return Section(
        kind=_MODEL,
        model_type=_PREFILL_DECODE,
        offset=begin,
        length=found.file_size,
        crc32=found.CRC,
    )


def _read_sections(file: BinaryIO) -> Iterator[Section]:
    size = os.fstat(file.fileno()).st_size
    file.seek(len(LITERTLM))
    major, _minor, _patch, end = struct.unpack("<III4xQ", file.read(_HEADER_AT - len(LITERTLM)))
    if major != _MAJOR_VERSION:
        raise ValueError(f"version {major} of its format, expected {_MAJOR_VERSION}")
    if not _HEADER_AT < end <= min(size, _MOST_HEADER_BYTES):
        raise ValueError(f"it ends at byte {end} of {size}")
    header = file.read(end - _HEADER_AT)
    listed = _table(_root(header), 1)
    objects = None if listed is None else _vector(listed, 0)
    for section in objects or ():
        kind, begin, last = _byte(section, 3), _long(section, 1), _long(section, 2)
        if not 0 <= begin <= last <= size:
            raise ValueError(f"a section from byte {begin} to {last} of {size}")
        words = {_string(word, 0): word for word in _vector(section, 0) or ()}
        said = words.get(_MODEL_TYPE)
        text = None if said is None or _byte(said, 1) != _TEXT else _table(said, 2)
        yield Section(
            kind=kind,
            model_type="" if text is None else _string(text, 0),
            offset=begin,
            length=last - begin,
        )


# Flatbuffers by the number of a field, as the schema orders them


def _root(header: bytes) -> Any:
    at = int.from_bytes(header[:4], "little")
    return flatbuffers.table.Table(bytearray(header), at)


def _slot(table: Any, field: int) -> int:
    offset = table.Offset(4 + 2 * field)
    return int(offset) + int(table.Pos) if offset else 0


def _table(table: Any, field: int) -> Any:
    at = _slot(table, field)
    return flatbuffers.table.Table(table.Bytes, table.Indirect(at)) if at else None


def _vector(table: Any, field: int) -> list[Any] | None:
    at = _slot(table, field)
    if not at:
        return None
    offset = at - table.Pos
    count = table.VectorLen(offset)
    if count > _MOST_SECTIONS:
        raise ValueError(f"a list of {count}")
    first = table.Vector(offset)
    return [
        flatbuffers.table.Table(table.Bytes, table.Indirect(first + 4 * i)) for i in range(count)
    ]


def _byte(table: Any, field: int) -> int:
    at = _slot(table, field)
    return int(table.Get(flatbuffers.number_types.Uint8Flags, at)) if at else 0


def _long(table: Any, field: int) -> int:
    at = _slot(table, field)
    return int(table.Get(flatbuffers.number_types.Uint64Flags, at)) if at else 0


def _string(table: Any, field: int) -> str:
    at = _slot(table, field)
    return bytes(table.String(at)).decode("utf-8") if at else ""


_ENDINGS = {
    "_fp16": "fp16",
    "_int8": "int8",
    "_uint8": "uint8",
    "_quantized": "q8",
    "_q8": "q8",
    "_q4": "q4",
    "_q4f16": "q4f16",
    "_bnb4": "bnb4",
}
"""How the name of a file ends -> what is asked for."""
CONFIG, PREPROCESSOR = "config.json", "preprocessor_config.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
"""What the makers of a model write beside it."""
_EXPORTS = "onnx"
_USUAL = "model"
_EMBEDDING = "embed_tokens"
_DECODERS = ("decoder_model_merged", "decoder")
"""What is meant of a folder whose models are parts of one."""
_SUFFIXES = (".onnx", ".ort", ".tflite")
_MOST_BYTES = 8 << 20
"""A tokenizer_config.json lists its added tokens, of which some models have thousands."""


def folders_beside(model: Path) -> Iterator[Path]:
    """Yield the model's folder, and that above it where it lies in one of exports."""
    yield model.parent
    if model.absolute().parent.name == _EXPORTS:
        yield model.absolute().parent.parent


def find_beside(model: Path, name: str) -> Path | None:
    """Return the file of this name beside a model, or one folder up; None where there is none."""
    places = (folder / name for folder in folders_beside(model))
    return next((place for place in places if place.is_file()), None)


def read_beside(model: Path, name: str, decisions: list[Decision] | None = None) -> dict[str, Any]:
    """Return the table in a JSON file beside a model, or one folder up; empty where there is none.
    A damaged file says nothing, with a Decision where these are asked for."""
    path = find_beside(model, name)
    if path is None:
        return {}
    try:
        held = read_json(read_plain(path, _MOST_BYTES))
    except (OSError, ValueError) as error:
        if decisions is not None:
            decisions.append(Decision(subject=name, taken="left out", reason=str(error)))
        return {}
    return held if isinstance(held, dict) else {}


def table_of(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the table that a table holds; an empty one where it holds something else."""
    found = table.get(key)
    return found if isinstance(found, dict) else {}


def find_embedding(model: Path) -> Path | None:
    """Return the model beside a decoder that looks its tokens up; None where there is none. Of
    several it is the one of the decoder's numbers, else of the most precise."""
    base, own = _split_stem(model.stem)
    if base == _EMBEDDING:
        return None
    files = sorted(model.parent.glob(f"{_EMBEDDING}*.onnx"))
    split = ((_split_stem(file.stem), file) for file in files)
    kinds = {kind: file for (name, kind), file in split if name == _EMBEDDING}
    return next((kinds[one] for one in (own, "fp32", "fp16", *kinds) if one in kinds), None)


def choose_model(path: Path, dtype: str = "") -> Path:
    """Return the model file of a folder, of the numbers that are asked for, or a file as it is.
    Raises ModelNotFoundError where the folder has no model; OptionError where it has none of such
    numbers, or several models; or numbers are asked for of a file that is named."""
    if not _is_folder(path) or (path / "manifest.json").is_file():
        if dtype:
            raise OptionError(
                f"--dtype {dtype} chooses a file of a folder; {path} is no folder of models",
                hint=f"adrenoc compile {quote_word(path.parent)} --dtype {dtype}",
            )
        return path
    folder = path / _EXPORTS if (path / _EXPORTS).is_dir() else path
    found = sorted(file for file in folder.iterdir() if file.suffix.lower() in _SUFFIXES)
    if not found:
        inner = [part.name for part in sorted(path.iterdir()) if _holds_model(part)]
        if inner:  # a pipeline, as diffusers and optimum export it
            raise ModelNotFoundError(
                f"{path} holds models in folders of their own: {', '.join(inner)}; expected one",
                hint=f"compile each: adrenoc compile {quote_word(path / inner[0])}",
            )
        raise ModelNotFoundError(
            f"{path} is a folder without a model; expected a model file, or a folder with one "
            f"({', '.join(_SUFFIXES)}), or with {_EXPORTS}/ in it",
            hint=f"check the path: ls {quote_word(path)}",
        )
    models: dict[str, dict[str, Path]] = {}
    for file in found:
        base, kind = _split_stem(file.stem)
        models.setdefault(base, {})[kind] = file
    parts = _DECODERS if _EMBEDDING in models else ()
    usual = next((name for name in (_USUAL, *parts) if name in models), "")
    if len(models) > 1 and not usual:
        listed = list_first((file.name for file in found), between=", ")
        raise OptionError(
            f"{folder} holds {len(models)} models: {listed}; expected one, or one called {_USUAL}",
            hint=f"name one: adrenoc compile {quote_word(found[0])}",
        )
    kinds = models.get(usual) or next(iter(models.values()))
    return _choose(folder, kinds, dtype)


def _holds_model(path: Path) -> bool:
    return _is_folder(path) and any(file.suffix.lower() in _SUFFIXES for file in path.iterdir())


def _is_folder(path: Path) -> bool:
    """Return whether it is a folder that may be looked at; who reads the rest says why not."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _choose(folder: Path, kinds: dict[str, Path], dtype: str) -> Path:
    if not dtype and (len(kinds) == 1 or "fp32" in kinds):
        return kinds.get("fp32") or next(iter(kinds.values()))
    if dtype in kinds:
        return kinds[dtype]
    asked = f"none of {dtype}{did_you_mean(dtype, list(kinds))}" if dtype else "none of fp32"
    raise OptionError(
        f"{folder} holds a model of {', '.join(kinds)}, and {asked}",
        hint=f"--dtype {next(iter(kinds))}",
    )


def _split_stem(stem: str) -> tuple[str, str]:
    """Return the model's name, and of which numbers it is."""
    for ending, kind in _ENDINGS.items():
        if stem.endswith(ending):
            return stem.removesuffix(ending), kind
    return stem, "fp32"
