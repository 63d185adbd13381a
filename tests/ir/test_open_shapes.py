"""Extents that the file leaves open, and batches that may be filled up."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from adrenoc.base import errors
from adrenoc.base.decision import ASSUMED
from adrenoc.compile.pipeline import State
from adrenoc.importers import import_model
from adrenoc.importers.imported import Imported
from adrenoc.passes.read.find_batch import Along, batch_free_constants, find_batch
from tests.ir.planning import run_until
from tests.models import graph, write

RNG = np.random.default_rng(5)


def weights(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def conv_on(*dims: int | str) -> onnx.ModelProto:
    return graph("y = Conv(x, w)", {"x": dims}, ["y"], {"w": weights(4, 3, 3, 3)})


def lstm(x: tuple[int | str, ...], h: tuple[int | str, ...]) -> onnx.ModelProto:
    nodes = "y, hn, cn = LSTM <hidden_size = 4>(x, w, r, , , h, c)"
    constants = {"w": weights(1, 16, 6), "r": weights(1, 16, 4)}
    return graph(nodes, {"x": x, "h": h, "c": h}, ["y", "hn", "cn"], constants)


def assumed(imported: Imported) -> list[tuple[str, str, str]]:
    told = [(d.subject, d.taken, d.reason) for d in imported.decisions]
    return [one for one in told if one[1].startswith(ASSUMED)]


BATCHES: dict[str, tuple[onnx.ModelProto, dict[str, tuple[int, ...]]]] = {
    "images": (conv_on("N", 3, 8, 8), {"x": (1, 3, 8, 8)}),
    "no name": (conv_on("?", 3, 8, 8), {"x": (1, 3, 8, 8)}),
    "a name of steps, and a Conv": (conv_on("num_frames", 3, 8, 8), {"x": (1, 3, 8, 8)}),
    "a state by its name": (
        lstm((5, "batch", 6), (1, "batch", 4)),
        {"x": (5, 1, 6), "h": (1, 1, 4), "c": (1, 1, 4)},
    ),
    "a state by its node": (
        lstm((5, "-1", 6), (1, "?", 4)),
        {"x": (5, 1, 6), "h": (1, 1, 4), "c": (1, 1, 4)},
    ),
    "rows of a product": (
        graph(
            "t = Gemm(x, w) y = Softmax <axis = -1>(t)",
            {"x": ("unk__7", 6)},
            ["y"],
            {"w": weights(6, 3)},
        ),
        {"x": (1, 6)},
    ),
}


@pytest.mark.parametrize("kind", BATCHES)
def test_open_batches_are_one(tmp_path, kind):
    model, wanted = BATCHES[kind]
    imported = import_model(write(model, tmp_path), shapes={})
    assert {spec.name: spec.shape for spec in imported.inputs} == wanted
    [(subject, taken, reason)] = assumed(imported)
    assert subject == ", ".join(wanted)
    assert taken == "assumed a batch of 1"
    assert "--shape x:" in reason


def test_the_told_option_takes_another_batch(tmp_path):
    path = write(conv_on("N", 3, 8, 8), tmp_path)
    assert "--shape x:N,3,8,8 takes another" in assumed(import_model(path, shapes={}))[0][2]
    imported = import_model(path, shapes={"x": (4, 3, 8, 8)})
    assert imported.outputs[0].shape == (4, 4, 6, 6)
    assert not assumed(imported)


def test_other_batches_are_as_that_which_is_given(tmp_path):
    """A batch without a name is no other one than that of the input that was said."""
    path = write(lstm((5, "?", 6), (1, "?", 4)), tmp_path)
    imported = import_model(path, shapes={"x": (5, 3, 6)})
    assert {spec.name: spec.shape for spec in imported.inputs}["h"] == (1, 3, 4)


OTHERS: dict[str, tuple[onnx.ModelProto, str]] = {
    "steps": (lstm(("T", 1, 6), (1, 1, 4)), "--shape x:1,1,6"),
    "what is summed": (
        graph("y = ReduceMean <axes = [0]>(x)", {"x": ("n", 3)}, ["y"]),
        "--shape x:1,3",
    ),
    "rows that meet": (graph("y = Softmax <axis = 0>(x)", {"x": ("a", 3)}, ["y"]), "--shape x:1,3"),
    "by its name": (graph("y = Relu(x)", {"x": ("num_points", 3)}, ["y"]), "--shape x:1,3"),
    "one axis": (graph("y = Relu(x)", {"x": ("n_mels",)}, ["y"]), "--shape x:128"),
    "two that have no name": (conv_on("?", 3, "?", "?"), "--shape x:1,3,224,224"),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_no_batch_is_asked_for(tmp_path, kind):
    model, option = OTHERS[kind]
    path = write(model, tmp_path)
    with pytest.raises(errors.ShapeError) as caught:
        import_model(path, shapes={})
    assert option in caught.value.hint


def test_names_that_name_nothing_are_not_shared(tmp_path):
    path = write(conv_on("?", 3, "?", "?"), tmp_path)
    imported = import_model(path, shapes={"x": (1, 3, 48, 192)})
    assert imported.outputs[0].shape == (1, 4, 46, 190)


def test_a_hint_is_such_as_the_model_takes(tmp_path):
    """A window of 400 samples does not fit into 128, and a state takes no 224x224."""
    nodes = (
        "t = Conv <strides = [160]>(x, w) k = MatMul(s, v) "
        "m = ReduceMean <axes = [2], keepdims = 1>(t) y = Add(m, k)"
    )
    constants = {"w": weights(4, 1, 400), "v": weights(7, 1)}
    inputs = {"x": ("batch", 1, "samples"), "s": ("batch", 4, 7)}
    path = write(graph(nodes, inputs, ["y"], constants), tmp_path)
    with pytest.raises(errors.ShapeError) as caught:
        import_model(path, shapes={})
    assert caught.value.hint == "add --shape x:1,1,512 (with the extents that you feed)"
    import_model(path, shapes={"x": (1, 1, 512)})


SAID = {
    "preprocessor_config.json": (
        {"size": {"shortest_edge": 256}, "crop_size": {"height": 240, "width": 320}},
        conv_on("batch", 3, "height", "width"),
        "--shape x:1,3,240,320 (with the extents that you feed; preprocessor_config.json says 240)",
    ),
    "config.json": (
        {"max_position_embeddings": 64},
        graph(
            "y = Gather(e, x)",
            {"x": ("batch", "sequence")},
            ["y"],
            {"e": weights(9, 4)},
            dtype=onnx.TensorProto.INT64,
        ),
        "--shape x:1,64 (with the extents that you feed; config.json says up to 64)",
    ),
}


def test_an_encoders_states_are_as_many_as_its_config_says(tmp_path):
    """As Whisper's decoder, whose first input is not read where there is a past."""
    nodes = "y = ReduceSum <keepdims = 0>(k)"
    inputs = {"hidden_states": ("batch", "steps", 6), "k": ("batch", 2, "steps", 3)}
    path = write(graph(nodes, inputs, ["y"], {}), tmp_path)
    with pytest.raises(errors.ShapeError) as caught:
        import_model(path, shapes={})
    assert "--shape hidden_states:1,1,6 (with" in caught.value.hint
    (tmp_path / "config.json").write_text(json.dumps({"max_source_positions": 15, "d_model": 6}))
    with pytest.raises(errors.ShapeError) as caught:
        import_model(path, shapes={})
    assert (
        "--shape hidden_states:1,15,6 (with the extents that you feed; config" in caught.value.hint
    )


