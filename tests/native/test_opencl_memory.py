"""Allocation, reuse and copies of buffers and images."""

import ctypes
from collections.abc import Callable

import numpy as np
import pytest
import tvm
import tvm_ffi

from adrenoc.native import opencl

pytestmark = pytest.mark.usefixtures("device")

Stats = Callable[[], dict[str, int]]


def _numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.random.default_rng(7).standard_normal(shape).astype(dtype)


def _empty(shape: tuple[int, ...], dtype: str, device, scope: str = "global.texture"):
    return tvm.runtime.empty(shape, dtype, device, mem_scope=scope)


def _on_device(array: np.ndarray, device, scope: str | None):
    tensor = _empty(array.shape, str(array.dtype), device, scope or "global")
    tensor.copyfrom(array)
    return tensor


# --- round trips --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int32", "uint8", "int64", "bool"])
@pytest.mark.parametrize("shape", [(1,), (7, 3), (2, 5, 3, 11)])
def test_buffers_keep_what_is_written(device, shape, dtype):
    array = _numbers(shape, "float32").astype(dtype)
    np.testing.assert_array_equal(_on_device(array, device, None).numpy(), array)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    "scope", ["global.texture", "global.texture-weight", "global.texture-nhwc"]
)
@pytest.mark.parametrize("shape", [(1, 1, 1, 4), (3, 7, 5, 4), (2, 3, 5, 7, 4), (13, 17, 4)])
def test_images_keep_what_is_written(device, shape, scope, dtype):
    array = _numbers(shape, dtype)
    np.testing.assert_array_equal(_on_device(array, device, scope).numpy(), array)


def test_an_empty_tensor_copies_nothing(device):
    assert _on_device(np.zeros((0, 3), "float32"), device, None).numpy().shape == (0, 3)


@pytest.mark.parametrize("source", [None, "global.texture", "global.texture-weight"])
@pytest.mark.parametrize("target", [None, "global.texture", "global.texture-weight"])
def test_copies_on_the_device(device, source, target):
    array = _numbers((3, 5, 7, 4), "float16")
    tensor = _on_device(array, device, source)
    copy = _empty(array.shape, "float16", device, target or "global")
    tensor.copyto(copy)
    np.testing.assert_array_equal(copy.numpy(), array)


def test_images_folded_differently_hold_the_same_elements(device):
    array = _numbers((6, 4, 2, 4), "float32")
    wide = _empty((2, 4, 6, 4), "float32", device)
    _on_device(array, device, "global.texture").copyto(wide)
    np.testing.assert_array_equal(wide.numpy(), array.reshape(2, 4, 6, 4))


# --- views --------------------------------------------------------------------------------------


def test_a_buffer_view_starts_at_its_byte_offset(device):
    array = _numbers((6, 4), "float32")
    whole = _on_device(array, device, None)
    view = whole._create_view((2, 4), "float32", relative_byte_offset=3 * 16)
    np.testing.assert_array_equal(view.numpy(), array[3:5])
    view.copyfrom(np.full((2, 4), 9, "float32"))
    array[3:5] = 9
    np.testing.assert_array_equal(whole.numpy(), array)


@pytest.mark.parametrize("to_image", [True, False])
def test_copies_between_an_image_and_part_of_a_buffer(device, to_image):
    array = _numbers((4, 3, 5, 4), "float32")
    buffer = _on_device(array, device, None)
    view = buffer._create_view((1, 3, 5, 4), "float32", relative_byte_offset=2 * 3 * 5 * 16)
    image = _on_device(np.ones((1, 3, 5, 4), "float32"), device, "global.texture")
    if to_image:
        view.copyto(image)
        np.testing.assert_array_equal(image.numpy(), array[2:3])
    else:
        image.copyto(view)
        array[2] = 1
        np.testing.assert_array_equal(buffer.numpy(), array)


def test_a_view_of_an_image_takes_its_first_layers(device):
    array = _numbers((5, 3, 7, 4), "float16")
    whole = _on_device(array, device, "global.texture")
    view = whole._create_view((2, 3, 7, 4), "float16")
    np.testing.assert_array_equal(view.numpy(), array[:2])
    view.copyfrom(np.zeros((2, 3, 7, 4), "float16"))
    array[:2] = 0
    np.testing.assert_array_equal(whole.numpy(), array)


@pytest.mark.parametrize(
    ("shape", "dtype", "offset"),
    [
        ((5, 7, 3, 4), "float32", 0),  # rows and columns exchanged
        ((10, 3, 7, 4), "float16", 0),  # another format
        ((1, 3, 7, 4), "float32", 3 * 7 * 16),  # a later layer
    ],
)
def test_a_view_that_is_no_part_of_an_image(device, shape, dtype, offset):
    whole = _empty((5, 3, 7, 4), "float32", device)
    view = whole._create_view(shape, dtype, relative_byte_offset=offset)
    with pytest.raises(ValueError, match="does not fit the image of 7 x 3 texels in 5 layers"):
        view.numpy()


# --- pool and statistics ------------------------------------------------------------------------


