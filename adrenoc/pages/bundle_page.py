"""A bundle as one HTML file: its figures, what each launch costs, kernels, memory, decisions.

The pages of one and of two bundles list the same figures.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from adrenoc.base.text.html_page import (
    bar,
    cards,
    cell,
    fold,
    line,
    number,
    page,
    part,
    safe,
    section,
    table,
)
from adrenoc.base.text.spelling import dims, show_bytes, show_count, show_growth, show_ms
from adrenoc.bundle.bundle import Bundle
from adrenoc.bundle.editions import name_parts
from adrenoc.bundle.gates import Figures, figures_of
from adrenoc.bundle.manifest import Manifest

_ROWS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("kernels", "kernels", str),
    ("launches", "launches", str),
    ("copies", "copies", str),
    ("operators in textures", "texture_nodes", str),
    ("operators in buffers", "buffer_nodes", str),
    ("operators on the CPU", "cpu_nodes", str),
    ("GPU memory", "memory_bytes", show_bytes),
    ("size", "size_bytes", show_bytes),
    ("estimated time", "time_us", lambda us: show_ms(us / 1000)),
)
_NEITHER = ("operators in textures",)
"""More may be good, as after buffers, or bad, as where less was fused."""


def list_figures(before: Figures, after: Figures) -> list[tuple[str, str, str, str, str]]:
    """Return a row a figure: name, before, after, change, and "good", "bad" or nothing of that."""
    rows = []
    for name, key, show in _ROWS:
        was, now = getattr(before, key), getattr(after, key)
        kind = ""
        if was is not None and now is not None and was != now:
            kind = "" if name in _NEITHER else "good" if now < was else "bad"
        rows.append((name, _text(was, show), _text(now, show), show_growth(was, now), kind))
    return rows


def show_figures(figures: Figures) -> list[tuple[str, str]]:
    """Name and value of each figure."""
    values = ((name, getattr(figures, key), show) for name, key, show in _ROWS)
    return [(name, _text(value, show)) for name, value, show in values]


def _text(value: float | None, show: Callable[[Any], str]) -> str:
    return "unknown" if value is None else show(value)


def bundle_html(bundle: Bundle) -> str:
    """Return the whole page; of a bundle of several shapes or GPUs each in its own part.

    Raises:
        BundleError: a part of the bundle cannot be understood.
    """
    manifest = bundle.manifest
    about = f"{manifest.model.file} for {manifest.target.name}, preset {manifest.options.preset}"
    parts = []
    found = list(name_parts(bundle).items())
    if len(found) == 1:
        parts.append(_shape(bundle))
    else:
        for number, (name, part) in enumerate(reversed(found)):
            title = name if "," in name else f"Shapes {name}"
            parts.append(fold(title, _shape(part), is_open=number == 0))
    parts.append(_about(bundle))
    return page(manifest.name, *parts, about=about, by="view")


def _shape(bundle: Bundle) -> str:
    """Return what is of one choice of input shapes."""
    manifest = bundle.manifest
    return "".join(
        (
            cards(show_figures(figures_of(bundle))),
            _borders(manifest),
            _launches(bundle),
            _kernels(bundle),
            _memory(manifest),
            _regions(manifest),
            _decisions(bundle),
        )
    )


def _borders(manifest: Manifest) -> str:
    specs = [("input", spec) for spec in manifest.inputs]
    specs += [("output", spec) for spec in manifest.outputs]
    rows = [
        line(cell(kind), cell(s.name), cell(dims(s.shape)), cell(s.dtype), cell(s.layout))
        for kind, s in specs
    ]
    return section("Inputs and outputs", ("", "name", "shape", "dtype", "layout"), rows)


def _launches(bundle: Bundle) -> str:
    launches = bundle.launches()
    families = {kernel.name: kernel.family for kernel in bundle.manifest.kernels}
    longest = max((launch.floor_us or 0.0 for launch in launches), default=0.0)
    rows = [
        line(
            number(str(step)),
            cell(launch.node),
            cell(families.get(launch.kernel, "")),
            cell(launch.kernel),
            number(show_count(launch.flops)),
            number(show_bytes(launch.bytes)),
            number("unknown") + cell("")
            if launch.floor_us is None
            else bar(launch.floor_us / longest if longest else 0.0, show_ms(launch.floor_us / 1e3)),
        )
        for step, launch in enumerate(launches, 1)
    ]
    columns = ("", "node", "family", "kernel", "FLOP", "memory bus", "time at least", "")
    note = "In the order in which they run; times are floors by the target's rates."
    return section("Launches", columns, rows, note)


def _kernels(bundle: Bundle) -> str:
    folded = [
        fold(
            f"{kernel.name} ({kernel.family}), launched {kernel.calls} x, work-group "
            f"{dims(kernel.work_group)}, groups {dims(kernel.grid)}"
            + (", tuned" if kernel.tuned else ""),
            f"<pre>{safe(kernel.source)}</pre>\n",
        )
        for kernel in bundle.kernels()
    ]
    return part("Kernels", "".join(folded)) if folded else ""


def _memory(manifest: Manifest) -> str:
    memory = manifest.memory
    largest = max((slot.bytes for slot in memory.slots), default=0)
    rows = [
        line(
            cell(slot.scope),
            cell(dims(slot.shape)),
            cell(slot.dtype),
            bar(slot.bytes / largest if largest else 0.0, show_bytes(slot.bytes)),
        )
        for slot in sorted(memory.slots, key=lambda slot: -slot.bytes)
    ]
    note = (
        f"{show_bytes(memory.peak_bytes)} of the GPU: "
        f"{show_bytes(memory.param_bytes)} constants, "
        f"{show_bytes(memory.slot_bytes)} in slots "
        f"({show_bytes(memory.live_bytes)} alive at once), "
        f"{show_bytes(memory.input_bytes + memory.output_bytes)} inputs and outputs."
    )
    return section(
        "Memory of intermediate tensors", ("in", "shape", "dtype", "bytes", ""), rows, note
    )


def _regions(manifest: Manifest) -> str:
    rows = [
        line(
            cell(region.symbol),
            cell(", ".join(region.operators)),
            number(str(region.copies)),
            number(show_ms(region.clml_us / 1000)),
            number(show_ms(region.texture_us / 1000)),
        )
        for region in manifest.regions
    ]
    columns = ("region", "operators", "copies", "OpenCL ML", "textures")
    return section("Regions of OpenCL ML", columns, rows, "Times are the compiler's estimates.")


def _decisions(bundle: Bundle) -> str:
    names = ("stage", "subject", "taken", "reason")
    rows = [line(*(cell(entry[name]) for name in names)) for entry in bundle.decisions()]
    if not rows:
        return ""
    return part("Decisions", fold(f"{len(rows)} decisions", table(names, "".join(rows))))


def _about(bundle: Bundle) -> str:
    manifest = bundle.manifest
    options = {"preset": manifest.options.preset, **manifest.options.values}
    facts = {
        "model's SHA-256": manifest.model.sha256,
        "made for": manifest.target.llvm_triple,
        "library": f"{manifest.library.machine}, needs {', '.join(manifest.library.needed)}",
        **{name: json.dumps(value) for name, value in sorted(options.items())},
        **manifest.versions,
    }
    made = [line(cell(name), cell(value)) for name, value in facts.items()]
    files = [
        line(cell(file.path), number(show_bytes(file.bytes)), cell(file.sha256[:16]))
        for file in manifest.files
    ]
    facts_told = fold(f"{len(made)} facts", table(("", ""), "".join(made)))
    listed = fold(f"{len(files)} files", table(("file", "size", "SHA-256"), "".join(files)))
    return part("Made with", facts_told) + part("Files", listed)
