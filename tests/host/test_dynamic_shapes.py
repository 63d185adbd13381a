"""One bundle for several shapes: each input runs in the smallest bucket that takes it."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from adrenoc.base.errors import InputError
from adrenoc.bundle.buckets import read_buckets
from adrenoc.bundle.bundle import Bundle, open_bundle
from adrenoc.device.run import run_bundle
from adrenoc.importers.onnx.session import open_session
from tests.commands import invoke, succeed
from tests.models import graph, write

pytestmark = pytest.mark.usefixtures("device")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(0)
    nodes = (
        "a = Conv <pads = [1, 1, 1, 1], strides = [2, 2]>(x, w) map = Relu(a) "
        "g = GlobalAveragePool(map) f = Flatten(g) y = Gemm(f, d)"
    )
    constants = {
        "w": random.standard_normal((6, 3, 3, 3)).astype(np.float32),
        "d": random.standard_normal((6, 5)).astype(np.float32),
    }
    proto = graph(nodes, {"x": ("n", 3, "h", "w_")}, ["y", "map"], constants)
    return write(proto, tmp_path_factory.mktemp("dynamic"))


@pytest.fixture(scope="module", params=["folder", "tar"])
def bundle(request: pytest.FixtureRequest, model: Path) -> Bundle:
    suffix = ".tar" if request.param == "tar" else ""
    output = model.with_name(f"{request.param}.adrenoc{suffix}")
    command = ["compile", str(model), "--device", "host", "--preset", "fp32", "--no-cache"]
    command += ["--shape", "x:1|4,3,8|12,9", "-o", str(output)]
    succeed(*command)
    return open_bundle(output)


def test_constants_are_written_once(bundle):
    buckets = read_buckets(bundle)
    assert [e.folder for e in buckets.buckets] == [
        "buckets/1x3x8x9",
        "buckets/1x3x12x9",
        "buckets/4x3x8x9",
        ".",
    ]
    assert buckets.batch.refused == ""
    assert [(o.name, o.axis, o.factor) for o in buckets.batch.outputs] == [
        ("y", 0, 1),
        ("map", 0, 1),
    ]
    assert len([e for e in bundle.manifest.files if e.path.endswith("params.safetensors")]) == 1
    with safe_open(bundle.root / "params.safetensors", "numpy") as file:
        held = set(file.keys())
    used = {spec.name for spec in bundle.manifest.params}
    assert used <= held
    # The two weights of each bucket are packed alike, whatever the shape.
    assert len(held) < 4 * len(used)


@pytest.mark.parametrize("shape", [(1, 3, 8, 9), (1, 3, 12, 9), (2, 3, 8, 9), (3, 3, 12, 9)])
def test_each_size_computes_what_onnxruntime_does(bundle, model, shape):
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    expected = open_session(model).run(["y", "map"], {"x": x})
    outputs = run_bundle(bundle, inputs={"x": x}, repeat=1, warmup=0).outputs
    for name, wanted in zip(("y", "map"), expected, strict=True):
        assert outputs[name].shape == wanted.shape
        np.testing.assert_allclose(outputs[name], wanted, atol=1e-5 * np.abs(wanted).max())


def test_no_bucket_lists_all_of_them(bundle):
    for shape in ((1, 3, 10, 9), (5, 3, 8, 9)):
        with pytest.raises(InputError, match=r"1x3x8x9, 1x3x12x9, 4x3x8x9, 4x3x12x9") as caught:
            run_bundle(bundle, inputs={"x": np.zeros(shape, np.float32)}, repeat=1)
        assert caught.value.hint


def test_command_line(bundle, model, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((2, 3, 12, 9), np.float32))
    command = ["run", str(bundle.path), "--repeat", "1", "--check", str(model), "--json"]
    for extra in (["--input", str(tmp_path / "x.npy")], ["--shape", "x:2,3,12,9"]):
        result = succeed(*command, *extra)
        said = json.loads(result.output)
        assert said["outputs"]["y"]["shape"] == [2, 5]
        assert said["check"]["passed"]
    shown = invoke("inspect", bundle.path, catch=True)
    assert "a smaller one is filled up" in shown.output
