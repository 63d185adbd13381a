"""The wheel: all that adrenoc reads at run time is inside, and it works outside the source tree."""

import os
import sys
import zipfile
from pathlib import Path

import pytest

from tests.commands import run_program

ROOT = Path(__file__).resolve().parents[2]
DATA = {"targets": "adrenoc/_data/targets", "presets": "adrenoc/_data/presets"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    builders = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    (made,) = builders.WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    return Path(made)


def test_holds_modules_sources_and_data(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    needed = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "adrenoc").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    for name, place in DATA.items():
        found = sorted((ROOT / name).rglob("*.toml"))
        assert found
        needed |= {f"{place}/{path.relative_to(ROOT / name).as_posix()}" for path in found}
    assert needed <= inside
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in inside)


def test_holds_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
        strays = [n for n in archive.namelist() if n.endswith((".pyc", ".so", ".o"))]
    assert {top for top in tops if not top.endswith(".dist-info")} == {"adrenoc"}
    assert strays == []


def test_works_outside_of_the_source_tree(wheel: Path, tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    script = (
        "import adrenoc, sys\n"
        f"assert adrenoc.__file__.startswith({str(installed)!r}), adrenoc.__file__\n"
        "from adrenoc.cli.main import main\n"
        "sys.exit(main([sys.argv[1], '--json']))\n"
    )
    for command in ("targets", "presets"):
        done = run_program(
            [sys.executable, "-c", script, command],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(installed)},
        )
        assert done.returncode == 0, done.stderr
        assert '"mixed"' in done.stdout or '"adreno:a750"' in done.stdout
