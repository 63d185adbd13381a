"""What `compile` made of a model, and what it assumed where the file says too little."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from adrenoc.base.errors import DependencyError
from adrenoc.base.text.report import Fields, Part, Table, Verdict
from adrenoc.base.text.spelling import (
    count_of,
    list_first,
    quote_word,
    show_bytes,
    show_ms,
    show_value,
)
from adrenoc.pages.bundle_page import list_assumed, list_decisions

if TYPE_CHECKING:
    from adrenoc.compile.make import Made
    from adrenoc.ir.options import ResolvedOptions


def list_options(resolved: ResolvedOptions) -> Table:
    """List each option, its value, and what set it."""
    rows = tuple((name, show_value(value), how) for name, value, how in resolved.explain())
    return Table(columns=("option", "value", "set by"), rows=rows)


def made_parts(
    made: Made, *, explain: bool, more: Sequence[tuple[str, str]] = ()
) -> Iterator[Part]:
    """Tell where the bundle lies, what became of the model, and on request each choice."""
    if explain:
        yield list_decisions(made.decisions)
    cached = "from the cache, " if made.cached else ""
    said = f"{made.path}  {show_bytes(made.bytes)}, {cached}{show_ms(made.time_ms)}"
    yield Verdict(passed=True, text=said)
    yield Fields(pairs=[*_tell_made(made), *more, ("next", _next(made))])


def _tell_made(made: Made) -> Iterator[tuple[str, str]]:
    manifest = made.manifest
    statistics, memory = manifest.statistics, manifest.memory
    places = (
        f"{statistics.nodes_texture} in textures, {statistics.nodes_buffer} in buffers, "
        f"{statistics.nodes_cpu} on the CPU"
    )
    if manifest.regions:
        operators = sum(len(region.operators) for region in manifest.regions)
        places += f", {operators} in {count_of(len(manifest.regions), 'region')} of OpenCL ML"
    yield "operators", places
    yield (
        "kernels",
        f"{len(manifest.kernels)}; {statistics.pad_kernels} pad, {statistics.copy_kernels} copy, "
        f"{statistics.layout_kernels} layout",
    )
    yield (
        "memory",
        f"{show_bytes(memory.peak_bytes)}: {show_bytes(memory.param_bytes)} constants, "
        f"{show_bytes(memory.slot_bytes)} in {count_of(len(memory.slots), 'slot')}",
    )
    yield from list_assumed(made.decisions)
    states = manifest.options.values.get("states", ())
    if kept := [f"{past} = {present}" for past, present in states]:
        yield "states", f"{list_first(kept, between=', ')}; --state none keeps nothing"
    yield from list_unknown(manifest.model.format)
    yield "decisions", f"{len(made.decisions)} (--explain lists them)"


def _next(made: Made) -> str:
    from adrenoc.bundle.chat import how_to_talk, is_decoder

    if is_decoder(made.manifest):
        return how_to_talk(made.path, made.manifest)
    if made.manifest.target.host:
        return f"adrenoc run {quote_word(made.path)}"
    return f"adrenoc inspect {quote_word(made.path)}"


def list_unknown(kind: str) -> list[tuple[str, str]]:
    """List what cannot be known of such a model where what computes it is not installed."""
    from adrenoc.check.runtimes import reference_version

    try:
        reference_version(kind)
    except DependencyError as error:
        said = f"whether its numbers are the model's: {error.message}; {error.hint}"
        return [("not known", said)]
    return []
