"""The system that a target's CPU part is for: Android, or Linux on a Snapdragon."""

import platform

ANDROID = "android"
LINUX = "linux"
SYSTEMS = (ANDROID, LINUX)
_TRIPLES = {ANDROID: "aarch64-linux-android", LINUX: "aarch64-unknown-linux-gnu"}


def find_triple(system: str, *, host: bool) -> str:
    """Return the LLVM triple of the CPU part: of this machine for `host`, else of a Snapdragon."""
    return f"{platform.machine()}-unknown-linux-gnu" if host else _TRIPLES[system]


def runs_on_android(triple: str) -> bool:
    """Return whether what was compiled for an LLVM triple is for Android."""
    return triple.endswith("-android")


def runs_here(triple: str) -> bool:
    """Return whether code for an LLVM triple runs on this machine, as far as that tells."""
    return triple.partition("-")[0] == platform.machine() and not runs_on_android(triple)
