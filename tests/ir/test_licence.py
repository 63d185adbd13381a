"""What may lie in half: what a network learned, between its products; formulas stay in float32."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, helper

from adrenoc.passes.precision import keep_float32
from tests.ir.planning import plan
from tests.models import graph, parse_nodes

_RANDOM = np.random.default_rng(1)


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
    "one": np.array(1, np.float32),
    "tiny": np.array(1e-8, np.float32),
    "large": np.array(1e6, np.float32),
    "half": np.array(0.5, np.float32),
    "axis": np.array([1]),
    "lowest": np.array(-3.4e38, np.float32),
}


def _kept(nodes: Sequence[NodeProto], outputs: Sequence[str] = ("y",), **changes) -> dict[str, str]:
    """Tensor -> why it stays in float32; x is [4, 8], i whole numbers of the same shape."""
    constants = {**_CONSTANTS, **changes.pop("constants", {})}
    inputs = changes.pop("inputs", {"x": [4, 8]})
    used = {name for node in nodes for name in node.input}
    model = graph(
        nodes,
        {name: shape for name, shape in inputs.items() if name in used},
        list(outputs),
        {name: value for name, value in constants.items() if name in used},
    )
    for value in model.graph.input:
        if value.name.startswith("i"):
            value.type.tensor_type.elem_type = changes.get("integers", onnx.TensorProto.INT32)
    state = plan(model, until="keep_float32", keep_float32=True)
    said = {d.subject: d.reason for d in state.log if d.taken == "float32"}
    makers = state.graph.producers
    return {n: said.get(n, "") for n in state.graph.float32_names if n in makers}


def _node(op: str, inputs: str, output: str, **attrs) -> NodeProto:
    return helper.make_node(op, inputs.split(), [output], **attrs)


_LEARNED = [_node("MatMul", "x w", "p"), _node("Relu", "p", "h")]
"""A first layer."""
_HEAD = _node("MatMul", "z v", "y")
"""A last one."""


@pytest.mark.parametrize(
    "activation",
    ("Sigmoid", "Tanh", "Elu", "Softplus", "Mish", "HardSwish", "Gelu", "LeakyRelu", "Relu"),
)
def test_activations_between_products_are_licensed(activation):
    nodes = [*_LEARNED, _node("MatMul", "h v", "q"), _node(activation, "q", "z"), _HEAD]
    model = graph(nodes, {"x": [4, 8]}, ["y"], {n: _CONSTANTS[n] for n in "wv"})
    model.opset_import[0].version = 20
    state = plan(model, until="keep_float32", keep_float32=True)
    assert not {n for n in state.graph.float32_names if n in state.graph.producers}


@pytest.mark.parametrize("op", ("Sin", "Exp", "Log", "Floor", "Reciprocal", "Sqrt", "Round"))
def test_functions_that_make_more_of_a_rounding_read_float32(op):
    """The root is flat enough for itself; what reads it further is asked again."""
    kept = _kept([*_LEARNED, _node("MatMul", "h v", "q"), _node(op, "q", "z"), _HEAD])
    assert ("z" in kept) == (op != "Sqrt")


def test_a_root_before_a_logarithm():
    nodes = [
        *_LEARNED,
        *parse_nodes(
            "q = MatMul(h, v) r = Relu(q) s = Sqrt(r) st = Transpose <perm = [0, 2, 1]>(s) "
            "m = MaxPool <kernel_shape = [2], strides = [1]>(st) z = Log(m) y = MatMul(z, u)"
        ),
    ]
    kept = _kept(nodes, inputs={"x": [1, 4, 8]}, constants={"u": _weights(3, 8)})
    assert any("makes more of a rounding" in why for why in kept.values())


def test_angles_of_positions_behind_a_concatenation():
    nodes = parse_nodes(
        "t = Cast <to = 1>(i) a = Mul(t, f) b = Concat <axis = -1>(a, a) c = Cos(b) "
        "y = MatMul(c, u)"
    )
    kept = _kept(nodes, inputs={"i": [4, 8]}, constants={"u": _weights(16, 8)})
    assert all(name in kept for name in ("c",))


def test_what_is_turned_by_bounded_numbers_is_licensed():
    """Rotations of what was learned by sines of positions."""
    nodes = [
        *_LEARNED,
        *parse_nodes(
            "t = Cast <to = 1>(i) a = Mul(t, f) c = Cos(a) q = MatMul(h, v) z = Mul(q, c) "
            "e = MatMul(c, u)"
        ),
        _HEAD,
    ]
    inputs = {"x": [4, 8], "i": [4, 8]}
    kept = _kept(nodes, ("y", "e"), inputs=inputs, constants={"u": _weights(8, 8)})
    assert not {"q", "z"} & set(kept)


@pytest.mark.parametrize("integers", (onnx.TensorProto.INT32, onnx.TensorProto.UINT16))
def test_integers_of_any_size_and_their_differences(integers):
    nodes = [*parse_nodes("t = Cast <to = 1>(i) z = Sub(t, f)"), _HEAD]
    assert "z" in _kept(nodes, inputs={"i": [4, 8]}, integers=integers)


def test_bytes_are_exact_in_half():
    nodes = [*parse_nodes("t = Cast <to = 1>(i) z = Relu(t)"), _HEAD]
    assert "z" not in _kept(nodes, inputs={"i": [4, 8]}, integers=onnx.TensorProto.UINT8)


def test_a_spectrum_is_a_formula_with_its_transform_and_weights():
    nodes = (
        "re = MatMul(x, w) im = MatMul(x, v) r2 = Mul(re, re) i2 = Mul(im, im) power = Add(r2, i2) "
        "m = MatMul(power, mel) floored = Max(m, tiny) z = Log(floored) h1 = MatMul(z, u) "
        "h2 = Relu(h1) y = MatMul(h2, u)"
    )
    constants = {"mel": np.abs(_weights(8, 8)), "u": _weights(8, 8)}
    model = graph(nodes, {"x": [4, 8]}, ["y"], {**_CONSTANTS, **constants})
    for name in set(_CONSTANTS) - {"w", "v", "tiny"}:
        keep = [c for c in model.graph.initializer if c.name != name]
        del model.graph.initializer[:]
        model.graph.initializer.extend(keep)
    state = plan(model, until="keep_float32", keep_float32=True)
    kept = state.graph.float32_names
    weights = [n for n in kept if n not in state.graph.producers and n != "x"]
    assert len(weights) >= 2  # of the transforms, joined, and of the mel bands


def test_data_times_data_of_any_size_is_a_formula():
    nodes = [*_LEARNED, _node("MatMul", "h v", "q"), _node("Mul", "q h", "z"), _HEAD]
    assert "grow" in str(_kept(nodes))
    gated = [_node("Sigmoid", "q", "g"), _node("Mul", "g h", "z"), _HEAD]
    assert "z" not in _kept([*_LEARNED, _node("MatMul", "h v", "q"), *gated])


def test_what_comes_behind_the_last_product():
    nodes = [
        *_LEARNED,
        *parse_nodes("q = MatMul(h, v) s = Sigmoid(q) y = Transpose <perm = [1, 0]>(s)"),
    ]
    kept = _kept(nodes)
    assert "no learned product" in kept["s"]
    assert "h" not in kept


@pytest.mark.parametrize("is_read_inside", [False, True])
def test_an_output_that_is_read_inside(is_read_inside):
    """What is read is stored apart of what is given: small differences of sizes are lost of it."""
    read = "y" if is_read_inside else "x"
    nodes = [*_LEARNED, _node("Softplus", "h", "y"), _node("ReduceSum", f"{read} axis", "z")]
    assert ("y" in _kept(nodes, ("y", "z"))) == is_read_inside


def test_weights_of_the_last_product_stay_halves():
    nodes = [_node("MatMul", "x w", "m"), _node("Reshape", "m line", "y")]
    constants = {"w": _weights(64, 32), "line": np.array([-1])}
    state = plan(
        graph(nodes, {"x": [1, 64]}, ["y"], constants), until="keep_float32", keep_float32=True
    )
    assert not any(
        tensor.value is not None and name in state.graph.float32_names
        for name, tensor in state.graph.tensors.items()
    )


def test_numbers_that_are_compared_for_equality():
    """In half, neighbours whose scores differ little would all be the largest."""
    nodes = parse_nodes(
        "c = Conv <pads = [1, 1, 1, 1]>(x, k) s = Sigmoid(c) "
        "p = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(s) e = Equal(s, p) "
        "d = Cast <to = 1>(e) z = Mul(d, s) y = Conv <pads = [1, 1, 1, 1]>(z, k)"
    )
    kept = _kept(nodes, inputs={"x": [1, 8, 8, 8]}, constants={"k": _weights(8, 8, 3, 3)})
    assert "s" in kept


def test_states_from_run_to_step_are_exact():
    """A recurrent layer hands its state on, and what it is off by grows."""
    lstm = helper.make_node("LSTM", ["x", "W", "R"], ["o"], hidden_size=8)
    constants = {"W": _weights(1, 32, 8), "R": _weights(1, 32, 8), "u": _weights(8, 8)}
    nodes = [lstm, *parse_nodes("q = Squeeze(o, axis) y = MatMul(q, u)")]
    model = graph(nodes, {"x": [6, 1, 8]}, ["y"], {**constants, "axis": np.array([1])})
    state = plan(model, until="keep_float32", keep_float32=True)
    recurrent = next(n for n in state.graph.nodes if "recurrent" in n.operators[0])
    assert set(recurrent.inputs[:2]) | {recurrent.output} <= state.graph.float32_names


@pytest.mark.parametrize(("size", "kept"), [(1e-7, True), (1e6, True), (1.0, False)])
def test_weights_that_halves_cannot_hold(size, kept):
    nodes = [*_LEARNED, *parse_nodes("q = MatMul(h, k) z = Relu(q)"), _HEAD]
    found = _kept(nodes, constants={"k": _weights(8, 8, size=size)})
    assert ("z" in found) == kept


def test_what_weights_bring_back_is_read_in_float32():
    """One channel is tiny, and the next weights make up for it."""
    first, second = _weights(8, 8), _weights(8, 8)
    first[:, 2] *= 1e-9
    second[2] *= 1e8
    nodes = [
        *_LEARNED,
        *parse_nodes("q = MatMul(h, k) z = Relu(q) e = MatMul(z, l) y = MatMul(e, v)"),
    ]
    kept = _kept(nodes, constants={"k": first, "l": second})
    assert "brings its digits back" in kept["z"]


def test_kernel_machines_are_formulas_of_the_inputs():
    """Exponentials of distances under weights that cancel, with these weights."""
    nodes = "s = Mul(x, x) n = Neg(s) k = Exp(n) y = MatMul(k, c)"
    centred = _weights(8, 8)
    centred -= centred.mean(axis=0)
    model = graph(nodes, {"x": [4, 8]}, ["y"], {"c": centred.astype(np.float32)})
    state = plan(model, until="keep_float32", keep_float32=True)
    product = state.graph.nodes[-1]
    assert {*product.inputs, product.output} <= state.graph.float32_names


def _ordinary(size: float = 1.0, blocks: int = 24, channels: int = 16) -> onnx.ModelProto:
    """Depthwise convolutions of 5x5 taps and 1x1 convolutions in turn, without norms; the weights
    of three layers are `size` times as large."""
    random = np.random.default_rng(0)
    nodes, constants, last = [], {}, "x"
    for block in range(blocks):
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
    return graph(nodes, {"x": [1, channels, 12, 12]}, ["y"], constants)


@pytest.mark.parametrize(
    ("size", "kept", "free"),
    [(1.0, set(), {"p2", "p5"}), (1000.0, {"p5"}, {"p2"}), (80.0, {"p4", "p5"}, {"p2", "p3"})],
)
def test_what_weights_make_too_large(size, kept, free):
    """The estimate is of typical data; the largest of an image are a hundred times that."""
    state = plan(_ordinary(size), until="keep_float32", keep_float32=True)
    exact = state.graph.float32_names
    assert kept <= exact
    assert not free & exact


def test_masks_keep_their_infinities():
    """A mask of the lowest float is stored as it is; the scores that it is added to, too."""
    mask = np.where(_weights(1, 1, 8, 8) > 0, np.float32(-1e9), np.float32(0))
    nodes = (
        "c = Conv <pads = [1, 1, 1, 1]>(x, k) s = Add(c, m) p = Softmax <axis = -1>(s) "
        "y = Conv <pads = [1, 1, 1, 1]>(p, k)"
    )
    model = graph(nodes, {"x": [1, 6, 8, 8]}, ["y"], {"k": _weights(6, 6, 3, 3), "m": mask})
    state = plan(model, until="keep_float32", keep_float32=True)
    assert state.graph is not None
    graph_ = state.graph
    masks = [n for n, t in graph_.tensors.items() if t.value is not None and t.value.min() < -1e8]
    assert masks
    assert set(masks) <= graph_.float32_names
    softmax = next(n for n in graph_.nodes if "softmax" in n.operators[0])
    assert softmax.inputs[0] in graph_.float32_names
    assert softmax.output not in graph_.float32_names


def test_a_logarithm_fused_behind_a_transform_asks_for_its_weights():
    """Sums of large terms that are near zero: a share of the terms is all of them there."""
    nodes = "re = MatMul(x, w) power = Mul(re, re) floored = Add(power, tiny) y = Log(floored)"
    constants = {"w": _CONSTANTS["w"], "tiny": _CONSTANTS["tiny"]}
    model = graph(nodes, {"x": [4, 8]}, ["y"], constants)
    state = plan(model, until="keep_float32", keep_float32=True)
    product = next(n for n in state.graph.nodes if "matmul" in n.operators)
    assert product.inputs[1] in state.graph.float32_names


def test_a_norm_of_the_inputs_is_a_formula():
    """Angles are computed of it, a hundred times as large."""
    nodes = "n = LayerNormalization(x, one8) a = Mul(n, hundred) b = Where(i, a, half) y = Sin(b)"
    constants = {"one8": np.ones(8, np.float32), "hundred": np.float32(100)}
    model = graph(nodes, {"x": [4, 8], "i": [4, 8]}, ["y"], {**constants, "half": np.float32(0.5)})
    model.graph.input[1].type.tensor_type.elem_type = onnx.TensorProto.BOOL
    state = plan(model, until="keep_float32", keep_float32=True)
    assert state.graph.nodes[-1].output in state.graph.float32_names


@pytest.mark.parametrize(("samples", "is_sound"), [(512, True), (112, True), (64, False)])
def test_sound_has_no_known_scale(samples, is_sound):
    """At 32768, sums of its samples are beyond half; the layers behind the first are as others."""
    nodes = "c = Conv <strides = [4]>(x, k) h = Relu(c) d = Conv(h, l) e = Relu(d) y = Conv(e, l)"
    constants = {"k": _weights(8, 1, 16), "l": _weights(8, 8, 3)}
    model = graph(nodes, {"x": [1, 1, samples]}, ["y"], constants)
    kept = plan(model, until="keep_float32", keep_float32=True).graph.float32_names
    assert ("h" in kept, "e" in kept) == (is_sound, False)


@pytest.mark.parametrize(("between", "in_float32"), [("Relu", True), ("Sigmoid", False)])
def test_what_grows_with_a_spectrum_has_no_known_scale(between, in_float32):
    """Magnitudes of sound of 16 bits are beyond half, and so are layers of them, until one ends."""
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], strides=[4]),
        _node("Mul", "c c", "squares"),
        _node("Sqrt", "squares", "sizes"),
        helper.make_node("Conv", ["sizes", "l"], ["d"]),
        _node(between, "d", "e"),
        *parse_nodes("f = Conv(e, l) g = Relu(f) y = Conv(g, l)"),
    ]
    constants = {"k": _weights(8, 1, 16), "l": _weights(8, 8, 3)}
    model = graph(nodes, {"x": [1, 1, 512]}, ["y"], constants)
    kept = plan(model, until="keep_float32", keep_float32=True).graph.float32_names
    assert "sizes" in kept
    assert ("g" in kept) == in_float32


def test_large_angles_ask_all_that_they_are_computed_of():
    """What a layer before is off by turns an angle of some hundreds as far as its own rounding."""

    def layers(factor, *moved: NodeProto) -> dict[str, str]:
        angle = "b" if moved else "a"
        nodes = [
            *_LEARNED,
            *parse_nodes("q = MatMul(h, v) a = Mul(q, factor)"),
            *moved,
            _node("Sin", angle, "z"),
            _HEAD,
        ]
        inputs = {"x": [4, 8], "i": [4, 8]}
        constants = {"factor": np.array(factor, np.float32)}
        return _kept(nodes, inputs=inputs, constants=constants, integers=onnx.TensorProto.BOOL)

    assert not any("what halves lose before it" in why for why in layers(1.0).values())
    # Of frequencies that fall, a few make large angles; a mask may choose among them.
    frequencies = 300.0 * 10.0 ** -np.linspace(0, 5, 8)
    for large in (
        layers(300.0),
        layers(frequencies),
        layers(300.0, _node("Where", "i a half", "b")),
    ):
        assert any("what halves lose before it" in why for why in large.values())
        assert {"h", "p"} & set(large)


@pytest.mark.parametrize(("rows", "columns"), [("a", "b"), ("b", "a"), ("c", "a"), ("b", "d")])
def test_of_several_reasons_the_one_of_the_first_name_is_told(rows, columns):
    """Equal models give equal bundles, decisions included: the order of a set is not seen."""
    nodes = [
        _node("ReduceSum", "x first", rows, keepdims=1),
        _node("ReduceSum", "x second", columns, keepdims=1),
        _node("Mul", f"{rows} {columns}", "u"),
        _node("MatMul", "u m", "y"),
    ]
    axes = {"first": np.array([0]), "second": np.array([1])}
    kept = _kept(nodes, inputs={"x": [32, 64]}, constants={"m": _weights(64, 8), **axes})
    why = {rows: "it adds up 32 numbers", columns: "it adds up 64 numbers"}
    assert kept["u"] == why[min(why)]


def test_constants_whose_rounding_a_difference_grows_stay_in_float32():
    """Little is left of x * f - x where f is about one: half cannot tell such factors apart."""
    factors = 1 + np.float32(1e-3) * _weights(8)
    nodes = [_node("MatMul", "x w", "q"), _node("Mul", "q k", "s"), _node("Sub", "s q", "y")]
    for value, kept in ((factors, True), (factors + 1, False)):
        model = graph(nodes, {"x": [4, 64]}, ["y"], {"w": _weights(64, 8), "k": value})
        state = plan(model, until="keep_float32", keep_float32=True)
        tensors = state.graph.tensors
        names = [n for n in state.graph.float32_names if tensors[n].value is not None]
        assert any(np.array_equal(np.ravel(tensors[n].value), value) for n in names) == kept


def test_a_logarithm_behind_products_of_data_asks_all_of_both():
    """Near zero it makes much of what little shares and values lose in halves."""
    nodes = [
        *_LEARNED,
        *parse_nodes(
            "ht = Transpose <perm = [1, 0]>(h) scores = MatMul(h, ht) shares = Softmax(scores) "
            "values = MatMul(h, v) mixed = MatMul(shares, values) size = Abs(mixed) "
            "floored = Max(size, tiny) z = Log(floored)"
        ),
        _HEAD,
    ]
    kept = _kept(nodes)
    assert {"shares", "values"} & kept.keys(), kept
    without = _kept([*nodes[:6], _node("MatMul", "shares values", "z"), _HEAD])
    assert not {"shares", "values"} & without.keys(), without


def test_queries_keys_and_values_may_lie_in_one_tensor():
    nodes = [
        *parse_nodes(
            "qkv = MatMul(x, wide) q = Split <axis = 1>(qkv) kt = Transpose <perm = [1, 0]>(k) "
            "scores = MatMul(q, kt) shares = Softmax(scores) z = MatMul(shares, values)"
        ),
        _HEAD,
    ]
    nodes[1].output.extend(["k", "values"])
    assert "z" not in _kept(nodes, constants={"wide": _weights(8, 24)})


def test_a_logarithm_of_what_is_learned_asks_for_exact_sums():
    """Near zero a sum is off by what its terms were rounded by, of which a logarithm makes much."""
    deep = _weights(8, 8)
    text = "q = MatMul(h, deep) s = Mul(q, q) t = Add(s, tiny) z = Log(t)"
    nodes = [*_LEARNED, *parse_nodes(text), _HEAD]
    used = {"w": _weights(8, 8), "v": _weights(8, 8), "deep": deep, "tiny": _CONSTANTS["tiny"]}
    state = plan(graph(nodes, {"x": [4, 8]}, ["y"], used), until="keep_float32", keep_float32=True)
    kept = [state.graph.tensors[name].value for name in state.graph.float32_names]
    assert any(np.array_equal(value, deep) for value in kept)


def test_what_divides_by_what_is_left_of_a_long_sum_asks_for_exact_terms():
    nodes = parse_nodes(
        "h = MatMul(x, w) r = Relu(h) p = MatMul(r, wide) s = ReduceSum(p, axis) a = Abs(s) "
        "m = Max(a, tiny) y = Div(p, m)"
    )
    kept = _kept(nodes, constants={"wide": _weights(8, 64)})
    assert kept["p"] == kept["m"] == "y makes more of a rounding"


def test_steps_of_small_numbers_ask_for_exact_sums():
    """Of x - floor(x * 40) a step is little where x is 64 and much where it is one."""
    weights = (0.3 * np.eye(8)).astype(np.float32)
    nodes = "q = MatMul(x, w) s = Mul(q, forty) r = Floor(s) y = Sub(q, r)"
    model = graph(nodes, {"x": [4, 8]}, ["y"], {"w": weights, "forty": np.float32(40)})
    state = plan(model, until="keep_float32", keep_float32=True)
    kept = [state.graph.tensors[name].value for name in state.graph.float32_names]
    assert any(np.array_equal(value, weights) for value in kept)


def test_steps_of_a_table_are_found_between_its_elements():
    """Of a floor of a table's rows few elements lie a rounding before a step, but some do."""
    table = np.random.default_rng(3).normal(scale=0.02, size=(50, 64)).astype(np.float32)
    nodes = "t = Gather(table, i) s = Mul(t, often) y = Floor(s)"
    model = graph(nodes, {"i": [4]}, ["y"], {"table": table, "often": np.float32(133)})
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.INT32
    state = plan(model, until="keep_float32", keep_float32=True)
    kept = [state.graph.tensors[name].value for name in state.graph.float32_names]
    assert any(np.array_equal(value, table) for value in kept)


