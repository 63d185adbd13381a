"""`compile` under ADRENOC_TIME_TRACE: sections that nest, with both clocks."""

import json
from pathlib import Path

import pytest

from adrenoc.base.host.time_trace import is_recording, record_sections, section
from adrenoc.cli.main import main


def test_sections_nest_and_end_where_work_fails():
    with record_sections() as trace:
        with section("outer", "stage"), section("inner", "kernel"):
            assert is_recording()
        with pytest.raises(ValueError, match="broken"), section("fails", "stage"):
            raise ValueError("broken")
    assert not is_recording()
    events = {event["name"]: event for event in json.loads(trace.to_json())["traceEvents"]}
    assert list(events) == ["start of the process", "inner", "outer", "fails"]
    inner, outer = events["inner"], events["outer"]
    for at, lasts in (("ts", "dur"), ("tts", "tdur")):
        assert outer[at] <= inner[at]
        assert inner[at] + inner[lasts] <= outer[at] + outer[lasts]
    with section("after", "stage"):
        assert "after" not in trace.to_json()


def test_compile_writes_it_beside_the_bundle(model, compiled, monkeypatch):
    monkeypatch.setenv("ADRENOC_TIME_TRACE", "trace.json")
    assert main(["compile", str(model)]) == 0
    events = json.loads(Path("trace.json").read_text())["traceEvents"]
    assert {"link", "write"} <= {event["name"] for event in events}
    assert all(event["ph"] == "X" and event["dur"] >= 0 for event in events)


def test_it_replaces_no_model(model, monkeypatch, capsys):
    monkeypatch.setenv("ADRENOC_TIME_TRACE", str(model))
    before = model.read_bytes()
    assert main(["compile", str(model)]) != 0
    assert model.read_bytes() == before
    assert "net" in capsys.readouterr().err
