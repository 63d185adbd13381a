"""Damaged bundles: made of whole ones, and judged by what reading them comes to.

Half of the edits mend the digest of what they changed, so that the readers behind it see it too.
"""

import hashlib
import io
import json
import random
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fuzz import damage
from fuzz.harness import Outcome, judge_work

Files = dict[str, bytes]

MANIFEST = "manifest.json"
_TEXTS = (
    *("", ".", "..", "../x", "../../../etc/passwd", "/etc/passwd", "a/../../b", "a//b", "C:\\x"),
    *('x")', "$(id)", "`id`", ";id", "\n", "\x1b[2J", "\x9b2J", "\u202e", "\ud800", "a" * 300),
    *("float32", "float16", "int64", "global", "global.texture", "model.so", "kernels/x.cl", "{{"),
)
_RAW = (
    "1e999",
    "-0",
    "NaN",
    "Infinity",
    "1" * 5000,
    "[" * 3000,
    '{"a":' * 3000,
    '"\\ud800"',
    "nul",
)
_KINDS = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE)


def read_folder(root: Path) -> Files:
    """The files of a bundle folder, by path."""
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


def case(bundles: Sequence[Files], *, seed: int, number: int) -> tuple[str, bytes]:
    """Case `number`: a name, and the tar form of a damaged bundle."""
    rng = random.Random(f"{seed}/{number}")
    files = dict(rng.choice(bundles))
    kind = rng.random()
    if kind < 0.75:
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            _damage_file(files, rng)
        return "bundle.tar", pack(files)
    if kind < 0.9:
        return "bundle.tar", pack(files, rng)
    return "bundle.tar", damage.damaged(pack(files), rng)


def pack(files: Files, rng: random.Random | None = None) -> bytes:
    """The tar form; with `rng`, one of its members is of a kind or a name that it should not be."""
    chosen = rng.choice(sorted(files)) if rng is not None else ""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, content in files.items():
            member = tarfile.TarInfo(f"damaged.adrenoc/{path}")
            if rng is not None and path == chosen:
                _spoil(member, rng)
            member.size = len(content) if member.isreg() else 0
            tar.addfile(member, io.BytesIO(content) if member.isreg() else None)
            if rng is not None and path == chosen and rng.random() < 0.3:
                tar.addfile(member, io.BytesIO(content) if member.isreg() else None)
    return buffer.getvalue()


def judge(path: Path, *, raises: bool = False) -> Outcome:
    """Read all of the bundle at `path`, as `inspect` and `run` do before a device is asked for.

    Temporary files go beside it, so that what is left of them is seen.
    """
    temporary = path.parent / "temporary"
    temporary.mkdir(exist_ok=True)
    before = _around(path)
    kept, tempfile.tempdir = tempfile.tempdir, str(temporary)
    try:
        outcome = judge_work(lambda: _read(path), "compiled", most_letters=2000, raises=raises)
    finally:
        tempfile.tempdir = kept
    litter = sorted(_around(path) - before)
    if litter and not outcome.is_finding:
        return Outcome("litter", ", ".join(litter)[:200])
    return outcome


def _read(path: Path) -> None:
    from adrenoc.bundle.buckets import open_buckets
    from adrenoc.bundle.bundle import open_bundle

    for one in open_buckets(open_bundle(path)):
        one.kernels()
        one.launches()
        one.decisions()
        one.params()


def _around(path: Path) -> set[str]:
    """What lies beside a bundle and above it, and where temporary files go."""
    folders = (path.parent, path.parent.parent, path.parent / "temporary")
    return {left.name for folder in folders for left in folder.iterdir()}


def _damage_file(files: Files, rng: random.Random) -> None:
    texts = [path for path in files if path.endswith(".json")]
    edited = rng.random() < 0.7
    path = rng.choice([MANIFEST, MANIFEST, *texts] if edited else sorted(files))
    before = files[path]
    files[path] = _edited(before, rng) if edited else damage.damaged(before or b"\0", rng)
    if path != MANIFEST and rng.random() < 0.7:
        _mend(files, path, before)


def _mend(files: Files, path: str, before: bytes) -> None:
    """Have every manifest that lists the file tell its new digest and size."""
    old, new = (hashlib.sha256(content).hexdigest() for content in (before, files[path]))
    for name in [name for name in files if name.endswith(MANIFEST) and name != path]:
        text = files[name].replace(old.encode(), new.encode())
        for lead in (b'"bytes": ', b'"bytes":'):
            text = text.replace(
                lead + str(len(before)).encode(), lead + str(len(files[path])).encode()
            )
        was, files[name] = files[name], text
        if was != text and name != MANIFEST:
            _mend(files, name, was)


def _edited(content: bytes, rng: random.Random) -> bytes:
    """The JSON text with one value set, dropped, doubled or swapped, or something that is none."""
    try:
        plain = json.loads(content)
    except (ValueError, RecursionError):  # edited before
        return damage.damaged(content or b"\0", rng)
    spots = damage.places_in(plain)
    if not spots:
        return rng.choice(_RAW).encode()
    holder, key = rng.choice(spots)
    deed = rng.random()
    if deed < 0.6:
        holder[key] = _value(holder[key], rng)
    elif deed < 0.7:
        del holder[key]
    elif deed < 0.8:
        other_holder, other_key = rng.choice(spots)
        holder[key] = json.loads(json.dumps(other_holder[other_key]))
    elif deed < 0.9 and isinstance(holder, list):
        holder += holder[:1] * rng.choice((1, 2, 50))
    elif deed < 0.9:
        holder[rng.choice(_TEXTS)] = _value(holder[key], rng)
    else:
        holder[key] = "@RAW@"
    text = json.dumps(plain, ensure_ascii=rng.random() < 0.5)
    return text.replace('"@RAW@"', rng.choice(_RAW)).encode("utf-8", "surrogatepass")


def _value(value: Any, rng: random.Random) -> Any:
    if rng.random() < 0.2:
        return rng.choice((None, True, [], {}, [[]], 0.5, "", 0, [value], {"a": value}))
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice(
            (value + 1, value - 1, -value, value * 2, *damage.INTEGERS, 2**64, 10**30)
        )
    if isinstance(value, str):
        mixed = value[: rng.randrange(1 + len(value))] + rng.choice(_TEXTS)
        return rng.choice((mixed, *_TEXTS))
    if isinstance(value, list):
        return rng.choice((value[:-1], value * 2, value[::-1], []))
    return rng.choice(damage.INTEGERS)


def _spoil(member: tarfile.TarInfo, rng: random.Random) -> None:
    if rng.random() < 0.5:
        member.type = rng.choice(_KINDS)
        member.linkname = rng.choice(("manifest.json", "../x", "/etc/passwd", ""))
    else:
        text = rng.choice(_TEXTS).encode("utf-8", "replace").decode("utf-8")
        member.name = rng.choice((text, f"damaged.adrenoc/{text}", f"other/{member.name}"))
