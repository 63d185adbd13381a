"""`check` on small models: places, copies, work, memory, near misses, policies; planning again."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from adrenoc.base.errors import MemoryLimitError, PolicyError
from adrenoc.base.reporter import SilentReporter
from adrenoc.bundle.bundle import open_bundle
from adrenoc.check.verdict import MIB, Policy, Verdict
from adrenoc.cli.main import main
from adrenoc.compile.pipeline import State, run_stages
from adrenoc.ir.options import resolve_options
from adrenoc.ir.program import Program
from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.passes.fuse import split_winograd
from adrenoc.passes.lower.fit_memory import order_by_freeing
from adrenoc.passes.lower.plan_memory import live_intervals, plan_memory
from adrenoc.passes.verify.check_graph import check_graph
from adrenoc.target.target import load_target
from tests.ir.planning import judge, run_until
from tests.models import graph, write


def _weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)


@pytest.fixture
def split(monkeypatch) -> None:
    """Winograd's algorithm in three kernels, in whatever is large enough for it to count."""
    monkeypatch.setattr(split_winograd, "LAUNCHES", -1e9)
    known = Machine.from_performance
    monkeypatch.setattr(
        Machine, "from_performance", lambda *of: replace(known(*of), winograd_least_pixels=1)
    )


def _ladder() -> onnx.ModelProto:
    """A convolution, a part in double for the CPU, and a part on the GPU again."""
    nodes = """["/stem/Conv"] conv = Conv <pads = [1, 1, 1, 1]>(x, w)
               ["/stem/Relu"] act = Relu(conv) wide = Cast <to = 11>(act) grown = Exp(wide)
               narrow = Cast <to = 1>(grown)
               y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]>(narrow)"""
    return graph(nodes, {"x": [1, 3, 8, 8]}, ["y"], {"w": _weights(6, 3, 3, 3)})


def _tower(blocks: int = 4, size: int = 32, channels: int = 16) -> onnx.ModelProto:
    """Convolutions at falling resolution: images of different sizes share no memory."""
    nodes, constants, name = "", {}, "x"
    for i in range(blocks):
        constants[f"w{i}"] = _weights(channels, 3 if i == 0 else channels, 3, 3)
        attrs = "pads = [1, 1, 1, 1]" + ", strides = [2, 2]" * (i > 0)
        nodes += f"c{i} = Conv <{attrs}>({name}, w{i}) r{i} = Relu(c{i}) "
        name = f"r{i}"
    nodes += f"y = GlobalAveragePool({name})"
    return graph(nodes, {"x": [1, 3, size, size]}, ["y"], constants)


def _check(
    model: onnx.ModelProto, folder: Path, *, limits: dict[str, int] | None = None, **policy
) -> Verdict:
    target = load_target("adreno:a750")
    limited = replace(target.limits, **(limits or {}))
    target = replace(target, gpu=replace(target.gpu, limits=limited))
    return judge(write(model, folder), target, Policy(**policy))


def test_places_reasons_and_copies(tmp_path):
    verdict = _check(_ladder(), tmp_path, max_cpu_nodes=0)
    conv = {node.tensor: node for node in verdict.nodes}["act"]
    assert (conv.place, conv.reason, conv.node) == ("texture", "", "/stem/Relu")
    assert conv.operators[0] == "conv2d"
    assert conv.macs == 8 * 8 * 6 * 3 * 9
    on_cpu = [node for node in verdict.nodes if node.place == "cpu"]
    assert on_cpu
    assert len(on_cpu) == verdict.totals.cpu_nodes
    assert all("float64" in node.reason for node in on_cpu)
    assert all(node.time_us is None for node in on_cpu)
    kinds = [node.kind for node in verdict.nodes]
    assert kinds.count("device") == 2
    assert verdict.totals.copies == sum(kind != "compute" for kind in kinds)
    assert verdict.nodes[-1].is_output
    assert verdict.nodes[-1].place == "buffer"
    assert [sentence.partition(",")[0] for sentence in verdict.broken] == [
        f"{len(on_cpu)} nodes on the CPU"
    ]
    assert any(miss.fix.startswith("export the model in float32") for miss in verdict.near_misses)


def test_names_are_unique_and_reads_lead_to_nodes(tmp_path):
    verdict = _check(_ladder(), tmp_path)
    names = [node.tensor for node in verdict.nodes]
    assert len(set(names)) == len(names)
    seen: set[str] = set()
    for node in verdict.nodes:
        assert set(node.reads) <= seen
        seen.add(node.tensor)
    assert all(node.reads for node in verdict.nodes[1:])


