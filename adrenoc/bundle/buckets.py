"""Buckets of a bundle: the same model for several shapes, and which one takes an input.

NAME.adrenoc/                    the bucket with the most elements, a whole bundle by itself
    params.safetensors           the constants of all buckets; what two of them share, once
    buckets.json                 the buckets, and whether a batch may be filled up
    buckets/1x3x224x224/         a bundle whose constants are the file above

Of a TFLite file the buckets may also be its signatures, each with inputs and outputs of its own,
which are picked by name; the first that was asked for is the whole bundle.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from adrenoc.base.errors import BundleError, InputError, OptionError
from adrenoc.base.text import names
from adrenoc.base.text.json_text import mark_name
from adrenoc.base.text.spelling import did_you_mean, dims, list_first, quote_word
from adrenoc.bundle.bundle import Bundle, is_part, open_part
from adrenoc.bundle.manifest import (
    MAY_BE_LEFT_OUT,
    REBUILD_HINT,
    TensorSpec,
    read_record,
    to_plain,
)

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
    """The batch: axis 0 of `inputs`.

    `refused` says why a smaller one may not be filled up with zeros: an element of the batch has
    an influence on others, or none was shown to have none.  It is empty where that is exact.
    """

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
    """Return the buckets of a bundle, or None where it was compiled for one shape.

    Raises:
        BundleError: its list of buckets cannot be understood.
    """
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
    """Return the buckets of which the shapes of inputs choose one; None where there is one.

    Raises:
        BundleError: its list of buckets cannot be understood.
    """
    buckets = read_buckets(bundle)
    return None if buckets is None or buckets.signatures else buckets


def read_signatures(bundle: Bundle) -> tuple[str, ...]:
    """Return a bundle's signatures by name, the usual one first; none where it holds one call.

    Raises:
        BundleError: its list of buckets cannot be understood.
    """
    buckets = read_buckets(bundle)
    return () if buckets is None else buckets.signatures


def open_signature(bundle: Bundle, name: str) -> Bundle:
    """Return what a bundle holds for the signature `name`, as a bundle of its own.

    Raises:
        OptionError: it holds none of that name.
    """
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
    """Return all buckets of a bundle, the smallest first; the bundle alone where it has none.

    Raises:
        BundleError: its list of buckets cannot be understood.
    """
    buckets = read_buckets(bundle)
    if buckets is None:
        return (bundle,)
    return tuple(open_bucket(bundle, entry) for entry in buckets.buckets)


def fit(bundle: Bundle, inputs: Mapping[str, np.ndarray]) -> FittedInputs:
    """Return the smallest bucket that takes `inputs`, with a batch filled up where that is exact.

    Raises:
        InputError: no bucket takes them; all are listed.
    """
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
    """Return the smallest bucket that takes tensors of `shapes`; inputs without one take any.

    Raises:
        InputError: none does; all are listed.
    """
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
    """Refuse shapes that a user asks for by name, where the bundle has no such input or shape.

    Raises:
        InputError: naming the first.
    """
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
    """Return the inputs as a bundle takes them when those in `shapes` have these shapes.

    Raises:
        InputError: no bucket takes them.
    """
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
