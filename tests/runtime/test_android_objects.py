"""Every source of the runtime compiles for 32-bit phones, where a size has 32 bits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.nightly

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "android_without_ndk"


def test_all_sources_compile_for_armv7(tmp_path: Path) -> None:
    """With musl's headers: those of Android come with an NDK, or a clone of bionic."""
    command = [sys.executable, str(SCRIPT), "--objects", "--abi", "armeabi-v7a"]
    done = subprocess.run(
        [*command, "--output", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert "-Wshift-count-overflow" not in done.stdout
