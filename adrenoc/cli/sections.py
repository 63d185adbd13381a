"""A group of commands that lists them in sections, each with its whole first sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click


class SectionedGroup(click.Group):
    """A command line of many commands: help lists them by what they are for, as they are added.

    Click's own list is in the order of the alphabet, and cuts sentences that a line does not hold.
    """

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self._sections: dict[str, list[str]] = {}

    def add_sections(self, sections: Mapping[str, Sequence[click.Command]]) -> None:
        """Add commands under a title each: `Devices` -> devices, serve."""
        for title, commands in sections.items():
            for command in commands:
                self.add_command(command)
                self._sections.setdefault(title, []).append(str(command.name))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one list a section; all have their sentences at the same column."""
        widest = max((len(name) for name in self.commands), default=0)
        for title, names in self._sections.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name.ljust(widest), _first_sentence(self.commands[name])) for name in names]
                )


def make_group(name: str, text: str, commands: Sequence[click.Command]) -> click.Group:
    """Return a group of commands, whose help lists them in this order."""
    group = SectionedGroup(name, help=text)
    group.add_sections({"Commands": commands})
    return group


def _first_sentence(command: click.Command) -> str:
    """Return what a command does, as the first paragraph of its help says it."""
    return " ".join((command.help or "").split("\n\n")[0].split())
