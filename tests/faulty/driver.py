"""A driver that misbehaves on order: builds the layer, and sets what sessions are started with."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.compilers import compile_once

SOURCE = Path(__file__).with_name("faulty_opencl.cc")


def claim(gpu: str) -> tuple[str, ...]:
    """What the device calls itself, to be an Adreno of that number."""
    return (
        "name|QUALCOMM Adreno(TM)",
        f"version|OpenCL 3.0 Adreno(TM) {gpu}",
        "driver|OpenCL 3.0 QUALCOMM build: made here, Compiler E031.37.12.01",
    )


A640 = claim("640")


def build_layer(folder: Path) -> Path:
    """The layer as a library in a folder."""
    words = ("g++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
    return compile_once([*words, SOURCE], folder / "libfaulty_opencl.so")


@contextmanager
def misbehaving(library: Path, *orders: str, gpu: str = "640") -> Iterator[None]:
    """Processes that are started in the block have this driver, of an Adreno of that number."""
    with pytest.MonkeyPatch.context() as patch:
        # The last is asked first: others, such as plain_builds.c, make programs of binaries that
        # they kept, whose texts this one would not see.
        others = os.environ.get("OPENCL_LAYERS")
        patch.setenv("OPENCL_LAYERS", os.pathsep.join(filter(None, (others, str(library)))))
        patch.setenv("FAULTY_OPENCL", "\n".join((*claim(gpu), *orders)))
        yield
