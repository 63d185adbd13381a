"""Each documented way to serve is attacked from another machine, and holds."""

import json
import shutil
import subprocess
import sys

import pytest

from tests.commands import run_program

_OWN = ["unshare", "--user", "--map-root-user", "--net", "--mount"]


@pytest.mark.nightly
def test_an_attack_from_another_machine_fails(runtime):
    pytest.importorskip("tornado", reason="pip install '.[tune]'")
    if shutil.which("ip") is None or subprocess.run([*_OWN, "true"], check=False).returncode:
        pytest.skip(
            "no namespaces of networks here: apt-get install iproute2, and let unshare -rn run"
        )
    command = [*_OWN, sys.executable, "-m", "tests.runtime.two_networks", str(runtime.server)]
    done = run_program(command, timeout=300)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {way: said["opened"] for way, said in told.items()} == dict.fromkeys(told, 0)
    assert all(said["owner"] == "taken" for said in told.values())
    assert told["a key"]["tries"] <= 5  # in three seconds
    assert told["a tracker at 127.0.0.1"]["tracker"] == "no tracker answers"
    # Whoever asks gets the key, and reaches no server with it.
    assert told["a tracker at 0.0.0.0"]["tracker"] == "it gives the key"
