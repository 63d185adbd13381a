"""Bundles and their manifests: equal input gives equal bytes, and damage is found and named."""

import errno
import json
import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from fuzz import bundles
from fuzz.bundles import read_folder

from adrenoc.base.errors import BundleError, DiskFullError, OutputError
from adrenoc.base.files.outputs import write_folder_atomically
from adrenoc.base.files.read import sha256_bytes
from adrenoc.bundle.bundle import BUNDLE_FOLDER, copy_files, open_bundle, put_files, write_app_tar
from adrenoc.bundle.manifest import SCHEMA_VERSION, KernelInfo, Manifest, to_plain
from adrenoc.bundle.params import write_params
from adrenoc.bundle.tar import write_tar
from adrenoc.ir.options import CompileOptions
from tests.unit.fake_compiled import FakeCompiled, make_bundle_folder


def copy_bundle(source: Path, output: Path) -> None:
    """As the cache does."""
    with write_folder_atomically(output, BUNDLE_FOLDER) as folder:
        copy_files(source, folder)


def test_holds_what_was_compiled(bundle_folder):
    bundle = open_bundle(bundle_folder)
    compiled = FakeCompiled()
    for name, array in bundle.params().items():
        np.testing.assert_array_equal(array, compiled.params[name])
    assert bundle.kernels() == compiled.kernels
    assert bundle.launches() == compiled.launches
    assert bundle.decisions()[0]["reason"] == "8 channels fill 2 blocks"
    assert bundle.manifest.outputs == compiled.outputs
    assert {entry.path for entry in bundle.manifest.files} == {
        "decisions.json",
        "kernels/conv2d_kernel.cl",
        "launches.json",
        "model.so",
        "params.safetensors",
    }


def test_equal_input_gives_equal_bytes(bundle_folder, tmp_path):
    make_bundle_folder(tmp_path / "again")
    assert read_folder(bundle_folder) == read_folder(tmp_path / "again")


@pytest.mark.parametrize(
    "name", ["decisions.json", "kernels/conv2d_kernel.cl", "model.so", "params.safetensors"]
)
def test_finds_damage_in_every_file(bundle_folder, name):
    file = bundle_folder / name
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(BundleError, match=f"{name} is not what was compiled"):
        open_bundle(bundle_folder)
    file.write_bytes(content[:-1])
    with pytest.raises(BundleError, match=f"{name} has {len(content) - 1} bytes, expected"):
        open_bundle(bundle_folder)
    file.unlink()
    with pytest.raises(BundleError, match=f"lacks the file {name}"):
        open_bundle(bundle_folder)


def test_refuses_what_is_no_bundle(tmp_path):
    with pytest.raises(BundleError, match="there is no bundle at"):
        open_bundle(tmp_path / "nothing")
    (tmp_path / "net.adrenoc").mkdir()
    with pytest.raises(BundleError, match=r'net \(did you mean "\S+/net\.adrenoc"\?\)'):
        open_bundle(tmp_path / "net")
    with pytest.raises(BundleError, match=r"holds no manifest\.json"):
        open_bundle(tmp_path)
    (tmp_path / "text").write_text("no tar at all " * 100)
    with pytest.raises(BundleError, match="neither a bundle folder nor a whole tar file"):
        open_bundle(tmp_path / "text")
    (tmp_path / "net.onnx").write_bytes(b"\x08\x08" * 1000)
    with pytest.raises(BundleError, match="is a model by its name") as caught:
        open_bundle(tmp_path / "net.onnx")
    assert caught.value.hint == f"adrenoc compile {tmp_path / 'net.onnx'}"


def test_options_of_another_version_are_told(bundle_folder):
    """An option that was renamed since is one sentence, with what to type."""
    bundle = open_bundle(bundle_folder)
    info = bundle.manifest.options
    known = replace(info, values={**info.values, "keep_layers": False})
    other = replace(bundle, manifest=replace(bundle.manifest, options=known))
    with pytest.raises(BundleError, match="the option 'keep_layers', which this version lacks"):
        CompileOptions.from_bundle(other)


