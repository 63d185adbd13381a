"""Commands and their options, as click knows them."""

import re
from collections.abc import Iterator

import click

from adrenoc.cli.main import cli
from scripts.reference.tables import cell, code, page, table


def pages() -> dict[str, str]:
    """Return a page of each command, and one that lists them."""
    context = click.Context(cli, info_name="adrenoc")
    commands = [(name, cli.get_command(context, name)) for name in cli.list_commands(context)]
    listed = [
        (f"[`adrenoc {name}`]({name}.md)", cell(command.get_short_help_str(200)))
        for name, command in commands
        if command is not None
    ]
    made = {
        f"commands/{name}.md": page(f"adrenoc {name}", *_describe(command, context, name))
        for name, command in commands
        if command is not None
    }
    intro = "Written from the commands themselves; `adrenoc COMMAND --help` says the same."
    return {
        "commands/index.md": page("Commands", intro, table(("command", "does"), listed)),
        **made,
    }


def _describe(command: click.Command, parent: click.Context, name: str) -> Iterator[str]:
    context = click.Context(command, parent=parent, info_name=name)
    yield f"```text\n{context.command_path} {' '.join(command.collect_usage_pieces(context))}\n```"
    yield _text(command.help or "")
    rows = [
        (code(record[0]), cell(record[1]))
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option) and not parameter.hidden
        if (record := parameter.get_help_record(context)) is not None
    ]
    yield table(("option", "means"), rows)
    if isinstance(command, click.Group):
        for inner_name in command.list_commands(context):
            inner = command.get_command(context, inner_name)
            if inner is not None:
                yield f"## {context.command_path} {inner_name}"
                yield from _describe(inner, context, inner_name)


def _text(help_text: str) -> str:
    """Print a docstring: paragraphs that click is told not to wrap (\\b) are code."""
    paragraphs = re.split(r"\n\s*\n", help_text.replace("\f", "").strip())
    shown = []
    for paragraph in paragraphs:
        if paragraph.startswith("\b"):
            shown.append(f"```text\n{paragraph.removeprefix(chr(8)).strip()}\n```")
        else:
            shown.append(" ".join(paragraph.split()).replace("<", "&lt;").replace("*", "\\*"))
    return "\n\n".join(shown)
