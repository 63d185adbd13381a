"""Repeated runs without Python: recorded, launched anew, in pieces and with pauses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adrenoc.bundle.bundle import Bundle, open_bundle
from adrenoc.cli.main import main
from adrenoc.device.remote import run_remote
from adrenoc.device.run import run_bundle
from adrenoc.native.android.runtime_build import Runtime
from tests.host.decoder_bundles import DecoderShape, make_decoder_bundle, write_decoder
from tests.models import graph, write, write_conv_chain
from tests.runtime.programs import Finished, compile_against
from tests.runtime.servers import address_of, native_server, python_server

Execute = Callable[..., Finished]

SHAPE = (1, 3, 12, 12)
# More than the trial of the ways to launch takes.
RUNS = 9


@pytest.fixture(scope="module")
def gpu_bundle(work) -> Bundle:
    """Two convolutions and two outputs, all on the GPU."""
    rng = np.random.default_rng(5)
    constants = {
        "w": rng.standard_normal((8, 3, 3, 3)).astype("float32"),
        "v": rng.standard_normal((6, 8, 3, 3)).astype("float32"),
    }
    nodes = (
        "a = Conv <pads = [1, 1, 1, 1]>(image, w) b = Relu(a) c = Conv <strides = [2, 2]>(b, v) "
        "d = GlobalAveragePool(c)"
    )
    model = write(graph(nodes, {"image": SHAPE}, ["c", "d"], constants), work, "gpu.onnx")
    output = work / "gpu.adrenoc"
    command = ["compile", str(model), "--device", "host", "--preset", "fp32"]
    assert main([*command, "--output", str(output)]) == 0
    return open_bundle(output)


def _run(
    execute: Execute, runtime: Runtime, bundle: Bundle, opencl: str, folder: Path, *options: str
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What `adrenoc_run` tells, and the outputs of its last run."""
    image = np.random.default_rng(9).standard_normal(SHAPE).astype("float32")
    image.tofile(folder / "image")
    command: list[object] = [runtime.runner, bundle.path, "--opencl", opencl, *options]
    command += ["--input", f"image={folder / 'image'}"]
    for spec in bundle.manifest.outputs:
        command += ["--output", f"{spec.name}={folder / spec.name}"]
    told = execute(*command).json()
    outputs = {
        spec.name: np.fromfile(folder / spec.name, spec.dtype).reshape(spec.shape)
        for spec in bundle.manifest.outputs
    }
    return told, outputs


@pytest.mark.parametrize("options", [(), ("--no-record",)])
def test_the_last_of_many_runs(runtime, gpu_bundle, opencl, execute, tmp_path, options):
    told, outputs = _run(
        execute, runtime, gpu_bundle, opencl, tmp_path, "--repeat", str(RUNS), *options
    )
    assert told["launches"] == len(gpu_bundle.launches())
    assert told["launch_ms"] > 0
    if options:
        assert told["mode"] == "the virtual machine"
        assert told["mode_reason"] == "it was not asked for"
        assert told["api_calls"] >= told["launches"]
    else:
        assert told["mode"] in ("a command buffer", "kept arguments")
        assert told["api_calls"] <= told["launches"] + 1
    image = np.fromfile(tmp_path / "image", "float32").reshape(SHAPE)
    expected = run_bundle(gpu_bundle, inputs={"image": image}, recording="off", repeat=1).outputs
    for name, array in expected.items():
        np.testing.assert_array_equal(outputs[name], array)


def test_a_queue_and_a_profile_of_recorded_runs(runtime, gpu_bundle, opencl, execute, tmp_path):
    times = tmp_path / "times.json"
    options = ("--warmup", str(RUNS), "--queue", "5", "--profile", str(times))
    told, _ = _run(execute, runtime, gpu_bundle, opencl, tmp_path, *options)
    assert told["mode"] in ("a command buffer", "kept arguments")
    assert 0 < told["host_ms"] <= told["queued_ms"]
    launches = json.loads(times.read_text())
    names = [name.removesuffix("_kernel") for name, _, _ in launches]
    assert names == [info.kernel for info in gpu_bundle.launches()]
    assert all(start <= end for _, start, end in launches)


@pytest.mark.parametrize("kind", ["python", "native"])
def test_runs_on_a_server(gpu_bundle, runtime, opencl, kind):
    image = np.random.default_rng(4).standard_normal(SHAPE).astype("float32")
    expected = run_bundle(gpu_bundle, inputs={"image": image}, recording="off", repeat=1).outputs
    with python_server() if kind == "python" else native_server(runtime, opencl) as (_, port):
        result = run_remote(
            gpu_bundle, address_of(port), inputs={"image": image}, recording="always", profile=True
        )
    for name, array in expected.items():
        np.testing.assert_array_equal(result.outputs[name], array)
    assert result.launching.mode in ("a command buffer", "kept arguments")
    assert result.launching.launches == sum(kernel.calls for kernel in result.kernels)
    assert result.launching.api_calls <= result.launching.launches + 1


def test_a_part_on_the_cpu_is_done_between_launches(runtime, bundle, opencl, execute):
    told = execute(runtime.runner, bundle.path, "--opencl", opencl, "--repeat", RUNS).json()
    assert told["mode"] in ("a command buffer", "kept arguments")
    assert told["launches"] > 0


LAYERS = 6


@pytest.fixture(scope="module")
def decoder(device, tmp_path_factory) -> Bundle:
    folder = tmp_path_factory.mktemp("decoder")
    model = write_decoder(folder, DecoderShape(layers=1, context=40))
    return make_decoder_bundle(model, "fp32")[0]


@pytest.fixture(scope="module")
def chain(tmp_path_factory) -> Bundle:
    """Convolutions one after the other, a kernel each."""
    folder = tmp_path_factory.mktemp("chain")
    model = write_conv_chain(folder, LAYERS, channels=8, side=16, shrink=1)
    output = folder / "chain.adrenoc"
    words = ["compile", str(model), "--device", "host", "--preset", "fp32", "-o", str(output)]
    assert main(words) == 0
    return open_bundle(output)


@pytest.mark.nightly
def test_runs_in_pieces_and_pauses(
    runtime, chain, shapes, decoder, opencl, execute, work, tmp_path
):
    """Each launch by itself, two models in pieces, runs and tokens around pauses."""
    program = compile_against(runtime, "pace_program.cc", tmp_path / "pace")
    paths = (chain.path, shapes.path, decoder.path)
    told = execute(program, *paths, opencl, work / "pace-cache").json()
    assert told["submissions"] == told["launches"] >= LAYERS
    assert told["whole"] == 1
    assert told["gap_ms"] > 0
