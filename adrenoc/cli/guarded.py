"""Commands that keep what they read: every path of theirs is an input or an output, and says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import click

from adrenoc.base.errors import AdrenocError, OutputError
from adrenoc.base.files.outputs import check_file_can_be_written, check_folder_can_be_made
from adrenoc.base.files.read import inputs_kept, refuse_input
from adrenoc.base.host.memory import require_address_space

_MODELS = (".onnx", ".tflite", ".pb", "")
_MOST_FILES = 10_000
"""Of a folder, such as an NDK, to compare an output with."""


class InputPath(click.Path):
    """A file or folder that a command reads; no output of the command may replace it.

    `replaced` frees what the command is to change.  Of a folder, the files of `pattern` are read.
    `as_text` keeps a value that may be a name, too.
    """

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
                if getattr(param.type, "knows", _knows_none)(name.replace("-", "_")):
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


def _knows_none(_: str) -> bool:
    return False


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
