"""Name the command that installs an extra of adrenoc, from wherever this adrenoc came."""

from __future__ import annotations

import json
import shlex
from importlib.metadata import PackageNotFoundError, distribution
from urllib.parse import unquote, urlsplit


def pip_install(extra: str) -> str:
    """Return the pip command for `extra`: of the folder that was installed, or of the index.

    Names of other people's packages are not guessed: whoever installed a clone installs from it.
    """
    name, option, place = _find_source()
    return f"pip install {option}{shlex.quote(f'{name}[{extra}]{place}')}"


def _find_source() -> tuple[str, str, str]:
    """Return what pip was given (PEP 610): a name or folder, the option before it, a URL."""
    try:
        text = distribution("adrenoc").read_text("direct_url.json")
    except PackageNotFoundError:
        return ".", "", ""
    if text is None:
        return "adrenoc", "", ""
    said = json.loads(text)
    url = urlsplit(said["url"])
    if "dir_info" not in said or url.scheme != "file":
        kind = f"{said['vcs_info']['vcs']}+" if "vcs_info" in said else ""
        return "adrenoc", "", f" @ {kind}{said['url']}"
    return unquote(url.path), "-e " if said["dir_info"].get("editable") else "", ""
