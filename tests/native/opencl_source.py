"""Modules of kind "opencl" made of plain OpenCL C, for tests."""

import ctypes
import struct
from collections.abc import Sequence

# DLDataType: code, bits, lanes.
MEMORY = (3, 64, 1)
INT32 = (0, 32, 1)


def serialised_module(
    source: str, signatures: dict[str, Sequence[tuple[int, int, int]]], tags: Sequence[str]
) -> bytes:
    """The bytes that TVM saves for an OpenCL module, written down independently of our reader."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value.encode())) + value.encode()

    parts = [text("cl"), struct.pack("<Q", len(signatures))]
    for name, types in signatures.items():
        parts += [text(name), text(name), struct.pack("<Q", len(types))]
        parts += [struct.pack("<BBH", *entry) for entry in types]
        parts += [struct.pack("<Q", len(tags)), *map(text, tags), struct.pack("<Q", 0)]
    return b"".join([*parts, text(source)])


def load_kernels(
    kernels: dict[str, str],
    *,
    arguments: Sequence[tuple[int, int, int]] = (MEMORY, MEMORY),
    tags: Sequence[str] = ("blockIdx.x", "threadIdx.x"),
):
    """A module whose kernels are given as OpenCL C; all have the same arguments and axes."""
    import tvm_ffi

    source = "".join(f"// Function: {name}\n{body}\n" for name, body in kernels.items())
    data = serialised_module(source, dict.fromkeys(kernels, arguments), tags)
    return tvm_ffi.get_global_func("ffi.Module.load_from_bytes.opencl")(data)


def pointer(tensor) -> ctypes.c_void_p:
    """A tensor as TVM's host code passes it to a kernel."""
    return ctypes.c_void_p(tensor.data_ptr())
