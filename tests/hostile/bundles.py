"""Hostile bundles: manifests that lie, files that are not what they are called, tar files."""

import hashlib
import io
import json
import os
import random
import tarfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from adrenoc.bundle.tar import write_tar
from tests.hostile.case import ENDED, Case, Make
from tests.hostile.models import NAMES, SPECIAL, pipe
from tests.hostile.outputs import TEXTS
from tests.unit.fake_compiled import make_bundle_folder

_INSPECT = ("inspect", "b")


def bundle(change: Callable[[Path], object]) -> Make:
    def make(folder: Path) -> None:
        make_bundle_folder(folder / "b")
        change(folder / "b")

    return make


whole = bundle(lambda b: None)


def rewritten(change: Callable[[dict[str, Any]], object]) -> Make:
    def edit(root: Path) -> None:
        plain = json.loads((root / "manifest.json").read_text())
        change(plain)
        (root / "manifest.json").write_text(json.dumps(plain))

    return bundle(edit)


def cases() -> Iterator[Case]:
    yield from _manifests()
    yield from _files()
    yield from _named()
    yield from _tars()


def _manifests() -> Iterator[Case]:
    case = partial(Case, "manifests", command=_INSPECT)
    for kind, content in TEXTS.items():
        yield case(kind, bundle(lambda b, c=content: (b / "manifest.json").write_bytes(c)))
    keys = (
        *("schema_version", "name", "model", "target", "options", "inputs", "outputs", "params"),
        *("kernels", "memory", "statistics", "regions", "library", "versions", "files"),
    )
    values: dict[str, Any] = {
        "null": None,
        "a number": 10**18,
        "a list of lists": [[[]]],
        "a text": "\x1b[2J",
        "deep": json.loads("[" * 90 + "]" * 90),
    }
    for key in keys:
        for kind, value in values.items():
            yield case(f"{key} is {kind}", rewritten(lambda m, k=key, v=value: m.update({k: v})))
        yield case(f"{key} is missing", rewritten(lambda m, k=key: m.pop(k)))
    for path in (
        "../x",
        "/etc/passwd",
        "a/../../x",
        "",
        ".",
        "kernels",
        "n" * 5000,
        "manifest.json",
    ):
        yield case(
            f"a file called {path[:20]!r}",
            rewritten(lambda m, p=path: m["files"][0].update(path=p)),
        )
    for number in (-1, 10**18, 2**63, 1.5, True):
        yield case(
            f"a file of {number} bytes",
            rewritten(lambda m, n=number: m["files"][0].update(bytes=n)),
        )


def _files() -> Iterator[Case]:
    case = partial(Case, "files of bundles")
    names = ("manifest.json", "model.so", "params.safetensors", "kernels/conv2d_kernel.cl")
    for name in names:
        for kind, make in SPECIAL.items():

            def change(root: Path, name: str = name, make=make) -> None:
                (root / name).unlink()
                make((root / name).parent, (root / name).name)

            yield case(f"{name} is {kind}", bundle(change), _INSPECT)
    for kind, content in TEXTS.items():
        for name in ("launches.json", "buckets.json"):
            given = bundle(lambda b, n=name, c=content: _put(b, n, c))
            yield case(f"{name} holds {kind}", given, _INSPECT, codes=ENDED)
    made = bundle(lambda b: _put(b, "kernels/conv2d_kernel.cl", b"\xff\xfe"))
    yield case("a kernel that is not UTF-8", made, ("inspect", "b", "--kernel", "conv2d_kernel"))
    yield case(
        "a kernel with escapes",
        bundle(lambda b: _put(b, "kernels/conv2d_kernel.cl", b"\x1b]0;x\x07 // \xc2\x9b")),
        ("inspect", "b", "--kernel", "conv2d_kernel"),
        codes=frozenset({0}),
    )
    for name in ("../../etc/passwd", "\x1b[2J", "x" * 9000):
        yield case(
            f"a kernel that is not there: {name[:12]!r}", whole, ("inspect", "b", "--kernel", name)
        )


