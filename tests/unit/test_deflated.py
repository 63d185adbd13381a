"""Bundles for apps are stored deflated, and open as what they were."""

import json
import tarfile
from pathlib import Path

import pytest
from fuzz.bundles import read_folder

from adrenoc.base.errors import BundleError
from adrenoc.base.files.read import sha256_bytes
from adrenoc.bundle.bundle import open_bundle
from adrenoc.bundle.tar import write_tar
from adrenoc.bundle.write_bundle import write_app_tar
from tests.unit.fake_compiled import make_bundle_folder

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


def test_it_opens_as_what_it_was(tmp_path: Path) -> None:
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


def test_equal_bundles_give_equal_bytes(tmp_path: Path) -> None:
    for name in "ab":
        write_app_tar(_make(tmp_path / name), tmp_path / f"{name}.tar", name="tiny")
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_what_was_unpacked_by_hand_is_refused(tmp_path: Path) -> None:
    write_app_tar(_make(tmp_path), tmp_path / "app.tar", name="tiny")
    with pytest.raises(BundleError, match="was unpacked from a tar file for apps"):
        open_bundle(_stored(tmp_path / "app.tar", tmp_path / "stored"))


@pytest.mark.parametrize("said", [-1, 0, 1, len(_LARGE) - 1, len(_LARGE) + 1, 1 << 60])
def test_a_size_that_is_wrong_is_refused(tmp_path: Path, said: int) -> None:
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


def test_what_is_not_deflated_is_refused(tmp_path: Path) -> None:
    write_app_tar(_make(tmp_path), tmp_path / "app.tar", name="tiny")
    stored = _stored(tmp_path / "app.tar", tmp_path / "stored")
    (stored / "launches.json").write_text("\xff" * 300)
    _list(stored)
    write_tar(stored, tmp_path / "wrong.tar", name="tiny")
    with pytest.raises(BundleError, match=r"launches\.json cannot be inflated: Error -3"):
        open_bundle(tmp_path / "wrong.tar")
