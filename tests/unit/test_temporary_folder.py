"""Whose room ran out: that of the folder for temporary files, or that of what was written."""

import errno
from types import SimpleNamespace

import pytest

from adrenoc.base.errors import DiskFullError
from adrenoc.base.files import aside
from adrenoc.base.files.aside import TemporaryFolder


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def _leave(free_bytes: int, monkeypatch: pytest.MonkeyPatch, filename: str | None = None) -> None:
    monkeypatch.setattr(aside, "disk_usage", lambda path: SimpleNamespace(free=free_bytes))
    with TemporaryFolder("link") as folder:
        named = filename and filename.format(folder=folder)
        raise OSError(errno.ENOSPC, "No space left on device", named)


def test_a_full_folder_is_told(monkeypatch, tmp_path):
    for free, named in ((0, None), (1 << 30, "{folder}/model.o")):
        with pytest.raises(DiskFullError, match="the folder for temporary files"):
            _leave(free, monkeypatch, named)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_elsewhere_is_not_this_folder(monkeypatch):
    for free, named in ((1 << 30, None), (0, "/elsewhere/model.so")):
        with pytest.raises(OSError, match="No space left") as caught:
            _leave(free, monkeypatch, named)
        assert not isinstance(caught.value, DiskFullError)
