"""What may lie in half: what a network learned, between its products; formulas stay in float32."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, helper

from adrenoc.passes.precision import keep_float32
from tests.ir.planning import plan
from tests.models import graph, parse_nodes

_RANDOM = np.random.default_rng(1)
_INT32, _BOOL = onnx.TensorProto.INT32, onnx.TensorProto.BOOL


@pytest.fixture(autouse=True)
def _as_if_large(monkeypatch) -> None:
    """Judge these small networks as if each layer took longer than a launch."""
    monkeypatch.setattr(keep_float32, "_SOON", 0)


def _weights(*shape: int, size: float = 1.0) -> np.ndarray:
    return _RANDOM.uniform(-size, size, shape).astype(np.float32)


_CONSTANTS: dict[str, np.ndarray] = {
    "w": _weights(8, 8),
    "v": _weights(8, 8),
    "f": np.float32(10) ** -np.arange(8, dtype=np.float32),
    "tiny": np.array(1e-8, np.float32),
    "half": np.array(0.5, np.float32),
    "axis": np.array([1]),
}
_X = {"x": (4, 8)}


class _Kept:
    """What stays in float32 of a network: names, why what it computes does, and constants."""

    def __init__(
        self,
        nodes: str | Sequence[NodeProto],
        *,
        inputs: Mapping[str, Sequence[int]] = _X,
        outputs: Sequence[str] = ("y",),
        dtypes: Mapping[str, int] | None = None,
        preset: str = "mixed",
        opset: int = 17,
        **constants: np.ndarray,
    ) -> None:
        nodes = parse_nodes(nodes) if isinstance(nodes, str) else nodes
        used = {name for node in nodes for name in node.input}
        fed = {name: list(shape) for name, shape in inputs.items() if name in used}
        held = {n: value for n, value in {**_CONSTANTS, **constants}.items() if n in used}
        model = graph(nodes, fed, outputs, held, opset=opset, dtypes=dtypes)
        self.state = plan(model, until="keep_float32", keep_float32=True, preset=preset)
        self.graph = self.state.graph
        self.names = self.graph.float32_names
        said = {d.subject: d.reason for d in self.state.log if d.taken == "float32"}
        self.why = {n: said.get(n, "") for n in self.names if n in self.graph.producers}
        values = (self.graph.tensors[name].value for name in self.names)
        self.values = [value for value in values if value is not None]

    def holds(self, wanted: np.ndarray) -> bool:
        """Whether a constant of these numbers is among what is kept."""
        return any(np.array_equal(np.ravel(value), np.ravel(wanted)) for value in self.values)


_LEARNED = "p = MatMul(x, w) h = Relu(p) "
"""A first layer."""
_TWICE = f"{_LEARNED} q = MatMul(h, v) "
_HEAD = " y = MatMul(z, v)"
"""A last one."""


@pytest.mark.parametrize(
    "activation",
    ("Sigmoid", "Tanh", "Elu", "Softplus", "Mish", "HardSwish", "Gelu", "LeakyRelu", "Relu"),
)
def test_activations_between_products_are_licensed(activation):
    assert not _Kept(f"{_TWICE} z = {activation}(q) {_HEAD}", opset=20).why


@pytest.mark.parametrize("op", ("Sin", "Exp", "Log", "Floor", "Reciprocal", "Sqrt", "Round"))
def test_functions_that_make_more_of_a_rounding_read_float32(op):
    """The root is flat enough for itself; what reads it further is asked again."""
    assert ("z" in _Kept(f"{_TWICE} z = {op}(q) {_HEAD}").why) == (op != "Sqrt")


def _case(
    nodes: str, kept: str = "", free: str = "", because: str = "", **changes: Any
) -> tuple[str, str, str, str, dict[str, Any]]:
    """A network, what of it stays in float32, what does not, and why it does."""
    return nodes, kept, free, because, changes


_POSITIONS = {"inputs": {**_X, "i": (4, 8)}, "dtypes": {"i": _INT32}}
_SPECTRUM = (
    "c = Conv <strides = [4]>(x, k) squares = Mul(c, c) sizes = Sqrt(squares) d = Conv(sizes, l) "
)
_SOUND = {"inputs": {"x": (1, 1, 512)}, "k": _weights(8, 1, 16), "l": _weights(8, 8, 3)}
_CASES = {
    "angles of positions behind a concatenation": _case(
        "t = Cast <to = 1>(i) a = Mul(t, f) b = Concat <axis = -1>(a, a) c = Cos(b) "
        "y = MatMul(c, u)",
        kept="c",
        u=_weights(16, 8),
        **_POSITIONS,
    ),
    "what is turned by sines of positions": _case(
        f"{_LEARNED} t = Cast <to = 1>(i) a = Mul(t, f) c = Cos(a) q = MatMul(h, v) "
        f"z = Mul(q, c) e = MatMul(c, u) {_HEAD}",
        free="q z",
        outputs=("y", "e"),
        u=_weights(8, 8),
        **_POSITIONS,
    ),
    "integers of any size and their differences": _case(
        f"t = Cast <to = 1>(i) z = Sub(t, f) {_HEAD}", kept="z", **_POSITIONS
    ),
    "integers of two bytes": _case(
        f"t = Cast <to = 1>(i) z = Sub(t, f) {_HEAD}",
        kept="z",
        **{**_POSITIONS, "dtypes": {"i": onnx.TensorProto.UINT16}},
    ),
    "bytes, which are exact": _case(
        f"t = Cast <to = 1>(i) z = Relu(t) {_HEAD}",
        free="z",
        **{**_POSITIONS, "dtypes": {"i": onnx.TensorProto.UINT8}},
    ),
    "data times a gate": _case(f"{_TWICE} g = Sigmoid(q) z = Mul(g, h) {_HEAD}", free="z"),
    "what comes behind the last product": _case(
        f"{_TWICE} s = Sigmoid(q) y = Transpose <perm = [1, 0]>(s)",
        kept="s",
        free="h",
        because="no learned product",
    ),
    # What is read is stored apart of what is given: small differences of sizes are lost of it.
    "an output that is read inside": _case(
        f"{_LEARNED} y = Softplus(h) z = ReduceSum(y, axis)", kept="y", outputs=("y", "z")
    ),
    "an output that is not": _case(
        f"{_LEARNED} y = Softplus(h) z = ReduceSum(x, axis)", free="y", outputs=("y", "z")
    ),
    # In half, neighbours whose scores differ little would all be the largest.
    "numbers that are compared for equality": _case(
        "c = Conv <pads = [1, 1, 1, 1]>(x, k) s = Sigmoid(c) "
        "p = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(s) e = Equal(s, p) "
        "d = Cast <to = 1>(e) z = Mul(d, s) y = Conv <pads = [1, 1, 1, 1]>(z, k)",
        kept="s",
        inputs={"x": (1, 8, 8, 8)},
        k=_weights(8, 8, 3, 3),
    ),
    **{
        f"weights of {size:g}": _case(
            f"{_LEARNED} q = MatMul(h, k) z = Relu(q) {_HEAD}",
            **{"free" if size == 1 else "kept": "z"},
            k=_weights(8, 8, size=size),
        )
        for size in (1e-7, 1e6, 1.0)
    },
    # At 32768, sums of samples are beyond half; the layers behind the first are as others.
    **{
        f"a sound of {samples} samples": _case(
            "c = Conv <strides = [4]>(x, k) h = Relu(c) d = Conv(h, l) e = Relu(d) y = Conv(e, l)",
            kept="h" if samples > 64 else "",
            free="e" if samples > 64 else "e h",
            **{**_SOUND, "inputs": {"x": (1, 1, samples)}},
        )
        for samples in (512, 112, 64)
    },
    # Magnitudes of sound of 16 bits are beyond half, and so are layers of them, until one ends.
    "layers of a spectrum": _case(
        f"{_SPECTRUM} e = Relu(d) o = Conv(e, l) g = Relu(o) y = Conv(g, l)", "sizes g", **_SOUND
    ),
    "layers of a spectrum that end": _case(
        f"{_SPECTRUM} e = Sigmoid(d) o = Conv(e, l) g = Relu(o) y = Conv(g, l)",
        *("sizes", "g"),
        **_SOUND,
    ),
    "queries, keys and values in one tensor": _case(
        "qkv = MatMul(x, wide) q, k, values = Split <axis = 1>(qkv) "
        "kt = Transpose <perm = [1, 0]>(k) scores = MatMul(q, kt) shares = Softmax(scores) "
        f"z = MatMul(shares, values) {_HEAD}",
        free="z",
        wide=_weights(8, 24),
    ),
    "what divides by what is left of a long sum": _case(
        "h = MatMul(x, w) r = Relu(h) p = MatMul(r, wide) s = ReduceSum(p, axis) a = Abs(s) "
        "m = Max(a, tiny) y = Div(p, m)",
        kept="p m",
        because="y makes more of a rounding",
        wide=_weights(8, 64),
    ),
}


@pytest.mark.parametrize("name", _CASES)
def test_what_stays_in_float32(name):
    nodes, kept, free, because, changes = _CASES[name]
    why = _Kept(nodes, **changes).why
    assert all(because in why[tensor] for tensor in kept.split())
    assert not set(free.split()) & set(why)


def test_a_root_before_a_logarithm():
    kept = _Kept(
        f"{_TWICE} r = Relu(q) s = Sqrt(r) st = Transpose <perm = [0, 2, 1]>(s) "
        "m = MaxPool <kernel_shape = [2], strides = [1]>(st) z = Log(m) y = MatMul(z, u)",
        inputs={"x": (1, 4, 8)},
        u=_weights(3, 8),
    )
    assert any("makes more of a rounding" in why for why in kept.why.values())


def test_a_spectrum_is_a_formula_with_its_transform_and_weights():
    kept = _Kept(
        "re = MatMul(x, w) im = MatMul(x, v) r2 = Mul(re, re) i2 = Mul(im, im) power = Add(r2, i2) "
        "m = MatMul(power, mel) floored = Max(m, tiny) z = Log(floored) h1 = MatMul(z, u) "
        "h2 = Relu(h1) y = MatMul(h2, u)",
        mel=np.abs(_weights(8, 8)),
        u=_weights(8, 8),
    )
    assert len(kept.values) >= 2  # of the transforms, joined, and of the mel bands


def test_data_times_data_of_any_size_is_a_formula():
    assert "grow" in str(_Kept(f"{_TWICE} z = Mul(q, h) {_HEAD}").why)


def test_weights_of_the_last_product_stay_halves():
    kept = _Kept(
        "m = MatMul(x, w) y = Reshape(m, line)",
        inputs={"x": (1, 64)},
        w=_weights(64, 32),
        line=np.array([-1]),
    )
    assert not kept.values


def test_states_from_run_to_step_are_exact():
    """A recurrent layer hands its state on, and what it is off by grows."""
    kept = _Kept(
        "o = LSTM <hidden_size = 8>(x, W, R) q = Squeeze(o, axis) y = MatMul(q, u)",
        inputs={"x": (6, 1, 8)},
        W=_weights(1, 32, 8),
        R=_weights(1, 32, 8),
        u=_weights(8, 8),
    )
    recurrent = next(n for n in kept.graph.nodes if "recurrent" in n.operators[0])
    assert set(recurrent.inputs[:2]) | {recurrent.output} <= kept.names


def test_what_weights_bring_back_is_read_in_float32():
    """One channel is tiny, and the next weights make up for it."""
    first, second = _weights(8, 8), _weights(8, 8)
    first[:, 2] *= 1e-9
    second[2] *= 1e8
    nodes = f"{_LEARNED} q = MatMul(h, k) z = Relu(q) e = MatMul(z, l) y = MatMul(e, v)"
    assert "brings its digits back" in _Kept(nodes, k=first, l=second).why["z"]


def test_kernel_machines_are_formulas_of_the_inputs():
    """Exponentials of distances under weights that cancel, with these weights."""
    centred = _weights(8, 8)
    centred -= centred.mean(axis=0)
    kept = _Kept("s = Mul(x, x) n = Neg(s) k = Exp(n) y = MatMul(k, c)", c=centred)
    product = kept.graph.nodes[-1]
    assert {*product.inputs, product.output} <= kept.names


@pytest.mark.parametrize(
    ("size", "kept", "free"),
    [(1.0, set(), {"p2", "p5"}), (1000.0, {"p5"}, {"p2"}), (80.0, {"p4", "p5"}, {"p2", "p3"})],
)
def test_what_weights_make_too_large(size, kept, free):
    """Depthwise convolutions of 5x5 taps and 1x1 convolutions in turn, without norms; the weights
    of three layers are `size` times as large.

    The estimate is of typical data; the largest of an image are a hundred times that.
    """
    random, channels = np.random.default_rng(0), 16
    nodes, constants, last = [], {}, "x"
    for block in range(24):
        for kind, shape in (("d", (channels, 1, 5, 5)), ("p", (channels, channels, 1, 1))):
            name = f"{kind}{block}"
            factor = size if name in ("p3", "p4", "p5") else 1.0
            spread = factor * np.sqrt(2 / np.prod(shape[1:]))
            constants[f"{name}_w"] = random.normal(0, spread, shape).astype(np.float32)
            attrs: dict[str, Any] = {"pads": [2] * 4, "group": channels} if kind == "d" else {}
            nodes += [
                helper.make_node("Conv", [last, f"{name}_w"], [f"{name}_c"], **attrs),
                helper.make_node("Relu", [f"{name}_c"], [name]),
            ]
            last = name
    constants["w"] = random.normal(0, 0.25, (channels, channels, 1, 1)).astype(np.float32)
    nodes.append(helper.make_node("Conv", [last, "w"], ["y"]))
    exact = _Kept(nodes, inputs={"x": (1, channels, 12, 12)}, **constants).names
    assert kept <= exact
    assert not free & exact


def test_masks_keep_their_infinities():
    """A mask of the lowest float is stored as it is; the scores that it is added to, too."""
    kept = _Kept(
        "c = Conv <pads = [1, 1, 1, 1]>(x, k) s = Add(c, m) p = Softmax <axis = -1>(s) "
        "y = Conv <pads = [1, 1, 1, 1]>(p, k)",
        inputs={"x": (1, 6, 8, 8)},
        k=_weights(6, 6, 3, 3),
        m=np.where(_weights(1, 1, 8, 8) > 0, np.float32(-1e9), np.float32(0)),
    )
    tensors = kept.graph.tensors.items()
    masks = {n for n, t in tensors if t.value is not None and t.value.min() < -1e8}
    assert masks and masks <= kept.names
    softmax = next(n for n in kept.graph.nodes if "softmax" in n.operators[0])
    assert softmax.inputs[0] in kept.names
    assert softmax.output not in kept.names


def test_a_logarithm_fused_behind_a_transform_asks_for_its_weights():
    """Sums of large terms that are near zero: a share of the terms is all of them there."""
    kept = _Kept(
        "re = MatMul(x, w) power = Mul(re, re) floored = Add(power, tiny) y = Log(floored)"
    )
    product = next(n for n in kept.graph.nodes if "matmul" in n.operators)
    assert product.inputs[1] in kept.names


def test_a_norm_of_the_inputs_is_a_formula():
    """Angles are computed of it, a hundred times as large."""
    kept = _Kept(
        "n = LayerNormalization(x, one8) a = Mul(n, hundred) b = Where(i, a, half) y = Sin(b)",
        **{**_POSITIONS, "dtypes": {"i": _BOOL}},
        one8=np.ones(8, np.float32),
        hundred=np.float32(100),
    )
    assert kept.graph.nodes[-1].output in kept.names


def test_large_angles_ask_all_that_they_are_computed_of():
    """What a layer before is off by turns an angle of some hundreds as far as its own rounding."""

    def layers(factor: object, angle: str = "z = Sin(a)") -> dict[str, str]:
        return _Kept(
            f"{_TWICE} a = Mul(q, factor) {angle} {_HEAD}",
            **{**_POSITIONS, "dtypes": {"i": _BOOL}},
            factor=np.array(factor, np.float32),
        ).why

    assert not any("what halves lose before it" in why for why in layers(1.0).values())
    # Of frequencies that fall, a few make large angles; a mask may choose among them.
    frequencies = 300.0 * 10.0 ** -np.linspace(0, 5, 8)
    chosen = layers(300.0, "b = Where(i, a, half) z = Sin(b)")
    for large in (layers(300.0), layers(frequencies), chosen):
        assert any("what halves lose before it" in why for why in large.values())
        assert {"h", "p"} & set(large)


@pytest.mark.parametrize(("rows", "columns"), [("a", "b"), ("b", "a"), ("c", "a"), ("b", "d")])
def test_of_several_reasons_the_one_of_the_first_name_is_told(rows, columns):
    """Equal models give equal bundles, decisions included: the order of a set is not seen."""
    kept = _Kept(
        f"{rows} = ReduceSum <keepdims = 1>(x, first) {columns} = ReduceSum <keepdims = 1>(x, axis)"
        f"u = Mul({rows}, {columns}) y = MatMul(u, m)",
        inputs={"x": (32, 64)},
        m=_weights(64, 8),
        first=np.array([0]),
    )
    why = {rows: "it adds up 32 numbers", columns: "it adds up 64 numbers"}
    assert kept.why["u"] == why[min(why)]


def test_constants_whose_rounding_a_difference_grows_stay_in_float32():
    """Little is left of x * f - x where f is about one: half cannot tell such factors apart."""
    factors = 1 + np.float32(1e-3) * _weights(8)
    nodes, inputs = "q = MatMul(x, w) s = Mul(q, k) y = Sub(s, q)", {"x": (4, 64)}
    for value, kept in ((factors, True), (factors + 1, False)):
        assert _Kept(nodes, inputs=inputs, w=_weights(64, 8), k=value).holds(value) == kept


def test_a_logarithm_behind_products_of_data_asks_all_of_both():
    """Near zero it makes much of what little shares and values lose in halves."""
    nodes = (
        f"{_LEARNED} ht = Transpose <perm = [1, 0]>(h) scores = MatMul(h, ht) "
        "shares = Softmax(scores) values = MatMul(h, v) "
    )
    mixed = "mixed = MatMul(shares, values) size = Abs(mixed) floored = Max(size, tiny) "
    kept = _Kept(f"{nodes} {mixed} z = Log(floored) {_HEAD}").why
    assert {"shares", "values"} & kept.keys(), kept
    without = _Kept(f"{nodes} z = MatMul(shares, values) {_HEAD}").why
    assert not {"shares", "values"} & without.keys(), without


_DEEP = _weights(8, 8)
_STEPPED = (0.3 * np.eye(8)).astype(np.float32)
_TABLE = np.random.default_rng(3).normal(scale=0.02, size=(50, 64)).astype(np.float32)


@pytest.mark.parametrize(
    ("nodes", "value", "changes"),
    [
        # Near zero a sum is off by what its terms were rounded by, of which a logarithm makes much.
        (
            f"{_LEARNED} q = MatMul(h, k) s = Mul(q, q) t = Add(s, tiny) z = Log(t) {_HEAD}",
            *(_DEEP, {}),
        ),
        # Of x - floor(x * 40) a step is little where x is 64 and much where it is one.
        (
            "q = MatMul(x, k) s = Mul(q, often) r = Floor(s) y = Sub(q, r)",
            *(_STEPPED, {"often": np.float32(40)}),
        ),
        # Of a floor of a table's rows few elements lie a rounding before a step, but some do.
        (
            "t = Gather(k, i) s = Mul(t, often) y = Floor(s)",
            _TABLE,
            {"often": np.float32(133), "inputs": {"i": (4,)}, "dtypes": {"i": _INT32}},
        ),
    ],
    ids=["logarithm", "steps of small numbers", "steps of a table"],
)
def test_exact_weights_are_asked_for(nodes, value, changes):
    assert _Kept(nodes, k=value, **changes).holds(value)


def test_the_first_layer_has_exact_weights_before_a_norm():
    """A picture of 240 but for 4 to either side is off by its mean at the borders."""
    kept = _Kept(
        "c = Conv <pads = [1, 1, 1, 1]>(x, k) n = InstanceNormalization(c, ones, ones) "
        "d = Conv <pads = [1, 1, 1, 1]>(n, wide) y = Relu(d)",
        inputs={"x": (1, 16, 20, 20)},
        k=_weights(32, 16, 3, 3),
        ones=np.ones(32, np.float32),
        wide=_weights(32, 32, 3, 3),
    )
    sizes = {value.size for value in kept.values}
    assert 32 * 16 * 9 in sizes and 32 * 32 * 9 not in sizes


def test_what_is_computed_in_less_time_than_a_launch_is_exact_to_the_inputs(monkeypatch):
    """What a product reads is off by as much as its weights: the layer before is exact, too."""
    for free in (0, 2**21):
        monkeypatch.setattr(keep_float32, "_SOON", free)
        assert ("h" in _Kept(f"{_TWICE} s = Abs(q) z = Log(s) {_HEAD}").why) == bool(free)


_GATED = f"{_TWICE} a = Sigmoid(q) g = Mul(q, a) u = MatMul(h, w) z = Mul(u, g) "
"""A gate that may be as large as what it lets through."""


@pytest.mark.parametrize("few_bits", [False, True])
def test_a_gate_that_products_alone_read_lies_in_half_at_a_part_of_its_size(few_bits):
    nodes, changes = f"{_GATED} {_HEAD}", {}
    if few_bits:
        last = "y = com.microsoft.MatMulNBits <K = 32, N = 8, bits = 4, block_size = 32>(z, b, s)"
        nodes = f"{_GATED} {last}"
        changes = {name: _weights(32, 32) for name in "wv"} | {"s": _weights(8, 1)}
        changes |= {"b": _RANDOM.integers(0, 256, (8, 1, 16)).astype(np.uint8)}
        changes["inputs"] = {"x": (4, 32)}
    kept = _Kept(nodes, preset="fp16", **changes)
    assert "z" not in kept.names
    assert [d.taken for d in kept.state.log if d.subject == "z"] == ["stored divided by 16"]
    scaled = kept.graph.tensors[kept.graph.producers["y"].inputs[1 + few_bits]].value
    given = changes["s"] if few_bits else _CONSTANTS["v"]
    assert scaled is not None
    np.testing.assert_array_equal(np.sort(scaled, axis=None), np.sort(16 * given, axis=None))


def test_a_gate_that_is_an_output_too_stays_in_float32():
    assert "z" in _Kept(f"{_GATED} {_HEAD}", outputs=["y", "z"], preset="fp16").names


@pytest.mark.parametrize("gain", [1.0, 1e5])
def test_a_norm_that_no_kernel_covers_is_licensed_as_far_as_its_gains_let_it(gain):
    """Its numbers are less their mean and over their deviation, however small that may be."""
    kept = _Kept(
        "c = Conv(x, w4) h = Relu(c) d = Conv(h, w4) g = Reshape(d, groups) "
        "m = InstanceNormalization(g, s, b) z = Reshape(m, whole) y = Conv(z, w4)",
        inputs={"x": (1, 4, 192, 192)},
        preset="fp16",
        w4=_weights(4, 4, 1, 1),
        groups=np.array([1, 2, -1]),
        s=np.full(2, gain, np.float32),
        b=_weights(2),
        whole=np.array([1, 4, 192, 192]),
    )
    read = kept.graph.producers["y"].inputs[0]
    assert "divide" in kept.graph.producers[read].operators
    assert (read in kept.names) == (gain > 1.0)
