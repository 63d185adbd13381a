"""An app as Android's own tools make it of the sample and of what an archive brings."""

import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from adrenoc.base.errors import AppError
from adrenoc.bundle.bundle import Bundle
from adrenoc.cli.main import main
from adrenoc.native.android.runtime_build import Runtime
from tests.patience import WAIT_S

TOOLS = ("aapt", "zipalign", "apksigner", "keytool")
FRAMEWORK = Path("/usr/share/android-framework-res/framework-res.apk")
_ROOT = '<manifest xmlns:android="http://schemas.android.com/apk/res/android"'
# What Android's Gradle plugin puts in, out of build.gradle.kts.
_FACTS = (
    f'{_ROOT} package="org.adrenoc.sample" android:versionCode="1" android:versionName="1">'
    '<uses-sdk android:minSdkVersion="24" android:targetSdkVersion="36" />'
)


@pytest.fixture
def sources(phone_bundle: Bundle, android: Runtime, tmp_path: Path) -> Path:
    """The sample app, and beside it what its one archive brings."""
    lacking = [tool for tool in TOOLS if shutil.which(tool) is None]
    if lacking or not FRAMEWORK.is_file():
        pytest.skip(
            f"no {', '.join(lacking) or FRAMEWORK.name}: apt-get install "
            "aapt zipalign apksigner android-framework-res"
        )
    archive = tmp_path / "out.aar"
    command = ["package", str(phone_bundle.path), "--as", "aar", "--runtime", str(android.folder)]
    assert main([*command, "-o", str(archive), "--sample", str(tmp_path / "sample")]) == 0
    with zipfile.ZipFile(archive) as content:
        content.extractall(tmp_path / "aar")
    return tmp_path


def _assemble(folder: Path, manifest: str, *kept: str) -> Path:
    """Resources and assets by aapt, libraries as they are, aligned and signed."""
    (folder / "AndroidManifest.xml").write_text(manifest)
    main_folder = folder / "sample/app/src/main"
    app, aligned = folder / "app.apk", folder / "aligned.apk"
    command = ["aapt", "package", "-f", "-M", folder / "AndroidManifest.xml", "-I", FRAMEWORK]
    command += ["-S", main_folder / "res", "-A", folder / "aar/assets", *kept, "-F", app]
    _run(*command)
    with zipfile.ZipFile(app, "a", zipfile.ZIP_STORED) as archive:
        for library in sorted((folder / "aar/jni/arm64-v8a").iterdir()):
            archive.write(library, f"lib/arm64-v8a/{library.name}")
    _run("zipalign", "-f", "-p", "4", app, aligned)
    key = folder / "key.jks"
    if not key.exists():
        words = ["-storepass", "secret", "-keypass", "secret", "-alias", "a", "-dname", "CN=a"]
        _run("keytool", "-genkeypair", "-keystore", key, *words, "-keyalg", "RSA")
    _run("apksigner", "sign", "--ks", key, "--ks-pass", "pass:secret", aligned)
    _run("apksigner", "verify", aligned)
    return aligned


def _run(*command: object) -> None:
    subprocess.run([str(word) for word in command], check=True, capture_output=True, timeout=WAIT_S)


@pytest.mark.nightly
def test_the_sample_as_an_app(sources, capsys):
    """The doctor reads what aapt writes, and finds what is left out."""
    written = (sources / "sample/app/src/main/AndroidManifest.xml").read_text()
    plain = written.replace(f"{_ROOT}>", _FACTS)
    assert plain != written
    manifest = plain.replace("<application", '<application android:extractNativeLibs="false"')
    app = _assemble(sources, manifest, "-0", "tar")
    said = _doctor(app, capsys)
    # Debian's zipalign knows pages of 4 KiB.
    assert all("16384" in line or "16 KiB" in line for line in said if line.startswith("✗")), said
    compressed = _doctor(_assemble(sources, manifest), capsys)
    assert any(line.startswith("✗ assets/") and "is compressed" in line for line in compressed)
    hidden = manifest.replace("libOpenCL.so", "libother.so")
    told = _doctor(_assemble(sources, hidden, "-0", "tar"), capsys)
    assert any('no <uses-native-library android:name="libOpenCL.so">' in line for line in told)


def _doctor(app: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    capsys.readouterr()
    assert main(["doctor", "--app", str(app)]) in (0, AppError.exit_code)
    return capsys.readouterr().out.splitlines()
