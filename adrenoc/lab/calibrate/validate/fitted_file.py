"""A target file with constants that were fitted in the place of those that it had."""

from __future__ import annotations

import re
from collections.abc import Sequence

from adrenoc.lab.calibrate.target_file import base_of
from adrenoc.lab.calibrate.validate.fit import Fit
from adrenoc.lab.calibrate.validate.session import Validation

NAME = "fitted"
"""The name of the source that fitted values cite."""
_HEADER = re.compile(r"\s*\[([^\[\]]+)\]\s*(#.*)?$")


def fitted_toml(validation: Validation, fit: Fit) -> str:
    """The file of the validated target, or one that builds on it where it is a listed one."""
    target, device = validation.target, validation.device
    if target.own is not None:
        text = target.own.text
    else:
        text = f'title = "{device.name}, fitted"\nbase = "{base_of(target)}"\n'
    kernels = fit.fitted.before.kernels
    source = (
        f"fitted to schedules of {kernels} kernels, measured on {device.name}, driver "
        f"{device.shown_driver}, {validation.date.isoformat()}; "
        "adrenoc device calibrate --validate fit"
    )
    if fit.changed:
        text = set_key(text, "sources", NAME, f'"{source}"')
    for (family, key), _, value in fit.changed:
        text = set_key(text, f"cost.{family}", key, f'{{ value = {value!r}, source = "@{NAME}" }}')
    return text


def set_key(text: str, section: str, key: str, value: str) -> str:
    """A TOML file with `key = value` in a section, in the place of what it said of that key."""
    lines = text.splitlines()
    start = next((n for n, line in enumerate(lines) if _section_of(line) == section), None)
    if start is None:
        return "\n".join([*lines, "", f"[{section}]", f"{key} = {value}"]) + "\n"
    end = next(
        (n for n in range(start + 1, len(lines)) if _section_of(lines[n]) is not None), len(lines)
    )
    own = _drop_key(lines[start + 1 : end], key)
    while own and not own[-1].strip():
        own.pop()
    new = [*lines[: start + 1], *own, f"{key} = {value}"]
    rest = lines[end:]
    return "\n".join([*new, "", *rest] if rest else new) + "\n"


def _drop_key(lines: Sequence[str], key: str) -> list[str]:
    stated = re.compile(rf"\s*{re.escape(key)}\s*=")
    return [line for line in lines if not stated.match(line)]


def _section_of(line: str) -> str | None:
    found = _HEADER.match(line)
    return None if found is None else found.group(1).strip()
