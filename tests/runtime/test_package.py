"""Packages for apps: the CMake package is built and run, the AAR is looked over."""

import json
import re
import shutil
import subprocess
import tarfile
import zipfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from adrenoc.base.errors import AppError, BundleError, DependencyError, LinkError
from adrenoc.bundle.buckets import open_buckets
from adrenoc.bundle.bundle import Bundle, open_bundle, write_app_tar
from adrenoc.cli.main import main
from adrenoc.native.android.app_check import check_app
from adrenoc.native.android.elf import read_elf
from adrenoc.native.android.package.aar import write_aar
from adrenoc.native.android.runtime_build import LIBRARY, LICENSE, NOTICE
from adrenoc.native.android.runtime_toolchain import JNI_LIBRARY, MIN_API, java_folder
from tests.binary_manifest import binary_manifest
from tests.commands import compile_model, refuse, succeed
from tests.patience import WAIT_S
from tests.runtime.programs import link_stub, run_case, without_sources

ABI = "arm64-v8a"


# --- CMake --------------------------------------------------------------------------------------


def test_the_cmake_package_builds_and_runs_its_sample(bundle, runtime, opencl, execute, tmp_path):
    package = tmp_path / "package"
    command = ["package", str(bundle.path), "--as", "cmake", "-o", str(package)]
    assert main([*command, "--runtime", str(runtime.folder)]) == 0
    shutil.move(package, tmp_path / "moved")  # nothing in it knows where it was made
    package = tmp_path / "moved"
    build = tmp_path / "build"
    sample = package / "share/adrenoc/sample"
    configure = ["cmake", "-S", sample, "-B", build, f"-DCMAKE_PREFIX_PATH={package}"]
    subprocess.run(configure, check=True, capture_output=True)
    subprocess.run(["cmake", "--build", build], check=True, capture_output=True)
    bundled = package / "share/adrenoc" / f"{bundle.manifest.name}.adrenoc"
    said = execute(build / "adrenoc_sample", bundled, opencl).out
    assert f"{bundle.manifest.name} on " in said
    assert "sum: largest " in said
    open_bundle(bundled)
    assert "Apache TVM FFI" in (package / "share/doc/adrenoc" / NOTICE).read_text(encoding="utf-8")
    assert (package / "share/doc/adrenoc" / LICENSE).is_file()


def test_a_runtime_for_another_machine_is_refused(bundle, android, tmp_path):
    command = ["package", str(bundle.path), "--as", "cmake", "-o", str(tmp_path / "out")]
    assert "but the runtime at" in refuse(BundleError, *command, "--runtime", android.folder)
    assert not (tmp_path / "out").exists()


def test_a_runtime_has_no_names_of_its_own(runtime):
    assert read_elf(runtime.library).is_stripped
    assert not read_elf(runtime.library.with_name(f"{LIBRARY}.debug")).is_stripped


# --- AAR ----------------------------------------------------------------------------------------


@pytest.fixture
def aar(phone_bundle, android, tmp_path) -> Path:
    output = tmp_path / "two.aar"
    write_aar(phone_bundle, [android], output)
    return output


def test_an_aar_has_what_android_builds_look_for(aar, phone_bundle, android, tmp_path):
    with zipfile.ZipFile(aar) as archive:
        names = set(archive.namelist())
        assert {
            "AndroidManifest.xml",
            "classes.jar",
            "R.txt",
            "proguard.txt",
            f"jni/{ABI}/{LIBRARY}",
            f"jni/{ABI}/{JNI_LIBRARY}",
            "assets/two.adrenoc.tar",
            "prefab/modules/adrenoc_runtime/include/adrenoc.h",
            f"META-INF/{LICENSE}",
            f"assets/adrenoc/{NOTICE}.txt",
        } <= names
        assert 'android:required="false"' in archive.read("AndroidManifest.xml").decode()
        facts = json.loads(
            archive.read(f"prefab/modules/adrenoc_runtime/libs/android.{ABI}/abi.json")
        )
        assert facts["abi"] == ABI
        archive.extract("assets/two.adrenoc.tar", tmp_path)
    unpacked = open_bundle(tmp_path / "assets/two.adrenoc.tar")
    assert unpacked.manifest == without_sources(phone_bundle.manifest)
    again = tmp_path / "again.aar"
    write_aar(phone_bundle, [android], again)
    assert again.read_bytes() == aar.read_bytes()
    assert check_app(aar) == ()


