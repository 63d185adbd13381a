"""Launch again, on one library of OpenCL, what `record_launches.cc` wrote down.

    python replay_launches.py LIBRARY FOLDER...

A line of JSON for each launch: how far its outputs are from those that were written down, over
their range, or why it could not be launched.  Before each, its folder is named on standard error,
where a simulator complains.  In a process of its own, without TVM: two LLVMs in one process do not
get on with each other.
"""

import ctypes
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

MARK = "@@ "
OPTIONS = b"-cl-std=CL1.2 -D__OPENCL_C_VERSION__=200 -w"
"""Pointers of 2.0 without an address space are not simulated; its way to read images is."""
_BUFFER, _ARRAY = 0x10F0, 0x10F3
_READ_WRITE, _COPY = 1 << 0, 1 << 5
_BUILD_LOG, _ALL_DEVICES = 0x1183, 0xFFFFFFFF
_OF_CHANNEL = {0x10DD: "float16", 0x10DE: "float32", 0x10D2: "uint8"}
_OF_POINTER = {"float": "float32", "half": "float16", "int": "int32", "uint": "uint32"}
_POINTER = re.compile(r"\b(float|half|int|uint|char|uchar)\d*\s*\*")


class _Description(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_uint32),
        *(
            (name, ctypes.c_size_t)
            for name in ("width", "height", "depth", "layers", "row", "slice")
        ),
        ("levels", ctypes.c_uint32),
        ("samples", ctypes.c_uint32),
        ("memory", ctypes.c_void_p),
    )


class Device:
    """The first device of a library, with a queue.

    Raises:
        RuntimeError: OpenCL answered an error; the message has its number.
    """

    def __init__(self, library: str) -> None:
        self._cl = ctypes.CDLL(library)
        platform, device = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("clGetPlatformIDs", 1, ctypes.byref(platform), None)
        kind = ctypes.c_uint64(_ALL_DEVICES)
        self._call("clGetDeviceIDs", platform, kind, 1, ctypes.byref(device), None)
        self._device = device
        self._context = self._make("clCreateContext", None, 1, ctypes.byref(device), None, None)
        self._queue = self._make("clCreateCommandQueue", self._context, device, ctypes.c_uint64(0))

    def build(self, text: str, name: str) -> ctypes.c_void_p:
        """A kernel of a program's text."""
        encoded = ctypes.c_char_p(text.encode())
        program = self._make(
            "clCreateProgramWithSource", self._context, 1, ctypes.byref(encoded), None
        )
        try:
            self._call("clBuildProgram", program, 0, None, OPTIONS, None, None)
        except RuntimeError as error:
            log = ctypes.create_string_buffer(4096)
            self._cl.clGetProgramBuildInfo(
                program, self._device, _BUILD_LOG, ctypes.c_size_t(len(log)), log, None
            )
            raise RuntimeError(f"{error}: {log.value.decode(errors='replace')}") from error
        return self._make("clCreateKernel", program, name.encode())

    def put(self, memory: dict[str, Any], content: np.ndarray) -> ctypes.c_void_p:
        """A buffer or an image that holds `content`, an array of bytes."""
        flags, data = ctypes.c_uint64(_READ_WRITE | _COPY), content.ctypes.data_as(ctypes.c_void_p)
        if memory["type"] == _BUFFER:
            bytes_ = ctypes.c_size_t(content.nbytes)
            return self._make("clCreateBuffer", self._context, flags, bytes_, data)
        format_ = (ctypes.c_uint32 * 2)(memory["order"], memory["channel"])
        told = _Description(type=memory["type"], width=memory["width"], height=memory["height"])
        told.layers = memory["layers"] if memory["type"] == _ARRAY else 0
        return self._make("clCreateImage", self._context, flags, format_, ctypes.byref(told), data)

    def get(self, memory: dict[str, Any], handle: ctypes.c_void_p, bytes_: int) -> np.ndarray:
        """What a buffer or an image holds, as bytes."""
        content = np.empty(bytes_, np.uint8)
        data, nothing = content.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(0)
        if memory["type"] == _BUFFER:
            size, ends = ctypes.c_size_t(bytes_), (0, None, None)
            self._call("clEnqueueReadBuffer", self._queue, handle, 1, nothing, size, data, *ends)
            return content
        region = _sizes(memory["width"], memory["height"] or 1, memory["layers"] or 1)
        self._call(
            "clEnqueueReadImage",
            *(self._queue, handle, 1, _sizes(0, 0, 0), region, nothing, nothing),
            *(data, 0, None, None),
        )
        return content

    def set(self, kernel: ctypes.c_void_p, place: int, bytes_: int, value: object) -> None:
        """Give a kernel an argument; None for local memory."""
        self._call("clSetKernelArg", kernel, place, ctypes.c_size_t(bytes_), value)

    def launch(self, kernel: ctypes.c_void_p, extent: list[int], group: list[int]) -> None:
        """Run a kernel to its end."""
        local = _sizes(*group) if group else None
        ends = (0, None, None)
        self._call(
            "clEnqueueNDRangeKernel",
            *(self._queue, kernel, len(extent), None, _sizes(*extent), local, *ends),
        )
        self._call("clFinish", self._queue)

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._cl, name)(*arguments)
        if code:
            raise RuntimeError(f"{name} answered {code}")

    def _make(self, name: str, *arguments: object) -> ctypes.c_void_p:
        function, code = getattr(self._cl, name), ctypes.c_int32()
        function.restype = ctypes.c_void_p
        made = function(*arguments, ctypes.byref(code))
        if code.value or not made:
            raise RuntimeError(f"{name} answered {code.value}")
        return ctypes.c_void_p(made)


