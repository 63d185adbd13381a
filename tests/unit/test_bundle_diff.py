"""Pages of bundles that differ and of runs."""

import json
import random
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adrenoc.base.errors import BundleError, InputError, OptionError, PolicyError
from adrenoc.bundle.bundle import LIBRARY, Bundle, LaunchInfo, fill_bundle, open_bundle
from adrenoc.bundle.gates import parse_gates
from adrenoc.bundle.manifest import KernelInfo, LibraryInfo, OptionsInfo
from adrenoc.cli.main import main
from adrenoc.device.compare import compare
from adrenoc.device.result import (
    GpuState,
    Reading,
    RunResult,
    RunTrace,
    TimedLaunch,
    Times,
    Tracer,
    TraceSpan,
    kernel_times,
    node_times,
)
from adrenoc.pages.bundle_diff import BundleDiff, diff_bundles
from adrenoc.pages.run_diff import EQUAL, FASTER, OPEN, SLOWER, RunDiff, compare_runs, rank_chance
from adrenoc.pages.run_page import perfetto_json, run_html, run_to_json
from tests.unit.fake_compiled import ABOUT, FakeCompiled, make_bundle_folder


def kernel(name: str, text: str, **more) -> KernelInfo:
    facts = {"family": "conv2d", "calls": 1, "scopes": ("global",), "work_group": (8, 8, 1)}
    return KernelInfo(name=name, source=text, **{**facts, "grid": (1, 1, 1), **more})


def make(folder: Path, *kernels: KernelInfo, floor_us: float | None = 1.0, **about) -> Path:
    """A bundle with these kernels, each launched once for a node of the number it ends with."""
    folder.mkdir()
    (folder / LIBRARY).write_bytes(b"\x7fELF\2\1\1".ljust(64, b"\0"))
    compiled: Any = FakeCompiled()
    compiled.kernels = kernels
    compiled.launches = tuple(
        LaunchInfo(kernel=k.name, node=k.source.split()[0], flops=1, bytes=2, floor_us=floor_us)
        for k in kernels
    )
    library = LibraryInfo(machine="x86_64", soname="model.so", needed=(), page_bytes=4096)
    fill_bundle(folder, compiled, library=library, manifest={**ABOUT, **about})
    return folder


def diff(before: Path, after: Path, gates: str = "") -> BundleDiff:
    return diff_bundles(open_bundle(before), open_bundle(after), gates=parse_gates(gates))


def test_equal_bundles_differ_in_nothing(bundle_folder):
    found = diff(bundle_folder, bundle_folder, "kernels,launches,copies,memory,size")
    assert found.same_bytes and not found.settings and not found.broken
    assert [shape.is_equal for shape in found.shapes] == [True]


def test_kernels_are_known_by_their_text_not_by_their_number(tmp_path):
    """One more kernel at the front moves the numbers of all that follow."""
    before = make(tmp_path / "a", kernel("conv_0", "n1 conv_0 {}"), kernel("conv_1", "n2 conv_1 ;"))
    after = make(
        tmp_path / "b",
        kernel("conv_0", "n0 new"),
        kernel("conv_1", "n1 conv_1 {}"),
        kernel("conv_2", "n2 conv_2 ;"),
    )
    (shape,) = diff(before, after).shapes
    kinds = [(k.kind, k.before, k.after) for k in shape.kernels]
    assert kinds == [
        ("added", "", "conv_0"),
        ("name", "conv_0", "conv_1"),
        ("name", "conv_1", "conv_2"),
    ]
    assert [(n.node, n.before) for n in shape.nodes] == [("n0", None)]


def test_a_text_that_changed_is_paired_by_its_node(tmp_path):
    before = make(tmp_path / "a", kernel("conv_0", "n1\nold\nshared"), kernel("gone", "n9 x"))
    after = make(tmp_path / "b", kernel("conv_7", "n1\nnew\nshared"), kernel("moved", "n3 y"))
    (shape,) = diff(before, after).shapes
    assert [(k.kind, k.before, k.after, k.lines) for k in shape.kernels] == [
        ("text", "conv_0", "conv_7", (1, 1)),
        ("added", "", "moved", (1, 0)),
        ("removed", "gone", "", (0, 1)),
    ]
    assert [node.node for node in shape.nodes] == ["n1", "n3", "n9"]


