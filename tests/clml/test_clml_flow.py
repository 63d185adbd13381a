"""From a model file to both variants of its regions: compile, inspect, run --profile, check."""

import gc
import json
from pathlib import Path

import numpy as np
import pytest

from adrenoc.bundle.bundle import open_bundle
from adrenoc.check.inputs import make_inputs
from adrenoc.cli.main import main
from adrenoc.device.run import run_bundle
from tests.clml.regions import random
from tests.commands import ask, succeed
from tests.models import graph, write, write_network


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """Convolution, erf (which CLML does not have), convolution."""
    constants = {"w": random(6, 3, 3, 3), "b": random(6, seed=1), "v": random(4, 6, 1, 1, seed=2)}
    nodes = "c = Conv <pads = [1, 1, 1, 1]>(x, w, b) r = Relu(c) e = Erf(r) y = Conv(e, v)"
    made = graph(nodes, {"x": (1, 3, 9, 7)}, ["y"], constants)
    return write(made, tmp_path_factory.mktemp("flow"))


@pytest.fixture(scope="module")
def bundle(model, device) -> Path:
    output = model.with_suffix(".adrenoc")
    command = ["compile", str(model), "--device", "host", "--preset", "mixed", "--clml", "all"]
    assert main([*command, "--output", str(output)]) == 0
    return output


def test_the_manifest_and_the_decisions_tell(bundle):
    manifest = ask("inspect", bundle)
    assert manifest["statistics"]["nodes_clml"] == 2
    first, second = manifest["regions"]
    assert first["operators"] == ["nn.conv2d+add+nn.relu"] and second["operators"] == ["nn.conv2d"]
    assert first["dtype"] == "float16" and first["version"] == 1 and first["copies"] == 4
    assert first["kernels"] and first["texture_us"] > 0
    known = {kernel["name"] for kernel in manifest["kernels"]}
    assert {*first["kernels"], *second["kernels"]} <= known
    decisions = {d["subject"]: d for d in open_bundle(bundle).decisions()}
    assert decisions[first["symbol"]]["taken"] == "1 operators to CLML 1"
    assert any("no row of the CLML table" in d["reason"] for d in decisions.values())
    shown = succeed("inspect", bundle).stdout
    assert first["symbol"] in shown and "estimates of the compiler" in shown


@pytest.mark.parametrize("recording", ["off", "best"])
def test_a_run_gives_back_all_that_it_made(bundle, emulate, live_objects, recording):
    """TVM's own loader would keep the bundle, and what its regions hold, until the process ends."""
    emulate()
    before = live_objects()
    inputs = {"x": np.zeros((1, 3, 9, 7), np.float32)}
    result = run_bundle(open_bundle(bundle), inputs=inputs, repeat=2, recording=recording)
    gc.collect()
    assert all(region.used for region in result.regions)
    assert live_objects() == before


def test_a_check_shows_the_regions(model, tmp_path):
    page = tmp_path / "page.html"
    command = ["check", str(model), "--device", "adreno:a730", "--clml", "all"]
    verdict = ask(*command, "--html", page)
    first, second = verdict["regions"]
    assert first["operators"] == ["nn.conv2d+add+nn.relu"] and second["outputs"] == ["y"]
    assert first["copies"] == 4 and first["clml_us"] > 0 and first["copies_us"] > 0
    assert verdict["kept_back"] == 1 and verdict["totals"]["clml_nodes"] == 2
    nodes = {node["kernel"]: node for node in verdict["nodes"] if node["place"] == "clml"}
    assert set(nodes) == {first["symbol"], second["symbol"]}
    assert "times as fast" in nodes[first["symbol"]]["reason"]
    text = page.read_text()
    assert first["symbol"] in text and "Regions of OpenCL ML" in text
    shown = " ".join(succeed(*command).stdout.split())
    assert "2 operators go to it, 1 do not" in shown
    assert f"{first['symbol']} CLML 1, float16" in shown and "gain" in shown


