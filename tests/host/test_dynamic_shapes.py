"""One bundle for several shapes or Adrenos, and variables that are kept from run to run."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from adrenoc.base.errors import BundleError, InputError, OptionError, UnsupportedOperatorError
from adrenoc.bundle.buckets import open_edition, open_signature, read_buckets, read_editions
from adrenoc.bundle.bundle import Bundle, open_bundle
from adrenoc.cli.main import main
from adrenoc.device import fit
from adrenoc.device import run as running
from adrenoc.device.run import run_bundle
from adrenoc.importers.onnx.session import open_session
from tests.commands import invoke, refuse, run_program, succeed
from tests.faulty.driver import misbehaving
from tests.models import graph, write
from tests.tflite.build import ModelBuilder, T, constant, start
from tests.tflite.signature_models import handle, write_sharing

pytestmark = pytest.mark.usefixtures("device")


def _write_open(nodes: str, shape: tuple, outputs: list[str], folder: Path, **weights) -> Path:
    """A network whose input has open extents; `weights` are shapes."""
    random = np.random.default_rng(0)
    held = {n: random.standard_normal(form).astype(np.float32) for n, form in weights.items()}
    return write(graph(nodes, {"x": shape}, outputs, held), folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    nodes = (
        "a = Conv <pads = [1, 1, 1, 1], strides = [2, 2]>(x, w) map = Relu(a) "
        "g = GlobalAveragePool(map) f = Flatten(g) y = Gemm(f, d)"
    )
    folder, weights = tmp_path_factory.mktemp("dynamic"), {"w": (6, 3, 3, 3), "d": (6, 5)}
    return _write_open(nodes, ("n", 3, "h", "w_"), ["y", "map"], folder, **weights)


@pytest.fixture(scope="module", params=["folder", "tar"])
def bundle(request, model) -> Bundle:
    suffix = ".tar" if request.param == "tar" else ""
    output = model.with_name(f"{request.param}.adrenoc{suffix}")
    command = ["compile", str(model), "--device", "host", "--preset", "fp32", "--no-cache"]
    command += ["--shape", "x:1|4,3,8|12,9", "-o", str(output)]
    succeed(*command)
    return open_bundle(output)


def test_constants_are_written_once(bundle):
    buckets = read_buckets(bundle)
    folders = [f"buckets/{shape}" for shape in ("1x3x8x9", "1x3x12x9", "4x3x8x9")]
    assert [e.folder for e in buckets.buckets] == [*folders, "."]
    assert buckets.batch.refused == ""
    outputs = [(o.name, o.axis, o.factor) for o in buckets.batch.outputs]
    assert outputs == [("y", 0, 1), ("map", 0, 1)]
    assert len([e for e in bundle.manifest.files if e.path.endswith("params.safetensors")]) == 1
    with safe_open(bundle.root / "params.safetensors", "numpy") as file:
        held = set(file.keys())
    used = {spec.name for spec in bundle.manifest.params}
    assert used <= held
    # The two weights of each bucket are packed alike, whatever the shape.
    assert len(held) < 4 * len(used)


@pytest.mark.parametrize("shape", [(1, 3, 8, 9), (1, 3, 12, 9), (2, 3, 8, 9), (3, 3, 12, 9)])
def test_each_size_computes_what_onnxruntime_does(bundle, model, shape):
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    expected = open_session(model).run(["y", "map"], {"x": x})
    outputs = run_bundle(bundle, inputs={"x": x}, repeat=1, warmup=0).outputs
    for name, wanted in zip(("y", "map"), expected, strict=True):
        assert outputs[name].shape == wanted.shape
        np.testing.assert_allclose(outputs[name], wanted, atol=1e-5 * np.abs(wanted).max())


def test_no_bucket_lists_all_of_them(bundle):
    for shape in ((1, 3, 10, 9), (5, 3, 8, 9)):
        with pytest.raises(InputError, match=r"1x3x8x9, 1x3x12x9, 4x3x8x9, 4x3x12x9") as caught:
            run_bundle(bundle, inputs={"x": np.zeros(shape, np.float32)}, repeat=1)
        assert caught.value.hint


def test_command_line(bundle, model, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((2, 3, 12, 9), np.float32))
    command = ["run", str(bundle.path), "--repeat", "1", "--check", str(model), "--json"]
    for extra in (["--input", str(tmp_path / "x.npy")], ["--shape", "x:2,3,12,9"]):
        said = json.loads(succeed(*command, *extra).output)
        assert said["outputs"]["y"]["shape"] == [2, 5]
        assert said["check"]["passed"]
    assert "a smaller one is filled up" in invoke("inspect", bundle.path, catch=True).output


@pytest.fixture(scope="module")
def model_runs(tmp_path_factory) -> Path:
    nodes = (
        "a = Conv <pads = [1, 1, 1, 1]>(x, w) b = Relu(a) c = Conv(b, v) "
        "g = GlobalAveragePool(c) f = Flatten(g) y = Gemm(f, d)"
    )
    weights = {"w": (30, 8, 3, 3), "v": (96, 30, 1, 1), "d": (96, 50)}
    folder = tmp_path_factory.mktemp("editions")
    return _write_open(nodes, ("n", 8, 28, 28), ["y"], folder, **weights)


@pytest.fixture(scope="module")
def bundle_runs(model_runs) -> Bundle:
    """For two GPUs, and for two batches of each."""
    output = model_runs.with_name("set.adrenoc")
    words = ("--device", "host:660,host:750", "--shape", "x:1|2,8,28,28", "--no-cache")
    succeed("compile", model_runs, *words, "-o", output)
    return open_bundle(output)


def _claim(monkeypatch: pytest.MonkeyPatch, gpu: str, **changes) -> None:
    """The device of this computer says that it is that GPU."""
    pick = running.pick_device

    def claim(wanted: str) -> tuple[int, dict[str, Any]]:
        number, facts = pick(wanted)
        version = f"OpenCL 3.0 Adreno(TM) {gpu}" if gpu else facts["version"]
        return number, {**facts, "version": version, **changes}

    monkeypatch.setattr(running, "pick_device", claim)


@pytest.mark.parametrize(
    ("gpu", "taken"),
    [("660", "Adreno 660"), ("750", "Adreno 750"), ("735", "any Adreno"), ("", "any Adreno")],
)
@pytest.mark.parametrize("batch", [1, 2])
def test_each_gpu_runs_its_own(model_runs, bundle_runs, monkeypatch, gpu, taken, batch):
    x = np.random.default_rng(batch).standard_normal((batch, 8, 28, 28)).astype(np.float32)
    _claim(monkeypatch, gpu)
    result = run_bundle(bundle_runs, inputs={"x": x}, repeat=1, warmup=0)
    assert result.edition.taken == taken
    assert result.notes[0].startswith(f"kernels for {taken} run: the driver ")
    (wanted,) = open_session(model_runs).run(None, {"x": x})
    assert np.abs(result.outputs["y"] - wanted).max() < 1e-2 * np.ptp(wanted)


def test_what_does_not_fit_a_device_is_not_taken(bundle_runs, monkeypatch):
    missing = fit.list_missing

    def lack(part: Bundle, facts: dict[str, Any]) -> list[str]:
        is_own = part.manifest.target.name == "host:a660"
        return ["it has no luck"] if is_own else missing(part, facts)

    monkeypatch.setattr(fit, "list_missing", lack)
    _claim(monkeypatch, "660")
    x = np.zeros((1, 8, 28, 28), np.float32)
    result = run_bundle(bundle_runs, inputs={"x": x}, repeat=1, warmup=0)
    assert result.edition.taken == "any Adreno"
    assert "those for Adreno 660 do not fit, since it has no luck" in result.edition.reason


def test_constants_are_stored_once(bundle_runs):
    with safe_open(bundle_runs.root / "params.safetensors", framework="numpy") as file:
        stored = sum(file.get_tensor(name).nbytes for name in file.keys())  # noqa: SIM118
    alone = sum(array.nbytes for array in bundle_runs.params().values())
    assert bundle_runs.moves(), "kernels of these GPUs read their weights in different orders"
    assert stored < 1.2 * alone
    assert not list(bundle_runs.root.glob("devices/**/params.safetensors"))


def test_what_is_moved_is_what_a_bundle_for_one_gpu_holds(model_runs, bundle_runs):
    for edition in read_editions(bundle_runs):
        own = model_runs.with_name(f"{edition.target.replace(':', '_')}.adrenoc")
        words = ("--device", edition.target, "--shape", "x:2,8,28,28", "--no-cache")
        assert invoke("compile", model_runs, *words, "-o", own).exit_code == 0
        one, part = open_bundle(own), open_edition(bundle_runs, edition)
        alone, among = one.params(), part.params()
        for mine, its in zip(one.manifest.params, part.manifest.params, strict=True):
            assert alone[mine.name].tobytes() == among[its.name].tobytes()
        assert {k.name: k.source for k in one.kernels()} == {
            k.name: k.source for k in part.kernels()
        }


def test_a_driver_that_says_so_is_believed(model_runs, bundle_runs, layer):
    with misbehaving(layer, gpu="750"):
        command = [sys.executable, "-m", "adrenoc", "run", str(bundle_runs.path), "--json"]
        words = ["--check", str(model_runs), "--repeat", "1", "--shape", "x:2,8,28,28"]
        done = run_program([*command, *words], check=True)
    told = json.loads(done.stdout)
    assert told["edition"]["taken"] == "Adreno 750"
    assert told["check"]["passed"]


def test_kernels_that_a_driver_refuses_give_way_to_the_common_ones(bundle_runs, monkeypatch):
    execute, tried = running.execute, []

    def refuse_first(place, part: Bundle, *words, **options):
        tried.append(part.manifest.target.name)
        if len(tried) == 1:
            raise RuntimeError("Cannot build kernel conv2d_0: no")
        return execute(place, part, *words, **options)

    monkeypatch.setattr(running, "execute", refuse_first)
    _claim(monkeypatch, "660")
    x = np.zeros((1, 8, 28, 28), np.float32)
    result = run_bundle(bundle_runs, inputs={"x": x}, repeat=1, warmup=0)
    assert tried == ["host:a660", "host"]
    assert result.edition.taken == "any Adreno"
    assert "could not run those: " in result.edition.reason
    assert "Cannot build kernel conv2d_0" in result.edition.reason


@pytest.mark.parametrize(
    ("edition", "said"),
    [
        (None, "devices.json is not JSON"),
        ({}, "0 common editions"),
        ({"folder": "..", "target": "adreno"}, "a folder inside of the bundle"),
        ({"folder": "kernels", "gpu": "750"}, "none of devices/NAME"),
        ({"folder": ".", "gpu": "75"}, "the number of an Adreno"),
    ],
)
def test_a_damaged_list_is_refused(bundle_runs, tmp_path, edition, said):
    whole = {"folder": ".", "target": "a", "gpu": "", "driver": ""}
    plain = {"editions": [{**whole, **edition}] if edition else []}
    (tmp_path / "devices.json").write_text("{" if edition is None else json.dumps(plain))
    with pytest.raises(BundleError) as refused:
        read_editions(replace(bundle_runs, root=tmp_path))
    assert said in refused.value.message
    assert refused.value.hint


STEPS = 12
CHANNELS = 4


def ints(*values: int) -> T:
    return T(dtype="int32", is_constant=True, data=np.array(values, np.int32))


def write_window(
    path: Path, like: T, first: np.ndarray, *, is_read_late: bool = False, has_first: bool = True
) -> Path:
    """Sums of the last four rows: a ring of three is a variable, which begins as `first`."""
    rows, form = first.shape[1], {"dtype": like.dtype, "scales": like.scales, "zeros": like.zeros}
    builder = ModelBuilder()
    main = builder.graph("main")
    builder.graph("init")
    main.op("CALL_ONCE", [], [], "CallOnceOptions", {"initSubgraphIndex": 1})
    held = handle(main, "ring/states")
    x = main.add(T(data=np.zeros((1, 1, CHANNELS), first.dtype), **form), "x")

    def read() -> int:
        [made] = main.op("READ_VARIABLE", [held], [T(shape=first.shape, **form)])
        return made

    shape = (1, rows + 1, CHANNELS)
    [whole] = main.op(
        "CONCATENATION", [read(), x], [T(shape=shape, **form)], "ConcatenationOptions", {"axis": 1}
    )
    begin, size = main.add(ints(0, 1, 0)), main.add(ints(1, rows, CHANNELS))
    [rest] = main.op("SLICE", [whole, begin, size], [T(shape=first.shape, **form)])
    main.op("ASSIGN_VARIABLE", [held, rest], [])
    summed, axis = (read() if is_read_late else whole), main.add(ints(1))
    main.outputs = main.op(
        "MEAN",
        [summed, axis],
        [T(shape=(1, CHANNELS), **form)],
        "ReducerOptions",
        {"keepDims": False},
    )
    init = builder.graphs[1]
    if has_first:
        value = init.add(T(data=first, is_constant=True, **form))
        init.op("ASSIGN_VARIABLE", [handle(init, "ring/states"), value], [])
    path.write_bytes(builder.write())
    return path


DRAW = np.random.default_rng(4)
QUANTA = {"scales": (0.1,), "zeros": (-20,)}
KINDS: dict[str, tuple[T, np.ndarray]] = {
    "floats": (T(), np.zeros((1, 3, CHANNELS), np.float32)),
    "floats from others than zeros": (
        T(),
        DRAW.standard_normal((1, 3, CHANNELS)).astype(np.float32),
    ),
    "quanta of zero": (T(dtype="int8", **QUANTA), np.full((1, 3, CHANNELS), -20, np.int8)),
    "quanta of other numbers": (
        T(dtype="int8", **QUANTA),
        DRAW.integers(-128, 127, (1, 3, CHANNELS)).astype(np.int8),
    ),
}


def compile_host(model: Path, bundle: Path, *words: str) -> Path:
    succeed("compile", model, "--device", "host", "-o", bundle, *words)
    return bundle


@pytest.mark.parametrize("is_read_late", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_variables_go_from_run_to_run(tmp_path, kind, is_read_late):
    like, first = KINDS[kind]
    model = write_window(tmp_path / "m.tflite", like, first, is_read_late=is_read_late)
    bundle = compile_host(model, tmp_path / "m.adrenoc", "--preset", "fp32")
    manifest = open_bundle(bundle).manifest
    assert manifest.states == ("ring/states",)
    assert len(manifest.outputs) == 1
    values = DRAW.integers(-100, 100, (STEPS, 1, 1, CHANNELS)).astype(first.dtype)
    np.save(tmp_path / "x.npy", values)
    words = ["--check", str(model), "--steps", str(STEPS), "--input", f"x={tmp_path / 'x.npy'}"]
    ran = succeed("run", bundle, *words, "--json", "--save", tmp_path / "out.npz")
    assert json.loads(ran.stdout)["check"]["passed"]
    with np.load(tmp_path / "out.npz") as saved:
        ours = saved[manifest.outputs[0].name]
    run = start(model.read_bytes())
    taken, given = run.get_input_details()[0]["index"], run.get_output_details()[0]["index"]
    for x, made in zip(values, ours, strict=True):
        run.set_tensor(taken, x)
        run.invoke()
        wanted = run.get_tensor(given)
        assert np.allclose(made, wanted, atol=1 if first.dtype == np.int8 else 1e-4)
    assert np.ptp(ours.astype(np.float64)) > 10


def test_what_is_computed_of_variables_is_examined(tmp_path):
    """LiteRT tells of no variable, so that what a run leaves in one has nothing beside it."""
    model = write_window(tmp_path / "m.tflite", *KINDS["quanta of other numbers"])
    words = ["check-accuracy", str(model), "--device", "host", "--json"]
    assert "sparse rows, from states of zeros" in succeed(*words).stdout
    bundle = compile_host(model, tmp_path / "m.adrenoc")
    words = ["run", str(bundle), "--check", str(model), "--rounding-floor", "--json"]
    told = json.loads(succeed(*words).stdout)
    assert "rounding_floor" in told
    assert told["check"]["inputs"].startswith("32 steps, from states of zeros on, of four sets")


def test_a_variable_may_be_taken_and_given(tmp_path):
    model = write_window(tmp_path / "m.tflite", *KINDS["floats"])
    bundle = compile_host(model, tmp_path / "m.adrenoc", "--state", "none")
    manifest = open_bundle(bundle).manifest
    assert not manifest.states
    assert [spec.name for spec in manifest.inputs] == ["x", "ring/states"]
    assert manifest.outputs[-1].name == "ring/states/next"


def test_a_variable_without_a_first_value_is_refused(tmp_path):
    model = write_window(tmp_path / "m.tflite", *KINDS["floats"], has_first=False)
    assert "READ_VARIABLE" in refuse(UnsupportedOperatorError, "compile", model)


FIRST = np.arange(1, 9, dtype=np.float32).reshape(2, 4) / 8


@pytest.mark.parametrize("preset", ["fp32", "mixed"])
def test_signatures_share_their_variables(tmp_path, preset):
    """One only reads what another sets: it is a state of both, in one memory."""
    model = write_sharing(tmp_path / "m.tflite", FIRST)
    words = ("--signature", "all", "--preset", preset)
    bundle = compile_host(model, tmp_path / "m.adrenoc", *words)
    opened = open_bundle(bundle)
    held = [open_signature(opened, name).manifest for name in ("add", "peek")]
    assert [one.states for one in held] == [("sum",), ("sum",)]
    assert len({next(s for s in one.inputs if s.name == "sum") for one in held}) == 1
    assert len(held[1].kernels) == 1  # what is only read is not copied
    for name in ("add", "peek"):
        ran = ["run", str(bundle), "--signature", name, "--check", str(model), "--steps", "5"]
        succeed(*ran)
    assert main(["prove", str(bundle), str(model)]) == BundleError.exit_code


def test_a_variable_of_two_shapes_is_refused(tmp_path):
    model = write_sharing(tmp_path / "m.tflite", FIRST, widened=True)
    words = ["compile", str(model), "--device", "host", "--signature", "all"]
    err = refuse(OptionError, *words, "-o", tmp_path / "b")
    assert "the variable sum is [2, 4] of float32 in the signature add, and [1, 1, 2, 4]" in err


def test_a_variable_that_no_handle_names_is_refused(tmp_path, capfd):
    """It comes as an input, as into the body of a loop."""
    builder, form = ModelBuilder(), T(shape=FIRST.shape)
    main_graph, init = builder.graph("main"), builder.graph("init")
    main_graph.op("CALL_ONCE", [], [], "CallOnceOptions", {"initSubgraphIndex": 1})
    given = main_graph.add(T(dtype="resource", shape=(1,)), "given")
    places = (handle(main_graph, "a"), given)
    read = [main_graph.op("READ_VARIABLE", [at], [form])[0] for at in places]
    main_graph.inputs = [given]
    main_graph.outputs = main_graph.op("ADD", read, [form], "AddOptions")
    init.op("ASSIGN_VARIABLE", [handle(init, "a"), init.add(constant(FIRST, "float32"))], [])
    (tmp_path / "m.tflite").write_bytes(builder.write())
    code = main(["compile", str(tmp_path / "m.tflite"), "--device", "host"])
    assert code == UnsupportedOperatorError.exit_code
    assert "'given' holds RESOURCE" in capfd.readouterr().err