def test_refuses_files_outside(bundle_folder):
    manifest = bundle_folder / "manifest.json"
    manifest.write_text(
        manifest.read_text().replace('"model.so",\n      "bytes"', '"../x",\n      "bytes"')
    )
    with pytest.raises(
        BundleError, match=r'files\[\d\]\.path is "\.\./x", expected the path of a file inside'
    ):
        open_bundle(bundle_folder)


def test_tar_is_the_same_bundle(bundle_folder, tmp_path):
    write_tar(bundle_folder, tmp_path / "a.tar", name="tiny")
    write_tar(bundle_folder, tmp_path / "b.tar", name="tiny")
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    bundle = open_bundle(tmp_path / "a.tar")
    assert bundle.manifest == open_bundle(bundle_folder).manifest
    assert bundle.library.read_bytes() == (bundle_folder / "model.so").read_bytes()
    with tarfile.open(tmp_path / "a.tar") as tar:
        assert {member.mtime for member in tar} == {0}
        assert "tiny.adrenoc/manifest.json" in tar.getnames()


def test_tar_cannot_write_outside(tmp_path):
    evil = tmp_path / "evil.tar"
    with tarfile.open(evil, "w") as tar:
        member = tarfile.TarInfo("x/../../escaped")
        member.size = 4
        tar.addfile(member, BytesIO(b"evil"))
    with pytest.raises(BundleError):
        open_bundle(evil)
    assert not list(tmp_path.rglob("escaped"))


def test_copy_replaces_a_bundle_and_nothing_else(bundle_folder, tmp_path):
    copy_bundle(bundle_folder, tmp_path / "copy.adrenoc")
    (tmp_path / "copy.adrenoc" / "model.so").write_bytes(b"old")
    copy_bundle(bundle_folder, tmp_path / "copy.adrenoc")
    assert read_folder(tmp_path / "copy.adrenoc") == read_folder(bundle_folder)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("precious")
    with pytest.raises(OutputError):
        copy_bundle(bundle_folder, mine)
    assert (mine / "thesis.tex").read_text() == "precious"


def test_a_full_disk_is_an_output_error(bundle_folder, tmp_path, monkeypatch):

    def write_to_full(_: Path, params: Mapping[str, np.ndarray]) -> None:
        write_params(Path("/dev/full"), params)

    monkeypatch.setattr("adrenoc.bundle.bundle.write_params", write_to_full)
    with (
        pytest.raises(DiskFullError, match="no space is left on the disk"),
        write_folder_atomically(tmp_path / "full.adrenoc", BUNDLE_FOLDER) as folder,
    ):
        make_bundle_folder(folder)
    assert not list(tmp_path.glob("*full*"))


@pytest.mark.parametrize("is_tar", [False, True])
def test_a_full_disk_leaves_a_bundle_as_it_was(is_tar, bundle_folder, tmp_path, monkeypatch):
    """As `prove` and `warm --embed` put files into it."""
    path = bundle_folder
    if is_tar:
        path = tmp_path / "whole.adrenoc.tar"
        write_tar(bundle_folder, path, name="m")
    bundle = open_bundle(path)
    before = sorted(tmp_path.rglob("*"))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", full)
    with pytest.raises(DiskFullError, match="no space is left on the disk") as told:
        put_files(bundle, {"proof.json": b"{}"})
    assert "--output" not in told.value.hint  # there is no such option
    monkeypatch.undo()
    assert sorted(tmp_path.rglob("*")) == before
    put_files(bundle, {"proof.json": b"{}"})
    assert (open_bundle(path).root / "proof.json").read_bytes() == b"{}"


