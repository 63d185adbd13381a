"""What runs do on the counting OpenCL library, as JSON: `python launch_cases.py LIBRARY`.

A process of its own, because one process opens one OpenCL library.
"""

import json
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from counting import Stub

from adrenoc import native
from tests.native.opencl_source import INT32, MEMORY, load_kernels, pointer

STEPS = 6
STEPS_BEFORE = (0, 2, 2, 5)
PLAIN, BUFFERS, EXCLUSIVE, RECORDABLE, BOTH = range(5)
ENTRIES = {
    BUFFERS: (
        "clCreateCommandBufferKHR",
        "clCommandNDRangeKernelKHR",
        "clFinalizeCommandBufferKHR",
        "clEnqueueCommandBufferKHR",
        "clCreateCommandBufferKHR?",
        "clReleaseCommandBufferKHR?",
        "clCommandNDRangeKernelKHR?",
        "clFinalizeCommandBufferKHR?",
        "clEnqueueCommandBufferKHR?",
    ),
    RECORDABLE: (
        "clNewRecordingQCOM",
        "clEndRecordingQCOM",
        "clEnqueueRecordingQCOM",
        "clCreateCommandQueue",
        "clNewRecordingQCOM?",
        "clEndRecordingQCOM?",
        "clReleaseRecordingQCOM?",
        "clEnqueueRecordingQCOM?",
    ),
}


class Net:
    """A chain of launches on fresh memory, as a virtual machine makes them."""

    def __init__(
        self,
        number: int,
        *,
        steps: int = STEPS,
        copied: bool = False,
        between=None,
        name: str = "step",
        text: str = "",
    ) -> None:
        self.number, self.steps, self.copied = number, steps, copied
        self.between = between
        """What is done before each of `STEPS_BEFORE`, as by the CPU or OpenCL ML."""
        self.device = tvm.runtime.device("opencl", number)
        self.kernel = load_kernels({name: text}, arguments=(MEMORY, MEMORY, INT32))[name]
        self.input = tvm.runtime.tensor(np.zeros(64, "float32"), self.device)

    def __call__(self, tensor):
        tvm_ffi.get_global_func("__tvm_set_device")(self.device.dlpack_device_type(), self.number)
        for step in range(self.steps):
            made = tvm.runtime.empty((64,), "float32", self.device)
            for _ in range(STEPS_BEFORE.count(step) if self.between else 0):
                function("step")(tvm_ffi.convert(self.between), tensor)
            self.kernel(pointer(tensor), pointer(made), step, 4, 16)
            if self.copied and step == self.steps - 1:
                made.numpy()
            tensor = made
        return tensor

    def bind(self, recording: str):
        return function("bind_run")(tvm_ffi.convert(self), "", self.number, recording, self.input)


def function(name: str):
    return tvm_ffi.get_global_func(f"adrenoc.opencl.{name}")


def report(bound) -> dict[str, Any]:
    return json.loads(bound["report"]())


class Bound:
    """A run of a chain that is bound to its input."""

    def __init__(self, stub: Stub, number: int, recording: str = "always", **net) -> None:
        self._stub, self.net = stub, Net(number, **net)
        self.run = self.net.bind(recording)

    def once(self) -> dict[str, Any]:
        """A run and its wait; what it computed and how."""
        self._stub.log()
        self.run["run"]()
        self.net.device.sync()
        return {"log": self._stub.log(), **report(self.run)}

    def often(self, count: int) -> list[Any]:
        return [self.once() for _ in range(count)]


def runs(stub: Stub, number: int, recording: str, count: int = 8, **net) -> list[Any]:
    return Bound(stub, number, recording, **net).often(count)


def modes(stub: Stub):
    return {
        f"{number} {recording}": runs(stub, number, recording)
        for number in range(5)
        for recording in ("best", "always", "kept", "off")
    }


def failures(stub: Stub):
    """Each entry point fails from the second run on; then all work again."""
    found = {}
    for number, names in ENTRIES.items():
        for name in names:
            bound = Bound(stub, number)
            said = bound.often(1)
            with stub.failing(name):
                said += bound.often(2)
            found[name] = [*said, bound.once()]
    return found


def failing_kernels(stub: Stub):
    """Without kernel objects of its own a run goes through the virtual machine."""
    bound = Bound(stub, PLAIN)
    said = bound.once()
    with stub.failing("clCreateKernel"):
        return [said, bound.once()]


def failing_launches(stub: Stub):
    """A device that takes nothing: the caller gets an error, and later a run again."""
    bound = Bound(stub, PLAIN)
    said = bound.often(2)
    with stub.failing("clEnqueueNDRangeKernel"):
        try:
            bound.run["run"]()
            error = ""
        except RuntimeError as raised:
            error = str(raised)
    return [*said, error, bound.once()]


def failing_in_a_trial(stub: Stub):
    bound = Bound(stub, BUFFERS, "best")
    said = bound.often(3)
    with stub.failing("clEnqueueCommandBufferKHR"):
        return said + bound.often(2)


def slow_recordings(stub: Stub):
    stub.slow(3000)
    try:
        return {str(number): runs(stub, number, "best") for number in (BUFFERS, BOTH)}
    finally:
        stub.slow(0)


def released(stub: Stub):
    """Objects that are left when a bound run of each kind is gone."""
    found = {}
    for number in range(5):
        net = Net(number)
        net(net.input)
        function("release_pool")(number)
        before = stub.live()
        bound = net.bind("always")
        for _ in range(4):
            bound["run"]()
            net.device.sync()
        held = stub.live() - before
        del bound
        function("release_pool")(number)
        found[str(number)] = [held, stub.live() - before]
    return found


