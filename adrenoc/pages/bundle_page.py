"""A bundle in a terminal and on a page: its figures, launches, kernels, memory, decisions."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, starmap
from typing import Any

from adrenoc.base.decision import ASSUMED
from adrenoc.base.text.report import (
    Cards,
    Drawing,
    Fields,
    Fold,
    Marked,
    Name,
    Part,
    Share,
    Table,
    Title,
    page,
    safe,
    shorten,
    tabulate,
)
from adrenoc.base.text.spelling import (
    Figure,
    count_of,
    dims,
    figure,
    show_bytes,
    show_count,
    show_growth,
    show_us,
)
from adrenoc.bundle.buckets import name_parts, open_edition, read_buckets, read_editions
from adrenoc.bundle.bundle import CHAT, TOKENIZER, Bundle
from adrenoc.bundle.chat import find_pictures, how_to_talk, is_decoder, read_chat
from adrenoc.bundle.gates import Figures, figures_of
from adrenoc.bundle.manifest import FileEntry, Manifest, RegionInfo, TensorSpec

_LONGEST_VALUE = 60
"""Characters of an option's list that is shown whole."""
_MOST_ALIKE = 4
"""Tensors that differ in a number of their name alone, and have a row each."""
_ROWS: tuple[tuple[str, str, Callable[[Any], Figure]], ...] = (
    ("kernels", "kernels", Figure),
    ("launches", "launches", Figure),
    ("copies", "copies", Figure),
    ("operators in textures", "texture_nodes", Figure),
    ("operators in buffers", "buffer_nodes", Figure),
    ("operators on the CPU", "cpu_nodes", Figure),
    ("GPU memory", "memory_bytes", show_bytes),
    ("size", "size_bytes", show_bytes),
    ("estimated time", "time_us", show_us),
)
_NEITHER = ("operators in textures",)
"""More may be good, as after buffers, or bad, as where less was fused."""


def compare_figures(before: Figures, after: Figures, title: str) -> Table:
    """Return a row a figure: before, after, and the change, which is good or bad news."""

    def tell_change(row: tuple[str, str, Any]) -> Marked:
        name, key, _ = row
        was, now = getattr(before, key), getattr(after, key)
        kind = ""
        if was is not None and now is not None and was != now and name not in _NEITHER:
            kind = "good" if now < was else "bad"
        return Marked(show_growth(was, now), kind)

    return tabulate(
        _ROWS,
        {
            "": lambda row: row[0],
            "before": lambda row: _show_figure(before, row[1], row[2]),
            "after": lambda row: _show_figure(after, row[1], row[2]),
            "change": tell_change,
        },
        title=title,
    )


def _show_figure(figures: Figures, key: str, show: Callable[[Any], Figure]) -> Figure:
    value = getattr(figures, key)
    return Figure("unknown") if value is None else show(value)


def bundle_html(bundle: Bundle) -> str:
    """Return the whole page; of a bundle of several shapes or GPUs each in its own part. Raises
    BundleError where a part of the bundle cannot be understood."""
    manifest = bundle.manifest
    about = f"{manifest.model.file} for {manifest.target.name}, preset {manifest.options.preset}"
    found = list(name_parts(bundle).items())
    parts = [*_shape_parts(bundle)]
    if len(found) > 1:
        parts = [
            Fold(
                title=name if "," in name else f"Shapes {name}",
                parts=[*_shape_parts(part)],
                is_open=number == 0,
            )
            for number, (name, part) in enumerate(reversed(found))
        ]
    facts = [_facts(bundle), *_list_buckets(bundle), _editions(bundle)]
    return page(manifest.name, *parts, *facts, _files(manifest.files), about=about, by="view")


def bundle_parts(bundle: Bundle) -> Iterator[Part]:
    """Return what `adrenoc inspect` tells. Raises BundleError where a part of the bundle cannot be
    understood."""
    manifest = bundle.manifest
    size = f"{show_bytes(bundle.bytes)} in {count_of(len(manifest.files), 'file')}"
    yield Title(text=manifest.name, detail=size)
    yield _facts(bundle)
    yield _borders(manifest)
    yield from _list_buckets(bundle)
    yield _editions(bundle)
    yield _kernels(manifest)
    yield list_regions(manifest.regions)
    yield _files(manifest.files)


