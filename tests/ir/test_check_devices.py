"""`check` for several devices: a row and a verdict each, limits held on all of them."""

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from adrenoc.base.errors import PolicyError
from adrenoc.base.reporter import SilentReporter
from adrenoc.base.text.spelling import quote_word
from adrenoc.check.check_model import check_model
from adrenoc.check.verdict import Policy
from adrenoc.cli.main import main
from adrenoc.ir.options import resolve_options
from adrenoc.target.target import load_target
from tests.models import graph, write

BOTH = ["--device", "adreno:660,adreno:750"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    weights = np.random.default_rng(0).uniform(-1, 1, (16, 8, 3, 3)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])]
    proto = graph(nodes, {"x": [1, 8, 32, 32]}, ["y"], {"w": weights})
    return str(write(proto, tmp_path_factory.mktemp("check"), "net.onnx"))


def test_each_device_has_its_own_verdict(model, capsys):
    assert main(["check", model, *BOTH, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["devices"]
    assert [one["target"] for one in told] == ["adreno:a660", "adreno:a750"]
    for one in told:
        target = load_target(one["target"])
        options = resolve_options(target, preset=None, command_line={}).options
        quiet = {"policy": Policy(), "reporter": SilentReporter()}
        alone = check_model(Path(model), target=target, options=options, **quiet)
        assert one["totals"]["time_us"] == alone.totals.time_us
    assert told[0]["totals"]["time_us"] != told[1]["totals"]["time_us"]
    assert main(["check", model, *BOTH]) == 0
    said = capsys.readouterr().out
    assert "on 2 devices" in said and "adreno:a660" in said and "adreno:a750" in said


def test_the_next_command_names_the_file_as_it_was_given(model, capsys):
    assert main(["check", model, *BOTH]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"adrenoc check {quote_word(model)} --device adreno:a660 shows" in said


def test_limits_hold_on_each_device(model, capsys):
    code = main(["check", model, *BOTH, "--limit", "time-ms=1e-6"])
    assert code == PolicyError.exit_code
    said = " ".join(capsys.readouterr().err.split())
    assert "breaks 2 of the limits" in said
    assert "on adreno:a660" in said and "on adreno:a750" in said
    assert main(["check", model, *BOTH, "--limit", "time-ms=1e-6", "--json"]) == code


def test_what_shows_one_device_takes_no_set(model, tmp_path, capsys):
    assert main(["check", model, *BOTH, "--html", "page.html"]) == 2
    assert "for one --device" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
