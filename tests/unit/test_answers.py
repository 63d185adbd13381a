"""What functions of a server answer is held against its form before anything reads it."""

import json
import math

import pytest

from adrenoc.device.answers import WrongAnswerError, check_answers

DEVICE = {
    **{"name": "GPU", "platform": "P", "driver": "1", "c_version": 300, "fp16": False},
    "images": {"supported": False},
    "limits": {"max_work_group_size": 1, "local_memory_bytes": 1, "global_memory_bytes": 1},
}
GOOD = {
    "adrenoc.opencl.devices": [DEVICE],
    "adrenoc.opencl.memory_stats": {"allocated_bytes": 1, "peak_bytes": 2, "reuses": 3},
    "adrenoc.opencl.profile_stop": [["kernel", 1, 2]],
    "adrenoc.opencl.build_finish": {"hits": 1, "misses": 0, "damaged": 0},
    "adrenoc.runtime.gpu_state": {"model": "x", "temperature_mc": -5},
    "adrenoc.trials.measure": {"times_us": [[1.5, 2]], "errors": [0.0]},
    "adrenoc.opencl.hints": [{"hint": "h", "asked": "low", "given_by": "", "reason": "r"}],
    "report": {"mode": "x", "reason": "", "launches": 1, "api_calls": 2, "host_ms": 0.5},
}
BAD = {
    "adrenoc.opencl.devices": ({}, [1], [{}], [{**DEVICE, "images": {"supported": True}}], "x"),
    "adrenoc.opencl.memory_stats": ([], {"allocated_bytes": 1}, {"peak_bytes": True}),
    "adrenoc.opencl.profile_stop": ([["kernel", 1]], [["kernel", -1, 2]], [[1, 1, 1]], {}),
    "adrenoc.opencl.build_finish": ({"hits": 1}, {"hits": "1", "misses": 0, "damaged": 0}),
    "adrenoc.runtime.gpu_state": ([], {"model": 1}, {"clock_hz": "fast"}),
    "adrenoc.trials.measure": (
        {},
        {"times_us": [1], "errors": []},
        {"times_us": [[1.0]], "errors": [math.nan]},
        {"refused": 1},
    ),
    "report": ({}, {**GOOD["report"], "host_ms": float("nan")}, {**GOOD["report"], "more": 1}),
}


@pytest.mark.parametrize("name", GOOD)
def test_answers_come_as_they_are(name: str) -> None:
    text = json.dumps(GOOD[name])
    assert check_answers(name, lambda: text)() == text


@pytest.mark.parametrize("name", BAD)
def test_lies_are_refused(name: str) -> None:
    for lie in (*map(json.dumps, BAD[name]), "{", "", None, 5, b"x", "[" * 10_000):
        with pytest.raises(WrongAnswerError, match=name):
            check_answers(name, lambda lie=lie: lie)()


def test_arguments_go_on() -> None:
    assert check_answers("adrenoc.store.has", lambda digest: digest == "x")("x")
    for lie in ("yes", 2, None, []):
        with pytest.raises(WrongAnswerError):
            check_answers("adrenoc.store.has", lambda digest, lie=lie: lie)("x")


def test_what_nobody_reads_may_be_anything() -> None:
    """Of a loop on a server, as of any function that has no form."""
    assert check_answers("allow", lambda bits: None)(b"\1") is None
