"""Operators of others: an entry point's, and MediaPipe's."""

import importlib
import json
import math
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from flatbuffers import flexbuffers

from adrenoc.base.errors import DependencyError, ToolError, UnsupportedOperatorError
from adrenoc.cli.main import main
from adrenoc.compile.cache import tool_versions
from adrenoc.importers.tflite import untranslated
from tests.commands import invoke, refuse, succeed
from tests.tflite.build import ModelBuilder, T

pytestmark = pytest.mark.usefixtures("device")

SOURCE = """
from tvm import relax

def hard_shrink(node):
    x, limit = node.real(0), float(node.option("limit", 0.5))
    far = node.emit(relax.op.greater(node.emit(relax.op.abs(x)), relax.const(limit)))
    return relax.op.where(far, x, relax.const(0.0))
"""


@pytest.fixture
def installed(tmp_path, monkeypatch) -> Iterator[Path]:
    """A package with one operator, as pip would lay it."""
    site = tmp_path / "site"
    record = site / "my_operators-1.2.dist-info"
    record.mkdir(parents=True)
    (site / "my_operators.py").write_text(SOURCE)
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: my-operators\nVersion: 1.2\n")
    (record / "entry_points.txt").write_text(
        "[adrenoc.tflite_operators]\nHardShrink = my_operators:hard_shrink\n"
        "Absent = my_operators:absent\n"
    )
    monkeypatch.syspath_prepend(str(site))
    importlib.invalidate_caches()
    untranslated._found.cache_clear()
    yield site
    untranslated._found.cache_clear()
    sys.modules.pop("my_operators", None)


def write_model(folder: Path, kind: str) -> Path:
    builder = ModelBuilder()
    graph = builder.graph()
    x = graph.add(T(data=np.zeros((2, 5), np.float32)), "x")
    graph.outputs = graph.op(kind, [x], [T(shape=(2, 5))], custom=b"")
    path = folder / "m.tflite"
    path.write_bytes(builder.write())
    return path


def test_a_package_tells_what_an_operator_computes(installed, tmp_path):
    model, bundle, saved = write_model(tmp_path, "HardShrink"), tmp_path / "b", tmp_path / "y.npz"
    x = np.linspace(-1, 1, 10, dtype=np.float32).reshape(2, 5)
    np.save(tmp_path / "x.npy", x)
    for words in (
        ["compile", str(model), "--device", "host", "-o", str(bundle)],
        ["run", str(bundle), "--input", str(tmp_path / "x.npy"), "--save", str(saved)],
    ):
        succeed(*words)
    with np.load(saved) as held:
        [made] = held.values()
    assert np.allclose(made, np.where(np.abs(x) > 0.5, x, 0), atol=1e-3)
    said = invoke("inspect", bundle, "--json")
    assert json.loads(said.stdout)["versions"]["my_operators"].startswith("1.2+")


def test_a_change_of_it_is_another_compilation(installed):
    before = tool_versions()
    (installed / "my_operators.py").write_text(SOURCE + "# changed\n")
    assert tool_versions() != before


def test_a_package_without_the_function(installed, tmp_path):
    assert "my_operators:absent, which cannot be imported" in refuse(
        DependencyError, "compile", write_model(tmp_path, "Absent")
    )


def test_a_reference_that_lacks_it_is_no_damaged_model(installed, tmp_path):
    model, bundle = write_model(tmp_path, "HardShrink"), tmp_path / "b.adrenoc"
    assert main(["compile", str(model), "--device", "host", "-o", str(bundle)]) == 0
    assert "nothing to compare with" in refuse(ToolError, "run", bundle, "--check", model)


DRAW = np.random.default_rng(11)
SAME, VALID = 1, 2
Arrays = Sequence[np.ndarray]


def draw(*shape: int) -> np.ndarray:
    return DRAW.standard_normal(shape).astype(np.float32)


def record(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}i", *numbers)


def options(**said) -> bytes:
    return bytes(flexbuffers.Dumps(said))


Case = tuple[bytes, Arrays, Sequence[tuple[int, ...]]]
"""Options, inputs and the shapes of the results."""


