"""Compile a model for several shapes, by several signatures or for several GPUs into one bundle.

Constants are written once, whichever parts read them; `adrenoc.bundle.buckets` tells the layout.

Parts for two GPUs mostly read the same numbers in another order.  With `moves` the store keeps one
order, and for each other one how it comes of that (`adrenoc.bundle.params`).  Of filters it keeps
the plain ones, also where no part reads them so: Winograd's are two to four times as large.
"""

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from adrenoc.base.decision import Decision, DecisionLog
from adrenoc.base.errors import BundleError, OptionError
from adrenoc.base.files.spill import forget_pages
from adrenoc.base.host.memory import return_large_blocks, return_memory
from adrenoc.base.reporter import PartReporter, Reporter, SilentReporter
from adrenoc.base.text.spelling import quote_word, show_bytes
from adrenoc.bundle.buckets import (
    BUCKETS_FILE,
    BUCKETS_FOLDER,
    COMMON,
    DEVICES_FILE,
    BatchOutput,
    BatchRule,
    BucketEntry,
    Buckets,
    Edition,
    Editions,
    folder_name,
)
from adrenoc.bundle.bundle import PARAMS
from adrenoc.bundle.manifest import FileEntry, Manifest, TensorSpec
from adrenoc.bundle.params import (
    FLOATS,
    MOVES,
    ConstantSource,
    FilterTransform,
    Places,
    moves_to_json,
    write_params,
)
from adrenoc.compile.compiler import Compiled, compile_model
from adrenoc.compile.decoder_plan import EditionPlan
from adrenoc.compile.pipeline import State, run_stages
from adrenoc.ir.half import round_constant
from adrenoc.ir.layout import (
    UNBOUNDED,
    Digits,
    find_axis_digits,
    forms_of,
    pack_indices,
    read_places,
)
from adrenoc.ir.options import CompileOptions, Shapes
from adrenoc.ir.program import Matrix, Packing
from adrenoc.passes.read.find_batch import batch_free_constants, find_batch
from adrenoc.target.target import Target

_MOST_ELEMENTS = 1 << 25
"""Of a larger constant no places are traced: that takes some forty bytes an element."""
_LEAST_BYTES = 4096
"""Smaller constants cost less than telling how they are moved."""
_OWN = "own"
"""The kind of the model's own numbers; others are computed of them."""
_ONE: Digits = ((UNBOUNDED, 0),)
"""The places along an axis of one element."""

Pack = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, kw_only=True)
class _Origin:
    """A constant that is stored, and the places in it of the numbers that it was packed of."""

    name: str
    places: Places
    width: int


