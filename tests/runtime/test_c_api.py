"""The C API from C and C++: numbers, memory, threads, shapes, signatures, states, wrong calls."""

import hashlib
import json
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from adrenoc.bundle.buckets import BUCKETS_FILE
from adrenoc.bundle.bundle import Bundle, open_bundle
from adrenoc.cli.main import main
from adrenoc.device.run import run_bundle
from adrenoc.native.android.runtime_build import build_runtime
from tests.commands import compile_model
from tests.mcu import networks
from tests.models import write_stepper
from tests.runtime.programs import compile_against, compute, draw, read_printed, replace_file
from tests.tflite.signature_models import call_sharing, write_shared, write_sharing

DRIVER = ("libintelocl.so", "libtbb.so.12", "libOpenCL.so.1")
RUNS = 2000
# The allocator's noise; a leak of one tensor of this network a run would be 3,000.
GROWTH_KIB = 512


@pytest.fixture(scope="module")
def c_program(runtime, work) -> Path:
    return compile_against(runtime, "c_program.c", work / "c_program")


@pytest.fixture(scope="module")
def cache(work) -> Path:
    return work / "cache"


@pytest.mark.parametrize("mode", ["path", "fd", "memory", "pair"])
def test_numbers_equal_python(mode, c_program, bundle, case, opencl, cache, execute, tmp_path):
    path = bundle.path.with_suffix(".tar") if mode in {"fd", "memory"} else bundle.path
    command = [c_program, mode, path, opencl, cache, *case.inputs_of(bundle)]
    assert read_printed(execute, command, tmp_path) == case.bytes_of(bundle)


def test_wrong_calls_are_answered(c_program, bundle, opencl, cache, execute):
    execute(c_program, "errors", bundle.path, opencl, cache, "-")


def test_runs_do_not_grow(c_program, bundle, case, opencl, cache, execute):
    command = [c_program, "repeat", bundle.path, opencl, cache, *case.inputs_of(bundle)]
    # Intel's driver keeps 2 KiB a kernel of each command buffer that it is given.
    assert int(execute(*command, RUNS=str(RUNS), NO_RECORD="1").out) < GROWTH_KIB


def test_the_cpp_wrapper_on_threads(runtime, bundle, case, opencl, cache, execute, work, tmp_path):
    program = compile_against(runtime, "cpp_program.cc", work / "cpp_program")
    command = [program, bundle.path, opencl, cache, *case.inputs_of(bundle)]
    assert read_printed(execute, command, tmp_path) == case.bytes_of(bundle)


@pytest.mark.nightly
def test_threads_of_the_cpp_wrapper_do_not_race(bundle, case, opencl, execute, tmp_path):
    """What the driver does inside of itself is no race of ours; TVM's would be."""
    sanitized = build_runtime(sanitize="thread")
    program = compile_against(sanitized, "cpp_program.cc", tmp_path / "cpp", "-fsanitize=thread")
    (tmp_path / "known").write_text("".join(f"called_from_lib:{name}\n" for name in DRIVER))
    places = [program, bundle.path, opencl, tmp_path / "cache", *case.inputs_of(bundle)]
    words = " ".join(f"'{place}'" for place in places)
    options = f"ignore_noninstrumented_modules=1 suppressions={tmp_path / 'known'}"
    done = execute("sh", "-c", f"exec {words} > /dev/null", TSAN_OPTIONS=options)
    assert "WARNING: ThreadSanitizer" not in done.err, done.err


def test_a_run_that_fails_ends_its_profile(runtime, bundle, case, failing, cache, execute, work):
    program = compile_against(runtime, "failing_launch.c", work / "failing_launch")
    told = execute(program, bundle.path, failing, cache, *case.inputs_of(bundle)).json()
    assert len(told) == len(bundle.launches())


STATE = (1, 16, 256, 256)  # so that a run takes a moment


@pytest.fixture(scope="module")
def stepper(tmp_path_factory) -> Bundle:
    """y = 2 (h / 2 + x), and h becomes h / 2 + x."""
    folder = tmp_path_factory.mktemp("stepper")
    model = write_stepper(folder, STATE)
    return compile_model(model, folder / "step.adrenoc", "--state", "h=hn")


