"""Models and the runtime as packages of their own, and the app that takes them."""

import json
import os
import re
import shutil
import zipfile
from collections import Counter
from dataclasses import replace
from hashlib import sha1
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adrenoc.base.errors import BundleError, OutputError
from adrenoc.base.text.names import BUNDLE
from adrenoc.bundle.bundle import MANIFEST, Bundle, open_bundle
from adrenoc.cli.main import main
from adrenoc.native.android.app_check import check_app
from adrenoc.native.android.package.aar import name_models
from adrenoc.native.android.package.repository import PROVIDER, RUNTIME, write_repository
from adrenoc.native.android.runtime_build import LICENSE, NOTICE
from adrenoc.native.android.runtime_build import PROVIDER as PROVIDER_LIBRARY
from adrenoc.native.android.runtime_toolchain import MIN_API
from tests.binary_manifest import binary_manifest
from tests.commands import refuse, succeed
from tests.examples import examples
from tests.runtime.programs import link_stub, without_sources

_LATER = replace(RUNTIME, version="0.2.0")
_MAVEN = "{http://maven.apache.org/POM/4.0.0}"


def _renamed(bundle: Bundle, folder: Path, name: str) -> Bundle:
    """The same bundle under another name."""
    shutil.copytree(bundle.root, folder)
    manifest = replace(bundle.manifest, name=name)
    (folder / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
    return open_bundle(folder)


@pytest.fixture(scope="module")
def bundles(phone_bundle, tmp_path_factory) -> list[Bundle]:
    folder = tmp_path_factory.mktemp("bundles")
    return [phone_bundle, _renamed(phone_bundle, folder / "other.adrenoc", "switch")]


@pytest.fixture
def repository(bundles, android, tmp_path) -> Path:
    write_repository(bundles, [android], tmp_path / "packages")
    return tmp_path / "packages"


def _merged(archives: list[Path]) -> tuple[dict[str, bytes], Counter[str]]:
    """What an app gets of its dependencies, and how many bring each thing that only one may.

    As Android's merger has it: libraries and assets by path, prefab packages by name, and
    namespaces (android.uniquePackageNames).
    """
    content: dict[str, bytes] = {}
    brought: Counter[str] = Counter()
    for path in archives:
        with zipfile.ZipFile(path) as archive:
            manifest = ElementTree.fromstring(archive.read("AndroidManifest.xml"))
            brought[f"namespace {manifest.attrib['package']}"] += 1
            for name in archive.namelist():
                if name.startswith(("jni/", "assets/")):
                    brought[name] += 1
                    content[name.replace("jni/", "lib/")] = archive.read(name)
                if name == "prefab/prefab.json":
                    brought[f"prefab {json.loads(archive.read(name))['name']}"] += 1
    return content, brought


def test_two_models_and_the_runtime_go_into_one_app(repository, bundles, tmp_path):
    archives = sorted(repository.rglob("*.aar"))
    assert len(archives) == 3
    content, brought = _merged(archives)
    assert [what for what, times in brought.items() if times > 1] == []
    assert sum(what.startswith("prefab") for what in brought) == 1
    assert {"assets/two.adrenoc.tar", "assets/switch.adrenoc.tar"} <= set(content)
    assert {f"assets/adrenoc/{LICENSE}.txt", f"assets/adrenoc/{NOTICE}.txt"} <= set(content)
    for path in archives:
        assert check_app(path) == ()
    library = ("uses-native-library", {"name": "libOpenCL.so", "required": False})
    content["AndroidManifest.xml"] = binary_manifest(
        [("application", {"extractNativeLibs": True}), library]
    )
    apk = tmp_path / "app.apk"
    with zipfile.ZipFile(apk, "w") as archive:
        for name, data in content.items():
            kind = zipfile.ZIP_DEFLATED if name.endswith(".so") else zipfile.ZIP_STORED
            archive.writestr(name, data, compress_type=kind)
    assert main(["doctor", "--app", str(apk)]) == 0
    (tmp_path / "two.tar").write_bytes(content["assets/two.adrenoc.tar"])
    assert open_bundle(tmp_path / "two.tar").manifest == without_sources(bundles[0].manifest)


def test_the_short_way_is_for_one_model(bundles, android, tmp_path):
    """Why there are two: libraries and prefab packages of two such archives collide."""
    for number, bundle in enumerate(bundles):
        words = ["package", str(bundle.path), "--as", "aar", "-o", str(tmp_path / f"{number}.aar")]
        assert main([*words, "--runtime", str(android.folder)]) == 0
    _, brought = _merged(sorted(tmp_path.glob("*.aar")))
    assert brought["prefab adrenoc"] == 2


def test_each_package_names_what_it_needs(repository):
    poms = {path: ElementTree.parse(path).getroot() for path in repository.rglob("*.pom")}
    assert len(poms) == 3

    def coordinates(node: ElementTree.Element) -> tuple[str, ...]:
        keys = ("groupId", "artifactId", "version")
        return tuple(node.findtext(f"{_MAVEN}{key}", "") for key in keys)

    for path, pom in poms.items():
        group, artifact, version = coordinates(pom)
        place = repository / group.replace(".", "/") / artifact / version
        assert path == place / f"{artifact}-{version}.pom"
        assert path.with_suffix(".aar").is_file()
        needed = [coordinates(one) for one in pom.iter(f"{_MAVEN}dependency")]
        if artifact == RUNTIME.artifact:
            assert needed == []
            assert pom.findtext(f"{_MAVEN}licenses/{_MAVEN}license/{_MAVEN}name") == "Apache-2.0"
        else:
            assert needed == [(RUNTIME.group, RUNTIME.artifact, RUNTIME.version)]


def test_clients_check_digests_and_find_versions(repository, bundles, android, monkeypatch):
    """Maven's -C refuses a file without a digest; a range of versions is looked up in metadata."""
    monkeypatch.setattr("adrenoc.native.android.package.repository.RUNTIME", _LATER)
    write_repository(bundles[:1], [android], repository)
    found = {path for path in repository.rglob("*") if path.is_file()}
    kinds = Counter(path.suffix for path in found)
    assert kinds == {".aar": 4, ".pom": 4, ".xml": 3, ".sha1": 11}
    for path in found:
        if path.suffix != ".sha1":
            digest = sha1(path.read_bytes()).hexdigest()
            assert path.with_name(f"{path.name}.sha1").read_text() == digest
    for path in repository.rglob("maven-metadata.xml"):
        told = ElementTree.parse(path).getroot()
        place = f"{told.findtext('groupId', '')}.{told.findtext('artifactId')}".replace(".", "/")
        assert path.parent == repository / place
        versions = [one.text for one in told.iterfind("versioning/versions/version")]
        assert versions == sorted(one.name for one in path.parent.iterdir() if one.is_dir())
    assert (repository / _LATER.path("aar")).is_file()


def test_onnxruntimes_provider_is_a_package_of_its_own(repository, bundles, android, tmp_path):
    """Apps without onnxruntime take the very runtime that they took before."""
    folder = tmp_path / "with-provider"
    shutil.copytree(android.folder, folder)
    link_stub(folder / PROVIDER_LIBRARY)
    words = ["package", str(bundles[0].path), "--as", "aar", "--runtime", str(folder), "--json"]
    told = json.loads(succeed(*words, "-o", tmp_path / "out").stdout)
    assert {PROVIDER.path("aar"), PROVIDER.path("pom")} < set(told["files"])
    place = tmp_path / "out" / PROVIDER.path("aar")
    runtime = tmp_path / "out" / RUNTIME.path("aar")
    assert runtime.read_bytes() == (repository / RUNTIME.path("aar")).read_bytes()
    assert not (repository / PROVIDER.path("aar")).exists()
    pom = ElementTree.parse(place.with_suffix(".pom")).getroot()
    needed = [one.findtext(f"{_MAVEN}artifactId") for one in pom.iter(f"{_MAVEN}dependency")]
    assert needed == [RUNTIME.artifact]
    content, brought = _merged([place, runtime])
    assert set(brought.values()) == {1}
    library = f"lib/arm64-v8a/{PROVIDER_LIBRARY}"
    assert content[library] == (folder / PROVIDER_LIBRARY).read_bytes()
    with zipfile.ZipFile(place) as archive:
        assert archive.read("proguard.txt") == b"-keep class ai.onnxruntime.** { *; }\n"
    assert check_app(place) == ()
    assert main(["doctor", "--app", str(place)]) == 0


@pytest.mark.parametrize("beside", [True, False])
def test_a_provider_for_another_machine_is_found(repository, tmp_path, beside):
    """Beside the runtime, as in an app, and alone."""
    link_stub(tmp_path / PROVIDER_LIBRARY, emulation="elf_x86_64")
    wrong = tmp_path / "wrong.aar"
    if beside:
        shutil.copy(repository / RUNTIME.path("aar"), wrong)
    with zipfile.ZipFile(wrong, "a") as archive:
        archive.write(tmp_path / PROVIDER_LIBRARY, f"jni/arm64-v8a/{PROVIDER_LIBRARY}")
        if not beside:
            archive.writestr("classes.jar", b"")
    (trouble,) = check_app(wrong)
    assert (trouble.where, trouble.wrong) == (f"jni/arm64-v8a/{PROVIDER_LIBRARY}", "is for x86_64")


def test_packages_of_several_calls_share_the_runtime(repository, bundles, android):
    def content() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in repository.rglob("*.*") if path.is_file()}

    before = content()
    write_repository(bundles[:1], [android], repository)
    assert content() == before