def test_the_first_layer_has_exact_weights_before_a_norm():
    """A picture of 240 but for 4 to either side is off by its mean at the borders."""
    weights, ones = _weights(32, 16, 3, 3), np.ones(32, np.float32)
    nodes = (
        "c = Conv <pads = [1, 1, 1, 1]>(x, k) n = InstanceNormalization(c, ones, ones) "
        "d = Conv <pads = [1, 1, 1, 1]>(n, wide) y = Relu(d)"
    )
    constants = {"k": weights, "ones": ones, "wide": _weights(32, 32, 3, 3)}
    model = graph(nodes, {"x": [1, 16, 20, 20]}, ["y"], constants)
    state = plan(model, until="keep_float32", keep_float32=True)
    kept = [state.graph.tensors[name].value for name in state.graph.float32_names]
    assert any(value is not None and value.size == weights.size for value in kept)
    assert not any(value is not None and value.size == 32 * 32 * 9 for value in kept)


def _of_a_logarithm(monkeypatch: pytest.MonkeyPatch, free: int) -> set[str]:
    monkeypatch.setattr(keep_float32, "_SOON", free)
    return set(_kept([*_LEARNED, *parse_nodes("q = MatMul(h, v) s = Abs(q) z = Log(s)"), _HEAD]))


def test_what_is_computed_in_less_time_than_a_launch_is_exact_to_the_inputs(monkeypatch):
    """What a product reads is off by as much as its weights: the layer before is exact, too."""
    large, small = (_of_a_logarithm(monkeypatch, free) for free in (0, 2**21))
    assert "h" not in large
    assert "h" in small


