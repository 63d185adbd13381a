"""The command that installs an extra of adrenoc, and what extras bring: compilers, onnxruntime.

The wheels of onnxruntime, which is imported here alone, send what they do to their makers unless
told otherwise before the first import, and keep an identifier of the user in the home folder and
files in TMPDIR for that.  A model that is compiled is nobody else's business.
"""

import importlib
import importlib.util
import json
import os
import shlex
import shutil
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

from adrenoc.base.errors import DependencyError


def pip_install(extra: str) -> str:
    """Return the pip command for `extra`: of the folder that was installed, or of the index. Names
    of other people's packages are not guessed: whoever installed a clone installs from it."""
    name, option, place = _find_source()
    return f"pip install {option}{shlex.quote(f'{name}[{extra}]{place}')}"


def find_zig() -> str | None:
    """Return the program of the package ziglang, which has clang and lld; None without it."""
    found = importlib.util.find_spec("ziglang")
    # What `python -m ziglang` starts, without a Python before it.
    return str(Path(found.origin).with_name("zig")) if found and found.origin else None


def find_c_compiler(title: str, zig_options: Sequence[str], gcc: Sequence[str]) -> list[str]:
    """Return the start of a command that compiles C for what `title` names: ziglang's, or GCC's.
    Raises DependencyError where neither is there."""
    if (zig := find_zig()) is not None:
        # Its own checks of undefined behaviour would call functions that nothing has.
        return [zig, "cc", *zig_options, "-fno-sanitize=all"]
    if gcc and shutil.which(gcc[0]) is not None:
        return [*gcc]
    raise DependencyError(
        f"no compiler for the {title}: neither the package ziglang nor "
        f"{gcc[0] if gcc else 'a GCC for it'}",
        hint=pip_install("link"),
    )


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


_SILENT = "ORT_DISABLE_TELEMETRY"


def import_onnxruntime() -> ModuleType:
    """Return the package, which tells nobody of what it does; who sets the variable is heard.
    Raises ImportError where it is not installed."""
    os.environ.setdefault(_SILENT, "1")
    return importlib.import_module("onnxruntime")


def runtime_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of onnxruntime, which share no base but Exception."""
    state = import_onnxruntime().capi.onnxruntime_pybind11_state
    own = [v for v in vars(state).values() if isinstance(v, type) and issubclass(v, Exception)]
    return (*own, RuntimeError, ValueError)
