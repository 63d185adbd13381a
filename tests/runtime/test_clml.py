"""Regions of OpenCL ML in the runtime without Python: by the emulator, or by their own kernels."""

import json
from collections.abc import Callable

import numpy as np
import pytest

from adrenoc.bundle.bundle import Bundle, open_bundle
from adrenoc.cli.main import main
from tests.models import graph, write
from tests.runtime.programs import Finished

Execute = Callable[..., Finished]


@pytest.fixture(scope="module")
def offloaded(tmp_path_factory) -> Bundle:
    """Two regions with a kernel of textures between them."""
    rng = np.random.default_rng(3)
    constants = {
        "w": rng.standard_normal((6, 3, 3, 3)).astype("float32"),
        "b": rng.standard_normal(6).astype("float32"),
        "v": rng.standard_normal((4, 6, 1, 1)).astype("float32"),
    }
    nodes = "c = Conv <pads = [1, 1, 1, 1]>(x, w, b) r = Relu(c) e = Erf(r) y = Conv(e, v)"
    folder = tmp_path_factory.mktemp("clml")
    model = write(graph(nodes, {"x": (1, 3, 9, 7)}, ["y"], constants), folder)
    output = folder / "two.adrenoc"
    command = ["compile", str(model), "--device", "host", "--preset", "fp32", "--clml", "all"]
    assert main([*command, "--output", str(output)]) == 0
    return open_bundle(output)


def test_both_variants_agree(runtime, offloaded, opencl, execute, tmp_path):
    assert [len(region.operators) for region in offloaded.manifest.regions] == [1, 1]
    data = np.random.default_rng(5).standard_normal((1, 3, 9, 7)).astype("float32")
    (tmp_path / "x").write_bytes(data.tobytes())
    given = ["--opencl", opencl, "--input", f"x={tmp_path / 'x'}", "--repeat", 2]
    found = {}
    for name, settings in {
        "none": {},
        "emulated": {"ADRENOC_CLML_EMULATOR": "{}"},
        "old": {"ADRENOC_CLML_EMULATOR": json.dumps({"extension": False})},
        "failing": {
            "ADRENOC_CLML_EMULATOR": json.dumps(
                {"failing_call": "clCreateMLTensorQCOM", "failing_code": "CL_INVALID_VALUE"}
            )
        },
    }.items():
        out = tmp_path / name
        done = execute(runtime.runner, offloaded.path, *given, "--output", f"y={out}", **settings)
        found[name] = np.fromfile(out, "float32")
        by_textures = done.err.count("runs by texture kernels")
        # A call fails once: the second region runs by the emulator.
        assert by_textures == {"none": 2, "emulated": 0, "old": 2, "failing": 1}[name]
    assert found["none"].size == 4 * 9 * 7
    for name in ("emulated", "old", "failing"):
        assert np.allclose(found[name], found["none"], atol=1e-5)


def test_a_failing_run_is_an_error(runtime, offloaded, opencl, execute, tmp_path):
    (tmp_path / "x").write_bytes(bytes(4 * 3 * 9 * 7))
    settings = {
        "failing_call": "clEnqueueCopyMLTensorDataQCOM",
        "failing_code": "CL_OUT_OF_RESOURCES",
    }
    done = execute(
        *(runtime.runner, offloaded.path, "--opencl", opencl, "--input", f"x={tmp_path / 'x'}"),
        expect=None,
        ADRENOC_CLML_EMULATOR=json.dumps(settings),
    )
    assert done.code not in (0, -6, -11)
    assert "clEnqueueCopyMLTensorDataQCOM failed with CL_OUT_OF_RESOURCES" in done.err
