"""Commands that print JSON and take minutes: a terminal shows how far they are, a pipe nothing."""

import io
import json
from types import SimpleNamespace
from typing import Any

import pytest

from adrenoc.cli.main import main
from adrenoc.lab.calibrate.calibrate import MEASURED, MeasureRow
from adrenoc.lab.calibrate.measure import DeviceFacts


class Terminal(io.StringIO):
    """A stderr that somebody looks at."""

    def isatty(self) -> bool:
        return True


def _plant(monkeypatch: pytest.MonkeyPatch) -> None:
    """A calibration of one row."""
    row = MeasureRow(name="mad.float", title="t", unit="GFLOP/s", status=MEASURED, value=2.0)
    device = DeviceFacts.from_facts({"name": "a device", "driver": "1.0"})
    measured = SimpleNamespace(device=device, source="s", values=(), facts=(), rows=(row,))
    listed = SimpleNamespace(name="adreno:750")

    def run(request: Any, *, say: Any) -> Any:
        say(row, 97)
        toml = 'title = "t"\nbase = "adreno:750"\n'
        return SimpleNamespace(measured=measured, listed=listed, differences=(), toml=toml)

    monkeypatch.setattr("adrenoc.lab.calibrate.session.run_calibration", run)


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_progress_beside_json(
    stream: type[io.StringIO],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Any,
) -> None:
    _plant(monkeypatch)
    aside = stream()
    monkeypatch.setattr("sys.stderr", aside)
    assert main(["device", "calibrate", "--json", "-o", str(tmp_path / "phone.toml")]) == 0
    assert json.loads(capsys.readouterr().out)["device"] == "a device"
    shows = "1/97 mad.float" in aside.getvalue() and "2 GFLOP/s" in aside.getvalue()
    assert shows is (stream is Terminal), aside.getvalue()
