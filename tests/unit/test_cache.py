"""The compile cache: what is a hit, what is a miss, and what becomes of damage."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

import adrenoc.cache
from adrenoc.bundle import open_bundle
from adrenoc.cache import BundleCache, cache_key
from adrenoc.reporter import SilentReporter

KEY = "ab" * 32


class Listening(SilentReporter):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)


def test_gives_back_what_was_stored(bundle_folder: Path, tmp_path: Path) -> None:
    cache = BundleCache(tmp_path / "c", SilentReporter())
    assert cache.find(KEY) is None
    cache.store(KEY, bundle_folder)
    found = cache.find(KEY)
    assert found is not None
    assert found.manifest == open_bundle(bundle_folder).manifest
    assert cache.find("cd" * 32) is None


def test_drops_a_damaged_entry_and_says_so(bundle_folder: Path, tmp_path: Path) -> None:
    listening = Listening()
    cache = BundleCache(tmp_path / "c", listening)
    cache.store(KEY, bundle_folder)
    found = cache.find(KEY)
    assert found is not None
    found.library.write_bytes(b"damaged")
    assert cache.find(KEY) is None
    assert len(listening.warnings) == 1
    assert "model.so" in listening.warnings[0]
    assert not found.root.exists()


def test_trouble_with_the_folder_is_a_warning(bundle_folder: Path, tmp_path: Path) -> None:
    listening = Listening()
    (tmp_path / "c").write_text("a file is in the way")
    cache = BundleCache(tmp_path / "c", listening)
    cache.store(KEY, bundle_folder)
    assert cache.find(KEY) is None
    assert "the compile cache was not written" in listening.warnings[0]


def test_drops_what_was_not_used_for_longest(bundle_folder: Path, tmp_path: Path) -> None:
    one_entry = sum(p.stat().st_size for p in bundle_folder.rglob("*") if p.is_file())
    cache = BundleCache(tmp_path / "c", SilentReporter(), max_bytes=2 * one_entry)
    keys = [f"{number:02x}" * 32 for number in range(3)]
    for age, key in zip((100, 300), keys, strict=False):
        cache.store(key, bundle_folder)
        found = cache.find(key)
        assert found is not None
        os.utime(found.root, (1_000_000 - age, 1_000_000 - age))
    cache.store(keys[2], bundle_folder)
    assert [cache.find(key) is not None for key in keys] == [True, False, True]


def test_writers_at_the_same_time_leave_a_whole_entry(bundle_folder: Path, tmp_path: Path) -> None:
    listening = Listening()
    cache = BundleCache(tmp_path / "c", listening)
    writers = [threading.Thread(target=cache.store, args=(KEY, bundle_folder)) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert cache.find(KEY) is not None
    assert [path.name for path in (tmp_path / "c" / "bundles").rglob("*") if path.is_dir()] == [
        KEY[:2],
        KEY,
        "kernels",
    ]
    assert not listening.warnings


def test_key_changes_with_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"model": "1", "target": "2", "options": "3"}
    keys = [cache_key(parts), *(cache_key({**parts, name: "x"}) for name in parts)]
    monkeypatch.setattr(adrenoc.cache, "version", lambda name: "99.0")
    keys.append(cache_key(parts))
    monkeypatch.undo()
    monkeypatch.setattr(adrenoc.cache, "sources_digest", lambda: "changed")
    keys.append(cache_key(parts))
    monkeypatch.undo()
    assert len(set(keys)) == len(keys)
    assert cache_key(parts) == keys[0]