def test_a_full_disk_while_copying_is_an_output_error(bundle_folder, tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", full)
    with pytest.raises(DiskFullError):
        copy_bundle(bundle_folder, tmp_path / "full.adrenoc")
    assert not list(tmp_path.glob("*full*"))


def test_a_folder_for_temporary_files_without_room(bundle_folder, tmp_path, monkeypatch):
    path = tmp_path / "whole.adrenoc.tar"
    write_tar(bundle_folder, path, name="m")
    room = shutil.disk_usage(tmp_path)._replace(free=20)
    monkeypatch.setattr("adrenoc.bundle.tar.shutil.disk_usage", lambda _: room)
    with pytest.raises(DiskFullError, match=r"no room for it \(20 B left, expected \d+\.\d KiB\)"):
        open_bundle(path)


@pytest.fixture
def text(bundle_folder) -> str:
    return (bundle_folder / "manifest.json").read_text(encoding="utf-8")


def _changed(text: str, path: str, value) -> str:
    plain = json.loads(text)
    place = plain
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    for step in steps:
        place = place[step]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return json.dumps(plain)


def test_comes_back_the_same(text):
    manifest = Manifest.from_json(text, "manifest.json")
    assert manifest.to_json() == text
    assert manifest.schema_version == SCHEMA_VERSION
    assert manifest.kernels[0].work_group == (8, 8, 1)
    assert manifest.params[0].scope == "global.texture"


def test_sources_stay_out():
    kernel = KernelInfo(
        name="k", family="copy", calls=1, scopes=(), work_group=(1,), grid=(1,), source="secret"
    )
    assert "secret" not in json.dumps(to_plain(kernel))


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("kernels.0.calls", ..., "m: kernels[0] lacks the key `calls`"),
        ("kernels.0.calls", "2", 'm: kernels[0].calls is "2", expected an integer'),
        ("kernels.0.calls", True, "m: kernels[0].calls is true, expected an integer"),
        ("target.host", 1, "m: target.host is 1, expected true or false"),
        ("inputs", {}, "m: inputs is {}, expected a list"),
        ("model", [], "m: model is [], expected an object"),
        ("versions.linker", 3, "m: versions.linker is 3, expected text"),
        ("memory.colour", "red", "m: memory has an unknown key `colour`"),
        ("schema_version", 2, "m has schema version 2; this adrenoc reads 3 and 4"),
        ("schema_version", True, "m has schema version True; this adrenoc reads 3 and 4"),
        ("schema_version", ..., "m has schema version None; this adrenoc reads 3 and 4"),
    ],
)
def test_names_what_is_wrong(text, path, value, said):
    with pytest.raises(BundleError) as caught:
        Manifest.from_json(_changed(text, path, value), "m")
    assert caught.value.message == said
    assert "adrenoc compile" in caught.value.hint


@pytest.mark.parametrize("broken", ["", "{", "[]", "null", "7"])
def test_refuses_what_is_no_manifest(broken):
    with pytest.raises(BundleError):
        Manifest.from_json(broken, "m")


_CASES = 120


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> bundles.Files:
    folder = tmp_path_factory.mktemp("whole") / "tiny.adrenoc"
    make_bundle_folder(folder)
    return bundles.read_folder(folder)


def _judged(content: bytes, folder: Path) -> bundles.Outcome:
    path = folder / "inner" / "bundle.tar"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return bundles.judge(path)


def test_damaged_bundles_are_read_or_refused(whole, tmp_path):
    outcomes = [
        _judged(bundles.case([whole], seed=1, number=number)[1], tmp_path)
        for number in range(_CASES)
    ]
    assert [one for one in outcomes if one.is_finding] == []
    # Some of the damage does not matter, most does.
    assert _CASES / 2 < sum(one.kind == "refused" for one in outcomes) < _CASES


def test_the_judge_sees_what_is_wrong(whole, tmp_path, monkeypatch):
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


