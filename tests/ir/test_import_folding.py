"""Constants that are computed while a model is imported, and who is to blame where that fails."""

import resource
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from adrenoc.base.errors import AdrenocError, ModelFormatError
from adrenoc.base.host import memory as host_memory
from adrenoc.importers import import_model
from adrenoc.importers.onnx import fold, infer
from tests.ir.planning import check, operators
from tests.models import graph, parse_nodes, write

node = helper.make_node
ONES = np.linspace(0.5, 1.5, 12, dtype=np.float32).reshape(3, 4)


def imported(folder: Path, model: onnx.ModelProto):
    return import_model(write(model, folder), shapes={})


def gathered(data: tuple[int, ...], index: tuple[int, ...]) -> onnx.ModelProto:
    """An index that is shorter than the data along an axis that is not gathered along."""
    constants = {
        "table": np.arange(np.prod(data), dtype=np.int64).reshape(data) % 7,
        "index": np.arange(np.prod(index), dtype=np.int64).reshape(index) % 5,
    }
    nodes = (
        "picked = GatherElements <axis = 1>(table, index) floats = Cast <to = 1>(picked) "
        "y = Add(x, floats)"
    )
    return graph(nodes, {"x": index}, ["y"], constants)


@pytest.mark.parametrize(("data", "index"), [((1, 512), (1, 64)), ((3, 8), (2, 5))])
def test_gathered_constants_fold(tmp_path, data, index):
    check(write(gathered(data, index), tmp_path))


FOLDED = {
    "Mul": "k = Mul(c, c)",
    "Transpose": "k = Transpose <perm = [1, 0]>(d)",
    "Erf": "k = Erf(c)",
    "Softmax": "k = Softmax <axis = 1>(c)",
    "Gather": "k = Gather <axis = 1>(c, i)",
    "GatherElements": "k = GatherElements <axis = 1>(c, e)",
    "Where": "k = Where(b, c, c)",
    "CumSum": "k = CumSum(c, z)",
    "ReduceMax": "k = ReduceMax <axes = [1], keepdims = 1>(c)",
    "Pad": "k = Pad(c, p)",
    "Tile": "k = Tile(c, t)",
    "Expand": "k = Expand(c, s)",
    "Trilu": "k = Trilu(c)",
    "ScatterElements": "k = ScatterElements <axis = 1>(c, e, c)",
    "MatMul": "k = MatMul(c, d)",
}
OPERANDS = {
    "c": ONES,
    "d": ONES.T.copy(),
    "i": np.array([1, 0, 3, 2]),
    "e": np.array([[1, 0, 3, 2]] * 3),
    "b": ONES > 1,
    "z": np.array(1),
    "p": np.array([0, 0, 0, 0]),
    "t": np.array([1, 1]),
    "s": np.array([3, 4]),
}


def folded(op: str) -> onnx.ModelProto:
    nodes = parse_nodes(f"{FOLDED[op]} y = {'Add' if op != 'MatMul' else 'MatMul'}(x, k)")
    shape = (3, 4) if op != "MatMul" else (2, 3)
    return graph(nodes, {"x": shape}, ["y"], {name: OPERANDS[name] for name in nodes[0].input})


def fails(monkeypatch: pytest.MonkeyPatch, op: str) -> None:
    """Make ONNX's reference fail on one operator."""
    whole = ReferenceEvaluator.run

    def run(self, *args, **kwargs):
        if any(inner.op_type == op for inner in self.rt_nodes_):
            raise ValueError("cannot reshape array of size 1")
        return whole(self, *args, **kwargs)

    monkeypatch.setattr(ReferenceEvaluator, "run", run)


@pytest.mark.parametrize("op", FOLDED)
@pytest.mark.parametrize("with_onnxruntime", [True, False])
def test_a_reference_that_fails_is_no_fault_of_the_model(
    op, with_onnxruntime, tmp_path, monkeypatch
):
    fails(monkeypatch, op)
    if not with_onnxruntime:
        monkeypatch.setattr(infer, "_is_installed", lambda: False)
    check(write(folded(op), tmp_path))
    told = [d for d in imported(tmp_path, folded(op)).decisions if "fails on it" in d.reason]
    assert [d.taken.split()[0] for d in told] == ["folded" if with_onnxruntime else "left"]


def test_what_nothing_computes_is_the_fault_of_the_model(tmp_path):
    nodes = "k = Gather(c, i) y = Add(x, k)"
    model = graph(nodes, {"x": (3, 4)}, ["y"], {"c": ONES, "i": np.array([0, 1, 99])})
    with pytest.raises(ModelFormatError, match=r"cannot be computed.*out of"):
        imported(tmp_path, model)


@pytest.mark.parametrize("opset", [12, 14, 16])
@pytest.mark.parametrize("op", ["GreaterOrEqual", "LessOrEqual"])
def test_shape_of_a_comparison_is_known(op, opset, tmp_path):
    """Inference of opsets 12 to 15 tells none, and what is shaped by it had no shape."""
    nodes = (
        f"is_so = {op}(x, bound) shape = Shape(is_so) longer = Concat <axis = 0>(shape, one) "
        "y = Reshape(x, longer)"
    )
    constants = {"bound": np.array(0.5, np.float32), "one": np.array([1])}
    check(write(graph(nodes, {"x": (3, 4)}, ["y"], constants, opset=opset), tmp_path))


def test_inference_that_fails_is_no_fault_of_the_model(tmp_path, monkeypatch):
    whole = onnx.shape_inference.infer_node_outputs

    def refuses(schema, *args, **kwargs):
        if schema.name == "Tanh":
            raise onnx.shape_inference.InferenceError("no")
        return whole(schema, *args, **kwargs)

    monkeypatch.setattr(infer.onnx.shape_inference, "infer_node_outputs", refuses)
    model = graph("t = Tanh(x) y = Neg(t)", {"x": (3, 4)}, ["y"])
    check(write(model, tmp_path))
    taken = [d.taken for d in imported(tmp_path, model).decisions]
    assert "took the types of its results from onnxruntime" in taken


