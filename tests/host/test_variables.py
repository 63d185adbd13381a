"""Variables that a TFLite file keeps from run to run are states, beside LiteRT over many runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from adrenoc.base.errors import UnsupportedOperatorError
from adrenoc.bundle.bundle import open_bundle
from adrenoc.cli.main import cli, main
from tests.tflite.build import GraphBuilder, ModelBuilder, T, start

STEPS = 12
CHANNELS = 4


def ints(*values: int) -> T:
    return T(dtype="int32", is_constant=True, data=np.array(values, np.int32))


def handle(graph: GraphBuilder, name: str) -> int:
    options = {"sharedName": name, "container": ""}
    [made] = graph.op("VAR_HANDLE", [], [T(dtype="resource")], "VarHandleOptions", options)
    return made


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
    said = ["compile", str(model), "--device", "host", "-o", str(bundle), *words]
    result = CliRunner().invoke(cli, said, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return bundle


@pytest.mark.parametrize("is_read_late", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_variables_go_from_run_to_run(tmp_path: Path, kind: str, is_read_late: bool) -> None:
    like, first = KINDS[kind]
    model = write_window(tmp_path / "m.tflite", like, first, is_read_late=is_read_late)
    bundle = compile_host(model, tmp_path / "m.adrenoc", "--preset", "fp32")
    manifest = open_bundle(bundle).manifest
    assert manifest.states == ("ring/states",)
    assert len(manifest.outputs) == 1
    values = DRAW.integers(-100, 100, (STEPS, 1, 1, CHANNELS)).astype(first.dtype)
    np.save(tmp_path / "x.npy", values)
    words = ["--check", str(model), "--steps", str(STEPS), "--input", f"x={tmp_path / 'x.npy'}"]
    ran = CliRunner().invoke(
        cli,
        ["run", str(bundle), *words, "--json", "--save", str(tmp_path / "out.npz")],
        catch_exceptions=False,
    )
    assert ran.exit_code == 0, ran.output
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


def test_what_is_computed_of_variables_is_examined(tmp_path: Path) -> None:
    """LiteRT tells of no variable, so that what a run leaves in one has nothing beside it."""
    model = write_window(tmp_path / "m.tflite", *KINDS["quanta of other numbers"])
    words = ["check-accuracy", str(model), "--device", "host", "--json"]
    examined = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert examined.exit_code == 0, examined.output
    assert "sparse rows, from states of zeros" in examined.stdout
    bundle = compile_host(model, tmp_path / "m.adrenoc")
    words = ["run", str(bundle), "--check", str(model), "--rounding-floor", "--json"]
    ran = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    told = json.loads(ran.stdout)
    assert "rounding_floor" in told
    assert told["check"]["inputs"].startswith("32 steps, from states of zeros on, of four sets")


def test_a_variable_may_be_taken_and_given(tmp_path: Path) -> None:
    model = write_window(tmp_path / "m.tflite", *KINDS["floats"])
    bundle = compile_host(model, tmp_path / "m.adrenoc", "--state", "none")
    manifest = open_bundle(bundle).manifest
    assert not manifest.states
    assert [spec.name for spec in manifest.inputs] == ["x", "ring/states"]
    assert manifest.outputs[-1].name == "ring/states/next"


def test_a_variable_without_a_first_value_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = write_window(tmp_path / "m.tflite", *KINDS["floats"], has_first=False)
    assert main(["compile", str(model)]) == UnsupportedOperatorError.exit_code
    assert "READ_VARIABLE" in capfd.readouterr().err
