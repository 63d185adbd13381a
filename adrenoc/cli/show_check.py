"""What `adrenoc check` prints of one device: sums, the nodes that matter, what to look after.

The table of the regions that OpenCL ML computes, as the compiler estimates them.

Print what `compile` made of a model, and what it assumed where the file says too little.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from adrenoc.base.decision import ASSUMED
from adrenoc.base.errors import DependencyError
from adrenoc.base.text.spelling import list_first, quote_word, show_count
from adrenoc.cli import console

if TYPE_CHECKING:
    from pathlib import Path

    from adrenoc.bundle.manifest import Manifest, RegionInfo
    from adrenoc.check.verdict import DecoderVerdict, MemoryVerdict, NodeVerdict, Totals, Verdict
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


_TOP = 10


def show_verdict(verdict: Verdict) -> None:
    """Print how a model would run: what matters of its nodes."""
    console.blank()
    console.print_title(verdict.model, f"on {verdict.target_title}, preset {verdict.preset}")
    console.print_fields(_summary(verdict))
    off = [n for n in verdict.nodes if n.place in ("cpu", "clml") or n.is_off_texture]
    if off:
        _show_steps_down(off)
    timed = sorted(
        (n for n in verdict.nodes if n.time_us is not None), key=lambda n: -(n.time_us or 0.0)
    )
    if timed:
        _show_nodes(f"the {min(_TOP, len(timed))} longest", timed[:_TOP])
    else:
        by_macs = sorted(verdict.nodes, key=lambda n: (-n.flops, -n.bytes_read))
        _show_nodes(f"the {min(_TOP, len(by_macs))} with most operations", by_macs[:_TOP])
    show_regions(verdict.regions)
    if verdict.near_misses:
        console.blank()
        console.print_table(
            ("near miss", "what is seen", "what helps"),
            [
                (console.short(miss.subject), miss.seen, miss.fix)
                for miss in verdict.near_misses[:_TOP]
            ],
        )
    console.blank()


def show_devices(model: Path, verdicts: Sequence[Verdict]) -> None:
    """Print how a model would run on each of several devices, a row each."""
    console.blank()
    first = verdicts[0]
    devices = console.count_of(len(verdicts), "device")
    console.print_title(first.model, f"on {devices}, preset {first.preset}")
    console.print_table(
        ("device", "textures", "buffers", "CPU", "copies", "launches", "memory", "time, at least"),
        [_row(verdict) for verdict in verdicts],
        right=("textures", "buffers", "CPU", "copies", "launches", "memory", "time, at least"),
    )
    one = f"adrenoc check {quote_word(model)} --device {first.target}"
    console.print_fields([("next", f"{one} shows one of them whole")])


def _row(verdict: Verdict) -> tuple[str, ...]:
    totals = verdict.totals
    numbers = (
        totals.texture_nodes,
        totals.buffer_nodes,
        totals.cpu_nodes,
        totals.copies,
        totals.launches,
    )
    time = "unknown" if totals.time_us is None else console.ms(totals.time_us / 1000)
    if totals.time_us is not None and verdict.unknown_rates:
        time += ", in part"
    return (
        verdict.target,
        *(str(number) for number in numbers),
        console.size(verdict.memory.plan.peak_bytes),
        time,
    )


def _summary(verdict: Verdict) -> list[tuple[str, str]]:
    totals, memory = verdict.totals, verdict.memory
    plan = memory.plan
    places = (
        f"{totals.texture_nodes} in textures, {totals.buffer_nodes} in buffers, "
        f"{totals.cpu_nodes} on the CPU, {totals.output_nodes} that write the model's outputs"
    )
    if verdict.regions:
        places += f", {console.count_of(len(verdict.regions), 'region')} of OpenCL ML"
    copies = Counter(node.kind for node in verdict.nodes if node.is_copy)
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(copies.items()))
    return [
        ("nodes", places),
        *_clml(verdict),
        ("copies", f"{totals.copies}" + (f": {kinds}" if kinds else "")),
        ("launches", _launches(totals)),
        (
            "arithmetic",
            f"{show_count(totals.macs)}MAC, {show_count(totals.flops)}FLOP; "
            f"{console.size(totals.bytes)} through the memory bus at least, "
            f"{console.size(totals.floor_bytes)} if each tensor were written and read once",
        ),
        (
            "GPU memory",
            f"{console.size(plan.peak_bytes)}: {console.size(plan.param_bytes)} constants, "
            f"{console.size(plan.input_bytes + plan.output_bytes)} inputs and outputs, "
            f"{console.size(plan.slot_bytes)} intermediate tensors in "
            f"{console.count_of(len(plan.slots), 'slot')}",
        ),
        (
            "",
            f"{console.size(plan.live_bytes)} alive at once, at "
            f"{console.short(memory.live_tensor)}: reuse {memory.reuse_ratio:.2f} x that; "
            f"at most {console.size(memory.pitched_bytes)} with padded rows",
        ),
        *_winograd(memory),
        ("time", _time(verdict)),
        *list_assumed(verdict.decisions),
        *_decoder(verdict.decoder),
    ]


def _winograd(memory: MemoryVerdict) -> list[tuple[str, str]]:
    """Tell what weights take that are transformed ahead; nothing where there are none."""
    saved = memory.winograd_bytes - memory.plain_bytes
    if saved <= 0:
        return []
    return [
        (
            "",
            f"{console.size(memory.winograd_bytes)} of the constants are weights transformed for "
            f"Winograd's algorithm, {console.size(memory.plain_bytes)} as they are: adrenoc "
            f"compile --set winograd=false saves {console.size(saved)}",
        )
    ]


def _decoder(found: DecoderVerdict | None) -> list[tuple[str, str]]:
    """Tell what a token takes; nothing of a model that is no decoder."""
    if found is None:
        return []
    held = f"{console.size(found.weight_bytes)} weights, {console.size(found.cache_bytes)} caches"
    fields = [
        ("a token", f"{found.launches} launches, {held} of {found.rows} rows where they are full")
    ]
    if found.tokens_per_s is not None and found.full_tokens_per_s is not None:
        fields.append(
            (
                "at most",
                f"{found.tokens_per_s:.1f} tokens a second by the memory bus, "
                f"{found.full_tokens_per_s:.1f} with a full context",
            )
        )
    return fields


def _clml(verdict: Verdict) -> list[tuple[str, str]]:
    """Tell what became of `--clml`; nothing where it was not asked for."""
    if not verdict.regions and not verdict.kept_back:
        return []
    operators = sum(len(region.operators) for region in verdict.regions)
    said = f"{console.count_of(operators, 'operator')} go to it, {verdict.kept_back} do not"
    return [("OpenCL ML", f"{said} (--json lists why)")]


def _launches(totals: Totals) -> str:
    said = f"{totals.launches} of {totals.kernels} kernels"
    if totals.gaps_us is None:
        return said
    return f"{said}: {console.ms(totals.gaps_us / 1000)} by the target's figure, beside the time"


def _time(verdict: Verdict) -> str:
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
    floor = f"at least {console.ms(time_us / 1000)} on the GPU by its roofline ({shares})"
    if not missing:
        return floor
    return (
        f"{floor}, in part: no source gives {missing} of {verdict.target}, and what they bound may "
        "be far longer: no limit on the time is held against this"
    )


def _show_steps_down(nodes: Iterable[NodeVerdict]) -> None:
    console.blank()
    console.print_table(
        ("not in a texture", "operators", "place", "reason"),
        [
            (console.short(node.tensor), " ".join(node.operators), node.place, node.reason)
            for node in nodes
        ],
    )


def _show_nodes(title: str, nodes: Iterable[NodeVerdict]) -> None:
    console.blank()
    console.print_table(
        (title, "operators", "shape", "place", "FLOP", "memory bus", "time", "bound"),
        [
            (
                console.short(node.tensor),
                " ".join(node.operators),
                console.dims(node.shape),
                node.place,
                show_count(node.flops),
                console.size(node.bytes_read + node.bytes_written),
                "" if node.time_us is None else console.ms(node.time_us / 1000),
                node.bound,
            )
            for node in nodes
        ],
        right=("FLOP", "memory bus", "time"),
    )


_HEAD = (
    "region of OpenCL ML",
    "needs",
    "operators",
    "in, out",
    "copies",
    "est. CLML",
    "+ copies",
    "textures",
    "gain",
)


def show_regions(regions: Sequence[RegionInfo]) -> None:
    """Print a row for each region; nothing where there is none."""
    if not regions:
        return
    console.blank()
    console.print_table(
        _HEAD,
        [
            (
                region.symbol,
                f"CLML {region.version}, {region.dtype}",
                operators_text(region.operators),
                f"{len(region.inputs)}, {len(region.outputs)}",
                str(region.copies),
                f"{region.clml_us} us",
                f"{region.copies_us} us",
                f"{region.texture_us} us",
                f"{region.texture_us / max(region.clml_us + region.copies_us, 1):.2f} x",
            )
            for region in regions
        ],
        right=("copies", "est. CLML", "+ copies", "textures", "gain"),
    )
    console.print_fields([("times", "estimates of the compiler, for this target")])


def operators_text(names: tuple[str, ...]) -> str:
    """Count each kind, the most frequent first: `nn.conv2d+add x12, reshape`."""
    counts = Counter(names).most_common()
    return ", ".join(name if count == 1 else f"{name} x{count}" for name, count in counts)
