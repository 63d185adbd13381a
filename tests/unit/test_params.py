"""The constants of a bundle come back as they were written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from adrenoc.bundle.manifest import ParamSpec
from adrenoc.bundle.params import read_params, write_params


@pytest.mark.parametrize(
    "value",
    [
        np.array(12, np.int64),
        np.array(True),
        np.arange(12, dtype=np.float16).reshape(3, 4).T,
        np.zeros((2, 0, 3), np.float32),
    ],
    ids=["scalar", "truth", "strided", "empty"],
)
def test_constants_keep_their_shape(tmp_path: Path, value: np.ndarray) -> None:
    write_params(tmp_path / "params", {"p0": value})
    specs = [ParamSpec(name="p0", shape=value.shape, dtype=str(value.dtype))]
    found = read_params(tmp_path / "params", specs, where="it")["p0"]
    assert found.shape == value.shape
    np.testing.assert_array_equal(found, value)
