"""Runs a case in a folder of its own, and says what is wrong with how it ended."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.hostile.case import MOST_BYTES, MOST_SECONDS, Case
from tests.hostile.models import relu
from tests.hostile.servers import listening

ROOT = Path(__file__).resolve().parents[2]
_QUIET = "\n\t"
_CACHES = {"adrenoc", "zig"}
"""Folders of caches: ours, and that of the compiler that comes as a package."""
_OURS = {".cache", "work", "tmp", "cache", "out.txt", "err.txt"}
_SENT = (
    "limits",
    "closed",
    "opened",
    "umask",
    "signal",
    "after_s",
    "in_removed_folder",
    "without_rights",
)


class Judge:
    """A process that forks (`forks.py`), and what cases are held against."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def try_case(self, case: Case, folder: Path) -> list[str]:
        """Run it in the empty `folder`; what is wrong, nothing where all is well."""
        if case.serve is None:
            return self._try(case, folder, 0)
        with listening(case.serve) as port:
            return self._try(case, folder, port)

    def _try(self, case: Case, folder: Path, port: int) -> list[str]:
        work, temporary, cache = (folder / name for name in ("work", "tmp", "cache"))
        for place in (work, temporary):
            place.mkdir(parents=True)
        (work / "model.onnx").write_bytes(relu())
        case.make(work)
        before = _held(work)
        output, errors = folder / "out.txt", folder / "err.txt"
        environment = {
            "ADRENOC_CACHE_DIR": str(cache),
            "TMPDIR": str(temporary),
            "HOME": str(folder),
            "ADRENOC_TIMEOUT": "3",
            "ADRENOC_FLEET_PATIENCE": "0",
            **{
                name: value and value.replace("{work}", str(work)).replace("{port}", str(port))
                for name, value in case.environment.items()
            },
        }
        job = {
            **{key: getattr(case, key) for key in _SENT},
            "folder": str(work),
            "output": str(output),
            "errors": str(errors),
            "environment": environment,
            "command": [
                word.replace("{work}", str(work)).replace("{port}", str(port))
                for word in case.command
            ],
        }
        answer = self.ask(job)
        said = [path.read_bytes() if path.exists() else b"" for path in (output, errors)]
        return [
            *_ending(case, answer, said),
            *_text(case, said),
            *_litter(case, before, _held(work)),
            *(f"left {name} in TMPDIR" for name in _names(temporary)),
            *(f"left {name} in the home folder" for name in {*_names(folder)} - _OURS),
            *(f"left {name} in ~/.cache" for name in {*_names(folder / ".cache")} - _CACHES),
            *(f"left {path}" for path in cache.rglob(".*.adrenoc-*")),
        ]

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        """What became of a command (`forks.py`)."""
        assert self._process.stdin is not None
        print(json.dumps(job), file=self._process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


@contextmanager
def judge() -> Iterator[Judge]:
    """A judge for as long as the block runs."""
    command = [sys.executable, str(ROOT / "tests" / "hostile" / "forks.py")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout.readline() == "ready\n"
        yield Judge(process)
        process.stdin.close()


def _ending(case: Case, answer: dict[str, Any], said: list[bytes]) -> Iterator[str]:
    code = answer["code"]
    if answer["hung"]:
        yield "hung"
    if code not in case.codes:
        last = said[1].decode("utf-8", "replace").strip().splitlines()[-3:]
        yield f"ended with {code}, expected {sorted(case.codes)[:4]}: {last}"
    if answer["seconds"] > MOST_SECONDS:
        yield f"took {answer['seconds']:.0f} s"
    if answer["bytes"] > MOST_BYTES:
        yield f"took {answer['bytes'] >> 20} MiB"


def _text(case: Case, said: list[bytes]) -> Iterator[str]:
    text = "".join(part.decode("utf-8", "replace") for part in said)
    odd = {letter for letter in text if not letter.isprintable() and letter not in _QUIET}
    if odd and "PYTHONIOENCODING" not in case.environment:
        yield f"printed {sorted(map(hex, map(ord, odd)))[:4]}"
    if "Traceback" in text:
        yield "printed a traceback"
    errors = [line for line in text.splitlines() if line.startswith("error: ")]
    if len(errors) > 1:
        yield f"printed {len(errors)} errors"
    if "--json" in case.command and said[0].strip():
        try:
            json.loads(said[0])
        except ValueError as error:
            yield f"printed no JSON: {error}"
    if case.said not in text:
        yield f"did not say {case.said!r}, but {text[-200:]!r}"


def _litter(case: Case, before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name) and name.partition("/")[0] not in case.makes:
            yield f"{'changed' if name in before else 'made'} {name}"


def _held(folder: Path) -> dict[str, Any]:
    """What a folder holds: each file's kind, size and content, as far as that is short."""
    found: dict[str, Any] = {}
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(root, name)
            facts = path.lstat()
            short = facts.st_size < 1 << 20 and path.is_file() and not path.is_symlink()
            key = os.fsencode(path.relative_to(folder)).decode("utf-8", "backslashreplace")
            found[key] = (facts.st_mode, facts.st_size, path.read_bytes() if short else b"")
            if path.is_dir():
                found[key] = facts.st_mode
    return found


def _names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder)) if folder.is_dir() else []  # noqa: PTH208