@given(names=st.lists(st.from_regex(BUNDLE.pattern, fullmatch=True), min_size=1, max_size=5))
@examples(60)
def test_names_of_models_are_identifiers_and_differ(phone_bundle, names):
    manifest = phone_bundle.manifest
    given_bundles = [replace(phone_bundle, manifest=replace(manifest, name=name)) for name in names]
    if len(set(names)) < len(names):
        with pytest.raises(BundleError, match="is given twice"):
            name_models(given_bundles)
        return
    models = name_models(given_bundles)
    assert len({model.identifier for model in models}) == len(names)
    assert len({model.asset for model in models}) == len(names)
    for model in models:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", model.identifier)
        assert BUNDLE.allows(model.asset.removesuffix(".adrenoc.tar")[:100])


def test_words_of_java_are_no_names(phone_bundle, bundles):
    assert name_models(bundles)[1].identifier == "m_switch"


# --- the app ------------------------------------------------------------------------------------


@pytest.fixture
def app(bundles, android, tmp_path) -> Path:
    words = ["package", *(str(bundle.path) for bundle in bundles), "--as", "aar"]
    words += ["-o", str(tmp_path / "packages"), "--runtime", str(android.folder)]
    assert main([*words, "--sample", str(tmp_path / "app")]) == 0
    return tmp_path / "app"


