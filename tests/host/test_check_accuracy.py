"""Planted weaknesses: the cause is named, and the policy found is minimal and mends it."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import planted
import pytest

from adrenoc.base.errors import CheckFailedError, PrecisionPolicyError
from adrenoc.base.reporter import SilentReporter
from adrenoc.check.accuracy import examine
from adrenoc.check.accuracy.bench import ProgramRun
from adrenoc.check.accuracy.examine import Doctor, check_accuracy
from adrenoc.check.accuracy.result import AccuracyReport, Arrays, Floor
from adrenoc.check.accuracy.samples import Judge
from adrenoc.target.target import load_target
from tests.commands import invoke
from tests.host.run_op import Ops
from tests.host.test_ops_n_bits import product
from tests.mcu.onnx_models import write_quantised
from tests.qoperator import QNet

TOLERANCE = 1e-2


def _examined(model: Path, preset: str, **more) -> AccuracyReport:
    return check_accuracy(
        model,
        target=load_target("host"),
        presets=(preset,),
        reporter=SilentReporter(),
        **{"tolerance": TOLERANCE, "keep_float32": False, **more},
    )


PLANTED: dict[str, tuple[Callable[[], Ops], str, str, str, set[str]]] = {
    # cause: network, preset, layer, what the evidence says, policy
    "overflow": (planted.overflow, "mixed", "t3", "half ends at 65504", {"t3", "t4"}),
    "tiny epsilon": (planted.tiny_epsilon, "mixed", "t4", "half keeps few", {"t4", "t5"}),
    "long reduction": (planted.long_reduction, "fp16", "t3", "adds 4096 terms", {"t3"}),
    "cancellation": (planted.cancellation, "mixed", "t5", "reaches 390", {"t1", "t2", "t3"}),
    "sharp softmax": (planted.sharp_softmax, "mixed", "t2", "argument t1 reaches", {"t1"}),
}


@pytest.mark.parametrize("cause", PLANTED)
def test_the_cause_is_named_and_the_remedy_is_minimal(device, tmp_path, cause):
    network, preset, layer, evidence, policy = PLANTED[cause]
    report = _examined(planted.save(network(), tmp_path), preset)
    (found,) = report.presets
    assert not found.passed and found.error > TOLERANCE
    assert found.starts_at == layer
    first = found.suspects[0]
    assert first.name == layer
    assert [c.name for c in first.causes] == [cause]
    assert evidence in first.causes[0].evidence
    remedy = found.remedy
    assert remedy is not None and remedy.is_minimal
    assert set(remedy.float32_tensors) == policy
    assert remedy.error_after <= TOLERANCE < remedy.error_before
    assert remedy.cost.memory_bytes[1] > remedy.cost.memory_bytes[0]
    assert remedy.cost.moved_bytes[1] > remedy.cost.moved_bytes[0]
    assert report.passed


@pytest.mark.parametrize("preset", ("mixed", "fp16"))
def test_what_is_examined_is_what_is_compiled(device, tmp_path, preset):
    """What the compiler keeps in float32 by itself is kept in the examination, too."""
    model = planted.save(planted.scaled_by_1e8(), tmp_path)
    (found,) = _examined(model, preset, keep_float32=True).presets
    assert found.passed and found.suspects == () and found.remedy is None
    assert max(layer.local_error for layer in found.layers) < 1e-3
    bundle = tmp_path / "same.adrenoc"
    made = ("compile", model, "--device", "host", "--no-cache", "--preset", preset, "-o", bundle)
    assert invoke(*made).exit_code == 0
    assert invoke("run", bundle, "--repeat", 1, "--check", model).exit_code == 0


def test_diffuse_rounding_gets_a_policy_that_needs_each_of_its_tensors(device, tmp_path):
    """No layer stands out: what contributes most for its bytes is taken first."""
    model, policy = planted.save(planted.diffuse(), tmp_path), tmp_path / "policy.json"
    words = ("check-accuracy", model, "--preset", "mixed", "--tolerance", "2e-4")
    told = invoke(*words, "--json", "-o", policy)
    assert told.exit_code == 0, told.output
    (found,) = json.loads(told.stdout)["presets"]
    assert all(layer["causes"] == [] for layer in found["layers"])
    remedy = found["remedy"]
    assert remedy["is_minimal"] and remedy["error_after"] <= 2e-4 < found["error"]
    assert len(remedy["float32_tensors"]) < len(found["layers"])
    assert json.loads(policy.read_text())["float32_tensors"] == remedy["float32_tensors"]


def test_own_error_is_told_from_inherited_error(device, tmp_path):
    report = _examined(planted.save(planted.cancellation(), tmp_path), "mixed", effort=0.0)
    layers = {layer.name: layer for layer in report.presets[0].layers}
    assert layers["t5"].local_error > 0.1 and layers["t5"].total_error > 0.1
    assert layers["t6"].local_error < 1e-3  # a max pool adds nothing ...
    assert layers["t6"].total_error > 0.1  # ... to what it is given
    assert layers["t6"].causes == ()


def test_a_search_out_of_time_says_so_and_still_works(device, tmp_path):
    report = _examined(planted.save(planted.overflow(), tmp_path), "mixed", effort=0.0)
    remedy = report.presets[0].remedy
    assert remedy is not None and not remedy.is_minimal and remedy.trials == 1
    assert remedy.error_after <= TOLERANCE


def test_a_network_without_weakness_needs_nothing(ops, device, tmp_path):
    y = ops("Conv", ops.input(1, 8, 6, 5), ops.weight(8, 8, 3, 3))
    ops.output(ops("MaxPool", ops("Relu", y), kernel_shape=[2, 2]))
    model = planted.save(ops, tmp_path)
    both = _examined(model, "mixed").presets + _examined(model, "fp16").presets
    for found in both:
        assert found.passed and found.remedy is None
        assert found.starts_at == "" and found.suspects == ()


def _quantised(folder: Path) -> Path:
    net = QNet((1, 8, 9, 7))
    net.conv(16, kernel=3)
    net.conv(12)
    onnx.save(net.model(), folder / "whole.onnx")
    return folder / "whole.onnx"


@pytest.mark.parametrize(("quanta", "passes"), [(1, True), (6, False)])
def test_a_rounding_that_falls_otherwise_is_no_error(device, tmp_path, monkeypatch, quanta, passes):
    """As `run --check` has it: the reference's own kernels are a quantum apart."""
    run_compiled = Judge.run_compiled

    def run_off(judge: Judge, variant: ProgramRun) -> list[Arrays]:
        found = run_compiled(judge, variant)
        for outputs in found:
            (value,) = outputs.values()
            value.flat[value.argmin()] += quanta
        return found

    monkeypatch.setattr(Judge, "run_compiled", run_off)
    report = _examined(_quantised(tmp_path), "mixed", tolerance=1e-3, effort=0.0)
    (found,) = report.presets
    assert found.error > 1e-3
    assert found.passed is report.passed is passes
    assert found.accepted_as == ("within one quantum, 1" if passes else "")
    assert found.remedy is None and (found.starts_at == "") is passes
    monkeypatch.setattr(examine, "check_accuracy", lambda *_, **__: report)
    told = invoke("check-accuracy", tmp_path / "whole.onnx", "--preset", "mixed")
    assert ("within one quantum, 1" in told.output) is passes


