"""The constants of a bundle come back as they were written."""

import mmap
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from adrenoc.base.errors import BundleError
from adrenoc.base.files.spill import spill
from adrenoc.bundle.manifest import ParamSpec
from adrenoc.bundle.params import DTYPES, read_params, walk_params, write_params


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
        tmp_path / "params", {f"p{i}": np.full(size // 4, i, np.float32) for i in range(count)}
    )
    specs = [ParamSpec(name=f"p{i}", shape=(size // 4,), dtype="float32") for i in range(count)]
    begun, most = read_held_bytes(), 0
    for index, array in enumerate(walk_params(tmp_path / "params", specs, where="it")):
        assert array.sum() == index * (size // 4)  # which reads every page
        most = max(most, read_held_bytes() - begun)
    assert size // 2 < most < 2 * size


def test_written_constants_are_in_memory_one_at_a_time(tmp_path: Path) -> None:
    """A model's spilled constants are none of its memory, and writing them makes them none."""
    count, size = 8, 8 << 20
    begun = read_held_bytes()
    params = {f"p{i}": spill(np.full(size // 4, i, np.float32)) for i in range(count)}
    write_params(tmp_path / "params", params)
    assert read_held_bytes() - begun < 2 * size


def test_the_file_is_what_safetensors_writes(tmp_path: Path) -> None:
    """Byte by byte, so that bundles are the same whoever wrote them."""
    twice = [*DTYPES.values()] * 2
    params = {f"p{i}": np.ones((3, i % 5), dtype) for i, dtype in enumerate(twice)}
    save_file(params, tmp_path / "theirs")
    write_params(tmp_path / "ours", params)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_read_constants_can_be_written_to(tmp_path: Path) -> None:
    write_params(tmp_path / "params", {"p0": np.zeros(4, np.float32)})
    specs = [ParamSpec(name="p0", shape=(4,), dtype="float32")]
    read_params(tmp_path / "params", specs, where="it")["p0"][:] = 1
    assert not read_params(tmp_path / "params", specs, where="it")["p0"].any()


def test_a_dtype_that_nothing_takes_is_named(tmp_path: Path) -> None:
    header = b'{"p0":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}'
    (tmp_path / "params").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    specs = [ParamSpec(name="p0", shape=(2,), dtype="float32")]
    with pytest.raises(BundleError, match="it holds BF16 at `p0`, expected one of U64"):
        read_params(tmp_path / "params", specs, where="it")


def read_held_bytes() -> int:
    """The memory of this process, with what it has read of mapped files."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
