"""What killed processes left beside an output: the next writer removes it or brings it back."""

import fcntl
import os
import resource
from contextlib import ExitStack, contextmanager

import pytest

from adrenoc.base.files import aside, outputs
from tests.unit.thing_folders import content_of, make_bundle, names


def left(folder, role="part", stem="b"):
    return folder / f".{stem}.adrenoc-0123456789ab.{role}"


def test_the_next_writer_removes_what_a_killed_one_left(tmp_path):
    left(tmp_path, stem="x").write_text("half")
    (left(tmp_path) / "kernels").mkdir(parents=True)
    (tmp_path / ".b.0123456789ab.part").touch()  # the user's
    outputs.write_atomically(tmp_path / "other", "new")
    assert names(tmp_path) == [".b.0123456789ab.part", "other"]


def test_what_others_still_write_stays(tmp_path):
    left(tmp_path).mkdir()
    descriptor = os.open(left(tmp_path), os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    link = left(tmp_path, stem="link")
    link.symlink_to("/etc")
    outputs.write_atomically(tmp_path / "other", "new")
    assert left(tmp_path).is_dir()
    assert link.is_symlink()
    os.close(descriptor)
    assert aside.remove_left(tmp_path) == 1


def test_what_another_user_left_stays(tmp_path, monkeypatch):
    left(tmp_path).mkdir()
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    assert aside.remove_left(tmp_path) == 0


def test_an_output_that_was_put_aside_comes_back(tmp_path):
    """Killed between the two renames."""
    make_bundle(left(tmp_path, "old"), "one")
    left(tmp_path, "old", stem="c").mkdir()
    (tmp_path / "c").mkdir()
    outputs.write_atomically(tmp_path / "other", "new")
    assert content_of(tmp_path / "b") == "one"
    assert names(tmp_path) == ["b", "c", "other"]


@contextmanager
def no_more_descriptors():
    """Within, the process may open nothing whose descriptor is not below those that it has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_folder_that_no_descriptor_is_left_to_lock_is_not_left(tmp_path):
    with (
        no_more_descriptors(),
        pytest.raises(OSError, match="Too many open files"),
        aside.aside_folder(tmp_path / "x"),
    ):
        pass
    assert names(tmp_path) == []


@pytest.mark.parametrize("full", [False, True])
def test_a_folder_is_removed_where_its_lock_was_the_last_descriptor(tmp_path, full):
    with ExitStack() as limits, aside.aside_folder(tmp_path / "x") as folder:
        if full:
            (folder / "a" / "b").mkdir(parents=True)
            (folder / "a" / "c").touch()
            (folder / "a" / "d").symlink_to(folder)
        limits.enter_context(no_more_descriptors())
    assert names(tmp_path) == []
