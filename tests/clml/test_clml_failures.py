"""Devices without CLML, with each version of it, and each call failing with each of its errors."""

import gc
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm_ffi

from tests.clml.regions import (
    INPUT,
    SHAPE,
    Built,
    Emulate,
    Loaded,
    build,
    expected,
    load,
    make,
    module_of,
    plain,
)

_RECORDING = ("clNewRecordingQCOM", "clEndRecordingQCOM", "clEnqueueRecordingMLOpQCOM")
_TUNING_RUN = ("clTuneMLOpQCOM", "clSaveMLTuningCacheQCOM")
_KEEPS_ON = ("clSaveMLTuningCacheQCOM", "clLoadMLTuningCacheQCOM")
"""What fails here costs the tuning, not the library."""
_UPDATE = "clUpdateMLTensorMemoryDescriptorSetQCOM"
"""Called at each run where memory of the caller is shared, else once before."""
_AT_RUN = (
    "clEnqueueCopyMLTensorDataQCOM",
    "clEnqueueMLOpQCOM",
    "clEnqueueRecordingMLOpQCOM",
    _UPDATE,
)


def _calls() -> dict[str, list[str]]:
    """Entry point of the emulated library -> the codes that it can fail with."""
    found = json.loads(tvm_ffi.get_global_func("adrenoc.clml.emulated_calls")())
    return {str(call): [str(code) for code in codes] for call, codes in found.items()}


@pytest.fixture(scope="module")
def everything(device) -> Loaded:
    return load(make, device)


@pytest.fixture(scope="module")
def recorded(device) -> Loaded:
    return load(plain, device)


@pytest.fixture(scope="module")
def built(device) -> Built:
    return build(module_of(make, SHAPE), device)


@pytest.fixture(autouse=True)
def _nothing_is_prepared(everything, recorded, built) -> None:
    """No test finds what another has made ready."""
    tvm_ffi.get_global_func("adrenoc.clml.emulate")("")
    assert not any(facts["used"] for facts in _facts(built))
    for each in (everything, recorded):
        assert not each.usable()


def _facts(built: Built) -> list[dict[str, Any]]:
    """What the device made of each region."""
    found = tvm_ffi.get_global_func("adrenoc.clml.regions")(built.state.executable.mod, 0)
    return list(json.loads(found))


@pytest.fixture
def tune(monkeypatch, tmp_path) -> Callable[[bool], None]:
    """Asks for a tuning run (or none), with a file for the results."""
    for name in ("CLML_IS_TUNING_RUN", "CLML_IS_TUNNING_RUN", "CLML_TUNNING_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLML_TUNING_CACHE", str(tmp_path / "tuning.bin"))
    return lambda wanted: monkeypatch.setenv("CLML_IS_TUNING_RUN", "1" if wanted else "0")


def _fail(
    loaded: Loaded, call: str, code: str, emulate: Emulate, live_objects: Callable[[], int]
) -> None:
    """One call fails once: its error is told, nothing is lost, and no number is wrong."""
    emulate(failing_call=call, failing_code=code)
    if not loaded.usable():
        early = call == _UPDATE and loaded.function is plain
        assert early or call not in (*_AT_RUN, *_KEEPS_ON), call
        reason = loaded.facts()["reason"]
        assert call in reason and code in reason
        assert live_objects() == 0, f"{call}: what was made before is given back"
        return
    if call in _KEEPS_ON:
        note = loaded.facts()["tuning"]
        assert call in note and code in note
        loaded.run()
        return
    assert call in _AT_RUN, f"{call} was not called"
    with pytest.raises(RuntimeError, match=f"{call} failed with {code}; from now on"):
        loaded.run()
    assert live_objects() == 0, call
    assert not loaded.usable()


def test_every_call_fails_with_every_error(everything, recorded, emulate, tune, live_objects):
    tune(True)
    emulate()
    assert everything.usable() and "tuned, kept in" in everything.facts()["tuning"]
    for call, codes in _calls().items():
        assert codes, call
        tune(call in _TUNING_RUN)
        where = (everything, recorded) if call == _UPDATE else (everything,)
        for loaded in (recorded,) if call in _RECORDING else where:
            for code in codes:
                _fail(loaded, call, code, emulate, live_objects)
                emulate(extension=False)
                assert not loaded.usable()  # and holds nothing for the next


def test_the_bundle_runs_by_textures_whichever_call_fails(built, emulate, tune):
    for call, codes in _calls().items():
        if call in (*_RECORDING, *_AT_RUN, *_KEEPS_ON):
            continue
        tune(call in _TUNING_RUN)
        emulate(failing_call=call, failing_code=codes[0])
        assert np.allclose(built.run([INPUT])[0], expected(make), atol=1e-3), call
        (facts,) = _facts(built)
        assert not facts["used"] and call in facts["reason"]


def test_a_failing_run_is_an_error_and_the_next_is_right(built, emulate):
    calls = _calls()
    for call in (_UPDATE, *_AT_RUN[:2]):
        for after in range(1 if call == _UPDATE else 2):
            emulate(failing_call=call, failing_code=calls[call][0], failing_after=after)
            with pytest.raises(RuntimeError, match=f"{call} failed with {calls[call][0]}"):
                built.run([INPUT])
            assert np.allclose(built.run([INPUT])[0], expected(make), atol=1e-3)


def test_an_unknown_failure_is_refused(emulate):
    for call, code in (("clCreateMLOp", "CL_INVALID_VALUE"), ("clTuneMLOpQCOM", "CL_NONE")):
        with pytest.raises(ValueError, match=f"has no call {call} that fails with {code}"):
            emulate(failing_call=call, failing_code=code)


@pytest.mark.parametrize("compiled_for", [1, 2, 5])
def test_each_version_of_bundle_and_device(device, emulate, compiled_for):
    """A device of each version runs by CLML the regions that it has the operators of."""
    built = build(module_of(make, SHAPE), device, version=compiled_for)
    needed = {r.symbol: r.version for r in built.state.clml.regions}
    assert max(needed.values()) == min(compiled_for, 3)
    for version in (1, 2, 3, 4, 5):
        emulate(versions=list(range(1, version + 1)))
        assert np.allclose(built.run([INPUT])[0], expected(make), atol=1e-3)
        for facts in _facts(built):
            wanted = needed[facts["symbol"]]
            assert facts["used"] == (version >= wanted)
            if not facts["used"]:
                assert f"interface {version}" in facts["reason"] or "needs CLML" in facts["reason"]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"extension": False}, "lacks the extension cl_qcom_ml_ops"),
        ({"versions": []}, "no interface version"),
        (None, "lacks the extension cl_qcom_ml_ops"),  # this device itself
    ],
)
def test_no_clml(built, emulate, settings, reason):
    if settings is not None:
        emulate(**settings)
    assert np.allclose(built.run([INPUT])[0], expected(make), atol=1e-3)
    (facts,) = _facts(built)
    assert not facts["used"] and reason in facts["reason"]


def test_everything_is_given_back(device, emulate, live_objects):
    emulate()
    loaded = load(make, device)
    loaded.run()
    assert live_objects() > 0
    del loaded
    gc.collect()
    assert live_objects() == 0
