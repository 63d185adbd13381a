"""The words that a text may have in a report: adrenoc's own, those of drivers, and figures.

Texts come from others, too: a target file's sources are typed by hand, drivers quote what they
were given.  A serial number, a name or an address has no place among these words, whatever it
looks like.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import adrenoc
from adrenoc.base.files.read import data_folder

HIDDEN = "(word)"
"""What stands for a word that is none of these."""
_SOURCES = (".py", ".cc", ".h", ".toml")
_VENDORS = (
    "adreno amd apple arm branch build changeid commit compiler corporation cpu cuda date driver "
    "epyc freedreno geforce git gpu graphics hbm intel linux local mali mesa mon nvidia opencl "
    "pocl processor pthread qualcomm radeon remote rusticl ryzen sat series snapdragon sun thu "
    "tm tue wed fri xeon "
    # Governors of GPUs.
    "msm ondemand performance powersave schedutil simple tz userspace walt"
)
# A word as it stands between blanks and brackets; its parts are words, too.
_WORD = re.compile(r"[\w.@:+/'-]*\w")
_PARTS = re.compile(r"[.@:+/'_-]+")
_NAMED = re.compile(r"[a-z][a-z0-9]*")
_FIGURE = re.compile(
    r"\d{1,7}|\d{1,4}[A-Za-z%]{1,3}|\d{1,5}(x\d{1,5})+|"
    r"\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\d)?|"
    r"[-+]?\d{1,7}(\.\d{1,8})?([eE][-+]?\d{1,3})?"
)
# "E031.37.12.01", "V@0615.0", "GIT@8e5499", "580.159.04".
_VERSION = re.compile(r"([A-Z]{1,3}@?)?\d{1,4}(\.\d{1,4}){1,2}|[A-Z]\d{2,4}(\.\d{1,4}){1,5}")
_REVISION = re.compile(r"GIT@[0-9a-f]{6,10}")
# Standing alone: "H100", "I7", "SM8650", "X1-85".
_MODEL = re.compile(r"[A-Z]{1,4}\d{1,4}(-\d\d)?")
_FILE_ENDINGS = (
    "aar adrenoc apk bin c cc cl cpp csv gguf gz h h5 html jar jpeg jpg json keras kt litertlm "
    "md npy npz onnx ort pb png pt pth py raw safetensors so tar task tflite toml txt wav xml yaml "
    "yml zip"
)


@lru_cache(maxsize=1)
def own_words() -> frozenset[str]:
    """Return the words of adrenoc's own sources and targets, in small letters."""
    words = set(_VENDORS.split())
    package = Path(adrenoc.__file__).resolve().parent
    for path in (*package.rglob("*"), *data_folder("targets").rglob("*")):
        if path.suffix in _SOURCES:
            words.update(_NAMED.findall(path.read_text("utf-8", "ignore").lower()))
    return frozenset(words)


def keep_allowed(text: str) -> str:
    """Return a text with `HIDDEN` in place of each word that it may not have."""
    return _WORD.sub(lambda found: found[0] if _is_allowed(found[0]) else HIDDEN, text)


def _is_allowed(word: str) -> bool:
    if any(form.fullmatch(word) for form in (_VERSION, _REVISION, _MODEL, _FIGURE)):
        return True
    parts = [part.lower() for part in _PARTS.split(word) if part]
    if "." in word and parts[-1] in _FILE_ENDINGS.split():
        return False  # a file may be called by words that are adrenoc's, too
    return all(len(part) == 1 or part in own_words() or _FIGURE.fullmatch(part) for part in parts)
