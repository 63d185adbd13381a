"""Compile a model for several GPUs into one bundle, whose constants are written once.

Source of the layout: `adrenoc.bundle.editions`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from adrenoc.base.decision import Decision, DecisionLog
from adrenoc.base.reporter import PartReporter, Reporter
from adrenoc.base.text.amounts import show_bytes
from adrenoc.bundle.bundle import PARAMS
from adrenoc.bundle.editions import COMMON, DEVICES_FILE, Edition, Editions
from adrenoc.bundle.manifest import FileEntry, Manifest
from adrenoc.bundle.moves import MOVES, moves_to_json
from adrenoc.bundle.params import write_params
from adrenoc.bundle.write_bundle import file_entry
from adrenoc.compile.compiler import Compiled, compile_model
from adrenoc.compile.constant_store import ConstantStore
from adrenoc.compile.edition_plan import EditionPlan
from adrenoc.compile.make_buckets import Fill, compile_buckets
from adrenoc.ir.options import CompileOptions, Shapes
from adrenoc.target.target import Target


class Part(Protocol):
    """What is compiled for one device: one shape, or several."""

    @property
    def compiled(self) -> tuple[Compiled, ...]:
        """Its buckets, the one that is a whole bundle by itself last."""

    def fill(self, root: Path, fill: Fill, params: FileEntry | None = None) -> Manifest:
        """Write the bundle into a folder."""


@dataclass(frozen=True, kw_only=True)
class _OneShape:
    """A model that is compiled for one choice of shapes."""

    compiled: tuple[Compiled]
    options: CompileOptions

    def fill(self, root: Path, fill: Fill, params: FileEntry | None = None) -> Manifest:
        return fill(root, self.compiled[0], self.options, params)


@dataclass(frozen=True, kw_only=True)
class CompiledEditions:
    """The editions of a model, and all of their constants."""

    common: Part
    parts: tuple[tuple[Edition, Target, Part], ...]
    common_target: Target
    store: ConstantStore

    @property
    def decisions(self) -> DecisionLog:
        """Those of the common edition."""
        return self.common.compiled[-1].decisions

    def fill(self, root: Path, fill_for: Callable[[Target], Fill]) -> Manifest:
        """Write the bundle with all editions into the folder `root`.

        `fill_for` gives what writes one bundle for a target.
        """
        write_params(root / PARAMS, self.store.params)
        shared = file_entry(root, root / PARAMS)
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

    def compile_for(target: Target, options: CompileOptions) -> Part:
        started, quiet = time.perf_counter(), PartReporter(reporter, target.name)
        if buckets:
            part: Part = compile_buckets(
                model,
                target=target,
                options=options,
                buckets=buckets,
                reporter=quiet,
                sha256=sha256,
                store=store,
            )
        else:
            compiled = compile_model(
                model, target=target, options=options, reporter=quiet, sha256=sha256
            )
            part = _OneShape(compiled=(store.share_constants(compiled),), options=options)
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
        part.compiled[-1].decisions.extend([decision])
        whole.compiled[-1].decisions.extend([decision])
        parts.append((plan.entry, plan.member.target, part))
    return CompiledEditions(common=whole, parts=tuple(parts), common_target=common, store=store)


def _tell_constants(
    edition: Edition, part: Part, store: ConstantStore, before: set[str]
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
