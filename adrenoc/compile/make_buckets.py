"""Compile a model for several shapes, by several signatures or for several GPUs into one bundle.

Constants are written once.  `adrenoc.bundle.buckets` and `adrenoc.bundle.editions` tell the layout.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from adrenoc.base.decision import Decision, DecisionLog
from adrenoc.base.errors import OptionError
from adrenoc.base.host.memory import return_large_blocks, return_memory
from adrenoc.base.reporter import PartReporter, Reporter, SilentReporter
from adrenoc.base.text.spelling import quote_word, show_bytes
from adrenoc.bundle.buckets import (
    BUCKETS_FILE,
    BUCKETS_FOLDER,
    BatchOutput,
    BatchRule,
    BucketEntry,
    Buckets,
    folder_name,
)
from adrenoc.bundle.bundle import PARAMS
from adrenoc.bundle.editions import COMMON, DEVICES_FILE, Edition, Editions
from adrenoc.bundle.manifest import FileEntry, Manifest, TensorSpec
from adrenoc.bundle.params import MOVES, moves_to_json, write_params
from adrenoc.compile.compiler import Compiled, compile_model
from adrenoc.compile.constant_store import ConstantStore
from adrenoc.compile.decoder_plan import EditionPlan
from adrenoc.compile.pipeline import State, run_stages
from adrenoc.ir.options import CompileOptions, Shapes
from adrenoc.passes.read.find_batch import batch_free_constants, find_batch
from adrenoc.target.target import Target

Fill = Callable[[Path, Compiled, CompileOptions, "FileEntry | None"], Manifest]
"""Links one compiled bucket and writes its bundle; the constants may lie in another file."""


@dataclass(frozen=True, kw_only=True)
class CompiledBuckets:
    """The buckets of a model, the largest last, and all of their constants by name.

    With `by_signature` each is another signature of the model's, the usual one last.
    """

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
        """Write the bundle with all buckets into the folder `root`.

        `params` is the file of the constants where that was written elsewhere.
        """
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
    """Compile `model` for each choice of shapes, the one with the most elements last.

    With `sha256` only if what is read has that digest, each time.  `store` has the constants of
    what else the bundle holds.

    Raises:
        AdrenocError: one of them cannot be compiled.
    """
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
    """Compile `model` by each of its signatures that these options name, the usual one last.

    Raises:
        AdrenocError: one of them cannot be compiled.
        OptionError: a variable is another tensor in one of them than in another.
    """
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
        """Write the bundle with all editions into the folder `root`.

        `fill_for` gives what writes one bundle for a target.
        """
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
    """Compile `model` for the `common` target and for each of `plans`.

    Raises:
        AdrenocError: one of them cannot be compiled.
    """
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
        decision = _tell_constants(plan.entry, part, store, before)
        part.decisions.extend([decision])
        whole.decisions.extend([decision])
        parts.append((plan.entry, plan.member.target, part))
    return CompiledEditions(common=whole, parts=tuple(parts), common_target=common, store=store)


def _tell_constants(
    edition: Edition, part: DevicePart, store: ConstantStore, before: set[str]
) -> Decision:
    """Return what an edition adds to the constants of those before it."""
    specs = {spec.name for one in part.compiled for spec in one.param_specs}
    own = [name for name in store.params if name not in before]
    moved = [name for name in specs if name in store.moves]
    own_bytes = sum(store.params[name].nbytes for name in own)
    return Decision(
        subject=edition.title,
        taken=f"{show_bytes(own_bytes)} of constants of its own",
        reason=f"of {len(specs)} constants {len(specs & before)} are stored for another "
        f"device too, and {len(moved)} are made of others as the bundle is loaded, in another "
        f"order or by Winograd's algorithm; {len(own)} are added",
        stage="devices",
    )