class ConstantStore:
    """Constants under names of the whole bundle; with `moves` each order once is told, not kept."""

    def __init__(self, *, moves: bool = False) -> None:
        self.params: dict[str, np.ndarray] = {}
        self.moves: dict[str, ConstantSource] = {}
        self._traces = moves
        self._names: dict[str, str] = {}
        self._origins: dict[str, _Origin] = {}

    def share_constants(self, compiled: Compiled) -> Compiled:
        """Return the same with constants named as all parts name them, each content once.  How they
        were packed is left out: it holds the model's own constants, a set for each part."""
        packings = compiled.packings
        names = {n: self._name(value, packings.get(n)) for n, value in compiled.params.items()}
        return replace(
            compiled,
            params={name: self.params[name] for name in names.values() if name in self.params},
            packings={},
            param_specs=tuple(replace(s, name=names[s.name]) for s in compiled.param_specs),
        )

    def _name(self, value: np.ndarray, packing: Packing | None) -> str:
        content = _digest(value)
        forget_pages(value)
        if content not in self._names:
            name = f"p{len(self._names)}"
            self._names[content] = name
            traced = self._traces and packing is not None and value.nbytes >= _LEAST_BYTES
            move = self._trace(name, value, packing) if traced and packing is not None else None
            if move is None:
                self.params[name] = value
            else:
                self.moves[name] = move
        return self._names[content]

    def _trace(self, name: str, value: np.ndarray, packing: Packing) -> ConstantSource | None:
        """Return how `value` comes of a stored constant; without one it is an origin for others."""
        if packing.transform is not None:
            derived = self._derive(name, value, packing, packing.transform)
            if derived is not None:
                return derived
        own: dict[str, _Origin] = {}
        for key, counts, origin in _trace_origins(name, value, packing):
            other = self._origins.get(key)
            if other is None or other.width != origin.width:
                own.setdefault(key, origin)
                continue
            move = ConstantSource(
                name=name,
                shape=value.shape,
                dtype=str(value.dtype),
                source=other.name,
                width=origin.width,
                counts=counts,
                places=origin.places,
                source_places=other.places,
            )
            if _brings(move, self.params[other.name], value):
                return move
        self._origins |= own
        return None

    def _derive(
        self, name: str, value: np.ndarray, packing: Packing, transform: Matrix
    ) -> ConstantSource | None:
        """Return how `value` comes of plain filters, which are stored if they are not yet."""
        made = packing.make_rounded()
        found = _find_places(made, packing.move, value)
        axes = _order_axes(packing)
        if found is None or axes is None or found[1] not in FLOATS:
            return None
        places, width = found
        plain = round_constant(packing.prepare(packing.constant), FLOATS[width]).value
        origin = self._origins.get(_key(_OWN, packing.constant, width))
        if origin is None:
            origin = self._store_plain(plain, packing.constant, axes)
        digits = tuple(_ONE if a is None else origin.places.digits[a] for a in axes)
        move = ConstantSource(
            name=name,
            shape=value.shape,
            dtype=str(value.dtype),
            source=origin.name,
            width=width,
            counts=plain.shape,
            places=places,
            source_places=Places(first=origin.places.first, digits=digits),
            transform=FilterTransform.from_matrix(transform),
        )
        return move if _brings(move, self.params[origin.name], value) else None

    def _store_plain(
        self, plain: np.ndarray, constant: np.ndarray, axes: Sequence[int | None]
    ) -> _Origin:
        """Filters that no part reads as they are: in the order of their axes."""
        name = self._name(plain, None)
        digits, stride = [_ONE] * constant.ndim, 1
        for axis, count in reversed(list(zip(axes, plain.shape, strict=True))):
            if axis is not None:
                digits[axis] = ((UNBOUNDED, stride),)
            stride *= count
        places = Places(first=0, digits=tuple(digits))
        origin = _Origin(name=name, places=places, width=plain.dtype.itemsize)
        return self._origins.setdefault(_key(_OWN, constant, origin.width), origin)


def _brings(move: ConstantSource, source: np.ndarray, value: np.ndarray) -> bool:
    """Return whether a move makes this very constant: no bit may differ."""
    try:
        made = move.bring(source, "")
    except BundleError:
        return False
    return made.tobytes() == np.ascontiguousarray(value).tobytes()


def _trace_origins(
    name: str, value: np.ndarray, packing: Packing
) -> Iterator[tuple[str, tuple[int, ...], _Origin]]:
    """Yield what a constant was packed of: the model's own numbers, or what was computed of them.
    Gives a key of their content, their counts along each axis, and where they lie."""
    rounded = packing.make_rounded()
    for kind, numbers, pack in (
        (_OWN, packing.constant, packing.pack),
        ("rounded", rounded, packing.move),
    ):
        found = None if pack is None else _find_places(numbers, pack, value)
        if found is not None:
            places, width = found
            key = _key(kind, numbers, width)
            yield key, numbers.shape, _Origin(name=name, places=places, width=width)


def _key(kind: str, numbers: np.ndarray, width: int) -> str:
    """Return the key of numbers that are stored in so many bytes each."""
    return f"{kind} {width} {_digest(numbers)}"


def _find_places(numbers: np.ndarray, pack: Pack, value: np.ndarray) -> tuple[Places, int] | None:
    """Return where `pack` puts numbers in `value`, and each one's bytes; None where it computes."""
    if numbers.size > _MOST_ELEMENTS or numbers.size == 0 or numbers.ndim == 0:
        return None
    packed = pack_indices(numbers, pack, value.nbytes)
    for form in forms_of(str(value.dtype)) if packed else ():
        places = read_places(packed, numbers.size, form)
        digits = None if places is None else find_axis_digits(places.reshape(numbers.shape))
        if places is not None and digits is not None:
            return Places(first=int(places[0]), digits=digits), np.dtype(form).itemsize
    return None


