"""The runtime on arm64: cross-compiled for Linux and executed under qemu, with a bundle's CPU part.

There is no OpenCL in this small world, so the bundle holds CPU code alone; a bundle with kernels
must be refused by a sentence, or computes by the code for the CPU that a phone's bundle carries.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

from adrenoc.base.decision import DecisionLog
from adrenoc.base.errors import DependencyError
from adrenoc.bundle.bundle import LIBRARY, fill_bundle
from adrenoc.bundle.manifest import (
    MemoryPlan,
    ModelInfo,
    OptionsInfo,
    ParamSpec,
    Statistics,
    TargetInfo,
    TensorSpec,
)
from adrenoc.bundle.tar import write_tar
from adrenoc.cli.main import main
from adrenoc.native.android.elf import read_elf
from adrenoc.native.android.link import find_linker, link_library
from adrenoc.native.android.runtime_build import RUNNER, SERVER, Runtime, build_runtime
from tests.commands import run_program, skip_where_lacking
from tests.mcu import networks
from tests.mcu.judge import judge
from tests.patience import WAIT_S
from tests.runtime.programs import Finished, compile_with_archive, compute

pytestmark = pytest.mark.nightly

TRIPLE = "aarch64-linux-gnu"
ROOT = Path("/usr/aarch64-linux-gnu")
EMULATOR = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64") or ""
# The emulator's default CPU has instructions that it emulates wrongly.
CPU = "cortex-a72"
NO_DEVICE = 24
SHAPE = (1, 6, 10, 10)
RNG = np.random.default_rng(11)
IMAGE = RNG.standard_normal((1, 3, 12, 12)).astype("float32")
WEIGHT = RNG.standard_normal((6, 3, 3, 3)).astype("float32")


class Compiled:
    """relu(conv2d(image, p0)), for the CPU."""

    params = {"p0": WEIGHT}  # noqa: RUF012
    param_specs = (ParamSpec(name="p0", shape=WEIGHT.shape, dtype="float32"),)
    inputs = (TensorSpec(name="image", shape=IMAGE.shape, dtype="float32"),)
    outputs = (TensorSpec(name="scores", shape=SHAPE, dtype="float32"),)
    states = ()
    kernels = ()
    memory = MemoryPlan()
    statistics = Statistics()
    regions = ()
    launches = ()
    decisions = DecisionLog()


def _module():
    builder = relax.BlockBuilder()
    image = relax.Var("image", relax.TensorType(IMAGE.shape, "float32"))
    weight = relax.Var("p0", relax.TensorType(WEIGHT.shape, "float32"))
    with builder.function("main", [image, weight]):
        with builder.dataflow():
            y = builder.emit_output(relax.op.nn.relu(relax.op.nn.conv2d(image, weight)))
        builder.emit_func_output(y)
    return builder.get()


def _write_bundle(folder: Path, triple: str) -> Path:
    folder.mkdir()
    with skip_where_lacking():
        linker = find_linker(host=False)
    library = relax.build(_module(), tvm.target.Target({"kind": "llvm", "mtriple": triple}))
    facts = link_library(library, folder / LIBRARY, triple=triple, linker=linker)
    manifest = {
        "name": "cpu",
        "model": ModelInfo(file="cpu.onnx", format="onnx", sha256="0"),
        "target": TargetInfo(name="cpu", host=True, llvm_triple=triple, digest="0"),
        "options": OptionsInfo(preset="fp32", values={}, digest="0"),
        "versions": {},
    }
    fill_bundle(folder, Compiled(), library=facts, manifest=manifest)
    return folder


@pytest.fixture(scope="module")
def arm64() -> Runtime:
    if not EMULATOR:
        pytest.skip("no qemu for arm64: apt-get install qemu-user")
    with skip_where_lacking():
        return build_runtime(abi="aarch64-linux")


@pytest.fixture(scope="module")
def emulate() -> Callable[..., Finished]:
    def run(*command: object, expect: int = 0, cpu: str = CPU) -> Finished:
        done = run_program(
            [EMULATOR, "-L", str(ROOT), *(str(part) for part in command)],
            timeout=WAIT_S,
            env={**os.environ, "QEMU_CPU": cpu},
        )
        assert done.returncode == expect, done.stderr + done.stdout
        return Finished(code=done.returncode, out=done.stdout, err=done.stderr)

    return run


@pytest.fixture(scope="module")
def image(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("arm64") / "image.raw"
    path.write_bytes(IMAGE.tobytes())
    return path


def test_the_library_is_for_arm64(arm64):
    facts = read_elf(arm64.library)
    assert facts.machine == "aarch64"
    assert facts.soname == arm64.library.name
    assert facts.page_bytes >= 16384
    assert not facts.text_relocations
    for name in (RUNNER, SERVER):
        assert read_elf(arm64.folder / name).run_path == "$ORIGIN"


def test_the_version_is_the_same_program(arm64, emulate):
    assert emulate(arm64.runner, "--version").out.strip() == arm64.stamp


@pytest.mark.parametrize("form", ["folder", "tar"])
def test_numbers_equal_this_machine(form, arm64, runtime, emulate, execute, tmp_path):
    bundle = _write_bundle(tmp_path / "arm64.adrenoc", TRIPLE)
    if form == "tar":
        write_tar(bundle, tmp_path / "arm64.tar", name="cpu")
        bundle = tmp_path / "arm64.tar"
    given = {"image": IMAGE}, {"scores": np.empty(SHAPE, "float32")}, tmp_path
    run = partial(emulate, arm64.runner, bundle, "--device", "cpu")
    told, there = compute(run, *given)
    assert told["device"] == "cpu"
    assert told["runtime"] == arm64.stamp
    own = _write_bundle(tmp_path / "own.adrenoc", "x86_64-linux-gnu")
    _, here = compute(partial(execute, runtime.runner, own, "--device", "cpu"), *given)
    np.testing.assert_allclose(there["scores"], here["scores"], atol=1e-5)
    assert np.abs(there["scores"]).max() > 1


@pytest.fixture(scope="module")
def held(arm64) -> Runtime:
    """The archive, of the same objects, and programs that hold it."""
    return build_runtime(abi="aarch64-linux", static=True)


def test_programs_that_hold_the_runtime_end_well(held, emulate, image, tmp_path):
    """Ours and one of an app: they give the numbers, and then end without a signal."""
    bundle = _write_bundle(tmp_path / "arm64.adrenoc", TRIPLE)
    made = tmp_path / "scores.raw"
    options = ("--device", "cpu", "--input", f"image={image}", "--output", f"scores={made}")
    assert emulate(held.runner, bundle, *options).json()["device"] == "cpu"
    assert np.abs(np.fromfile(made, "float32")).max() > 1
    own = compile_with_archive(
        held.folder, "wrapper_program.cc", tmp_path / "own", compiler=f"{TRIPLE}-g++"
    )
    command = [EMULATOR, "-L", ROOT, own, bundle, "cpu", "", image]
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        check=False,
        timeout=WAIT_S,
        env={**os.environ, "QEMU_CPU": CPU},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == made.read_bytes()


def test_without_opencl_it_says_so(arm64, emulate, tmp_path):
    bundle = _write_bundle(tmp_path / "arm64.adrenoc", TRIPLE)
    said = emulate(arm64.runner, bundle, expect=NO_DEVICE).err
    assert said.startswith(
        "adrenoc_run: no device: No usable OpenCL library. Tried: libOpenCL.so.1"
    )
    # All that was tried, in one line: what passes it on may keep the first alone.
    assert said.count("\n") == 1
    assert "; libOpenCL.so: " in said


@pytest.fixture(scope="module")
def carrying(tmp_path_factory) -> tuple[bytes, Path]:
    """An int8 model, and its bundle for phones with code for their CPU."""
    folder = tmp_path_factory.mktemp("carrying")
    content, model, out = networks.wake_words(size=32), folder / "m.tflite", folder / "m.adrenoc"
    model.write_bytes(content)
    code = main(["compile", str(model), "--fallback", "cpu", "-o", str(out)])
    if code == DependencyError.exit_code:
        pytest.skip("no compiler or linker for a phone's CPU: pip install '.[link]'")
    assert code == 0
    return content, out


# The second has SDOT.
@pytest.mark.parametrize("cpu", ["cortex-a72", "neoverse-n1"])
def test_a_phones_bundle_computes_on_its_cpu(cpu, carrying, arm64, emulate, tmp_path):
    """Every byte is LiteRT's, through the C API, and the reason is told."""
    content, bundle = carrying
    inputs, wanted = judge(content, 4)
    told, made = compute(partial(emulate, arm64.runner, bundle, cpu=cpu), inputs, wanted, tmp_path)
    assert told["device"] == "CPU"
    assert any("No usable OpenCL library" in note for note in told["notes"])
    for name, array in wanted.items():
        assert (made[name] == array).all()
