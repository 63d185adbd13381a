"""What the cache holds of the runtime is compared with its digests before anything runs it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from adrenoc.base.files.owned_folder import LIST_FILE
from adrenoc.base.reporter import SilentReporter
from adrenoc.native.android import runtime_build
from adrenoc.native.android.runtime_build import LIBRARY, RUNNER, Runtime, build_runtime
from adrenoc.native.android.runtime_toolchain import Toolchain


class _Heard(SilentReporter):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[_Heard], Runtime]:
    """Builds a runtime of two files in no time."""

    def compile_(folder: Path, *_: object, **__: object) -> Path:
        made = folder / "out"
        made.mkdir(exist_ok=True)
        for name in (LIBRARY, RUNNER):
            (made / name).write_text(f"this is {name}")
            (made / name).chmod(0o777)  # as a linker leaves it where the mask is empty
        return made

    toolchain = Toolchain(identity="none", options=(), machine="x86_64", api=0)
    monkeypatch.setattr(runtime_build, "find_toolchain", lambda *_: toolchain)
    monkeypatch.setattr(runtime_build, "_compile", compile_)
    monkeypatch.setattr(runtime_build, "_check", lambda *_, **__: None)
    return lambda heard: build_runtime(cache=tmp_path / "cache", reporter=heard)


def _foreign(folder: Path) -> None:
    (folder / RUNNER).chmod(0o777)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "no list of digests": lambda folder: (folder / LIST_FILE).unlink(),
    f"{LIBRARY} is damaged": lambda folder: (folder / LIBRARY).write_text("another"),
    f"{RUNNER} is missing": lambda folder: (folder / RUNNER).unlink(),
    "others may write to it": _foreign,
    "no list of digests ": lambda folder: (folder / LIST_FILE).write_text("[" * 100_000),
}


@pytest.mark.parametrize("wrong", DAMAGE)
def test_what_is_not_whole_is_built_anew_with_a_line(
    wrong: str, built: Callable[[_Heard], Runtime]
) -> None:
    heard = _Heard()
    first = built(heard)
    assert not first.cached
    assert built(heard).cached
    assert not heard.warnings
    DAMAGE[wrong](first.folder)
    again = built(heard)
    assert not again.cached
    assert (again.folder / LIBRARY).read_text() == f"this is {LIBRARY}"
    assert len(heard.warnings) == 1
    assert wrong.strip() in heard.warnings[0]
    assert built(heard).cached


def test_a_server_keeps_the_folders_of_its_sessions_beside_it(
    built: Callable[[_Heard], Runtime],
) -> None:
    heard = _Heard()
    (built(heard).folder / "adrenoc-rpc-1").mkdir()
    assert built(heard).cached
    assert not heard.warnings