# Weights that a file only describes


def described(*shapes: tuple[int, int], weights: bool = True) -> onnx.ModelProto:
    """Products with matrices that are filled with one number, each by a vector of their rows."""
    nodes, constants, inputs = "", {}, {}
    op = "Gemm" if weights else "Add"
    for number, shape in enumerate(shapes):
        constants[f"s{number}"] = np.array(shape)
        nodes += f"w{number} = ConstantOfShape <value = float[1] {{0.02}}>(s{number}) "
        nodes += f"y{number} = {op}(x{number}, w{number}) "
        inputs[f"x{number}"] = (1, shape[0]) if weights else (1, 1)
    return graph(nodes, inputs, [f"y{n}" for n in range(len(shapes))], constants)


def test_weights_may_be_described(tmp_path, monkeypatch):
    monkeypatch.setattr("adrenoc.importers.imported.MOST_GROWN", 100)
    check(write(described((64, 10), (30, 40)), tmp_path), tolerance=1e-3)  # one number in all


def test_what_is_no_weight_is_refused_sooner(tmp_path, monkeypatch):
    monkeypatch.setattr("adrenoc.importers.imported.MOST_GROWN", 100)
    with pytest.raises(AdrenocError, match="640 constant elements, expected up to 100"):
        imported(tmp_path, described((64, 10), weights=False))


@pytest.mark.parametrize(
    "shapes",
    [[(10**6, 10**6)], [(10**5, 10**4)] * 20, [(2**14, 2**13)] * 20],
    ids=["one of 10^12", "many of 10^9", "many of 10^8"],
)
def test_bombs_take_no_memory(shapes, tmp_path):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(AdrenocError, match="elements of weights, and there is room for"):
        imported(tmp_path, described(*shapes))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 18


def test_weights_have_room_by_the_memory_of_the_machine(tmp_path, monkeypatch):
    monkeypatch.setattr("adrenoc.importers.imported.MOST_GROWN", 100)
    monkeypatch.setattr(fold, "available_bytes", lambda: 16 * 700)
    assert imported(tmp_path, described((64, 10)))
    with pytest.raises(AdrenocError, match="there is room for 60 more"):
        imported(tmp_path, described((64, 10), (30, 40)))


def test_the_memory_of_this_machine_is_known(monkeypatch):
    assert 1 << 20 < host_memory.available_bytes() < 1 << 50
    monkeypatch.setattr(host_memory, "_MEMINFO", Path("/nowhere"))
    monkeypatch.setattr(host_memory, "_GROUP", Path("/nowhere"))
    assert host_memory.available_bytes() <= host_memory._UNKNOWN


# Norms of weights


NORMS = {
    "training": (
        "n, mean_now, variance_now = BatchNormalization "
        "<training_mode = 1>(r, gain, zero, mean, one)"
    ),
    "instance": "n = InstanceNormalization(r, gain, zero)",
    "inference": "n = BatchNormalization(r, gain, zero, zero, one)",
    "variance": "n = MeanVarianceNormalization <axes = [2]>(r)",
}


def standardised(op: str) -> onnx.ModelProto:
    """A convolution whose weights a norm standardises on each run, as in NFNets."""
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.standard_normal((4, 3, 3, 3)).astype(np.float32) + 2,
        "rows": np.array([1, 4, -1]),
        "whole": np.array([4, 3, 3, 3]),
        "gain": np.linspace(0.5, 2, 4, dtype=np.float32),
        "zero": np.zeros(4, np.float32),
        "mean": np.zeros(4, np.float32),  # onnxruntime writes the new one there
        "one": np.ones(4, np.float32),
    }
    nodes = (
        f"r = Reshape(w, rows) {NORMS[op]} s = Reshape(n, whole) "
        "y = Conv <pads = [1, 1, 1, 1]>(x, s)"
    )
    return graph(nodes, {"x": (1, 3, 5, 5)}, ["y"], constants)


@pytest.mark.parametrize("op", NORMS)
def test_norms_of_weights_fold(op, tmp_path):
    _, module = check(write(standardised(op), tmp_path))
    assert set(operators(module)) == {"nn.conv2d"}


def test_norms_that_train_are_refused_in_few_words(tmp_path):
    names = [f"c{i}" for i in range(4)]
    nodes = []
    for i in range(200):
        ends = [f"t{i}", *names], [f"t{i + 1}", "", ""]
        nodes.append(node("BatchNormalization", *ends, f"norm{i}", training_mode=1))
    constants = {name: np.ones(3, np.float32) for name in names}
    model = graph(nodes, {"t0": (2, 3, 4, 4)}, ["t200"], constants)
    with pytest.raises(AdrenocError, match=r"\(200x\).*it trains.*and 192 more$") as caught:
        imported(tmp_path, model)
    assert "'norm7'" in caught.value.message and "'norm8'" not in caught.value.message


@pytest.mark.parametrize("factors", [(1e20, 1e20), (1e-30, 1e-30)], ids=["large", "small"])
def test_factors_whose_product_is_no_number_stay_apart(factors, tmp_path):
    held = {f"f{i}": np.array(f, np.float32) for i, f in enumerate(factors)}
    held["before"] = np.array(1 / factors[0], np.float32)
    between = "Sin" if factors[0] > 1 else "Abs"
    nodes = f"a = Mul(x, before) b = {between}(a) c = Mul(b, f0) y = Mul(c, f1)"
    check(write(graph(nodes, {"x": (3, 4)}, ["y"], held), tmp_path))