def test_an_aar_brings_the_java_classes(aar):
    with zipfile.ZipFile(aar) as archive:
        rules = archive.read("proguard.txt").decode()
        stored = archive.getinfo("classes.jar").compress_type == zipfile.ZIP_STORED
        jar = zipfile.ZipFile(BytesIO(archive.read("classes.jar")))
    assert stored
    classes = {name for name in jar.namelist() if name.endswith(".class")}
    assert {f"org/adrenoc/{name}.class" for name in ("Model", "Tensor", "Generation")} <= classes
    # What stands in for Android's own classes stays here.
    assert all(name.startswith("org/adrenoc/") for name in classes)
    # Of Java 8, which every Android build takes.
    assert {jar.read(name)[:8] for name in classes} == {bytes.fromhex("cafebabe00000034")}
    kept = set(re.findall(r"(?:class|interface) (org\.adrenoc\.\w+)", rules))
    looked_up = re.findall(r'FindClass\("(.+?)"\)', _native_half())
    assert kept == {name.replace("/", ".") for name in looked_up} | {"org.adrenoc.Native"}


def _native_half() -> str:
    return "".join(path.read_text("utf-8") for path in (java_folder() / "jni").glob("*.[ch]*"))


def test_an_aar_needs_javac_and_a_runtime_with_the_native_half(
    phone_bundle, android, tmp_path, monkeypatch
):
    old = tmp_path / "old"
    shutil.copytree(android.folder, old)
    (old / JNI_LIBRARY).unlink()
    command = ["package", str(phone_bundle.path), "--as", "aar", "-o", str(tmp_path / "out.aar")]
    assert f"has no {JNI_LIBRARY}" in refuse(LinkError, *command, "--runtime", old)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert "apt-get install default-jdk-headless" in refuse(
        DependencyError, *command, "--runtime", android.folder
    )
    assert not (tmp_path / "out.aar").exists()


def test_what_does_not_belong_on_a_phone_is_refused(
    bundle, phone_bundle, runtime, android, tmp_path
):
    with pytest.raises(BundleError, match="was compiled for this computer"):
        write_aar(bundle, [android], tmp_path / "out.aar")
    with pytest.raises(LinkError, match=r"is not for Android .*needs .*libc\.so\.6"):
        write_aar(phone_bundle, [runtime], tmp_path / "out.aar")
    library = replace(phone_bundle.manifest.library, machine="x86_64")
    other = replace(phone_bundle, manifest=replace(phone_bundle.manifest, library=library))
    with pytest.raises(BundleError, match="is for x86_64, but the runtimes are for arm64-v8a"):
        write_aar(other, [android], tmp_path / "out.aar")


def test_the_manifest_of_an_aar(aar):
    with zipfile.ZipFile(aar) as archive:
        manifest = ElementTree.fromstring(archive.read("AndroidManifest.xml"))
    android = "{http://schemas.android.com/apk/res/android}"
    assert manifest.attrib["package"] == "org.adrenoc.app.two"
    sdk = manifest.find("uses-sdk")
    assert sdk is not None and sdk.attrib == {f"{android}minSdkVersion": str(MIN_API)}
    libraries = manifest.findall("application/uses-native-library")
    # Not required: a phone without it shall install the app, and say so when a model is loaded.
    assert [
        (one.attrib[f"{android}name"], one.attrib[f"{android}required"]) for one in libraries
    ] == [("libOpenCL.so", "false"), ("libOpenCL-pixel.so", "false")]


# --- what is wrong with an app ------------------------------------------------------------------


