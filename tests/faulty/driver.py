"""A driver that misbehaves on order: builds the layer, and sets what sessions are started with."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("faulty_opencl.cc")
A640 = (
    "name|QUALCOMM Adreno(TM)",
    "version|OpenCL 3.0 Adreno(TM) 640",
    "driver|OpenCL 3.0 QUALCOMM build: made here, Compiler E031.37.12.01",
)
"""What the device calls itself."""


def build_layer(folder: Path) -> Path:
    """The layer as a library in a folder."""
    library = folder / "libfaulty_opencl.so"
    words = ("g++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
    subprocess.run([*words, "-o", str(library), str(SOURCE)], check=True)
    return library


@contextmanager
def misbehaving(library: Path, *orders: str) -> Iterator[None]:
    """Processes that are started in the block have this driver."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENCL_LAYERS", str(library))
        patch.setenv("FAULTY_OPENCL", "\n".join((*A640, *orders)))
        yield
