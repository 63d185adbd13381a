"""A bundle of several signatures in the runtime without Python: each is called by its name."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from adrenoc.bundle.buckets import BUCKETS_FILE
from adrenoc.bundle.bundle import Bundle, open_bundle
from adrenoc.cli.main import main
from tests.runtime.programs import Finished, compile_against
from tests.tflite.signature_models import call_sharing, write_shared, write_sharing

Execute = Callable[..., Finished]

BAD_ARGUMENT, BAD_BUNDLE = 21, 23


@pytest.fixture(scope="module")
def signatures(work: Path) -> Bundle:
    model, output = write_shared(work / "signatures.tflite"), work / "signatures.adrenoc"
    words = ["compile", str(model), "--device", "host", "--preset", "fp32", "--signature", "all"]
    assert main([*words, "-o", str(output)]) == 0
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
    words = ["compile", str(model), "--device", "host", "--preset", "fp32", "--signature", "all"]
    assert main([*words, "-o", str(output)]) == 0
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
def test_the_runner_takes_a_name(name, runtime, signatures, opencl, execute, work, tmp_path):
    expected = tmp_path / "expected.npz"
    words = ["run", str(signatures.path), "--signature", name, "--repeat", "1", "--seed", "3"]
    x = np.random.default_rng(0).standard_normal((3 if name == "wide" else 1, 64), np.float32)
    np.save(tmp_path / "x.npy", x)
    x.tofile(tmp_path / "x.raw")
    assert main([*words, "--input", str(tmp_path / "x.npy"), "--save", str(expected)]) == 0
    command = (runtime.runner, signatures.path, "--opencl", opencl, "--signature", name)
    files = (
        "--input",
        f"{name}_x:0={tmp_path / 'x.raw'}",
        "--output",
        f"{name}_y0={tmp_path / 'y'}",
    )
    execute(*command, "--cache", work / "signatures-cache", *files)
    made = np.fromfile(tmp_path / "y", np.float32)
    np.testing.assert_array_equal(made, np.load(expected)[f"{name}_y0"].ravel())


def test_the_runner_names_what_there_is(runtime, signatures, bundle, opencl, execute):
    words = ("--opencl", opencl, "--signature", "tal")
    said = execute(runtime.runner, signatures.path, *words, expect=BAD_ARGUMENT).err
    assert "no signature is called tal; the bundle has wide, tall" in said
    said = execute(runtime.runner, bundle.path, *words, expect=BAD_ARGUMENT).err
    assert "the bundle holds one call, and no signatures to choose from" in said


@pytest.mark.parametrize(
    ("at", "name", "said"),
    [(0, "wide", "has not one name for each signature"), (1, "", "has not one name for each")],
)
def test_names_that_are_damaged(at, name, said, runtime, signatures, opencl, execute, tmp_path):
    place = tmp_path / "m.adrenoc"
    shutil.copytree(signatures.path, place)
    plain = json.loads((place / BUCKETS_FILE).read_text())
    plain["buckets"][at]["signature"] = name
    (place / BUCKETS_FILE).write_text(json.dumps(plain))
    words = (runtime.runner, place, "--opencl", opencl, "--trust-files")
    found = json.loads((place / "manifest.json").read_text())
    for entry in found["files"]:
        if entry["path"] == BUCKETS_FILE:
            entry["bytes"] = (place / BUCKETS_FILE).stat().st_size
    (place / "manifest.json").write_text(json.dumps(found))
    assert said in execute(*words, expect=BAD_BUNDLE).err
