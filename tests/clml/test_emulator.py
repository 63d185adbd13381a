"""Devices without CLML, with older versions, with calls that fail; tuning; no object is lost."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax

from tests.clml.regions import Built, Emulate, build, constant, module_of, random, reference

nn = relax.op.nn
_SHAPE = (1, 6, 7, 5)


def _make(emit: Any, x: Any) -> Any:
    """A batch norm (interface 3), and a product of rows, which needs copies inside."""
    value = emit(nn.conv2d(x, constant(random(6, 6, 3, 3)), padding=(1, 1, 1, 1)))
    value = emit(relax.op.multiply(value, constant(random(1, 6, 1, 1, seed=1))))
    value = emit(relax.op.reshape(value, (1, 6, 35)))
    value = emit(relax.op.matmul(value, constant(random(35, 9, seed=2))))
    return nn.relu(value)


def _plain(emit: Any, x: Any) -> Any:
    """A convolution alone: interface 1, nothing to copy inside, so it is recorded."""
    return nn.relu(emit(nn.conv2d(x, constant(random(6, 6, 3, 3)), padding=(1, 1, 1, 1))))


@pytest.fixture(scope="module")
def inputs() -> list[np.ndarray]:
    return [random(*_SHAPE)]


def _facts(built: Built) -> dict[str, Any]:
    """What the device made of the one region."""
    function = tvm_ffi.get_global_func("adrenoc.clml.regions")
    (facts,) = json.loads(function(built.state.executable.mod, 0))
    return facts


@cache
def _expected(make: Any) -> np.ndarray:
    return reference(module_of(make, _SHAPE), [random(*_SHAPE)])[0]


def _agrees(built: Built, inputs: list[np.ndarray], make: Any = _make) -> None:
    assert np.allclose(built.run(inputs)[0], _expected(make), atol=1e-4)


@pytest.fixture(scope="module")
def built(device: Any) -> Built:
    return build(module_of(_make, _SHAPE), device, version=3)


@pytest.fixture(scope="module")
def recorded(device: Any) -> Built:
    return build(module_of(_plain, _SHAPE), device)


@pytest.fixture(autouse=True)
def _nothing_is_prepared(built: Built, recorded: Built) -> None:
    """No test finds what another has made ready."""
    tvm_ffi.get_global_func("adrenoc.clml.emulate")("")
    for each in (built, recorded):
        assert not _facts(each)["used"]


def test_by_clml(built: Built, inputs: list[np.ndarray], emulate: Emulate):
    emulate()
    _agrees(built, inputs)
    facts = _facts(built)
    assert facts["used"] and facts["library"] == "emulator" and facts["reason"] == ""
    assert (facts["operators"], facts["border_copies"]) == (5, 2)
    assert facts["inner_copies"] == 2  # to rows for the product, and back
    assert not facts["recorded"]
    assert facts["memory_bytes"] > 0


def test_a_recording_is_replayed(recorded: Built, inputs: list[np.ndarray], emulate: Emulate):
    for recording in (True, False):
        emulate(recording=recording)
        _agrees(recorded, inputs, _plain)
        assert _facts(recorded)["recorded"] == recording


@pytest.mark.parametrize("versions", [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4, 5], [5]])
def test_versions(built: Built, inputs: list[np.ndarray], emulate: Emulate, versions: list[int]):
    emulate(versions=versions)
    _agrees(built, inputs)
    facts = _facts(built)
    assert facts["used"] == (max(versions) >= 3)
    if not facts["used"]:
        assert "interface" in facts["reason"] or "needs CLML 3" in facts["reason"]


def test_an_old_version_is_told(device: Any, inputs: list[np.ndarray], emulate: Emulate):
    # The graph needs no more than interface 1, but the bundle asks for what its rows were given.
    clipped = build(module_of(lambda e, x: relax.op.clip(x, -1, 1), _SHAPE), device, version=2)
    emulate(versions=[1])
    assert np.allclose(clipped.run(inputs)[0], inputs[0])
    assert not _facts(clipped)["used"]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"extension": False}, "lacks the extension cl_qcom_ml_ops"),
        ({"versions": []}, "no interface version"),
    ],
)
def test_no_clml(
    built: Built, inputs: list[np.ndarray], emulate: Emulate, settings: Any, reason: str
):
    emulate(**settings)
    _agrees(built, inputs)
    assert reason in _facts(built)["reason"]


def test_without_emulator_this_device_has_none(built: Built, inputs: list[np.ndarray]):
    _agrees(built, inputs)
    assert "cl_qcom_ml_ops" in _facts(built)["reason"]


_AT_PREPARATION = (
    "clQueryMLInterfaceVersionsQCOM",
    "clGetMLInterfaceQCOM",
    "clCreateMLTensorQCOM",
    "clGetMLTensorMemorySizeQCOM",
    "clCreateMLOp",
    "clCreateMLTensorMemoryDescriptorSetQCOM",
    "clUpdateMLTensorMemoryDescriptorSetQCOM",
    "clEnqueueWriteMLTensorDataQCOM",
    "clCreateMLTuningCacheQCOM",
)
_AT_RUN = ("clEnqueueCopyMLTensorDataQCOM", "clEnqueueMLOpQCOM")
_RECORDING = ("clNewRecordingQCOM", "clEndRecordingQCOM")
_CODES = (
    "CL_OUT_OF_HOST_MEMORY",
    "CL_OUT_OF_RESOURCES",
    "CL_INVALID_VALUE",
    "CL_ML_OP_NOT_ACCELERATED_QCOM",
)


@pytest.mark.parametrize("code", _CODES)
@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("call", _AT_PREPARATION)
def test_a_call_fails_while_preparing(
    built: Built,
    inputs: list[np.ndarray],
    emulate: Emulate,
    live_objects: Callable[[], int],
    call: str,
    after: int,
    code: str,
):
    emulate(failing_call=call, failing_code=code, failing_after=after)
    _agrees(built, inputs)
    facts = _facts(built)
    if facts["used"]:  # the second call of what is called once
        assert after == 1
    else:
        assert call in facts["reason"] and code in facts["reason"]
        assert live_objects() == 0, "what was made before the failure is given back"


@pytest.mark.parametrize("call", _RECORDING)
def test_a_recording_fails(
    recorded: Built,
    inputs: list[np.ndarray],
    emulate: Emulate,
    live_objects: Callable[[], int],
    call: str,
):
    emulate(failing_call=call, failing_code="CL_OUT_OF_RESOURCES")
    _agrees(recorded, inputs, _plain)
    assert call in _facts(recorded)["reason"]
    assert live_objects() == 0


@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize("call", _AT_RUN)
def test_a_call_fails_in_a_run(
    built: Built,
    inputs: list[np.ndarray],
    emulate: Emulate,
    live_objects: Callable[[], int],
    call: str,
    after: int,
):
    emulate(failing_call=call, failing_code="CL_OUT_OF_RESOURCES", failing_after=after)
    with pytest.raises(RuntimeError, match=rf"{call} failed with CL_OUT_OF_RESOURCES"):
        built.run(inputs)
    assert live_objects() == 0
    _agrees(built, inputs)  # from now on by textures
    assert call in _facts(built)["reason"]


def test_a_replay_fails(recorded: Built, inputs: list[np.ndarray], emulate: Emulate):
    emulate(failing_call="clEnqueueRecordingMLOpQCOM", failing_code="CL_INVALID_OPERATION")
    with pytest.raises(RuntimeError, match="clEnqueueRecordingMLOpQCOM failed"):
        recorded.run(inputs)
    _agrees(recorded, inputs, _plain)


def test_everything_is_given_back(
    device: Any, inputs: list[np.ndarray], emulate: Emulate, live_objects: Callable[[], int]
):
    emulate()
    built = build(module_of(_make, _SHAPE), device)
    built.run(inputs)
    assert live_objects() > 0
    del built
    gc.collect()
    assert live_objects() == 0


# Tuning


@pytest.fixture
def _tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CLML_IS_TUNING_RUN", "CLML_IS_TUNNING_RUN", "CLML_TUNING_CACHE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("_tuning")
class TestTuning:
    """Results are kept in TVM's file, or in the cache folder under a strict key."""

    @pytest.mark.parametrize("variable", ["CLML_IS_TUNING_RUN", "CLML_IS_TUNNING_RUN"])
    def test_file(
        self,
        built: Built,
        inputs: list[np.ndarray],
        emulate: Emulate,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
        variable: str,
    ):
        file = tmp_path / "tuning.bin"
        monkeypatch.setenv("CLML_TUNING_CACHE", str(file))
        monkeypatch.setenv(variable, "1")
        emulate()
        _agrees(built, inputs)
        assert _facts(built)["tuning"] == f"tuned, kept in {file}"
        once = file.read_bytes()
        assert once.startswith(bytes(reversed(b"CLMLTUNE")))
        assert built.state.clml.regions[0].symbol.encode() in once
        emulate()  # again: the record is replaced, where TVM's runtime appends a second
        _agrees(built, inputs)
        assert file.read_bytes() == once
        monkeypatch.delenv(variable)
        emulate()
        _agrees(built, inputs)
        assert _facts(built)["tuning"] == f"tuned by {file}"

    def test_file_without_this_region(
        self,
        built: Built,
        inputs: list[np.ndarray],
        emulate: Emulate,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
    ):
        file = tmp_path / "none.bin"
        monkeypatch.setenv("CLML_TUNING_CACHE", str(file))
        for content in (b"", b"nonsense that is no record", bytes(reversed(b"CLMLTUNE")) * 3):
            file.write_bytes(content)
            emulate()
            _agrees(built, inputs)
            assert "has no tuning of this region" in _facts(built)["tuning"]

    def test_cache_folder(
        self,
        built: Built,
        inputs: list[np.ndarray],
        emulate: Emulate,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
    ):
        set_folder = tvm_ffi.get_global_func("adrenoc.clml.set_cache_folder")
        set_folder(str(tmp_path / "cache"))
        try:
            monkeypatch.setenv("CLML_IS_TUNING_RUN", "1")
            emulate()
            _agrees(built, inputs)
            (file,) = (tmp_path / "cache").iterdir()
            monkeypatch.delenv("CLML_IS_TUNING_RUN")
            emulate()
            _agrees(built, inputs)
            assert _facts(built)["tuning"] == f"tuned by {file}"
            emulate(versions=[1, 2, 3])  # another library: another key
            _agrees(built, inputs)
            assert _facts(built)["tuning"] == ""
            file.write_bytes(file.read_bytes()[:40])
            emulate()
            _agrees(built, inputs)
            assert _facts(built)["tuning"] == ""
        finally:
            set_folder("")

    @pytest.mark.parametrize("call", ["clTuneMLOpQCOM", "clSaveMLTuningCacheQCOM"])
    def test_tuning_fails(
        self,
        built: Built,
        inputs: list[np.ndarray],
        emulate: Emulate,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
        call: str,
    ):
        monkeypatch.setenv("CLML_TUNING_CACHE", str(tmp_path / "tuning.bin"))
        monkeypatch.setenv("CLML_IS_TUNING_RUN", "1")
        emulate(failing_call=call, failing_code="CL_OUT_OF_RESOURCES")
        _agrees(built, inputs)
        assert call in _facts(built)["reason"]
        assert not (tmp_path / "tuning.bin").exists()

    def test_a_result_that_the_library_refuses(
        self,
        built: Built,
        inputs: list[np.ndarray],
        emulate: Emulate,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
    ):
        file = tmp_path / "tuning.bin"
        monkeypatch.setenv("CLML_TUNING_CACHE", str(file))
        monkeypatch.setenv("CLML_IS_TUNING_RUN", "1")
        emulate()
        _agrees(built, inputs)
        monkeypatch.delenv("CLML_IS_TUNING_RUN")
        emulate(failing_call="clLoadMLTuningCacheQCOM", failing_code="CL_INVALID_VALUE")
        _agrees(built, inputs)
        assert "clLoadMLTuningCacheQCOM" in _facts(built)["reason"]