@pytest.mark.parametrize("folder", ["", "onnx"])
@pytest.mark.parametrize("name", SAID)
def test_the_models_own_files_say_first(tmp_path, name, folder):
    said, model, hint = SAID[name]
    (tmp_path / name).write_text(json.dumps(said))
    (tmp_path / folder).mkdir(exist_ok=True)
    path = write(model, tmp_path / folder)
    with pytest.raises(errors.ShapeError) as caught:
        import_model(path, shapes={})
    assert hint in caught.value.hint


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def read(path: Path, **shapes: tuple[int, ...]) -> State:
    return run_until("read_graph", path, "adreno", shapes=tuple(shapes.items()))


def found(
    tmp_path: Path, nodes: str, shape: tuple[int, ...], constants: dict[str, np.ndarray]
) -> tuple[list[Along], str]:
    model = graph(nodes, {"x": ("n", *shape[1:])}, ["y"], constants)
    state = read(write(model, tmp_path), x=shape)
    along, refused = find_batch(state.graph, [state.graph.inputs[0]])
    return list(along.values()), refused


ATTENTION = (
    "q = MatMul(x, w) h = Reshape(q, split) t = Transpose <perm = [0, 2, 1, 3]>(h) "
    "k = Transpose <perm = [0, 2, 3, 1]>(h) s = MatMul(t, k) p = Softmax <axis = -1>(s) "
    "o = MatMul(p, t) b = Transpose <perm = [0, 2, 1, 3]>(o) r = Reshape(b, rows) "
    "y = LayerNormalization <axis = -1>(r, g, g)"
)