def test_both_variants_are_timed(bundle, emulate):
    opened = open_bundle(bundle)
    inputs = {"x": random(1, 3, 9, 7, seed=3)}
    emulate()
    by_clml = run_bundle(opened, inputs=inputs, repeat=1, profile=True)
    assert [region.used for region in by_clml.regions] == [True, True]
    for region in by_clml.regions:
        assert region.library == "emulator" and region.border_copies == 2
        assert region.clml_ms is not None and region.clml_ms > 0
        assert region.textures_ms is not None and region.textures_ms > 0
    emulate(extension=False)
    by_textures = run_bundle(opened, inputs=inputs, repeat=1, profile=True)
    for region in by_textures.regions:
        assert not region.used and "cl_qcom_ml_ops" in region.reason
        assert region.clml_ms is None and region.textures_ms is not None
    assert np.allclose(by_clml.outputs["y"], by_textures.outputs["y"], atol=2e-2)


def test_every_run_that_is_replayed_runs_its_regions(bundle, emulate):
    """Between the launches of the texture kernels; without them it made fewer calls."""
    opened = open_bundle(bundle)
    inputs = {"x": random(1, 3, 9, 7, seed=3)}
    emulate()
    by_machine = run_bundle(opened, inputs=inputs, recording="off", repeat=2)
    for recording in ("always", "kept"):
        replayed = run_bundle(opened, inputs=inputs, recording=recording, repeat=5)
        np.testing.assert_array_equal(replayed.outputs["y"], by_machine.outputs["y"])
        said = replayed.launching
        assert said.mode != by_machine.launching.mode == "the virtual machine"
        assert said.launches == by_machine.launching.launches
        assert said.api_calls > said.launches


def test_auto_leaves_small_ones_in_textures(model):
    nodes = ask("check", model, "--clml", "auto")["nodes"]
    assert all(node["place"] != "clml" for node in nodes)
    nodes = ask("check", model, "--clml", "all")["nodes"]
    assert sum(node["place"] == "clml" for node in nodes) == 2


def test_layer_checks_see_every_layer(model):
    """What `run --check-layers` compiles has no regions: they would hide tensors."""
    from adrenoc.base.reporter import SilentReporter
    from adrenoc.compile.pipeline import State, run_stages
    from adrenoc.ir.options import resolve_options
    from adrenoc.target.target import load_target

    target = load_target("host")
    said = {"clml": "all", "expose_layers": True}
    options = resolve_options(target, command_line=said).options
    start = State(model=model, target=target, options=options)
    state, _ = run_stages(start, reporter=SilentReporter(), stop_after="expose_layers")
    assert state.clml is None


_TOLERANCE = {"fp32": 1e-5, "fp16": 2e-2}


@pytest.mark.parametrize(
    ("name", "preset"), [("resnet18", "fp32"), ("resnet18", "fp16"), ("mobilenet_v2", "fp16")]
)
def test_network(name, preset, tmp_path, device, emulate):
    model = write_network(tmp_path, name, size=32, width=0.15, classes=10)
    command = ["compile", str(model), "--device", "host", "--preset", preset, "--clml", "all"]
    assert main([*command, "--output", str(tmp_path / "out.adrenoc")]) == 0
    bundle = open_bundle(tmp_path / "out.adrenoc")
    (region,) = bundle.manifest.regions  # all of it
    inputs = make_inputs(bundle.manifest.inputs, seed=0)
    outputs = []
    for settings in ({}, {"extension": False}):
        emulate(**settings)
        result = run_bundle(bundle, inputs=inputs, repeat=1)
        assert [r.used for r in result.regions] == [not settings], json.dumps(settings)
        (value,) = result.outputs.values()
        outputs.append(value.reshape(-1))
    by_clml, by_textures = outputs
    assert len(region.operators) > 15
    assert np.argsort(by_clml)[-5:].tolist() == np.argsort(by_textures)[-5:].tolist()
    size = np.abs(by_textures).max()
    assert np.abs(by_clml - by_textures).max() / size <= _TOLERANCE[preset]