def _apk(folder: Path, aar: Path, changes: dict[str, bytes | None], *, compress: bool) -> Path:
    """An APK with what an AAR holds; None leaves a file out."""
    content: dict[str, bytes] = {}
    with zipfile.ZipFile(aar) as archive:
        for name in archive.namelist():
            if name.startswith(("jni/", "assets/")) or name == "AndroidManifest.xml":
                content[name.replace("jni/", "lib/")] = archive.read(name)
    for name, data in changes.items():
        content.pop(name, None)
        if data is not None:
            content[name] = data
    apk = folder / "app.apk"
    with zipfile.ZipFile(apk, "w") as archive:
        for name, data in content.items():
            stored = not compress and not name.endswith(".so")
            kind = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
            archive.writestr(name, data, compress_type=kind)
    return apk


def test_a_good_apk(aar, tmp_path):
    manifest = binary_manifest(
        [
            ("uses-sdk", {"minSdkVersion": MIN_API}),
            ("application", {"extractNativeLibs": True}),
            ("uses-native-library", {"name": "libOpenCL.so", "required": False}),
        ]
    )
    apk = _apk(tmp_path, aar, {"AndroidManifest.xml": manifest}, compress=False)
    assert check_app(apk) == ()
    assert "finds OpenCL" in succeed("doctor", "--app", apk).stdout


def test_entries_beside_libraries_are_no_abis(aar, tmp_path):
    """Some tools write folders into the archive, and some leave notes."""
    manifest = _manifest(extracts=True)
    more: dict[str, bytes | None] = dict.fromkeys(
        ("lib/", "lib/arm64-v8a/", "lib/x86/", "lib/versions.txt"), b""
    )
    apk = _apk(tmp_path, aar, {"AndroidManifest.xml": manifest, **more}, compress=False)
    assert check_app(apk) == ()
    (foreign,) = check_app(_apk(tmp_path, aar, {**more, "lib/x86/liba.so": b""}, compress=False))[
        :1
    ]
    assert foreign.where == "lib/x86"


_IN_A_COMMENT = b"<manifest><!-- uses-native-library libOpenCL.so --></manifest>"


def _manifest(*, extracts: bool) -> bytes:
    """One in which OpenCL is visible."""
    library = ("uses-native-library", {"name": "libOpenCL.so"})
    return binary_manifest([("application", {"extractNativeLibs": extracts}), library])


def test_libraries_that_android_cannot_take_out_of_an_apk(aar, tmp_path):
    compressed = {"AndroidManifest.xml": _manifest(extracts=False)}
    stored = {"AndroidManifest.xml": _manifest(extracts=True)}
    troubles = check_app(_apk(tmp_path, aar, compressed, compress=False))
    assert len(troubles) == 2
    for trouble in troubles:
        assert trouble.wrong.startswith("is compressed, and the manifest says")
        assert "INSTALL_FAILED_INVALID_APK" in trouble.then
    assert check_app(_apk(tmp_path, aar, stored, compress=False)) == ()
    # Not at a page, which matters only where it is mapped from the APK.
    assert check_app(_stored(_apk(tmp_path, aar, stored, compress=False))) == ()
    assert len(check_app(_stored(_apk(tmp_path, aar, compressed, compress=False)))) == 2


