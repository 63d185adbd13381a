"""What becomes of hints to drivers, on the counting OpenCL library: `hint_cases.py LIBRARY`.

A process of its own, because one process opens one OpenCL library.
"""

import json
import sys
from typing import Any

import tvm
import tvm_ffi
from counting import OUT_OF_RESOURCES, Stub

from adrenoc import native
from adrenoc.native import opencl

PLAIN, HINTS, PRIORITIES, DEAF, DEAF_PRIORITIES = 0, 5, 6, 7, 8


def use(stub: Stub, number: int, performance: str, priority: str) -> dict[str, Any]:
    """Use a device for the first time with these hints."""
    tvm_ffi.get_global_func("adrenoc.opencl.set_hints")(performance, priority)
    tvm.runtime.empty((4,), "float32", tvm.runtime.device("opencl", number))
    return {"properties": stub.properties(), "uses": uses(number)}


def uses(number: int) -> list[dict[str, str]]:
    return list(json.loads(tvm_ffi.get_global_func("adrenoc.opencl.hints")(number)))


def main(library: str) -> None:
    native.load()
    tvm_ffi.get_global_func("adrenoc.opencl.set_library")(library)
    stub = Stub(library)
    found: dict[str, Any] = {"unset": use(stub, 1, "", "")}
    found["both"] = use(stub, HINTS, "high", "low")
    found["standard"] = use(stub, PRIORITIES, "normal", "low")
    with opencl.profile_kernels(PRIORITIES):
        found["profiled"] = stub.properties()
    found["none"] = use(stub, PLAIN, "low", "high")
    with stub.failing("context properties"):
        found["deaf"] = use(stub, DEAF, "high", "normal")
    with stub.failing("clCreateCommandQueueWithProperties", OUT_OF_RESOURCES):
        found["deaf standard"] = use(stub, DEAF_PRIORITIES, "", "high")
    tvm_ffi.get_global_func("adrenoc.opencl.set_hints")("low", "low")
    found["late"] = uses(HINTS)
    try:
        tvm_ffi.get_global_func("adrenoc.opencl.set_hints")("fast", "")
    except ValueError as error:
        found["wrong"] = str(error)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
