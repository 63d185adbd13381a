"""The cache of compilations, data folders, plain files and digests."""

import os
import subprocess
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import adrenoc.compile.cache
from adrenoc.base.errors import DependencyError, OutputError
from adrenoc.base.files import read
from adrenoc.base.files.outputs import LIST_FILE
from adrenoc.base.host.proc import own_module
from adrenoc.base.reporter import SilentReporter
from adrenoc.bundle.bundle import open_bundle
from adrenoc.bundle.manifest import Manifest
from adrenoc.compile.cache import BundleCache, BundleDigests, cache_key
from adrenoc.native.android import runtime_build
from adrenoc.native.android.runtime_build import LIBRARY, RUNNER, Runtime, build_runtime
from adrenoc.native.android.runtime_toolchain import Toolchain

KEY = "ab" * 32
WANTED = BundleDigests(model="ab" * 32, target="cd" * 32, options="ef" * 32)


class Listening(SilentReporter):
    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def warn(self, text: str) -> None:
        self.warnings.append(text)


@pytest.fixture
def cache(tmp_path) -> BundleCache:
    return BundleCache(tmp_path / "c", SilentReporter())


def fetched(cache: BundleCache, key: str, wanted: BundleDigests = WANTED) -> Manifest | None:
    """What the cache gives, and that it leaves nothing where it gives nothing."""
    with tempfile.TemporaryDirectory() as folder:
        into = Path(folder) / "b"
        bundle = cache.fetch(key, wanted, into)
        assert into.exists() == (bundle is not None)
        return None if bundle is None else bundle.manifest


def entry(folder: Path) -> Path:
    (manifest,) = folder.glob("bundles/*/*/manifest.json")
    return manifest.parent


def test_gives_back_what_was_stored(bundle_folder, cache):
    assert fetched(cache, KEY) is None
    cache.store(KEY, bundle_folder)
    assert fetched(cache, KEY) == open_bundle(bundle_folder).manifest
    assert cache.manifest(KEY, WANTED) == open_bundle(bundle_folder).manifest
    assert fetched(cache, "cd" * 32) is None


def test_what_is_stored_takes_no_second_room(bundle_folder, tmp_path):
    BundleCache(tmp_path / "c", SilentReporter()).store(KEY, bundle_folder)
    kept = entry(tmp_path / "c") / "params.safetensors"
    assert kept.samefile(bundle_folder / "params.safetensors")


@pytest.mark.parametrize("part", ["model", "target", "options"])
def test_an_entry_that_is_of_something_else_is_dropped(bundle_folder, tmp_path, part):
    """Whoever put it there: the right bundle under the wrong key is the wrong bundle."""
    listening = Listening()
    cache = BundleCache(tmp_path / "c", listening)
    cache.store(KEY, bundle_folder)
    other = replace(WANTED, **{part: "00" * 32})
    assert cache.manifest(KEY, other) is None
    assert fetched(cache, KEY, other) is None
    assert "of another model, target or options" in listening.warnings[0]
    assert fetched(cache, KEY) is None


def test_drops_a_damaged_entry_and_says_so(bundle_folder, tmp_path):
    listening = Listening()
    cache = BundleCache(tmp_path / "c", listening)
    cache.store(KEY, bundle_folder)
    place = entry(tmp_path / "c")
    (place / "model.so").write_bytes(b"damaged")
    assert fetched(cache, KEY) is None
    assert len(listening.warnings) == 1
    assert "model.so" in listening.warnings[0]
    assert not place.exists()


def test_trouble_with_the_folder_is_a_warning(bundle_folder, tmp_path):
    listening = Listening()
    (tmp_path / "c").write_text("a file is in the way")
    cache = BundleCache(tmp_path / "c", listening)
    cache.store(KEY, bundle_folder)
    assert fetched(cache, KEY) is None
    with cache.lock(KEY):
        pass
    assert len(listening.warnings) == 1
    assert "the compile cache was not written" in listening.warnings[0]


