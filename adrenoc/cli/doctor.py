"""`adrenoc doctor`: what works here, what does not, and what to type."""

from __future__ import annotations

from pathlib import Path

import click

from adrenoc.cli.guarded import Command, InputPath, wants_json


@click.command("doctor", cls=Command)
@click.option(
    "--app",
    type=InputPath(),
    metavar="FILE",
    help="Look over an APK or AAR instead.",
)
@click.pass_context
def doctor_command(ctx: click.Context, app: Path | None) -> None:
    """Check this installation and name the fix for what is missing."""
    as_json = wants_json()
    if app is not None:
        _check_app(ctx, app, as_json=as_json)
        return
    from adrenoc.base.errors import DependencyError
    from adrenoc.check.doctor import examine
    from adrenoc.cli import console

    findings = examine()
    broken = [finding for finding in findings if finding.state == "broken"]
    if as_json:
        console.print_json(findings)
        ctx.exit(DependencyError.exit_code if broken else 0)
    for finding in findings:
        console.print_verdict(finding.state == "ok", f"{finding.subject}: {finding.seen}")
        if finding.fix:
            console.print_fields([("needed for", finding.needed_for), ("fix", finding.fix)])
    if broken:
        raise DependencyError(
            f"this installation does not work: {broken[0].subject} is {broken[0].seen}",
            hint=broken[0].fix,
        )


def _check_app(ctx: click.Context, app: Path, *, as_json: bool) -> None:
    from adrenoc.base.errors import AppError
    from adrenoc.cli import console
    from adrenoc.native.android.app_check import check_app

    troubles = check_app(app)
    if as_json:
        console.print_json(troubles)
        ctx.exit(AppError.exit_code if troubles else 0)
    if not troubles:
        console.print_verdict(True, f"{app.name}: finds OpenCL, loads the runtime and the bundle")
        return
    for trouble in troubles:
        console.print_verdict(False, f"{trouble.where} {trouble.wrong}")
        console.print_fields([("then", trouble.then), ("fix", trouble.fix)])
    first = troubles[0]
    raise AppError(f"{app}: {first.where} {first.wrong}, so {first.then}", hint=first.fix)
