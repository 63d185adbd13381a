"""Runs of suites that a killed verification has kept stand for running them again."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from adrenoc.base.errors import DeviceError, RemoteError
from adrenoc.base.files.resume import Resume
from adrenoc.lab.prove.examine import SuiteRuns
from adrenoc.lab.prove.session import KeptBench
from tests.unit.planted_device import DEVICE

X, Y = np.array([1.0, -0.0, np.nan], np.float32), np.zeros((0, 4), np.uint8)
RUNS = SuiteRuns(
    first={"x": X, "y": Y},
    last={"x": X.copy(), "y": Y},
    among=({"x": -X, "y": Y}, {"x": X.astype(np.float16), "y": Y}),
    others=({"x": X + 1, "y": Y}, {"x": X + 1, "y": np.ones((1, 4), np.uint8)}),
)


class _Counting:
    """Says what it was given, in turn."""

    def __init__(self, *answers: SuiteRuns | Exception) -> None:
        self.answers, self.asked = list(answers), 0

    def run(self, _made: Any) -> SuiteRuns:
        self.asked += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def _made(name: str) -> Any:
    return SimpleNamespace(bundle=SimpleNamespace(path=Path("/anywhere") / name))


def _plain(runs: SuiteRuns) -> list[list[tuple[str, str, tuple[int, ...], bytes]]]:
    every = (runs.first, runs.last, *runs.among, *runs.others)
    return [
        [(name, str(v.dtype), v.shape, v.tobytes()) for name, v in outputs.items()]
        for outputs in every
    ]


def test_what_ran_does_not_run_again(tmp_path):
    lost = RemoteError("the server left", hint="h")
    refused = DeviceError("no such device", hint="h")
    live = _Counting(RUNS, lost, refused)
    bench = KeptBench(live, Resume(tmp_path / "kept"), DEVICE)
    bench.run(_made("a"))
    with pytest.raises(RemoteError):
        bench.run(_made("a"))
    with pytest.raises(DeviceError):
        bench.run(_made("b"))
    (tmp_path / "left").write_bytes((tmp_path / "kept").read_bytes())
    later = _Counting(RUNS)
    bench = KeptBench(later, Resume(tmp_path / "left"), DEVICE)
    assert _plain(bench.run(_made("a"))) == _plain(RUNS)
    with pytest.raises(RemoteError, match="the server left"):
        bench.run(_made("a"))
    with pytest.raises(DeviceError, match="no such device"):
        bench.run(_made("b"))
    assert later.asked == 0
    bench.run(_made("c"))
    assert later.asked == 1