@pytest.mark.usefixtures("split")
def test_tensors_and_decisions_are_called_what_the_model_calls_them(tmp_path):
    nodes = [
        helper.make_node("Conv", ["x.1", "u"], ["/s"], name="/stem"),
        helper.make_node("Conv", ["/s", "w"], ["/a.0/c:0"], name="/a.0/Conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["/a.0/c:0"], ["/a.0/out.1"], name="/a.0/Relu"),
        helper.make_node("GlobalAveragePool", ["/a.0/out.1"], ["p"], name="/pool"),
        helper.make_node("Conv", ["p", "v"], ["y"], name="/head"),
    ]
    shapes = {"u": (256, 32, 1, 1), "w": (256, 256, 3, 3), "v": (8, 256, 1, 1)}
    constants = {name: _weights(*shape) for name, shape in shapes.items()}
    verdict = _check(graph(nodes, {"x.1": [1, 32, 14, 14]}, ["y"], constants), tmp_path)
    parts = [node for node in verdict.nodes if node.tensor.startswith("/a.0/out.1")]
    names = [node.tensor.removeprefix("/a.0/out.1") for node in parts]
    assert names == [".tiles", ".planes", ""]
    assert [node.node for node in parts] == ["/a.0/Relu (tiles)", "/a.0/Relu (planes)", "/a.0/Relu"]
    subjects = {d["subject"] for d in verdict.decisions if d["stage"] == "split_winograd"}
    assert subjects == {"/a.0/out.1"}
    copied = next(d for d in verdict.decisions if d["taken"].startswith("copied"))
    assert copied["subject"] == "x.1_NCHW"
    assert "/s cannot read x.1" in copied["reason"]


def test_times_are_the_floor_of_the_roofline(tmp_path):
    verdict = _check(_tower(), tmp_path)
    assert verdict.unknown_rates == ()
    for node in verdict.nodes:
        pipes = {"alu": node.alu_us, "texture": node.texture_us, "dram": node.dram_us}
        assert node.time_us == max(pipes.values())
        assert node.time_us == pipes[node.bound]
    # 54 GB/s, each tensor once.
    first = verdict.nodes[0]
    assert first.dram_us == pytest.approx((first.bytes_read + first.bytes_written) / 54e3)


@pytest.mark.parametrize(("number", "known"), [("750", True), ("740", False)])
def test_bundles_hold_no_floor_that_lacks_a_rate(tmp_path, number, known):
    """`bundle diff --fail-on time` would hold a bundle against what leaves a bound out."""
    model, made = str(write(_tower(), tmp_path)), tmp_path / "made.adrenoc"
    assert main(["compile", model, "--device", f"host:a{number}", "-o", str(made)]) == 0
    launches = open_bundle(made).launches()
    assert launches
    assert all((launch.floor_us is not None) is known for launch in launches)


def test_memory_adds_up(tmp_path):
    memory = _check(_tower(), tmp_path).memory
    plan = memory.plan
    assert plan.peak_bytes == (
        plan.slot_bytes + plan.input_bytes + plan.output_bytes + plan.param_bytes
    )
    assert sum(constant.bytes for constant in memory.constants) == plan.param_bytes
    assert sum(slot.bytes for slot in memory.slots) == plan.slot_bytes
    assert plan.live_bytes <= plan.slot_bytes
    for slot in memory.slots:
        assert slot.bytes == max(held.bytes for held in slot.tensors)
        spans = sorted((held.first, held.last) for held in slot.tensors)
        assert all(a[1] < b[0] for a, b in pairwise(spans))


def test_a_dimension_beyond_an_image_is_a_near_miss_with_its_fix(tmp_path):
    nodes = (
        "a = Relu(x) b = MaxPool <kernel_shape = [1, 3]>(a) y = MaxPool <kernel_shape = [1, 3]>(b)"
    )
    model = graph(nodes, {"x": [1, 4, 40, 40]}, ["y"])
    small = {"image2d_max_width_texels": 30, "image2d_max_height_texels": 30}
    verdict = _check(model, tmp_path, limits=small, max_buffer_nodes=0)
    assert verdict.totals.buffer_nodes >= 1
    assert "--limit buffer-nodes" in verdict.broken[0]
    fixes = {miss.fix for miss in verdict.near_misses}
    assert "split it into 2 along that dimension, or make it at most 30" in fixes
    assert any("40 > 30" in miss.seen for miss in verdict.near_misses)
    near = _check(model, tmp_path, limits={"image2d_max_width_texels": 41})
    assert any("close" in miss.seen for miss in near.near_misses)


# Planning again


def _compiled(model: onnx.ModelProto, folder: Path, limit: int | None = None) -> State:
    said = {"max_memory_mib": limit, "check_ir": True}
    return run_until("plan_memory", write(model, folder), "host:a750", **said)


def _peak_mib(state: State) -> float:
    return state.storage.plan.peak_bytes / MIB


def test_images_move_to_buffers_only_as_far_as_needed(tmp_path):
    model = _tower(blocks=6, size=448, channels=32)
    free = _compiled(model, tmp_path)
    limit = int(_peak_mib(free))
    assert _peak_mib(free) > limit  # the case is a case
    fitted = _compiled(model, tmp_path, limit)
    assert _peak_mib(fitted) <= limit
    memories = [fitted.graph.placements[n.output].memory.value for n in fitted.graph.nodes]
    assert "blocked" in memories
    assert "texture" in memories
    said = [d for d in fitted.log if d.subject == "memory"]
    assert said[-1].reason == f"the limit of {limit} MiB"
    assert sum(d.taken == "buffer" for d in fitted.log) == memories.count("blocked")


def test_a_limit_that_holds_changes_nothing(tmp_path):
    free, fitted = _compiled(_tower(), tmp_path), _compiled(_tower(), tmp_path, 100)
    assert free.storage.plan == fitted.storage.plan


@pytest.mark.usefixtures("split")
def test_split_convolutions_become_whole_again_before_anything_else_moves(tmp_path):
    nodes = (
        "s = Conv(x, u) a = Conv <pads = [1, 1, 1, 1]>(s, w0) "
        "b = Conv <pads = [1, 1, 1, 1]>(a, w1) p = GlobalAveragePool(b) y = Conv(p, v)"
    )
    constants = {"w0": _weights(256, 256, 3, 3), "w1": _weights(256, 256, 3, 3)}
    constants |= {"u": _weights(256, 3, 1, 1), "v": _weights(8, 256, 1, 1)}
    model = graph(nodes, {"x": [1, 3, 28, 28]}, ["y"], constants)
    split = _check(model, tmp_path)
    products = [n for n in split.nodes if n.operators == ("winograd_multiply",)]
    assert products
    channels, planes, tiles = products[0].shape
    assert products[0].macs == channels * planes * tiles * 256
    whole = _check(model, tmp_path, max_memory_mib=split.memory.plan.peak_bytes // MIB)
    assert not whole.broken
    assert whole.totals.buffer_nodes == 0
    assert whole.totals.macs == (2 * 256 * 256 * 9 + 256 * 3) * 28 * 28 + 256 * 8
    said = [d for d in whole.decisions if d["subject"] == "convolutions"]
    assert said[0]["taken"] == "one kernel each, none split"


def test_what_cannot_fit_is_refused_with_the_peak_and_the_remedy(tmp_path):
    model = _tower(blocks=3, size=512, channels=32)
    with pytest.raises(MemoryLimitError) as caught:
        _compiled(model, tmp_path, 6)
    message = caught.value.message
    assert "max_memory_mib allows 6 MiB" in message
    assert "most of them at" in message
    assert "smaller input" in message
    verdict = _check(model, tmp_path, max_memory_mib=6, max_time_ms=0.001)
    assert len(verdict.broken) == 2
    assert any("allows 6 MiB" in sentence for sentence in verdict.broken)


def test_order_that_frees_first_keeps_the_program_valid(tmp_path):
    """Many branches side by side: one after the other they need one slot, together many."""
    each = range(6)
    constants = {f"w{i}": _weights(16, 4, 3, 3) for i in each}
    nodes = " ".join(f"b{i} = Conv <pads = [1, 1, 1, 1]>(x, w{i})" for i in each)
    nodes += "".join(f" p{i} = GlobalAveragePool(b{i})" for i in each)
    nodes += f" y = Concat <axis = 1>({', '.join(f'p{i}' for i in each)})"
    state = _compiled(graph(nodes, {"x": [1, 4, 32, 32]}, ["y"], constants), tmp_path)
    other = order_by_freeing(state.program)
    made = set(state.program.graph.inputs) | set(state.program.params)
    for step in other.steps:
        assert {state.program.graph.aliases.get(n, n) for n in step.arguments[:-1]} <= made
        made.add(step.arguments[-1])
    assert _arguments(other) == _arguments(state.program)
    before, after = plan_memory(state.program).plan, plan_memory(other).plan
    assert after.slot_bytes < before.slot_bytes / 2


def _arguments(program: Program) -> list[tuple[str, ...]]:
    return sorted(step.arguments for step in program.steps)


def test_steps_in_another_order_write_all_parts_before_the_whole_is_read(tmp_path):
    """Every part is memory of the whole; a reader waits for those alone that it reads."""
    nodes, constants = "", {"last": _weights(4, 24, 1, 1), "first": _weights(4, 8, 1, 1)}
    for i, source in enumerate(("x", "x", "b1")):
        constants[f"w{i}"] = _weights(8, 4 if source == "x" else 8, 3, 3)
        constants[f"v{i}"] = _weights(8, 8, 1, 1)
        nodes += f"b{i} = Conv <pads = [1, 1, 1, 1]>({source}, w{i}) p{i} = Conv(b{i}, v{i}) "
    nodes += "whole = Concat <axis = 1>(p0, p1, p2) y = Conv(whole, last) z = Conv(p0, first)"
    state = _compiled(graph(nodes, {"x": [1, 4, 32, 32]}, ["y", "z"], constants), tmp_path)
    assert state.program.graph.owner("p1") == "whole"
    other = order_by_freeing(state.program)
    check_graph(other.graph)
    assert [n.output for n in other.graph.nodes] == [s.arguments[-1] for s in other.steps]
    assert _arguments(other) == _arguments(state.program)
    assert sum(i.name == "whole" for i in live_intervals(other)) == 1


def test_bytes_are_held_against_the_least_that_a_run_moves(tmp_path):
    """A tensor that two nodes read is moved once more than it must be."""
    nodes = "c = Conv(x, w) y0 = Conv(c, w0) y1 = Conv(c, w1)"
    constants = {name: _weights(8, 8, 1, 1) for name in ("w", "w0", "w1")}
    model = graph(nodes, {"x": [1, 8, 16, 16]}, ["y0", "y1"], constants)
    totals = _check(model, tmp_path).totals
    assert totals.bytes - totals.floor_bytes == 8 * 16 * 16 * 2


# The command


def test_the_command_fails_by_policy_and_still_says_all(tmp_path, capsys):
    path = write(_ladder(), tmp_path)
    report = tmp_path / "report.html"
    arguments = ["check", str(path), "--device", "adreno:a750", "--html", str(report)]
    assert main([*arguments, "--limit", "cpu-nodes=0"]) == PolicyError.exit_code
    said = capsys.readouterr()
    assert "nodes on the CPU, --limit cpu-nodes allows 0" in said.err
    assert "float64" in said.out
    assert report.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert main([*arguments, "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["totals"]["cpu_nodes"] >= 1
    assert plain["memory"]["plan"]["peak_bytes"] > 0
    assert main([*arguments, "--json", "--limit", "copies=0"]) == PolicyError.exit_code
    assert json.loads(capsys.readouterr().out)["broken"]


@pytest.mark.parametrize("largest", [1.0, 7e4])
def test_what_is_looked_at_has_the_sizes_of_what_is_built(tmp_path, largest):
    """Also its decisions: of weights beyond half the numbers are looked at after all."""
    wide, deep = _weights(64, 64, 3, 3), _weights(8, 64, 1, 1) * np.float32(largest)
    nodes = "a = Conv <pads = [1, 1, 1, 1]> (x, wide) y = Conv(a, deep)"
    model = graph(nodes, {"x": [1, 64, 56, 56]}, ["y"], {"wide": wide, "deep": deep})
    target = load_target("adreno:750")
    said = {"preset": "fp16", "command_line": {"keep_float32": False}}
    options = resolve_options(target, **said).options
    start = State(model=write(model, tmp_path), target=target, options=options)
    built, looked = (
        run_stages(
            replace(start, sizes_only=only), reporter=SilentReporter(), stop_after="plan_memory"
        )[0]
        for only in (False, True)
    )
    assert built.program is not None and looked.program is not None
    sizes = [
        {name: (p.spec, p.value.shape, p.value.dtype) for name, p in each.params.items()}
        for each in (built.program, looked.program)
    ]
    assert sizes[0] == sizes[1]
    assert any("winograd" in name for name in sizes[0])
    assert built.log.to_json() == looked.log.to_json()
    assert ("infinite in float16" in str(built.log.to_json())) == (largest > 1)
    held = [p.value for name, p in looked.program.params.items() if "winograd" in name]
    assert held and not any(any(value.strides) for value in held)
