"""NDKs: which one is taken, what it is, and why one does not serve."""

import pytest

from adrenoc.base.errors import DependencyError, OptionError
from adrenoc.cli.main import main
from adrenoc.native.android.link import find_linker
from adrenoc.native.android.runtime_build import build_runtime
from adrenoc.native.android.runtime_toolchain import find_ndk, ndk_version, why_no_ndk
from tests.ndks import fake_ndk, forget_ndks


def test_the_order_in_which_ndks_are_looked_for(tmp_path, monkeypatch):
    forget_ndks(monkeypatch, tmp_path)
    expected = []
    fake_ndk(tmp_path / "Android/Sdk/ndk/27.0.1", "27.0.1")
    expected.append(("~/Android/Sdk", "27.0.1"))
    # In an SDK the newest counts, wherever the SDK was found.
    fake_ndk(tmp_path / "sdk/ndk/28.0.1", "28.0.1")
    for variable, value, revision in (
        ("ANDROID_HOME", "sdk", "28.0.1"),
        ("ANDROID_NDK", "a", "23.0.1"),
        ("ANDROID_NDK_ROOT", "b", "24.0.1"),
        ("ANDROID_NDK_HOME", "c", "25.0.1"),
    ):
        if variable != "ANDROID_HOME":
            fake_ndk(tmp_path / value, revision)
        found = find_ndk()
        assert (found.origin, found.revision) == expected[-1]
        monkeypatch.setenv(variable, str(tmp_path / value))
        expected.append((variable, revision))
    found = find_ndk()
    assert (found.origin, found.revision) == expected[-1]
    asked = find_ndk(fake_ndk(tmp_path / "d", "26.0.1"))
    assert (asked.origin, asked.revision) == ("--set ndk", "26.0.1")
    assert asked.toolchain_file == tmp_path / "d/build/cmake/android.toolchain.cmake"


def test_ndk_by_option_by_environment_and_in_the_sdk(tmp_path, monkeypatch):
    forget_ndks(monkeypatch, tmp_path)
    for revision in ("23.1.7779620", "27.0.12077973", "21.4.7075529", "9.0.1"):
        fake_ndk(tmp_path / "Android/Sdk/ndk" / revision, revision)
    assert find_linker(host=False).version == "NDK 27.0.12077973, LLD 18 of the NDK"
    named = fake_ndk(tmp_path / "named", "25.2.9519653")
    monkeypatch.setenv("ANDROID_NDK_HOME", str(named))
    assert find_linker(host=False).version.startswith("NDK 25.2.9519653")
    asked = fake_ndk(tmp_path / "asked", "26.1.10909125")
    assert find_linker(host=False, ndk=asked).version.startswith("NDK 26.1.10909125")


def test_an_ndk_that_does_not_serve_is_an_error(tmp_path):
    old = fake_ndk(tmp_path / "old", "21.4.7075529")
    assert ndk_version(old) == (21, 4, 7075529)
    with pytest.raises(DependencyError, match="is r21; adrenoc needs r23"):
        find_linker(host=False, ndk=old)
    with pytest.raises(DependencyError, match="is not an Android NDK"):
        find_linker(host=False, ndk=tmp_path)
    other = fake_ndk(tmp_path / "other", "27.0.1")
    next(other.glob("toolchains/**/ld.lld")).unlink()
    with pytest.raises(
        DependencyError, match=r"is not whole: it has no .*linux-x86_64/bin/ld\.lld"
    ):
        find_linker(host=False, ndk=other)


@pytest.mark.parametrize(
    ("revision", "version"),
    [
        ("23.0.7599858", (23, 0, 7599858)),
        ("25.2.9519653", (25, 2, 9519653)),
        ("26.0.10404224-beta1", (26, 0, 10404224)),
        ("27.2.12479018", (27, 2, 12479018)),
        ("28.0.13004108", (28, 0, 13004108)),
    ],
)
def test_releases_of_the_ndk(revision, version, tmp_path):
    ndk = find_ndk(fake_ndk(tmp_path / "ndk", revision))
    assert ndk.version == version
    assert ndk.apis == (21, 35)
    assert ndk.toolchain_file.is_file()
    assert (ndk.tools / "ld.lld").is_file()