_GATED = [
    *_LEARNED,
    *parse_nodes("q = MatMul(h, v) a = Sigmoid(q) g = Mul(q, a) u = MatMul(h, w) z = Mul(u, g)"),
]
"""A gate that may be as large as what it lets through."""


@pytest.mark.parametrize("few_bits", [False, True])
def test_a_gate_that_products_alone_read_lies_in_half_at_a_part_of_its_size(few_bits):
    last, constants = _HEAD, {}
    if few_bits:
        last = _node("MatMulNBits", "z b s", "y", K=32, N=8, bits=4, block_size=32)
        last.domain = "com.microsoft"
        constants = {
            "w": _weights(8, 32),
            "v": _weights(32, 32),
            "b": _RANDOM.integers(0, 256, (8, 1, 16)).astype(np.uint8),
            "s": _weights(8, 1),
        }
        constants["w"] = _weights(32, 32)
    model = graph(
        [*_GATED, last],
        {"x": [4, constants.get("w", _weights(8, 8)).shape[0]]},
        ["y"],
        {**{n: _CONSTANTS[n] for n in "wv"}, **constants},
    )
    state = plan(model, until="keep_float32", keep_float32=True, preset="fp16")
    assert "z" not in state.graph.float32_names
    assert [d.taken for d in state.log if d.subject == "z"] == ["stored divided by 16"]
    scaled = state.graph.tensors[state.graph.producers["y"].inputs[1 + few_bits]].value
    given = constants["s"] if few_bits else _CONSTANTS["v"]
    assert scaled is not None
    np.testing.assert_array_equal(np.sort(scaled, axis=None), np.sort(16 * given, axis=None))


