"""Repeated runs without Python: recorded, launched anew, in pieces and with pauses."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from adrenoc.bundle.bundle import Bundle
from adrenoc.device.remote import run_remote
from adrenoc.device.run import run_bundle
from tests.commands import compile_model
from tests.models import graph, write, write_conv_chain
from tests.runtime.programs import compile_against, compute, draw
from tests.runtime.servers import address_of

SHAPE = (1, 3, 12, 12)
# More than the trial of the ways to launch takes.
RUNS = 9


@pytest.fixture(scope="module")
def gpu_bundle(work) -> Bundle:
    """Two convolutions and two outputs, all on the GPU."""
    nodes = (
        "a = Conv <pads = [1, 1, 1, 1]>(image, w) b = Relu(a) c = Conv <strides = [2, 2]>(b, v) "
        "d = GlobalAveragePool(c)"
    )
    constants = draw(5, w=(8, 3, 3, 3), v=(6, 8, 3, 3))
    model = write(graph(nodes, {"image": SHAPE}, ["c", "d"], constants), work, "gpu.onnx")
    return compile_model(model, work / "gpu.adrenoc")


@pytest.fixture
def told(gpu_bundle, runner, tmp_path) -> Callable[..., dict[str, Any]]:
    """What `adrenoc_run` tells; the outputs of its last run are those of Python."""

    def run(*options: object) -> dict[str, Any]:
        inputs = draw(9, image=SHAPE)
        expected = run_bundle(gpu_bundle, inputs=inputs, recording="off", repeat=1).outputs
        command = partial(runner, gpu_bundle.path, *options)
        said, outputs = compute(command, inputs, expected, tmp_path)
        for name, array in expected.items():
            np.testing.assert_array_equal(outputs[name], array)
        return said

    return run


@pytest.mark.parametrize("options", [(), ("--no-record",)])
def test_the_last_of_many_runs(gpu_bundle, told, options):
    told = told("--repeat", RUNS, *options)
    assert told["launches"] == len(gpu_bundle.launches())
    assert told["launch_ms"] > 0
    if options:
        assert told["mode"] == "the virtual machine"
        assert told["mode_reason"] == "it was not asked for"
        assert told["api_calls"] >= told["launches"]
    else:
        assert told["mode"] in ("a command buffer", "kept arguments")
        assert told["api_calls"] <= told["launches"] + 1


def test_a_queue_and_a_profile_of_recorded_runs(gpu_bundle, told, tmp_path):
    times = tmp_path / "times.json"
    told = told("--warmup", RUNS, "--queue", 5, "--profile", times)
    assert told["mode"] in ("a command buffer", "kept arguments")
    assert 0 < told["host_ms"] <= told["queued_ms"]
    launches = json.loads(times.read_text())
    names = [name.removesuffix("_kernel") for name, _, _ in launches]
    assert names == [info.kernel for info in gpu_bundle.launches()]
    assert all(start <= end for _, start, end in launches)


@pytest.mark.parametrize("kind", ["python", "native"])
def test_runs_on_a_server(gpu_bundle, serve, kind):
    inputs = draw(4, image=SHAPE)
    expected = run_bundle(gpu_bundle, inputs=inputs, recording="off", repeat=1).outputs
    with serve(kind) as (_, port):
        result = run_remote(
            gpu_bundle, address_of(port), inputs=inputs, recording="always", profile=True
        )
    for name, array in expected.items():
        np.testing.assert_array_equal(result.outputs[name], array)
    assert result.launching.mode in ("a command buffer", "kept arguments")
    assert result.launching.launches == sum(kernel.calls for kernel in result.kernels)
    assert result.launching.api_calls <= result.launching.launches + 1


def test_a_part_on_the_cpu_is_done_between_launches(bundle, runner):
    told = runner(bundle.path, "--repeat", RUNS).json()
    assert told["mode"] in ("a command buffer", "kept arguments")
    assert told["launches"] > 0


LAYERS = 6


@pytest.fixture(scope="module")
def chain(tmp_path_factory) -> Bundle:
    """Convolutions one after the other, a kernel each."""
    folder = tmp_path_factory.mktemp("chain")
    model = write_conv_chain(folder, LAYERS, channels=8, side=16, shrink=1)
    return compile_model(model, folder / "chain.adrenoc")


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
