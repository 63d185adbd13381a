"""Traces of runs and of compilations open in Perfetto's own viewer, without a complaint."""

import json
from pathlib import Path

import pytest

from adrenoc.cli.main import main
from tests.host.perfetto_viewer import ask_perfetto, find_viewer
from tests.host.run_op import Ops

COMPLAINTS = "select name || ' ' || value as text from stats where value > 0 and severity != 'info'"
SLICES = "select distinct name as text from slice"
TRACKS = "select name as text from process union select name from thread"


@pytest.fixture(scope="module")
def traces(device, tmp_path_factory) -> tuple[Path, Path]:
    """Of a run with times of its kernels, and of the compilation before it."""
    find_viewer()
    folder = tmp_path_factory.mktemp("traces")
    ops = Ops()
    ops.output(ops("Relu", ops("Conv", ops.input(1, 3, 8, 8), ops.weight(8, 3, 3, 3))))
    ops.save(folder / "net.onnx")
    bundle, compiled, ran = (str(folder / name) for name in ("net.adrenoc", "c.json", "r.json"))
    words = ["compile", str(folder / "net.onnx"), "--device", "host", "-o", bundle, "--no-cache"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ADRENOC_TIME_TRACE", compiled)
        assert main(words) == 0
    assert main(["run", bundle, "--repeat", "2", "--profile", "--perfetto", ran]) == 0
    return Path(ran), Path(compiled)


@pytest.mark.nightly
def test_a_run(traces, tmp_path):
    queries = {"complaints": COMPLAINTS, "slices": SLICES, "tracks": TRACKS}
    told = ask_perfetto(traces[0], queries, tmp_path)
    assert told.get("failed") is None
    assert told["complaints"] == []
    events = json.loads(traces[0].read_text(encoding="utf-8"))["traceEvents"]
    assert set(told["slices"]) == {event["name"] for event in events if event["ph"] == "X"}
    assert {"upload constants", "first run", "profiled run"} <= set(told["slices"])
    assert {"host: net", "kernels"} <= set(told["tracks"])


def test_a_compilation(traces, tmp_path):
    told = ask_perfetto(traces[1], {"complaints": COMPLAINTS, "slices": SLICES}, tmp_path)
    assert told.get("failed") is None
    assert told["complaints"] == []
    assert {"import", "lower", "build"} <= set(told["slices"])
