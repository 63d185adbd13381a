"""The reference runtimes: what they compute, refuse and tell, and what becomes of their crashes."""

import os
import pickle
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert import interpreter as litert
from onnx import TensorProto, helper

from adrenoc.base.errors import DependencyError, InputError, ModelFormatError, ToolError
from adrenoc.base.host.extras import pip_install
from adrenoc.base.host.proc import own_module
from adrenoc.bundle.manifest import TensorSpec
from adrenoc.check import reference, runtimes
from adrenoc.check.inputs import make_inputs
from adrenoc.check.own_rounding import read_quanta
from adrenoc.check.reference import APART, other_kernels, run_reference
from adrenoc.check.runtimes import PLAIN, REFERENCE_KERNELS, UNSIGNED
from tests.models import graph, write, write_network
from tests.tflite.build import ModelBuilder, T, write_operator

ROOT = Path(__file__).resolve().parents[2]
_ASKS = """
import sys
from pathlib import Path
from adrenoc.base.host.extras import import_onnxruntime, runtime_errors
runtime_errors()
import_onnxruntime().InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
"""


def test_it_leaves_nothing_in_the_folders_of_the_user(tmp_path):
    model = write(graph("y = Relu(x)", {"x": (4,)}, ["y"]), tmp_path)
    places = {name: tmp_path / name for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME")}
    for place in places.values():
        place.mkdir()
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("ORT_", "XDG_"))}
    subprocess.run(
        [sys.executable, "-c", _ASKS, model],
        env={**inherited, "PYTHONPATH": str(ROOT), **{k: str(v) for k, v in places.items()}},
        check=True,
    )
    assert [path for place in places.values() for path in place.rglob("*")] == []


def test_one_room_imports_it():
    imports = re.compile(r"^\s*(import onnxruntime|from onnxruntime)|\"onnxruntime\"\)", re.M)
    theirs = [path for path in (ROOT / "adrenoc").rglob("*.py") if imports.search(path.read_text())]
    assert [path.name for path in theirs] == ["extras.py"]