# The module


def _module(graph: dict[str, Any], constants: list[str] = []) -> Any:  # noqa: B006
    create = tvm_ffi.get_global_func("runtime.clml_runtime_create")
    return create("sym_openclml", json.dumps(graph), constants)


_GRAPH: dict[str, Any] = {
    "nodes": [
        {"op": "input", "name": "x", "attrs": {"shape": [[1, 3]], "dtype": ["float32"]}},
        {
            "op": "kernel",
            "name": "openclml.relax.nn.relu",
            "inputs": [[0, 0, 0]],
            "attrs": {
                "shape": [[1, 3]],
                "dtype": ["float32"],
                "activation_type": "relu",
                "num_inputs": 1,
                "num_outputs": 1,
            },
        },
    ],
    "arg_nodes": [0],
    "heads": [[1, 0, 0]],
    "node_row_ptr": [0, 1, 2],
}


def test_bytes_of_a_module(device: Any):
    """Symbol, graph, names of the constants, each after its length: the form of TVM's runtime."""
    graph = json.dumps(_GRAPH).encode()
    wanted = b"".join(
        len(part).to_bytes(8, "little") + part for part in (b"sym_openclml", graph)
    ) + (0).to_bytes(8, "little")
    load = tvm_ffi.get_global_func("ffi.Module.load_from_bytes.clml")
    loaded = load(wanted)
    assert loaded.kind == "clml"
    assert loaded["get_symbol"]() == "sym_openclml"
    assert list(loaded["get_const_vars"]()) == []
    assert json.loads(loaded.inspect_source()) == _GRAPH
    for cut in range(0, len(wanted) - 1, 7):
        with pytest.raises(ValueError, match="damaged"):
            load(wanted[:cut])


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda g: g.pop("heads"), "lacks `heads`"),
        (lambda g: g["nodes"][1].pop("attrs"), "lacks `attrs`"),
        (lambda g: g["nodes"][1].update(inputs=[[1, 0, 0]]), "names node 1"),
        (lambda g: g["nodes"][1].update(inputs=[[0, 1, 0]]), "a further output"),
        (lambda g: g["nodes"][1].update(op="tuple"), "is a `tuple`"),
        (lambda g: g["nodes"][0]["attrs"].update(dtype=["int8"]), "holds int8"),
        (lambda g: g["nodes"][0]["attrs"].update(shape=[[0, 3]]), "has the extent 0"),
        (lambda g: g["nodes"][0]["attrs"].update(shape=[[1] * 5]), "a rank above four"),
        (lambda g: g["nodes"][0]["attrs"].update(shape="no"), "another type"),
        (lambda g: g.update(heads=[[0, 0, 0]]), "not the result of an operator"),
        (lambda g: g.update(heads=[]), "it has no output"),
    ],
)
def test_damaged_graphs(device: Any, damage: Any, said: str):
    graph = json.loads(json.dumps(_GRAPH))
    damage(graph)
    with pytest.raises(ValueError, match="A CLML graph is damaged") as caught:
        _module(graph)
    assert said in str(caught.value)


