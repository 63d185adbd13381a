"""`compile --os linux`: the CPU part of a bundle for boards and laptops with a Snapdragon."""

import platform
from pathlib import Path

import pytest

from adrenoc.base.errors import BundleError
from adrenoc.bundle.bundle import LIBRARY, open_bundle
from adrenoc.cli.main import main
from adrenoc.native.android.elf import read_elf
from adrenoc.native.android.runtime_toolchain import find_abi
from adrenoc.target.system import runs_here
from tests.models import graph, write

TRIPLE = "aarch64-unknown-linux-gnu"
SHAPE = (1, 4, 8, 8)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A transcendental in doubles, which no GPU computes: the CPU part calls the C library."""
    nodes = "d = Cast <to = 11>(x) s = Sinh(d) y = Cast <to = 1>(s)"
    return write(graph(nodes, {"x": SHAPE}, ["y"]), tmp_path)


def test_the_library_is_for_linux(model, tmp_path):
    bundle, android = tmp_path / "b", tmp_path / "a"
    assert main(["compile", str(model), "--os", "linux", "-o", str(bundle)]) == 0
    assert main(["compile", str(model), "-o", str(android)]) == 0
    made = open_bundle(bundle)
    assert made.manifest.target.llvm_triple == TRIPLE
    facts = read_elf(made.root / LIBRARY)
    assert facts.machine == "aarch64"
    # Some kernels of arm64 Linux have pages of 64 KiB.
    assert facts.page_bytes == 65536
    assert set(facts.needed) == {"libm.so.6"}
    phone = open_bundle(android)
    assert phone.manifest.target.llvm_triple == "aarch64-linux-android"
    assert phone.manifest.target.digest != made.manifest.target.digest
    ours, theirs = ({k.name: k.source for k in b.kernels()} for b in (made, phone))
    assert ours == theirs


def test_each_gpu_of_a_set_is_for_linux(model, tmp_path):
    bundle = tmp_path / "b"
    words = ["--device", "adreno:690,adreno:740", "--os", "linux"]
    assert main(["compile", str(model), *words, "-o", str(bundle)]) == 0
    made = open_bundle(bundle)
    assert made.manifest.target.llvm_triple == TRIPLE
    libraries = sorted(made.root.rglob(LIBRARY))
    assert libraries
    assert {read_elf(path).page_bytes for path in libraries} == {65536}


def test_no_archive_for_android_takes_it(model, tmp_path, capsys):
    bundle = tmp_path / "b"
    assert main(["compile", str(model), "--os", "linux", "-o", str(bundle)]) == 0
    code = main(["package", str(bundle), "--as", "aar", "-o", str(tmp_path / "r")])
    assert code == BundleError.exit_code
    assert f"was compiled for Linux ({TRIPLE}), expected one for Android" in capsys.readouterr().err


def test_it_runs_on_machines_of_its_kind_alone(model, tmp_path, capsys):
    assert runs_here(f"{platform.machine()}-unknown-linux-gnu")
    assert not runs_here(f"{platform.machine()}-linux-android")
    assert find_abi("aarch64-linux-android") == "arm64-v8a"
    if platform.machine() == "aarch64":
        assert find_abi(TRIPLE) == "host"
        return
    assert find_abi(TRIPLE) == "aarch64-linux"
    bundle = tmp_path / "b"
    assert main(["compile", str(model), "--os", "linux", "-o", str(bundle)]) == 0
    assert main(["run", str(bundle)]) == BundleError.exit_code
    assert TRIPLE in capsys.readouterr().err


@pytest.mark.parametrize("device", ["host", "host:660,host:750"])
def test_it_is_for_snapdragons(device, model, tmp_path, capsys):
    words = ["--device", device, "--os", "linux", "-o", str(tmp_path / "b")]
    assert main(["compile", str(model), *words]) == 2
    assert "--os is for GPUs of Snapdragons" in capsys.readouterr().err