def test_the_app_has_what_android_studio_opens(app):
    files = {path.relative_to(app).as_posix() for path in app.rglob("*") if path.is_file()}
    assert {
        "README.md",
        "app/build.gradle.kts",
        "app/src/main/AndroidManifest.xml",
        "app/src/main/kotlin/org/adrenoc/sample/CameraActivity.kt",
        "app/src/main/kotlin/org/adrenoc/sample/Classifier.kt",
        "app/src/main/kotlin/org/adrenoc/sample/Coroutines.kt",
        "app/src/main/kotlin/org/adrenoc/sample/MainActivity.kt",
        "app/src/main/res/values/strings.xml",
        "build.gradle.kts",
        "gradle.properties",
        "gradle/wrapper/gradle-wrapper.jar",
        "gradle/wrapper/gradle-wrapper.properties",
        "gradlew",
        "gradlew.bat",
        "settings.gradle.kts",
    } <= files
    assert os.access(app / "gradlew", os.X_OK)
    with zipfile.ZipFile(app / "gradle/wrapper/gradle-wrapper.jar") as archive:
        assert "org/gradle/wrapper/GradleWrapperMain.class" in archive.namelist()
    for name in files:
        if name.endswith((".xml", ".pom")):
            ElementTree.parse(app / name)
        if name.endswith((".kts", ".kt", ".xml", ".md", ".cc", ".txt", ".properties")):
            assert "@MIN" not in (app / name).read_text("utf-8"), name


