"""`scripts/compare_layers`: which layers a kernel computes, and what MNN launches for them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from branches import Net
from planning import plan

from adrenoc.compile.pipeline import program_of
from tests.joins import set_joins

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from fitting.mnn_kernels import Convolution, mnn_ms
from fitting.mnn_maps import Beside, find_beside
from fitting.network_layers import convolutions_of, layers_of

COPY_GB_PER_S = 1e-3
"""A memory so slow that a copy of the model's input shows."""
RATES = {"fp16": 256, "sp": 3, "usptp": 2, "clk": 0.5}
"""What arithmetic does in a clock, and GHz."""


class _Estimator:
    """Says that a launch takes as many milliseconds as it has threads, and keeps its trips."""

    def __init__(self, dram: float = COPY_GB_PER_S) -> None:
        self.GPUS = {"a660": {"dram": dram, **RATES}}
        self.seen: list[tuple[str, str]] = []
        self.texts: dict[str, str] = {}

    def stats(self, path: str, kernel: str, _options: str, _gpu: str, _local: None) -> Any:
        self.texts[kernel] = Path(path).read_text() if Path(path).exists() else ""
        return {"disasm": kernel}, None

    def estimate(self, facts: Any, _code: str, _rates: Any, spec: dict[str, Any]) -> Any:
        self.seen.append((facts["disasm"], spec["trips"]))
        return {"est_ms": float(spec["threads"])}


def _conv(channels: int, out: int, size: int, **more: Any) -> Convolution:
    facts = {"size": (size, size), "out_size": (size, size), **more}
    return Convolution(channels=channels, out_channels=out, **facts)


def _ms(conv: Convolution, estimator: _Estimator) -> float | None:
    return mnn_ms(conv, Path("kernels"), "a660", True, estimator)


def test_a_thread_of_mnn_makes_four_pixels_of_four_channels() -> None:
    estimator = _Estimator()
    assert _ms(_conv(64, 256, 56), estimator) == 64 * 56 * 14
    assert estimator.seen == [("conv_2d_1x1", "16")]
    assert _ms(_conv(96, 96, 56, kernel=(3, 3), groups=96), estimator) == 24 * 56 * 14
    assert estimator.seen[1:] == [("depthwise_conv2d_s1", "3,3")]


def _product(rows: int, channels: int, out: int) -> Convolution:
    return Convolution(
        channels=channels, out_channels=out, size=(rows, 1), out_size=(rows, 1), product=True
    )


