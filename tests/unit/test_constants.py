"""Constants of bundles: spilled, packed, brought into another order, and read back."""

import json
import mmap
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.numpy import save_file

from adrenoc.base.errors import BundleError
from adrenoc.base.files.spill import LEAST_BYTES, forget_pages, spill
from adrenoc.bundle.manifest import ParamSpec
from adrenoc.bundle.params import (
    DTYPES,
    ConstantSource,
    Places,
    moves_to_json,
    read_moves,
    read_params,
    walk_params,
    write_params,
)
from adrenoc.kernels.weights import (
    fill_channels,
    fill_rows,
    first_input_block,
    group_window,
    pack_blocked,
    pack_conv,
    pack_depthwise,
    pack_local,
)

_DTYPES = st.sampled_from([np.uint8, np.int8, np.float16, np.float32, np.int64, np.bool_])


@given(
    arrays.arrays(_DTYPES, st.sampled_from([(LEAST_BYTES,), (3, LEAST_BYTES), (2, 5, 77777)])),
    st.booleans(),
)
def test_numbers_come_back(value, turned):
    value = value.T if turned else value
    kept = spill(value)
    assert kept.dtype == value.dtype and not kept.flags.writeable
    forget_pages(kept)
    np.testing.assert_array_equal(kept, value)
    # What is there already is not written again.
    assert spill(kept[1:]).base is kept[1:].base


def test_neighbours_in_a_file_do_not_touch():
    values = [np.full(LEAST_BYTES + n, n, np.uint8) for n in range(1, 9)]
    kept = [spill(value) for value in values]
    del kept[3]
    for array in kept:
        forget_pages(array)
    for array in kept:
        np.testing.assert_array_equal(array, values[int(array[0]) - 1])


def test_small_arrays_and_objects_stay():
    small, words = np.zeros(3), np.full(LEAST_BYTES, "x", object)
    assert spill(small) is small and spill(words) is words
    forget_pages(small)


def test_without_room_the_array_stays(tmp_path, monkeypatch):
    value = np.ones(300 << 20, np.uint8)  # more than is left in any file
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    assert spill(value) is value


def test_many_arrays_take_few_files():
    before = len(list(Path("/proc/self/fd").iterdir()))
    kept = [spill(np.zeros(LEAST_BYTES, np.uint8)) for _ in range(200)]
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 2
    del kept


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
def test_constants_keep_their_shape(tmp_path, value):
    write_params(tmp_path / "params", {"p0": value})
    specs = [ParamSpec(name="p0", shape=value.shape, dtype=str(value.dtype))]
    found = read_params(tmp_path / "params", specs, where="it")["p0"]
    assert found.shape == value.shape
    np.testing.assert_array_equal(found, value)


def test_walked_constants_are_in_memory_one_at_a_time(tmp_path):
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


