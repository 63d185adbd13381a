"""Damaged bundles and cache files: refused, under the eyes of the sanitizers, and never a crash."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import adrenoc
from adrenoc.bundle import Bundle
from tests.runtime.programs import Finished

Execute = Callable[..., Finished]

ROUNDS = 600
NATIVE = Path(adrenoc.__file__).parent / "native"
# The readers of the runtime: none of them needs TVM.
CACHE_READERS = tuple(
    f"src/{name}" for name in ("mapped_file", "old_files", "program_cache", "sha256")
)
READERS = (
    *CACHE_READERS,
    *(f"src/{name}" for name in ("json", "safetensors")),
    *(f"runtime/src/{name}" for name in ("buckets", "bundle", "manifest", "tar")),
)


def build_damage(folder: Path) -> Path:
    """Compile the program that damages and reads, with sanitizers."""
    return build_with_readers("damage.cc", folder)


def build_with_readers(source: str, folder: Path, readers: Sequence[str] = READERS) -> Path:
    """Compile a file of this folder with readers of the runtime, with sanitizers."""
    program = folder / Path(source).stem
    sources = [NATIVE / f"{name}.cc" for name in readers]
    command = ["c++", "-std=c++17", "-O1", "-g1", "-Wall", "-Wextra", "-Werror"]
    command += ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    command += [f"-I{NATIVE / 'include'}", f"-I{NATIVE / 'src'}", f"-I{NATIVE / 'runtime' / 'src'}"]
    command += [str(path) for path in (Path(__file__).with_name(source), *sources)]
    subprocess.run([*command, "-o", str(program)], check=True)
    return program


@pytest.fixture(scope="module")
def damage(work: Path) -> Path:
    return build_damage(work)


@pytest.mark.parametrize("kind", ["bundle", "shapes"])
@pytest.mark.parametrize("seed", [1, 2])
def test_damaged_bundles_are_refused(
    damage: Path,
    execute: Execute,
    tmp_path: Path,
    seed: int,
    kind: str,
    request: pytest.FixtureRequest,
) -> None:
    whole: Bundle = request.getfixturevalue(kind)
    tar = whole.path.with_suffix(".tar")
    accepted = int(execute(damage, tar, seed, ROUNDS, tmp_path).out)
    # Some damage does not matter (a letter of a kernel's name in the manifest, blanks); what lies
    # behind a digest and most of the rest does.
    assert 0 < accepted < ROUNDS / 2
