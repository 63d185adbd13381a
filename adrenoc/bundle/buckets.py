"""Parts of a bundle: the same model for several shapes, and with kernels for several GPUs.

NAME.adrenoc/                    the bucket with the most elements, a whole bundle by itself
    params.safetensors           the constants of all buckets; what two of them share, once
    buckets.json                 the buckets, and whether a batch may be filled up
    buckets/1x3x224x224/         a bundle whose constants are the file above

Of a TFLite file the buckets may also be its signatures, each with inputs and outputs of its own,
which are picked by name; the first that was asked for is the whole bundle.

Editions have kernels for one GPU each, and a common one is for all.

NAME.adrenoc/                    the common edition, a whole bundle by itself (with its buckets)
    params.safetensors           the constants of all editions; what two of them share, once
    moves.json                   constants that are others in another order (`bundle.params`)
    devices.json                 the editions, the common one last
    devices/a750/                a bundle (with its buckets) whose constants are the files above

A driver says which GPU it is of.  The edition of that GPU runs, one that was made for its very
driver first; where there is none, the common one does.  An edition can be taken out as a bundle by
itself, which has the constants that it reads and no others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from adrenoc.base.errors import BundleError, InputError, OptionError
from adrenoc.base.text import names
from adrenoc.base.text.json_text import mark_name
from adrenoc.base.text.spelling import did_you_mean, dims, list_first, quote_word
from adrenoc.bundle.bundle import (
    CHAT,
    PARAMS,
    PROGRAMS,
    PROOF,
    TEXT_TABLES,
    TOKENIZER,
    Bundle,
    file_entry,
    is_part,
    open_part,
    read_manifest,
)
from adrenoc.bundle.manifest import MAY_BE_LEFT_OUT, REBUILD_HINT, TensorSpec, read_record, to_plain
from adrenoc.bundle.params import MOVES, write_params
from adrenoc.bundle.tar import MANIFEST

if TYPE_CHECKING:
    import numpy as np

BUCKETS_FILE = "buckets.json"
BUCKETS_FOLDER = "buckets"

Extents = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class BatchOutput:
    """An output whose axis `axis` holds `factor` elements for each element of the batch."""

    name: str
    axis: int
    factor: int


@dataclass(frozen=True, kw_only=True)
class BatchRule:
    """The batch: axis 0 of `inputs`.  `refused` says why a smaller one may not be filled up with
    zeros: an element of the batch has an influence on others, or none was shown to have none.  It
    is empty where that is exact."""

    inputs: tuple[str, ...]
    outputs: tuple[BatchOutput, ...]
    refused: str


@dataclass(frozen=True, kw_only=True)
class BucketEntry:
    """One bucket: its folder, `.` for the bundle itself; `signature` is empty of shapes alone."""

    folder: str = field(metadata=mark_name(names.FOLDER))
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    signature: str = field(default="", metadata=MAY_BE_LEFT_OUT)


@dataclass(frozen=True, kw_only=True)
class Buckets:
    """The buckets of a bundle, the smallest first, or its signatures, the usual one last."""

    buckets: tuple[BucketEntry, ...]
    batch: BatchRule

    @property
    def signatures(self) -> tuple[str, ...]:
        """Return the signatures by name, the usual one first; none where buckets are shapes."""
        return tuple(entry.signature for entry in reversed(self.buckets) if entry.signature)

    def to_json(self) -> str:
        """Return the text of `buckets.json`."""
        return json.dumps(to_plain(self), indent=1, ensure_ascii=False) + "\n"


@dataclass(frozen=True, kw_only=True)
class FittedInputs:
    """The bucket that takes some inputs, these filled up for it, and the batch that was given."""

    bundle: Bundle
    inputs: dict[str, np.ndarray]
    given: int
    filled: int
    outputs: tuple[BatchOutput, ...]

    def crop(self, outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs without what comes of the filling."""
        import numpy as np

        cropped = dict(outputs)
        for one in self.outputs if self.given != self.filled else ():
            whole = outputs[one.name]
            kept = np.take(whole, range(self.given * one.factor), axis=one.axis)
            cropped[one.name] = np.ascontiguousarray(kept)
        return cropped


def folder_name(inputs: Sequence[TensorSpec]) -> str:
    """Return the folder of a bucket: `1x3x224x224`, inputs joined by `_`."""
    return "_".join(dims(spec.shape) for spec in inputs)


