"""Bundles for several phones' GPUs: what they hold once, how they are split, shown and compared."""

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from adrenoc.base.errors import BundleError
from adrenoc.bundle.buckets import open_buckets
from adrenoc.bundle.bundle import PARAMS, Bundle, open_bundle
from adrenoc.bundle.editions import name_parts, open_edition, read_editions
from adrenoc.bundle.gates import parse_gates
from adrenoc.native.android.package.aar import PACK, TARGETING, write_asset_pack
from adrenoc.pages.bundle_diff import diff_bundles, diff_html
from adrenoc.pages.bundle_page import bundle_html
from tests.commands import compile_here, invoke
from tests.models import graph, write


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    random = np.random.default_rng(0)
    nodes = "a = Conv <pads = [1, 1, 1, 1]>(x, w) b = Relu(a) y = Conv(b, v)"
    constants = {
        "w": random.standard_normal((30, 8, 3, 3)).astype(np.float32),
        "v": random.standard_normal((96, 30, 1, 1)).astype(np.float32),
    }
    proto = graph(nodes, {"x": ("n", 8, 28, 28)}, ["y"], constants)
    return write(proto, tmp_path_factory.mktemp("editions"), "net.onnx")


def _compile(model: Path, name: str, *words: str) -> Bundle:
    output = model.with_name(f"{name}.adrenoc")
    made = invoke("compile", model, *words, "-o", output, "--no-cache")
    assert made.exit_code == 0, made.output
    return open_bundle(output)


@pytest.fixture(scope="module")
def many(model) -> Bundle:
    return _compile(model, "many", "--device", "adreno:660,adreno:750", "--shape", "x:1|2,8,28,28")


@pytest.mark.nightly
def test_an_asset_pack_has_a_part_for_each_gpu(many, model, tmp_path):
    assert write_asset_pack([many], tmp_path).decisions == ()
    root = ElementTree.parse(tmp_path / TARGETING).getroot()
    name = "{http://schemas.android.com/apk/config}"
    chips = {
        group.get("name"): {chip.get("model") for chip in group.iter(f"{name}system-on-chip")}
        for group in root.iter(f"{name}device-group")
    }
    assert {"SM8350"} <= chips["adreno_660"]
    assert {"SM8650"} <= chips["adreno_750"]
    assets = tmp_path / PACK / "src/main/assets"
    assert {path.name for path in assets.iterdir()} == {
        "net#group_adreno_660",
        "net#group_adreno_750",
        "net#group_other",
    }
    whole = open_bundle(assets / "net#group_other/net.adrenoc.tar")
    assert len(read_editions(whole)) == 3
    for edition in read_editions(many)[:-1]:
        own = open_bundle(assets / f"net#group_adreno_{edition.gpu}/net.adrenoc.tar")
        part = open_edition(many, edition)
        assert read_editions(own) == () and own.moves() == {}
        assert own.bytes < whole.bytes
        pairs = list(zip(open_buckets(own), open_buckets(part), strict=True))
        assert len(pairs) == 2
        for mine, its in pairs:
            assert mine.library.read_bytes() == its.library.read_bytes()
            held, among = mine.params(), its.params()
            assert held.keys() == among.keys()
            assert all(held[name].tobytes() == among[name].tobytes() for name in held)


def test_a_bundle_for_one_gpu_cannot_be_split(model, tmp_path):
    one = _compile(model, "one", "--device", "adreno:660", "--shape", "x:1,8,28,28")
    with pytest.raises(BundleError, match="for one device, expected one for several"):
        write_asset_pack([one], tmp_path)
    said = invoke("package", one.path, "--as", "asset-pack", "-o", tmp_path / "out.aar")
    assert said.exit_code == 2
    assert "--as asset-pack goes with -o FOLDER" in said.output


