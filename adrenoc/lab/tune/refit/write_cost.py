"""Fitted constants as the tables of a target file."""

from __future__ import annotations

from adrenoc.lab.tune.refit.fit import Fitted
from adrenoc.target.cost.read import UNKNOWN


def cost_toml(fitted: Fitted, source: str, *, within: str = "cost.") -> str:
    """Return the constants that were changed, over their base.

    `source` says what they were fitted to, with the date and the command.  `within` is "cost." in
    the file of a GPU, and empty in one of `targets/cost/`.
    """
    name = fitted.cost.name.split()[0] or UNKNOWN
    lines = [f"[{within.rstrip('.')}]", f'base = "{name}"'] if within else [f'base = "{name}"']
    table = ""
    for (family, key), _, value in sorted(fitted.changed):
        if family != table:
            lines += ["", f"[{within}{family}]"]
            table = family
        text = source.replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'{key} = {{ value = {value}, source = "{text}" }}')
    return "\n".join(lines) + "\n"