def test_other_work_groups_are_a_change(tmp_path):
    before = make(tmp_path / "a", kernel("k", "n1"))
    after = make(tmp_path / "b", kernel("k", "n1", work_group=(4, 4, 1)))
    (shape,) = diff(before, after).shapes
    assert [(k.kind, k.what) for k in shape.kernels] == [("launch", "work-group 8x8x1 to 4x4x1")]
    assert not shape.is_equal


def test_settings_and_decisions_are_compared(bundle_folder, tmp_path):
    other = OptionsInfo(preset="fp16", values={"storage_dtype": "float16"}, digest="00" * 32)
    after = make(tmp_path / "b", FakeCompiled().kernels[0], options=other)
    said = {c.subject: (c.before, c.after) for c in diff(bundle_folder, after).settings}
    assert said["option preset"] == ("fp32", "fp16")
    assert said["option storage_dtype"] == ("float32", "float16")
    (after / "decisions.json").write_text("[]\n")
    (shape,) = diff_bundles(
        open_bundle(bundle_folder), replace(open_bundle(bundle_folder), root=after)
    ).shapes
    assert [(d.subject, d.before, d.after) for d in shape.decisions] == [
        ("conv2d_0", "texture", "")
    ]


@pytest.mark.parametrize(
    ("gates", "broken"),
    [
        ("launches", 1),
        ("launches=1", 0),
        ("launches=49%", 1),
        ("launches=50%", 0),
        ("kernels,launches=10%", 2),
        ("copies,memory", 0),
        ("time=0.5us", 1),
        ("time=1us", 0),
        ("time=0.001ms", 0),
        ("size=100MiB,time=1", 0),
    ],
)
def test_gates_allow_their_tolerance(tmp_path, gates, broken):
    before = make(tmp_path / "a", kernel("a", "n1 a"), kernel("b", "n2 bb"))
    after = make(tmp_path / "b", *(kernel(n, f"n{n} {n}") for n in ("a", "b", "c")))
    assert len(diff(before, after, gates).broken) == broken


def test_a_gate_on_an_unknown_time_does_not_hold(tmp_path):
    paths = [make(tmp_path / name, kernel("a", "n1"), floor_us=None) for name in "ab"]
    assert "not known" in diff(paths[0], paths[1], "time").broken[0]


@pytest.mark.parametrize(
    "text", ["speed", "launches=", "launches=x", "size=5us", "time=1e9", "kernels=-1"]
)
def test_wrong_gates_are_told(text):
    with pytest.raises(OptionError):
        parse_gates(text)


def test_the_command_ends_with_0_unless_a_gate_breaks(tmp_path, capsys):
    before = make(tmp_path / "a", kernel("a", "n1 a"))
    after = make(tmp_path / "b", kernel("a", "n1 a"), kernel("b", "n2 <script>alert(1)</script>"))
    page = tmp_path / "d.html"
    command = ["diff", str(before), str(after)]
    assert main([*command, "--html", str(page)]) == 0
    assert "+100.0 %" in capsys.readouterr().out
    html = page.read_text()
    assert "&lt;script&gt;" in html and "<script" not in html and "http" not in html
    assert main([*command, "--fail-on", "launches", "--json"]) == PolicyError.exit_code
    plain = json.loads(capsys.readouterr().out)
    assert plain["broken"] == ["launches: 1 before, 2 after, allowed no more"]
    assert main([*command, "--fail-on", "launches"]) == PolicyError.exit_code
    assert "try: adrenoc diff" in capsys.readouterr().err


def test_what_is_no_bundle_is_one_sentence(bundle_folder, tmp_path, capsys):
    damaged = tmp_path / "damaged"
    make_bundle_folder(damaged)
    (damaged / "launches.json").write_text("[1]")
    old = tmp_path / "old"
    make_bundle_folder(old)
    manifest = old / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"schema_version": 3', '"schema_version": 0'))
    for other in (tmp_path / "missing", tmp_path, damaged, old):
        for pair in ((bundle_folder, other), (other, bundle_folder)):
            assert main(["diff", *map(str, pair)]) == BundleError.exit_code
        assert main(["view", str(other), "-o", str(tmp_path / "v.html")]) == BundleError.exit_code
        said = capsys.readouterr().err
        assert "Traceback" not in said and said.count("error: ") == 3
    assert not (tmp_path / "v.html").exists()


