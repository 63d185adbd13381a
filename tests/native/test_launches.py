"""How runs are repeated, on a counting OpenCL library: in each way and with each failure."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi

from adrenoc.native import opencl
from tests.native.launch_cases import BUFFERS, ENTRIES, RECORDABLE, STEPS, Net, function, report

HERE = Path(__file__).parent
MACHINE, KEPT = "the virtual machine", "kept arguments"
BUFFER, QUEUE = "a command buffer", "a recordable queue"
WAYS = {BUFFERS: BUFFER, RECORDABLE: QUEUE}
NO_BUFFERS = f"{BUFFER}: the device has no cl_khr_command_buffer"
NO_QUEUES = f"{QUEUE}: the device has no cl_qcom_recordable_queues"


@pytest.fixture(scope="module")
def cases(counted) -> dict[str, Any]:
    return counted("launch_cases.py")


def _check_logs(runs: list[dict[str, Any]]) -> None:
    """All runs launch the same; those that are replayed also on the same memory."""
    assert runs[0]["log"].count("step") == STEPS
    for run in runs:
        assert run["launches"] == STEPS
        if run["mode"] != MACHINE:
            assert run["log"] == runs[0]["log"]


# --- each way of launching ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "mode", "reason", "calls"),
    [
        ("0 best", KEPT, f"{NO_QUEUES}; {NO_BUFFERS}", STEPS),
        ("0 kept", KEPT, "recording was not asked for", STEPS),
        ("0 off", MACHINE, "it was not asked for", None),
        ("1 always", BUFFER, "", 1),
        ("1 best", BUFFER, "", 1),
        ("1 kept", KEPT, "recording was not asked for", STEPS),
        # A buffer that cannot be given again before it has run: waits for it, releases the event.
        ("2 always", BUFFER, "", 3),
        # The device records four launches at a time.
        ("3 always", QUEUE, "", 2),
        ("3 best", QUEUE, "", 2),
        ("4 always", QUEUE, "", 2),
        ("4 off", MACHINE, "it was not asked for", None),
    ],
)
def test_runs_in_each_mode(cases, case, mode, reason, calls):
    runs = cases["modes"][case]
    _check_logs(runs)
    assert runs[0]["mode"] == MACHINE
    assert (runs[-1]["mode"], runs[-1]["reason"]) == (mode, reason)
    if calls is not None:
        assert runs[-1]["api_calls"] == calls
        assert runs[0]["api_calls"] > 4 * STEPS
        assert runs[0]["reason"] == "the first run"
    assert runs[-1]["host_ms"] > 0


def test_the_second_run_is_recorded_unless_ways_are_tried(cases):
    assert [run["mode"] for run in cases["modes"]["1 always"]] == [MACHINE] + 7 * [BUFFER]
    tried = cases["modes"]["1 best"]
    assert [run["mode"] for run in tried] == [MACHINE, KEPT, KEPT] + 5 * [BUFFER]
    assert {run["reason"] for run in tried[1:5]} == {"the ways to launch are being tried"}


def test_recordings_that_take_longer_are_not_used(cases):
    for number, ways in (("1", [BUFFER]), ("4", [QUEUE, BUFFER])):
        runs = cases["slow_recordings"][number]
        _check_logs(runs)
        assert runs[-1]["mode"] == KEPT
        said = runs[-1]["reason"].split("; ")
        assert len(said) == len(ways)
        for way, reason in zip(ways, said, strict=True):
            assert reason.startswith(f"{way}: a run took ")
            assert " ms, by plain launches 0." in reason


# --- failures -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "way"), [(name, WAYS[number]) for number, names in ENTRIES.items() for name in names]
)
def test_an_entry_point_that_fails(cases, entry, way):
    runs = cases["failures"][entry]
    _check_logs(runs)
    assert [run["mode"] for run in runs] == [MACHINE, KEPT, KEPT, KEPT]
    said = f"{entry} failed with CL_OUT_OF_RESOURCES"
    if entry.endswith("?"):
        said = f"the driver has no {entry[:-1]}"
    assert f"{way}: {said}" in runs[-1]["reason"]


def test_every_entry_point_was_made_to_fail():
    source = HERE.parents[1] / "adrenoc" / "native" / "src" / "opencl/cl_extensions.def"
    # Those of runs that are recorded; tests/runtime/test_device_memory.py has the others.
    names = re.findall(r'ADRENOC_CL_(?:COMMAND_BUFFER|RECORDING)\(\w+, "(\w+)"', source.read_text())
    assert len(names) == 9
    assert {f"{name}?" for name in names} <= {name for some in ENTRIES.values() for name in some}


def test_no_kernel_objects_are_left(cases):
    runs = cases["failing_kernels"]
    assert runs[-1]["mode"] == MACHINE
    assert runs[-1]["reason"] == "clCreateKernel failed with CL_OUT_OF_RESOURCES"
    assert runs[-1]["log"].count("step") == STEPS


def test_a_device_that_fails_is_an_error_and_may_come_back(cases):
    *_, error, after = cases["failing_launches"]
    assert error.startswith(
        "Launch of kernel step: clEnqueueNDRangeKernel failed with CL_OUT_OF_RESOURCES"
    )
    assert after["log"].count("step") == STEPS
    assert after["mode"] == MACHINE
    assert after["reason"].startswith("Launch of kernel step")


def test_a_failure_in_a_trial(cases):
    runs = cases["failing_in_a_trial"]
    _check_logs(runs)
    assert runs[-1]["mode"] == KEPT
    assert runs[-1]["reason"] == (
        f"{BUFFER}: clEnqueueCommandBufferKHR failed with CL_OUT_OF_RESOURCES"
    )


def test_nothing_is_left_behind(cases):
    assert len(cases["released"]) == 5
    for held, left in cases["released"].values():
        assert held >= 2 * STEPS  # a kernel and a buffer a launch
        assert left == 0


# --- what breaks a recording --------------------------------------------------------------------


def test_outputs_that_a_caller_holds_are_not_overwritten(cases):
    first, second, third, fourth, _ = cases["held_outputs"]
    assert second["reason"] == "the outputs of the run before are still held"
    assert second["log"].splitlines()[-1] != first["log"].splitlines()[-1]
    # What is held then came from the virtual machine.
    assert third["log"] == fourth["log"] == first["log"]
    assert [third["mode"], fourth["mode"]] == [BUFFER, BUFFER]


def test_a_profile_among_recorded_runs(cases):
    runs = cases["profiled"]["runs"]
    _check_logs(runs)
    assert [run["mode"] for run in runs] == [MACHINE, BUFFER, BUFFER, KEPT, BUFFER]
    assert cases["profiled"]["launches"] == [["step", 1000, 2000]] * STEPS


def test_work_between_the_launches(cases):
    copied = cases["obstacles"]["copies"]
    _check_logs(copied)
    assert {run["mode"] for run in copied} == {MACHINE}
    assert copied[-1]["reason"].startswith("tensors are copied between its launches")
    # One kernel launched several times: after the first run each launch has an object of its own,
    # and after the second its arguments are there.
    assert cases["obstacles"]["set"][1:] == [3 * STEPS, 0, 0]
    assert cases["obstacles"]["nothing"][-1]["reason"] == "it launches no kernel"


@pytest.mark.parametrize(
    ("case", "mode", "commands"),
    [
        ("0 best", KEPT, STEPS),
        ("1 kept", KEPT, STEPS),
        ("1 always", BUFFER, 3),
        ("1 best", BUFFER, 3),
        # The device records four launches at a time.
        ("3 always", QUEUE, 3),
    ],
)
def test_each_part_between_steps_is_recorded(cases, case, mode, commands):
    """Steps before the first launch, two before the third, one before the last."""
    runs, marks = cases["stepped"][case]["runs"], 4
    names = [line.split()[0] for line in runs[0]["log"].splitlines()]
    assert names == ["mark", *2 * ["step"], "mark", "mark", *3 * ["step"], "mark", "step"]
    for run in runs[:8]:
        assert run["launches"] == STEPS + marks
        assert run["log"] == runs[0]["log"]
    assert [runs[0]["mode"], runs[7]["mode"]] == [MACHINE, mode]
    # A step launches a kernel, and sets its two arguments where they are not those of the last.
    assert runs[7]["api_calls"] == commands + marks + 2 * (marks - 1)


@pytest.mark.parametrize("case", ["0 best", "1 kept", "1 always", "3 always"])
def test_steps_that_change_or_fail(cases, case):
    rebound, replayed, failed, after = cases["stepped"][case]["runs"][8:]
    assert [rebound["mode"], rebound["reason"]] == [MACHINE, "the first run"]
    assert replayed["mode"] != MACHINE
    assert rebound["log"] == replayed["log"] != cases["stepped"][case]["runs"][0]["log"]
    for run in (failed, after):
        names = [line.split()[0] for line in run["log"].splitlines()]
        assert names[-10:].count("step") == STEPS
    assert cases["stepped"][case]["left"] == 0
    if replayed["mode"] == KEPT:
        assert [failed["mode"], after["mode"]] == [MACHINE, MACHINE]
    else:  # from the start, by plain launches
        assert [failed["mode"], after["mode"]] == [KEPT, KEPT]
    assert "the step failed" in after["reason"]


def test_a_recording_that_is_forgotten(cases):
    runs = cases["forgotten"]
    assert [run["mode"] for run in runs] == [MACHINE, BUFFER, MACHINE, BUFFER]
    assert runs[3]["log"] == runs[2]["log"]


def test_an_argument_that_is_bound_to_other_memory(cases):
    runs = cases["rebound"]["runs"]
    before, changed, again = runs[:6], runs[6:9], runs[9:]
    assert before[-1]["mode"] == BUFFER
    # One launch reads the input.
    assert changed[0] == again[0] == {"set": 1}
    assert [run["mode"] for run in changed[1:]] == [KEPT, KEPT]
    assert changed[1]["reason"] == "an argument was bound to other memory"
    old, new = (runs[i]["log"].splitlines() for i in (5, 7))
    assert new[0] != old[0]
    assert new[1:] == old[1:]
    assert {run["log"] for run in again[1:]} == {before[-1]["log"]}
    # Without another trial.
    assert [run["mode"] for run in again[1:]] == [KEPT, KEPT, BUFFER, BUFFER]
    assert cases["rebound"]["errors"] == [
        "Argument 0 of a run can only be bound to a tensor of the same shape, dtype and kind of "
        "memory",
        "A run has no tensor as argument 1",
    ]


def test_two_threads_launch_what_is_theirs(cases):
    assert cases["two_threads"]["launches"] == [[STEPS], [STEPS + 1]]


# --- fewer calls --------------------------------------------------------------------------------


def test_launches_are_flushed_in_batches(cases):
    assert cases["flushes"] == {"off": 60 // 24, "kept": 60 // 24, "always": 1}


def test_plain_launches_set_what_has_changed(cases):
    assert cases["kept_arguments"] == [
        3,
        0,
        1,  # another scalar
        1,  # other memory
        "Argument 1 of kernel step: clSetKernelArg failed with CL_OUT_OF_RESOURCES "
        "for a buffer of 256 bytes",
        1,  # what failed was not kept
    ]


# Each step depends on the one before, and on its own number.
REAL = {
    "name": "next_of",
    "text": """
