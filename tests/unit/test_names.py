"""Names in bundles: each field takes its own kind of names alone, whatever else is tried."""

import json
import string
import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adrenoc.base.errors import BundleError
from adrenoc.base.files.read import sha256_bytes
from adrenoc.base.text import names
from adrenoc.base.text.json_text import mark_name
from adrenoc.bundle.buckets import Buckets
from adrenoc.bundle.bundle import open_bundle
from adrenoc.bundle.manifest import Manifest, from_plain
from adrenoc.cli.main import main
from tests.examples import examples
from tests.unit.fake_compiled import make_bundle_folder

_MARK = next(iter(mark_name(names.BUNDLE)))
_HOSTILE = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        ["", ".", "..", "../../x", "/etc/passwd", "a/../b", "-rf", "a//b", "a/", "a\0"]
    ),
    st.lists(
        st.sampled_from(['")', "../", "$(id)", "`id`", "\n", "\x1b[2J", ";", "&", "<", "'", "a"])
    ).map("".join),
    st.sampled_from([210, 1200]).map(lambda count: "a" * count),
)


def _named_fields(kind, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every field below a dataclass that holds names: its keys (`*` for items), its kind."""
    hints = typing.get_type_hints(kind)
    for item in fields(kind):
        here = (*path, item.name)
        inner, origin = hints[item.name], typing.get_origin(hints[item.name])
        if origin is tuple:
            here, inner = (*here, "*"), typing.get_args(inner)[0]
        if _MARK in item.metadata:
            yield here, item.metadata[_MARK]
        elif is_dataclass(inner):
            yield from _named_fields(inner, here)


_FIELDS = dict(_named_fields(Manifest))
# An example of what the bundle of these tests has none of.
_REGION = {
    "symbol": "r", "version": 1, "dtype": "float32", "operators": [], "inputs": [], "outputs": [],
    "kernels": ["k"], "copies": 0, "texture_us": 0, "clml_us": 0, "copies_us": 0,
}  # fmt: skip


def _put(plain, path: tuple[str, ...], name: str) -> None:
    key: Any = path[0] if path[0] != "*" else 0
    if len(path) == 1:
        plain[key] = name
    else:
        _put(plain[key], path[1:], name)


@pytest.fixture(scope="module")
def plain_text(tmp_path_factory) -> str:
    plain = json.loads(make_bundle_folder(tmp_path_factory.mktemp("names") / "b").to_json())
    plain["regions"] = [_REGION]
    plain["library"]["needed"] = ["libm.so"]
    return json.dumps(plain)


def test_what_becomes_a_path_or_a_word_is_marked():
    marked = {".".join(path) for path in _FIELDS}
    assert {
        "name", "kernels.*.name", "files.*.path", "files.*.sha256", "model.file", "target.name",
        "regions.*.symbol", "regions.*.kernels.*", "library.machine", "inputs.*.dtype",
    } <= marked  # fmt: skip
    assert len(marked) >= 20


@pytest.mark.parametrize("path", _FIELDS, ids=".".join)
@given(name=_HOSTILE)
@example(name='x")\nexecute_process(COMMAND touch /tmp/owned)\n#')
@example(name="../../../x")
@examples(10)
def test_a_manifest_takes_names_of_the_field_alone(plain_text, path, name):
    plain = json.loads(plain_text)
    _put(plain, path, name)
    text = json.dumps(plain)
    if _FIELDS[path].allows(name):
        assert Manifest.from_json(text, "m")
        return
    with pytest.raises(BundleError) as caught:
        Manifest.from_json(text, "m")
    assert _FIELDS[path].expected in caught.value.message
    assert ".".join(part for part in path if part != "*") in caught.value.message.replace("[0]", "")
    assert caught.value.message.isprintable()


@given(folder=_HOSTILE)
@examples(50)
def test_a_bucket_lies_in_its_bundle(folder):
    plain = {
        "buckets": [{"folder": folder, "inputs": [], "outputs": []}],
        "batch": {"inputs": [], "outputs": [], "refused": ""},
    }
    if not names.FOLDER.allows(folder):
        with pytest.raises(BundleError, match=r"b: buckets\[0\].folder is"):
            from_plain(Buckets, plain, "b")
        return
    path = PurePosixPath(from_plain(Buckets, plain, "b").buckets[0].folder)
    assert ".." not in path.parts and not path.is_absolute()


@given(text=st.one_of(_HOSTILE, st.text(alphabet=string.printable, max_size=300)))
@examples(200)
def test_whatever_a_model_is_called_gives_a_name(text):
    assert names.BUNDLE.allows(names.bundle_name(text))
    assert names.FILE.allows(names.file_name(text))
    made = names.identifier(text)
    assert made.isidentifier() and made.isascii() and made == made.lower()
    if names.BUNDLE.allows(text) and text.strip("_.-"):
        assert names.bundle_name(text) == text.lstrip("-.")


def test_names_stay_legible():
    assert names.bundle_name("mobilenet_v2-1.0") == "mobilenet_v2-1.0"
    assert names.bundle_name("Mon modèle (v2)") == "Mon_modele_v2_"
    assert names.bundle_name("модель") == "model"
    assert names.file_name("модель (2).onnx") == "модель (2).onnx"
    assert names.file_name("a\x1b[2J.onnx") == "a_[2J.onnx"
    assert names.identifier("2 ResNet-50.v1") == "m_2_resnet_50_v1"


@pytest.mark.parametrize("form", ["aar", "cmake"])
@pytest.mark.parametrize("name", ["../../../out", 'x")\nexecute_process(COMMAND id)\n#', "/x"])
def test_package_writes_nothing_for_a_hostile_name(bundle_folder, tmp_path, name, form, capsys):
    file = bundle_folder / "manifest.json"
    plain = json.loads(file.read_text(encoding="utf-8"))
    plain["name"] = name
    file.write_text(json.dumps(plain), encoding="utf-8")
    (tmp_path / "a").mkdir()
    before = sorted(tmp_path.rglob("*"))
    code = main(
        ["package", str(bundle_folder), "--as", form, "-o", str(tmp_path / "a" / "out.aar")]
    )
    assert code == BundleError.exit_code
    assert "manifest.json: name is" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


def test_inspect_reads_sources_of_the_bundle_alone(bundle_folder, tmp_path, capsys):
    (bundle_folder.parent / "secret.cl").write_text("secret")
    file = bundle_folder / "manifest.json"
    plain = json.loads(file.read_text(encoding="utf-8"))
    plain["kernels"][0]["name"] = "../../secret"
    file.write_text(json.dumps(plain), encoding="utf-8")
    code = main(["inspect", str(bundle_folder), "--kernel", "../../secret"])
    assert code == BundleError.exit_code
    said = capsys.readouterr()
    assert "secret\n" not in said.out and "kernels[0].name is" in said.err


def test_a_kernel_without_its_source_is_told(bundle_folder):
    file = bundle_folder / "manifest.json"
    plain = json.loads(file.read_text(encoding="utf-8"))
    plain["kernels"][0]["name"] = "other"
    file.write_text(json.dumps(plain), encoding="utf-8")
    with pytest.raises(BundleError, match="lists no source of the kernel other"):
        open_bundle(bundle_folder).kernels()
    make_bundle_folder(bundle_folder.parent / "again")
    source = bundle_folder.parent / "again" / "kernels" / "conv2d_kernel.cl"
    source.write_bytes(b"\xff\xfe")
    file = bundle_folder.parent / "again" / "manifest.json"
    plain = json.loads(file.read_text(encoding="utf-8"))
    for entry in plain["files"]:
        if entry["path"].endswith(".cl"):
            entry.update(bytes=2, sha256=sha256_bytes(b"\xff\xfe"))
    file.write_text(json.dumps(plain), encoding="utf-8")
    with pytest.raises(BundleError, match="is not text"):
        open_bundle(bundle_folder.parent / "again").kernels()


@pytest.mark.parametrize("key", ["files", "kernels"])
def test_nothing_is_listed_twice(plain_text, key):
    plain = json.loads(plain_text)
    plain[key].append(plain[key][0])
    with pytest.raises(BundleError, match=rf"m: {key} lists `\S+` twice"):
        Manifest.from_json(json.dumps(plain), "m")