def _order_axes(packing: Packing) -> tuple[int | None, ...] | None:
    """Return which axis of the constant each axis of the prepared one is; None of one element.
    Nothing at all where preparing does more than order them."""
    constant = packing.constant
    steps = [math.prod(constant.shape[axis + 1 :]) for axis in range(constant.ndim)]
    prepared = packing.prepare(np.arange(constant.size).reshape(constant.shape))
    if prepared.size != constant.size or prepared.size == 0:
        return None
    axes: list[int | None] = []
    for axis, count in enumerate(prepared.shape):
        line = np.moveaxis(prepared, axis, 0).reshape(count, -1)[:, 0]
        step = int(line[1] - line[0]) if count > 1 else None
        own = [a for a, s in enumerate(steps) if s == step and constant.shape[a] == count]
        if step is not None and not own:
            return None
        axes.append(own[0] if own else None)
    return tuple(axes)


def _digest(value: np.ndarray) -> str:
    content = hashlib.sha256(f"{value.shape} {value.dtype} ".encode())
    content.update(np.ascontiguousarray(value).data)
    return content.hexdigest()


Fill = Callable[[Path, Compiled, CompileOptions, "FileEntry | None"], Manifest]
"""Links one compiled bucket and writes its bundle; the constants may lie in another file."""


@dataclass(frozen=True, kw_only=True)
class CompiledBuckets:
    """The buckets of a model, the largest last, and all of their constants by name.  With
    `by_signature` each is another signature of the model's, the usual one last."""

    compiled: tuple[Compiled, ...]
    options: tuple[CompileOptions, ...]
    batch: BatchRule
    params: dict[str, np.ndarray]
    by_signature: bool = False

    @property
    def largest(self) -> Compiled:
        """Return the bucket that is a whole bundle by itself."""
        return self.compiled[-1]

    @property
    def decisions(self) -> DecisionLog:
        """Return what was chosen for that one, and why."""
        return self.largest.decisions

    def fill(self, root: Path, fill: Fill, params: FileEntry | None = None) -> Manifest:
        """Write the bundle with all buckets into the folder `root`.  `params` is the file of the
        constants where that was written elsewhere."""
        shared = params or write_params(root / PARAMS, self.params)
        entries = []
        for number, (compiled, options) in enumerate(
            zip(self.compiled, self.options, strict=True), 1
        ):
            folder, key = ".", options.signature if self.by_signature else ""
            # States are the same in all, and have many names.
            told = [spec for spec in compiled.inputs if spec.name not in compiled.states]
            if compiled is not self.largest:
                # The name of a signature may have any letters, and two may be of the same shapes.
                name = str(number) if key else folder_name(told)
                folder = f"{BUCKETS_FOLDER}/{name}"
                (root / folder).mkdir(parents=True)
                fill(root / folder, compiled, options, shared)
            entries.append(
                BucketEntry(
                    folder=folder, inputs=compiled.inputs, outputs=compiled.outputs, signature=key
                )
            )
        listed = Buckets(buckets=tuple(entries), batch=self.batch)
        (root / BUCKETS_FILE).write_text(listed.to_json(), encoding="utf-8")
        return fill(root, self.largest, self.options[-1], shared)


def compile_buckets(
    model: Path,
    *,
    target: Target,
    options: CompileOptions,
    buckets: Sequence[Shapes],
    reporter: Reporter,
    sha256: str = "",
    store: ConstantStore | None = None,
) -> CompiledBuckets:
    """Compile `model` for each choice of shapes, the one with the most elements last.  With
    `sha256` only if what is read has that digest, each time.  `store` has the constants of what
    else the bundle holds."""
    chosen = tuple(replace(options, shapes=shapes) for shapes in buckets)
    store = store or ConstantStore()
    same = set.intersection(*(set(one.shapes) for one in chosen)) if len(chosen) > 1 else set()
    told = [
        ", ".join(f"{n}:{','.join(map(str, s))}" for n, s in one.shapes if (n, s) not in same)
        for one in chosen
    ]
    compiled = tuple(_compile_each(model, target, chosen, told, reporter, sha256, store))
    batch = _find_batch(model, target, chosen, sha256)
    if batch.refused:
        compiled[-1].decisions.add("batch", "is not filled up", batch.refused)
    return CompiledBuckets(compiled=compiled, options=chosen, batch=batch, params=store.params)


