"""What `check` says of a model, in terminals and as a page with its graph, style, script and
library in one file.

The graph is drawn by Cytoscape.js 3.34.4 (MIT), which lies in `cytoscape/` as its authors ship it,
at places that are chosen here: a node stands one rank below the last of those that it reads. A
network of 1,500 nodes would be a thread if ranks only went down, so they are broken into columns as
a newspaper is, of a height that gives the drawing the shape of a screen.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from adrenoc.base.files.outputs import write_atomically
from adrenoc.base.text import report
from adrenoc.base.text.report import (
    Drawing,
    Fields,
    Fold,
    Name,
    Part,
    Table,
    Title,
    shorten,
    tabulate,
)
from adrenoc.base.text.report import Verdict as Broken
from adrenoc.base.text.spelling import (
    Figure,
    count_of,
    dims,
    printable_json,
    quote_word,
    show_bytes,
    show_count,
    show_us,
)
from adrenoc.bundle.manifest import to_plain
from adrenoc.check.verdict import DecoderVerdict, MemoryVerdict, NodeVerdict, Verdict
from adrenoc.pages.bundle_page import list_assumed, list_decisions, list_regions

_TOP = 10


def verdict_parts(verdict: Verdict) -> Iterator[Part]:
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
    yield list_regions(verdict.regions)
    yield _list_near_misses(verdict)


def page_parts(verdict: Verdict) -> Iterator[Part]:
    """Tell what a page has below graph and memory; its script fills in the nodes."""
    yield list_regions(verdict.regions)
    yield _list_near_misses(verdict)
    yield Drawing(
        html="<div class='scroll'><table id='nodes'></table></div>\n",
        title="Nodes",
        note="A click on a heading sorts, a click on a row shows it in the graph.",
    )
    constants = tabulate(
        sorted(verdict.memory.constants, key=lambda one: -one.bytes),
        {
            "constant": lambda one: one.name,
            "memory": lambda one: "texture" if "texture" in one.scope else "buffer",
            "size": lambda one: show_bytes(one.bytes),
        },
    )
    yield Fold(title=count_of(len(constants.rows), "constant"), parts=[constants])
    decisions = list_decisions(verdict.decisions)
    yield Fold(title=count_of(len(decisions.rows), "decision"), parts=[decisions])


def _list_near_misses(verdict: Verdict) -> Table:
    return tabulate(
        verdict.near_misses,
        {
            "near miss": lambda one: Name(one.subject),
            "what is seen": lambda one: one.seen,
            "what helps": lambda one: one.fix,
        },
        title="Near misses",
        most=_TOP,
    )


def device_parts(model: Path, verdicts: Sequence[Verdict]) -> Iterator[Part]:
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


def _tell_least(verdict: Verdict) -> Figure:
    if verdict.totals.time_us is None:
        return Figure("unknown")
    partly = ", in part" if verdict.unknown_rates else ""
    return Figure(f"{show_us(verdict.totals.time_us)}{partly}")


def _summary(verdict: Verdict) -> Iterator[tuple[str, str]]:
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


_HERE = Path(__file__).resolve().parent


def write_page(verdict: Verdict, path: Path) -> None:
    """Write the report on `verdict` to `path`, all or nothing. Raises OutputError where `path`
    cannot be written."""
    write_atomically(path, page(verdict).encode())


def page(verdict: Verdict) -> str:
    """Return the report as HTML that loads nothing."""
    layout = layered_layout({node.tensor: node.reads for node in verdict.nodes})
    size = NODE_WIDTH, NODE_HEIGHT
    data = {"verdict": to_plain(verdict), "layout": layout, "node_size": size}
    # In a script element only an end tag or a comment could end the data early.
    told = printable_json(json.dumps(data, ensure_ascii=False)).replace("<", "\\u003c")
    scripts = "".join(
        f"<script{kind}>\n{text}\n</script>\n"
        for kind, text in (
            (" id='data' type='application/json'", told),
            ("", _read("cytoscape/cytoscape.min.js")),
            ("", _read("page.js")),
        )
    )
    return report.page(
        verdict.model,
        *(Broken(passed=False, text=f"broken: {sentence}") for sentence in verdict.broken),
        Drawing(html=_read("page.html")),
        *page_parts(verdict),
        Drawing(html=scripts),
        about=f"{verdict.target_title} ({verdict.target}), preset {verdict.preset}",
        by="check",
    )


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


NODE_WIDTH, NODE_HEIGHT = 190, 46
_GAP_X, _GAP_Y, _GAP_COLUMN = 30, 34, 110
_SHAPE_OF_SCREEN = 1.9
"""Width over height."""


def layered_layout(reads: Mapping[str, Sequence[str]]) -> dict[str, tuple[float, float]]:
    """Return the centre (x, y) of each node in pixels; `reads` lists, in order, what each node
    reads."""
    ranks = _ranks(reads)
    rows = _rows(reads, ranks)
    in_column = _rows_in_column(rows)
    centres: dict[str, tuple[float, float]] = {}
    left = 0.0
    for start in range(0, len(rows), in_column):
        column = rows[start : start + in_column]
        width = max(len(row) for row in column) * (NODE_WIDTH + _GAP_X)
        for number, row in enumerate(column):
            y = number * (NODE_HEIGHT + _GAP_Y)
            for place, name in enumerate(row):
                offset = (place - (len(row) - 1) / 2) * (NODE_WIDTH + _GAP_X)
                centres[name] = (left + width / 2 + offset, y)
        left += width + _GAP_COLUMN
    return centres


def _ranks(reads: Mapping[str, Sequence[str]]) -> dict[str, int]:
    ranks: dict[str, int] = {}
    for name, sources in reads.items():
        ranks[name] = 1 + max((ranks[source] for source in sources if source in ranks), default=-1)
    return ranks


def _rows(reads: Mapping[str, Sequence[str]], ranks: Mapping[str, int]) -> list[list[str]]:
    """Return the nodes of each rank, from left to right below what they read."""
    rows: list[list[str]] = [[] for _ in range(max(ranks.values(), default=-1) + 1)]
    for name, rank in ranks.items():
        rows[rank].append(name)
    place: dict[str, float] = {}
    for row in rows:
        middle = (len(row) - 1) / 2
        row.sort(key=lambda name: _mean([place[s] for s in reads[name] if s in place]))
        place.update((name, number - middle) for number, name in enumerate(row))
    return rows


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _rows_in_column(rows: Sequence[Sequence[str]]) -> int:
    """Return as many rows as make the whole drawing about as wide as a screen, to its height."""
    if not rows:
        return 1
    widest = max(len(row) for row in rows) * (NODE_WIDTH + _GAP_X) + _GAP_COLUMN
    height = len(rows) * (NODE_HEIGHT + _GAP_Y)
    columns = max(1, round(math.sqrt(_SHAPE_OF_SCREEN * height / widest)))
    return -(-len(rows) // columns)
