"""Bundles for several GPUs and shapes: constants are kept once; how they are split and shown."""

import gc
import json
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from adrenoc.base.errors import BundleError
from adrenoc.base.reporter import SilentReporter
from adrenoc.bundle.buckets import BatchRule, name_parts, open_buckets, open_edition, read_editions
from adrenoc.bundle.bundle import PARAMS, Bundle, open_bundle
from adrenoc.bundle.gates import parse_gates
from adrenoc.bundle.manifest import ParamSpec
from adrenoc.compile import make_buckets
from adrenoc.compile.make_buckets import ConstantStore
from adrenoc.ir.half import round_constant
from adrenoc.ir.options import CompileOptions
from adrenoc.ir.program import Packing
from adrenoc.kernels.families.winograd.winograd import winograd
from adrenoc.native.android.package.aar import PACK, TARGETING, write_asset_pack
from adrenoc.pages.bundle_diff import diff_bundles, diff_html
from adrenoc.pages.bundle_page import bundle_html
from adrenoc.target.target import load_target
from tests.commands import compile_here, invoke
from tests.models import graph, write


@dataclass(frozen=True, kw_only=True)
class Made:
    """As much of what a compilation gives as a store reads."""

    params: dict[str, np.ndarray]
    packings: dict[str, Packing]
    param_specs: tuple[ParamSpec, ...] = field(default=())


WEIGHTS = np.random.default_rng(0).standard_normal((30, 24, 3, 3)).astype(np.float32)