def read_buckets(bundle: Bundle) -> Buckets | None:
    """Return the buckets of a bundle, or None where it was compiled for one shape."""
    path, where = bundle.root / BUCKETS_FILE, f"{bundle.path}: {BUCKETS_FILE}"
    if not path.is_file():
        return None
    buckets = read_record(Buckets, path, where)
    folders = [entry.folder for entry in buckets.buckets if entry.folder != "."]
    if not buckets.buckets or not all(is_part(name, BUCKETS_FOLDER) for name in folders):
        raise BundleError(
            f"{where} names no folder of a bucket, or one elsewhere", hint=REBUILD_HINT
        )
    named = buckets.signatures
    if named and len(set(named)) < len(buckets.buckets):
        raise BundleError(
            f"{where} has {len(buckets.buckets)} buckets and {len(set(named))} signatures, "
            "expected one name each",
            hint=REBUILD_HINT,
        )
    return buckets


def read_shapes(bundle: Bundle) -> Buckets | None:
    """Return the buckets of which the shapes of inputs choose one; None where there is one."""
    buckets = read_buckets(bundle)
    return None if buckets is None or buckets.signatures else buckets


def read_signatures(bundle: Bundle) -> tuple[str, ...]:
    """Return a bundle's signatures by name, the usual one first; none where it holds one call."""
    buckets = read_buckets(bundle)
    return () if buckets is None else buckets.signatures


def open_signature(bundle: Bundle, name: str) -> Bundle:
    """Return what a bundle holds for the signature `name`, as a bundle of its own."""
    buckets = read_buckets(bundle)
    entries = {} if buckets is None else {e.signature: e for e in buckets.buckets if e.signature}
    own = str(bundle.manifest.options.values.get("signature", ""))
    names = list(entries) or [own] * bool(own)
    if name not in names:
        listed = list_first(map(repr, names), between=", ") or "one call without a name"
        raise OptionError(
            f"{bundle.path} has no signature {name!r}{did_you_mean(name, names)}; it holds "
            f"{listed}",
            hint=f"--signature {quote_word(names[0])}" if names else "leave it out",
        )
    return open_bucket(bundle, entries[name]) if entries else bundle


def open_bucket(bundle: Bundle, entry: BucketEntry) -> Bundle:
    """Return a bucket as a bundle of its own; its files were verified with those of `bundle`."""
    return bundle if entry.folder == "." else open_part(bundle, entry.folder)


def open_buckets(bundle: Bundle) -> tuple[Bundle, ...]:
    """Return all buckets of a bundle, the smallest first; the bundle alone where it has none."""
    buckets = read_buckets(bundle)
    if buckets is None:
        return (bundle,)
    return tuple(open_bucket(bundle, entry) for entry in buckets.buckets)


def fit(bundle: Bundle, inputs: Mapping[str, np.ndarray]) -> FittedInputs:
    """Return the smallest bucket that takes `inputs`, its batch filled up where that is exact."""
    import numpy as np

    buckets = read_shapes(bundle)
    if buckets is None:
        return FittedInputs(bundle=bundle, inputs=dict(inputs), given=1, filled=1, outputs=())
    entry = choose(buckets, {name: array.shape for name, array in inputs.items()})
    names = buckets.batch.inputs
    filled: dict[str, np.ndarray] = dict(inputs)
    given, whole = 1, 1
    for spec in entry.inputs:
        array = inputs.get(spec.name)
        if spec.name in names and array is not None:
            given, whole = array.shape[0], spec.shape[0]
            missing = [(0, whole - given)] + [(0, 0)] * (array.ndim - 1)
            filled[spec.name] = np.pad(array, missing)
    return FittedInputs(
        bundle=open_bucket(bundle, entry),
        inputs=filled,
        given=given,
        filled=whole,
        outputs=buckets.batch.outputs,
    )


def choose(buckets: Buckets, shapes: Extents) -> BucketEntry:
    """Return the smallest bucket that takes tensors of `shapes`; inputs without one take any."""
    for entry in buckets.buckets:
        if _takes(buckets, entry, shapes):
            return entry
    listed = ", ".join(folder_name(e.inputs) for e in buckets.buckets)
    shown = ", ".join(f"`{name}` {list(shape)}" for name, shape in shapes.items())
    refused = buckets.batch.refused
    why = f"; a smaller batch is not filled up, since {refused}" if refused else ""
    raise InputError(
        f"no bucket takes {shown}; the bundle has {listed}. Only a batch may be smaller than the "
        f"bucket: other axes, filled up, would change results{why}",
        hint="resize the input to a bucket, or compile with a --shape range that has its extents",
    )


