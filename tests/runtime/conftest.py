"""What the tests of the runtime without Python share: one build of it, a bundle, a device.

The build takes some minutes once; the cache folder keeps it for as long as no source changes.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from adrenoc.bundle.bundle import Bundle
from adrenoc.cli.main import main
from adrenoc.device.run import run_bundle
from adrenoc.native.android.runtime_build import Runtime, build_runtime
from tests.commands import compile_model, run_program, skip_where_lacking
from tests.compilers import compile_stub
from tests.host.decoder_bundles import DecoderShape, make_decoder_bundle, write_decoder
from tests.models import graph, write, write_conv_chain
from tests.opencl.implementation import LAYERS, plain_environment
from tests.patience import WAIT_S
from tests.runtime.programs import (
    ROWS,
    Case,
    Finished,
    Jvm,
    compile_opencl,
    draw,
    make_jvm,
    phone_runtime,
)
from tests.runtime.servers import SOFTWARE_ENVIRONMENT, Served, native_server, python_server


@pytest.fixture(scope="session")
def runtime() -> Runtime:
    """The runtime for this machine."""
    with skip_where_lacking():
        return build_runtime()


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
def absent(opencl, work) -> Path:
    """An OpenCL library with no device to use behind it."""
    return compile_opencl("absent_opencl.c", work, opencl)


@pytest.fixture(scope="session")
def failing(opencl, work) -> Path:
    """An OpenCL library that fails on order."""
    return compile_opencl("failing_opencl.c", work, opencl)


@pytest.fixture(scope="session")
def stub(tmp_path_factory) -> Path:
    """The counting OpenCL library."""
    return compile_stub(tmp_path_factory.mktemp("stub"))


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
def runner(runtime, opencl, execute) -> Callable[..., Finished]:
    """Run a bundle by `adrenoc_run` on the software device, or through another library."""

    def run(
        path: Path, *words: object, library: object = opencl, of: Runtime = runtime, **more
    ) -> Finished:
        return execute(of.runner, path, "--opencl", library, *words, **more)

    return run


@pytest.fixture(scope="session")
def serve(runtime, opencl) -> Callable[..., Served]:
    """Start a server of a kind."""

    def start(kind: str, *options: str) -> Served:
        if kind == "python":
            return python_server(*options)
        return native_server(runtime, opencl, *options)

    return start


@pytest.fixture(scope="session")
def work(tmp_path_factory) -> Path:
    """A folder for the whole session."""
    return tmp_path_factory.mktemp("runtime")


@pytest.fixture(scope="session")
def bundle(work) -> Bundle:
    """A small network with a part for the CPU, two inputs, two outputs; for this machine."""
    nodes = (
        "c = Conv <pads = [1, 1, 1, 1]>(image, w, b) r = Relu(c) sum = Add(r, bias) "
        "mean = GlobalAveragePool(sum) wide = Cast <to = 11>(mean) grown = Exp(wide)"
    )
    inputs = {"image": (1, 3, 12, 12), "bias": (1, 6, 12, 12)}
    constants = draw(3, w=(6, 3, 3, 3), b=(6,))
    model = write(graph(nodes, inputs, ["sum", "grown"], constants), work, "two.onnx")
    compile_model(model, work / "two.tar")
    return compile_model(model, work / "two.adrenoc")


@pytest.fixture(scope="session")
def android(tmp_path_factory, runtime) -> Runtime:
    """What a runtime for phones looks like."""
    pytest.importorskip("ziglang")
    return phone_runtime(tmp_path_factory.mktemp("android"), runtime)


@pytest.fixture(scope="session")
def phone_bundle(bundle, work) -> Bundle:
    """The bundle of the tests for a phone."""
    return compile_model(work / "two.onnx", work / "phone.adrenoc", device="adreno")


@pytest.fixture(scope="session")
def shapes(work) -> Bundle:
    """Convolution, pooling and a dense layer with a batch of 1 or 4 and two heights.

    One output has its batch at axis 1: what is filled up there lies in many places.
    """
    nodes = (
        "c = Conv <pads = [1, 1, 1, 1], strides = [2, 2]>(x, w) map = Relu(c) "
        "g = GlobalAveragePool(map) f = Flatten(g) y = MatMul(f, d) "
        "turned = Transpose <perm = [1, 0]>(y)"
    )
    constants = draw(5, w=(6, 3, 3, 3), d=(6, 5))
    made = graph(nodes, {"x": ("n", 3, "h", 9)}, ["map", "turned"], constants)
    model, shape = write(made, work, "shapes.onnx"), ("--shape", "x:1|4,3,8|12,9")
    compile_model(model, work / "shapes.tar", *shape)
    return compile_model(model, work / "shapes.adrenoc", *shape)


@pytest.fixture(scope="session")
def long_chain(work) -> Bundle:
    """Convolutions that take a while, a kernel each."""
    model = write_conv_chain(work, 24, channels=32, side=20, shrink=17)
    return compile_model(model, work / "long.adrenoc")


@pytest.fixture(scope="session")
def decoder(optimising_device, tmp_path_factory) -> Bundle:
    """A decoder of one layer, with room for 40 tokens."""
    model = write_decoder(tmp_path_factory.mktemp("decoder"), DecoderShape(layers=1, context=ROWS))
    return make_decoder_bundle(model, "fp32")[0]


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
    outputs = run_bundle(bundle, inputs=arrays, repeat=1).outputs
    return Case(arrays=arrays, files=files, outputs=outputs)


@pytest.fixture(scope="session")
def jvm(runtime, work, execute) -> Jvm:
    """A JVM with the classes."""
    folder = work / "jvm"
    folder.mkdir()
    with skip_where_lacking():
        return make_jvm(runtime, folder, execute)