_CRASHES = """
import os, signal
class SessionOptions:
    def add_session_config_entry(self, *_): pass
class GraphOptimizationLevel:
    ORT_DISABLE_ALL = 0
class InferenceSession:
    def __init__(self, *_, **__): os.kill(os.getpid(), signal.SIGSEGV)
class capi:
    class onnxruntime_pybind11_state:
        class Fail(RuntimeError): pass
"""


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Each test has a process of its own."""
    APART.end()
    yield
    APART.end()


@pytest.fixture
def model(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    nodes = "y = Neg(x)"
    return write(graph(nodes, {"x": (1, 4)}, ["y"]), tmp_path, "m.onnx")


def test_a_crash_is_an_error_in_a_sentence(model, tmp_path, monkeypatch):
    package = tmp_path / "packages" / "onnxruntime"
    (package / "capi").mkdir(parents=True)
    (package / "__init__.py").write_text(_CRASHES)
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", str(package.parent))
        for _ in range(2):  # the next call has a process again
            with pytest.raises(ToolError, match=r"crashed \(SIGSEGV\) as it computed .*m\.onnx"):
                run_reference(model, {"x": np.ones((1, 4), np.float32)})
    found = run_reference(model, {"x": np.ones((1, 4), np.float32)})
    assert found["y"].tolist() == [[-1.0] * 4]


def test_one_process_serves_all_calls_and_knows_the_folder(model, tmp_path, monkeypatch):
    x = {"x": np.ones((1, 4), np.float32)}
    run_reference(Path("m.onnx"), x)
    first = APART._process
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    model.rename(elsewhere / "other.onnx")
    monkeypatch.chdir(elsewhere)
    assert run_reference(Path("other.onnx"), x)["y"].tolist() == [[-1.0] * 4]
    with pytest.raises(InputError, match="there is no array for 'x'"):
        run_reference(Path("other.onnx"), {})
    assert other_kernels(Path("other.onnx"), x)
    assert APART._process is first and first is not None
    assert os.getsid(first.pid) == first.pid  # which Ctrl-C at a terminal does not reach


def test_a_forked_process_has_one_of_its_own(model):
    x = {"x": np.ones((1, 4), np.float32)}
    run_reference(model, x)
    child = os.fork()
    if child == 0:
        found = run_reference(model, x)["y"].tolist()
        os._exit(0 if found == [[-1.0] * 4] else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert run_reference(model, x)["y"].tolist() == [[-1.0] * 4]


def test_an_interruption_leaves_no_answer_for_the_next_question(model, monkeypatch):
    x = {"x": np.ones((1, 4), np.float32)}
    run_reference(model, x)

    def interrupted(_stream: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(reference.pickle, "load", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_reference(model, x)
    two = {"x": np.full((1, 4), 2, np.float32)}
    assert run_reference(model, two)["y"].tolist() == [[-2.0] * 4]


def test_a_process_that_was_killed_is_started_again(model):
    x = {"x": np.ones((1, 4), np.float32)}
    run_reference(model, x)
    os.kill(APART._process.pid, signal.SIGKILL)
    APART._process.wait()
    assert run_reference(model, x)["y"].tolist() == [[-1.0] * 4]


@pytest.mark.parametrize("cut", [False, True])
def test_nobody_who_waits_for_the_answer_is_no_failure(cut, tmp_path):
    """As when the command is killed while it asks, or while the reference computes."""
    question = pickle.dumps((str(tmp_path), "run_reference", Path("m.onnx"), {}, {}))
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        own_module("adrenoc.check.reference_process"),
        input=question[: len(question) // 2] if cut else question,
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


SPEC = TensorSpec(name="x", shape=(1, 4), dtype="float32")


def two_steps(folder: Path) -> Path:
    nodes = "mid = Neg(x) y = Relu(mid)"
    return write(graph(nodes, {"x": SPEC.shape}, ["y"]), folder)


def test_onnx_outputs_and_intermediate_tensors(tmp_path):
    feeds = make_inputs([SPEC])
    found = run_reference(two_steps(tmp_path), feeds, tensors=["mid"])
    np.testing.assert_array_equal(found["mid"], -feeds["x"])
    np.testing.assert_array_equal(found["y"], np.maximum(-feeds["x"], 0))


def test_tflite_intermediate_tensors(tmp_path):
    path = write_network(tmp_path, "mixed_small", size=31, width=1.0)
    feeds = make_inputs([TensorSpec(name="input", shape=(1, 31, 31, 3), dtype="float32")])
    found = run_reference(path, feeds, tensors=["maximum_7"])
    assert list(found) == ["output", "maximum_7"]
    assert found["maximum_7"].std() > 0
    assert found["output"].sum() == pytest.approx(1.0, abs=1e-5)


def test_unknown_tensor_names_the_nearest(tmp_path):
    with pytest.raises(InputError) as caught:
        run_reference(two_steps(tmp_path), make_inputs([SPEC]), tensors=["midd"])
    assert "'mid'" in caught.value.hint


def test_missing_and_misshapen_inputs(tmp_path):
    with pytest.raises(InputError, match="no array for 'x'"):
        run_reference(two_steps(tmp_path), {})
    with pytest.raises(InputError, match="cannot run"):
        run_reference(two_steps(tmp_path), {"x": np.ones((1, 5), np.float32)})


def test_what_litert_loads_and_cannot_run(tmp_path):
    """A kernel that looks at the dtype when it is called."""
    x = T(dtype="int16", data=np.ones(4, np.int16), scales=[0.1])
    result = T(dtype="int16", shape=(4,), scales=[0.2])
    path = write_operator(tmp_path, "SQUARED_DIFFERENCE", [x, x], result)
    with pytest.raises(InputError, match=r"LiteRT cannot run .*only supports"):
        run_reference(path, dict.fromkeys("xy", x.data))


def test_what_xnnpack_refuses_plain_kernels_compute(tmp_path, monkeypatch, capfd):
    """It does so with whole networks in int8 that LiteRT itself computes."""
    whole = litert.Interpreter

    def refusing(**arguments):
        if arguments["experimental_op_resolver_type"] is litert.OpResolverType.AUTO:
            raise RuntimeError("Node number 42 (TfLiteXNNPackDelegate) failed to prepare.")
        return whole(**arguments)

    monkeypatch.setattr(litert, "Interpreter", refusing)
    array = np.ones((3, 4), np.float32)
    path = write_operator(tmp_path, "RELU", [T(data=array)], T(shape=(3, 4)))
    found = runtimes.run_reference(path, {"x": array})
    assert np.array_equal(next(iter(found.values())), array)
    assert "its plain kernels compute the reference" in capfd.readouterr().err


def test_misshapen_tflite_input(tmp_path):
    path = write_network(tmp_path, "mixed_small", size=31, width=1.0)
    with pytest.raises(InputError, match=r"expected float32 \[1, 31, 31, 3\]"):
        run_reference(path, {"input": np.ones((1, 3), np.float32)})


def test_model_that_the_runtime_refuses(tmp_path):
    model = graph("y = NoSuchOperator(x)", {"x": (1,)}, ["y"])
    with pytest.raises(ModelFormatError, match="NoSuchOperator"):
        run_reference(write(model, tmp_path), {"x": np.ones(1, np.float32)})


def test_missing_package(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(DependencyError) as caught:
        runtimes.run_reference(two_steps(tmp_path), make_inputs([SPEC]))
    assert caught.value.hint == pip_install("check")


def _with_quanta(folder: Path) -> Path:
    """A float in, quanta in between, a float and whole numbers out."""
    constants = {"s": np.array(0.05, np.float32), "z": np.array(3, np.uint8)}
    nodes = (
        "q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) "
        "y = Transpose <perm = [1, 0]>(d) r = Relu(d)"
    )
    model = graph(nodes, {"x": SPEC.shape}, ["y", "r", "q"], constants)
    for value, kind in zip(model.graph.output, (1, 1, 2), strict=True):
        value.type.tensor_type.elem_type = kind
    return write(model, folder)


def test_a_quantised_model_tells_its_quanta(tmp_path):
    found = read_quanta(_with_quanta(tmp_path))
    assert found.quanta == {"y": pytest.approx(0.05), "q": 1.0}
    assert found.tensors == {**found.quanta, "d": pytest.approx(0.05)}
    assert read_quanta(two_steps(tmp_path)) is None


def test_other_kernels_compute_it_too(tmp_path):
    path, feeds = _with_quanta(tmp_path), make_inputs([SPEC])
    expected, others = run_reference(path, feeds), other_kernels(path, feeds)
    assert set(others) == {PLAIN, UNSIGNED}
    for outputs in others.values():
        np.testing.assert_array_equal(outputs["q"], expected["q"])


def _product_of_4_bits(folder: Path, *, as_conversion: bool) -> tuple[Path, np.ndarray]:
    """x times weights of 4 bits, and what that gives in float."""
    from onnx import TensorProto

    generator = np.random.default_rng(3)
    whole = generator.integers(-8, 8, (32, 16)).astype(np.int8)
    scales = generator.uniform(0.1, 0.3, (1, 16)).astype(np.float32)
    if as_conversion:
        nodes = "f = DequantizeLinear <axis = 0, block_size = 32>(w, s) y = MatMul(x, f)"
        model = graph(nodes, {"x": (4, 32)}, ["y"], {"s": scales}, opset=21)
        packed = helper.make_tensor("w", TensorProto.INT4, whole.shape, whole.ravel())
        model.graph.initializer.append(packed)
    else:
        pairs = (whole.T + 8).astype(np.uint8).reshape(16, 1, 16, 2)
        constants = {"w": pairs[..., 0] | pairs[..., 1] << 4, "s": scales.ravel()}
        said = {"K": 32, "N": 16, "bits": 4, "block_size": 32, "accuracy_level": 4}
        node = helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], **said)
        node.domain = "com.microsoft"
        model = graph([node], {"x": (4, 32)}, ["y"], constants)
        model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return write(model, folder), whole.astype(np.float32) * scales


@pytest.mark.parametrize("as_conversion", [True, False])
def test_weights_of_4_bits_are_multiplied_in_float(tmp_path, as_conversion):
    """onnxruntime rounds x to bytes for it, of its own accord or because the model lets it."""
    path, weights = _product_of_4_bits(tmp_path, as_conversion=as_conversion)
    x = np.random.default_rng(4).normal(size=(4, 32)).astype(np.float32)
    exact = x @ weights
    assert (read_quanta(path) is not None) == as_conversion  # the other one is a sum in float
    np.testing.assert_allclose(other_kernels(path, {"x": x})[PLAIN]["y"], exact, atol=1e-4)
    np.testing.assert_allclose(run_reference(path, {"x": x})["y"], exact, atol=1e-4)


def test_a_model_that_stores_halves_rounds(tmp_path):
    model = graph("y = Add(x, c)", {"x": SPEC.shape}, ["y"])
    assert read_quanta(write(model, tmp_path)) is None
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = 10
    assert read_quanta(write(model, tmp_path)).quanta == {}


def test_quanta_of_a_tflite_file(tmp_path):
    built = ModelBuilder()
    main = built.graph()
    data = np.linspace(-1, 1, 12, dtype=np.float32).reshape(1, 12)
    x = main.add(T(data=data), "x")
    quanta = T(dtype="int8", shape=(1, 12), scales=(0.02,), zeros=(5,))
    (q,) = main.op("QUANTIZE", [x], [quanta], "QuantizeOptions")
    (y,) = main.op("DEQUANTIZE", [q], [T(shape=(1, 12))], "DequantizeOptions")
    main.outputs = [q, y]
    path = tmp_path / "quanta.tflite"
    path.write_bytes(built.finish()[0])
    assert sorted(read_quanta(path).quanta.values()) == [pytest.approx(0.02), 1.0]
    assert set(other_kernels(path, {"x": data})) == {PLAIN, REFERENCE_KERNELS}


def test_types_that_onnxruntime_has_no_kernel_for_are_not_the_models_fault(tmp_path):
    weights = {"w": np.ones((4, 3, 3, 3))}
    model = graph(
        "y = Conv(x, w)",
        {"x": (1, 3, 8, 8)},
        ["y"],
        weights,
        dtype=TensorProto.DOUBLE,
    )
    with pytest.raises(ToolError, match="nothing to compare with"):
        run_reference(write(model, tmp_path), {"x": np.ones((1, 3, 8, 8))})