def _shape_parts(bundle: Bundle) -> Iterator[Part]:
    """Return what a page tells of one choice of input shapes."""
    manifest, figures = bundle.manifest, figures_of(bundle)
    yield Cards(figures=[(name, _show_figure(figures, key, show)) for name, key, show in _ROWS])
    yield _borders(manifest)
    yield _launches(bundle)
    yield _kernels(manifest)
    texts = [
        f"<details><summary>{safe(kernel.name)}</summary>\n"
        f"<pre>{safe(kernel.source)}</pre></details>\n"
        for kernel in bundle.kernels()
    ]
    yield Drawing(html="".join(texts), title="Texts of kernels")
    yield _slots(manifest)
    yield list_regions(manifest.regions)
    decisions = list_decisions(bundle.decisions())
    if decisions.rows:
        yield Fold(title=count_of(len(decisions.rows), "decision"), parts=[decisions])


def list_decisions(decisions: Iterable[Mapping[str, str]]) -> Table:
    """List what stages decided of what, and why."""
    return tabulate(
        decisions,
        {
            "stage": lambda one: one["stage"],
            "subject": lambda one: Name(one["subject"]),
            "decision": lambda one: one["taken"],
            "reason": lambda one: one["reason"],
        },
    )


def _facts(bundle: Bundle) -> Fields:
    manifest, library = bundle.manifest, bundle.manifest.library
    options = {"preset": manifest.options.preset, **manifest.options.values}
    return Fields(
        title="Made with",
        pairs=[
            ("model", f"{manifest.model.file} ({manifest.model.format})"),
            ("target", f"{manifest.target.name} ({manifest.target.llvm_triple})"),
            ("options", ", ".join(starmap(_tell_option, sorted(options.items())))),
            (
                "library",
                f"{library.machine}, {library.page_bytes // 1024} KiB pages, "
                f"needs {', '.join(library.needed) or 'nothing'}",
            ),
            ("memory", _tell_memory(bundle)),
            *_tell_decoder(bundle),
            *list_assumed(bundle.decisions()),
            ("made with", ", ".join(map(" ".join, manifest.versions.items()))),
            ("SHA-256", f"{manifest.model.sha256} of the model"),
        ],
    )


def list_assumed(decisions: Iterable[Mapping[str, str]]) -> list[tuple[str, str]]:
    """List what was assumed, of what, and how to say otherwise."""
    return [
        (ASSUMED, f"{d['taken'].removeprefix(ASSUMED)[1:]}, {shorten(d['subject'])}: {d['reason']}")
        for d in decisions
        if d["taken"].startswith(ASSUMED)
    ]


def _tell_memory(bundle: Bundle) -> str:
    memory, params = bundle.manifest.memory, bundle.manifest.params
    textures = sum(1 for spec in params if "texture" in spec.scope)
    return (
        f"{show_bytes(memory.peak_bytes)} of the GPU: "
        f"{show_bytes(memory.param_bytes)} in {count_of(len(params), 'constant')} "
        f"({textures} in textures), "
        f"{show_bytes(memory.slot_bytes)} in {count_of(len(memory.slots), 'slot')}, "
        f"{show_bytes(memory.input_bytes + memory.output_bytes)} inputs and outputs"
    )


def _tell_decoder(bundle: Bundle) -> list[tuple[str, str]]:
    """Tell a language model's context, what ends a text, and how it is talked to."""
    from adrenoc.device.generate import count_rows

    if not is_decoder(bundle.manifest):
        return []
    ends = ", ".join(map(str, bundle.manifest.end_tokens)) or "none"
    words = "no tokenizer"
    if bundle.file(TOKENIZER).is_file():
        words = "a tokenizer, no template of chats"
    if bundle.file(CHAT).is_file():
        words = f"a tokenizer and a template of chats; {read_chat(bundle).sampling.describe()}"
    pictures = find_pictures(bundle, is_given=False)
    if pictures is not None and pictures.rows:
        words += f"; pictures of {pictures.rows} rows"
    return [
        ("decoder", f"up to {count_rows(bundle)} tokens, end tokens {ends}; {words}"),
        ("talk", how_to_talk(bundle.path, bundle.manifest)),
    ]