def test_a_cache_of_another_user_is_not_used(bundle_folder, tmp_path, monkeypatch):
    listening = Listening()
    cache = BundleCache(tmp_path / "c", listening)
    cache.store(KEY, bundle_folder)
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    monkeypatch.setattr(
        "adrenoc.base.files.read.is_trusted_owner", lambda facts: facts.st_uid == 12345
    )
    assert fetched(cache, KEY) is None
    assert cache.manifest(KEY, WANTED) is None
    assert "belongs to another user" in listening.warnings[0]


def test_folders_are_closed_to_others_whatever_the_umask(bundle_folder, tmp_path):
    before = os.umask(0)
    try:
        BundleCache(tmp_path / "x" / "c", SilentReporter()).store(KEY, bundle_folder)
        (tmp_path / "open").mkdir()
        BundleCache(tmp_path / "open", SilentReporter()).store(KEY, bundle_folder)
    finally:
        os.umask(before)
    for folder in ("x", "x/c", "x/c/bundles", "open", "open/bundles"):
        assert (tmp_path / folder).stat().st_mode & 0o777 == 0o700


def test_drops_what_was_not_used_for_longest(bundle_folder, tmp_path):
    one_entry = sum(p.stat().st_size for p in bundle_folder.rglob("*") if p.is_file())
    cache = BundleCache(tmp_path / "c", SilentReporter(), max_bytes=2 * one_entry)
    keys = [f"{number:02x}" * 32 for number in range(3)]
    for age, key in zip((100, 300), keys, strict=False):
        cache.store(key, bundle_folder)
        place = tmp_path / "c" / "bundles" / key[:2] / key
        os.utime(place, (1_000_000 - age, 1_000_000 - age))
    cache.store(keys[2], bundle_folder)
    assert [fetched(cache, key) is not None for key in keys] == [True, False, True]


def test_entries_are_counted_once(bundle_folder, cache, tmp_path, monkeypatch):
    """A store would take as long as all that was stored before."""
    counted: list[Path] = []
    count = adrenoc.compile.cache._folder_bytes

    def count_one(folder: Path) -> int:
        counted.append(folder)
        return count(folder)

    monkeypatch.setattr(adrenoc.compile.cache, "_folder_bytes", count_one)
    for number in range(3):
        cache.store(f"{number:02x}" * 32, bundle_folder)
    assert [folder.name[:2] for folder in counted] == ["00", "01", "02"]
    for damage in ("", "[]", '{"a": "b"}'):
        (tmp_path / "c" / "bundles" / "sizes.json").write_text(damage)
        cache.store(f"{len(counted):02x}" * 32, bundle_folder)
    assert len(counted) > 12


def test_writers_at_the_same_time_leave_a_whole_entry(bundle_folder, tmp_path):
    listening = Listening()
    cache = BundleCache(tmp_path / "c", listening)
    writers = [threading.Thread(target=cache.store, args=(KEY, bundle_folder)) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert fetched(cache, KEY) is not None
    assert [path.name for path in (tmp_path / "c" / "bundles").rglob("*") if path.is_dir()] == [
        KEY[:2],
        KEY,
        "kernels",
    ]
    assert not listening.warnings


def test_one_at_a_time_holds_the_lock_of_a_key(tmp_path):
    listening = Listening()
    cache = BundleCache(tmp_path / "c", listening)
    order: list[str] = []
    is_held = threading.Event()

    def other() -> None:
        is_held.wait()
        with cache.lock(KEY):
            order.append("other")

    waiting = threading.Thread(target=other)
    waiting.start()
    with cache.lock(KEY):
        is_held.set()
        with cache.lock("cd" * 32):  # another key is another lock
            order.append("first")
        while not listening.notes:
            threading.Event().wait(0.01)
        order.append("first again")
    waiting.join()
    assert order == ["first", "first again", "other"]
    assert listening.notes == ["another adrenoc compiles the same: waiting for it"]


def test_key_changes_with_everything(monkeypatch):
    parts = {"model": "1", "target": "2", "options": "3"}
    keys = [cache_key(parts), *(cache_key({**parts, name: "x"}) for name in parts)]
    monkeypatch.setattr(adrenoc.compile.cache, "version", lambda name: "99.0")
    keys.append(cache_key(parts))
    monkeypatch.undo()
    monkeypatch.setattr(adrenoc.compile.cache, "sources_digest", lambda: "changed")
    keys.append(cache_key(parts))
    monkeypatch.undo()
    assert len(set(keys)) == len(keys)
    assert cache_key(parts) == keys[0]


class _Heard(SilentReporter):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)


