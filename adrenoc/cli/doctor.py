"""`adrenoc doctor`: what works here, what does not, and what to type."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from adrenoc.base.errors import AppError, DependencyError
from adrenoc.base.text.report import Fields, Part, Verdict
from adrenoc.cli import console
from adrenoc.cli.guarded import Command
from adrenoc.cli.records import give_options, option


@dataclass(frozen=True, kw_only=True)
class _Examined:
    app: Path | None = option("--app FILE", help="Look over an APK or AAR instead.")


@click.command("doctor", cls=Command)
@give_options(_Examined)
def doctor_command(given: _Examined) -> int:
    """Check this installation and name the fix for what is missing."""
    if given.app is not None:
        return _check_app(given.app)
    from adrenoc.check.doctor import examine

    findings = examine()
    broken = [finding for finding in findings if finding.state == "broken"]

    parts: list[Part] = []
    for one in findings:
        parts.append(Verdict(passed=one.state == "ok", text=f"{one.subject}: {one.seen}"))
        fields = [("needed for", one.needed_for), ("fix", one.fix)]
        parts.append(Fields(pairs=fields if one.fix else []))
    error = None
    if broken:
        error = DependencyError(
            f"this installation does not work: {broken[0].subject} is {broken[0].seen}",
            hint=broken[0].fix,
        )
    return console.tell(findings, parts, error=error)


def _check_app(app: Path) -> int:
    from adrenoc.native.android.app_check import check_app

    troubles = check_app(app)

    right = Verdict(passed=True, text=f"{app.name}: finds OpenCL, loads the runtime and the bundle")
    parts: list[Part] = [] if troubles else [right]
    for one in troubles:
        parts.append(Verdict(passed=False, text=f"{one.where} {one.wrong}"))
        parts.append(Fields(pairs=[("then", one.then), ("fix", one.fix)]))
    error = None
    if troubles:
        first = troubles[0]
        error = AppError(f"{app}: {first.where} {first.wrong}, so {first.then}", hint=first.fix)
    return console.tell(troubles, parts, error=error)
