"""Folders that look like Android NDKs."""

import json
from pathlib import Path

import pytest

# The system that the tools run on -> how its programs are named.
_SUFFIXES = {"linux-x86_64": "", "darwin-x86_64": "", "windows-x86_64": ".exe"}


def fake_ndk(
    folder: Path, revision: str, *, host: str = "linux-x86_64", apis: tuple[int, int] = (21, 35)
) -> Path:
    """The files of an NDK that adrenoc looks at, as all from r23 on have them."""
    tools = folder / "toolchains/llvm/prebuilt" / host / "bin"
    tools.mkdir(parents=True)
    major = revision.partition(".")[0]
    (folder / "source.properties").write_text(
        f"Pkg.Desc = Android NDK\nPkg.Revision = {revision}\nPkg.BaseRevision = {revision}\n"
        f"Pkg.ReleaseName = r{major}\n"
    )
    lld = tools / f"ld.lld{_SUFFIXES[host]}"
    lld.write_text("#!/bin/sh\necho 'LLD 18 of the NDK'\n")
    lld.chmod(0o755)
    for name, content in (
        ("build/cmake/android.toolchain.cmake", ""),
        ("meta/platforms.json", json.dumps({"min": apis[0], "max": apis[1], "aliases": {}})),
    ):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(content)
    return folder


def forget_ndks(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """Name no NDK and no SDK, and look for them in `home` alone."""
    for kind in ("NDK_HOME", "NDK_ROOT", "NDK", "HOME", "SDK_ROOT"):
        monkeypatch.delenv(f"ANDROID_{kind}", raising=False)
    monkeypatch.setenv("HOME", str(home))
