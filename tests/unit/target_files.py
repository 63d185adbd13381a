"""A copy of the target files that a test may spoil."""

import re
import shutil
from pathlib import Path

from adrenoc.base.files.read import data_folder

OWN_COST = (
    '[cost]\nbase = "a7xx"\n\n[cost.conv_local]\n'
    'k_step_slots = { value = 41, source = "measured" }\n'
)
"""Constants of a GPU's own over those of a table."""


def copy_targets(folder: Path) -> Path:
    """All target files, in a new folder `targets` in `folder`."""
    return Path(shutil.copytree(data_folder("targets"), folder / "targets"))


def edit(path: Path, pattern: str, text: str) -> None:
    """Put `text` where the pattern is first found in a file; it has to be there."""
    before = path.read_text()
    after = re.sub(pattern, text, before, count=1, flags=re.MULTILINE)
    assert after != before
    path.write_text(after)
