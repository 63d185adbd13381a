"""Commands of adrenoc, run in this process."""

from __future__ import annotations

from click.testing import CliRunner, Result

from adrenoc.cli.main import cli


def invoke(*words: object, catch: bool = False) -> Result:
    """Run a command; its exception is raised, or part of the result where it is to be caught."""
    return CliRunner().invoke(cli, [str(word) for word in words], catch_exceptions=catch)


def succeed(*words: object) -> Result:
    """Run a command, which has to end with 0."""
    done = invoke(*words)
    assert done.exit_code == 0, done.output
    return done
