"""Unit tests start no outside tools, load no TVM, and keep to their own cache."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.fake_compiled import make_bundle_folder


@pytest.fixture(autouse=True)
def no_outside_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    start = subprocess.Popen.__init__

    def guarded(self: Any, args: Any, *rest: Any, **named: Any) -> None:
        if args[0] != sys.executable or "-m" in args:
            pytest.fail(f"a unit test started an outside tool: {args}")
        start(self, args, *rest, **named)

    monkeypatch.setattr(subprocess.Popen, "__init__", guarded)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("ADRENOC_CACHE_DIR", str(folder))
    monkeypatch.delenv("ANDROID_NDK_HOME", raising=False)
    return folder


@pytest.fixture
def bundle_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny.adrenoc"
    make_bundle_folder(folder)
    return folder
