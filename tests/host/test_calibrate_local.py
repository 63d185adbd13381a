"""`adrenoc device calibrate` on drivers that count local memory at more than a kernel declares.

Mesa's rusticl says twice as much (22.3), and the runtime refuses what is more than the device has.
"""

import numpy as np
import pytest

from adrenoc.check.inputs import make_inputs
from adrenoc.check.reference import run_reference
from adrenoc.device.run import run_bundle
from adrenoc.lab.calibrate.session import DeviceRequest, run_calibration
from adrenoc.native import opencl
from tests.commands import compile_model
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
    model = write_network(tmp_path, "mobilenet_v2", size=224)
    bundle = compile_model(model, tmp_path / "net.adrenoc", device=f"host:{file}")
    inputs = make_inputs(bundle.manifest.inputs, ())
    outputs = run_bundle(bundle, inputs=inputs, repeat=1, warmup=0).outputs
    for name, expected in run_reference(model, inputs).items():
        np.testing.assert_allclose(outputs[name], expected, atol=1e-3 * np.ptp(expected))
