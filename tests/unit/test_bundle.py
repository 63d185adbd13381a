"""Bundles: equal input gives equal bytes, and damage is found and named."""

import errno
import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from fuzz.bundles import read_folder

from adrenoc.base.errors import BundleError, DiskFullError, OutputError
from adrenoc.base.files.outputs import write_folder_atomically
from adrenoc.bundle.bundle import BUNDLE_FOLDER, open_bundle
from adrenoc.bundle.params import write_params
from adrenoc.bundle.tar import write_tar
from adrenoc.bundle.write_bundle import copy_files, put_files
from adrenoc.compile.bundle_options import options_of
from tests.unit.fake_compiled import FakeCompiled, make_bundle_folder


def copy_bundle(source: Path, output: Path) -> None:
    """As the cache does."""
    with write_folder_atomically(output, BUNDLE_FOLDER) as folder:
        copy_files(source, folder)


def test_holds_what_was_compiled(bundle_folder: Path) -> None:
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


def test_equal_input_gives_equal_bytes(bundle_folder: Path, tmp_path: Path) -> None:
    make_bundle_folder(tmp_path / "again")
    assert read_folder(bundle_folder) == read_folder(tmp_path / "again")


@pytest.mark.parametrize(
    "name", ["decisions.json", "kernels/conv2d_kernel.cl", "model.so", "params.safetensors"]
)
def test_finds_damage_in_every_file(bundle_folder: Path, name: str) -> None:
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


def test_refuses_what_is_no_bundle(tmp_path: Path) -> None:
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


def test_options_of_another_version_are_told(bundle_folder: Path) -> None:
    """An option that was renamed since is one sentence, with what to type."""
    bundle = open_bundle(bundle_folder)
    info = bundle.manifest.options
    known = replace(info, values={**info.values, "keep_layers": False})
    other = replace(bundle, manifest=replace(bundle.manifest, options=known))
    with pytest.raises(BundleError, match="the option 'keep_layers', which this version lacks"):
        options_of(other)


def test_refuses_files_outside(bundle_folder: Path) -> None:
    manifest = bundle_folder / "manifest.json"
    manifest.write_text(
        manifest.read_text().replace('"model.so",\n      "bytes"', '"../x",\n      "bytes"')
    )
    with pytest.raises(
        BundleError, match=r'files\[\d\]\.path is "\.\./x", expected the path of a file inside'
    ):
        open_bundle(bundle_folder)


def test_tar_is_the_same_bundle(bundle_folder: Path, tmp_path: Path) -> None:
    write_tar(bundle_folder, tmp_path / "a.tar", name="tiny")
    write_tar(bundle_folder, tmp_path / "b.tar", name="tiny")
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    bundle = open_bundle(tmp_path / "a.tar")
    assert bundle.manifest == open_bundle(bundle_folder).manifest
    assert bundle.library.read_bytes() == (bundle_folder / "model.so").read_bytes()
    with tarfile.open(tmp_path / "a.tar") as tar:
        assert {member.mtime for member in tar} == {0}
        assert "tiny.adrenoc/manifest.json" in tar.getnames()


def test_tar_cannot_write_outside(tmp_path: Path) -> None:
    evil = tmp_path / "evil.tar"
    with tarfile.open(evil, "w") as tar:
        member = tarfile.TarInfo("x/../../escaped")
        member.size = 4
        tar.addfile(member, BytesIO(b"evil"))
    with pytest.raises(BundleError):
        open_bundle(evil)
    assert not list(tmp_path.rglob("escaped"))


def test_copy_replaces_a_bundle_and_nothing_else(bundle_folder: Path, tmp_path: Path) -> None:
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


def test_a_full_disk_is_an_output_error(
    bundle_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def write_to_full(_: Path, params: Mapping[str, np.ndarray]) -> None:
        write_params(Path("/dev/full"), params)

    monkeypatch.setattr("adrenoc.bundle.write_bundle.write_params", write_to_full)
    with (
        pytest.raises(DiskFullError, match="no space is left on the disk"),
        write_folder_atomically(tmp_path / "full.adrenoc", BUNDLE_FOLDER) as folder,
    ):
        make_bundle_folder(folder)
    assert not list(tmp_path.glob("*full*"))


@pytest.mark.parametrize("is_tar", [False, True])
def test_a_full_disk_leaves_a_bundle_as_it_was(
    is_tar: bool, bundle_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_full_disk_while_copying_is_an_output_error(
    bundle_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", full)
    with pytest.raises(DiskFullError):
        copy_bundle(bundle_folder, tmp_path / "full.adrenoc")
    assert not list(tmp_path.glob("*full*"))


def test_a_folder_for_temporary_files_without_room(
    bundle_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "whole.adrenoc.tar"
    write_tar(bundle_folder, path, name="m")
    room = shutil.disk_usage(tmp_path)._replace(free=20)
    monkeypatch.setattr("adrenoc.bundle.tar.shutil.disk_usage", lambda _: room)
    with pytest.raises(DiskFullError, match=r"no room for it \(20 B left, expected \d+\.\d KiB\)"):
        open_bundle(path)