@pytest.mark.parametrize("quanta", [1, 2])
def test_a_layer_that_rounds_otherwise_does_not_stand_out(device, tmp_path, monkeypatch, quanta):
    local_errors = Doctor._local_errors

    def one_off(doctor: Doctor, preset: str) -> dict[str, float]:
        last = doctor._bench.layers[-1].output
        step = 1 / float(np.ptp(doctor._samples[0].truth[last]))
        return {**local_errors(doctor, preset), last: quanta * step}

    monkeypatch.setattr(Doctor, "_local_errors", one_off)
    (found,) = _examined(_quantised(tmp_path), "mixed", tolerance=1e-3, effort=0.0).presets
    assert found.passed and (found.suspects == ()) is (quanta == 1)


@pytest.mark.parametrize("form", [pytest.param("QDQ", marks=pytest.mark.nightly), "QOperator"])
def test_what_onnxruntimes_own_quantiser_writes_is_examined(device, tmp_path, form):
    """Layers that come of a rewrite have names of ours, by which the file knows no tensor."""
    model = write_quantised(tmp_path, seed=4, form=form, data="QUInt8")
    (found,) = _examined(model, "mixed", effort=0.0).presets
    assert found.passed and found.layers


def test_rounded_tokens_are_examined_where_that_is_asked_for(ops, device, tmp_path, monkeypatch):
    module = "adrenoc.passes.fuse.fuse_products"
    monkeypatch.setattr(f"{module}.least_matrix_clocks", lambda *_: math.inf)
    ops.output(product(ops, ops.input(20, 128), 128, 24, zeros="packed", bits=8))
    model = planted.save(ops, tmp_path)
    (plain,) = _examined(model, "mixed").presets
    (rounded,) = _examined(model, "mixed", int8_prompts=True).presets
    assert plain.passed and rounded.passed
    assert rounded.error > 3 * plain.error
    told = invoke(
        "check-accuracy", model, "--preset", "mixed", "--set", "int8_prompts=true", "--json"
    )
    (kept,) = _examined(model, "mixed", int8_prompts=True, keep_float32=True).presets
    assert json.loads(told.stdout)["presets"][0]["error"] == kept.error


