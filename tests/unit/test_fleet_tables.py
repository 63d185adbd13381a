"""What tables, pages and baselines say of a fleet."""

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from adrenoc.base.errors import CheckFailedError, InputError, RemoteError
from adrenoc.cli.fleet import find_error
from adrenoc.lab.fleet.fleet import DONE, JobRow
from adrenoc.lab.fleet.jobs import RUN
from adrenoc.lab.fleet.table import (
    FleetBaseline,
    FleetLine,
    fleet_html,
    junit_xml,
    lines_of,
    read_fleet_baseline,
)
from tests.planted_fleet import PlantedFleet, make_run


@pytest.fixture
def rows(tmp_path) -> list[JobRow]:
    jobs = PlantedFleet(tmp_path).plan.list_jobs("x", "adreno:a750")
    return [JobRow(job=job, state=DONE, result=make_run()) for job in jobs]


def test_lines_tell_the_figures(rows):
    first, second = lines_of(rows, None)
    assert (first.status, first.gpu, first.driver) == ("right", "Adreno 750", "D")
    assert (first.p50_ms, first.p90_ms, first.cold_ms, first.launches) == (2.0, 3.0, 90.0, 3)
    assert (first.clock_mhz, first.temperature_c, first.memory_bytes) == (500.0, 40.0, 2**20)
    assert (first.error, first.note) == (1e-5, "")
    assert Path(second.model).name == "b.onnx"


@pytest.mark.parametrize(
    ("changes", "status", "note"),
    [
        ({"p50_ms": 1.0, "p90_ms": 1.1}, "slower", "2.00 of its time before"),
        ({"p50_ms": 1.9, "p90_ms": 1.9}, "right", ""),
        # Half of this fleet's runs are that far from each other; then the baseline's.
        (
            {"p50_ms": 1.6, "p90_ms": 1.6},
            "right",
            "1.25 of its time before, within the spread of 50%: more --repeat tells",
        ),
        (
            {"p50_ms": 1.0, "p90_ms": 2.5},
            "right",
            "2.00 of its time before, within the spread of 150%: more --repeat tells",
        ),
        ({"p50_ms": 1.0, "driver": "E"}, "right", "not comparable: that was with the driver E"),
        ({"p50_ms": 1.0, "gpu": "Z"}, "right", "not comparable: that was on Z"),
        (
            {"p50_ms": 1.0, "clock_mhz": 900.0},
            "right",
            "not comparable: the GPU's clock changed from 900 to 500 MHz",
        ),
    ],
)
def test_a_baseline_tells_what_became_slower(rows, tmp_path, changes, status, note):
    line = lines_of(rows, None)[0]
    file = tmp_path / "before.json"
    file.write_text(json.dumps({"fleet": [{**line.__dict__, **changes}]}))
    found = lines_of(rows, read_fleet_baseline(file))
    assert (found[0].status, found[0].note) == (status, note)
    assert found[1].before_ms is None


def test_a_baseline_knows_a_model_in_another_folder():
    facts = {"action": RUN, "device": "x", "target": "adreno", "status": "right"}
    one, other = (FleetLine(**facts, model=f"{place}/m.onnx", p50_ms=1.0) for place in ("a", "b"))
    alone = FleetLine(**facts, model="c/n.onnx")
    before = FleetBaseline(lines=(one, other, alone))
    assert before.find(replace(one, p50_ms=9.0)) == one
    assert before.find(other) == other
    assert before.find(replace(alone, model="elsewhere/n.onnx")) == alone
    assert before.find(replace(one, model="elsewhere/m.onnx")) is None  # which of the two?
    assert before.find(replace(one, device="y")) is None


@pytest.mark.parametrize("text", ["", "[]", '{"fleet": 1}', '{"fleet": [{}]}', '{"fleet": [1]}'])
def test_a_baseline_that_is_none(tmp_path, text):
    (tmp_path / "b.json").write_text(text)
    with pytest.raises(InputError, match="is not what `adrenoc device fleet --json` printed"):
        read_fleet_baseline(tmp_path / "b.json")


def test_junit_and_page_show_any_name_as_a_text():
    facts = {"action": RUN, "target": "adreno", "gpu": "<b>\x1b[2J", "took_s": 2.0}
    lines = [
        FleetLine(**facts, device="x", model="a.onnx", status="right", p50_ms=1.5),
        FleetLine(**facts, device="x", model="b.onnx", status="wrong", note="y & z\x00"),
        FleetLine(**facts, device="<y>", model="a.onnx", status="left", note="gone"),
    ]
    root = ElementTree.fromstring(junit_xml(lines))
    assert [(s.get("name"), s.get("failures"), s.get("skipped")) for s in root] == [
        ("x", "1", "0"),
        ("<y>", "0", "1"),
    ]
    assert root.find("testsuite/testcase/failure").get("message") == r"wrong: y & z\x00"
    page = fleet_html(lines)
    assert "&lt;y&gt;" in page
    assert "\x1b" not in page
    assert "1.50 ms" in page
    assert "<p>2 devices, 3 jobs, 1 wrong, slower or failed</p>" in page


def test_a_fleet_of_which_no_device_answered_is_an_error():
    facts = {"action": RUN, "target": "adreno", "gpu": "", "took_s": 0.0, "model": "a.onnx"}
    left = FleetLine(**facts, device="x", status="left", note="gone")
    right = FleetLine(**facts, device="y", status="right")
    wrong = FleetLine(**facts, device="z", status="wrong")
    assert find_error([]) is None
    assert find_error([left, right]) is None
    assert isinstance(find_error([left, wrong]), CheckFailedError)
    error = find_error([left, left])
    assert isinstance(error, RemoteError)
    assert (
        error.message
        == "nothing was measured: no device answered; the first is a.onnx on x: left, gone"
    )