__kernel void next_of(__global const float* a, __global float* b, int n) {
  int i = get_global_id(0);
  b[i] = a[63 - i] * 1.25f + (float)n;
}""",
}


@pytest.mark.parametrize("recording", ["best", "always", "kept"])
def test_replays_compute_what_the_first_run_computes(device, recording):
    net = Net(0, **REAL)
    plain, bound = net.bind("off"), net.bind(recording)
    random = np.random.default_rng(7)
    for _ in range(8):
        net.input.copyfrom(random.standard_normal(64).astype("float32"))
        expected = plain["run"]().numpy()
        np.testing.assert_array_equal(bound["run"]().numpy(), expected)
    mode = report(bound)["mode"]
    assert mode == KEPT if recording == "kept" else mode in (KEPT, BUFFER)


def test_runs_in_a_queue_do_not_get_in_each_others_way(device):
    net = Net(0, **REAL)
    bound = net.bind("always")
    net.input.copyfrom(np.arange(64, dtype="float32"))
    expected = bound["run"]().numpy()
    for _ in range(30):
        bound["run"]()
    np.testing.assert_array_equal(bound["run"]().numpy(), expected)


@pytest.mark.parametrize("recording", ["always", "kept"])
def test_numbers_of_an_input_that_is_bound_to_other_memory(device, recording):
    net = Net(0, **REAL)
    plain, bound = net.bind("off"), net.bind(recording)
    random = np.random.default_rng(11)
    for _ in range(3):
        tensor = tvm.runtime.tensor(random.standard_normal(64).astype("float32"), device)
        plain["rebind"](0, tensor)
        bound["rebind"](0, tensor)
        for _ in range(4):
            expected = plain["run"]().numpy()
            np.testing.assert_array_equal(bound["run"]().numpy(), expected)


def test_an_input_that_is_an_output(device):
    """What is given back is the memory that is bound, in every run."""
    net = Net(0, **REAL)

    def passing(tensor):
        return tvm_ffi.convert([tensor, net(tensor)])

    net.input.copyfrom(np.arange(64, dtype="float32"))
    bound = function("bind_run")(tvm_ffi.convert(passing), "", 0, "always", net.input)
    other = tvm.runtime.tensor(np.full(64, 3, "float32"), device)
    for tensor in (net.input, other):
        bound["rebind"](0, tensor)
        for _ in range(3):
            given, made = bound["run"]()
            np.testing.assert_array_equal(given.numpy(), tensor.numpy())
            np.testing.assert_array_equal(made.numpy(), net(tensor).numpy())
            del given, made


def test_an_unknown_way_to_record(device):
    with pytest.raises(ValueError, match=r'recording is "fast", expected best, always, kept'):
        Net(0, **REAL).bind("fast")


def test_numbers_on_pocl(device):
    found = opencl.devices()
    numbers = [n for n, facts in enumerate(found) if "Portable" in facts["platform"]]
    if not numbers:
        pytest.skip("PoCL is not installed (apt-get install pocl-opencl-icd)")
    set_device = tvm_ffi.get_global_func("__tvm_set_device")
    set_device(device.dlpack_device_type(), numbers[0])
    try:
        net = Net(numbers[0], **REAL)
        bound = net.bind("always")
        net.input.copyfrom(np.arange(64, dtype="float32"))
        expected = bound["run"]().numpy()
        for _ in range(3):
            np.testing.assert_array_equal(bound["run"]().numpy(), expected)
        said = report(bound)
        has_buffers = "cl_khr_command_buffer" in found[numbers[0]]["extensions"]
        assert said["mode"] == (BUFFER if has_buffers else KEPT), said
    finally:
        set_device(device.dlpack_device_type(), 0)
