"""Commands of adrenoc, run in this process, and programs, run in their own."""

import contextlib
import io
import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from adrenoc.base.errors import AdrenocError, DependencyError
from adrenoc.base.host import proc
from adrenoc.bundle.bundle import Bundle, open_bundle
from adrenoc.cli.main import cli, main


def invoke(*words: object, catch: bool = False, typed: str | None = None) -> Result:
    """Run a command; its exception is raised, or part of the result where it is to be caught."""
    told = [str(word) for word in words]
    return CliRunner().invoke(cli, told, catch_exceptions=catch, input=typed)


def succeed(*words: object, typed: str | None = None) -> Result:
    """Run a command, which has to end with 0."""
    done = invoke(*words, typed=typed)
    assert done.exit_code == 0, done.output
    return done


def ask(*words: object) -> Any:
    """Run a command, which has to end with 0; what it prints with `--json`."""
    return json.loads(succeed(*words, "--json").stdout)


def refuse(error: type[AdrenocError] | int, *words: object) -> str:
    """Run a command, which has to fail so (a kind of error or a code); what it says, in a line."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(word) for word in words])
    assert code == (error if isinstance(error, int) else error.exit_code), err.getvalue()
    return " ".join(err.getvalue().split())


def check_run(bundle: object, model: object, *words: object) -> Any:
    """Run a bundle beside its model, with which it has to agree; what `--json` prints."""
    said = ask("run", bundle, "--check", model, *words)
    assert said["check"]["passed"]
    return said


def run_program(
    command: Sequence[object], *, check: bool = False, **more
) -> subprocess.CompletedProcess[str]:
    """Run a process to its end, and hold what it prints."""
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, check=check, **more)


@contextlib.contextmanager
def skip_where_lacking() -> Iterator[None]:
    """Skip the test where something is not installed that its commands need."""
    try:
        yield
    except DependencyError as error:
        pytest.skip(f"{error.message} ({error.hint})")


def compile_model(
    model: Path, output: Path, *more: object, device: str = "host", preset: str = "fp32"
) -> Bundle:
    """Compile a model, for this computer by default; `""` leaves the preset to the device."""
    chosen = ("--preset", preset) if preset else ()
    words = ("compile", model, "--device", device, *chosen, *more, "-o", output)
    assert main([str(word) for word in words]) == 0
    return open_bundle(output)


def compile_here(patch: pytest.MonkeyPatch) -> None:
    """Have `adrenoc build` compile in this process: others would load TVM for it."""

    def run(_: proc.CommandRunner, words: Sequence[str]) -> proc.Result:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            code = main(words)
        return proc.read_result(code, out.getvalue(), "", 0.5)

    patch.setattr(proc.CommandRunner, "run", run)