def test_statistics_count_what_is_in_use(device, stats):
    before = stats()
    image = _empty((2, 3, 5, 4), "float32", device)
    buffer = _empty((256,), "float32", device, "global")
    during = stats()
    assert during["images"] - before["images"] == 1
    assert during["buffers"] - before["buffers"] == 1
    assert during["allocated_bytes"] - before["allocated_bytes"] == 2 * 3 * 5 * 16 + 1024
    del image, buffer
    after = stats()
    assert after["allocated_bytes"] == before["allocated_bytes"]
    assert after["pooled_bytes"] == 2 * 3 * 5 * 16 + 1024
    assert after["peak_bytes"] == during["allocated_bytes"]
    opencl.release_pool()
    assert stats()["pooled_bytes"] == 0
    assert stats()["peak_bytes"] == before["allocated_bytes"]


@pytest.mark.parametrize("scope", ["global", "global.texture"])
def test_freed_memory_is_used_again(device, stats, scope):
    _empty((2, 3, 50, 4), "float32", device, scope)
    before = stats()
    tensor = _empty((2, 3, 50, 4), "float32", device, scope)
    after = stats()
    assert after["reuses"] == before["reuses"] + 1
    assert after["pooled_bytes"] == 0
    assert after["peak_bytes"] == before["peak_bytes"]
    del tensor


def test_only_an_image_of_the_same_kind_is_used_again(device, stats):
    _empty((2, 3, 50, 4), "float32", device)
    before = stats()["reuses"]
    others = [
        _empty((2, 3, 50, 4), "float16", device),
        _empty((1, 3, 50, 4), "float32", device),
        _empty((2, 50, 3, 4), "float32", device),
    ]
    assert stats()["reuses"] == before
    del others


def test_a_buffer_of_nearly_the_size_is_used_again(device, stats):
    _empty((100_000,), "int8", device, "global")
    before = stats()["reuses"]
    tensor = _empty((99_000,), "int8", device, "global")
    assert stats()["reuses"] == before + 1
    del tensor


def test_a_texture_inside_a_host_function(device, stats):
    extents = (ctypes.c_int64 * 3)(5, 3, 2)
    half_texel_bits = 64
    before = stats()
    # The arguments that TVM's lowering gives: device, type code and bits, scope, rank, extents.
    allocate = tvm.get_global_func("device_api.opencl.alloc_nd")
    address = ctypes.cast(extents, ctypes.c_void_p)
    data = allocate(4, 0, 2, 16, "global.texture", 3, address, half_texel_bits)
    assert stats()["allocated_bytes"] - before["allocated_bytes"] == 5 * 3 * 2 * 8
    free = tvm.get_global_func("device_api.opencl.free_nd")
    assert free(4, 0, "global.texture", data) == 0
    assert stats()["images"] == before["images"]


# --- refusals -----------------------------------------------------------------------------------


def test_an_image_beyond_the_limits(device):
    width = opencl.devices()[0]["images"]["max_width"] + 1
    with pytest.raises(ValueError, match=rf"image of {width} x 1 texels .* beyond the limits of"):
        _empty((1, 1, width, 4), "float16", device)


def test_a_buffer_beyond_the_limits(device):
    size = opencl.devices()[0]["limits"]["max_allocation_bytes"] + 1
    with pytest.raises(ValueError, match=f"buffer of {size} bytes is beyond the limit of"):
        _empty((size,), "uint8", device, "global")


@pytest.mark.parametrize(
    ("shape", "dtype", "scope", "said"),
    [
        *(
            (shape, "float32", "global.texture", r"of \[..., rows, columns, 4\], but got \[")
            for shape in ((3, 4), (1, 2, 3), (2, 3, 5, 8))
        ),
        ((1, 0, 5, 4), "float32", "global.texture", r"at least 1, but got \[1, 0, 5, 4\]"),
        ((1, 2, 3, 4), "int8", "global.texture", "holds float16 or float32, but got int8"),
        ((1, 2, 3, 4), "float32", "global.vtcm", r'has no scope "global\.vtcm"'),
    ],
)
def test_what_is_no_texture(device, shape, dtype, scope, said):
    with pytest.raises(ValueError, match=said):
        _empty(shape, dtype, device, scope)


# --- patterns -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "scope"),
    [
        ("int32", "global"),
        ("float32", "global"),
        ("float32", "global.texture"),
        ("float16", "global.texture"),
    ],
)
@pytest.mark.parametrize("period", [1, 101, 7 * 33 * 5 * 4, 100_003])
def test_a_pattern_is_repeated_over_a_tensor(device, dtype, scope, period):
    """Inputs of a tuner's candidates are made where they are used."""
    pattern = (100 * _numbers((period,), "float32")).astype(dtype)
    tensor = _empty((7, 33, 5, 4), dtype, device, scope)
    repeat = tvm_ffi.get_global_func("adrenoc.trials.repeat")
    repeat(tvm.runtime.tensor(pattern), tensor)
    np.testing.assert_array_equal(tensor.numpy().ravel(), np.resize(pattern, 7 * 33 * 5 * 4))
    with pytest.raises(ValueError, match="lies on the host"):
        repeat(tensor, tensor)


def test_an_output_is_kept_on_the_host_of_the_device(device):
    array = _numbers((3, 7, 5, 4), "float16")
    kept = tvm.runtime.empty(array.shape, "float16")
    tvm_ffi.get_global_func("adrenoc.trials.keep")(
        _on_device(array, device, "global.texture"), kept
    )
    np.testing.assert_array_equal(kept.numpy(), array)
