"""The versioned schema of what a bundle promises: `manifest.json` as frozen dataclasses.

Nothing in it depends on time, place or machine: identical input gives identical bytes.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from adrenoc.base.errors import BundleError
from adrenoc.base.files.read import read_plain
from adrenoc.base.text import names
from adrenoc.base.text.json_text import RecordReader, mark_name, read_json

SCHEMA_VERSION = 3
DEFLATED_VERSION = 4
"""Of manifests with files that are stored deflated: in tar files for apps alone."""

# The most that DEFLATE makes of one byte.
_MOST_OF_ONE_BYTE = 1032

REBUILD_HINT = "compile the model again: adrenoc compile MODEL --device DEVICE"
_NOT_IN_JSON = {"json": False}
MAY_BE_LEFT_OUT = {"default": True}

T = TypeVar("T")


_DECODER = RecordReader(lambda where, what: BundleError(f"{where} {what}", hint=REBUILD_HINT))


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """A tensor at the border of the graph, under the model's own name, shape and dtype.  `bounds`
    are the smallest and the largest number that it may hold, where it is known to index something,
    or to be scaled as pixels are; they are empty, and not in the manifest, where anything goes."""

    name: str
    shape: tuple[int, ...]
    dtype: str = field(metadata=mark_name(names.WORD))
    layout: str = "row-major"
    bounds: tuple[int, ...] = field(default=(), metadata=MAY_BE_LEFT_OUT)


@dataclass(frozen=True, kw_only=True)
class ParamSpec:
    """One packed constant, in the order in which `main` takes it after the inputs.  `scope` is the
    memory that it lives in on the device: `global` (a buffer) or `global.texture` (an image; shape
    [layers, rows, columns, 4])."""

    name: str
    shape: tuple[int, ...]
    dtype: str = field(metadata=mark_name(names.WORD))
    scope: str = field(default="global", metadata=mark_name(names.WORD))


@dataclass(frozen=True, kw_only=True)
class KernelInfo:
    """One OpenCL kernel of the bundle.

    `family` is the op family whose schedule rule made it, `calls` the number of call sites,
    `scopes` the memory scope of each tensor argument in order, `work_group` and `grid` the
    launch extents (threads in a group; groups) in x, y, z.  `digest` names it in tuning logs, and
    `tuned` says that its schedule came from one.  `source` is its OpenCL C text, which a bundle
    keeps in `kernels/NAME.cl` and not in the manifest.
    """

    name: str = field(metadata=mark_name(names.IDENTIFIER))
    family: str
    calls: int
    scopes: tuple[str, ...]
    work_group: tuple[int, ...]
    grid: tuple[int, ...]
    digest: str = ""
    tuned: bool = False
    source: str = field(default="", metadata=_NOT_IN_JSON, repr=False)


@dataclass(frozen=True, kw_only=True)
class MemorySlot:
    """One piece of storage that the memory plan allocates once and reuses.  `scope` is `global` (a
    buffer), `global.texture` (an image) or `cpu` (the CPU's own memory); `bytes` is what the
    runtime takes for it."""

    scope: str = field(metadata=mark_name(names.WORD))
    shape: tuple[int, ...]
    dtype: str = field(metadata=mark_name(names.WORD))
    bytes: int


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """What the GPU holds while the model runs, in bytes as the runtime allocates them.

    `slots` hold the intermediate tensors, `slot_bytes` of them on the GPU; inputs, outputs and
    packed constants have memory of their own.  `live_bytes` is the most that intermediate tensors
    need at one step, which no reuse can go below.  `region_bytes` are further slots, for where
    OpenCL ML cannot run a region; what OpenCL ML itself takes is the driver's.  `peak_bytes` is all
    that the GPU holds: slots are allocated once and kept until the end of a run.
    """

    slots: tuple[MemorySlot, ...] = ()
    slot_bytes: int = 0
    input_bytes: int = 0
    output_bytes: int = 0
    param_bytes: int = 0
    live_bytes: int = 0
    region_bytes: int = 0
    peak_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class StageTime:
    """How long one pipeline stage took.  Not part of the manifest: times differ between runs."""

    name: str
    time_ms: float
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Where the work went: operators and tensors by memory, and what only moves data."""

    nodes_texture: int = 0
    nodes_buffer: int = 0
    nodes_cpu: int = 0
    nodes_clml: int = 0
    tensors_texture: int = 0
    tensors_buffer: int = 0
    pad_kernels: int = 0
    copy_kernels: int = 0
    layout_kernels: int = 0
    device_copies: int = 0


@dataclass(frozen=True, kw_only=True)
class RegionInfo:
    """A part of the model that OpenCL ML computes, where the device has it.

    `version` is the oldest interface that does; `operators` names what it runs in order (the
    operators of the model that each stands for, joined by +), `inputs` and `outputs` its border.
    `kernels` are the launches that run instead of it where CLML does not.  The three times are the
    compiler's estimates; `copies` counts those between row-major memory and CLML's own layout.
    """

    symbol: str = field(metadata=mark_name(names.IDENTIFIER))
    version: int
    dtype: str = field(metadata=mark_name(names.WORD))
    operators: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    kernels: tuple[str, ...] = field(metadata=mark_name(names.IDENTIFIER))
    copies: int
    texture_us: int
    clml_us: int
    copies_us: int


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """The model file that was compiled; the digest covers external data files too.  `file_sha256`
    is SHA-256 of the file as it is, which anybody can compare; it is left out where the file is not
    the whole model, or holds more than it."""

    file: str = field(metadata=mark_name(names.FILE))
    format: str = field(metadata=mark_name(names.WORD))
    sha256: str = field(metadata=mark_name(names.SHA256))
    file_sha256: str = field(default="", metadata={**mark_name(names.SHA256), **MAY_BE_LEFT_OUT})


@dataclass(frozen=True, kw_only=True)
class TargetInfo:
    """The device that was compiled for; `host` means that the CPU part is for this machine."""

    name: str = field(metadata=mark_name(names.WORD))
    host: bool
    llvm_triple: str = field(metadata=mark_name(names.WORD))
    digest: str


@dataclass(frozen=True, kw_only=True)
class OptionsInfo:
    """The options that were compiled with, and their digest."""

    preset: str = field(metadata=mark_name(names.WORD))
    values: dict[str, Any]
    digest: str


@dataclass(frozen=True, kw_only=True)
class LibraryInfo:
    """ELF facts of `model.so`, read back after linking."""

    machine: str = field(metadata=mark_name(names.WORD))
    soname: str = field(metadata=mark_name(names.WORD))
    needed: tuple[str, ...] = field(metadata=mark_name(names.WORD))
    page_bytes: int


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """One file of the bundle, by its path inside it, as it is stored.  `inflated_bytes` is what it
    holds where it is stored deflated (`adrenoc.bundle.tar`)."""

    path: str = field(metadata=mark_name(names.PATH))
    bytes: int
    sha256: str = field(metadata=mark_name(names.SHA256))
    inflated_bytes: int = field(default=0, metadata=MAY_BE_LEFT_OUT)

    @property
    def most_bytes(self) -> int:
        """Return the most that it can hold, whatever the manifest says."""
        return min(max(self.bytes, self.inflated_bytes), _MOST_OF_ONE_BYTE * self.bytes)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Everything that a bundle promises; `versions` are those of the tools that made it."""

    schema_version: int = SCHEMA_VERSION
    name: str = field(metadata=mark_name(names.BUNDLE))
    model: ModelInfo
    target: TargetInfo
    options: OptionsInfo
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    states: tuple[str, ...] = field(default=(), metadata=MAY_BE_LEFT_OUT)
    """Inputs whose memory a run changes: what the next run is to find there, as caches are."""
    recurrent: tuple[str, ...] = field(default=(), metadata=MAY_BE_LEFT_OUT)
    """Of a decoder: states that every token changes as a whole, as caches of rows are not."""
    slack: int = field(default=0, metadata=MAY_BE_LEFT_OUT)
    """Of a decoder whose caches of a window hold the last rows alone: how many beyond it."""
    end_tokens: tuple[int, ...] = field(default=(), metadata=MAY_BE_LEFT_OUT)
    """Of a decoder: tokens after which it has no more to say."""
    suppress_tokens: tuple[int, ...] = field(default=(), metadata=MAY_BE_LEFT_OUT)
    """Of a decoder: tokens that it never makes."""
    begin_suppress_tokens: tuple[int, ...] = field(default=(), metadata=MAY_BE_LEFT_OUT)
    """Of a decoder: tokens that it does not make as the first behind a prompt."""
    params: tuple[ParamSpec, ...]
    kernels: tuple[KernelInfo, ...]
    memory: MemoryPlan
    statistics: Statistics
    regions: tuple[RegionInfo, ...] = ()
    library: LibraryInfo
    versions: dict[str, str]
    files: tuple[FileEntry, ...]

    def to_json(self) -> str:
        """Return the manifest as text, byte-identical for equal manifests."""
        return json.dumps(to_plain(self), indent=2, ensure_ascii=False) + "\n"

    @staticmethod
    def from_json(text: str, where: str) -> Manifest:
        """Read a manifest back; `where` names the file in messages."""
        try:
            plain = read_json(text)
        except ValueError as error:
            raise BundleError(f"{where} is not JSON: {error}", hint=REBUILD_HINT) from error
        version = plain.get("schema_version") if isinstance(plain, dict) else None
        if version not in (SCHEMA_VERSION, DEFLATED_VERSION) or isinstance(version, bool):
            raise BundleError(
                f"{where} has schema version {version!r}; this adrenoc reads {SCHEMA_VERSION} and "
                f"{DEFLATED_VERSION}",
                hint=REBUILD_HINT,
            )
        manifest = from_plain(Manifest, plain, where)
        files, kernels = (one.path for one in manifest.files), (k.name for k in manifest.kernels)
        for listed, found in (("files", files), ("kernels", kernels)):
            if twice := [name for name, times in Counter(found).items() if times > 1]:
                raise BundleError(f"{where}: {listed} lists `{twice[0]}` twice", hint=REBUILD_HINT)
        return manifest


def to_plain(value: Any) -> Any:
    """Dataclasses, tuples and dicts as what `json` writes; dicts come out in key order."""
    if is_dataclass(value) and not isinstance(value, type):
        kept = [f for f in fields(value) if f.metadata.get("json", True)]
        held = {f.name: getattr(value, f.name) for f in kept}
        optional = {f.name for f in kept if f.metadata.get("default")}
        return {k: to_plain(v) for k, v in held.items() if v or k not in optional}
    if isinstance(value, dict):
        return {str(key): to_plain(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    return value


def from_plain(kind: type[T], plain: Any, where: str) -> T:
    """Build the dataclass `kind` from parsed JSON; every key must be there and none more.  Names
    that become paths or words of commands have to be of the kind that their field is marked
    with."""
    result: T = _DECODER.read(kind, plain, where)
    return result


def read_record(kind: type[T], path: Path, where: str) -> T:
    """Build the dataclass `kind` from a file of JSON, which messages call `where`."""
    try:
        plain = read_json(read_plain(path))
    except (OSError, ValueError) as error:
        raise BundleError(f"{where} is not JSON: {error}", hint=REBUILD_HINT) from error
    return from_plain(kind, plain, where)
