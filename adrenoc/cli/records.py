"""Options as fields of frozen records: a command's record holds all that was typed.

@dataclass(frozen=True, kw_only=True)
class Repeats:
    repeat: int = option("--repeat N", type=click.IntRange(min=1), default=10, help="Runs to time.")

@click.command("run")
@give_options(Repeats)
def run_command(given: Repeats) -> None: ...

A field that is a `bool` is a flag, one that is a `tuple[..., ...]` or a `dict` may be repeated, a
`Path` is an input where nothing else is said, and a usual value is shown.  A field that is
`group_of` another record has that record's options there.  What does not go together is refused by
the record's `__post_init__`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, fields
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from adrenoc.cli.guarded import InputPath

T = TypeVar("T")
_DECLARED, _RECORD = "declared", "record"


def option(*names: str, **declared: Any) -> Any:
    """Declare a field as an option of click's; `--repeat N` is also how help shows it."""
    *others, (name, _, shown) = *names[:-1], names[-1].partition(" ")
    if shown:
        declared["metavar"] = shown
    return field(metadata={_DECLARED: (click.option, (*others, name), declared)})


def argument(**declared: Any) -> Any:
    """Declare a field as an argument of click's, under the field's name."""
    return field(metadata={_DECLARED: (click.argument, (), declared)})


def group_of(record: type[Any]) -> Any:
    """Declare a field as a record of options of its own."""
    return field(metadata={_RECORD: record})


def give_options(record: type[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Hand a command its options as one `record`, and give click the options of its fields."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def run(**given: Any) -> Any:
            return command(_build(record, given))

        declared: Callable[..., Any] = run
        for decorator in reversed([*_list_decorators(record)]):
            declared = decorator(declared)
        return declared

    return decorate


def read_words(record: type[T], words: Sequence[str]) -> T:
    """Read words of a command line as one `record`. Raises click.UsageError where they are no
    options of it."""
    command = click.command(add_help_option=False)(give_options(record)(lambda given: given))
    read: T = command.main([*words], standalone_mode=False)
    return read


def _list_decorators(record: type[Any]) -> Iterator[Callable[..., Any]]:
    for item in fields(record):
        if _RECORD in item.metadata:
            yield from _list_decorators(item.metadata[_RECORD])
        else:
            declare, names, declared = item.metadata[_DECLARED]
            implied = _imply(str(item.type), declared.get("default"), is_option=bool(names))
            yield declare(*names, item.name, **{**implied, **declared})


def _imply(kind: str, default: object, *, is_option: bool) -> dict[str, Any]:
    """Return what a field's type and its usual value say of an option, or of an argument."""
    implied: dict[str, Any] = {}
    if kind.startswith(("Path", "tuple[Path")):
        implied["type"] = InputPath()
    if not is_option:
        return implied
    if kind == "bool":
        implied["is_flag"] = True
    if (kind.startswith("tuple[") and kind.endswith(", ...]")) or kind.startswith("dict["):
        implied["multiple"] = True
    first = default[0] if isinstance(default, tuple) and default else default
    if isinstance(first, str | int | float | Path) and (first or kind == "int"):
        implied["show_default"] = True
    return implied


def _build(record: type[Any], given: Mapping[str, Any]) -> Any:
    return record(
        **{
            item.name: _build(item.metadata[_RECORD], given)
            if _RECORD in item.metadata
            else given[item.name]
            for item in fields(record)
        }
    )
