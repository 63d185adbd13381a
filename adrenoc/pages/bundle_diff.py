"""What changed from one bundle to another: settings, figures, kernels, nodes, decisions; in a
terminal and on a page, which has kernels side by side."""

from __future__ import annotations

import difflib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from operator import itemgetter
from pathlib import Path

from adrenoc.base.text.report import (
    Drawing,
    Fields,
    Name,
    Part,
    Table,
    Title,
    Verdict,
    page,
    safe,
    tabulate,
)
from adrenoc.base.text.spelling import Figure, count_of, dims, show_us, show_value
from adrenoc.bundle.buckets import name_parts
from adrenoc.bundle.bundle import Bundle, LaunchInfo
from adrenoc.bundle.gates import Figures, GrowthLimit, figures_of, list_broken
from adrenoc.bundle.manifest import KernelInfo, TensorSpec
from adrenoc.pages.bundle_page import compare_figures

ADDED, REMOVED, TEXT, LAUNCH, NAME = "added", "removed", "text", "launch", "name"
_LAUNCH_FACTS = ("work_group", "grid", "calls", "scopes", "tuned")
_MOST_LINES = 4000
"""Of a text whose lines are held against another's: that takes their product."""


@dataclass(frozen=True, kw_only=True)
class KernelChange:
    """A kernel that is not as it was; `before` or `after` is empty where there is none.

    `kind` is "added", "removed", "text", "launch" (the same text in other work-groups, or called
    another number of times; `what` says it) or "name" alone.  `lines` counts those of the text that
    came and those that went.
    """

    kind: str
    before: str
    after: str
    family: str
    what: str = ""
    lines: tuple[int, int] = (0, 0)


Pairs = Sequence[tuple[KernelInfo | None, KernelInfo | None]]


def _pair_kernels(
    before: Sequence[KernelInfo],
    after: Sequence[KernelInfo],
    *,
    launches: tuple[Sequence[LaunchInfo], Sequence[LaunchInfo]],
) -> Pairs:
    """Pairs in the order of `after`, those that are gone last. Equal texts belong together; then
    kernels that compute the same node; then equal names."""
    gone = {kernel.name: kernel for kernel in before}
    partner: dict[str, KernelInfo] = {}

    def match(key_of_old: Mapping[str, str], key_of_new: Mapping[str, str]) -> None:
        places: dict[str, list[str]] = defaultdict(list)
        for name in gone:
            if name in key_of_old:
                places[key_of_old[name]].append(name)
        for kernel in after:
            names = places.get(key_of_new.get(kernel.name, ""), [])
            if kernel.name in partner or not names:
                continue
            chosen = kernel.name if kernel.name in names else names[0]
            names.remove(chosen)
            partner[kernel.name] = gone.pop(chosen)

    texts = _bodies(before), _bodies(after)
    # By name first, so that of two kernels with one text each stays with itself.
    match({n: n + text for n, text in texts[0].items()}, {n: n + t for n, t in texts[1].items()})
    match(*texts)
    match(_first_nodes(launches[0]), _first_nodes(launches[1]))
    match({name: name for name in gone}, {kernel.name: kernel.name for kernel in after})
    pairs = [(partner.get(kernel.name), kernel) for kernel in after]
    return [*pairs, *((kernel, None) for kernel in gone.values())]


def _bodies(kernels: Iterable[KernelInfo]) -> dict[str, str]:
    return {kernel.name: _read_body(kernel) for kernel in kernels}


def _read_body(kernel: KernelInfo) -> str:
    """Return the text of a kernel without its name."""
    return kernel.source.replace(kernel.name, "\0")


def _first_nodes(launches: Sequence[LaunchInfo]) -> dict[str, str]:
    return {launch.kernel: launch.node for launch in reversed(launches)}


def _one_sided(old: KernelInfo | None, new: KernelInfo | None) -> KernelChange:
    if new is not None:
        lines = (len(new.source.splitlines()), 0)
        return KernelChange(kind=ADDED, before="", after=new.name, family=new.family, lines=lines)
    name, family, source = ("", "", "") if old is None else (old.name, old.family, old.source)
    lines = (0, len(source.splitlines()))
    return KernelChange(kind=REMOVED, before=name, after="", family=family, lines=lines)


