"""Where a command works, in the words that are short for `--on`."""

from dataclasses import dataclass

import click
import pytest
from click.testing import CliRunner

from adrenoc.cli.guarded import Command
from adrenoc.cli.place_options import HERE, PlaceChoice, place_option
from adrenoc.cli.records import argument, give_options


@dataclass(frozen=True, kw_only=True)
class _Place:
    bundle: str = argument()
    place: PlaceChoice = place_option()


@click.command(cls=Command)
@give_options(_Place)
def _work(given: _Place) -> None:
    click.echo(f"{given.bundle} {given.place}")


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ([], HERE),
        (["--on", "adb"], PlaceChoice(text="adb", adb="")),
        (["--adb"], PlaceChoice(text="adb", adb="")),
        (["--adb=R5CT"], PlaceChoice(text="adb:R5CT", adb="R5CT")),
        (["--rpc", "pc:9090"], PlaceChoice(text="pc:9090", where="pc:9090")),
        (
            ["--rpc=secret@pc:9090"],
            PlaceChoice(text="secret@pc:9090", where="pc:9090", key="secret"),
        ),
    ],
)
def test_short_words_name_the_same_place(words: list[str], place: PlaceChoice) -> None:
    for typed in ([*words, "b.adrenoc"], ["b.adrenoc", *words]):
        done = CliRunner().invoke(_work, typed)
        assert done.output == f"b.adrenoc {place}\n"
