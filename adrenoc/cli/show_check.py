"""What `check` says of a model, as a terminal shows it: sums, nodes, what to look after.

What `compile` made of a model, and what it assumed where the file says too little.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adrenoc.base.errors import DependencyError
from adrenoc.base.text.report import Fields, Name, Part, Table, Title, Verdict, shorten, tabulate
from adrenoc.base.text.spelling import (
    Figure,
    count_of,
    dims,
    list_first,
    quote_word,
    show_bytes,
    show_count,
    show_ms,
    show_us,
)
from adrenoc.pages.bundle_page import list_assumed, list_regions

if TYPE_CHECKING:
    from adrenoc.check.verdict import DecoderVerdict, MemoryVerdict, NodeVerdict
    from adrenoc.check.verdict import Verdict as Checked
    from adrenoc.compile.make import Made
    from adrenoc.ir.options import ResolvedOptions


def list_options(resolved: ResolvedOptions) -> Table:
    """List each option, its value, and what set it."""
    rows = tuple((name, _format_value(value), how) for name, value, how in resolved.explain())
    return Table(columns=("option", "value", "set by"), rows=rows)


def made_parts(
    made: Made, *, explain: bool, more: Sequence[tuple[str, str]] = ()
) -> Iterator[Part]:
    """Tell where the bundle lies, what became of the model, and on request each choice."""
    if explain:
        yield tabulate(
            made.decisions,
            {
                "stage": lambda one: one["stage"],
                "subject": lambda one: Name(one["subject"]),
                "decision": lambda one: one["taken"],
                "reason": lambda one: one["reason"],
            },
        )
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


def _format_part(part: str | int | tuple[str, Any]) -> str:
    """Show a name or a number; a shape as NAME:D,D; a state as INPUT:OUTPUT."""
    if not isinstance(part, tuple):
        return str(part)
    name, held = part
    return f"{name}:{held if isinstance(held, str) else ','.join(map(str, held))}"


def list_unknown(kind: str) -> list[tuple[str, str]]:
    """List what cannot be known of such a model where what computes it is not installed."""
    from adrenoc.check.runtimes import reference_version

    try:
        reference_version(kind)
    except DependencyError as error:
        said = f"whether its numbers are the model's: {error.message}; {error.hint}"
        return [("not known", said)]
    return []


_TOP = 10


def verdict_parts(verdict: Checked) -> Iterator[Part]:
    """Tell how a model would run: what matters of its nodes."""
    yield Title(text=verdict.model, detail=f"on {verdict.target_title}, preset {verdict.preset}")
    yield Fields(pairs=[*_summary(verdict)])
    yield tabulate(
        [n for n in verdict.nodes if n.place in ("cpu", "clml") or n.is_off_texture],
        {
            "not in a texture": lambda one: Name(one.tensor),
            "operators": lambda one: " ".join(one.operators),
            "place": lambda one: one.place,
            "reason": lambda one: one.reason,
        },
    )
    timed = sorted(
        (n for n in verdict.nodes if n.time_us is not None), key=lambda n: -(n.time_us or 0.0)
    )
    if timed:
        yield _list_nodes(f"the {min(_TOP, len(timed))} longest", timed[:_TOP])
    else:
        by_macs = sorted(verdict.nodes, key=lambda n: (-n.flops, -n.bytes_read))[:_TOP]
        yield _list_nodes(f"the {len(by_macs)} with most operations", by_macs)
    yield from list_regions(verdict.regions)
    yield tabulate(
        verdict.near_misses[:_TOP],
        {
            "near miss": lambda one: Name(one.subject),
            "what is seen": lambda one: one.seen,
            "what helps": lambda one: one.fix,
        },
    )


def device_parts(model: Path, verdicts: Sequence[Checked]) -> Iterator[Part]:
    """Tell how a model would run on each of several devices, a row each."""
    first = verdicts[0]
    devices = count_of(len(verdicts), "device")
    yield Title(text=first.model, detail=f"on {devices}, preset {first.preset}")
    yield tabulate(
        verdicts,
        {
            "device": lambda one: one.target,
            "textures": lambda one: one.totals.texture_nodes,
            "buffers": lambda one: one.totals.buffer_nodes,
            "CPU": lambda one: one.totals.cpu_nodes,
            "copies": lambda one: one.totals.copies,
            "launches": lambda one: one.totals.launches,
            "memory": lambda one: show_bytes(one.memory.plan.peak_bytes),
            "time, at least": _tell_least,
        },
    )
    one = f"adrenoc check {quote_word(model)} --device {first.target}"
    yield Fields(pairs=[("next", f"{one} shows one of them whole")])


def _tell_least(verdict: Checked) -> Figure:
    if verdict.totals.time_us is None:
        return Figure("unknown")
    partly = ", in part" if verdict.unknown_rates else ""
    return Figure(f"{show_us(verdict.totals.time_us)}{partly}")


def _summary(verdict: Checked) -> Iterator[tuple[str, str]]:
    totals, memory = verdict.totals, verdict.memory
    places = (
        f"{totals.texture_nodes} in textures, {totals.buffer_nodes} in buffers, "
        f"{totals.cpu_nodes} on the CPU, {totals.output_nodes} that write the model's outputs"
    )
    if verdict.regions:
        places += f", {count_of(len(verdict.regions), 'region')} of OpenCL ML"
    yield "nodes", places
    if verdict.regions or verdict.kept_back:
        operators = sum(len(region.operators) for region in verdict.regions)
        said = f"{count_of(operators, 'operator')} go to it, {verdict.kept_back} do not"
        yield "OpenCL ML", f"{said} (--json lists why)"
    copies = Counter(node.kind for node in verdict.nodes if node.is_copy)
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(copies.items()))
    yield "copies", f"{totals.copies}" + (f": {kinds}" if kinds else "")
    gaps = f": {show_us(totals.gaps_us)} by the target's figure, beside the time"
    launches = f"{totals.launches} of {totals.kernels} kernels"
    yield "launches", launches + (gaps if totals.gaps_us is not None else "")
    yield (
        "arithmetic",
        f"{show_count(totals.macs)}MAC, {show_count(totals.flops)}FLOP; "
        f"{show_bytes(totals.bytes)} through the memory bus at least, "
        f"{show_bytes(totals.floor_bytes)} if each tensor were written and read once",
    )
    yield from _tell_memory(memory)
    yield "time", _time(verdict)
    yield from list_assumed(verdict.decisions)
    if verdict.decoder is not None:
        yield from _tell_decoder(verdict.decoder)


def _tell_memory(memory: MemoryVerdict) -> Iterator[tuple[str, str]]:
    plan = memory.plan
    yield (
        "GPU memory",
        f"{show_bytes(plan.peak_bytes)}: {show_bytes(plan.param_bytes)} constants, "
        f"{show_bytes(plan.input_bytes + plan.output_bytes)} inputs and outputs, "
        f"{show_bytes(plan.slot_bytes)} intermediate tensors in "
        f"{count_of(len(plan.slots), 'slot')}",
    )
    yield (
        "",
        f"{show_bytes(plan.live_bytes)} alive at once, at "
        f"{shorten(memory.live_tensor)}: reuse {memory.reuse_ratio:.2f} x that; "
        f"at most {show_bytes(memory.pitched_bytes)} with padded rows",
    )
    saved = memory.winograd_bytes - memory.plain_bytes
    if saved > 0:
        yield (
            "",
            f"{show_bytes(memory.winograd_bytes)} of the constants are weights transformed for "
            f"Winograd's algorithm, {show_bytes(memory.plain_bytes)} as they are: adrenoc "
            f"compile --set winograd=false saves {show_bytes(saved)}",
        )


def _tell_decoder(found: DecoderVerdict) -> Iterator[tuple[str, str]]:
    held = f"{show_bytes(found.weight_bytes)} weights, {show_bytes(found.cache_bytes)} caches"
    yield "a token", f"{found.launches} launches, {held} of {found.rows} rows where they are full"
    if found.tokens_per_s is not None and found.full_tokens_per_s is not None:
        by_bus = f"{found.tokens_per_s:.1f} tokens a second by the memory bus"
        yield "at most", f"{by_bus}, {found.full_tokens_per_s:.1f} with a full context"


def _time(verdict: Checked) -> str:
    time_us = verdict.totals.time_us
    missing = ", ".join(key.removeprefix("performance.") for key in verdict.unknown_rates)
    if time_us is None:
        return (
            f"unknown: no source gives {missing or 'rates'} of {verdict.target}; name a GPU whose "
            "rates are known, such as adreno:750, or measure yours: adrenoc device calibrate"
        )
    bounds = Counter[str]()
    for node in verdict.nodes:
        bounds[node.bound] += int((node.time_us or 0.0) * 1000)
    shares = ", ".join(
        f"{share * 100 // max(sum(bounds.values()), 1)} % {bound}"
        for bound, share in bounds.most_common()
        if bound
    )
    floor = f"at least {show_us(time_us)} on the GPU by its roofline ({shares})"
    if not missing:
        return floor
    return (
        f"{floor}, in part: no source gives {missing} of {verdict.target}, and what they bound may "
        "be far longer: no limit on the time is held against this"
    )


def _list_nodes(title: str, nodes: Sequence[NodeVerdict]) -> Table:
    return tabulate(
        nodes,
        {
            title: lambda one: Name(one.tensor),
            "operators": lambda one: " ".join(one.operators),
            "shape": lambda one: dims(one.shape),
            "place": lambda one: one.place,
            "FLOP": lambda one: show_count(one.flops),
            "memory bus": lambda one: show_bytes(one.bytes_read + one.bytes_written),
            "time": lambda one: show_us(one.time_us),
            "bound": lambda one: one.bound,
        },
    )