def test_written_constants_are_in_memory_one_at_a_time(tmp_path):
    """A model's spilled constants are none of its memory, and writing them makes them none."""
    count, size = 8, 8 << 20
    begun = read_held_bytes()
    params = {f"p{i}": spill(np.full(size // 4, i, np.float32)) for i in range(count)}
    write_params(tmp_path / "params", params)
    assert read_held_bytes() - begun < 2 * size


def test_the_file_is_what_safetensors_writes(tmp_path):
    """Byte by byte, so that bundles are the same whoever wrote them."""
    twice = [*DTYPES.values()] * 2
    params = {f"p{i}": np.ones((3, i % 5), dtype) for i, dtype in enumerate(twice)}
    save_file(params, tmp_path / "theirs")
    write_params(tmp_path / "ours", params)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_read_constants_can_be_written_to(tmp_path):
    write_params(tmp_path / "params", {"p0": np.zeros(4, np.float32)})
    specs = [ParamSpec(name="p0", shape=(4,), dtype="float32")]
    read_params(tmp_path / "params", specs, where="it")["p0"][:] = 1
    assert not read_params(tmp_path / "params", specs, where="it")["p0"].any()


def test_a_dtype_that_nothing_takes_is_named(tmp_path):
    header = b'{"p0":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}'
    (tmp_path / "params").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    specs = [ParamSpec(name="p0", shape=(2,), dtype="float32")]
    with pytest.raises(BundleError, match="it holds BF16 at `p0`, expected one of U64"):
        read_params(tmp_path / "params", specs, where="it")


def read_held_bytes() -> int:
    """The memory of this process, with what it has read of mapped files."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


@given(
    groups=st.integers(1, 5),
    per_out=st.integers(1, 6),
    per_in=st.integers(1, 6),
    kernel=st.integers(1, 3),
)
def test_a_packed_convolution_computes_the_same(groups, per_out, per_in, kernel):
    """Multiply as the kernel does, by blocks, and compare with the definition at one pixel."""
    rng = np.random.default_rng(groups * 100 + per_out * 10 + per_in)
    out_channels, in_channels = groups * per_out, groups * per_in
    weight = rng.standard_normal((out_channels, per_in, kernel, 1)).astype(np.float32)
    pixels = rng.standard_normal((kernel, in_channels)).astype(np.float32)
    packed = pack_conv(weight, groups)
    window, _ = group_window(out_channels, in_channels, groups)
    padded = np.zeros((kernel, 4 * (in_channels + 4 * window)), np.float32)
    padded[:, :in_channels] = pixels
    computed = np.zeros(packed.shape[1] * 4, np.float32)
    for tap in range(kernel):
        for block in range(packed.shape[1]):
            first = 4 * first_input_block(block, per_out, per_in) if groups > 1 else 0
            for i in range(window * 4):
                computed[4 * block : 4 * block + 4] += (
                    padded[tap, first + i] * packed[tap, block, i]
                )
    for o in range(out_channels):
        group = o // per_out
        own = pixels[:, group * per_in : (group + 1) * per_in]
        np.testing.assert_allclose(computed[o], np.sum(own.T * weight[o, :, :, 0]), atol=1e-4)
    assert not computed[out_channels:].any()


def test_depthwise_taps_lie_in_rows():
    weight = np.arange(6 * 9, dtype=np.float32).reshape(6, 1, 3, 3)
    packed = pack_depthwise(weight)
    assert packed.shape == (1, 9, 2, 4)
    assert packed[0, 5, 1, 1] == weight[5, 0, 1, 2]
    assert not packed[0, :, 1, 2:].any()


def test_a_constant_is_packed_as_its_layout_lies():
    value = np.arange(2 * 5 * 3 * 7, dtype=np.float32).reshape(2, 5, 3, 7)
    planes = pack_blocked(value, "NCHW", rows_fold=False)
    rows = pack_blocked(value, "NCHW", rows_fold=True)
    assert planes.shape == (4, 3, 7, 4)
    assert planes[1 * 2 + 1, 2, 6, 0] == value[1, 4, 2, 6]
    assert rows.shape == (2, 21, 2, 4)
    assert rows[1, 2 * 7 + 6, 1, 0] == value[1, 4, 2, 6]
    assert not planes[1::2, :, :, 1:].any()
    np.testing.assert_array_equal(
        pack_blocked(value.transpose(0, 2, 3, 1), "NHWC", rows_fold=False), planes
    )


def test_weights_of_whole_blocks_are_not_copied_to_be_filled_up():
    weight = np.ones((8, 4, 3, 3), np.float32)
    assert fill_channels(weight, 8, 4) is weight
    more = fill_channels(weight, 12, 8)
    assert more.shape == (12, 8, 3, 3)
    assert more[:8, :4].all()
    assert not more[8:].any() and not more[:, 4:].any()


def test_texels_of_local_weights_are_the_same_numbers_row_by_row():
    weight = np.random.default_rng(0).standard_normal((36, 20, 3, 3)).astype(np.float16)
    flat = pack_local(weight, 2, 3, 2)
    for most_rows, columns in ((16384, 64), (8, 512)):
        texels = fill_rows(flat, most_rows=most_rows)
        assert texels.shape == (1, -(-flat.size // (4 * columns)), columns, 4)
        np.testing.assert_array_equal(texels.reshape(-1)[: flat.size], flat)
        assert not texels.reshape(-1)[flat.size :].any()


# Five rows of three, of which `kept` has them in fours, and `wanted` column by column, padded.
KEPT = np.array([[10 * row + column for column in range(3)] + [0] for row in range(5)], np.float16)
WANTED = np.zeros((3, 8), np.float16)
WANTED[:, :5] = KEPT[:, :3].T
MOVE = ConstantSource(
    name="p1",
    shape=(3, 8),
    dtype="float16",
    source="p0",
    width=2,
    counts=(5, 3),
    places=Places(first=0, digits=(((2**31 - 1, 1),), ((2**31 - 1, 8),))),
    source_places=Places(first=0, digits=(((2**31 - 1, 4),), ((2**31 - 1, 1),))),
)


def _write(folder: Path, change: Callable[[dict[str, Any]], Any] = lambda plain: None) -> Path:
    plain = json.loads(moves_to_json({"p1": MOVE}))
    change(plain["moves"][0])
    path = folder / "moves.json"
    path.write_text(json.dumps(plain))
    return path


def _square(plain: dict[str, Any], **transform) -> None:
    """A damaged transform of filters of three rows and columns."""
    plain.update(counts=[3, 3], transform=transform)


def test_a_constant_is_brought_from_another(tmp_path):
    write_params(tmp_path / "params", {"p0": KEPT, "p7": KEPT})
    moves = read_moves(_write(tmp_path), "moves.json")
    assert moves == {"p1": MOVE}
    specs = [ParamSpec(name="p1", shape=(3, 8), dtype="float16")]
    found = read_params(tmp_path / "params", specs, where="it", moves=moves)
    assert list(found) == ["p1"]
    assert found["p1"].tobytes() == WANTED.tobytes()


def test_without_the_file_nothing_moves(tmp_path):
    assert read_moves(tmp_path / "moves.json", "moves.json") == {}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m.pop("source"), "lacks the key `source`"),
        (lambda m: m.update(width=3), "elements of 3 bytes"),
        (lambda m: m.update(width=0), "elements of 0 bytes"),
        (lambda m: m.update(dtype="float17"), "unknown dtype float17"),
        (lambda m: m.update(counts=[5]), "digits of 2 of 1 axes"),
        (lambda m: m.update(counts=[], places={"first": 0, "digits": []}), "of 0 axes"),
        (lambda m: m.update(counts=[-5, 3]), "beyond what memory holds"),
        (lambda m: m.update(counts=[2**20, 2**20]), "more elements than memory holds"),
        (lambda m: m.update(shape=[2**40, 1]), "beyond what memory holds"),
        (lambda m: m.update(counts=[30, 3]), "more elements than there are"),
        (lambda m: m["places"].update(first=12), "lies outside of its constant"),
        (lambda m: m["source_places"].update(first=-1), "lies outside of its constant"),
        (lambda m: m["places"].update(digits=[[[0, 1]], [[9, 8]]]), "no radix and stride"),
        (lambda m: m["places"].update(digits=[[[5]], [[9, 8]]]), "no radix and stride"),
        (lambda m: m["places"].update(digits=[[], [[9, 8]]]), "no radix and stride"),
        (lambda m: m.update(transform={"rows": [[1]], "divisors": [1]}), "transforms what is no"),
        (lambda m: m.update(transform={"rows": [], "divisors": []}), "transforms what is no"),
        (lambda m: _square(m, rows=[[1, 0, 0]], divisors=[0]), "divisors that are none"),
        (lambda m: _square(m, rows=[[1, 0, 0]], divisors=[1, 2]), "divisors that are none"),
        (lambda m: _square(m, rows=[[1, 0, 0]] * 9, divisors=[1] * 9), "to sides beyond"),
        (lambda m: _square(m, rows=[[1, 0, 1 << 20]], divisors=[1]), "beyond what memory holds"),
        (lambda m: _square(m, rows=[[1, 0, 0]] * 8, divisors=[1] * 8), "than there are"),
        (lambda m: m.update(source="p9"), "holds nothing at `p1`"),
        (lambda m: m.update(shape=[8, 3]), "expected float16 [3, 8]"),
    ],
)
def test_what_no_compiler_writes_is_refused(tmp_path, change, said):
    write_params(tmp_path / "params", {"p0": KEPT})
    specs = [ParamSpec(name="p1", shape=(3, 8), dtype="float16")]
    with pytest.raises(BundleError) as refused:
        moves = read_moves(_write(tmp_path, change), "moves.json")
        read_params(tmp_path / "params", specs, where="it", moves=moves)
    assert said in refused.value.message


def test_what_is_no_json_is_refused(tmp_path):
    path = tmp_path / "moves.json"
    path.write_bytes(b"{")
    with pytest.raises(BundleError, match=r"moves\.json is not JSON"):
        read_moves(path, "x: moves.json")
