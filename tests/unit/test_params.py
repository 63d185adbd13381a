"""The constants of a bundle come back as they were written."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest

from adrenoc.base.errors import BundleError
from adrenoc.bundle.manifest import ParamSpec
from adrenoc.bundle.params import read_params, walk_params, write_params


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


def test_walked_constants_are_in_memory_one_at_a_time(tmp_path: Path) -> None:
    count, size = 8, 8 << 20
    write_params(
        tmp_path / "params",
        {f"p{i}": np.full(size // 4, i, np.float32) for i in range(count)},
    )
    specs = [ParamSpec(name=f"p{i}", shape=(size // 4,), dtype="float32") for i in range(count)]
    begun, most = read_held_bytes(), 0
    for index, array in enumerate(walk_params(tmp_path / "params", specs, where="it")):
        assert array.sum() == index * (size // 4)  # which reads every page
        most = max(most, read_held_bytes() - begun)
    assert size // 2 < most < 2 * size


def test_read_constants_can_be_written_to(tmp_path: Path) -> None:
    write_params(tmp_path / "params", {"p0": np.zeros(4, np.float32)})
    specs = [ParamSpec(name="p0", shape=(4,), dtype="float32")]
    read_params(tmp_path / "params", specs, where="it")["p0"][:] = 1
    assert not read_params(tmp_path / "params", specs, where="it")["p0"].any()


def test_a_dtype_that_nothing_takes_is_named(tmp_path: Path) -> None:
    header = b'{"p0":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}'
    (tmp_path / "params").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    specs = [ParamSpec(name="p0", shape=(2,), dtype="float32")]
    with pytest.raises(BundleError, match="it holds BF16 at `p0`, expected one of F64"):
        read_params(tmp_path / "params", specs, where="it")


def read_held_bytes() -> int:
    """The memory of this process, with what it has read of mapped files."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