def compile_signatures(
    model: Path,
    *,
    target: Target,
    signatures: Sequence[CompileOptions],
    reporter: Reporter,
    sha256: str,
) -> CompiledBuckets:
    """Compile `model` by each of its signatures that these options name, the usual one last."""
    store, keys = ConstantStore(), [one.signature for one in signatures]
    compiled = tuple(_compile_each(model, target, signatures, keys, reporter, sha256, store))
    _check_variables([*zip(keys, compiled, strict=True)])
    return CompiledBuckets(
        compiled=compiled,
        options=tuple(signatures),
        batch=BatchRule(inputs=(), outputs=(), refused="signatures are picked by name"),
        params=store.params,
        by_signature=True,
    )


def _check_variables(compiled: Sequence[tuple[str, Compiled]]) -> None:
    """Refuse variables that signatures share, and that are not one memory."""
    held: dict[str, tuple[str, TensorSpec]] = {}
    for key, one in reversed(compiled):
        for spec in (spec for spec in one.inputs if spec.name in one.states):
            other, known = held.setdefault(spec.name, (key, spec))
            if known != spec:
                raise OptionError(
                    f"the variable {spec.name} is {list(known.shape)} of {known.dtype} in the "
                    f"signature {other}, and {list(spec.shape)} of {spec.dtype} in {key}: "
                    "expected one form, as they share its memory",
                    hint="--preset fp32 has it in float32 in both"
                    if known.shape == spec.shape
                    else f"--signature {quote_word(key)} alone: a bundle for each",
                )


def _compile_each(
    model: Path,
    target: Target,
    options: Sequence[CompileOptions],
    told: Sequence[str],
    reporter: Reporter,
    sha256: str,
    store: ConstantStore,
) -> Iterator[Compiled]:
    """Compile `model` with each of the options, which `told` names, with constants of `store`."""
    return_large_blocks()
    for one, name in zip(options, told, strict=True):
        started, quiet = time.perf_counter(), PartReporter(reporter, name)
        # Under no name of its own: what is packed twice goes before the next one is compiled.
        yield store.share_constants(
            compile_model(model, target=target, options=one, reporter=quiet, sha256=sha256)
        )
        return_memory()  # of the model's own constants
        what = "signature" if name == one.signature else "bucket"
        reporter.stage(what, (time.perf_counter() - started) * 1000, name)


def _find_batch(
    model: Path, target: Target, options: Sequence[CompileOptions], sha256: str
) -> BatchRule:
    """Return which inputs have a batch, axis 0, that buckets differ in, and whether it is free."""
    sizes: dict[str, set[int]] = {}
    for one in options:
        for name, shape in one.shapes:
            sizes.setdefault(name, set()).add(shape[0])
    inputs = tuple(name for name, found in sizes.items() if len(found) > 1)
    if not inputs:
        return BatchRule(inputs=(), outputs=(), refused="no range is at axis 0")
    largest = _read(model, target, options[-1], sha256)
    if largest.imported is None or largest.graph is None:
        raise ValueError("the pipeline ended early")
    tensors = {spec.name: largest.graph.inputs[i] for i, spec in enumerate(largest.imported.inputs)}
    along, refused = find_batch(largest.graph, [tensors[name] for name in inputs])
    whole = dict(options[-1].shapes)[inputs[0]][0]
    others = [o for o in options if dict(o.shapes)[inputs[0]][0] != whole]
    same = _but_for_batch(options[-1], inputs)
    twin = next((o for o in others if _but_for_batch(o, inputs) == same), None)
    if not refused and twin is not None:
        smaller = _read(model, target, twin, sha256)
        size = dict(twin.shapes)[inputs[0]][0]
        if smaller.graph is None or batch_free_constants(
            smaller.graph, size
        ) != batch_free_constants(largest.graph, whole):
            refused = "the size of the batch is part of the arithmetic"
    outputs = tuple(
        BatchOutput(name=spec.name, axis=along[name].axis, factor=along[name].factor)
        for spec, name in zip(largest.imported.outputs, largest.graph.results, strict=True)
        if name in along
    )
    return BatchRule(inputs=inputs, outputs=outputs, refused=refused)