def test_a_models_bundles_are_compiled_for_it(model, compiled, capsys):
    command = ["diff", str(model), str(model), "--preset", "fp32", "--preset", "fp16", "--json"]
    assert main([*command, "--device", "adreno:750", "--device", "adreno:830"]) == 0
    said = {c["subject"]: c["after"] for c in json.loads(capsys.readouterr().out)["settings"]}
    assert (said["option preset"], said["target"]) == ("fp16", "adreno:a830")
    assert len(compiled) == 2
    assert sorted(path.name for path in model.parent.iterdir()) == ["cache", "net.tflite"]


def test_view_writes_a_page_that_holds_all(bundle_folder, tmp_path, capsys):
    page = tmp_path / "v.html"
    assert main(["view", str(bundle_folder), "-o", str(page), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"report": str(page), "opened": False}
    html = page.read_text()
    for said in ("conv_2", "__kernel void conv2d_kernel", "8 channels fill 2 blocks", "image"):
        assert said in html
    assert "http" not in html and "<script" not in html


def test_view_opens_the_browser(bundle_folder, own_cache, monkeypatch):
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: bool(opened.append(url)) or True)
    assert main(["view", str(bundle_folder)]) == 0
    assert opened == [(own_cache / "pages" / "tiny.html").as_uri()]


FAST, UNREAD = GpuState(clock_mhz=900.0, governor="msm"), GpuState(governor="msm")
LAUNCHES = (
    TimedLaunch(kernel="conv", start_ns=5_000, end_ns=15_000),
    TimedLaunch(kernel="pool", start_ns=18_000, end_ns=20_001),
    TimedLaunch(kernel="conv", start_ns=19_000, end_ns=31_000),
)
INFOS = (
    LaunchInfo(kernel="conv", node="c1", flops=10, bytes=1, floor_us=1.0, tensors=("t0", "t1")),
    LaunchInfo(kernel="pool", node="results", flops=10, bytes=1, tensors=("results",)),
    LaunchInfo(kernel="conv", node="c2 \u202e<b>", flops=10, bytes=1),
)


def run_of(warm_ms: list[float], *, gpu: GpuState = FAST, device: str = "A750") -> RunResult:
    times = Times.from_runs(load_ms=1.0, build_ms=1.0, first_ms=9.0, warm_ms=warm_ms)
    return RunResult(
        device=device, driver="1", outputs={}, times=times, gpu=(gpu,), warm_ms=tuple(warm_ms)
    )


def saved(path: Path, run: RunResult) -> Path:
    path.write_text(json.dumps(run_to_json(run, None), default=asdict))
    return path


def noisy(middle_ms: float, seed: int, count: int = 20) -> list[float]:
    draw = random.Random(seed)
    return [middle_ms * (1 + 0.02 * draw.random()) for _ in range(count)]


def compared(folder: Path, before: RunResult, after: RunResult) -> RunDiff:
    return compare_runs(saved(folder / "a.json", before), saved(folder / "b.json", after))


def test_a_verdict_where_runs_tell_one(tmp_path):
    quick, slow = run_of(noisy(5.0, 1)), run_of(noisy(6.0, 2))
    assert compared(tmp_path, slow, quick).verdict == FASTER
    assert compared(tmp_path, quick, slow).verdict == SLOWER
    assert compared(tmp_path, quick, run_of(noisy(5.0, 3))).verdict == EQUAL


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (run_of(noisy(4.0, 2), device="A830"), "that was on A750, this is A830"),
        (run_of(noisy(4.0, 2), device="A750 at 127.0.0.1:9090", gpu=UNREAD), "this run's clock"),
        (run_of(noisy(4.0, 2), gpu=replace(FAST, clock_mhz=500.0)), "clock changed"),
        (run_of(noisy(4.0, 2, count=7)), "7 runs after are too few"),
        (run_of([1.0 + n for n in range(20)]), "drifted while they ran"),
        (replace(run_of(noisy(4.0, 2)), warm_ms=()), "does not tell its runs one by one"),
    ],
)
def test_no_verdict_where_none_is_sound(tmp_path, after, reason):
    diff = compared(tmp_path, run_of(noisy(5.0, 1)), after)
    assert diff.verdict == OPEN
    assert reason in diff.reason


