"""The runtime in a process that has a TVM of its own: neither sees the other."""

import sys
import zlib
from collections.abc import Callable

import numpy as np

from adrenoc.native.android.elf import read_elf
from tests.runtime.programs import HERE, Finished

Execute = Callable[..., Finished]


def test_the_library_shows_the_c_api_alone(runtime):
    exported = read_elf(runtime.library).exported
    assert {"adrenoc_load", "adrenoc_run"} <= exported
    assert all(name.startswith("adrenoc_") for name in exported)


def test_the_library_is_small_in_an_archive(runtime):
    """What an app downloads: 0.6 MB is the goal on a phone, and x86-64 takes about as much."""
    assert len(zlib.compress(runtime.library.read_bytes(), 9)) < 650_000


def test_a_bundle_asks_for_no_library_of_tvm(bundle):
    facts = read_elf(bundle.root / "model.so")
    assert not [name for name in facts.needed if "tvm" in name]
    assert not [name for name in facts.undefined if name.startswith("TVM")]


def test_numbers_are_the_same_where_tvm_was_imported_first(
    runtime, bundle, case, opencl, execute, tmp_path
):
    outputs = [tmp_path / name for name in case.outputs]
    for path, array in zip(outputs, case.outputs.values(), strict=True):
        path.write_bytes(bytes(array.nbytes))
    command = [sys.executable, HERE / "beside_program.py", runtime.library, bundle.path, opencl]
    done = execute(*command, *case.inputs_of(bundle), *outputs)
    assert done.out.strip() == "7"
    for path, array in zip(outputs, case.outputs.values(), strict=True):
        np.testing.assert_array_equal(np.fromfile(path, array.dtype).reshape(array.shape), array)
