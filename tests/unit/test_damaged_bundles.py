"""Damaged bundles end in a bundle or in one typed sentence; `scripts/fuzz_bundles` tries more."""

from pathlib import Path

import pytest
from fuzz import bundles

from tests.unit.fake_compiled import make_bundle_folder

_CASES = 120


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bundles.Files:
    folder = tmp_path_factory.mktemp("whole") / "tiny.adrenoc"
    make_bundle_folder(folder)
    return bundles.read_folder(folder)


def _judged(content: bytes, folder: Path) -> bundles.Outcome:
    path = folder / "inner" / "bundle.tar"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return bundles.judge(path)


def test_damaged_bundles_are_read_or_refused(whole: bundles.Files, tmp_path: Path) -> None:
    outcomes = [
        _judged(bundles.case([whole], seed=1, number=number)[1], tmp_path)
        for number in range(_CASES)
    ]
    assert [one for one in outcomes if one.is_finding] == []
    # Some of the damage does not matter, most does.
    refused = sum(one.kind == "refused" for one in outcomes)
    assert _CASES / 2 < refused < _CASES


def test_the_judge_sees_what_is_wrong(
    whole: bundles.Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _judged(bundles.pack(whole), tmp_path).kind == "compiled"

    def broken(*_: object) -> None:
        (tmp_path / "litter").write_text("left behind")
        raise KeyError("no such thing")

    monkeypatch.setattr("adrenoc.bundle.bundle.open_bundle", broken)
    assert _judged(bundles.pack(whole), tmp_path).kind == "exception"
    monkeypatch.setattr(
        "adrenoc.bundle.bundle.open_bundle", lambda path: path.with_name("x").mkdir()
    )
    monkeypatch.setattr("adrenoc.bundle.buckets.open_buckets", lambda _: ())
    assert _judged(bundles.pack(whole), tmp_path).kind == "litter"


def test_a_case_is_the_same_every_time(whole: bundles.Files) -> None:
    first, again = (bundles.case([whole], seed=3, number=17) for _ in range(2))
    assert first == again