def _change(old: KernelInfo, new: KernelInfo) -> KernelChange | None:
    what = "; ".join(
        f"{fact.replace('_', '-')} {_format(getattr(old, fact))} to {_format(getattr(new, fact))}"
        for fact in _LAUNCH_FACTS
        if getattr(old, fact) != getattr(new, fact)
    )
    same = KernelChange(kind=NAME, before=old.name, after=new.name, family=new.family)
    was, now = _read_body(old), _read_body(new)
    if was != now:
        lines = count_lines(was.splitlines(), now.splitlines())
        return replace(same, kind=TEXT, what=what, lines=lines)
    if what:
        return replace(same, kind=LAUNCH, what=what)
    return same if old.name != new.name else None


def count_lines(before: Sequence[str], after: Sequence[str]) -> tuple[int, int]:
    """Return how many lines came, and how many went."""
    if max(len(before), len(after)) > _MOST_LINES:
        return len(after), len(before)
    matcher = difflib.SequenceMatcher(None, before, after)
    kept = sum(block.size for block in matcher.get_matching_blocks())
    return len(after) - kept, len(before) - kept


def _format(value: object) -> str:
    if isinstance(value, tuple):
        if all(isinstance(part, str) for part in value):
            textures = sum("texture" in part for part in value)
            return f"{textures} textures of {len(value)}"
        return "x".join(map(str, value))
    return str(value).lower()


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
    """What changed for one choice of input shapes (`shapes`, as the bucket's folder has it). Of
    kernels for one GPU of several, that is before them."""

    shapes: str
    before: Figures
    after: Figures
    precision: tuple[Change, ...]
    kernels: tuple[KernelChange, ...]
    nodes: tuple[NodeChange, ...]
    decisions: tuple[DecisionChange, ...]

    @property
    def is_equal(self) -> bool:
        """Return whether a device does the same; names of kernels aside."""
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


