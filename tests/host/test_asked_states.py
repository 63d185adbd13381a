"""States that lie in one memory from run to run, beside onnxruntime given them by hand."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.commands import ask, invoke, succeed
from tests.models import parse_nodes

STEPS = 12
Nodes = list[onnx.NodeProto]
Shapes = dict[str, list[int]]


def draw(*shape: int) -> np.ndarray:
    random = np.random.default_rng(sum(shape))
    drawn: np.ndarray = random.standard_normal(shape) / np.sqrt(shape[-1])
    return drawn.astype(np.float32)


def save(
    path: Path,
    nodes: Nodes,
    inputs: Shapes,
    outputs: Shapes,
    constants: dict[str, np.ndarray],
    opset: int = 17,
) -> Path:
    """A model; what is called a count is of whole numbers."""

    def values(shapes: Shapes) -> list[onnx.ValueInfoProto]:
        kinds = {True: TensorProto.INT64, False: TensorProto.FLOAT}
        made = helper.make_tensor_value_info
        return [made(name, kinds["count" in name], shape) for name, shape in shapes.items()]

    held = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "states", values(inputs), values(outputs), held)
    opsets = [helper.make_opsetid("", opset)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def make_recurrent(path: Path) -> Path:
    constants = {"w": draw(1, 36, 8), "r": draw(1, 36, 12), "b": draw(1, 72)}
    return save(
        path,
        parse_nodes('y, hn = GRU <hidden_size = 12>(x, w, r, b, "", h0)'),
        {"x": [1, 1, 8], "h0": [1, 1, 12]},
        {"hn": [1, 1, 12], "y": [1, 1, 1, 12]},
        constants,
    )


def make_streaming(path: Path) -> Path:
    """A convolution whose last columns are the next run's first, and how many there were."""
    ends = {"from": np.array([-6]), "to": np.array([2**31]), "axis": np.array([2])}
    return save(
        path,
        parse_nodes(
            "whole = Concat <axis = 2>(cache, x) made = Conv(whole, w, b) y = Relu(made) "
            "new_cache = Slice(whole, from, to, axis) new_count = Add(count, four)"
        ),
        {"x": [1, 8, 4], "cache": [1, 8, 6], "count": [1]},
        {"new_cache": [1, 8, 6], "y": [1, 12, 4], "new_count": [1]},
        {"w": draw(12, 8, 7), "b": draw(12), "four": np.array([4]), **ends},
    )


def make_scaled(path: Path) -> Path:
    """A sum of what comes in, times a scalar that each run is given."""
    return save(
        path,
        parse_nodes("louder = Mul(x, gain) new_cache = Add(cache, louder) y = Relu(new_cache)"),
        {"x": [1, 8], "gain": [], "cache": [1, 8]},
        {"new_cache": [1, 8], "y": [1, 8]},
        {},
    )


def make_decaying(path: Path, left: float) -> Path:
    """A sum of what comes in, of which each run leaves a part: zeros leave nothing to tell of."""
    return save(
        path,
        parse_nodes("kept = Mul(cache, left) new_cache = Add(kept, x) y = Relu(new_cache)"),
        {"x": [1, 8], "cache": [1, 8]},
        {"new_cache": [1, 8], "y": [1, 8]},
        {"left": np.array([left], np.float32)},
    )


def make_swapping(path: Path) -> Path:
    """Each state is what another was; one is never changed, one is the model's own constant."""
    names = ["a", "b", "same", "set"]
    return save(
        path,
        parse_nodes(
            "sum = Add(a, x) part = Mul(sum, same) y = Add(part, set) new_a = Identity(b) "
            "new_b = Tanh(sum) new_same = Identity(same) new_set = Identity(held)"
        ),
        {"x": [1, 8], **{name: [1, 8] for name in names}},
        {"y": [1, 8], **{f"new_{name}": [1, 8] for name in names}},
        {"held": draw(1, 8)},
    )


def make_turned(path: Path) -> Path:
    """A state of which blocks of another axis are read than a product makes."""
    return save(
        path,
        parse_nodes("part = Mul(cache, gains) y = Exp(part) new_cache = MatMul(x, w)"),
        {"x": [1, 4, 16, 16], "cache": [1, 4, 16, 16]},
        {"y": [1, 4, 16, 16], "new_cache": [1, 4, 16, 16]},
        {"gains": draw(1, 4, 1, 1), "w": draw(1, 4, 16, 16)},
    )


MODELS = {
    "recurrent": make_recurrent,
    "scaled": make_scaled,
    "streaming": make_streaming,
    "swapping": make_swapping,
    "turned": make_turned,
}


