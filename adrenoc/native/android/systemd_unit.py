"""A unit of systemd that serves TVM's RPC protocol from a built runtime, on a board or laptop."""

import grp
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from adrenoc.base.errors import DependencyError, OptionError
from adrenoc.base.files.outputs import output_error, write_atomically
from adrenoc.base.files.read import config_folder
from adrenoc.base.text.spelling import quote_word
from adrenoc.native.android.elf import read_elf
from adrenoc.native.android.runtime_build import LIBRARY, SERVER

UNIT = "adrenoc-rpc.service"
_NAME = UNIT.partition(".")[0]
# Those who may open /dev/dri/renderD128 (Mesa) and /dev/kgsl-3d0 (Qualcomm's driver).
_GPU_GROUPS = ("render", "video")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_TEXT = """\
# Written by `adrenoc runtime install-unit`.
[Unit]
Description=RPC server of adrenoc: bundles of other machines run on this GPU
Wants=network-online.target
After=network-online.target

[Service]
ExecStart={command}
Environment=XDG_CACHE_HOME=%C/{name}
{environment}\
Restart=on-failure
RestartSec=2
StateDirectory={name}
CacheDirectory={name}
LimitCORE=0
{rights}\

[Install]
WantedBy={wanted_by}
"""


@dataclass(frozen=True, kw_only=True)
class Service:
    """What the unit starts: `folder` holds the runtime, `words` are options of its server.

    `environment` holds NAME=VALUE, such as RUSTICL_ENABLE=freedreno.  `for_user`: a unit of the
    user who installs it, else one of the system, which runs as a user of its own.
    """

    folder: Path
    words: tuple[str, ...]
    environment: tuple[str, ...] = ()
    for_user: bool = False


def find_unit_place(*, for_user: bool) -> Path:
    """Return where systemd looks for units of this user, or of the system."""
    if not for_user:
        return Path("/etc/systemd/system") / UNIT
    return config_folder() / "systemd" / "user" / UNIT


def print_unit(service: Service) -> str:
    """Return the text of the unit. Raises OptionError where a variable is none, or a word holds
    what no line of a unit can."""
    for variable in service.environment:
        if not _VARIABLE.match(variable):
            raise OptionError(
                f'--env "{variable}": expected NAME=VALUE',
                hint="adrenoc runtime install-unit --env RUSTICL_ENABLE=freedreno",
            )
    server = str(service.folder / SERVER)
    places = ("--folder", f"%S/{_NAME}", "--store", f"%C/{_NAME}")
    # Of a command alone, systemd expands $ too.
    words = [_quote(word).replace("$", "$$") for word in service.words]
    command = [_quote(server), *words, *places]
    rights = "" if service.for_user else _state_rights()
    return _TEXT.format(
        name=_NAME,
        command=" ".join(command),
        environment="".join(f"Environment={_quote(v)}\n" for v in service.environment),
        rights=rights,
        wanted_by="default.target" if service.for_user else "multi-user.target",
    )


def install_unit(service: Service, output: Path) -> Path:
    """Write the unit to the file `output`, for this user's eyes: a key stands in it.

    Raises DependencyError where the folder holds no server for this machine; OptionError where the
    server lies where the unit's user could not start it, or a word is wrong; OutputError where it
    cannot be written.
    """
    _check_server(service)
    text = print_unit(service)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise output_error(output, error) from error
    write_atomically(output, text, private=True)
    return output


def _quote(word: str) -> str:
    """Return a word of a unit's line: systemd expands % there, and knows quotes. Raises OptionError
    where it holds a control character."""
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in word):
        raise OptionError(
            f"{word!r} holds a control character, expected a word that fits in a line",
            hint="adrenoc runtime install-unit --help",
        )
    plain = word.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + plain.replace("%", "%%") + '"'


def _state_rights() -> str:
    """Return a user made for the service, with those of the GPU's groups that there are."""
    known = {entry.gr_name for entry in grp.getgrall()}
    groups = [group for group in _GPU_GROUPS if group in known]
    lines = ["DynamicUser=yes", "RestrictAddressFamilies=AF_INET AF_UNIX"]
    if groups:
        lines.append(f"SupplementaryGroups={' '.join(groups)}")
    return "".join(f"{line}\n" for line in lines)


def _check_server(service: Service) -> None:
    """Refuse a runtime that the unit could not start. Raises DependencyError where there is none,
    or it is for another machine; OptionError where a folder on the way is closed to the unit's
    user."""
    server = service.folder / SERVER
    try:
        server.stat()
    except OSError as error:
        raise DependencyError(
            f"{service.folder} holds no {SERVER} ({error.strerror}), expected a built runtime",
            hint=f"adrenoc runtime build -o {quote_word(service.folder)}",
        ) from error
    machine = read_elf(server).machine
    if machine != platform.machine():
        raise DependencyError(
            f"{server} is for {machine}, expected one for this {platform.machine()} machine",
            hint=f"adrenoc runtime build -o {quote_word(service.folder)}, on the machine that "
            "serves",
        )
    if service.for_user:
        return
    closed = _find_closed(server.resolve())
    if closed is not None:
        raise OptionError(
            f"{closed} is closed to other users, and the service runs as one of its own",
            hint="adrenoc runtime build -o /opt/adrenoc, then install-unit --runtime /opt/adrenoc",
        )


def _find_closed(server: Path) -> Path | None:
    """Return the first of program, library beside it and folders above that is not for all."""
    files = [path for path in (server, server.with_name(LIBRARY)) if path.exists()]
    wanted = [*((path, 0o005) for path in files), *((path, 0o001) for path in server.parents)]
    return next((path for path, mode in wanted if path.stat().st_mode & mode != mode), None)
