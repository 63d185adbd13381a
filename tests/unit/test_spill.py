"""Large arrays that wait in files without a name."""

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from adrenoc.base.files.spill import LEAST_BYTES, forget_pages, spill

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
