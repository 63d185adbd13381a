"""`adrenoc verify-device` with drivers that misbehave on order (`tests/faulty/`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adrenoc.prove.judge import judge
from adrenoc.prove.session import RemoteBench, Request, run_verification, wanted
from adrenoc.prove.suite import make_suite
from adrenoc.prove.verify_device import Verification
from adrenoc.target.device_report import read_report, report_json, with_report
from adrenoc.target.target import load_target
from adrenoc.tune.local import local_server
from tests.faulty.driver import build_layer, misbehaving

LIMIT_S = 60.0


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory, device: Any) -> Path:
    """The layer of the loader that misbehaves."""
    return build_layer(tmp_path_factory.mktemp("layer"))


def _request(*only: str) -> Request:
    return Request(place=None, cl_device="", limit_s=LIMIT_S, only=only, precisions=("mixed",))


def _right_as_reported(done: Verification, request: Request, folder: Path) -> bool:
    """Whether the same cases are right when they are compiled with the report."""
    path = folder / "device.json"
    path.write_text(report_json(done.report))
    target = with_report(load_target("host:a640"), read_report(path), path)
    with local_server() as address:
        made = make_suite(wanted(request, target)[0], target, folder)
        outputs = RemoteBench(address, "").run(made).last
    return not judge(made, outputs)


def test_a_kernel_that_is_miscompiled(layer: Path, tmp_path: Path) -> None:
    request = _request("softmax: along channels", "conv2d: 1x1, 5")
    with misbehaving(layer, "edit|^softmax|exp(|exp2("):
        done = run_verification(request)
        assert done.report.device.gpu == "640"
        assert done.target.name == "host:a640"
        assert {finding.family for finding in done.findings} == {"softmax"}
        first = done.findings[0]
        assert first.element == (0, 0, 0, 0) and first.shape == (1, 10, 7, 5)
        assert [q.avoid for q in done.report.quirks] == [("operator:softmax",)]
        assert done.report.is_right and not done.left
        assert _right_as_reported(done, request, tmp_path)
