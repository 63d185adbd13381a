"""The runtime's SHA-256 is hashlib's, by the processor's instructions for it and without."""

import hashlib
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.runtime.programs import HERE
from tests.runtime.runtime_units import NATIVE
from tests.runtime.test_damage import build_with_readers

_DIGEST, _INSTRUCTIONS = "src/base/sha256", "src/base/sha256_instructions"
_PLAIN = """#include "base/sha256.h"
namespace adrenoc_runtime {
bool has_sha256_instructions() { return false; }
void mix_by_instructions(Sha256State*, const unsigned char*, size_t) {}
}  // namespace adrenoc_runtime
"""
_ARM64 = ("aarch64-linux-gnu-g++", "qemu-aarch64-static")
_LENGTHS = (0, 1, 55, 56, 63, 64, 65, 119, 120, 128, 100_003)


def _check(command: list[str]) -> None:
    drawn = random.Random(3)
    for length in _LENGTHS:
        content = drawn.randbytes(length)
        done = subprocess.run(command, input=content, capture_output=True, check=True)
        assert done.stdout.decode().strip() == hashlib.sha256(content).hexdigest(), length


@pytest.mark.parametrize("way", ["instructions", "plain"])
def test_it_is_hashlibs(way, tmp_path):
    flags = Path("/proc/cpuinfo").read_text()
    if way == "instructions" and " sha_ni" not in flags and " sha2" not in flags:
        pytest.skip("this processor has no instructions for it")
    source = NATIVE / _INSTRUCTIONS
    if way == "plain":
        source = tmp_path / "plain"
        source.with_suffix(".cc").write_text(_PLAIN)
    program = build_with_readers("sha256_program.cc", tmp_path, [_DIGEST, str(source)], "-O1")
    _check([str(program)])


def test_it_is_hashlibs_on_arm64(tmp_path):
    """The processor that is emulated has the instructions."""
    if missing := [tool for tool in _ARM64 if shutil.which(tool) is None]:
        pytest.skip(f"no {' and no '.join(missing)}")
    compiler, emulator = _ARM64
    command = [compiler, "-std=c++17", "-O2", "-static", "-march=armv8-a+crypto"]
    sources = [HERE / "sha256_program.cc", *(NATIVE / f"{n}.cc" for n in (_DIGEST, _INSTRUCTIONS))]
    program = tmp_path / "arm64"
    words = [f"-I{NATIVE / 'src'}", *map(str, sources), "-o", str(program)]
    subprocess.run([*command, *words], check=True)
    _check([emulator, "-cpu", "cortex-a72", str(program)])
