"""Runs a bundle by the C API in a process that has imported TVM before.

    python beside_program.py LIBRARY BUNDLE OPENCL FILE...

A file of raw bytes for each input in order, and behind them one for each output, of its size.
Prints what TVM's own tensors still hold afterwards.
"""

import ctypes
import sys
from pathlib import Path

import tvm


class Options(ctypes.Structure):
    """The first fields of `adrenoc_options`."""

    _fields_ = (
        ("struct_bytes", ctypes.c_uint32),
        ("trust_files", ctypes.c_uint32),
        ("device", ctypes.c_char_p),
        ("opencl_library", ctypes.c_char_p),
    )


def main(library: str, bundle: str, opencl: str, *files: str) -> None:
    runtime = ctypes.CDLL(library)
    runtime.adrenoc_last_error.restype = ctypes.c_char_p
    runtime.adrenoc_input_count.restype = ctypes.c_size_t
    runtime.adrenoc_input_count.argtypes = [ctypes.c_void_p]

    def need(status: int) -> None:
        if status != 0:
            sys.exit(runtime.adrenoc_last_error().decode())

    options = Options(ctypes.sizeof(Options), 0, None, opencl.encode())
    model = ctypes.c_void_p()
    need(runtime.adrenoc_load(bundle.encode(), ctypes.byref(options), ctypes.byref(model)))
    count = runtime.adrenoc_input_count(model)
    given = [Path(file).read_bytes() for file in files[:count]]
    for place, content in enumerate(given):
        size = ctypes.c_size_t(len(content))
        need(runtime.adrenoc_bind_input(model, ctypes.c_size_t(place), content, size))
    made = [ctypes.create_string_buffer(Path(file).stat().st_size) for file in files[count:]]
    for place, memory in enumerate(made):
        size = ctypes.c_size_t(len(memory))
        need(runtime.adrenoc_bind_output(model, ctypes.c_size_t(place), memory, size))
    for _ in range(3):
        need(runtime.adrenoc_run(model))
    for file, memory in zip(files[count:], made, strict=True):
        Path(file).write_bytes(memory.raw)
    runtime.adrenoc_free(model)
    print(tvm.runtime.tensor([7]).numpy()[0])


main(*sys.argv[1:])
