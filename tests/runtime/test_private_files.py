"""What lies in a cache is run: the runtime takes nothing that somebody else may have put there."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import run_program
from tests.runtime.test_damage import CACHE_READERS, build_with_readers

SOMEBODY = 4711
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_with_readers("cache_owner.cc", tmp_path_factory.mktemp("owner"), CACHE_READERS)


@pytest.fixture
def tried(program: Path) -> Callable[[Path, str], str]:
    def run(folder: Path, deed: str) -> str:
        umask = os.umask(0)
        try:
            done = run_program([program, folder, deed], check=True)
        finally:
            os.umask(umask)
        return done.stdout.strip()

    return run


Tried = Callable[[Path, str], str]


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_made_is_this_users_alone(tried, tmp_path):
    """Whatever the mask of new files is."""
    folder = tmp_path / "cache"
    assert tried(folder, "store") == "kept"
    (file,) = folder.iterdir()
    assert (_mode(folder), _mode(file)) == (0o700, 0o600)
    assert tried(folder, "find") == "found"


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_to_is_not_used(tried, tmp_path, mode):
    folder = tmp_path / "cache"
    tried(folder, "store")
    (file,) = folder.iterdir()
    file.chmod(mode)
    assert tried(folder, "find") == "not found"
    assert tried(folder, "store") == "kept"  # in its place
    assert tried(folder, "find") == "found"


def test_a_folder_of_ours_is_closed(tried, tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o777)
    assert tried(folder, "store") == "kept"
    assert _mode(folder) == 0o775


@needs_root
def test_a_folder_of_somebody_else_is_left_alone(tried, tmp_path):
    folder = tmp_path / "cache"
    tried(folder, "store")
    os.chown(folder, SOMEBODY, SOMEBODY)
    assert tried(folder, "find") == "not found"
    said = f"{folder} belongs to another user (number {SOMEBODY})"
    assert tried(folder, "store") == said
    assert len(list(folder.iterdir())) == 1


@needs_root
def test_a_file_of_somebody_else_is_not_used(tried, tmp_path):
    folder = tmp_path / "cache"
    tried(folder, "store")
    (file,) = folder.iterdir()
    os.chown(file, SOMEBODY, SOMEBODY)
    assert tried(folder, "find") == "not found"