def test_clocks_that_were_not_read(tmp_path):
    unread, read = run_of(noisy(5.0, 1), gpu=UNREAD), run_of(noisy(5.0, 2))
    assert "that run's clock could not be read" in compared(tmp_path, unread, read).reason
    assert "neither run's clock could be read" in compared(tmp_path, unread, unread).reason


def test_ranks_by_chance():
    """Against the exact distribution: 2 of the 70 ways to part 8 numbers in two halves."""
    assert rank_chance([1, 2, 3, 4], [5, 6, 7, 8]) == pytest.approx(2 / 70, abs=0.005)
    assert rank_chance([1.0] * 9, [1.0] * 9) == 1.0
    assert rank_chance([1, 4, 5, 8], [2, 3, 6, 7]) > 0.9


def test_equal_runs_rarely_get_a_verdict(tmp_path):
    wrong = sum(
        compared(tmp_path, run_of(noisy(5.0, n)), run_of(noisy(5.0, n + 1000))).verdict != EQUAL
        for n in range(60)
    )
    assert wrong <= 3  # of which at most two by what drifts by chance


def test_what_is_no_run_is_one_sentence(tmp_path, capsys):
    good = saved(tmp_path / "good.json", run_of([1.0] * 9))
    plain = json.loads(good.read_text())
    wrong = {"no": "{", "list": "[]", "warm": json.dumps(plain | {"warm_ms": [-1.0]})}
    wrong["times"] = json.dumps(plain | {"times": {"p50_ms": 1}})
    times = ("-6.0", "0", "NaN", '"6"', "1e300")
    changes = [('"p50_ms": 1.0', f'"p50_ms": {time}') for time in times]
    changes += [("900.0", clock) for clock in ('"fast"', "NaN", "-1")]
    for number, (right, other) in enumerate(changes):
        assert right in good.read_text()
        wrong[f"changed{number}"] = good.read_text().replace(right, other)
    for name, text in wrong.items():
        (tmp_path / name).write_text(text)
    for name in (*wrong, "missing"):
        assert main(["compare", str(good), str(tmp_path / name)]) == InputError.exit_code
        assert capsys.readouterr().err.count("error: ") == 1
    assert main(["compare", str(good), str(good)]) == 0
    assert "no difference" in capsys.readouterr().out


def traced() -> RunResult:
    spans = (
        TraceSpan(name="open the library", start_ms=0.0, end_ms=1.0),
        TraceSpan(name="launch", start_ms=1.0001, end_ms=1.5004),
        TraceSpan(name="wait", start_ms=1.5004, end_ms=2.0004),
        TraceSpan(name="profiled run", start_ms=1.0001, end_ms=2.0004),
    )
    trace = RunTrace(
        spans=spans,
        readings=(Reading(name="GPU clock, MHz", at_ms=0.5, value=900.0),),
        launches=LAUNCHES,
        profiled=spans[-1],
    )
    nodes = node_times(LAUNCHES, INFOS)
    kernels = kernel_times(LAUNCHES)
    return replace(run_of([2.0]), trace=trace, nodes=nodes, kernels=kernels)


@pytest.fixture
def bundle(bundle_folder) -> Bundle:
    return open_bundle(bundle_folder)