def test_a_gate_that_is_an_output_too_stays_in_float32():
    model = graph([*_GATED, _HEAD], {"x": [4, 8]}, ["y", "z"], {n: _CONSTANTS[n] for n in "wv"})
    state = plan(model, until="keep_float32", keep_float32=True, preset="fp16")
    assert "z" in state.graph.float32_names


@pytest.mark.parametrize("gain", [1.0, 1e5])
def test_a_norm_that_no_kernel_covers_is_licensed_as_far_as_its_gains_let_it(gain):
    """Its numbers are less their mean and over their deviation, however small that may be."""
    nodes = (
        "c = Conv(x, w4) h = Relu(c) d = Conv(h, w4) g = Reshape(d, groups) "
        "m = InstanceNormalization(g, s, b) z = Reshape(m, whole) y = Conv(z, w4)"
    )
    constants = {
        "w4": _weights(4, 4, 1, 1),
        "groups": np.array([1, 2, -1]),
        "s": np.full(2, gain, np.float32),
        "b": _weights(2),
        "whole": np.array([1, 4, 192, 192]),
    }
    model = graph(nodes, {"x": [1, 4, 192, 192]}, ["y"], constants)
    state = plan(model, until="keep_float32", keep_float32=True, preset="fp16")
    (last,) = (node for node in state.graph.nodes if node.output == "y")
    assert "divide" in state.graph.producers[last.inputs[0]].operators
    assert (last.inputs[0] in state.graph.float32_names) == (gain > 1.0)