def test_parts_are_named_shown_and_compared(many, tmp_path):
    names = [
        f"{gpu}{batch}x8x28x28" for gpu in ("Adreno 660, ", "Adreno 750, ", "") for batch in (1, 2)
    ]
    assert list(name_parts(many)) == names
    page = bundle_html(many)
    assert all(name in page for name in names)
    shown = invoke("inspect", many.path)
    assert "Adreno 750" in shown.output and "any Adreno" in shown.output
    told = json.loads(invoke("inspect", many.path, "--json").output)
    assert [edition["gpu"] for edition in told["editions"]] == ["660", "750", ""]
    diff = diff_bundles(many, many, gates=parse_gates("launches"))
    assert [shape.shapes for shape in diff.shapes] == names
    assert diff.same_bytes and not diff.broken
    assert all(shape.is_equal for shape in diff.shapes)


def test_shapes_are_compared_one_by_one(many, model):
    words = ("--device", "adreno", "--shape", "x:1|2|4,8,28,28")
    other = _compile(model, "fp32", *words, "--preset", "fp32")
    diff = diff_bundles(many, other, gates=parse_gates("memory"))
    assert [shape.shapes for shape in diff.shapes] == ["1x8x28x28", "2x8x28x28"]
    assert diff.only_after == ("4x8x28x28",)
    assert len(diff.only_before) == 4
    assert [sentence.rpartition("(")[2] for sentence in diff.broken] == ["1x8x28x28)", "2x8x28x28)"]
    assert "Figures of 2x8x28x28" in diff_html(diff, many, other)


def test_builds_hold_each_gpu_against_limits(model, tmp_path, monkeypatch):
    compile_here(monkeypatch)
    project = tmp_path / "adrenoc.toml"
    text = (
        '[[model]]\nfile = "net.onnx"\ndevices = ["adreno:660,adreno:750"]\n'
        'shapes = ["x:1,8,28,28"]\n'
    )
    (tmp_path / "net.onnx").write_bytes(model.read_bytes())
    project.write_text(text)
    built = invoke("build", project)
    assert built.exit_code == 0, built.output
    parts = json.loads((tmp_path / "adrenoc.lock").read_text())["bundles"][0]["parts"]
    assert "devices/a660/model.so" in parts
    assert invoke("build", project, "--locked").exit_code == 0
    project.write_text(text + "[model.gates]\nlaunches = 1\n")
    broken = json.loads(invoke("build", project, "--json").stdout)["bundles"][0]
    assert broken["status"] == "broken"
    notes = " ".join(broken["notes"])
    assert "(Adreno 660, 1x8x28x28)" in notes and "(1x8x28x28)" in notes


def test_filters_are_kept_once_and_plain(tmp_path):
    """Two GPUs read those of Winograd's algorithm, in two orders, and any other plain ones."""
    random = np.random.default_rng(0)
    weights = random.standard_normal((256, 256, 3, 3)).astype(np.float32)
    nodes = "s = Conv(x, u) c = Conv <pads = [1, 1, 1, 1]>(s, w) y = Conv(c, v)"
    constants = {"w": weights}
    for name, shape in (("u", (256, 3, 1, 1)), ("v", (3, 256, 1, 1))):
        constants[name] = random.standard_normal(shape).astype(np.float32)
    proto = graph(nodes, {"x": [1, 3, 28, 28]}, ["y"], constants)
    model = write(proto, tmp_path, "wide.onnx")
    many = _compile(model, "wide", "--device", "adreno:660,adreno:750")
    moves = many.moves()
    parts = [open_edition(many, edition) for edition in read_editions(many)[:-1]]
    transformed = [
        [spec for spec in part.manifest.params if np.prod(spec.shape) >= 16 / 9 * weights.size]
        for part in parts
    ]
    names = {spec.name for specs in transformed for spec in specs}
    assert len(names) == 2, "the two GPUs read them in one order"
    assert all(moves[name].transform is not None for name in names)
    assert many.file(PARAMS).stat().st_size < 2.1 * weights.size
    for gpu, part, specs in zip(("660", "750"), parts, transformed, strict=True):
        alone = _compile(model, f"wide{gpu}", "--device", f"adreno:{gpu}").params()
        held = part.params(specs)
        assert {value.tobytes() for value in held.values()} <= {
            value.tobytes() for value in alone.values()
        }