@pytest.mark.parametrize(
    "out, ways",
    [(576, ["c8h1w4", "c8h1w2"]), (192, ["c4h1w4", "c4h1w2", "c4h1w1"])],
)
def test_a_product_s_tokens_are_rows_of_one_column_to_mnn(
    out: int, ways: list[str], tmp_path: Path
) -> None:
    (tmp_path / "conv_2d_buf.cl").write_text("of MNN")
    estimator = _Estimator()
    least = mnn_ms(_product(197, 192, out), tmp_path, "a660", True, estimator)
    # A thread makes one token, whatever the number of columns that it could make.
    channels = int(ways[0][1])
    assert least == -(-197 * (out // channels) // 128) * 128
    names = ["conv_2d_1x1", *(f"conv_2d_1x1_{way}" for way in ways)]
    assert [kernel for kernel, _ in estimator.seen] == names
    # Of halves in buffers, four are one read, and the rest of the text is MNN's.
    assert all(estimator.texts[name].endswith("of MNN") for name in names[1:])
    assert all("as_half4" in estimator.texts[name] for name in names[1:])


def test_of_a_product_by_packed_matrices_arithmetic_alone_counts(tmp_path: Path) -> None:
    (tmp_path / "conv_2d_buf.cl").write_text("of MNN")
    conv, fast = _product(1024, 512, 512), _Estimator(dram=1e6)
    assert conv.by_packed_product
    clocks = 1024 * 512 * 512 / (256 * 3 * 2)
    found = mnn_ms(conv, tmp_path, "a660", True, fast)
    assert found == pytest.approx(clocks / 0.5e9 * 1e3)
    assert not _product(64, 512, 512).by_packed_product


def test_its_winograd_is_three_launches_of_which_the_faster_product_counts() -> None:
    estimator = _Estimator()
    tiles = 28 * 28
    wanted = 16 * tiles + 16 * 16 * 28 * 4 + 16 * tiles
    assert _ms(_conv(64, 64, 56, kernel=(3, 3)), estimator) == wanted
    assert [kernel for kernel, _ in estimator.seen] == [
        "winogradTransformSource",
        "gemmWinograd",
        "gemmWinogradW2",
        "winogradTransformDest",
    ]


def test_what_reads_the_model_s_input_pays_for_mnn_s_copy() -> None:
    conv = _conv(3, 8, 32, kernel=(3, 3), strides=(2, 2), out_size=(16, 16))
    given = _conv(3, 8, 32, kernel=(3, 3), strides=(2, 2), out_size=(16, 16), given=True)
    apart, together = (_ms(one, _Estimator()) for one in (conv, given))
    assert apart is not None and together is not None
    assert together - apart == pytest.approx(32 * 32 * (3 * 4 + 8) / COPY_GB_PER_S / 1e6)


def test_convolutions_of_groups_have_no_image_kernel() -> None:
    assert _ms(_conv(32, 32, 16, kernel=(3, 3), groups=4), _Estimator()) is None


def test_functions_sums_and_floats_are_kernels_of_mnn_s_own() -> None:
    one = Beside(pixels=28 * 28, channels=6, functions=1, joined=2, handed_out=True)
    estimator = _Estimator()
    copy_ms = 28 * 28 * (6 * 4 + 2 * 8) / COPY_GB_PER_S / 1e6
    whole_waves = -(-2 * 28 * 28 // 128) * 128
    found = one.ms(Path("kernels"), "a660", True, estimator)
    assert found == pytest.approx(3 * whole_waves + copy_ms)
    assert [kernel for kernel, _ in estimator.seen] == ["unary", "binary"]


def test_what_is_computed_beside_a_layer_is_found() -> None:
    """A swish, a residual and a gate that is multiplied as it is read; a plain ReLU is not."""
    net = Net(8)
    wide = net.conv(net.op("Tanh", "x"), 32)
    wide = net.op("Mul", wide, net.op("Sigmoid", wide))
    gate = net.op("Sigmoid", net.conv(net.op("GlobalAveragePool", wide), 32))
    narrow = net.op("Add", net.conv(net.op("Mul", wide, gate), 32), wide)
    model = net.model(net.op("Softmax", net.op("Relu", net.conv(narrow, 16))))
    graph = plan(model, until="store_outputs", preset="fp16").graph
    assert graph is not None
    program = program_of(plan(model, until="lower", preset="fp16"))
    found = find_beside(graph, convolutions_of(graph), program).values()
    counts = [[(one.functions, one.joined) for one in of_layer] for of_layer in found]
    joined = [(0, 1), (0, 1)]
    assert counts == [[(1, 0)], [(1, 0)], joined, [(0, 0)]]


@pytest.mark.parametrize("factor, together", [(0.0, True), (1e6, False)])
def test_a_joined_kernel_is_one_layer(
    factor: float, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_joins(monkeypatch, pair=factor)
    net = Net(8)
    wide = net.op("Relu", net.conv(net.op("Tanh", "x"), 32))
    model = net.model(net.op("Softmax", net.conv(wide, 32, kernel=3, groups=32)))
    graph = plan(model, until="store_outputs", preset="fp16").graph
    assert graph is not None
    known = convolutions_of(graph)
    assert sorted(map(str, known.values())) == ["1x1 s1 8-32@8x8", "dw3x3 s1 32-32@8x8"]
    program = program_of(plan(model, until="lower", preset="fp16"))
    layers = [
        (sum(name in known for name in names), len(kernels))
        for names, kernels in layers_of(program)
    ]
    layers = [layer for layer in layers if layer[0]]
    assert layers == ([(2, 1)] if together else [(1, 1), (1, 1)])


def test_the_kernels_of_an_algorithm_are_one_layer() -> None:
    def node(name: str, op: str = "conv2d") -> SimpleNamespace:
        return SimpleNamespace(
            name=name,
            operators=(op,),
            also=(),
            inputs=("x",),
            output=name,
            is_map=False,
            writes=(name,),
        )

    nodes = [node("c.tiles"), node("c.planes"), node("c"), node("d")]
    graph = SimpleNamespace(
        producers={n.name: n for n in nodes}, input_names=frozenset(("given",)), nodes=nodes
    )
    steps = [SimpleNamespace(kernel=f"k_{n.name}", place="gpu", writes=(n.name,)) for n in nodes]
    found = list(layers_of(SimpleNamespace(graph=graph, steps=steps)))
    assert found == [(("c",), ("k_c.tiles", "k_c.planes", "k_c")), (("d",), ("k_d",))]