def _takes(buckets: Buckets, entry: BucketEntry, shapes: Extents) -> bool:
    batches = set()
    for spec in entry.inputs:
        shape, has_batch = shapes.get(spec.name, spec.shape), spec.name in buckets.batch.inputs
        smaller = (
            has_batch
            and not buckets.batch.refused
            and len(shape) == len(spec.shape)
            and shape[1:] == spec.shape[1:]
            and 0 < shape[0] < spec.shape[0]
        )
        if not smaller and shape != spec.shape:
            return False
        if has_batch and spec.name in shapes:
            batches.add(shape[0])
    return len(batches) <= 1


def check_asked_shapes(bundle: Bundle, shapes: Extents) -> None:
    """Refuse shapes that a user asks for by name, where the bundle has no such input or shape."""
    specs = {spec.name: spec for spec in bundle.manifest.inputs}
    for name, shape in shapes.items():
        spec = specs.get(name)
        if spec is None:
            raise InputError(
                f"the model has no input `{name}`; its inputs are {', '.join(specs)}",
                hint="adrenoc inspect BUNDLE shows what the model takes",
            )
        if read_shapes(bundle) is None and shape != spec.shape:
            raise InputError(
                f"{bundle.path} takes `{name}` in one shape, {list(spec.shape)}, "
                f"not in {list(shape)}",
                hint=f"compile for several: adrenoc compile MODEL --shape {name}:1..8,...",
            )


def specs_for(bundle: Bundle, shapes: Extents) -> tuple[TensorSpec, ...]:
    """Return the inputs as a bundle takes them when those in `shapes` have these shapes."""
    buckets = read_shapes(bundle)
    if buckets is None or not shapes:
        return bundle.manifest.inputs
    entry = choose(buckets, shapes)
    batches = [shape[0] for name, shape in shapes.items() if name in buckets.batch.inputs]
    specs = []
    for spec in entry.inputs:
        shape = shapes.get(spec.name, spec.shape)
        if spec.name not in shapes and spec.name in buckets.batch.inputs and batches:
            shape = (batches[0], *shape[1:])
        specs.append(replace(spec, shape=shape))
    return tuple(specs)


DEVICES_FILE = "devices.json"
DEVICES_FOLDER = "devices"
COMMON = "."
"""The folder of the common edition."""

_NUMBER = names.NameRule(pattern=r"|\d{3}[a-z]?", expected="the number of an Adreno, or nothing")


@dataclass(frozen=True, kw_only=True)
class Edition:
    """What a bundle holds for one GPU: its folder, and whose kernels are in it.  `gpu` is the
    number of an Adreno ("750"), empty for the common edition.  With a `driver` the edition does
    without what that driver gets wrong, and is for it alone."""

    folder: str = field(metadata=mark_name(names.FOLDER))
    target: str = field(metadata=mark_name(names.WORD))
    gpu: str = field(metadata=mark_name(_NUMBER))
    driver: str = ""

    @property
    def title(self) -> str:
        """Return what it is for, in words."""
        if not self.gpu:
            return "any Adreno"
        return f"Adreno {self.gpu.upper()}" + (f" with driver {self.driver}" if self.driver else "")


@dataclass(frozen=True, kw_only=True)
class Editions:
    """The editions of a bundle, the common one last."""

    editions: tuple[Edition, ...]

    def to_json(self) -> str:
        """Return the text of `devices.json`."""
        return json.dumps(to_plain(self), indent=1, ensure_ascii=False) + "\n"


def read_editions(bundle: Bundle) -> tuple[Edition, ...]:
    """Return a bundle's editions, the common one last; none where it is for one device."""
    if bundle.whole is not None:
        return ()
    path, where = bundle.root / DEVICES_FILE, f"{bundle.path}: {DEVICES_FILE}"
    if not path.is_file():
        return ()
    editions = read_record(Editions, path, where).editions
    if not all(one.folder == COMMON or is_part(one.folder, DEVICES_FOLDER) for one in editions):
        raise BundleError(
            f"{where} names a folder that is none of {DEVICES_FOLDER}/NAME", hint=REBUILD_HINT
        )
    commons = [edition for edition in editions if not edition.gpu]
    if len(commons) != 1 or editions[-1] is not commons[0] or commons[0].folder != COMMON:
        raise BundleError(
            f"{where} has {len(commons)} common editions, expected one, last and in `{COMMON}`",
            hint=REBUILD_HINT,
        )
    return editions


