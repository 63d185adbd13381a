"""Compile a model for several shapes, or by several signatures, into one bundle, whose constants
are written once.

Source of the layout: `adrenoc.bundle.buckets`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from adrenoc.base.host.memory import return_large_blocks, return_memory
from adrenoc.base.reporter import PartReporter, Reporter, SilentReporter
from adrenoc.bundle.buckets import (
    BUCKETS_FILE,
    BUCKETS_FOLDER,
    Batch,
    BatchOutput,
    BucketEntry,
    Buckets,
    folder_name,
)
from adrenoc.bundle.bundle import PARAMS
from adrenoc.bundle.manifest import FileEntry, Manifest
from adrenoc.bundle.params import write_params
from adrenoc.bundle.write_bundle import file_entry
from adrenoc.compile.compiler import Compiled, compile_model
from adrenoc.compile.constant_store import ConstantStore
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
    batch: Batch
    params: dict[str, np.ndarray]
    by_signature: bool = False

    @property
    def largest(self) -> Compiled:
        """The bucket that is a whole bundle by itself."""
        return self.compiled[-1]

    def fill(self, root: Path, fill: Fill, params: FileEntry | None = None) -> Manifest:
        """Write the bundle with all buckets into the folder `root`.

        `params` is the file of the constants where that was written elsewhere.
        """
        shared = params
        if shared is None:
            write_params(root / PARAMS, self.params)
            shared = file_entry(root, root / PARAMS)
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
    """
    store, keys = ConstantStore(), [one.signature for one in signatures]
    compiled = tuple(_compile_each(model, target, signatures, keys, reporter, sha256, store))
    return CompiledBuckets(
        compiled=compiled,
        options=tuple(signatures),
        batch=Batch(inputs=(), outputs=(), refused="signatures are picked by name"),
        params=store.params,
        by_signature=True,
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
) -> Batch:
    """Which inputs have a batch, axis 0, that differs between buckets, and whether it is free."""
    sizes: dict[str, set[int]] = {}
    for one in options:
        for name, shape in one.shapes:
            sizes.setdefault(name, set()).add(shape[0])
    inputs = tuple(name for name, found in sizes.items() if len(found) > 1)
    if not inputs:
        return Batch(inputs=(), outputs=(), refused="no range is at axis 0")
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
    return Batch(inputs=inputs, outputs=outputs, refused=refused)


def _but_for_batch(options: CompileOptions, inputs: Sequence[str]) -> Shapes:
    return tuple((n, s[1:] if n in inputs else s) for n, s in options.shapes)


def _read(model: Path, target: Target, options: CompileOptions, sha256: str) -> State:
    start = State(model=model, target=target, options=options, sha256=sha256)
    state, _ = run_stages(start, reporter=SilentReporter(), stop_after="read_graph")
    return state