def test_convolutions_pools_and_a_head(tmp_path):
    nodes = (
        "a = Conv <pads = [1, 1, 1, 1]>(x, w) "
        "b = MaxPool <kernel_shape = [2, 2], strides = [2, 2]>(a) "
        'c = Resize <mode = "nearest">(b, , two) d = GlobalAveragePool(c) e = Flatten(d) '
        "f = Gemm(e, k) y = Softmax <axis = 1>(f)"
    )
    constants = {"w": weights(4, 3, 3, 3), "k": weights(4, 5), "two": np.float32([1, 1, 2, 2])}
    assert found(tmp_path, nodes, (3, 3, 8, 8), constants) == ([Along(0)], "")


def test_attention_whose_rows_are_flattened_with_the_batch(tmp_path):
    constants = {
        "w": weights(8, 8),
        "split": ints(0, 0, 2, 4),
        "rows": ints(-1, 8),
        "g": weights(8),
    }
    along, refused = found(tmp_path, ATTENTION, (3, 5, 8), constants)
    assert (along, refused) == ([Along(0, 5)], "")


@pytest.mark.parametrize(
    "nodes",
    [
        "y = ReduceMean <axes = [0], keepdims = 1>(x)",
        "y = Softmax <axis = 0>(x)",
        "y = CumSum(x, zero)",
        "t = Transpose <perm = [1, 0]>(x) y = MatMul(t, x)",
        "y = Slice(x, back, far, axis, back)",
        "y = Add(x, rows)",
        "y = Reshape(x, turned)",
        "y = Concat <axis = 0>(x, row)",
    ],
)
def test_what_mixes_is_refused(tmp_path, nodes):
    constants = {"back": ints(-1), "far": ints(-99), "axis": ints(0), "turned": ints(6, 4)}
    constants |= {"zero": np.array(0), "rows": weights(4, 6), "row": weights(4, 6)}
    _, refused = found(tmp_path, nodes, (4, 6), constants)
    assert "batch" in refused


def test_a_constant_that_repeats_along_the_batch_is_free(tmp_path):
    constants = {"rows": np.repeat(weights(1, 6), 4, axis=0)}
    assert found(tmp_path, "y = Add(x, rows)", (4, 6), constants) == ([Along(0)], "")


def test_arithmetic_with_the_size_of_the_batch_shows(tmp_path):
    nodes = "s = Shape(x) n = Gather(s, zero) m = Cast <to = 1>(n) y = Div(x, m)"
    model = graph(nodes, {"x": ("n", 6)}, ["y"], {"zero": np.array(0, np.int64)})
    path = write(model, tmp_path)
    small, large = (read(path, x=(size, 6)).graph for size in (2, 4))
    assert batch_free_constants(small, 2) != batch_free_constants(large, 4)