def run_all(
    folder: Path, kind: str, cases: Sequence[Case], *, version: int = 1
) -> list[list[np.ndarray]]:
    """What a bundle of some operators beside each other computes in float32."""
    builder = ModelBuilder()
    graph = builder.graph()
    feeds: dict[str, np.ndarray] = {}
    for n, (custom, given, results) in enumerate(cases):
        named = {f"x{n}_{i}": array for i, array in enumerate(given)}
        inputs = [graph.add(T(data=array), name) for name, array in named.items()]
        made = graph.op(kind, inputs, [T(shape=shape) for shape in results], custom=custom)
        for i, index in enumerate(made):
            graph.tensors[index].name = f"y{n}_{i}".encode()
        graph.outputs = [*graph.outputs, *made]
        feeds |= named
    model = folder / "m.tflite"
    model.write_bytes(builder.write(versions={kind: version}))
    bundle, saved = folder / "m.adrenoc", folder / "out.npz"
    np.savez(folder / "in.npz", **feeds)
    for words in (
        ["compile", str(model), "--device", "host", "--preset", "fp32", "-o", str(bundle)],
        ["run", str(bundle), "--input", str(folder / "in.npz"), "--save", str(saved)],
    ):
        succeed(*words)
    with np.load(saved) as held:
        return [[held[f"y{n}_{i}"] for i in range(len(case[2]))] for n, case in enumerate(cases)]


def run_ours(
    folder: Path,
    kind: str,
    custom: bytes,
    given: Arrays,
    results: Sequence[tuple[int, ...]],
    *,
    version: int = 1,
) -> list[np.ndarray]:
    """What the bundle of one operator computes in float32."""
    return run_all(folder, kind, [(custom, given, results)], version=version)[0]


def transpose_conv(
    x: np.ndarray, w: np.ndarray, b: np.ndarray, same: bool, stride: int
) -> np.ndarray:
    k, extent = w.shape[1], x.shape[1]
    cut = max(0, k - (extent - 1) % stride - 1) if same else 0
    size = stride * (extent - 1) + k - cut
    whole = np.zeros((1, size + 2 * k, size + 2 * k, w.shape[0]))
    for y in range(extent):
        for column in range(extent):
            top, left = y * stride - cut // 2 + k, column * stride - cut // 2 + k
            whole[0, top : top + k, left : left + k] += np.einsum("i,ohwi->hwo", x[0, y, column], w)
    return whole[:, k : k + size, k : k + size] + b


def test_transpose_conv_bias(tmp_path):
    cases: list[Case] = []
    wanted = []
    for kernel, stride in ((2, 2), (3, 2), (4, 2), (3, 1), (2, 3)):
        for same in (False, True):
            x, w, b = draw(1, 5, 5, 3), draw(4, kernel, kernel, 3), draw(4)
            wanted.append(transpose_conv(x, w, b, same, stride))
            custom = record(SAME if same else VALID, stride, stride)
            cases.append((custom, [x, w, b], [wanted[-1].shape]))
    made = run_all(tmp_path, "Convolution2DTransposeBias", cases)
    off = [n for n, want in enumerate(wanted) if not np.allclose(made[n][0], want, atol=1e-4)]
    assert not off


def test_accuracy_of_what_plain_kernels_lack(tmp_path):
    """XNNPACK has the operator, and tells no tensor between: ours of float32 stand for those."""
    builder = ModelBuilder()
    graph = builder.graph()
    held = (T(data=draw(4, 2, 2, 3), is_constant=True), T(data=draw(4), is_constant=True))
    operands = [graph.add(T(data=draw(1, 5, 5, 3)), "x"), *map(graph.add, held)]
    custom, made = record(VALID, 2, 2), [T(shape=(1, 10, 10, 4))]
    graph.outputs = graph.op("Convolution2DTransposeBias", operands, made, custom=custom)
    model = tmp_path / "m.tflite"
    model.write_bytes(builder.write())
    result = succeed("check-accuracy", model, "--preset", "mixed")
    assert "compared with float32 kernels" in result.output


