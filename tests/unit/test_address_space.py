"""A process that may map too little ends with one sentence, before its libraries do without."""

import json
import resource

import pytest

from adrenoc.base.errors import HostMemoryError
from adrenoc.base.host.memory import LEAST_BYTES
from adrenoc.cli.main import main


@pytest.mark.parametrize("command", ["check", "compile", "tune run", "check-accuracy"])
def test_too_little(command, monkeypatch, capsys):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (LEAST_BYTES - 1, LEAST_BYTES - 1))
    assert main([*command.split(), "model.onnx", "--json"]) == HostMemoryError.exit_code
    said = json.loads(capsys.readouterr().out)["error"]
    assert "ulimit -v" in said["message"]


def test_commands_that_need_little_do_with_it(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (LEAST_BYTES - 1, LEAST_BYTES - 1))
    assert main(["presets"]) == 0