@pytest.mark.nightly
def test_calls_end_soon_and_leave_the_model_right(
    runtime, long_chain, stepper, decoder, opencl, execute, work, tmp_path
):
    """Whole runs, pieces, threads that race, a state, tokens and prompts."""
    program = compile_against(runtime, "cancel_program.cc", tmp_path / "cancel")
    paths = (long_chain.path, stepper.path, decoder.path)
    told = execute(program, *paths, opencl, work / "cancel-cache").json()
    # A piece is a twentieth of a run; the rest is other processes' time.
    assert told["cancelled_ms"] < told["whole_ms"]


@pytest.mark.nightly
def test_code_for_the_cpu_ends_too(runtime, opencl, execute, work, tmp_path):
    model = tmp_path / "wake.tflite"
    model.write_bytes(networks.wake_words(size=96))
    bundle = compile_model(model, tmp_path / "wake.adrenoc", "--fallback", "cpu", preset="")
    program = compile_against(runtime, "cancel_on_cpu.cc", tmp_path / "cancel_on_cpu")
    execute(program, bundle.path, opencl, work / "cancel-cache")


@pytest.fixture(scope="module")
def program(runtime, work) -> Path:
    return compile_against(runtime, "run_with_program.cc", work / "run_with", "-ldl")


def test_numbers_equal_python_and_threads_share_a_model(
    program, bundle, case, opencl, execute, work, tmp_path
):
    command = [program, "numbers", bundle.path, opencl, work / "cache", *case.inputs_of(bundle)]
    assert read_printed(execute, command, tmp_path) == case.bytes_of(bundle)


def test_shapes_of_a_run_choose_nothing(program, shapes, opencl, execute, work):
    execute(program, "shapes", shapes.path, opencl, work / "shapes-cache")


def test_a_deadline_and_a_cancellation_end_one_run(program, long_chain, opencl, execute, work):
    execute(program, "ends", long_chain.path, opencl, work / "cancel-cache")


def test_options_as_text_and_what_the_cpu_cannot_run(program, bundle, opencl, execute, work):
    execute(program, "options", bundle.path, opencl, work / "cache")


@pytest.mark.parametrize("form", ["folder", "tar"])
def test_bundles_are_described_without_a_device(form, program, shapes, phone_bundle, execute, work):
    path = shapes.path if form == "folder" else shapes.path.with_suffix(".tar")
    model = work / "shapes.onnx"
    told, digest = execute(program, "describe", path, model, "-").json()
    assert told["manifest"] == json.loads((shapes.path / "manifest.json").read_text())
    assert told["buckets"] == json.loads((shapes.path / "buckets.json").read_text())
    assert told["devices"] is None
    assert digest == hashlib.sha256(model.read_bytes()).hexdigest()
    assert told["manifest"]["model"]["file_sha256"] == digest
    # Also one for another machine, which cannot be loaded here.
    told, _ = execute(program, "describe", phone_bundle.path, model, "-").json()
    assert told["manifest"]["library"]["machine"] == "aarch64"
    assert told["buckets"] is None


BAD_ARGUMENT = 21


@pytest.mark.parametrize("shape", [(1, 3, 8, 9), (1, 3, 12, 9), (3, 3, 8, 9), (4, 3, 12, 9)])
@pytest.mark.parametrize("form", ["folder", "tar"])
def test_each_shape_gives_the_numbers_of_python(shape, form, runner, shapes, work, tmp_path):
    inputs = draw(sum(shape), x=shape)
    expected = run_bundle(shapes, inputs=inputs, repeat=1, warmup=0).outputs
    path = shapes.path if form == "folder" else shapes.path.with_suffix(".tar")
    words = ("--cache", work / "shapes-cache", "--shape", f"x={'x'.join(map(str, shape))}")
    _, got = compute(partial(runner, path, *words), inputs, expected, tmp_path)
    for name, wanted in expected.items():
        np.testing.assert_array_equal(got[name], wanted)


def test_what_no_bucket_takes(shapes, bundle, runner, work):
    run = partial(runner, expect=BAD_ARGUMENT)
    options = ("--cache", work / "shapes-cache", "--shape")
    for asked in ("1x3x10x9", "5x3x8x9", "0x3x8x9", "3x8x9", "1x3x8x9x1"):
        said = run(shapes.path, *options, f"x={asked}").err
        assert f"no bucket takes {asked}; the bundle has 1x3x8x9, 1x3x12x9, 4x3x8x9" in said
    said = run(bundle.path, *options, "image=1x3x8x8").err
    assert "the bundle has 1x3x12x12_1x6x12x12" in said