def _by_blocks(lanes: int):
    """Output channels in blocks of so many, filled up with zeros, the window outermost."""

    def pack(w: np.ndarray) -> np.ndarray:
        whole = -(-w.shape[0] // lanes) * lanes
        padded = np.pad(w, [(0, whole - w.shape[0]), (0, 0), (0, 0), (0, 0)])
        blocks = padded.reshape(whole // lanes, lanes, *w.shape[1:])
        return np.ascontiguousarray(blocks.transpose(3, 4, 0, 2, 1))

    return pack


def _made(pack, prepare=np.asarray, dtype: str = "float16", weights=WEIGHTS) -> Made:
    def rounded(numbers: np.ndarray) -> np.ndarray:
        return prepare(numbers).astype(dtype)

    packing = Packing(
        constant=weights,
        prepare=prepare,
        pack=lambda numbers: pack(rounded(numbers)),
        make_rounded=lambda: rounded(weights),
        move=pack,
    )
    value = pack(rounded(weights))
    spec = ParamSpec(name="p0", shape=value.shape, dtype=dtype)
    return Made(params={"p0": value}, packings={"p0": packing}, param_specs=(spec,))


def _made_winograd(lanes: int, outputs: int, prepare=np.asarray, weights=WEIGHTS) -> Made:
    """The same weights as Winograd's algorithm has them."""
    matrix, pack = winograd(outputs).weight_transform, _by_blocks(lanes)

    def rounded() -> np.ndarray:
        return round_constant(prepare(weights), "float16", matrix).value

    packing = Packing(
        constant=weights,
        prepare=prepare,
        pack=None,
        make_rounded=rounded,
        move=pack,
        transform=matrix,
    )
    value = pack(rounded())
    spec = ParamSpec(name="p0", shape=value.shape, dtype="float16")
    return Made(params={"p0": value}, packings={"p0": packing}, param_specs=(spec,))


def _share(*made: Made) -> ConstantStore:
    store = ConstantStore(moves=True)
    for one in made:
        store.share_constants(one)
    return store


def _transform(w: np.ndarray) -> np.ndarray:
    """What computes: as Winograd's algorithm does with weights."""
    halves = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
    return np.einsum("ia,ocab,jb->ocij", halves, w, halves)


@pytest.mark.parametrize("prepare", [np.asarray, _transform])
def test_another_order_is_told(prepare):
    first, other = _made(_by_blocks(4), prepare), _made(_by_blocks(16), prepare)
    store = _share(first, other, first)
    assert list(store.params) == ["p0"]
    move = store.moves["p1"]
    assert move.bring(store.params["p0"], "").tobytes() == other.params["p0"].tobytes()


@pytest.mark.parametrize("outputs", [2, 3, 4])
@pytest.mark.parametrize("first", [True, False])
def test_transformed_filters_are_made_of_plain_ones(first, outputs):
    plain, other = _made(_by_blocks(4)), _made_winograd(16, outputs)
    store = _share(*((plain, other) if first else (other, plain)))
    assert sum(value.size for value in store.params.values()) <= plain.params["p0"].size
    made = {move.shape: move.bring(store.params[move.source], "") for move in store.moves.values()}
    assert made[other.params["p0"].shape].tobytes() == other.params["p0"].tobytes()
    if not first:
        assert made[plain.params["p0"].shape].tobytes() == plain.params["p0"].tobytes()


def test_transformed_filters_alone_are_kept_plain():
    two, four = _made_winograd(16, 2), _made_winograd(4, 4)
    store = _share(two, four)
    assert [value.shape for value in store.params.values()] == [WEIGHTS.shape]
    assert len(store.moves) == 2


def test_filters_of_another_order_of_axes_are_found():
    """A file may keep them with output channels last."""
    weights = np.ascontiguousarray(WEIGHTS.transpose(2, 3, 1, 0))

    def prepare(numbers: np.ndarray) -> np.ndarray:
        return numbers.transpose(3, 2, 0, 1)

    plain = _made(_by_blocks(4), prepare, weights=weights)
    other = _made_winograd(16, 4, prepare, weights)
    for made in ((plain, other), (other, plain)):
        store = _share(*made)
        assert len(store.params) == 1
        for name, value in other.params.items():
            move = next(m for m in store.moves.values() if m.transform is not None)
            assert move.bring(store.params[move.source], name).tobytes() == value.tobytes()


@pytest.mark.parametrize(
    "other",
    [
        _made(_by_blocks(16), dtype="float32"),
        _made(_by_blocks(4), _transform),
        _made(_by_blocks(16), weights=WEIGHTS + 1),
        _made(lambda w: np.ascontiguousarray(w[::-1] * 2)),
    ],
    ids=["dtype", "computed", "numbers", "doubled"],
)
def test_what_is_no_other_order_is_kept(other):
    store = _share(_made(_by_blocks(4)), other)
    assert list(store.params) == ["p0", "p1"]
    assert store.moves == {}


def test_a_store_of_one_device_keeps_all():
    store = ConstantStore()
    for one in (_made(_by_blocks(4)), _made(_by_blocks(16)), _made(_by_blocks(4))):
        store.share_constants(one)
    assert list(store.params) == ["p0", "p1"]
    assert store.moves == {}


@dataclass(frozen=True, kw_only=True)
class MadeBucket:
    """As much of what a compilation gives as buckets share."""

    params: dict[str, np.ndarray]
    packings: dict[str, Packing]
    param_specs: tuple[ParamSpec, ...]
    inputs: tuple[object, ...] = field(default=())


@pytest.mark.nightly
def test_what_a_bucket_was_packed_of_goes(monkeypatch):
    constants: list[weakref.ref[np.ndarray]] = []
    packed: list[weakref.ref[np.ndarray]] = []
    held: list[tuple[int, int]] = []

    def compile_model(*_words, **_options) -> MadeBucket:
        gc.collect()
        held.append(tuple(sum(r() is not None for r in refs) for refs in (constants, packed)))
        constant, value = np.ones(64, np.float32), np.arange(64, dtype=np.float32)
        constants.append(weakref.ref(constant))
        packed.append(weakref.ref(value))
        return MadeBucket(
            params={"p0": value},
            packings={
                "p0": Packing(
                    constant=constant,
                    prepare=np.asarray,
                    pack=np.asarray,
                    make_rounded=list,
                    move=np.asarray,
                )
            },
            param_specs=(ParamSpec(name="p0", shape=(64,), dtype="float32"),),
        )

    monkeypatch.setattr(make_buckets, "compile_model", compile_model)
    monkeypatch.setattr(
        make_buckets, "_find_batch", lambda *_: BatchRule(inputs=(), outputs=(), refused="")
    )
    found = make_buckets.compile_buckets(
        Path("model.onnx"),
        target=load_target("host"),
        options=CompileOptions(),
        buckets=[(("x", (count, 3)),) for count in (1, 2, 4)],
        reporter=SilentReporter(),
    )
    # The first one's packed constants serve all; what they were packed of, and equals, are gone.
    assert held == [(0, 0), (0, 1), (0, 1)]
    assert list(found.params) == ["p0"]
    assert all(one.params["p0"] is found.params["p0"] for one in found.compiled)


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
