"""What changed from one bundle to another: settings, figures, kernels, nodes, decisions."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from adrenoc.base.text.amounts import count_of
from adrenoc.bundle.bundle import Bundle
from adrenoc.bundle.editions import name_parts
from adrenoc.bundle.figures import Figures, figures_of
from adrenoc.bundle.gates import Gate, list_broken
from adrenoc.bundle.launches import LaunchInfo
from adrenoc.bundle.manifest import KernelInfo, TensorSpec
from adrenoc.pages.kernel_pairs import (
    NAME,
    KernelChange,
    Pairs,
    list_changes,
    pair_kernels,
    read_body,
)

_BITS = re.compile(r"\d+$")


@dataclass(frozen=True, kw_only=True)
class Change:
    """One fact that differs; empty where it is not there."""

    subject: str
    before: str
    after: str


@dataclass(frozen=True, kw_only=True)
class NodeForm:
    """How one node of the model is computed: by which kernel, out of which memory, how long."""

    kernel: str
    family: str
    memory: str
    bytes: int
    time_us: float | None


@dataclass(frozen=True, kw_only=True)
class NodeChange:
    """A node that is computed otherwise; None where it is no launch of its own."""

    node: str
    before: NodeForm | None
    after: NodeForm | None


@dataclass(frozen=True, kw_only=True)
class DecisionChange:
    """What a stage took for a subject, with the reason; empty where it said nothing."""

    stage: str
    subject: str
    before: str
    after: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class ShapeDiff:
    """What changed for one choice of input shapes (`shapes`, as the bucket's folder has it).

    Of kernels for one GPU of several, that is before them.
    """

    shapes: str
    before: Figures
    after: Figures
    precision: tuple[Change, ...]
    kernels: tuple[KernelChange, ...]
    nodes: tuple[NodeChange, ...]
    decisions: tuple[DecisionChange, ...]

    @property
    def is_equal(self) -> bool:
        """Whether a device does the same; names of kernels aside."""
        others = self.precision, self.nodes, self.decisions
        renamed = all(kernel.kind == NAME for kernel in self.kernels)
        return self.before == self.after and renamed and not any(others)


@dataclass(frozen=True, kw_only=True)
class BundleDiff:
    """All that changed from the bundle `before` to the bundle `after`, which are paths.

    `settings` are facts of model, target, options and tools.  `only_before` and `only_after` are
    shapes that the other one was not compiled for.  `same_bytes`: no file differs.  `broken` are
    the gates that were given and do not hold.
    """

    before: str
    after: str
    same_bytes: bool
    settings: tuple[Change, ...]
    shapes: tuple[ShapeDiff, ...]
    only_before: tuple[str, ...] = ()
    only_after: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()


def diff_bundles(before: Bundle, after: Bundle, *, gates: Sequence[Gate] = ()) -> BundleDiff:
    """Hold two bundles against each other, shape by shape.

    Raises:
        BundleError: a part of one cannot be understood.
    """
    old, new = name_parts(before), name_parts(after)
    if len(old) == len(new) == 1:  # one shape each: these are compared, whatever they are
        (name, one), (_, other) = *old.items(), *new.items()
        pairs = {name: (one, other)}
    else:
        pairs = {name: (old[name], new[name]) for name in old if name in new}
    shapes = tuple(_diff_shape(name, *pair) for name, pair in pairs.items())
    broken = [
        f"{sentence} ({shape.shapes})" if len(shapes) > 1 else sentence
        for shape in shapes
        for sentence in list_broken(gates, shape.before, shape.after)
    ]
    if gates and not shapes:
        broken = ["no shapes are in both bundles, so that no gate can be held"]
    return BundleDiff(
        before=str(before.path),
        after=str(after.path),
        same_bytes=before.manifest.files == after.manifest.files
        and before.manifest == after.manifest,
        settings=_compare_facts(_settings(before), _settings(after)),
        shapes=shapes,
        only_before=() if len(pairs) == len(old) else tuple(sorted(old.keys() - new.keys())),
        only_after=() if len(pairs) == len(new) else tuple(sorted(new.keys() - old.keys())),
        broken=tuple(broken),
    )


def _diff_shape(shapes: str, before: Bundle, after: Bundle) -> ShapeDiff:
    launches = before.launches(), after.launches()
    pairs = pair_kernels(before.kernels(), after.kernels(), launches=launches)
    return ShapeDiff(
        shapes=shapes,
        before=figures_of(before),
        after=figures_of(after),
        precision=_compare_facts(_precision(before), _precision(after)),
        kernels=list_changes(pairs),
        nodes=_compare_nodes(pairs, *launches),
        decisions=_compare_decisions(before.decisions(), after.decisions()),
    )


def _settings(bundle: Bundle) -> dict[str, str]:
    """Return what a bundle was made of and with, by name."""
    manifest = bundle.manifest
    facts = {
        "name": manifest.name,
        "model": manifest.model.file,
        "model's SHA-256": manifest.model.sha256[:16],
        "target": manifest.target.name,
        "target's digest": manifest.target.digest[:16],
        "made for": manifest.target.llvm_triple,
        "library": f"{manifest.library.machine}, {manifest.library.page_bytes // 1024} KiB pages",
        "states": ", ".join(manifest.states),
    }
    options = {"preset": manifest.options.preset, **manifest.options.values}
    facts |= {f"option {name}": _show_value(value) for name, value in sorted(options.items())}
    facts |= {f"input {spec.name}": _show_spec(spec) for spec in manifest.inputs}
    facts |= {f"output {spec.name}": _show_spec(spec) for spec in manifest.outputs}
    return facts | {f"version of {tool}": said for tool, said in manifest.versions.items()}


def _show_spec(spec: TensorSpec) -> str:
    return f"{'x'.join(map(str, spec.shape)) or 'scalar'} {spec.dtype} {spec.layout}"


def _show_value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_show_value, value)) or "none"
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def _precision(bundle: Bundle) -> dict[str, str]:
    """Bytes of each dtype, in constants and in slots."""
    found: Counter[str] = Counter()
    for spec in bundle.manifest.params:
        bits = _BITS.search(spec.dtype)
        width = int(bits[0]) // 8 if bits else 1
        found[f"constants in {spec.dtype}, bytes"] += math.prod(spec.shape) * max(1, width)
    for slot in bundle.manifest.memory.slots:
        found[f"slots of {slot.dtype}, bytes"] += slot.bytes
    return {name: str(count) for name, count in sorted(found.items())}


def _compare_facts(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Change, ...]:
    return tuple(
        Change(subject=name, before=before.get(name, ""), after=after.get(name, ""))
        for name in dict.fromkeys((*before, *after))
        if before.get(name, "") != after.get(name, "")
    )


def _compare_nodes(
    pairs: Pairs, before: Sequence[LaunchInfo], after: Sequence[LaunchInfo]
) -> tuple[NodeChange, ...]:
    """Nodes whose kernel, memory, bytes or time differ, in the order in which they run."""
    same = {
        (old.name, new.name)
        for old, new in pairs
        if old is not None and new is not None and read_body(old) == read_body(new)
    }
    was = _forms([old for old, _ in pairs if old is not None], before)
    now = _forms([new for _, new in pairs if new is not None], after)
    changes = []
    for key in dict.fromkeys((*now, *was)):
        old_form, new_form = was.get(key), now.get(key)
        if old_form is not None and new_form is not None:
            facts = [(f.memory, f.bytes, f.time_us, f.family) for f in (old_form, new_form)]
            if facts[0] == facts[1] and (old_form.kernel, new_form.kernel) in same:
                continue
        changes.append(NodeChange(node=key[0], before=old_form, after=new_form))
    return tuple(changes)


def _forms(
    kernels: Sequence[KernelInfo], launches: Sequence[LaunchInfo]
) -> dict[tuple[str, int], NodeForm]:
    """Return how each launch computes its node, by the node's name and how often it was there
    before."""
    known = {kernel.name: kernel for kernel in kernels}
    seen: Counter[str] = Counter()
    forms = {}
    for launch in launches:
        kernel = known.get(launch.kernel)
        scopes = () if kernel is None else kernel.scopes
        textures = sum("texture" in scope for scope in scopes)
        forms[launch.node, seen[launch.node]] = NodeForm(
            kernel=launch.kernel,
            family="" if kernel is None else kernel.family,
            memory=", ".join(
                (count_of(textures, "texture"), count_of(len(scopes) - textures, "buffer"))
            ),
            bytes=launch.bytes,
            time_us=launch.floor_us,
        )
        seen[launch.node] += 1
    return forms


def _compare_decisions(
    before: Sequence[Mapping[str, str]], after: Sequence[Mapping[str, str]]
) -> tuple[DecisionChange, ...]:
    """Decisions that only one has, those of one stage on one subject side by side."""
    old, new = (Counter(map(_decision_key, log)) for log in (before, after))
    gone: dict[tuple[str, str], list[_Said]] = defaultdict(list)
    for said in (old - new).elements():
        gone[said[:2]].append(said)
    changes = []
    for said in (new - old).elements():
        stage, subject, taken, reason = said
        others = gone[said[:2]]
        was = others.pop(0)[2] if others else ""
        changes.append(
            DecisionChange(stage=stage, subject=subject, before=was, after=taken, reason=reason)
        )
    changes += [
        DecisionChange(stage=stage, subject=subject, before=taken, after="", reason=reason)
        for stage, subject, taken, reason in chain.from_iterable(gone.values())
    ]
    return tuple(changes)


_Said = tuple[str, str, str, str]


def _decision_key(entry: Mapping[str, str]) -> _Said:
    return entry["stage"], entry["subject"], entry["taken"], entry["reason"]
