"""Runs a bundle on a server that lies: the worker's half of `scripts/fuzz_rpc`."""

import functools
import json
import sys
from pathlib import Path
from typing import Any

from fuzz.harness import Outcome, judge_work

TIMEOUT_S = 0.3
"""What is cut off is waited for so long."""


@functools.cache
def _bundle(path: str) -> Any:
    import numpy as np

    from adrenoc.bundle.bundle import open_bundle

    bundle = open_bundle(Path(path))
    specs = bundle.manifest.inputs
    return bundle, {spec.name: np.zeros(spec.shape, spec.dtype) for spec in specs}


def judge(path: Path) -> Outcome:
    """Talk to the server that the file names; what came of it."""
    from adrenoc.lab.tune import session

    session.START_S = TIMEOUT_S
    return attempt(json.loads(path.read_text()), timeout_s=TIMEOUT_S)


def attempt(case: dict[str, Any], *, timeout_s: float, raises: bool = False) -> Outcome:
    """The same, without the processes of fuzzing."""
    from adrenoc.device.remote import RemoteAddress, describe, run_remote

    bundle, inputs = _bundle(case["bundle"])
    address = RemoteAddress.parse(
        f"127.0.0.1:{case['port']}", key=case.get("key", ""), timeout_s=timeout_s
    )
    deeds = {
        "describe": lambda: describe(address),
        "tune": lambda: _open_for_tuner(address),
        "run": lambda: run_remote(bundle, address, inputs=inputs, repeat=2, profile=True),
    }
    return judge_work(deeds[case["deed"]], "ran", raises=raises)


def _open_for_tuner(address: Any) -> None:
    """A session as the tuner has it; what it takes for a broken one is refused."""
    from adrenoc.base.errors import RemoteError
    from adrenoc.lab.tune.farm import BROKEN
    from adrenoc.lab.tune.session import DevicePlace, Session

    try:
        Session(DevicePlace(server=address, limit_s=2.0)).close()
    except BROKEN as error:
        raise RemoteError(str(error) or "broken", hint="none") from error


if __name__ == "__main__":
    print(attempt(json.loads(sys.argv[1]), timeout_s=30.0, raises=True))