def open_edition(bundle: Bundle, edition: Edition) -> Bundle:
    """Return an edition as a bundle of its own; its files were verified with those of `bundle`."""
    return bundle if edition.folder == COMMON else open_part(bundle, edition.folder)


def name_parts(bundle: Bundle) -> dict[str, Bundle]:
    """Return every bucket of every edition, as a bundle of its own, by what it is for.  Shapes are
    those of all inputs but states; a signature or kernels for one GPU have its name before them.
    The largest shapes come last, and the usual signature and the common edition do."""
    parts = {}
    for edition in read_editions(bundle) or (None,):
        whole = bundle if edition is None else open_edition(bundle, edition)
        title = f"{edition.title}, " if edition is not None and edition.gpu else ""
        named = reversed(read_signatures(whole))
        for part in open_buckets(whole):
            signature = next(named, "")
            whose = title + (f"signature {signature}, " if signature else "")
            manifest = part.manifest
            told = [spec for spec in manifest.inputs if spec.name not in manifest.states]
            parts[whose + folder_name(told)] = part
    return parts


def rank_editions(
    editions: tuple[Edition, ...], *, gpu: str, driver: str
) -> tuple[tuple[Edition, ...], str]:
    """Return the editions that a device may run, the best first, the common one last; and why.
    `gpu` is the number of an Adreno, empty for another device."""
    of_gpu = [edition for edition in editions if gpu and edition.gpu == gpu]
    own = [edition for edition in of_gpu if edition.driver and edition.driver == driver]
    any_driver = [edition for edition in of_gpu if not edition.driver]
    listed = ", ".join(dict.fromkeys(e.gpu.upper() for e in editions if e.gpu))
    if own:
        why = f"the driver says Adreno {gpu.upper()} and is the one that it was made for"
    elif any_driver:
        why = f"the driver says Adreno {gpu.upper()}"
    elif of_gpu:
        why = f"the kernels for Adreno {gpu.upper()} are for other drivers than {driver}"
    elif gpu:
        why = f"the driver says Adreno {gpu.upper()}, and the bundle has kernels for {listed}"
    else:
        why = f"the driver names no Adreno, and the bundle has kernels for {listed}"
    return (*own, *any_driver, *(e for e in editions if not e.gpu)), why


_OF_EDITIONS = (PARAMS, MOVES, DEVICES_FILE, MANIFEST)


def extract_edition(bundle: Bundle, edition: Edition, into: Path) -> None:
    """Write an edition into the new folder `into`, with proof and built kernels of the whole.

    Raises:
        OSError: it cannot be written.
    """
    part = open_edition(bundle, edition)
    into.mkdir()
    for file in part.manifest.files:
        if file.path not in _OF_EDITIONS and not file.path.startswith(f"{DEVICES_FOLDER}/"):
            _copy(part.root / file.path, into / file.path)
    shared_files = (PROOF, TOKENIZER, CHAT, TEXT_TABLES)
    for file in bundle.manifest.files:
        if file.path in shared_files or file.path.startswith(f"{PROGRAMS}/"):
            _copy(bundle.root / file.path, into / file.path)
    params: dict[str, np.ndarray] = {}
    for bucket in open_buckets(part):
        params |= bucket.params()
    shared = write_params(into / PARAMS, params)
    # Buckets say of the constants what the whole bundle says.
    for path in sorted(into.glob(f"*/*/{MANIFEST}")):
        own = read_manifest(path.parent, shown=path.parent)
        files = tuple(shared if file.path == PARAMS else file for file in own.files)
        path.write_text(replace(own, files=files).to_json(), encoding="utf-8")
    written = sorted(path for path in into.rglob("*") if path.is_file())
    files = tuple(file_entry(into, path) for path in written)
    manifest = replace(part.manifest, files=files)
    (into / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")


def _copy(source: Path, target: Path) -> None:
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
