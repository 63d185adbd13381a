"""Digests of large models are remembered, and only of files that are as they were."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from adrenoc.compile import known_digests
from adrenoc.compile.known_digests import find_digest
from adrenoc.importers.formats import DataRange, ModelFiles

OLD_NS = 5_000_000_000


class Counted(ModelFiles):
    """Counts how often its files are hashed."""

    hashed = 0

    def sha256(self) -> str:
        Counted.hashed += 1
        return super().sha256()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache, in which every file counts as large and as old: the clock is ahead."""
    monkeypatch.setattr(known_digests, "LEAST_BYTES", 1)
    monkeypatch.setattr(time, "time_ns", lambda now=time.time_ns: now() + OLD_NS)
    Counted.hashed = 0
    return tmp_path / "cache"


def model_of(folder: Path, graph: bytes = b"graph", data: bytes = b"weights") -> Counted:
    paths = (folder / "m.onnx", folder / "m.data")
    for path, content in zip(paths, (graph, data), strict=True):
        path.write_bytes(content)
    whole = DataRange(path=paths[1], offset=0, length=len(data))
    return Counted(format="onnx", paths=paths, data=(whole,), spans=(whole,))


def test_what_did_not_change_is_hashed_once(tmp_path: Path, cache: Path) -> None:
    files = model_of(tmp_path)
    first = find_digest(files, cache)
    assert [find_digest(files, cache) for _ in range(3)] == [first] * 3
    assert Counted.hashed == 1
    assert first == ModelFiles.sha256(files)


@pytest.mark.parametrize("name", ["m.onnx", "m.data"])
def test_what_was_written_to_is_hashed_again(tmp_path: Path, cache: Path, name: str) -> None:
    """Also by who leaves its size and sets its time of modification back."""
    files = model_of(tmp_path)
    first = find_digest(files, cache)
    path = tmp_path / name
    facts = path.stat()
    with path.open("r+b") as stream:
        stream.write(b"W")
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert find_digest(files, cache) != first
    assert Counted.hashed == 2


def test_what_took_its_place_is_hashed_again(tmp_path: Path, cache: Path) -> None:
    files = model_of(tmp_path)
    first = find_digest(files, cache)
    (tmp_path / "other").write_bytes(b"WEIGHTS")
    (tmp_path / "other").replace(tmp_path / "m.data")
    assert find_digest(files, cache) != first


def test_other_parts_of_the_same_files_have_their_own(tmp_path: Path, cache: Path) -> None:
    files = model_of(tmp_path)
    part = DataRange(path=files.paths[1], offset=1, length=3)
    other = Counted(format="onnx", paths=files.paths, data=(part,), spans=(part,))
    assert find_digest(files, cache) != find_digest(other, cache)
    assert Counted.hashed == 2


def test_nothing_is_kept_of_files_that_have_just_changed(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever writes within one tick of the file system's clock leaves no trace."""
    monkeypatch.setattr(time, "time_ns", lambda: time.clock_gettime_ns(time.CLOCK_REALTIME))
    files = model_of(tmp_path)
    find_digest(files, cache)
    find_digest(files, cache)
    assert Counted.hashed == 2


def test_nothing_is_kept_of_small_models(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_digests, "LEAST_BYTES", 1 << 20)
    find_digest(model_of(tmp_path), cache)
    assert not cache.exists()


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"stamps": 1, "sha256": "x"}', b"\xff", b"[1]"])
def test_what_cannot_be_read_is_hashed_again(tmp_path: Path, cache: Path, damage: bytes) -> None:
    files = model_of(tmp_path)
    first = find_digest(files, cache)
    (kept,) = (cache / "digests").iterdir()
    kept.write_bytes(damage)
    assert find_digest(files, cache) == first
    assert Counted.hashed == 2


def test_what_others_may_write_to_is_not_believed(tmp_path: Path, cache: Path) -> None:
    files = model_of(tmp_path)
    first = find_digest(files, cache)
    (kept,) = (cache / "digests").iterdir()
    kept.write_bytes(kept.read_bytes().replace(first.encode(), b"0" * 64))
    kept.chmod(0o666)
    assert find_digest(files, cache) == first


def test_so_many_are_kept(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_digests, "MOST_KEPT", 2)
    for number in range(4):
        folder = tmp_path / str(number)
        folder.mkdir()
        find_digest(model_of(folder), cache)
    assert len(list((cache / "digests").glob("*.json"))) == 2