def test_float32_that_is_off_on_other_inputs_is_no_matter_of_half(device, tmp_path, monkeypatch):
    """As of int8 networks, one quantum off: the truth of layers is kept of few inputs."""
    measure = Judge.measure_floor

    def measured(*words) -> Floor:
        return replace(measure(*words), float32_error=0.5, float32_counted=0.5)

    monkeypatch.setattr(Judge, "measure_floor", measured)
    (found,) = _examined(planted.save(planted.overflow(), tmp_path), "mixed").presets
    assert found.error_in_float32 == 0.5
    assert found.remedy is None


def test_inputs_count(device, tmp_path):
    """The same network agrees on small inputs and overflows on large ones."""
    model = planted.save(planted.product_of_inputs(), tmp_path)
    small, large = tmp_path / "small.npy", tmp_path / "large.npz"
    values = np.random.default_rng(0).uniform(0.5, 1.0, (1, 4, 6, 5)).astype(np.float32)
    np.save(small, values)
    np.savez(large, x0=values * 1000)
    assert _examined(model, "mixed", files=(small,)).passed
    report = _examined(model, "mixed", files=(small, large))
    assert report.samples == 2
    (found,) = report.presets
    assert not found.passed and found.suspects[0].causes[0].name == "overflow"


def test_the_policy_file_makes_compile_mend_it(device, tmp_path):
    model, policy = planted.save(planted.overflow(), tmp_path), tmp_path / "policy.json"
    page = tmp_path / "page.html"
    options = ("--preset", "mixed", "-o", policy, "--html", page)
    told = invoke("check-accuracy", model, *options)
    assert told.exit_code == 0, told.output
    assert "overflow" in told.output and "t3" in told.output
    shown = page.read_text()
    assert "<td>t3</td>" in shown
    assert "<td>overflow</td>" in shown
    assert "with 2 tensors in float32" in shown
    data = json.loads(policy.read_text())
    assert data["float32_tensors"] == ["t3", "t4"] and data["error_before"] is None

    plain, mended = tmp_path / "plain.adrenoc", tmp_path / "mended.adrenoc"
    compiled = ("compile", model, "--device", "host", "--no-cache")
    assert invoke(*compiled, "-o", plain).exit_code == 0
    with pytest.raises(CheckFailedError):
        invoke("run", plain, "--repeat", 1, "--check", model)
    assert invoke(*compiled, "-o", mended, "--precision-policy", policy).exit_code == 0
    assert invoke("run", mended, "--repeat", 1, "--check", model).exit_code == 0

    policy.write_text(json.dumps({**data, "float32_tensors": ["t33"]}))
    with pytest.raises(PrecisionPolicyError, match=r"'t33'.*t3"):
        invoke(*compiled, "--precision-policy", policy)
    other = planted.save(planted.sharp_softmax(), tmp_path)
    with pytest.raises(PrecisionPolicyError, match=r"was made for planted\.onnx"):
        invoke("compile", other, "--device", "host", "--precision-policy", policy)


def test_a_device_that_is_not_here_is_refused():
    from adrenoc.base.errors import TargetError

    with pytest.raises(TargetError, match="expected host:a750"):
        invoke("check-accuracy", "net.onnx", "--device", "adreno:750")


def test_the_roofline_prices_the_policy(device, tmp_path):
    model = planted.save(planted.sharp_softmax(), tmp_path)
    report = check_accuracy(
        model,
        target=load_target("host:750"),
        presets=("mixed",),
        tolerance=TOLERANCE,
        reporter=SilentReporter(),
    )
    remedy = report.presets[0].remedy
    assert remedy is not None and remedy.cost.time_us is not None
    before, after = remedy.cost.time_us
    assert 0 < before < after
    assert replace(report, tolerance=0.0).passed is False