def _tell_option(name: str, value: Any) -> str:
    """Write an option out, of a long list the number of its entries: the tables show what it
    holds."""
    text = json.dumps(value)
    is_long = isinstance(value, list | tuple) and len(text) > _LONGEST_VALUE
    return f"{name} = {f'{len(value)} of them' if is_long else text}"


def _borders(manifest: Manifest) -> Table:
    rows = [*_tensors("input", manifest.inputs), *_tensors("output", manifest.outputs)]
    columns = ("", "name", "shape", "dtype", "layout")
    return Table(columns=columns, rows=tuple(rows), title="Inputs and outputs")


def _tensors(kind: str, specs: tuple[TensorSpec, ...]) -> list[tuple[str, ...]]:
    """List a row for each tensor, one for many that differ in a number of their name alone, as the
    caches of a decoder do."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for spec in specs:
        said = dims(spec.shape), spec.dtype, spec.layout
        alike.setdefault((re.sub(r"\d+", "#", spec.name), *said), []).append(spec.name)
    folded = {n: names for names in alike.values() if len(names) > _MOST_ALIKE for n in names}
    rows: list[tuple[str, ...]] = []
    for spec in specs:
        names = folded.get(spec.name, [spec.name])
        if spec.name == names[0]:
            name = f"{names[0]} to {names[-1]}, {len(names)} of them" if names[1:] else names[0]
            rows.append((kind, name, dims(spec.shape), spec.dtype, spec.layout))
    return rows


def _list_buckets(bundle: Bundle) -> Iterator[Part]:
    """Tell what is for other shapes; nothing of a bundle for one choice."""
    buckets = read_buckets(bundle)
    if buckets is None:
        return
    if buckets.signatures:
        rows = tuple(
            (entry.signature, entry.folder, *row)
            for entry in reversed(buckets.buckets)
            for row in (*_tensors("input", entry.inputs), *_tensors("output", entry.outputs))
        )
        columns = ("signature", "folder", "", "name", "shape", "dtype", "layout")
        yield Table(columns=columns, rows=rows, title="Signatures")
        return
    # Caches have the same shape in all.
    shapes = {
        spec.name: [dims(entry.inputs[number].shape) for entry in buckets.buckets]
        for number, spec in enumerate(bundle.manifest.inputs)
    }
    differ = {name: column for name, column in shapes.items() if len(set(column)) > 1}
    folders = [entry.folder for entry in buckets.buckets]
    rows = tuple(zip(folders, *differ.values(), strict=True))
    yield Table(columns=("bucket", *differ), rows=rows, title="Buckets")
    refused = buckets.batch.refused
    said = f"not filled up: {refused}" if refused else "a smaller one is filled up, which is exact"
    yield Fields(pairs=[("batch", said)])


def _editions(bundle: Bundle) -> Table:
    """List what the bundle has for single GPUs; nothing where it is for one device."""
    found = []
    for edition in read_editions(bundle):
        part = open_edition(bundle, edition)
        moved = sum(1 for spec in part.manifest.params if spec.name in bundle.moves())
        constants = f"{len(part.manifest.params)}, {moved} moved"
        found.append((edition, figures_of(part), constants))
    return tabulate(
        found,
        {
            "kernels for": lambda one: one[0].title,
            "folder": lambda one: one[0].folder,
            "kernels": lambda one: one[1].kernels,
            "launches": lambda one: one[1].launches,
            "memory": lambda one: show_bytes(one[1].memory_bytes),
            "constants": lambda one: one[2],
        },
        title="GPUs",
    )


def _launches(bundle: Bundle) -> Table:
    launches = bundle.launches()
    families = {kernel.name: kernel.family for kernel in bundle.manifest.kernels}
    longest = max((launch.floor_us or 0.0 for launch in launches), default=0.0)
    return tabulate(
        enumerate(launches, 1),
        {
            "": lambda one: one[0],
            "node": lambda one: one[1].node,
            "family": lambda one: families.get(one[1].kernel, ""),
            "kernel": lambda one: one[1].kernel,
            "FLOP": lambda one: show_count(one[1].flops),
            "memory bus": lambda one: show_bytes(one[1].bytes),
            "time at least": lambda one: Share(
                show_us(one[1].floor_us) or "unknown", one[1].floor_us or 0.0, longest
            ),
        },
        title="Launches",
        note="In the order in which they run; times are floors by the target's rates.",
    )


def _kernels(manifest: Manifest) -> Table:
    return tabulate(
        manifest.kernels,
        {
            "kernel": lambda one: one.name,
            "family": lambda one: one.family,
            "calls": lambda one: one.calls,
            "work-group": lambda one: Figure(dims(one.work_group)),
            "groups": lambda one: Figure(dims(one.grid)),
            "arguments in": lambda one: _scopes(one.scopes),
            "schedule": lambda one: "tuned" if one.tuned else "",
        },
        title="Kernels",
    )


def _scopes(scopes: tuple[str, ...]) -> str:
    """Tell where each tensor argument lies, in order: `texture x2, buffer`."""
    places = groupby("texture" if "texture" in scope else "buffer" for scope in scopes)
    counts = ((place, len(list(run))) for place, run in places)
    return ", ".join(place if count == 1 else f"{place} x{count}" for place, count in counts)


def _slots(manifest: Manifest) -> Table:
    memory = manifest.memory
    largest = max((slot.bytes for slot in memory.slots), default=0)
    return tabulate(
        sorted(memory.slots, key=lambda slot: -slot.bytes),
        {
            "in": lambda slot: slot.scope,
            "shape": lambda slot: dims(slot.shape),
            "dtype": lambda slot: slot.dtype,
            "bytes": lambda slot: Share(show_bytes(slot.bytes), slot.bytes, largest),
        },
        title="Memory of intermediate tensors",
        note=f"{show_bytes(memory.live_bytes)} of them are alive at once.",
    )


def list_regions(regions: Sequence[RegionInfo]) -> Table:
    """List what OpenCL ML computes, as the compiler estimates it."""
    return tabulate(
        regions,
        {
            "region of OpenCL ML": lambda one: one.symbol,
            "needs": lambda one: f"CLML {one.version}, {one.dtype}",
            "operators": lambda one: tell_operators(one.operators),
            "in, out": lambda one: f"{len(one.inputs)}, {len(one.outputs)}",
            "copies": lambda one: one.copies,
            "est. CLML": lambda one: figure(one.clml_us, "", " us"),
            "+ copies": lambda one: figure(one.copies_us, "", " us"),
            "textures": lambda one: figure(one.texture_us, "", " us"),
            "gain": lambda one: figure(
                one.texture_us / max(one.clml_us + one.copies_us, 1), ".2f", " x"
            ),
        },
        title="Regions of OpenCL ML",
        note="Times are estimates of the compiler, for this target.",
    )


def tell_operators(names: Sequence[str]) -> str:
    """Count each kind, the most frequent first: `nn.conv2d+add x12, reshape`."""
    counts = Counter(names).most_common()
    return ", ".join(name if count == 1 else f"{name} x{count}" for name, count in counts)


def _files(entries: Sequence[FileEntry]) -> Table:
    """List a row for each file, one for all kernels of a folder."""
    kernels: dict[str, list[FileEntry]] = {}
    rows = []
    for entry in entries:
        folder, found, _ = entry.path.rpartition("kernels/")
        if found:
            kernels.setdefault(folder + found, []).append(entry)
        else:
            rows.append((entry.path, show_bytes(entry.bytes), entry.sha256[:16]))
    for folder, inside in kernels.items():
        whole = show_bytes(sum(entry.bytes for entry in inside))
        rows.append((f"{folder} ({count_of(len(inside), 'file')})", whole, ""))
    return Table(columns=("file", "size", "SHA-256"), rows=tuple(rows), title="Files")
