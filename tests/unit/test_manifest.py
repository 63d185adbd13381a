"""The manifest: text and back, and nothing that is wrong gets through."""

import json
from pathlib import Path
from typing import Any

import pytest

from adrenoc.base.errors import BundleError
from adrenoc.bundle.manifest import SCHEMA_VERSION, KernelInfo, Manifest, to_plain


@pytest.fixture
def text(bundle_folder: Path) -> str:
    return (bundle_folder / "manifest.json").read_text(encoding="utf-8")


def _changed(text: str, path: str, value: Any) -> str:
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


def test_comes_back_the_same(text: str) -> None:
    manifest = Manifest.from_json(text, "manifest.json")
    assert manifest.to_json() == text
    assert manifest.schema_version == SCHEMA_VERSION
    assert manifest.kernels[0].work_group == (8, 8, 1)
    assert manifest.params[0].scope == "global.texture"


def test_sources_stay_out() -> None:
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
def test_names_what_is_wrong(text: str, path: str, value: Any, said: str) -> None:
    with pytest.raises(BundleError) as caught:
        Manifest.from_json(_changed(text, path, value), "m")
    assert caught.value.message == said
    assert "adrenoc compile" in caught.value.hint


@pytest.mark.parametrize("broken", ["", "{", "[]", "null", "7"])
def test_refuses_what_is_no_manifest(broken: str) -> None:
    with pytest.raises(BundleError):
        Manifest.from_json(broken, "m")
