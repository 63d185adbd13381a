"""References are exact on a CPU with AVX2 and no VNNI, which saturates: a Haswell, under QEMU."""

import shutil
import sys
from pathlib import Path

import pytest

from tests.commands import run_program

HERE = Path(__file__).parent
MODULES = ("test_exact_integers.py", "test_as_installed.py")
SATURATES = "from adrenoc.importers.onnx.session import saturates; print(saturates())"


def run_on_haswell(*words: str) -> str:
    qemu = shutil.which("qemu-x86_64")
    if qemu is None:
        pytest.skip(
            "no qemu-x86_64, which stands for a CPU without VNNI: apt-get install qemu-user"
        )
    command = (qemu, "-cpu", "Haswell", sys.executable, *words)
    ended = run_program(command, cwd=HERE.parents[1])
    assert ended.returncode == 0, ended.stdout + ended.stderr[-2000:]
    return ended.stdout


def test_its_own_products_saturate():
    """Else the next test would say nothing."""
    assert run_on_haswell("-c", SATURATES).split() == ["True"]


@pytest.mark.nightly
def test_references_are_exact():
    told = run_on_haswell(
        *("-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-q"),
        *(str(HERE / module) for module in MODULES),
    )
    assert " passed" in told
    assert "skipped" not in told
