"""What `adrenoc check` prints of one device: sums, the nodes that matter, what to look after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from adrenoc.base.text.spelling import quote_word
from adrenoc.cli import console
from adrenoc.cli.show_made import list_assumed
from adrenoc.cli.show_regions import show_regions

if TYPE_CHECKING:
    from pathlib import Path

    from adrenoc.check.verdict import DecoderVerdict, MemoryVerdict, NodeVerdict, Totals, Verdict

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
            f"{_count(totals.macs)}MAC, {_count(totals.flops)}FLOP; "
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
                _count(node.flops),
                console.size(node.bytes_read + node.bytes_written),
                "" if node.time_us is None else console.ms(node.time_us / 1000),
                node.bound,
            )
            for node in nodes
        ],
        right=("FLOP", "memory bus", "time"),
    )


def _count(number: int) -> str:
    """Shorten a count to `4.09 G`, to be followed by the unit."""
    value = float(number)
    for prefix in ("", "k", "M", "G", "T", "P"):
        if round(value, 1) < 1000 or prefix == "P":
            break
        value /= 1000
    if not prefix:
        return f"{number} "
    return f"{value:.3g} {prefix}" if round(value, 1) < 1000 else f"{value:.0f} {prefix}"