def pool(x: np.ndarray, k: int, stride: int, same: bool) -> tuple[np.ndarray, np.ndarray]:
    extent = x.shape[1]
    out = -(-extent // stride) if same else (extent - k) // stride + 1
    pad = max(0, (out - 1) * stride + k - extent) // 2 if same else 0
    best = np.zeros((1, out, out, x.shape[3]), np.float32)
    place = np.zeros_like(best)
    for y in range(out):
        for column in range(out):
            for c in range(x.shape[3]):
                most, at = -math.inf, 0
                for i in range(k):
                    for j in range(k):
                        row, line = y * stride - pad + i, column * stride - pad + j
                        if 0 <= row < extent and 0 <= line < extent and x[0, row, line, c] > most:
                            most, at = x[0, row, line, c], i * k + j
                best[0, y, column, c], place[0, y, column, c] = most, at + 0.1
    return best, place


def test_max_pool_with_places(tmp_path):
    cases: list[Case] = []
    wanted = []
    for kernel, stride, extent in ((2, 2, 6), (3, 2, 7), (2, 1, 5), (3, 3, 7)):
        for same in (False, True):
            x = np.round(draw(1, extent, extent, 4) * 2) - 3  # with equal ones, below zero
            wanted.append(pool(x, kernel, stride, same))
            custom = record(SAME if same else VALID, stride, stride, kernel, kernel, 0)
            cases.append((custom, [x], [wanted[-1][0].shape] * 2))
    for made, (best, place) in zip(
        run_all(tmp_path, "MaxPoolingWithArgmax2D", cases), wanted, strict=True
    ):
        assert np.array_equal(made[0], best)
        assert np.allclose(made[1], place)


def test_max_unpooling(tmp_path):
    x, place = draw(1, 3, 3, 4), DRAW.integers(0, 4, (1, 3, 3, 4)) + np.float32(0.1)
    wanted = np.zeros((1, 6, 6, 4), np.float32)
    for y, column, c in np.ndindex(3, 3, 4):
        at = int(place[0, y, column, c])
        wanted[0, 2 * y + at // 2, 2 * column + at % 2, c] = x[0, y, column, c]
    custom = record(SAME, 2, 2, 2, 2, 0)
    given = [x, place.astype(np.float32)]
    [made] = run_ours(tmp_path, "MaxUnpooling2D", custom, given, [wanted.shape])
    assert np.array_equal(made, wanted)


def matrix(*rows: Sequence[float]) -> np.ndarray:
    return np.array([*rows, [0, 0, 1, 0], [0, 0, 0, 1]], np.float32).reshape(1, 4, 4)


@pytest.mark.parametrize("version", [1, 2])
def test_transform_tensor(tmp_path, version):
    x, turn = draw(1, 7, 9, 3), matrix([1.13, 0.31, 0, -0.72], [-0.21, 0.83, 0, 1.37])
    wanted = np.zeros((1, 6, 8, 3))
    m, middle = turn[0].astype(np.float64), 0.5 if version == 2 else 0.0
    for y, column in np.ndindex(6, 8):
        at = m @ [column + middle, y + middle, 0, 1] - middle
        if not (0 <= at[0] <= 8 and 0 <= at[1] <= 6):
            continue
        left, top = math.floor(at[0]), math.floor(at[1])
        for i, j in np.ndindex(2, 2):
            share = abs(1 - i - (at[1] - top)) * abs(1 - j - (at[0] - left))
            if top + i < 7 and left + j < 9:
                wanted[0, y, column] += share * x[0, top + i, left + j]
    kind, said = ("TransformTensor", {"mode": "bilinear", "output_size": [6, 8]})
    if version == 2:
        kind, said = "TransformTensorBilinear", {"output_size": [6, 8]}
    [made] = run_ours(tmp_path, kind, options(**said), [x, turn], [wanted.shape], version=version)
    assert 0.2 < (wanted != 0).mean() < 0.95
    assert np.allclose(made, wanted, atol=1e-4)


@pytest.mark.parametrize(("version", "size"), [(1, 2), (1, 3), (2, 2), (2, 3)])
def test_transform_landmarks(tmp_path, version, size):
    points, turn = draw(5, size), matrix([1.1, 0.3, 0, -0.7], [-0.2, 0.8, 0, 1.4])
    scale = 3.0 if version == 1 else 1.0
    wanted = points.copy()
    wanted[:, :2] = points[:, :2] @ turn[0, :2, :2].T + scale * turn[0, :2, 3]
    shape = (1, 1, 1, 5 * size) if version == 1 else (1, 5, size)
    said = {"dimensions": size, "scale": scale} if version == 1 else {}
    given = [points.reshape(shape), turn]
    [made] = run_ours(
        tmp_path, "TransformLandmarks", options(**said), given, [shape], version=version
    )
    assert np.allclose(made, wanted.reshape(shape), atol=1e-5)


def turn_of(angle: float) -> np.ndarray:
    c, s = math.cos(angle), math.sin(angle)
    return np.array([[c, -s], [s, c]])


@pytest.mark.parametrize("left", [0, 1])
def test_landmarks_to_matrix_first(tmp_path, left):
    points = draw(6, 3) * 40 + 100
    (lx, ly), (rx, ry) = points[left, :2], points[1 - left, :2]
    alpha = -math.atan((ry - ly) / (rx - lx))
    turned = points[[2, 3, 4, 5], :2].astype(np.float64) @ turn_of(alpha).T
    size = (turned.max(0) - turned.min(0)) * 1.5
    middle = turn_of(-alpha) @ ((turned.max(0) + turned.min(0)) / 2)
    absolute = np.array([[127.5, 0, 127.5], [0, 95.5, 95.5], [0, 0, 1]])
    moved = np.eye(3)
    moved[:2, :2], moved[:2, 2] = turn_of(-alpha), middle / 256 * 2 - 1
    scaled = np.diag([*(size / 256), 1])
    relative = np.array([[2 / 63, 0, -1], [0, 2 / 31, -1], [0, 0, 1]])
    found = absolute @ moved @ scaled @ relative
    wanted = matrix([*found[0, :2], 0, found[0, 2]], [*found[1, :2], 0, found[1, 2]])
    said = options(
        dimensions=3,
        landmarks_range=256,
        left_rotation_idx=left,
        right_rotation_idx=1 - left,
        bbox_size_multiplier=1.5,
        input_hw=[192, 256],
        output_hw=[32, 64],
        subset=[2, 3, 4, 5],
    )
    given = [points.reshape(1, 1, 1, 18)]
    [made] = run_ours(tmp_path, "Landmarks2TransformMatrix", said, given, [(1, 4, 4)])
    assert np.allclose(made, wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("pair", [(0, 1), (1, 0), (2, 2)])
def test_landmarks_to_matrix_second(tmp_path, pair):
    points, target = draw(6, 3) * 40 + 100, 0.4
    (lx, ly), (rx, ry) = (points[i, :2] for i in pair)
    angle = target - math.atan2(ry - ly, rx - lx)
    turned = points[[2, 3, 4, 5], :2].astype(np.float64) @ turn_of(angle).T
    size = turned.max(0) - turned.min(0)
    whole = np.eye(4)
    whole[:2, :2] = turn_of(-angle) @ np.diag([1.2 * size[0] / 64, 0.9 * size[1] / 32])
    middle = turn_of(-angle) @ ((turned.max(0) + turned.min(0)) / 2)
    whole[:2, 3] = middle + whole[:2, :2] @ [-32, -16]
    said = options(
        subset_idxs=[2, 3, 4, 5],
        left_rotation_idx=pair[0],
        right_rotation_idx=pair[1],
        target_rotation_radians=target,
        output_height=32,
        output_width=64,
        scale_x=1.2,
        scale_y=0.9,
    )
    given = [points.reshape(1, 6, 3)]
    [made] = run_ours(tmp_path, "Landmarks2TransformMatrix", said, given, [(1, 4, 4)], version=2)
    assert np.allclose(made[0], whole, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("kind", "custom", "said"),
    [
        ("MaxUnpooling2D", record(SAME, 1, 1, 2, 2, 0), "overlap or leave gaps"),
        ("MaxUnpooling2D", record(SAME, 0, 2, 2, 2, 0), "expected 1 or more"),
        ("MaxUnpooling2D", record(7, 2, 2, 2, 2, 0), "its padding is 7"),
        ("MaxUnpooling2D", b"\1\0", "its options are 2 bytes, expected 24"),
    ],
)
def test_what_is_refused(tmp_path, kind, custom, said):
    builder = ModelBuilder()
    graph = builder.graph()
    inputs = [graph.add(T(data=draw(1, 3, 3, 4)), f"x{i}") for i in range(2)]
    graph.outputs = graph.op(kind, inputs, [T(shape=(1, 6, 6, 4))], custom=custom)
    path = tmp_path / "m.tflite"
    path.write_bytes(builder.write())
    assert said in refuse(UnsupportedOperatorError, "compile", path)