def test_the_c_api_tells_and_chooses_shapes(runtime, shapes, opencl, execute, work):
    program = compile_against(runtime, "shapes_program.cc", work / "shapes_program")
    execute(program, shapes.path, opencl, work / "shapes-cache")


BAD_SIGNATURE, BAD_BUNDLE = 21, 23


@pytest.fixture(scope="module")
def signatures(work) -> Bundle:
    model, output = write_shared(work / "signatures.tflite"), work / "signatures.adrenoc"
    compile_model(model, output, "--signature", "all")
    assert main(["prove", str(output), str(model)]) == 0
    return open_bundle(output)


def test_the_c_api_tells_and_chooses_signatures(runtime, signatures, opencl, execute, work):
    program = compile_against(runtime, "signatures_program.cc", work / "signatures_program")
    execute(program, signatures.path, opencl, work / "signatures-cache")


@pytest.mark.parametrize("budget", [0, 1])
def test_signatures_share_states(budget, runtime, opencl, execute, work, tmp_path):
    """Also where another model takes the memory in between: then states of all wait on the host."""
    first = np.arange(1, 9, dtype=np.float32).reshape(2, 4) / 8
    model, output = write_sharing(tmp_path / "m.tflite", first), tmp_path / "m.adrenoc"
    compile_model(model, output, "--signature", "all")
    calls = [("peek", 2), ("add", 3), ("peek", 5), ("peek", 1), ("add", 7), ("peek", 1)]
    wanted = call_sharing(model, [(n, np.full((2, 4), x, np.float32)) for n, x in calls])
    program = work / "shared_states_program"
    if not program.exists():
        compile_against(runtime, "shared_states_program.cc", program)
    said = [part for call in calls for part in call]
    words = [output, opencl, work / "states-cache", budget, *said]
    made = execute(program, *words).out.splitlines()
    np.testing.assert_allclose(np.loadtxt(made), [one.ravel() for one in wanted], rtol=1e-6)


def test_java_tells_and_chooses_signatures(jvm, signatures, opencl):
    jvm.run("Signatures", opencl, signatures.path)


@pytest.mark.parametrize("name", ["wide", "tall"])
def test_the_runner_takes_a_name(name, runner, signatures, work, tmp_path):
    expected = tmp_path / "expected.npz"
    words = ["run", str(signatures.path), "--signature", name, "--repeat", "1", "--seed", "3"]
    x = np.random.default_rng(0).standard_normal((3 if name == "wide" else 1, 64), np.float32)
    np.save(tmp_path / "x.npy", x)
    assert main([*words, "--input", str(tmp_path / "x.npy"), "--save", str(expected)]) == 0
    wanted = {f"{name}_y0": np.load(expected)[f"{name}_y0"]}
    options = ("--signature", name, "--cache", work / "signatures-cache")
    run = partial(runner, signatures.path, *options)
    _, made = compute(run, {f"{name}_x:0": x}, wanted, tmp_path)
    np.testing.assert_array_equal(made[f"{name}_y0"], wanted[f"{name}_y0"])


def test_the_runner_names_what_there_is(signatures, bundle, runner):
    said = runner(signatures.path, "--signature", "tal", expect=BAD_SIGNATURE).err
    assert "no signature is called tal; the bundle has wide, tall" in said
    said = runner(bundle.path, "--signature", "tal", expect=BAD_SIGNATURE).err
    assert "the bundle holds one call, and no signatures to choose from" in said


@pytest.mark.parametrize(
    ("at", "name", "said"),
    [(0, "wide", "has not one name for each signature"), (1, "", "has not one name for each")],
)
def test_names_that_are_damaged(at, name, said, signatures, runner, tmp_path):
    place = Path(shutil.copytree(signatures.path, tmp_path / "m.adrenoc"))
    plain = json.loads((place / BUCKETS_FILE).read_text())
    plain["buckets"][at]["signature"] = name
    replace_file(place, BUCKETS_FILE, json.dumps(plain).encode())
    assert said in runner(place, "--trust-files", expect=BAD_BUNDLE).err


SHAPE = (1, 1, 8)


def test_a_state_goes_on(runtime, opencl, execute, tmp_path):
    model = write_stepper(tmp_path, SHAPE)
    bundle = compile_model(model, tmp_path / "step.adrenoc", "--state", "h=hn")
    program = compile_against(runtime, "states_program.cc", tmp_path / "states")
    execute(program, bundle.path, opencl, tmp_path / "cache")