def compile_it(model: Path, *more: object) -> str:
    return succeed("compile", model, "--device", "host", "--no-cache", *more).output


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("preset", ["fp32", "mixed"])
def test_steps_are_the_references(device, tmp_path, name, preset):
    model = MODELS[name](tmp_path / "model.onnx")
    bundle = tmp_path / "model.adrenoc"
    assert "--state none keeps nothing" in compile_it(model, "--preset", preset, "-o", bundle)
    for more in ([], ["--steps", STEPS]):
        compared = ask("run", bundle, "--check", model, "--repeat", 2, *more)["check"]["tensors"]
        assert len(compared) == len(onnx.load(model).graph.output)


def test_a_check_steps_without_being_asked(device, tmp_path):
    """What differs in the second step alone, and what comes of numbers that are not usual."""
    model, other = (make_decaying(tmp_path / f"{left}.onnx", left) for left in (0.5, 0.4))
    bundle, saved = tmp_path / "model.adrenoc", tmp_path / "y.npz"
    compile_it(model, "-o", bundle)
    said = " ".join(succeed("run", bundle, "--check", model, "--save", saved).output.split())
    assert "32 steps, from states of zeros on, of four sets of random numbers: usual" in said
    assert np.load(saved)["y"].shape == (1, 8)
    wrong = invoke("run", bundle, "--check", other, "--json", catch=True)
    assert wrong.exit_code == 23, wrong.output
    assert ", on " in json.loads(wrong.output)["check"]["tensors"][0]["reason"]


def test_rows_that_the_standard_scatters(device, tmp_path):
    """A cache of fixed rows, written at a row that is given, and an attention over those there."""
    rows, heads = 12, {"q": 4, "k": 2, "v": 2}
    nodes = parse_nodes(
        "present_key = TensorScatter <axis = 2>(past_key, k, count_before) "
        "present_value = TensorScatter <axis = 2>(past_value, v, count_before) "
        'y = Attention(q, present_key, present_value, "", "", "", count_there)'
    )
    new: Shapes = {name: [1, count, 1, 8] for name, count in heads.items()}
    pasts, presents = (
        {f"{when}_{kind}": [1, 2, rows, 8] for kind in ("key", "value")}
        for when in ("past", "present")
    )
    counts: Shapes = {"count_before": [1], "count_there": [1]}
    path, bundle = tmp_path / "model.onnx", tmp_path / "model.adrenoc"
    model = save(path, nodes, {**new, **pasts, **counts}, {"y": [1, 4, 1, 8], **presents}, {}, 24)
    compile_it(model, "--preset", "fp32", "-o", bundle)
    said = json.loads((bundle / "decisions.json").read_text())
    assert not [one for one in said if "copy" in one["taken"] or "copied" in one["taken"]]
    words: list[object] = ["--steps", rows, "--check", model]
    for name, first in (("count_before", 0), ("count_there", 1)):
        np.save(tmp_path / f"{name}.npy", np.arange(first, first + rows)[:, None])
        words.append(f"--input={name}={tmp_path / name}.npy")
    succeed("run", bundle, *words)


def test_what_a_state_begins_as_may_be_given(device, tmp_path):
    model = make_recurrent(tmp_path / "model.onnx")
    bundle = tmp_path / "model.adrenoc"
    compile_it(model, "--preset", "fp32", "-o", bundle)
    np.save(tmp_path / "h0.npy", draw(1, 1, 12))
    np.save(tmp_path / "x.npy", draw(3, 1, 1, 8))
    given = [f"--input=h0={tmp_path / 'h0.npy'}", f"--input=x={tmp_path / 'x.npy'}"]
    succeed("run", bundle, *given, "--steps", 3, "--check", model)
    few = invoke("run", bundle, *given, "--steps", 4, catch=True)
    assert "has the shape [3, 1, 1, 8]; input 'x' takes [4, 1, 1, 8]" in str(few.exception)


def test_states_are_asked_for_or_refused(device, tmp_path):
    model = make_recurrent(tmp_path / "model.onnx")
    bundle = tmp_path / "model.adrenoc"
    compile_it(model, "--state", "none", "-o", bundle)
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert "states" not in manifest["options"]["values"]
    assert [spec["name"] for spec in manifest["outputs"]] == ["hn", "y"]
    assert "--steps is for bundles that keep states" in invoke("run", bundle, "--steps", 2).output
    for words, message in (
        (["--state", "x=hn"], r"the output's shape is [1, 1, 12], expected the input's [1, 1, 8]"),
        (["--state", "h=hn"], "the input 'h'"),
        (["--state", "h0=hn", "--state", "x=hn"], "the output 'hn' twice"),
        (["--state", "none", "--state", "h0=hn"], "keeps nothing: no other --state"),
        (["--state", "h0=hn", "--fallback", "cpu"], "--fallback cpu keeps no states"),
    ):
        command = ("compile", model, "--device", "host", "--no-cache")
        refused = invoke(*command, *words, catch=True)
        assert refused.exit_code != 0
        assert message in refused.output + str(refused.exception)