@pytest.fixture
def built(tmp_path, monkeypatch) -> Callable[[_Heard], Runtime]:
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
def test_what_is_not_whole_is_built_anew_with_a_line(wrong, built):
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


def test_a_server_keeps_the_folders_of_its_sessions_beside_it(built):
    heard = _Heard()
    (built(heard).folder / "adrenoc-rpc-1").mkdir()
    assert built(heard).cached
    assert not heard.warnings


def test_data_folder_of_the_source_tree():
    assert (read.data_folder("targets") / "gpu").is_dir()
    assert (read.data_folder("presets") / "mixed.toml").is_file()


def test_data_folder_of_a_wheel_wins_over_a_neighbour(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "adrenoc"
    (package / "_data" / "targets").mkdir(parents=True)
    (package.parent / "targets").mkdir()  # another distribution's package of that name
    monkeypatch.setattr(adrenoc, "__file__", str(package / "__init__.py"))
    assert read.data_folder("targets") == package / "_data" / "targets"


def test_a_neighbour_package_is_not_taken_for_data(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "adrenoc"
    package.mkdir(parents=True)
    (package.parent / "targets").mkdir()
    monkeypatch.setattr(adrenoc, "__file__", str(package / "__init__.py"))
    with pytest.raises(DependencyError, match='"targets" of adrenoc is missing') as caught:
        read.data_folder("targets")
    assert "pip install" in caught.value.hint


def test_digests(tmp_path):
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert read.sha256_bytes(b"") == empty
    big = tmp_path / "big"
    big.write_bytes(b"ab" * (1 << 20))
    assert read.sha256_file(big) == read.sha256_bytes(b"ab" * (1 << 20))
    assert read.sha256_json({"b": (1, 2), "a": None}) == read.sha256_json({"a": None, "b": [1, 2]})
    assert read.sha256_json({"a": 1}) != read.sha256_json({"a": 1.5})


def test_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("ADRENOC_CACHE_DIR", raising=False)
    assert read.cache_folder() == tmp_path / ".cache" / "adrenoc"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert read.cache_folder() == tmp_path / ".cache" / "adrenoc"
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/tmp/x")
    assert read.cache_folder() == Path("/var/tmp/x/adrenoc")
    monkeypatch.setenv("ADRENOC_CACHE_DIR", "~/mine")
    assert read.cache_folder() == tmp_path / "mine"


def test_no_home_folder_is_said(monkeypatch):
    for name in ("XDG_CACHE_HOME", "ADRENOC_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)

    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(read.Path, "home", no_home)
    with pytest.raises(OutputError, match="has no home folder") as caught:
        read.cache_folder()
    assert "ADRENOC_CACHE_DIR" in caught.value.hint


def test_environment_switches(monkeypatch):
    monkeypatch.setenv("ANDROID_NDK_HOME", "")
    monkeypatch.setenv("NO_COLOR", "")
    assert read.android_ndk_folders() == ()
    assert not read.no_color()
    monkeypatch.setenv("ANDROID_NDK_HOME", "/ndk")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("ANDROID_NDK", "/other")
    assert read.android_ndk_folders() == (
        ("ANDROID_NDK_HOME", Path("/ndk")),
        ("ANDROID_NDK", Path("/other")),
    )
    assert read.no_color()


def test_a_module_of_ours_is_not_looked_for_in_the_working_folder(tmp_path):
    """`python -m` looks there first: whose folder that is, would be run."""
    for name in ("json", "adrenoc", "runpy", "click"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(77)")
    done = subprocess.run(
        own_module("adrenoc", "--version"), cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert b"adrenoc" in done.stdout
