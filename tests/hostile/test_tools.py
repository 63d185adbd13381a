"""Outside tools: what they have started ends with them."""

import os
import subprocess
import sys
import time

import pytest

from adrenoc.base.errors import DiskFullError, ToolError
from adrenoc.base.host.proc import run_tool
from tests.patience import WAIT_S, is_running


@pytest.mark.parametrize("trap", ["", "trap '' TERM; "])
def test_helpers_of_a_tool_that_takes_too_long_end_too(trap, tmp_path):
    told = tmp_path / "helper"
    script = f"{trap}sleep 1000 & echo $! > {told}.part; mv {told}.part {told}; wait"
    with pytest.raises(ToolError, match="was stopped after"):
        run_tool(["sh", "-c", script], deed="wait", timeout_s=5.0)
    helper = int(told.read_text())
    until = time.monotonic() + WAIT_S
    while is_running(helper) and time.monotonic() < until:
        time.sleep(0.05)
    assert not is_running(helper)


@pytest.mark.parametrize("words", [["targets"], ["--help"], ["presets", "--json"]])
def test_a_reader_that_has_left_is_no_defect(words):
    """As of `adrenoc targets | head -1`: there is nobody to tell, and 1 is for defects."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "adrenoc", *words]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_long_report_without_room_for_it(tmp_path, monkeypatch):
    """The last lines have to do where the rest cannot be kept."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(ToolError, match="100") as caught:
        run_tool(["sh", "-c", "seq 100; exit 1"], deed="count")
    assert "all 100 lines" not in caught.value.message
    assert os.listdir(tmp_path) == []  # noqa: PTH208


@pytest.mark.parametrize(
    "said", ["No space left on device", "Disk quota exceeded", "File too large"]
)
def test_a_tool_without_room_on_the_disk(said, tmp_path, monkeypatch):
    """Assemblers say so first, then hundreds of lines that follow from it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    script = f"echo \"a.s: can't write unit0.o: '{said}'\"; seq 100; exit 1"
    with pytest.raises(DiskFullError) as caught:
        run_tool(["sh", "-c", script, "-o", "/usr/.made.part/unit0.o"], deed="build the library")
    assert caught.value.message == (f"cannot build the library: `sh` exited with 1: {said.lower()}")
    assert caught.value.hint == (
        f"free some space (df -h {tmp_path} /usr), or set TMPDIR and ADRENOC_CACHE_DIR to other "
        "folders"
    )
    assert os.listdir(tmp_path) == []  # noqa: PTH208