def test_the_app_builds_from_what_is_there(app):
    """Every file, package, class and text that one file names, another has."""
    build = (app / "app/build.gradle.kts").read_text("utf-8")
    settings = (app / "settings.gradle.kts").read_text("utf-8")
    assert f"minSdk = {MIN_API}\n" in build
    assert 'abiFilters += listOf("arm64-v8a")' in build
    (repository,) = re.findall(r'maven \{ url = uri\("(.+)"\) \}', settings)
    dependencies = re.findall(r'implementation\("(org\.adrenoc.*):(.+):(.+)"\)', build)
    assert len(dependencies) == 3
    for group, artifact, version in dependencies:
        place = app / repository / group.replace(".", "/") / artifact / version
        assert (place / f"{artifact}-{version}.aar").is_file()
    kotlin = app / "app/src/main/kotlin/org/adrenoc/sample"
    # What Android has had for less long than the app's oldest (28: `Context.getMainExecutor`).
    for file in kotlin.iterdir():
        assert not re.search(r"\bmainExecutor\b", file.read_text("utf-8")), file.name
    android = "{http://schemas.android.com/apk/res/android}"
    manifest = ElementTree.parse(app / "app/src/main/AndroidManifest.xml").getroot()
    source = "".join(path.read_text("utf-8") for path in sorted(kotlin.glob("*.kt")))
    activities = [one.attrib[f"{android}name"] for one in manifest.iter("activity")]
    assert activities == [".MainActivity", ".CameraActivity", ".ChatActivity"]
    for name in activities:
        assert re.search(rf"^class {name[1:]} : (Component)?Activity\(\)", source, re.MULTILINE)
    (library,) = manifest.iter("uses-native-library")
    assert library.attrib == {f"{android}name": "libOpenCL.so", f"{android}required": "false"}
    texts = ElementTree.parse(app / "app/src/main/res/values/strings.xml").getroot()
    (application,) = manifest.iter("application")
    named = {f"@string/{text.attrib['name']}" for text in texts}
    assert application.attrib[f"{android}label"] in named
    used = set(re.findall(r"^import (org\.adrenoc\.\w+)$", source, re.MULTILINE))
    with zipfile.ZipFile(next(app.rglob("adrenoc-runtime-*.aar"))) as runtime:
        jar = zipfile.ZipFile(BytesIO(runtime.read("classes.jar")))
    brought = {name.removesuffix(".class").replace("/", ".") for name in jar.namelist()}
    assert len(used) >= 4 and used <= brought


def test_an_app_replaces_nothing(phone_bundle, android, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("precious")
    words = ["package", str(phone_bundle.path), "--as", "aar", "-o", str(tmp_path / "packages")]
    words += ["--runtime", str(android.folder), "--sample"]
    assert "will not delete it" in refuse(OutputError, *words, mine)
    assert (mine / "thesis.tex").read_text() == "precious"
    assert not (tmp_path / "packages").exists()
    (tmp_path / "empty").mkdir()
    assert main([*words, str(tmp_path / "empty")]) == 0
    assert (tmp_path / "empty" / "settings.gradle.kts").is_file()
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a", "b", "--as", "aar", "-o", "x.aar"], "several bundles go into a folder"),
        (["a", "b", "--as", "cmake", "-o", "x"], "several bundles go into a folder"),
        (["a", "--as", "cmake", "-o", "x", "--sample", "y"], "--sample goes with --as aar"),
        (["a", "-o", "x"], "missing option '--as'"),
    ],
)
def test_usage(words, said):
    assert said in refuse(2, "package", *words)
