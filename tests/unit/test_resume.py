"""A command that was killed goes on: what its file holds, whatever happened to it."""

from pathlib import Path

import pytest

from adrenoc.base.errors import OutputError
from adrenoc.base.files.resume import Resume


def _do(resume: Resume, *pieces: str) -> list[str]:
    """The pieces that had to be done; each gives its own name, twice."""
    done = []
    for piece in pieces:
        came = resume.take(piece)
        if came is None:
            done.append(piece)
            came = 2 * piece
            resume.put(piece, came)
        assert came == 2 * piece
    return done


def _left_by(folder: Path, name: str, *pieces: str) -> Path:
    """What a command that did these leaves when it is killed."""
    path = folder / name
    _do(Resume(path), *pieces)
    left = folder / f"{name} left"
    left.write_bytes(path.read_bytes())
    return left


def test_it_goes_on_where_it_was_killed(tmp_path):
    path = _left_by(tmp_path, "kept", "a", "b")
    resume = Resume(path)
    assert _do(resume, "a", "b", "c") == ["c"]
    assert resume.taken == 2
    path.with_suffix(".later").write_bytes(path.read_bytes())
    later = Resume(path.with_suffix(".later"))
    assert _do(later, "a", "b", "c", "d") == ["d"]
    later.finish()
    assert not path.with_suffix(".later").exists()


def test_from_where_the_work_is_another_one_it_takes_no_more(tmp_path):
    path = _left_by(tmp_path, "kept", "a", "b", "c")
    assert _do(Resume(path), "a", "x", "c") == ["x", "c"]
    later = _left_by(tmp_path, "other", "a", "x", "c")
    assert path.read_bytes() == later.read_bytes()


@pytest.mark.parametrize("torn", [b'["c", "3', b'["c", "3"]', b"\x80\n", b'["c", 3]\n', b"\n"])
def test_a_line_that_is_not_whole_is_done_again(torn, tmp_path):
    path = _left_by(tmp_path, "kept", "a", "b")
    path.write_bytes(path.read_bytes() + torn)
    assert _do(Resume(path), "a", "b", "c") == ["c"]
    assert path.read_bytes() == _left_by(tmp_path, "other", "a", "b", "c").read_bytes()


def test_nothing_is_there_before_something_is_done(tmp_path):
    resume = Resume(tmp_path / "kept")
    assert (tmp_path / "kept").stat().st_size == 0
    resume.finish()
    assert not (tmp_path / "kept").exists()
    without = Resume(None)
    assert _do(without, "a", "a") == ["a", "a"]
    without.finish()


def test_a_file_of_somebody_else_stays_as_it_is(tmp_path):
    path = tmp_path / "thesis.tex"
    path.write_text("x\n")
    with pytest.raises(OutputError, match="is not what an interrupted command"):
        Resume(path)
    assert path.read_text() == "x\n"


def test_two_commands_do_not_share_one(tmp_path):
    first = Resume(tmp_path / "kept")
    with pytest.raises(OutputError, match="another command is at work"):
        Resume(tmp_path / "kept")
    first.finish()