def held_outputs(stub: Stub):
    bound = Bound(stub, BUFFERS)
    said = []
    kept = None
    for _ in range(3):
        stub.log()
        kept = bound.run["run"]()
        said.append({"log": stub.log(), **report(bound.run)})
    kept = None
    return [*said, bound.once(), kept]


def profiled(stub: Stub):
    """A profile in the midst of recorded runs, which exchanges the queue twice."""
    bound = Bound(stub, BUFFERS)
    said = bound.often(3)
    function("profile_start")(BUFFERS)
    said += bound.often(1)
    launches = json.loads(function("profile_stop")(BUFFERS))
    return {"runs": said + bound.often(1), "launches": launches}


def stepped(stub: Stub):
    """Runs that do more than launch: each way, then another argument, then a step that fails."""
    mark = load_kernels({"mark": ""}, arguments=(MEMORY, MEMORY, INT32))["mark"]
    failing: list[int] = []

    def between(tensor) -> None:
        if failing.pop() if failing else 0:
            raise ValueError("the step failed")
        mark(pointer(tensor), pointer(tensor), 0, 1, 1)

    found: dict[str, Any] = {}
    for number, recording in ((0, "best"), (1, "kept"), (1, "always"), (1, "best"), (3, "always")):
        bound = Bound(stub, number, recording, between=between)
        net = bound.net
        del bound.run
        net(net.input)
        function("release_pool")(number)
        before = stub.live()
        bound.run = net.bind(recording)
        said = bound.often(8)
        bound.run["rebind"](0, tvm.runtime.tensor(np.zeros(64, "float32"), net.device))
        said += bound.often(2)
        failing[:] = [1, 0]  # the second step of the next run
        said += bound.often(2)
        del bound
        function("release_pool")(number)
        found[f"{number} {recording}"] = {"runs": said, "left": stub.live() - before}
    return found


def obstacles(stub: Stub):
    bound = Bound(stub, BUFFERS, "best", copied=True)
    set_calls, copies = [], []
    for _ in range(4):
        before = stub.calls("clSetKernelArg")
        copies.append(bound.once())
        set_calls.append(stub.calls("clSetKernelArg") - before)
    return {"copies": copies, "set": set_calls, "nothing": runs(stub, BUFFERS, "best", 3, steps=0)}


def forgotten(stub: Stub):
    bound = Bound(stub, BUFFERS)
    said = bound.often(2)
    bound.run["forget"]()
    return said + bound.often(2)


def rebound(stub: Stub):
    """The input is another tensor for two runs, then the first again for many."""
    bound = Bound(stub, BUFFERS, "best")
    device, first = bound.net.device, bound.net.input
    other = tvm.runtime.tensor(np.zeros(64, "float32"), device)
    said = bound.often(6)
    for tensor in (other, first):
        before = stub.calls("clSetKernelArg")
        bound.run["rebind"](0, tensor)
        bound.run["rebind"](0, tensor)
        said.append({"set": stub.calls("clSetKernelArg") - before})
        said += bound.often(2)
    said += bound.often(2)
    with_wrong_shape = tvm.runtime.tensor(np.zeros(32, "float32"), device)
    errors = []
    for index, tensor in ((0, with_wrong_shape), (1, first)):
        try:
            bound.run["rebind"](index, tensor)
        except ValueError as error:
            errors.append(str(error))
    return {"runs": said, "errors": errors}


def flushes(stub: Stub):
    """Flushes of one run, by how it is launched."""
    found = {}
    for recording in ("off", "kept", "always"):
        bound = Bound(stub, BUFFERS, recording, steps=60)
        bound.often(2)
        before = stub.calls("clFlush")
        bound.once()
        found[recording] = stub.calls("clFlush") - before
    return found


def kept_arguments(stub: Stub):
    """Arguments that plain launches set: at first, again the same, one other scalar, new memory."""
    net = Net(PLAIN)
    other = tvm.runtime.tensor(np.zeros(64, "float32"), net.device)
    counts = []

    def launch(target, step: int) -> None:
        before = stub.calls("clSetKernelArg")
        net.kernel(pointer(net.input), pointer(target), step, 4, 16)
        counts.append(stub.calls("clSetKernelArg") - before)

    launch(other, 1)
    launch(other, 1)
    launch(other, 2)
    del other
    function("release_pool")(PLAIN)
    # Most likely it gets the address that the other one had.
    launch(tvm.runtime.tensor(np.zeros(64, "float32"), net.device), 2)
    with stub.failing("clSetKernelArg"):
        try:
            launch(net.input, 2)
        except RuntimeError as error:
            counts.append(str(error))
    launch(net.input, 2)
    return counts


def two_threads(stub: Stub):
    """Runs of two threads on one device: what each of them made per run."""
    bound = [net.bind("always") for net in [Net(BUFFERS), Net(BUFFERS, steps=STEPS + 1)]]
    found: list[list[int]] = [[], []]

    def work(index: int) -> None:
        for _ in range(200):
            bound[index]["run"]()
            found[index].append(report(bound[index])["launches"])

    stub.log()
    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"launches": [sorted(set(counts)) for counts in found]}


CASES: tuple[Callable[[Stub], Any], ...] = (
    modes,
    failures,
    failing_kernels,
    failing_launches,
    failing_in_a_trial,
    slow_recordings,
    released,
    held_outputs,
    profiled,
    stepped,
    obstacles,
    forgotten,
    rebound,
    flushes,
    kept_arguments,
    two_threads,
)


def main(library: str) -> None:
    native.load()
    tvm_ffi.get_global_func("adrenoc.opencl.set_library")(library)
    stub = Stub(library)
    print(json.dumps({case.__name__: case(stub) for case in CASES}))


if __name__ == "__main__":
    main(sys.argv[1])
