"""One hostile case: what lies in a folder, what is typed there, and how it may end."""

import socket
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

MOST_SECONDS = 20.0
MOST_BYTES = 3 << 30
"""Of processor time and of resident memory, TVM's own half GiB included."""

TYPED = frozenset(range(11, 40))
ENDED = TYPED | {0}
"""Exit codes: of typed errors, and of these or success."""

Make = Callable[[Path], object]


def nothing(_: Path) -> None:
    """Nothing beside what every folder holds."""


@dataclass(frozen=True)
class Case:
    """`family` and `name` for the table; `make` fills the folder before `command` runs in it.

    `codes` are the exit codes that it may end with; `makes` are names in the folder that may be
    new or changed.  `serve` is done with each connection to `{port}`.  The rest sets up the
    process: variables, limits by name, file descriptors to close or to open elsewhere, the mask of
    new files, and a signal to send after so many seconds; `without_rights` takes from root what
    others do not have: to read and write what the modes of files forbid.
    """

    family: str
    name: str
    make: Make = nothing
    command: tuple[str, ...] = ()
    _: KW_ONLY
    codes: frozenset[int] = TYPED
    makes: tuple[str, ...] = ()
    environment: Mapping[str, str | None] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    closed: tuple[int, ...] = ()
    opened: Mapping[int, str] = field(default_factory=dict)
    umask: int = 0o022
    signal: int = 0
    after_s: float = 0.0
    in_removed_folder: bool = False
    without_rights: bool = False
    said: str = ""
    serve: Callable[[socket.socket], None] | None = None

    @property
    def title(self) -> str:
        """How a test is called."""
        return f"{self.family}: {self.name}"
