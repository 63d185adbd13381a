"""`python -m adrenoc.lab.fleet.runner`: does one job and keeps its result, whoever waits for it.

It reads a request as JSON on standard input and prints the result as one line of JSON.  A fleet
that dies meanwhile finds the result when it is started again: the lock of the job is held, also by
the command itself, for as long as the device is at work.
"""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from adrenoc.base.host.proc import own_module
from adrenoc.base.text.json_text import read_json
from adrenoc.lab.fleet.store import Result, hold_lock, read_result, write_result

BUSY = 3
"""The exit code where another process does the job."""
TIMEOUT_CODE = 124
"""What stands for the exit code of a command that was stopped: it is the job that is to blame."""
_GENTLE_S = 10.0
_LONGEST_ERROR = 2000


def main() -> int:
    """Do what is asked; 0 where there is a result, final or not."""
    asked = json.loads(sys.stdin.read())
    with hold_lock(Path(asked["lock"])) as lock:
        if lock is None:
            return BUSY
        # Whoever had the lock before may have left one.
        result = read_result(Path(asked["result"]))
        if result is None:
            result = run_command(asked["words"], limit_s=asked["limit_s"], lock=lock)
            if result.is_final:
                write_result(Path(asked["result"]), result)
        print(json.dumps(asdict(result)), flush=True)
    return 0


def run_command(words: list[str], *, limit_s: float, lock: int) -> Result:
    """Run a command of adrenoc that prints JSON, for at most so long."""
    started = time.monotonic()
    with subprocess.Popen(
        own_module("adrenoc", *words),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        pass_fds=(lock,),
    ) as process:
        try:
            said, aside = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            said, aside = _stop(process)
            said, aside = ("", f"it took longer than the limit of {limit_s:.0f} s and was stopped")
            code = TIMEOUT_CODE
        else:
            code = process.returncode
    return _result(code, said, aside, time.monotonic() - started)


def _stop(process: subprocess.Popen[str]) -> tuple[str, str]:
    """End a command, gently first: it may have half-written files to remove."""
    process.terminate()
    try:
        return process.communicate(timeout=_GENTLE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()


def _result(code: int, said: str, aside: str, took_s: float) -> Result:
    output = _last_object(said)
    error = output.pop("error", None) if isinstance(output.get("error"), dict) else None
    told = error or {}
    message = str(told.get("message", "")) or ("" if code == 0 else aside.strip())
    return Result(
        exit_code=code,
        took_s=took_s,
        ended=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        output=output,
        error=message[-_LONGEST_ERROR:],
        hint=str(told.get("hint", "")),
    )


def _last_object(text: str) -> dict[str, Any]:
    """The JSON object that a command printed, or of one a line the last."""
    for piece in (text, *reversed(text.strip().splitlines())):
        try:
            found = read_json(piece)
        except ValueError:
            continue
        if isinstance(found, dict):
            return found
    return {}


if __name__ == "__main__":
    sys.exit(main())