def check_events(events: list[dict[str, Any]]) -> None:
    """What the format asks of each event, and that spans of one track lie within each other."""
    for event in events:
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        assert event["name"] and event["ph"] in "XMC"
        if event["ph"] == "M":
            key = "sort_index" if event["name"].endswith("sort_index") else "name"
            assert set(event["args"]) == {key}
        else:
            assert isinstance(event["ts"], float | int) and event["ts"] >= 0
        if event["ph"] == "C":
            assert all(isinstance(v, float | int) for v in event["args"].values())
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    spans = [e for e in events if e["ph"] == "X"]
    assert {(e["pid"], e["tid"]) for e in spans} <= named
    for track in named:
        on_track = [e for e in spans if (e["pid"], e["tid"]) == track]
        open_until: list[float] = []
        for event in sorted(on_track, key=lambda e: (e["ts"], -e["dur"])):
            while open_until and open_until[-1] <= event["ts"] + 1e-9:
                open_until.pop()
            assert event["dur"] >= 0
            assert not open_until or event["ts"] + event["dur"] <= open_until[-1] + 1e-6
            open_until.append(event["ts"] + event["dur"])


def test_a_trace_has_host_and_kernels(bundle):
    events = json.loads(perfetto_json(bundle, traced()))["traceEvents"]
    check_events(events)
    kernels = [e for e in events if e["ph"] == "X" and e["pid"] == 2]
    assert [e["name"] for e in kernels if e["tid"] < 1000] == ["c1", "results", "c2 \\u202e<b>"]
    # The last kernel ends where the host's wait ended; two that overlap lie on two tracks.
    assert max(e["ts"] + e["dur"] for e in kernels) == pytest.approx(2000.4, abs=0.002)
    assert len({e["tid"] for e in kernels if e["tid"] < 1000}) == 2
    assert [e["dur"] for e in kernels if e["name"] == "gap"] == [pytest.approx(3.0, abs=0.002)]
    assert [e["args"]["value"] for e in events if e["ph"] == "C"] == [900.0]


def test_a_trace_of_a_run_that_knows_nothing(bundle):
    plain = json.loads(perfetto_json(bundle, run_of([])))
    check_events(plain["traceEvents"])
    assert not [e for e in plain["traceEvents"] if e["ph"] == "X"]


def test_a_tracer_nests_and_ends(monkeypatch):
    monkeypatch.setattr("adrenoc.device.result._MOST_SPANS", 2)
    tracer = Tracer()
    with tracer.span("run"), tracer.span("launch"):
        pass
    with tracer.span("more"):
        pass
    tracer.read("clock", 0.0)  # not read
    trace = tracer.finish()
    assert [span.name for span in trace.spans] == ["launch", "run"]
    assert trace.spans[1].start_ms <= trace.spans[0].start_ms <= trace.spans[0].end_ms
    assert (trace.left_out, trace.readings) == (1, ())


def test_a_page_of_a_run_has_the_worst_launch_first(bundle):
    html = run_html(bundle, traced())
    assert html.count("<rect class='whole'") == 3
    listed = html[html.index("Estimated and measured") :]
    # 12 us without a floor are before 10 us of which 1 us had to be.
    assert listed.index("c2 ?&lt;b&gt;") < listed.index(">c1<") < listed.index(">results<")
    assert ">10<" in listed and "<b>" not in html
    assert "Errors" not in html and "Kernels" not in html


def test_a_page_of_a_run_without_estimates_has_no_columns_for_them(bundle):
    run = traced()
    nodes = tuple(replace(node, of_roofline=None) for node in run.nodes)
    html = run_html(bundle, replace(run, nodes=nodes))
    assert "<h2>Measured</h2>" in html and "estimate" not in html.lower() and "least" not in html


def test_a_page_of_a_run_without_launches_has_its_kernels(bundle):
    html = run_html(bundle, replace(traced(), nodes=()))
    assert "Estimated and measured" not in html and "<h2>Kernels</h2>" in html
    assert "<h2>Kernels</h2>" not in run_html(bundle, run_of([]))


def test_a_page_of_a_run_tells_bad_layers_first(bundle):
    good = {"wrong": np.float32([1, 2]), "right": np.float32([1, 2])}
    checked = compare({**good, "wrong": np.float32([1, 9])}, good, tolerance=1e-2)
    html = run_html(bundle, run_of([1.0]), checked)
    assert html.index("beyond the tolerance") < html.index(">wrong<") < html.index(">right<")
    assert "1 tensor within the tolerance" in html
    assert "beyond" not in run_html(bundle, run_of([1.0]), compare(good, good, tolerance=1))