def _put(root: Path, name: str, content: bytes) -> None:
    """A file, and a manifest that has the right digest of it."""
    (root / name).write_bytes(content)
    plain = json.loads((root / "manifest.json").read_text())
    entry = {"path": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    plain["files"] = [e for e in plain["files"] if e["path"] != name] + [entry]
    (root / "manifest.json").write_text(json.dumps(plain))


def _named() -> Iterator[Case]:
    places: dict[str, Callable[[dict[str, Any], str], object]] = {
        "bundle": lambda m, n: m.update(name=n),
        "tensor": lambda m, n: m["inputs"][0].update(name=n),
        "kernel": lambda m, n: m["kernels"][0].update(name=n),
        "model file": lambda m, n: m["model"].update(file=n),
        "target": lambda m, n: m["target"].update(name=n),
        "tool": lambda m, n: m["versions"].update({n or "x": n}),
        "option": lambda m, n: m["options"]["values"].update({n or "x": n}),
    }
    for place, change in places.items():
        for kind, name in NAMES.items():
            make = rewritten(lambda m, c=change, n=name: c(m, n))
            command = ("inspect", "b", *(("--json",) if kind in ("c1", "tags") else ()))
            yield Case("names in bundles", f"{place}, {kind}", make, command, codes=ENDED)


# --- tar files ----------------------------------------------------------------------------------


def _tar(change: Callable[[tarfile.TarFile, Path], object], *, whole: bool = True) -> Make:
    def make(folder: Path) -> None:
        make_bundle_folder(folder / "made")
        with tarfile.open(folder / "b", "w", format=tarfile.GNU_FORMAT) as tar:
            if whole:
                tar.add(folder / "made", "b.adrenoc")
            change(tar, folder / "made")
        for path in sorted((folder / "made").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        (folder / "made").rmdir()

    return make


def _member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, link: str = ""):
    def add(tar: tarfile.TarFile, _: Path) -> None:
        member = tarfile.TarInfo(name)
        member.type, member.size, member.linkname = kind, size, link
        tar.addfile(member, io.BytesIO(bytes(size)))

    return add


def _written(folder: Path) -> bytes:
    make_bundle_folder(folder / "m")
    write_tar(folder / "m", folder / "b", name="m")
    for path in sorted((folder / "m").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (folder / "m").rmdir()
    return (folder / "b").read_bytes()


def _holes(folder: Path) -> None:
    """A tar file that is a hole of 3 GiB, of which a header says that it is the constants."""
    content = _written(folder)[:-10240]
    member = tarfile.TarInfo("m.adrenoc/programs/x")
    member.size = 3 << 30
    with (folder / "b").open("wb") as file:
        file.write(content + member.tobuf())
        file.truncate(len(content) + 512 + (3 << 30) + 1024)


def _cut(at: float) -> Make:
    def make(folder: Path) -> None:
        content = _written(folder)
        (folder / "b").write_bytes(content[: int(len(content) * at)])

    return make


def _flipped(seed: int) -> Make:
    def make(folder: Path) -> None:
        content = bytearray(_written(folder))
        rng = random.Random(seed)
        for _ in range(3):
            content[rng.randrange(min(len(content), 8192))] ^= 1 << rng.randrange(8)
        (folder / "b").write_bytes(content)

    return make


def _tars() -> Iterator[Case]:
    case = partial(Case, "tar files", command=_INSPECT)
    sparse = _member("b.adrenoc/x", b"S")
    pax = tarfile.XHDTYPE
    made: dict[str, Make] = {
        "a hole of 3 GiB": _holes,
        "a sparse member": _tar(sparse),
        "a hard link": _tar(_member("b.adrenoc/x", tarfile.LNKTYPE, link="/etc/passwd")),
        "a link": _tar(_member("b.adrenoc/x", tarfile.SYMTYPE, link="/etc/passwd")),
        "a link in place of the manifest": _tar(
            _member("b.adrenoc/manifest.json", tarfile.SYMTYPE, link="/etc/passwd"), whole=False
        ),
        "a device": _tar(_member("b.adrenoc/x", tarfile.CHRTYPE)),
        "a pipe": _tar(_member("b.adrenoc/x", tarfile.FIFOTYPE)),
        "a name twice": _tar(_member("b.adrenoc/model.so", size=4)),
        "a manifest twice": _tar(_member("b.adrenoc/manifest.json", size=4)),
        "a file that is a folder": _tar(_member("b.adrenoc/kernels", size=4)),
        "a name from the root": _tar(_member("/b.adrenoc/x", size=4)),
        "a name above": _tar(_member("b.adrenoc/../../x", size=4)),
        "a long name": _tar(_member("b.adrenoc/" + "n" * 300, size=4)),
        "a long path": _tar(_member("b.adrenoc/" + "n/" * 900 + "n", size=4)),
        "a name that is not UTF-8": _tar(_member(os.fsdecode(b"b.adrenoc/\xff\xfe"), size=4)),
        "a name that clears": _tar(_member("b.adrenoc/\x1b[2J", tarfile.SYMTYPE)),
        "two folders": _tar(_member("c.adrenoc/x", size=4)),
        "a long header": _tar(_member("b.adrenoc/x", pax, size=1 << 20)),
        "a damaged header": _tar(_member("b.adrenoc/x", pax, size=600)),
        "an unknown type": _tar(_member("b.adrenoc/x", b"Z")),
        "no manifest": _tar(_member("b.adrenoc/x", size=4), whole=False),
        "a zip": lambda f: (f / "b").write_bytes(b"PK\3\4" + bytes(600)),
        "compressed": lambda f: (f / "b").write_bytes(b"\x1f\x8b" + bytes(600)),
        "nothing": lambda f: (f / "b").touch(),
        "zeros": lambda f: (f / "b").write_bytes(bytes(4096)),
        "a pipe as a file": lambda f: pipe(f, "b"),
        "endless zeros": lambda f: (f / "b").symlink_to("/dev/zero"),
        **{f"cut off at {at} %": _cut(at / 100) for at in range(0, 90, 9)},
    }
    for name, make in made.items():
        yield case(name, make)
    for seed in range(20):
        yield case(f"three bits wrong, {seed}", _flipped(seed), codes=ENDED)
    yield case("a whole one", _written, codes=frozenset({0}))
    for name, place in (("missing", "{work}/nowhere"), ("a file", "{work}/model.onnx")):
        yield case(f"TMPDIR is {name}", _written, environment={"TMPDIR": place}, codes=ENDED)
