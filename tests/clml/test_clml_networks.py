"""Small networks by CLML and by textures: what TVM's tests of networks ask, and a little more.

TVM 0.18 (`tests/python/contrib/test_clml/`) runs resnet-18, -34, -50, inception_v3 and mobilenet
in float32 and float16: the five largest outputs have to be the same ones in the same order, and
mobilenet has to build.  The row `clml` of tests/acceptance
does so with the networks themselves.
"""

import json

import numpy as np
import pytest

from adrenoc.bundle.bundle import open_bundle
from adrenoc.check.inputs import make_inputs
from adrenoc.cli.main import main
from adrenoc.device.run import run_bundle
from tests.models import write_network

_TOLERANCE = {"fp32": 1e-5, "fp16": 2e-2}


@pytest.mark.parametrize(
    ("name", "preset"), [("resnet18", "fp32"), ("resnet18", "fp16"), ("mobilenet_v2", "fp16")]
)
def test_network(name, preset, tmp_path, device, emulate):
    model = write_network(tmp_path, name, size=32, width=0.15, classes=10)
    command = ["compile", str(model), "--device", "host", "--preset", preset, "--clml", "all"]
    assert main([*command, "--output", str(tmp_path / "out.adrenoc")]) == 0
    bundle = open_bundle(tmp_path / "out.adrenoc")
    (region,) = bundle.manifest.regions  # all of it
    inputs = make_inputs(bundle.manifest.inputs, seed=0)
    outputs = []
    for settings in ({}, {"extension": False}):
        emulate(**settings)
        result = run_bundle(bundle, inputs=inputs, repeat=1)
        assert [r.used for r in result.regions] == [not settings], json.dumps(settings)
        (value,) = result.outputs.values()
        outputs.append(value.reshape(-1))
    by_clml, by_textures = outputs
    assert len(region.operators) > 15
    assert np.argsort(by_clml)[-5:].tolist() == np.argsort(by_textures)[-5:].tolist()
    size = np.abs(by_textures).max()
    assert np.abs(by_clml - by_textures).max() / size <= _TOLERANCE[preset]