@pytest.mark.parametrize(
    "text", ["", "Pkg.Desc = Android NDK\n", "Pkg.Revision = new\n", "Pkg.BaseRevision = 27.0.1\n"]
)
def test_properties_without_a_revision(text, tmp_path):
    (tmp_path / "source.properties").write_text(text)
    with pytest.raises(DependencyError, match=r"no `source\.properties` with a Pkg\.Revision"):
        ndk_version(tmp_path)


def test_properties_with_the_ends_of_lines_of_windows(tmp_path):
    (tmp_path / "source.properties").write_bytes(b"Pkg.Desc = x\r\nPkg.Revision=27.0.1\r\n")
    assert ndk_version(tmp_path) == (27, 0, 1)


@pytest.mark.parametrize(("host", "system"), [("darwin", "macOS"), ("windows", "Windows")])
def test_an_ndk_for_another_system(host, system, tmp_path, monkeypatch):
    forget_ndks(monkeypatch, tmp_path)
    foreign = fake_ndk(tmp_path / "Android/Sdk/ndk/27.0.1", "27.0.1", host=f"{host}-x86_64")
    with pytest.raises(DependencyError, match=f"does not run on Linux: its tools are for {system}"):
        find_ndk(foreign)
    # In an SDK it is passed over, and named where nothing else is there.
    assert find_ndk() is None
    assert f"its tools are for {system}" in why_no_ndk()
    fake_ndk(tmp_path / "Android/Sdk/ndk/26.0.1", "26.0.1")
    found = find_ndk()
    assert found is not None and found.revision == "26.0.1"


def test_an_ndk_of_several_systems_serves(tmp_path):
    folder = fake_ndk(tmp_path / "ndk", "27.0.1", host="darwin-x86_64")
    (folder / "toolchains/llvm/prebuilt/linux-x86_64/bin").mkdir(parents=True)
    ndk = find_ndk(folder)
    assert ndk is not None and ndk.tools.parent.name == "linux-x86_64"


def test_why_no_ndk_is_there(tmp_path, monkeypatch):
    forget_ndks(monkeypatch, tmp_path)
    assert why_no_ndk() == "none in the usual places, and no variable names one"
    fake_ndk(tmp_path / "Android/Sdk/ndk/21.4.7075529", "21.4.7075529")
    assert "is r21; adrenoc needs r23 or newer" in why_no_ndk()
    with pytest.raises(DependencyError, match=r"needs an Android NDK: .* is r21"):
        build_runtime(abi="arm64-v8a", cache=tmp_path)


def test_the_api_level_is_checked(tmp_path, monkeypatch, capsys):
    forget_ndks(monkeypatch, tmp_path)
    ndk = fake_ndk(tmp_path / "ndk", "29.0.1", apis=(26, 36))
    monkeypatch.setenv("ANDROID_NDK_HOME", str(ndk))
    command = ["runtime", "build"]
    assert main(command) == DependencyError.exit_code
    said = " ".join(capsys.readouterr().err.split())
    assert "compiles for the API levels 26 to 36, not for 24" in said
    assert "--api 26" in said
    assert main([*command, "--api", "23"]) == OptionError.exit_code
    assert "API level 23 is too old" in capsys.readouterr().err
    with pytest.raises(DependencyError, match="not for 37"):
        build_runtime(abi="arm64-v8a", ndk=ndk, api=37, cache=tmp_path)


def test_an_ndk_without_its_files_for_cmake(tmp_path):
    ndk = fake_ndk(tmp_path / "ndk", "27.0.1")
    (ndk / "build/cmake/android.toolchain.cmake").unlink()
    with pytest.raises(DependencyError, match="is not whole: it has no build/cmake/android"):
        build_runtime(abi="x86_64", ndk=ndk, cache=tmp_path)