def _but_for_batch(options: CompileOptions, inputs: Sequence[str]) -> Shapes:
    return tuple((n, s[1:] if n in inputs else s) for n, s in options.shapes)


def _read(model: Path, target: Target, options: CompileOptions, sha256: str) -> State:
    start = State(model=model, target=target, options=options, sha256=sha256)
    state, _ = run_stages(start, reporter=SilentReporter(), stop_after="read_graph")
    return state


@dataclass(frozen=True, kw_only=True)
class OneShape:
    """A model that is compiled for one choice of shapes."""

    compiled: tuple[Compiled]
    options: CompileOptions

    @property
    def decisions(self) -> DecisionLog:
        """Return what was chosen, and why."""
        return self.compiled[0].decisions

    def fill(self, root: Path, fill: Fill, params: FileEntry | None = None) -> Manifest:
        """Write the bundle into a folder."""
        return fill(root, self.compiled[0], self.options, params)


DevicePart = CompiledBuckets | OneShape
"""What is compiled for one device."""


@dataclass(frozen=True, kw_only=True)
class CompiledEditions:
    """The editions of a model, and all of their constants."""

    common: DevicePart
    parts: tuple[tuple[Edition, Target, DevicePart], ...]
    common_target: Target
    store: ConstantStore

    def fill(self, root: Path, fill_for: Callable[[Target], Fill]) -> Manifest:
        """Write the bundle with all editions into the folder `root`.  `fill_for` gives what writes
        one bundle for a target."""
        shared = write_params(root / PARAMS, self.store.params)
        (root / MOVES).write_text(moves_to_json(self.store.moves), encoding="utf-8")
        for edition, target, part in self.parts:
            folder = root / edition.folder
            folder.mkdir(parents=True)
            part.fill(folder, fill_for(target), shared)
        common = Edition(folder=COMMON, target=self.common_target.name, gpu="")
        listed = Editions(editions=(*(edition for edition, _, _ in self.parts), common))
        (root / DEVICES_FILE).write_text(listed.to_json(), encoding="utf-8")
        return self.common.fill(root, fill_for(self.common_target), shared)


def compile_editions(
    model: Path,
    *,
    common: Target,
    options: CompileOptions,
    plans: Sequence[EditionPlan],
    buckets: Sequence[Shapes],
    sha256: str,
    reporter: Reporter,
) -> CompiledEditions:
    """Compile `model` for the `common` target and for each of `plans`."""
    store = ConstantStore(moves=True)

    def compile_for(target: Target, options: CompileOptions) -> DevicePart:
        started, quiet = time.perf_counter(), PartReporter(reporter, target.name)
        how: dict[str, Any] = {"target": target, "options": options, "sha256": sha256}
        part: DevicePart
        if buckets:
            part = compile_buckets(model, buckets=buckets, reporter=quiet, store=store, **how)
        else:
            compiled = store.share_constants(compile_model(model, reporter=quiet, **how))
            part = OneShape(compiled=(compiled,), options=options)
        launches = len(part.compiled[-1].launches)
        note = f"{target.name}, {launches} launches"
        reporter.stage("device", (time.perf_counter() - started) * 1000, note)
        return part

    whole = compile_for(common, options)
    parts = []
    for plan in plans:
        before = set(store.params)
        part = compile_for(plan.member.target, plan.options)
        specs = {spec.name for one in part.compiled for spec in one.param_specs}
        own = [name for name in store.params if name not in before]
        moved = [name for name in specs if name in store.moves]
        own_bytes = sum(store.params[name].nbytes for name in own)
        decision = Decision(
            subject=plan.entry.title,
            taken=f"{show_bytes(own_bytes)} of constants of its own",
            reason=f"of {len(specs)} constants {len(specs & before)} are stored for another "
            f"device too, and {len(moved)} are made of others as the bundle is loaded, in another "
            f"order or by Winograd's algorithm; {len(own)} are added",
            stage="devices",
        )
        part.decisions.extend([decision])
        whole.decisions.extend([decision])
        parts.append((plan.entry, plan.member.target, part))
    return CompiledEditions(common=whole, parts=tuple(parts), common_target=common, store=store)
