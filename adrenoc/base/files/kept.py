"""Files that a command reads: no output of the same command may replace them.

Compared by device and inode, so that other names for the same file count too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from adrenoc.base.errors import AdrenocError, OutputError

FindInputs = Callable[[], Iterable[Path]]

# Of the whole process: outputs are written by whichever thread made them.
_kept: list[FindInputs] = []


@contextmanager
def inputs_kept(find: FindInputs) -> Iterator[None]:
    """While the block runs, nothing that `find` names is replaced by an output.

    `find` is asked only where an output exists already: it may have to read a model.
    """
    _kept.append(find)
    try:
        yield
    finally:
        _kept.remove(find)


def refuse_input(output: Path) -> None:
    """Refuse an output that is one of the inputs.

    Raises:
        OutputError: naming both.
    """
    here = _identity(output)
    for path in _all_inputs() if here is not None else ():
        if _identity(path) == here:
            also = "" if path == output else f" ({path})"
            raise OutputError(
                f"{output} is an input of this command{also}, and will not be replaced",
                hint="name another place with --output",
            )


def refuse_folder_of_inputs(output: Path) -> None:
    """Refuse to replace a folder that is one of the inputs, or in which one lies.

    Raises:
        OutputError: naming both.
    """
    refuse_input(output)
    place = output.resolve()
    for path in _all_inputs() if output.is_dir() else ():
        if place in path.absolute().parents or place in path.resolve().parents:
            raise OutputError(
                f"{output} holds an input of this command ({path}), and will not be replaced",
                hint="name another place with --output",
            )


def _all_inputs() -> Iterator[Path]:
    for find in _kept:
        # A model that cannot be read has no further files; the command says what is wrong with it.
        with suppress(AdrenocError, OSError, RuntimeError):
            yield from find()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        facts = path.stat()
    except (OSError, ValueError):
        return None
    return facts.st_dev, facts.st_ino