def diff_bundles(before: Bundle, after: Bundle, *, gates: Sequence[GrowthLimit] = ()) -> BundleDiff:
    """Hold two bundles against each other, shape by shape. Raises BundleError where a part of one
    cannot be understood."""
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
    pairs = _pair_kernels(before.kernels(), after.kernels(), launches=launches)
    changes = []
    for old, new in pairs:
        if old is None or new is None:
            changes.append(_one_sided(old, new))
            continue
        change = _change(old, new)
        if change is not None:
            changes.append(change)
    return ShapeDiff(
        shapes=shapes,
        before=figures_of(before),
        after=figures_of(after),
        precision=_compare_facts(_precision(before), _precision(after)),
        kernels=tuple(changes),
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
    facts |= {f"option {name}": show_value(value) for name, value in sorted(options.items())}
    facts |= {f"input {spec.name}": _show_spec(spec) for spec in manifest.inputs}
    facts |= {f"output {spec.name}": _show_spec(spec) for spec in manifest.outputs}
    return facts | {f"version of {tool}": said for tool, said in manifest.versions.items()}


def _show_spec(spec: TensorSpec) -> str:
    return f"{dims(spec.shape)} {spec.dtype} {spec.layout}"


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
        if old is not None and new is not None and _read_body(old) == _read_body(new)
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
    facts = itemgetter("stage", "subject", "taken", "reason")
    old, new = (Counter(map(facts, log)) for log in (before, after))
    gone: dict[tuple[str, str], list[tuple[str, ...]]] = defaultdict(list)
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


def diff_html(diff: BundleDiff, before: Bundle, after: Bundle) -> str:
    """Return the whole page."""
    broken = [Verdict(passed=False, text=f"does not hold: {sentence}") for sentence in diff.broken]
    texts = _texts(before), _texts(after)
    title = f"{Path(diff.before).name} → {Path(diff.after).name}"
    about = f"{diff.before} against {diff.after}"
    return page(title, *broken, *_list_parts(diff, texts), about=about, by="diff")


def diff_parts(diff: BundleDiff) -> Iterator[Part]:
    """Return what a terminal shows."""
    yield Title(text=f"{diff.before} → {diff.after}")
    yield from _list_parts(diff, None)


_Texts = Mapping[str, Mapping[str, str]]
"""Kernel sources by name, of each choice of shapes; of a bundle with one, under any."""


def _texts(bundle: Bundle) -> _Texts:
    return {
        name: {k.name: k.source for k in part.kernels()}
        for name, part in name_parts(bundle).items()
    }


def _of(texts: _Texts, shapes: str) -> Mapping[str, str]:
    return texts[shapes] if shapes in texts else next(iter(texts.values()))


def _list_parts(diff: BundleDiff, texts: tuple[_Texts, _Texts] | None) -> Iterator[Part]:
    if diff.same_bytes:
        yield Verdict(passed=True, text="the two hold the same bytes")
        return
    only = ("only before", diff.only_before), ("only after", diff.only_after)
    yield Fields(pairs=[(title, ", ".join(shapes)) for title, shapes in only if shapes])
    for shape in diff.shapes:
        yield from _shape_parts(shape, f" of {shape.shapes}" if len(diff.shapes) > 1 else "")
        if texts is not None:
            pair = [_of(one, shape.shapes) for one in texts]
            sides = "".join(_draw_kernel(k, *pair) for k in shape.kernels if k.kind != NAME)
            if sides:
                yield Drawing(html=sides, title="Kernels side by side")
    yield _list_changed(diff.settings, "setting", "Settings")


def _shape_parts(diff: ShapeDiff, of_shape: str) -> Iterator[Part]:
    if of_shape:
        yield Title(text=f"shapes{of_shape}")
    yield compare_figures(diff.before, diff.after, title=f"Figures{of_shape}")
    if diff.is_equal:
        same = "kernels, nodes, precision and decisions are the same"
        yield Verdict(passed=True, text=same)
        return
    real = [kernel for kernel in diff.kernels if kernel.kind != NAME]
    renamed = len(diff.kernels) - len(real)
    yield _tabulate(
        real,
        {
            "kernel": lambda one: one.kind,
            "before": lambda one: one.before,
            "after": lambda one: one.after,
            "family": lambda one: one.family,
            "lines": lambda one: Figure("+{} -{}".format(*one.lines)),
            "what": lambda one: one.what,
        },
        title=f"Kernels: {len(real)}",
        note=f"{renamed} more have another name and the same text." if renamed else "",
    )
    yield _tabulate(
        diff.nodes,
        {
            "node": lambda one: Name(one.node),
            "before": lambda one: _tell_form(one.before),
            "after": lambda one: _tell_form(one.after),
            "time before": lambda one: _tell_time(one.before),
            "time after": lambda one: _tell_time(one.after),
        },
        title=f"Nodes: {len(diff.nodes)}",
    )
    yield _list_changed(diff.precision, "precision", "Precision", nothing="0")
    yield _tabulate(
        diff.decisions,
        {
            "stage": lambda one: one.stage,
            "subject": lambda one: Name(one.subject),
            "before": lambda one: one.before,
            "after": lambda one: one.after,
            "reason": lambda one: one.reason,
        },
        title=f"Decisions: {len(diff.decisions)}",
    )


def _list_changed(changes: Sequence[Change], what: str, title: str, nothing: str = "") -> Table:
    return _tabulate(
        changes,
        {
            what: lambda one: one.subject,
            "before": lambda one: one.before or nothing,
            "after": lambda one: one.after or nothing,
        },
        title=title,
    )


_tabulate = partial(tabulate, most=10, others="--html and --json list them")


def _tell_form(form: NodeForm | None) -> str:
    return "" if form is None else f"{form.kernel}, {form.memory}"


def _tell_time(form: NodeForm | None) -> Figure:
    return show_us(None if form is None else form.time_us)


def _draw_kernel(change: KernelChange, before: Mapping[str, str], after: Mapping[str, str]) -> str:
    names = " → ".join(dict.fromkeys(name for name in (change.before, change.after) if name))
    body = show_side_by_side(before.get(change.before, ""), after.get(change.after, ""))
    return f"<details><summary>{change.kind}: {safe(names)}</summary>\n{body}</details>\n"


_AROUND = 3


def show_side_by_side(before: str, after: str) -> str:
    """Return a table of four columns: line number and text of each."""
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > _MOST_LINES:
        return (
            f"<p class='quiet'>{len(old)} and {len(new)} lines are too many to be held against "
            "each other here.</p>\n"
        )
    return f"<table class='sides'>{''.join(_rows(old, new))}</table>\n"


def _rows(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    matcher = difflib.SequenceMatcher(None, old, new)
    for at, group in enumerate(matcher.get_grouped_opcodes(_AROUND)):
        if at:
            yield "<tr><td class='number'>⋮</td><td></td><td class='number'>⋮</td><td></td></tr>\n"
        for tag, i, i_end, j, j_end in group:
            for step in range(max(i_end - i, j_end - j)):
                left = _side(old, i + step, i_end, tag, "went")
                right = _side(new, j + step, j_end, tag, "came")
                yield f"<tr>{left}{right}</tr>\n"


def _side(lines: Sequence[str], at: int, end: int, tag: str, kind: str) -> str:
    if at >= end:
        return "<td class='number'></td><td></td>"
    mark = "" if tag == "equal" else f" class='{kind}'"
    return f"<td class='number'>{at + 1}</td><td{mark}>{safe(lines[at])}</td>"
