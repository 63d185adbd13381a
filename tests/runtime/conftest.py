"""What the tests of the runtime without Python share: one build of it, a bundle, a device.

The build takes some minutes once; the cache folder keeps it for as long as no source changes.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from adrenoc.base.errors import DependencyError
from adrenoc.bundle.bundle import Bundle, open_bundle
from adrenoc.cli.main import main
from adrenoc.device.run import run_bundle
from adrenoc.native.android.runtime_build import Runtime, build_runtime
from tests.commands import run_program
from tests.models import graph, write, write_conv_chain
from tests.opencl.implementation import LAYERS, plain_environment
from tests.patience import WAIT_S
from tests.runtime.jvm import Jvm, make_jvm
from tests.runtime.phones import phone_runtime
from tests.runtime.programs import HERE, Case, Finished
from tests.runtime.servers import SOFTWARE_ENVIRONMENT

_SHAPE = (1, 3, 12, 12)


@pytest.fixture(scope="session")
def runtime() -> Runtime:
    """The runtime for this machine."""
    try:
        return build_runtime()
    except DependencyError as error:
        pytest.skip(f"{error.message} ({error.hint})")


@pytest.fixture(scope="session")
def archive(runtime, work) -> Path:
    """The runtime as an archive, of the same objects, as the command builds and copies it."""
    folder = work / "static"
    assert main(["runtime", "build", "--static", "-o", str(folder)]) == 0
    return folder


@pytest.fixture(scope="session")
def opencl() -> str:
    """The OpenCL library of the software device."""
    library = Path(sys.prefix) / "lib" / "libOpenCL.so.1"
    if not library.is_file():
        pytest.skip("no software OpenCL device: pip install '.[opencl]'")
    return str(library)


@pytest.fixture(scope="session")
def stub(tmp_path_factory) -> Path:
    """The counting OpenCL library."""
    library = tmp_path_factory.mktemp("stub") / "libstub_opencl.so"
    sources = sorted((HERE.parent / "native").glob("stub_*.c"))
    compiler = shutil.which("cc") or "gcc"
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), *map(str, sources)]
    subprocess.run(command, check=True)
    return library


@pytest.fixture(scope="session", autouse=True)
def _plain_processes(work) -> None:
    """Have processes that tests start leave kernels as they are: each runs a few times."""
    SOFTWARE_ENVIRONMENT.update(plain_environment(work))


@pytest.fixture(scope="session")
def execute() -> Callable[..., Finished]:
    """Run a program with the software device's libraries in reach."""
    plain = SOFTWARE_ENVIRONMENT.get(LAYERS)

    def run(*command: object, expect: int | None = 0, **extra: str) -> Finished:
        given = {**SOFTWARE_ENVIRONMENT, **extra}
        if LAYERS in extra:  # on top of the one that all have
            given[LAYERS] = os.pathsep.join(filter(None, [extra[LAYERS], plain]))
        done = run_program(command, timeout=WAIT_S, env={**os.environ, **given})
        assert expect is None or done.returncode == expect, done.stderr + done.stdout
        return Finished(code=done.returncode, out=done.stdout, err=done.stderr)

    return run


@pytest.fixture(scope="session")
def work(tmp_path_factory) -> Path:
    """A folder for the whole session."""
    return tmp_path_factory.mktemp("runtime")


@pytest.fixture(scope="session")
def bundle(work) -> Bundle:
    """A small network with a part for the CPU, two inputs, two outputs; for this machine."""
    rng = np.random.default_rng(3)
    constants = {
        "w": rng.standard_normal((6, 3, 3, 3)).astype("float32"),
        "b": rng.standard_normal(6).astype("float32"),
    }
    nodes = (
        "c = Conv <pads = [1, 1, 1, 1]>(image, w, b) r = Relu(c) sum = Add(r, bias) "
        "mean = GlobalAveragePool(sum) wide = Cast <to = 11>(mean) grown = Exp(wide)"
    )
    inputs = {"image": _SHAPE, "bias": (1, 6, 12, 12)}
    model = write(graph(nodes, inputs, ["sum", "grown"], constants), work, "two.onnx")
    output = work / "two.adrenoc"
    command = ["compile", str(model), "--device", "host", "--preset", "fp32"]
    assert main([*command, "--output", str(output)]) == 0
    assert main([*command, "--output", str(output.with_suffix(".tar"))]) == 0
    return open_bundle(output)


@pytest.fixture(scope="session")
def android(tmp_path_factory, runtime) -> Runtime:
    """What a runtime for phones looks like."""
    pytest.importorskip("ziglang")
    return phone_runtime(tmp_path_factory.mktemp("android"), runtime)


@pytest.fixture(scope="session")
def phone_bundle(bundle, work) -> Bundle:
    """The bundle of the tests for a phone."""
    output = work / "phone.adrenoc"
    assert main(["compile", str(work / "two.onnx"), "-o", str(output), "--preset", "fp32"]) == 0
    return open_bundle(output)


@pytest.fixture(scope="session")
def shapes(work) -> Bundle:
    """Convolution, pooling and a dense layer with a batch of 1 or 4 and two heights.

    One output has its batch at axis 1: what is filled up there lies in many places.
    """
    rng = np.random.default_rng(5)
    constants = {
        "w": rng.standard_normal((6, 3, 3, 3)).astype("float32"),
        "d": rng.standard_normal((6, 5)).astype("float32"),
    }
    nodes = (
        "c = Conv <pads = [1, 1, 1, 1], strides = [2, 2]>(x, w) map = Relu(c) "
        "g = GlobalAveragePool(map) f = Flatten(g) y = MatMul(f, d) "
        "turned = Transpose <perm = [1, 0]>(y)"
    )
    model = write(
        graph(nodes, {"x": ("n", 3, "h", 9)}, ["map", "turned"], constants), work, "shapes.onnx"
    )
    output = work / "shapes.adrenoc"
    command = ["compile", str(model), "--device", "host", "--preset", "fp32"]
    command += ["--shape", "x:1|4,3,8|12,9"]
    assert main([*command, "-o", str(output)]) == 0
    assert main([*command, "-o", str(output.with_suffix(".tar"))]) == 0
    return open_bundle(output)


@pytest.fixture(scope="session")
def long_chain(work) -> Bundle:
    """Convolutions that take a while, a kernel each."""
    model = write_conv_chain(work, 24, channels=32, side=20, shrink=17)
    output = work / "long.adrenoc"
    command = ["compile", str(model), "--device", "host", "--preset", "fp32", "-o", str(output)]
    assert main(command) == 0
    return open_bundle(output)


@pytest.fixture(scope="session")
def case(bundle, work) -> Case:
    """What the bundle computes in Python, on the same device."""
    rng = np.random.default_rng(7)
    arrays = {
        spec.name: rng.standard_normal(spec.shape).astype(spec.dtype)
        for spec in bundle.manifest.inputs
    }
    files = {name: work / f"{name}.raw" for name in arrays}
    for name, array in arrays.items():
        files[name].write_bytes(array.tobytes())
    return Case(
        arrays=arrays, files=files, outputs=run_bundle(bundle, inputs=arrays, repeat=1).outputs
    )


@pytest.fixture(scope="session")
def jvm(runtime, work, execute) -> Jvm:
    """A JVM with the classes."""
    folder = work / "jvm"
    folder.mkdir()
    try:
        return make_jvm(runtime, folder, execute)
    except DependencyError as error:
        pytest.skip(f"{error.message} ({error.hint})")
