"""Variables that a TFLite file keeps from run to run are states, beside LiteRT over many runs."""

import json
from pathlib import Path

import numpy as np
import pytest

from adrenoc.base.errors import BundleError, OptionError, UnsupportedOperatorError
from adrenoc.bundle.buckets import open_signature
from adrenoc.bundle.bundle import open_bundle
from adrenoc.cli.main import main
from tests.commands import succeed
from tests.tflite.build import ModelBuilder, T, start
from tests.tflite.signature_models import handle, write_sharing

pytestmark = pytest.mark.usefixtures("device")

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


def test_a_variable_without_a_first_value_is_refused(tmp_path, capfd):
    model = write_window(tmp_path / "m.tflite", *KINDS["floats"], has_first=False)
    assert main(["compile", str(model)]) == UnsupportedOperatorError.exit_code
    assert "READ_VARIABLE" in capfd.readouterr().err


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


def test_a_variable_of_two_shapes_is_refused(tmp_path, capfd):
    model = write_sharing(tmp_path / "m.tflite", FIRST, widened=True)
    words = ["compile", str(model), "--device", "host", "--signature", "all"]
    assert main([*words, "-o", str(tmp_path / "b")]) == OptionError.exit_code
    err = " ".join(capfd.readouterr().err.split())
    assert "the variable sum is [2, 4] of float32 in the signature add, and [1, 1, 2, 4]" in err


def test_a_variable_that_no_handle_names_is_refused(tmp_path, capfd):
    """It comes as an input, as into the body of a loop."""
    builder, form = ModelBuilder(), T(shape=FIRST.shape)
    main_graph, init = builder.graph("main"), builder.graph("init")
    main_graph.op("CALL_ONCE", [], [], "CallOnceOptions", {"initSubgraphIndex": 1})
    given = main_graph.add(T(dtype="resource", shape=(1,)), "given")
    read = [
        main_graph.op("READ_VARIABLE", [at], [form])[0] for at in (handle(main_graph, "a"), given)
    ]
    main_graph.inputs = [given]
    main_graph.outputs = main_graph.op("ADD", read, [form], "AddOptions")
    value = init.add(T(data=FIRST, is_constant=True))
    init.op("ASSIGN_VARIABLE", [handle(init, "a"), value], [])
    (tmp_path / "m.tflite").write_bytes(builder.write())
    code = main(["compile", str(tmp_path / "m.tflite"), "--device", "host"])
    assert code == UnsupportedOperatorError.exit_code
    assert "'given' holds RESOURCE" in capfd.readouterr().err