def _stored(apk: Path) -> Path:
    """The same archive without compression."""
    with zipfile.ZipFile(apk) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(apk, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return apk


def test_each_trouble_of_an_app_is_named(aar, tmp_path):
    small, wrong, named = (tmp_path / name for name in (LIBRARY, "wrong.so", "named.so"))
    link_stub(small, "-z", "max-page-size=4096")
    link_stub(wrong, emulation="elf_x86_64")
    link_stub(named, strip=False)
    place = f"lib/{ABI}/{LIBRARY}"
    for changes, said in (
        ({"AndroidManifest.xml": b"<manifest/>"}, "has no <uses-native-library"),
        # Words somewhere are no element.
        ({"AndroidManifest.xml": _IN_A_COMMENT}, "has no <uses-native-library"),
        ({"AndroidManifest.xml": b"\x03\0no manifest"}, "cannot be read (damaged"),
        ({place: None}, f"has no {LIBRARY}"),
        ({place: small.read_bytes()}, "segments aligned to 4096 bytes, expected 16384"),
        ({place: wrong.read_bytes()}, "is for x86_64"),
        ({place: named.read_bytes()}, "is not stripped"),
        ({place: b"no library"}, "is not an ELF file"),
        ({"lib/x86/libother.so": b""}, f"has other libraries, but no {LIBRARY}"),
    ):
        (trouble,) = check_app(_apk(tmp_path, aar, changes, compress=False))
        assert said in trouble.wrong
        assert trouble.fix
    (trouble,) = check_app(_apk(tmp_path, aar, {}, compress=True))
    assert trouble.wrong == "is compressed"
    apk = _apk(tmp_path, aar, {"AndroidManifest.xml": b"<manifest/>"}, compress=False)
    assert "hide the GPU's OpenCL" in refuse(AppError, "doctor", "--app", apk)


def test_a_stored_library_must_lie_at_a_page(aar, tmp_path):
    apk = _stored(_apk(tmp_path, aar, {}, compress=False))
    wrongs = [trouble.wrong for trouble in check_app(apk)]
    assert len(wrongs) == 2
    assert all("not at a multiple of 16384" in wrong for wrong in wrongs)


def test_what_is_no_archive(tmp_path):
    (tmp_path / "x.apk").write_text("no archive")
    with pytest.raises(BundleError, match=r"x\.apk is no APK or AAR"):
        check_app(tmp_path / "x.apk")
    with pytest.raises(BundleError, match=r"nothing\.apk cannot be read: No such file"):
        check_app(tmp_path / "nothing.apk")


def _pack(bundle: Bundle, folder: Path) -> Bundle:
    before = {path: path.read_bytes() for path in bundle.root.rglob("*") if path.is_file()}
    tar = folder / f"{bundle.manifest.name}.tar"
    write_app_tar(bundle.root, tar, name=bundle.manifest.name)
    assert {path: path.read_bytes() for path in before} == before
    with tarfile.open(tar) as archive:
        stored = {member.name.partition("/")[2]: member.size for member in archive.getmembers()}
    assert not [name for name in stored if name.endswith(".cl")]
    libraries = [file for file in bundle.manifest.files if file.path.endswith("model.so")]
    assert all(stored[file.path] * 3 < file.bytes for file in libraries)
    assert [path.name for path in folder.iterdir() if path.name.startswith(".app-")] == []
    return open_bundle(tar)  # with digests of all that it lists


def test_a_bundle_runs_as_it_did(bundle, case, runner, tmp_path):
    packed = _pack(bundle, tmp_path)
    _, outputs = run_case(runner, packed.path, case, tmp_path)
    case.check(outputs)


def test_buckets_keep_theirs(shapes, runner, tmp_path):
    packed = _pack(shapes, tmp_path)
    assert len(open_buckets(packed)) == len(open_buckets(shapes)) > 1
    runner(packed.path, "--repeat", 1)


def test_kernels_for_several_gpus(bundle, case, work, runner, tmp_path):
    several, devices = tmp_path / "several.adrenoc", "host:660,host:750"
    packed = _pack(compile_model(work / "two.onnx", several, device=devices), tmp_path)
    _, outputs = run_case(runner, packed.path, case, tmp_path)
    for name, expected in case.outputs.items():
        assert np.allclose(outputs[name], expected, rtol=1e-4, atol=1e-4)


TOOLS = ("aapt", "zipalign", "apksigner", "keytool")
FRAMEWORK = Path("/usr/share/android-framework-res/framework-res.apk")
_ROOT = '<manifest xmlns:android="http://schemas.android.com/apk/res/android"'
# What Android's Gradle plugin puts in, out of build.gradle.kts.
_FACTS = (
    f'{_ROOT} package="org.adrenoc.sample" android:versionCode="1" android:versionName="1">'
    '<uses-sdk android:minSdkVersion="24" android:targetSdkVersion="36" />'
)


@pytest.fixture
def sources(phone_bundle, android, tmp_path) -> Path:
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
    said = _doctor(_assemble(sources, manifest, "-0", "tar"), capsys)
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
