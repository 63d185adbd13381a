"""`adrenoc build`: all models of a project, side by side, held against gates and a lock."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from adrenoc.cli.guarded import Command, InputPath, OutputPath, wants_json

if TYPE_CHECKING:
    from adrenoc.base.reporter import Reporter
    from adrenoc.project.build_project import BuildResult, BundleOutcome
    from adrenoc.project.worker_pool import CommandResult


@click.command("build", cls=Command)
@click.argument("project", type=InputPath(), default=Path("adrenoc.toml"))
@click.option(
    "--locked",
    is_flag=True,
    help="Fail, and say what, where anything would differ from adrenoc.lock.",
)
@click.option(
    "--accept", is_flag=True, help="Take what grew beyond the gates `grow`, and lock that."
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 256),
    default=2,
    show_default=True,
    help="Compilations side by side, some 0.5 GB each.",
)
@click.option(
    "--junit",
    type=OutputPath(is_file=True),
    metavar="FILE",
    help="The bundles as JUnit's XML, for continuous integration.",
)
@click.option(
    "--annotations",
    is_flag=True,
    help="Print what is wrong in the form that GitHub shows beside a change.",
)
@click.pass_context
def build_command(
    ctx: click.Context,
    project: Path,
    locked: bool,
    accept: bool,
    jobs: int,
    junit: Path | None,
    annotations: bool,
) -> None:
    """Compile all models of PROJECT, an adrenoc.toml, and lock what came of them.

    The file lists models with devices, presets, shapes, policies, logs and gates; adrenoc.lock
    beside it has digests of all that was read and made.
    """
    as_json = wants_json()
    from adrenoc.base.files.outputs import write_atomically
    from adrenoc.base.reporter import SilentReporter
    from adrenoc.cli import console
    from adrenoc.project.build_project import BuildOptions, build_project
    from adrenoc.project.for_servers import build_junit, list_annotations
    from adrenoc.project.project_file import read_project
    from adrenoc.project.worker_pool import open_workers

    if locked and accept:
        raise click.UsageError("--locked takes nothing new: no --accept")
    read = read_project(project)
    options = BuildOptions(locked=locked, accept=accept, jobs=jobs)

    def work(reporter: Reporter) -> BuildResult:
        with open_workers() as run:
            return build_project(
                read,
                options,
                run=run,
                progress=lambda name, said: _report(reporter, name, said),
            )

    if as_json:
        result = work(SilentReporter())
    else:
        with console.ConsoleReporter() as reporter:
            count = console.count_of(len(read.recipes), "bundle")
            reporter.heading(str(project), f"{count}, {jobs} at a time")
            result = work(reporter)
    if junit is not None:
        write_atomically(junit, build_junit(result))
    console.print_json(result) if as_json else _show(result)
    if annotations:
        from adrenoc.cli.terminal import say, say_aside

        for line in list_annotations(result, project):
            (say_aside if as_json else say)(line)
    if result.bad:
        code = _exit_code(result.bad)
        if not as_json:
            _tell(result)
        ctx.exit(code)


def _report(reporter: Reporter, name: str, said: CommandResult) -> None:
    """Tell of a compilation that has ended."""
    if said.exit_code:
        reporter.warn(f"{name}  failed: {said.message}")
        return
    note = "from the cache" if said.output.get("cached") else ""
    reporter.stage(name, said.took_s * 1000, note)


def _exit_code(bad: tuple[BundleOutcome, ...]) -> int:
    """That of the first compilation that failed; else the lock's, else that of gates."""
    from adrenoc.base.errors import LockError, PolicyError
    from adrenoc.project.build_project import DIFFERS, FAILED

    failed = [one.exit_code for one in bad if one.status == FAILED]
    if failed:
        return failed[0]
    differs = any(one.status == DIFFERS for one in bad)
    return LockError.exit_code if differs else PolicyError.exit_code


def _tell(result: BuildResult) -> None:
    from adrenoc.cli.terminal import say_error
    from adrenoc.project.for_servers import describe

    first = result.bad[0]
    more = f" (and {len(result.bad) - 1} more)" if len(result.bad) > 1 else ""
    say_error(f"{first.name}: {describe(first)}{more}", first.hint)


def _show(result: BuildResult) -> None:
    from adrenoc.cli import console

    rows = []
    for one in result.bundles:
        figures = one.figures
        time_us = figures.time_us if figures else None
        rows.append(
            (
                one.name,
                one.status,
                str(figures.kernels) if figures else "",
                str(figures.launches) if figures else "",
                str(figures.copies) if figures else "",
                console.size(figures.memory_bytes) if figures else "",
                console.size(figures.size_bytes) if figures else "",
                "" if time_us is None else console.ms(time_us / 1000),
            )
        )
    columns = ("bundle", "", "kernels", "launches", "copies", "memory", "size", "time at least")
    console.blank()
    console.print_table(columns, rows, right=columns[2:])
    notes = [(one.name, note) for one in result.bundles for note in one.notes]
    if notes:
        console.blank()
        console.print_fields(notes)
    console.print_fields([("lock", _describe_lock(result))])


def _describe_lock(result: BuildResult) -> str:
    if result.lock_written:
        return "written"
    return "as it was" if result.lock_is_there else "not written: not all is well"
