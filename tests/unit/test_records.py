"""Fields of records are options: what their types and usual values say is said nowhere else."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest

from adrenoc.cli.guarded import InputPath, OutputPath
from adrenoc.cli.records import argument, give_options, group_of, option, read_words


@dataclass(frozen=True, kw_only=True)
class Inner:
    deep: bool = option("--deep", help="A flag of a group.")


@dataclass(frozen=True, kw_only=True)
class Outer:
    model: Path = argument()
    count: int = option("-n", "--count N", default=0, help="A number.")
    host: str = option("--host", default="here", help="A text.")
    hidden: str = option("--hidden", default="", help="Nothing.")
    logs: tuple[Path, ...] = option("--log FILE", help="Inputs.")
    page: Path | None = option("--html FILE", type=OutputPath(is_file=True), help="An output.")
    pair: tuple[float, float] = option("--pair", type=(float, float), default=(1.0, 2.0))
    inner: Inner = group_of(Inner)


def params() -> dict[str, Any]:
    command = click.command("c")(give_options(Outer)(lambda given: given))
    return {str(param.name): param for param in command.params}


def test_types_of_fields_say_what_options_are() -> None:
    found = params()
    assert [name for name, one in found.items() if getattr(one, "is_flag", False)] == ["deep"]
    assert [name for name, one in found.items() if one.multiple] == ["logs"]
    assert [name for name, one in found.items() if isinstance(one.type, InputPath)] == [
        *("model", "logs")
    ]
    assert isinstance(found["page"].type, OutputPath)
    shown = [name for name, one in found.items() if getattr(one, "show_default", None)]
    assert shown == ["count", "host", "pair"]


def test_a_name_stands_before_what_it_takes() -> None:
    found = params()
    assert (found["count"].opts, found["count"].metavar) == (["-n", "--count"], "N")
    assert (found["host"].opts, found["host"].metavar) == (["--host"], None)


def test_words_become_a_record() -> None:
    read = read_words(Outer, ["m", "--log", "a", "--log", "b", "--deep", "-n", "3"])
    assert read.logs == (Path("a"), Path("b")) and read.model == Path("m")
    assert (read.count, read.host, read.pair, read.inner) == (
        3,
        "here",
        (1.0, 2.0),
        Inner(deep=True),
    )
    with pytest.raises(click.UsageError):
        read_words(Outer, ["m", "--deeper"])
