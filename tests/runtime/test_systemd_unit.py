"""The unit of the RPC server: what it starts, and what is refused before a start would fail."""

import shlex
import shutil
import sys
from pathlib import Path

import pytest

from adrenoc.base.errors import DependencyError, OptionError
from adrenoc.cli.main import main
from adrenoc.native.android.runtime_build import LIBRARY, SERVER
from adrenoc.native.android.systemd_unit import (
    UNIT,
    Service,
    find_unit_place,
    install_unit,
    print_unit,
)
from tests.commands import run_program
from tests.patience import WAIT_S


def _lines(text: str, name: str) -> list[str]:
    return [line.partition("=")[2] for line in text.splitlines() if line.startswith(f"{name}=")]


@pytest.fixture
def folder(tmp_path) -> Path:
    """A runtime whose server is any program of this machine, open to all as far as it goes."""
    made = tmp_path / "a runtime"
    made.mkdir()
    shutil.copy(Path(sys.executable).resolve(), made / SERVER)
    (made / LIBRARY).write_bytes(b"")
    return made


def test_words_reach_the_server_as_they_are(folder):
    words = ("--key", 'a "b" 100% $c \\d')
    text = print_unit(Service(folder=folder, words=words, environment=("RUSTICL_ENABLE=a b",)))
    (command,) = _lines(text, "ExecStart")
    # What systemd makes of % and $ in a line.
    split = [w.replace("%%", "%").replace("$$", "$") for w in shlex.split(command)]
    assert split[:3] == [str(folder / SERVER), *words]
    assert split[3:] == ["--folder", "%S/adrenoc-rpc", "--store", "%C/adrenoc-rpc"]
    assert '"RUSTICL_ENABLE=a b"' in _lines(text, "Environment")


def test_a_unit_of_the_system_runs_as_a_user_of_its_own(folder):
    system, own = (
        print_unit(Service(folder=folder, words=(), for_user=user)) for user in (False, True)
    )
    assert "DynamicUser=yes\n" in system
    assert "WantedBy=multi-user.target" in system
    assert "DynamicUser" not in own
    assert "SupplementaryGroups" not in own
    assert "WantedBy=default.target" in own


@pytest.mark.parametrize("for_user", [False, True])
def test_systemd_takes_it(folder, tmp_path, *, for_user):
    analyse = shutil.which("systemd-analyze")
    if analyse is None:
        pytest.skip("no systemd-analyze here: apt-get install systemd")
    unit = tmp_path / UNIT
    unit.write_text(print_unit(Service(folder=folder, words=("--port", "1"), for_user=for_user)))
    done = run_program(
        [analyse, "verify", "--man=no", *(["--user"] if for_user else []), str(unit)],
        timeout=WAIT_S,
    )
    told = [line for line in done.stderr.splitlines() if UNIT in line or "adrenoc" in line]
    assert told == []
    unit.write_text(unit.read_text().replace("Restart=on-failure", "Restart=whenever"))
    assert "whenever" in run_program([analyse, "verify", "--man=no", str(unit)]).stderr


def test_others_do_not_read_the_key(folder, tmp_path):
    service = Service(folder=folder, words=("--key", "secret"), for_user=True)
    assert install_unit(service, tmp_path / "units" / UNIT).stat().st_mode & 0o077 == 0


def test_its_place_is_where_systemd_looks(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert find_unit_place(for_user=True) == tmp_path / "systemd/user" / UNIT
    assert find_unit_place(for_user=False) == Path("/etc/systemd/system") / UNIT


def test_the_command_writes_it_and_says_how_to_go_on(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    words = ["runtime", "install-unit", "--user", "--runtime", str(folder)]
    assert main(words) == 0
    output = tmp_path / "config/systemd/user" / UNIT
    assert "systemctl --user enable --now adrenoc-rpc.service" in capsys.readouterr().out
    assert str(folder) in output.read_text()
    assert main([*words, "--", "--host", "0.0.0.0"]) == 2
    assert "--key" in capsys.readouterr().err


def test_what_could_not_start_is_refused(folder, tmp_path):
    output = tmp_path / UNIT
    with pytest.raises(DependencyError, match=f"holds no {SERVER}"):
        install_unit(Service(folder=tmp_path / "nowhere", words=()), output)
    tmp_path.chmod(0o700)
    with pytest.raises(OptionError, match="closed to other users"):
        install_unit(Service(folder=folder, words=()), output)
    with pytest.raises(OptionError, match="NAME=VALUE"):
        install_unit(Service(folder=folder, words=(), environment=("x",), for_user=True), output)
    with pytest.raises(OptionError, match="control character"):
        install_unit(Service(folder=folder, words=("--key", "a\nb"), for_user=True), output)
    content = bytearray((folder / SERVER).read_bytes())
    content[18] = 0x28  # another machine
    (folder / SERVER).write_bytes(content)
    with pytest.raises(DependencyError, match="expected one for this"):
        install_unit(Service(folder=folder, words=(), for_user=True), output)
    assert not output.exists()
