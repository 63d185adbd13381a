"""Commands of adrenoc, run in this process, and programs, run in their own."""

import contextlib
import io
import subprocess
from collections.abc import Sequence

import pytest
from click.testing import CliRunner, Result

from adrenoc.base.host import proc
from adrenoc.cli.main import cli, main


def invoke(*words: object, catch: bool = False) -> Result:
    """Run a command; its exception is raised, or part of the result where it is to be caught."""
    return CliRunner().invoke(cli, [str(word) for word in words], catch_exceptions=catch)


def succeed(*words: object) -> Result:
    """Run a command, which has to end with 0."""
    done = invoke(*words)
    assert done.exit_code == 0, done.output
    return done


def run_program(
    command: Sequence[object], *, check: bool = False, **more
) -> subprocess.CompletedProcess[str]:
    """Run a process to its end, and hold what it prints."""
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, check=check, **more)


def compile_here(patch: pytest.MonkeyPatch) -> None:
    """Have `adrenoc build` compile in this process: others would load TVM for it."""

    def run(_: proc.CommandRunner, words: Sequence[str]) -> proc.Result:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            code = main(words)
        return proc.read_result(code, out.getvalue(), "", 0.5)

    patch.setattr(proc.CommandRunner, "run", run)