def test_a_case_is_the_same_every_time(whole):
    first, again = (bundles.case([whole], seed=3, number=17) for _ in range(2))
    assert first == again


_LARGE = "__kernel void conv2d_kernel() {}\n" * 400


def _make(folder: Path) -> Path:
    """A bundle with texts that are worth it."""
    bundle = folder / "tiny.adrenoc"
    make_bundle_folder(bundle)
    (bundle / "launches.json").write_text(_LARGE)
    _list(bundle)
    return bundle


def _list(bundle: Path) -> None:
    """Have the manifest list files as they are."""
    manifest = json.loads((bundle / "manifest.json").read_text())
    for entry in manifest["files"]:
        content = (bundle / entry["path"]).read_bytes()
        entry |= {"bytes": len(content), "sha256": sha256_bytes(content)}
    (bundle / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")


def _stored(tar: Path, folder: Path) -> Path:
    with tarfile.open(tar) as archive:
        archive.extractall(folder)  # Python 3.11.2 knows no filter
    (inner,) = folder.iterdir()
    return inner


def test_it_opens_as_what_it_was(tmp_path):
    bundle = _make(tmp_path)
    before = read_folder(bundle)
    tar = tmp_path / "app.tar"
    write_app_tar(bundle, tar, name="tiny")
    assert read_folder(bundle) == before
    stored = read_folder(_stored(tar, tmp_path / "stored"))
    assert len(stored["launches.json"]) * 20 < len(_LARGE)
    assert stored["params.safetensors"] == before["params.safetensors"]
    opened = open_bundle(tar)
    found = read_folder(opened.root)
    listed = {path for path in before if not path.endswith(".cl")}
    assert found.keys() == listed
    assert all(found[path] == before[path] for path in listed - {"manifest.json"})
    assert opened.manifest.schema_version == 3
    assert [file.inflated_bytes for file in opened.manifest.files if file.inflated_bytes] == []


def test_equal_bundles_give_equal_bytes(tmp_path):
    for name in "ab":
        write_app_tar(_make(tmp_path / name), tmp_path / f"{name}.tar", name="tiny")
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_what_was_unpacked_by_hand_is_refused(tmp_path):
    write_app_tar(_make(tmp_path), tmp_path / "app.tar", name="tiny")
    with pytest.raises(BundleError, match="was unpacked from a tar file for apps"):
        open_bundle(_stored(tmp_path / "app.tar", tmp_path / "stored"))


@pytest.mark.parametrize("said", [-1, 0, 1, len(_LARGE) - 1, len(_LARGE) + 1, 1 << 60])
def test_a_size_that_is_wrong_is_refused(tmp_path, said):
    write_app_tar(_make(tmp_path), tmp_path / "app.tar", name="tiny")
    stored = _stored(tmp_path / "app.tar", tmp_path / "stored")
    manifest = json.loads((stored / "manifest.json").read_text())
    (entry,) = (one for one in manifest["files"] if one["path"] == "launches.json")
    entry["inflated_bytes"] = said
    (stored / "manifest.json").write_text(json.dumps(manifest))
    write_tar(stored, tmp_path / "wrong.tar", name="tiny")
    with pytest.raises(BundleError) as caught:
        # A size of zero says that it is stored as it is: it is, and is no list of launches.
        open_bundle(tmp_path / "wrong.tar").launches()
    if said:
        assert "launches.json cannot be inflated" in caught.value.message


def test_what_is_not_deflated_is_refused(tmp_path):
    write_app_tar(_make(tmp_path), tmp_path / "app.tar", name="tiny")
    stored = _stored(tmp_path / "app.tar", tmp_path / "stored")
    (stored / "launches.json").write_text("\xff" * 300)
    _list(stored)
    write_tar(stored, tmp_path / "wrong.tar", name="tiny")
    with pytest.raises(BundleError, match=r"launches\.json cannot be inflated: Error -3"):
        open_bundle(tmp_path / "wrong.tar")
