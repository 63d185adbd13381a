"""`adrenoc device calibrate` on drivers that count local memory at more than a kernel declares.

Mesa's rusticl says twice as much (22.3), and the runtime refuses what is more than the device has.
"""

import numpy as np
import pytest

from adrenoc.base.reporter import SilentReporter
from adrenoc.bundle.bundle import open_bundle
from adrenoc.check.inputs import make_inputs
from adrenoc.check.reference import run_reference
from adrenoc.compile.make import make_bundle
from adrenoc.device.run import run_bundle
from adrenoc.ir.options import resolve_options
from adrenoc.lab.calibrate.session import DeviceRequest, run_calibration
from adrenoc.native import opencl
from adrenoc.target.target import load_target
from tests.models import write_network


@pytest.mark.every_opencl
def test_a_network_shares_what_a_kernel_was_seen_to_share(device, tmp_path):
    asked = DeviceRequest(
        place=None,
        cl_device=opencl.devices()[0]["name"],
        budget_s=300.0,
        limit_s=60.0,
        only=("local.part",),
    )
    file = tmp_path / "device.toml"
    file.write_text(run_calibration(asked).toml)
    target = load_target(f"host:{file}")
    model = write_network(tmp_path, "mobilenet_v2", size=224)
    made = make_bundle(
        model,
        target=target,
        options=resolve_options(target, preset="fp32").options,
        output=tmp_path / "net.adrenoc",
        reporter=SilentReporter(),
    )
    bundle = open_bundle(made.path)
    inputs = make_inputs(bundle.manifest.inputs, ())
    outputs = run_bundle(bundle, inputs=inputs, repeat=1, warmup=0).outputs
    for name, expected in run_reference(model, inputs).items():
        np.testing.assert_allclose(outputs[name], expected, atol=1e-3 * np.ptp(expected))