def replay(device: Device, folder: Path) -> float:
    """Launch it; the largest difference of what it wrote, over the range.

    Raises:
        RuntimeError: it could not be built or launched.
    """
    told = json.loads((folder / "launch.json").read_text())
    text, arguments = (folder / "kernel.cl").read_text(), told["arguments"]
    kernel = device.build(text, told["kernel"])
    handles: dict[int, ctypes.c_void_p] = {}
    for place, argument in enumerate(arguments):
        if (memory := argument.get("memory")) is not None:
            if memory["first"] == place:
                content = np.fromfile(folder / f"{place}.before", np.uint8)
                handles[place] = device.put(memory, content)
            handle = handles[memory["first"]]
            device.set(kernel, place, ctypes.sizeof(handle), ctypes.byref(handle))
        else:
            value = None if "local" in argument else bytes.fromhex(argument["value"])
            device.set(kernel, place, argument["bytes"], value)
    device.launch(kernel, told["global"], told["local"])
    types = find_types(text, told["kernel"], arguments)
    off = 0.0
    for place, handle in handles.items():
        expected = np.fromfile(folder / f"{place}.after", np.uint8)
        seen = device.get(arguments[place]["memory"], handle, expected.nbytes)
        off = max(off, compare(expected, seen, types[place]))
    return off


def find_types(text: str, kernel: str, arguments: list[dict[str, Any]]) -> list[str]:
    """The type of the numbers in each argument's memory: an image's by itself, else the text's."""
    found = re.search(rf"\b{re.escape(kernel)}\(([^)]*)\)\s*\{{", text)
    words = found[1].split(",") if found else []
    types = []
    for place, argument in enumerate(arguments):
        channel = argument.get("memory", {}).get("channel", 0)
        pointer = _POINTER.search(words[place]) if place < len(words) else None
        of_pointer = _OF_POINTER.get(pointer[1], "uint8") if pointer else "uint8"
        types.append(_OF_CHANNEL.get(channel, of_pointer))
    return types


def compare(expected: np.ndarray, seen: np.ndarray, kind: str) -> float:
    """The largest difference of two arrays of bytes, over the range of the first, as numbers.

    What is the same bit for bit, NaN among it, does not differ; infinite where one is no number.
    """
    if np.array_equal(expected, seen) or expected.nbytes % np.dtype(kind).itemsize:
        return 0.0 if np.array_equal(expected, seen) else float("inf")
    first, second = expected.view(kind), seen.view(kind)
    differs = ~((first == second) | (np.isnan(first) & np.isnan(second)))
    if not differs.any():
        return 0.0
    numbers = first[np.isfinite(first)].astype(np.float64)
    size = float(max(np.ptp(numbers), np.abs(numbers).max())) if numbers.size else 0.0
    apart = np.abs(first[differs].astype(np.float64) - second[differs].astype(np.float64)).max()
    return float(apart / size) if size and np.isfinite(apart) else float("inf")


def _sizes(*values: int) -> ctypes.Array[ctypes.c_size_t]:
    return (ctypes.c_size_t * len(values))(*values)


def main() -> None:
    device = Device(sys.argv[1])
    for folder in map(Path, sys.argv[2:]):
        print(f"{MARK}{folder.name}", file=sys.stderr, flush=True)
        row: dict[str, object] = {"launch": folder.name}
        try:
            row["off"] = replay(device, folder)
        except RuntimeError as error:
            row["refused"] = str(error)
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
