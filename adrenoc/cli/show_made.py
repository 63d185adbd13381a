"""Print what `compile` made of a model, and what it assumed where the file says too little."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from adrenoc.base.decision import ASSUMED
from adrenoc.base.text.spelling import list_first, quote_word
from adrenoc.cli import console

if TYPE_CHECKING:
    from adrenoc.bundle.manifest import Manifest
    from adrenoc.compile.make import Made
    from adrenoc.ir.options import ResolvedOptions


def show_options(resolved: ResolvedOptions) -> None:
    """Show each option, its value, and what set it."""
    console.print_table(
        ("option", "value", "set by"),
        [(name, _format_value(value), origin) for name, value, origin in resolved.explain()],
    )
    console.blank()


def _show_decisions(decisions: list[dict[str, str]]) -> None:
    console.blank()
    console.print_table(
        ("stage", "subject", "decision", "reason"),
        [(d["stage"], console.short(d["subject"]), d["taken"], d["reason"]) for d in decisions],
    )


def show_made(made: Made, *, explain: bool) -> None:
    """Show where the bundle lies, what became of the model, and on request each choice."""
    if explain:
        _show_decisions(made.decisions)
    manifest = made.manifest
    statistics, memory = manifest.statistics, manifest.memory
    slots = console.count_of(len(memory.slots), "slot")
    cached = "from the cache, " if made.cached else ""
    console.blank()
    console.print_verdict(
        True, f"{made.path}  {console.size(made.bytes)}, {cached}{console.ms(made.time_ms)}"
    )
    console.print_fields(
        [
            (
                "operators",
                f"{statistics.nodes_texture} in textures, {statistics.nodes_buffer} in buffers, "
                f"{statistics.nodes_cpu} on the CPU{_regions(manifest)}",
            ),
            (
                "kernels",
                f"{len(manifest.kernels)}; {statistics.pad_kernels} pad, "
                f"{statistics.copy_kernels} copy, {statistics.layout_kernels} layout",
            ),
            (
                "memory",
                f"{console.size(memory.peak_bytes)}: {console.size(memory.param_bytes)} constants, "
                f"{console.size(memory.slot_bytes)} in {slots}",
            ),
            *list_assumed(made.decisions),
            *_states(manifest),
            *list_unknown(manifest.model.format),
            ("decisions", f"{len(made.decisions)} (--explain lists them)"),
            ("next", _next(made)),
        ]
    )


def _regions(manifest: Manifest) -> str:
    """Tell `, 65 in 2 regions of OpenCL ML`, or nothing."""
    if not manifest.regions:
        return ""
    operators = sum(len(region.operators) for region in manifest.regions)
    return f", {operators} in {console.count_of(len(manifest.regions), 'region')} of OpenCL ML"


def _next(made: Made) -> str:
    from adrenoc.bundle.talk import how_to_talk, is_decoder

    if is_decoder(made.manifest):
        return how_to_talk(made.path, made.manifest)
    if made.manifest.target.host:
        return f"adrenoc run {quote_word(made.path)}"
    return f"adrenoc inspect {quote_word(made.path)}"


def _format_value(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_format_part, value)) or "none"
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def _format_part(part: str | tuple[str, Any]) -> str:
    """Show a name; a shape as NAME:D,D; a state as INPUT:OUTPUT."""
    if isinstance(part, str):
        return part
    name, held = part
    return f"{name}:{held if isinstance(held, str) else ','.join(map(str, held))}"


def list_unknown(kind: str) -> list[tuple[str, str]]:
    """List what cannot be known of such a model where what computes it is not installed."""
    from adrenoc.base.errors import DependencyError
    from adrenoc.check.runtimes import reference_version

    try:
        reference_version(kind)
    except DependencyError as error:
        said = f"whether its numbers are the model's: {error.message}; {error.hint}"
        return [("not known", said)]
    return []


def _states(manifest: Manifest) -> list[tuple[str, str]]:
    """List what is kept from run to run, where something is."""
    kept = [f"{past} = {present}" for past, present in manifest.options.values.get("states", ())]
    if not kept:
        return []
    return [("states", f"{list_first(kept, between=', ')}; --state none keeps nothing")]


def list_assumed(decisions: Iterable[Mapping[str, str]]) -> list[tuple[str, str]]:
    """List what was assumed, of what, and how to say otherwise."""
    return [
        (
            ASSUMED,
            f"{d['taken'].removeprefix(ASSUMED)[1:]}, {console.short(d['subject'])}: {d['reason']}",
        )
        for d in decisions
        if d["taken"].startswith(ASSUMED)
    ]
