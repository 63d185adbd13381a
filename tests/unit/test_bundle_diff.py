"""`adrenoc diff` and `adrenoc view`: what changed is found and named, and gates hold builds."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adrenoc.base.errors import BundleError, OptionError, PolicyError
from adrenoc.bundle.bundle import LIBRARY, LaunchInfo, open_bundle
from adrenoc.bundle.gates import parse_gates
from adrenoc.bundle.manifest import KernelInfo, LibraryInfo, OptionsInfo
from adrenoc.bundle.write_bundle import fill_bundle
from adrenoc.cli.main import main
from adrenoc.pages.bundle_diff import BundleDiff, diff_bundles
from tests.unit.fake_compiled import ABOUT, FakeCompiled, make_bundle_folder


def kernel(name: str, text: str, **more) -> KernelInfo:
    facts = {"family": "conv2d", "calls": 1, "scopes": ("global",), "work_group": (8, 8, 1)}
    return KernelInfo(name=name, source=text, **{**facts, "grid": (1, 1, 1), **more})


def make(folder: Path, *kernels: KernelInfo, floor_us: float | None = 1.0, **about) -> Path:
    """A bundle with these kernels, each launched once for a node of the number it ends with."""
    folder.mkdir()
    (folder / LIBRARY).write_bytes(b"\x7fELF\2\1\1".ljust(64, b"\0"))
    compiled: Any = FakeCompiled()
    compiled.kernels = kernels
    compiled.launches = tuple(
        LaunchInfo(kernel=k.name, node=k.source.split()[0], flops=1, bytes=2, floor_us=floor_us)
        for k in kernels
    )
    library = LibraryInfo(machine="x86_64", soname="model.so", needed=(), page_bytes=4096)
    fill_bundle(folder, compiled, library=library, manifest={**ABOUT, **about})
    return folder


def diff(before: Path, after: Path, gates: str = "") -> BundleDiff:
    return diff_bundles(open_bundle(before), open_bundle(after), gates=parse_gates(gates))


def test_equal_bundles_differ_in_nothing(bundle_folder):
    found = diff(bundle_folder, bundle_folder, "kernels,launches,copies,memory,size")
    assert found.same_bytes and not found.settings and not found.broken
    assert [shape.is_equal for shape in found.shapes] == [True]


def test_kernels_are_known_by_their_text_not_by_their_number(tmp_path):
    """One more kernel at the front moves the numbers of all that follow."""
    before = make(tmp_path / "a", kernel("conv_0", "n1 conv_0 {}"), kernel("conv_1", "n2 conv_1 ;"))
    after = make(
        tmp_path / "b",
        kernel("conv_0", "n0 new"),
        kernel("conv_1", "n1 conv_1 {}"),
        kernel("conv_2", "n2 conv_2 ;"),
    )
    (shape,) = diff(before, after).shapes
    kinds = [(k.kind, k.before, k.after) for k in shape.kernels]
    assert kinds == [
        ("added", "", "conv_0"),
        ("name", "conv_0", "conv_1"),
        ("name", "conv_1", "conv_2"),
    ]
    assert [(n.node, n.before) for n in shape.nodes] == [("n0", None)]


def test_a_text_that_changed_is_paired_by_its_node(tmp_path):
    before = make(tmp_path / "a", kernel("conv_0", "n1\nold\nshared"), kernel("gone", "n9 x"))
    after = make(tmp_path / "b", kernel("conv_7", "n1\nnew\nshared"), kernel("moved", "n3 y"))
    (shape,) = diff(before, after).shapes
    assert [(k.kind, k.before, k.after, k.lines) for k in shape.kernels] == [
        ("text", "conv_0", "conv_7", (1, 1)),
        ("added", "", "moved", (1, 0)),
        ("removed", "gone", "", (0, 1)),
    ]
    assert [node.node for node in shape.nodes] == ["n1", "n3", "n9"]


def test_other_work_groups_are_a_change(tmp_path):
    before = make(tmp_path / "a", kernel("k", "n1"))
    after = make(tmp_path / "b", kernel("k", "n1", work_group=(4, 4, 1)))
    (shape,) = diff(before, after).shapes
    assert [(k.kind, k.what) for k in shape.kernels] == [("launch", "work-group 8x8x1 to 4x4x1")]
    assert not shape.is_equal


def test_settings_and_decisions_are_compared(bundle_folder, tmp_path):
    other = OptionsInfo(preset="fp16", values={"storage_dtype": "float16"}, digest="00" * 32)
    after = make(tmp_path / "b", FakeCompiled().kernels[0], options=other)
    said = {c.subject: (c.before, c.after) for c in diff(bundle_folder, after).settings}
    assert said["option preset"] == ("fp32", "fp16")
    assert said["option storage_dtype"] == ("float32", "float16")
    (after / "decisions.json").write_text("[]\n")
    (shape,) = diff_bundles(
        open_bundle(bundle_folder), replace(open_bundle(bundle_folder), root=after)
    ).shapes
    assert [(d.subject, d.before, d.after) for d in shape.decisions] == [
        ("conv2d_0", "texture", "")
    ]


@pytest.mark.parametrize(
    ("gates", "broken"),
    [
        ("launches", 1),
        ("launches=1", 0),
        ("launches=49%", 1),
        ("launches=50%", 0),
        ("kernels,launches=10%", 2),
        ("copies,memory", 0),
        ("time=0.5us", 1),
        ("time=1us", 0),
        ("time=0.001ms", 0),
        ("size=100MiB,time=1", 0),
    ],
)
def test_gates_allow_their_tolerance(tmp_path, gates, broken):
    before = make(tmp_path / "a", kernel("a", "n1 a"), kernel("b", "n2 bb"))
    after = make(tmp_path / "b", *(kernel(n, f"n{n} {n}") for n in ("a", "b", "c")))
    assert len(diff(before, after, gates).broken) == broken


def test_a_gate_on_an_unknown_time_does_not_hold(tmp_path):
    paths = [make(tmp_path / name, kernel("a", "n1"), floor_us=None) for name in "ab"]
    assert "not known" in diff(paths[0], paths[1], "time").broken[0]


@pytest.mark.parametrize(
    "text", ["speed", "launches=", "launches=x", "size=5us", "time=1e9", "kernels=-1"]
)
def test_wrong_gates_are_told(text):
    with pytest.raises(OptionError):
        parse_gates(text)


def test_the_command_ends_with_0_unless_a_gate_breaks(tmp_path, capsys):
    before = make(tmp_path / "a", kernel("a", "n1 a"))
    after = make(tmp_path / "b", kernel("a", "n1 a"), kernel("b", "n2 <script>alert(1)</script>"))
    page = tmp_path / "d.html"
    command = ["diff", str(before), str(after)]
    assert main([*command, "--html", str(page)]) == 0
    assert "+100.0 %" in capsys.readouterr().out
    html = page.read_text()
    assert "&lt;script&gt;" in html and "<script" not in html and "http" not in html
    assert main([*command, "--fail-on", "launches", "--json"]) == PolicyError.exit_code
    plain = json.loads(capsys.readouterr().out)
    assert plain["broken"] == ["launches: 1 before, 2 after, allowed no more"]
    assert main([*command, "--fail-on", "launches"]) == PolicyError.exit_code
    assert "try: adrenoc diff" in capsys.readouterr().err


def test_what_is_no_bundle_is_one_sentence(bundle_folder, tmp_path, capsys):
    damaged = tmp_path / "damaged"
    make_bundle_folder(damaged)
    (damaged / "launches.json").write_text("[1]")
    old = tmp_path / "old"
    make_bundle_folder(old)
    manifest = old / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"schema_version": 3', '"schema_version": 0'))
    for other in (tmp_path / "missing", tmp_path, damaged, old):
        for pair in ((bundle_folder, other), (other, bundle_folder)):
            assert main(["diff", *map(str, pair)]) == BundleError.exit_code
        assert main(["view", str(other), "-o", str(tmp_path / "v.html")]) == BundleError.exit_code
        said = capsys.readouterr().err
        assert "Traceback" not in said and said.count("error: ") == 3
    assert not (tmp_path / "v.html").exists()


def test_a_models_bundles_are_compiled_for_it(model, compiled, capsys):
    command = ["diff", str(model), str(model), "--preset", "fp32", "--preset", "fp16", "--json"]
    assert main([*command, "--device", "adreno:750", "--device", "adreno:830"]) == 0
    said = {c["subject"]: c["after"] for c in json.loads(capsys.readouterr().out)["settings"]}
    assert (said["option preset"], said["target"]) == ("fp16", "adreno:a830")
    assert len(compiled) == 2
    assert sorted(path.name for path in model.parent.iterdir()) == ["cache", "net.tflite"]


def test_view_writes_a_page_that_holds_all(bundle_folder, tmp_path, capsys):
    page = tmp_path / "v.html"
    assert main(["view", str(bundle_folder), "-o", str(page), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"report": str(page), "opened": False}
    html = page.read_text()
    for said in ("conv_2", "__kernel void conv2d_kernel", "8 channels fill 2 blocks", "image"):
        assert said in html
    assert "http" not in html and "<script" not in html


def test_view_opens_the_browser(bundle_folder, own_cache, monkeypatch):
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: bool(opened.append(url)) or True)
    assert main(["view", str(bundle_folder)]) == 0
    assert opened == [(own_cache / "pages" / "tiny.html").as_uri()]
