"""`compile --accuracy`: the bundle meets the tolerance, and says what that took."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import planted
import pytest

from adrenoc.base.errors import AccuracyError, DependencyError
from adrenoc.check.accuracy import program_run
from adrenoc.check.accuracy.result import Deviation
from adrenoc.check.accuracy.samples import Judge
from adrenoc.device import opencl
from adrenoc.native import opencl as opencl_runtime
from tests.commands import invoke


def _compiled(model: Path, *words: Any) -> dict[str, Any]:
    told = invoke("compile", model, "--json", *words)
    assert told.exit_code == 0, told.output
    return dict(json.loads(told.stdout))


def _pinned(bundle: Path) -> list[str]:
    manifest = json.loads((bundle / "manifest.json").read_text())
    return list(manifest["options"]["values"]["float32_tensors"])


@pytest.mark.usefixtures("halves")
def test_a_tolerance_is_met_and_told(device, tmp_path):
    model, bundle = planted.save(planted.cancellation(), tmp_path), tmp_path / "met.adrenoc"
    told = _compiled(model, "--device", "host", "-o", bundle, "--accuracy", 1e-2)
    (plan,) = told["accuracy"]["presets"]
    remedy = plan["remedy"]
    assert set(remedy["float32_tensors"]) == set(_pinned(bundle)) == {"t1", "t2", "t3"}
    assert remedy["error_after"] <= 1e-2 < remedy["error_before"]
    assert remedy["cost"]["moved_bytes"][1] > remedy["cost"]["moved_bytes"][0]
    assert 0.8 < plan["floor"]["ratio"] < 1.2
    assert remedy["trials"] > 1 and remedy["runs"] > 1 and plan["left"] == []
    kept = {d["subject"]: d for d in told["decisions"] if d["stage"] == "accuracy"}
    assert set(kept) == {"accuracy", "t1", "t2", "t3"}
    assert invoke("run", bundle, "--repeat", 1, "--check", model).exit_code == 0

    again = tmp_path / "again.adrenoc"
    same = _compiled(model, "--device", "host", "-o", again, "--accuracy", 1e-2)
    assert same["cached"] and same["accuracy"] == told["accuracy"]
    assert same["decisions"] == told["decisions"]
    # A loose tolerance is another compilation, which needs nothing.
    loose = _compiled(model, "--device", "host", "-o", again, "--accuracy", 0.9)
    assert loose["accuracy"]["presets"][0]["remedy"] is None and _pinned(again) == []


@pytest.mark.usefixtures("halves")
def test_a_phone_is_served_by_its_twin_and_inputs_count(device, tmp_path):
    model, folder = planted.save(planted.product_of_inputs(), tmp_path), tmp_path / "inputs"
    folder.mkdir()
    values = np.random.default_rng(0).uniform(500, 1000, (1, 4, 6, 5)).astype(np.float32)
    np.save(folder / "large.npy", values)
    bundle, options = tmp_path / "a.adrenoc", ("--device", "adreno:750", "--accuracy", 1e-2)
    plain = _compiled(model, *options, "-o", bundle)
    assert plain["accuracy"]["presets"][0]["remedy"] is None
    told = _compiled(model, *options, "-o", bundle, "--inputs", folder)
    remedy = told["accuracy"]["presets"][0]["remedy"]
    assert remedy["float32_tensors"] and told["accuracy"]["inputs"] == "large.npy"
    assert remedy["error_before"] is None  # it was infinite
    before, after = remedy["cost"]["time_us"]
    assert 0 < before <= after


def test_what_cannot_be_met_is_told_with_the_best(device, tmp_path, monkeypatch):
    model = planted.save(planted.sharp_softmax(), tmp_path)
    wrong = Deviation(largest=0.5, rms=0.5)
    monkeypatch.setattr(Judge, "judge_outputs", lambda *_: wrong)
    with pytest.raises(AccuracyError, match=r"within 0\.01 .*float32 throughout, is off by 5"):
        invoke("compile", model, "--device", "host", "--accuracy", 1e-2)
    assert not list(tmp_path.glob("*.adrenoc"))


def test_what_the_reference_knows_no_better_is_met(device, tmp_path):
    """No kernel gives a float's last digits: sums in another order have others."""
    model = planted.save(planted.sharp_softmax(), tmp_path)
    folder = tmp_path / "inputs"
    folder.mkdir()
    np.save(folder / "x.npy", np.random.default_rng(0).random((1, 16, 4, 4), np.float32))
    made = ("--device", "host", "-o", tmp_path / "out.adrenoc", "--preset", "fp32")
    made = (*made, "--inputs", folder)
    (plan,) = _compiled(model, *made, "--accuracy", 1e-12)["accuracy"]["presets"]
    assert plan["error"] > 1e-12 and plan["remedy"] is None
    assert "the reference's own" in plan["accepted_as"]


def test_without_a_device_it_says_what_brings_one(device, tmp_path, monkeypatch):
    monkeypatch.setattr(opencl, "list_devices", list)
    model = planted.save(planted.overflow(), tmp_path)
    with pytest.raises(DependencyError, match="no OpenCL device") as raised:
        invoke("compile", model, "--device", "adreno", "--no-cache", "--accuracy", 1e-2)
    assert "[opencl]'" in raised.value.hint


@pytest.mark.parametrize(
    "words",
    (
        ("--accuracy", "0.1", "--precision-policy", "p.json"),
        ("--accuracy", "0.1", "--clml", "all"),
        ("--accuracy", "0"),
        ("--inputs", "folder"),
    ),
)
def test_what_does_not_go_together_is_refused(tmp_path, words):
    assert invoke("compile", tmp_path / "m.onnx", *words).exit_code == 2


def test_a_second_search_builds_no_kernel_again(device, tmp_path, monkeypatch):
    """Its kernels come from where built kernels are kept, whatever the model is called."""
    model, told = planted.save(planted.cancellation(), tmp_path), []

    def noted(*arguments: Any) -> dict[str, int]:
        told.append(opencl_runtime.build_cached(*arguments))
        return dict(told[-1])

    monkeypatch.setattr(program_run, "build_cached", noted)
    words = ("--device", "host", "--no-cache", "-o", tmp_path / "a.adrenoc", "--accuracy", 1e-2)
    _compiled(model, *words)
    told.clear()
    _compiled(model, *words)
    assert len(told) > 3 and all(count["misses"] == 0 for count in told)
