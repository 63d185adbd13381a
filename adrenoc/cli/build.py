"""`adrenoc build`: all models of a project, side by side, held against gates and a lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adrenoc.base.errors import LockError, PolicyError
from adrenoc.base.files.outputs import write_atomically
from adrenoc.base.files.read import is_on_github
from adrenoc.base.text.report import Cell, Fields, Part, tabulate
from adrenoc.base.text.spelling import count_of, show_bytes, show_us
from adrenoc.cli import console
from adrenoc.cli.console import say, say_aside, say_error
from adrenoc.cli.guarded import Command, argument, give_options, option, wants_json
from adrenoc.cli.options import junit_option

if TYPE_CHECKING:
    from adrenoc.base.host.proc import Result
    from adrenoc.base.reporter import Reporter
    from adrenoc.bundle.gates import Figures
    from adrenoc.project.build_project import BuildResult, BundleOutcome


@dataclass(frozen=True, kw_only=True)
class _Given:
    project: Path = argument(default=Path("adrenoc.toml"))
    locked: bool = option(
        "--locked", help="Fail, and say what, where anything would differ from adrenoc.lock."
    )
    accept: bool = option("--accept", help="Take what grew beyond the gates `grow`, and lock that.")
    jobs: int = option(
        "--jobs",
        type=click.IntRange(1, 256),
        default=2,
        help="Compilations side by side, some 0.5 GB each.",
    )
    junit: Path | None = junit_option("The bundles")

    def __post_init__(self) -> None:
        if self.locked and self.accept:
            raise click.UsageError("--locked takes nothing new: no --accept")


@click.command("build", cls=Command)
@give_options(_Given)
def build_command(given: _Given) -> int:
    """Compile all models of PROJECT, an adrenoc.toml, and lock what came of them.

    The file lists models with devices, presets, shapes, policies, logs and gates; adrenoc.lock
    beside it has digests of all that was read and made.  Where GitHub runs it, what is wrong is
    told in the form that is shown beside a change.
    """
    from adrenoc.base.host.proc import CommandRunner
    from adrenoc.project.build_project import (
        BuildOptions,
        build_junit,
        build_project,
        list_annotations,
    )
    from adrenoc.project.project_file import read_project

    read, quiet = read_project(given.project), wants_json()
    options = BuildOptions(locked=given.locked, accept=given.accept, jobs=given.jobs)
    count = count_of(len(read.recipes), "bundle")
    detail = f"{count}, {given.jobs} at a time"
    with (
        console.show_progress(str(given.project), detail) as reporter,
        closing(CommandRunner()) as runner,
    ):
        result = build_project(
            read, options, runner.run, lambda name, said: _report(reporter, name, said)
        )
    if given.junit is not None:
        write_atomically(given.junit, build_junit(result))
    console.tell(result, _list_parts(result))
    if is_on_github():  # which shows them beside a change
        for line in list_annotations(result, given.project):
            (say_aside if quiet else say)(line)
    if not result.bad:
        return 0
    if not quiet:
        _tell(result)
    return _exit_code(result.bad)


def _report(reporter: Reporter, name: str, said: Result) -> None:
    if said.exit_code:
        reporter.warn(f"{name}  failed: {said.error}")
        return
    note = "from the cache" if said.output.get("cached") else ""
    reporter.stage(name, said.took_s * 1000, note)


def _exit_code(bad: tuple[BundleOutcome, ...]) -> int:
    """Return the code of the first failed compilation; else the lock's, else that of gates."""
    from adrenoc.project.build_project import DIFFERS, FAILED

    failed = [one.exit_code for one in bad if one.status == FAILED]
    if failed:
        return failed[0]
    differs = any(one.status == DIFFERS for one in bad)
    return LockError.exit_code if differs else PolicyError.exit_code


def _tell(result: BuildResult) -> None:
    from adrenoc.project.build_project import describe

    first = result.bad[0]
    more = f" (and {len(result.bad) - 1} more)" if len(result.bad) > 1 else ""
    say_error(f"{first.name}: {describe(first)}{more}", first.hint)


def _list_parts(result: BuildResult) -> Iterator[Part]:
    def of_figures(show: Callable[[Figures], Cell]) -> Callable[[BundleOutcome], Cell]:
        return lambda one: None if one.figures is None else show(one.figures)

    yield tabulate(
        result.bundles,
        {
            "bundle": lambda one: one.name,
            "": lambda one: one.status,
            "kernels": of_figures(lambda figures: figures.kernels),
            "launches": of_figures(lambda figures: figures.launches),
            "copies": of_figures(lambda figures: figures.copies),
            "memory": of_figures(lambda figures: show_bytes(figures.memory_bytes)),
            "size": of_figures(lambda figures: show_bytes(figures.size_bytes)),
            "time at least": of_figures(lambda figures: show_us(figures.time_us)),
        },
    )
    yield Fields(
        pairs=[
            *((one.name, note) for one in result.bundles for note in one.notes),
            ("lock", _describe_lock(result)),
        ]
    )


def _describe_lock(result: BuildResult) -> str:
    if result.lock_written:
        return "written"
    return "as it was" if result.lock_is_there else "not written: not all is well"
