"""A device whose halves end at 6.1e-5: what a small constant keeps from zero stays in float32."""

import numpy as np
import pytest

from tests.ir.planning import plan
from tests.models import graph

FLUSHES = """title = "one that flushes"
base = "adreno:750"
[[quirks]]
name = "measured-half-denormals"
text = "Halves below 6.1e-5 are zeros."
source = "measured on one"
avoid = ["half-denormals"]
"""


@pytest.mark.parametrize(
    ("epsilon", "kept"), [(1e-8, (True, True)), (5e-5, (False, True)), (1e-3, (False, False))]
)
def test_a_distance_kept_from_zero(epsilon, kept, tmp_path):
    file = tmp_path / "flushes.toml"
    file.write_text(FLUSHES)
    weights = np.random.default_rng(1).standard_normal((4, 4, 1, 1)).astype(np.float32)
    model = graph(
        "c = Conv(x, w) a = Abs(c) d = Add(a, e) p = MaxPool <kernel_shape = [2, 2]>(d) "
        "r = Reciprocal(p) y = Conv(r, w)",
        {"x": [1, 4, 8, 8]},
        ["y"],
        {"e": np.array(epsilon, np.float32), "w": weights},
    )
    found = []
    for device in ("adreno:750", str(file)):
        state = plan(model, until="keep_float32", device=device, keep_float32=True)
        told = [d for d in state.log if "makes more of a rounding" in d.reason]
        found.append(bool(told))
    assert tuple(found) == kept
    assert [d.reason for d in state.log if d.taken == "without half-denormals"] == [
        "quirk measured-half-denormals: measured on one"
    ]
