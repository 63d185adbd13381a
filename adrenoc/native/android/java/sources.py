"""Where the Java classes and their native half lie, and a digest of the latter."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import adrenoc

# Beside the sources of the runtime, and no part of what is built for it.
FOLDER = "java"
JNI_LIBRARY = "libadrenoc_jni.so"


def java_folder() -> Path:
    """`src` (the classes), `stubs` (of Android's), `jni` (the native half), its CMake project."""
    return Path(adrenoc.__file__).resolve().parent / "native" / FOLDER


def native_half_digest() -> str:
    """SHA-256 over what the native half is built from."""
    digest = hashlib.sha256()
    folder = java_folder()
    for path in (folder / "CMakeLists.txt", *sorted((folder / "jni").iterdir())):
        digest.update(os.fsencode(path.relative_to(folder)) + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