def test_an_unknown_operator_is_refused_when_it_is_prepared(device: Any, emulate: Emulate):
    graph = json.loads(json.dumps(_GRAPH))
    graph["nodes"][1]["name"] = "openclml.nn.fancy"
    emulate()
    x = tvm.runtime.tensor(random(1, 3), device)
    assert not _module(graph)["sym_openclml_usable"](1, x)


def test_wrong_arguments(device: Any, emulate: Emulate):
    emulate()
    module = _module(_GRAPH)
    x, y = (tvm.runtime.tensor(random(1, 3), device) for _ in range(2))
    module["sym_openclml"](x, y)
    assert np.array_equal(y.numpy(), np.maximum(x.numpy(), 0))
    with pytest.raises(ValueError, match="takes 1 inputs and 1 outputs, got 1"):
        module["sym_openclml"](x)
    with pytest.raises(ValueError, match="another shape or dtype"):
        module["sym_openclml"](tvm.runtime.tensor(random(1, 4), device), y)
    with pytest.raises(ValueError, match="whole buffers of an OpenCL device"):
        module["sym_openclml"](tvm.runtime.tensor(random(1, 3)), y)
    assert not module["sym_openclml_usable"](1, tvm.runtime.tensor(random(1, 3)))


def test_a_constant_too_few(device: Any):
    with pytest.raises(ValueError, match="reads 0 constants, but 1 are named"):
        _module(_GRAPH, ["c"])
    module = _module(_GRAPH)
    with pytest.raises(ValueError, match="reads 0 constants, but was given 1"):
        module["__init_sym_openclml"]([tvm.runtime.tensor(random(1))])


@pytest.mark.parametrize(
    ("settings", "said"), [("[]", "no JSON object"), ('{"speed": 1}', "no setting `speed`")]
)
def test_wrong_settings(device: Any, settings: str, said: str):
    with pytest.raises(ValueError, match=said):
        tvm_ffi.get_global_func("adrenoc.clml.emulate")(settings)
