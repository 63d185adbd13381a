"""Commands whose every path is an input or an output, and options as fields of frozen records.

    @dataclass(frozen=True, kw_only=True)
    class Repeats:
        repeat: int = option("--repeat N", type=click.IntRange(min=1), default=10, help="Runs.")

    @click.command("run")
    @give_options(Repeats)
    def run_command(given: Repeats) -> None: ...

A field that is a `bool` is a flag, one that is a `tuple[..., ...]` or a `dict` may be repeated, a
`Path` is an input where nothing else is said, and a usual value is shown. A field that is
`group_of` another record has that record's options there. What does not go together is refused by
the record's `__post_init__`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field, fields
from functools import wraps
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import click

from adrenoc.base.errors import AdrenocError, OutputError
from adrenoc.base.files.outputs import check_file_can_be_written, check_folder_can_be_made
from adrenoc.base.files.read import inputs_kept, refuse_input
from adrenoc.base.host.memory import require_address_space

_MODELS = (".onnx", ".tflite", ".pb", "")
_MOST_FILES = 10_000
"""Of a folder, such as an NDK, to compare an output with."""


class InputPath(click.Path):
    """A file or folder that a command reads; no output of the command may replace it. `replaced`
    frees what the command is to change. Of a folder, the files of `pattern` are read. `as_text`
    keeps a value that may be a name, too."""

    def __init__(
        self, *, replaced: bool = False, pattern: str = "*", as_text: bool = False
    ) -> None:
        # What cannot be read has an error of its own kind, which is no wrong command line.
        super().__init__(readable=False, path_type=str if as_text else Path)
        self.replaced = replaced
        self.pattern = pattern

    def files(self, path: Path) -> Iterator[Path]:
        """List all files that are read for `path`."""
        yield path
        if path.is_dir():
            yield from islice(path.rglob(self.pattern), _MOST_FILES)
        elif path.suffix.lower() in _MODELS:
            from adrenoc.importers.formats import find_model_files

            with suppress(AdrenocError):  # the command says what is wrong with it
                yield from find_model_files(path).paths


class OutputPath(click.Path):
    """A file or folder that a command writes. `is_file` where it can be nothing but a file,
    `is_folder` for a folder to which files are added."""

    def __init__(self, *, is_file: bool = False, is_folder: bool = False) -> None:
        super().__init__(readable=False, path_type=Path)
        self.is_file, self.is_folder = is_file, is_folder

    def refuse(self, path: Path) -> None:
        """Say before the work begins that it cannot be written, as far as that is known by then.
        Raises OutputError where it could not be written, or is an input of the command."""
        if self.is_file:
            check_file_can_be_written(path)
            return
        refuse_input(path)
        if self.is_folder:
            check_folder_can_be_made(path)


_JSON = "adrenoc.json"

JSON_OPTION = click.Option(
    ["--json"],
    is_flag=True,
    expose_value=False,
    callback=lambda ctx, _, asked: ctx.meta.update({_JSON: True}) if asked else None,
    help="Print the result as JSON.",
)
"""Of every command, as --help is; it may stand before the command's name, too."""


def wants_json() -> bool:
    """Return whether the command that runs is to print JSON."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_JSON))


PLACE_NAMES = ("--on", "--rpc")
"""The option that says where a command works; `--adb[=SERIAL]` is `--on adb[:SERIAL]`."""
_ADB = "--adb"


class Command(click.Command):
    """A command whose outputs replace none of its inputs."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take words that say the same as others for these; name the option that has a name which
        was given as one."""
        if any(PLACE_NAMES[0] in param.opts for param in self.params):
            args = [_spell_place(word) for word in args]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name.lstrip("-")
            for param in self.params:
                if getattr(param.type, "knows", lambda _: False)(name.replace("-", "_")):
                    said = f"no such option '--{name}': it is {param.opts[0]} {name}=VALUE"
                    raise click.NoSuchOption(error.option_name, said, ctx=ctx) from None
            raise

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's own parameters, and those of every command."""
        *own, help_option = super().get_params(ctx)
        return [*own, JSON_OPTION, help_option]

    def invoke(self, ctx: click.Context) -> Any:
        """Look at the outputs first, then do it; a number that it gives is the exit code."""
        with inputs_kept(lambda: self._inputs(ctx)):
            for param, path in self._paths(ctx):
                if isinstance(param.type, OutputPath):
                    with _hints_at(param):
                        param.type.refuse(path)
            code = super().invoke(ctx)
        if isinstance(code, int) and code:
            ctx.exit(code)
        return code

    def _inputs(self, ctx: click.Context) -> Iterator[Path]:
        for param, path in self._paths(ctx):
            if isinstance(param.type, InputPath):
                yield from param.type.files(path) if not param.type.replaced else ()
            elif not isinstance(param.type, OutputPath):
                yield path

    def _paths(self, ctx: click.Context) -> Iterator[tuple[click.Parameter, Path]]:
        for param in self.params:
            value = ctx.params.get(param.name or "")
            many = value if isinstance(value, list | tuple) else (value,)
            is_path = isinstance(param.type, InputPath)
            yield from ((param, path) for path in _only_paths(many, texts=is_path))


def _spell_place(word: str) -> str:
    """Write `--adb`, whose serial number may be left out, as the option that it is short for."""
    name, equals, serial = word.partition("=")
    return word if name != _ADB else f"{PLACE_NAMES[0]}=adb{':' if equals else ''}{serial}"


class HeavyCommand(Command):
    """A command that loads numpy and TVM."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command where there is room for numpy and TVM; refuse it before where there is
        none."""
        require_address_space()
        return super().invoke(ctx)


class Group(click.Group):
    """Commands of `Command`."""

    command_class = Command


@contextmanager
def _hints_at(param: click.Parameter) -> Iterator[None]:
    """Name the option as the hint of whatever is refused in the block."""
    try:
        yield
    except OutputError as error:
        error.hint = error.hint.replace("--output", param.opts[-1])
        raise


def _only_paths(values: Iterable[object], *, texts: bool) -> Iterator[Path]:
    for value in values:
        if texts and isinstance(value, str):
            yield Path(value)
        path = getattr(value, "path", value)  # `InputFile` has a name beside it
        if isinstance(path, Path):
            yield path


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
