"""`adrenoc doctor`: what works here, what does not, and what to type."""

from __future__ import annotations

import click

from adrenoc.cli.options import json_option


@click.command("doctor")
@json_option()
@click.pass_context
def doctor_command(ctx: click.Context, as_json: bool) -> None:
    """Check this installation and name the fix for what is missing."""
    from adrenoc.cli import console
    from adrenoc.doctor import examine
    from adrenoc.errors import DependencyError

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
