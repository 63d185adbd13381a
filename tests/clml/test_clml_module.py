"""The runtime module of a region: its bytes, its graph, what it says of itself, its memory."""

import json
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax

from adrenoc.clml.region import runtime_module
from tests.clml.regions import by_emulator, constant, cut, load, make, module_of, plain, random
from tests.stock_tvm import run_on_cpu

nn = relax.op.nn


def test_by_clml(device, emulate):
    emulate()
    region = load(make, device)
    region.run()
    facts = region.facts()
    assert facts["used"] and facts["library"] == "emulator" and facts["reason"] == ""
    assert facts["versions"] == "1.0, 2.0, 3.0, 4.0"
    assert facts["operators"] == 19
    assert facts["inner_copies"] == 3  # to rows and back for the softmax, to rows for the product
    assert (facts["border_copies"], facts["shared"]) == (1, 1)  # the result is of rows
    assert not facts["recorded"] and facts["memory_bytes"] > 0


def test_a_recording_is_replayed(device, emulate):
    region = load(plain, device)
    for recording in (True, False):
        emulate(recording=recording)
        region.run()
        region.run()
        assert region.facts()["recorded"] == recording


def _rows(emit, x, y):
    """Rows alone: a product and a softmax, with a ReLU between, which needs another layout."""
    value = emit(nn.relu(emit(relax.op.matmul(x, y))))
    return nn.softmax(value, -1)


def test_rows_lie_in_the_memory_of_the_caller(device, emulate):
    shapes = ((1, 4, 5), (1, 5, 6))
    module = module_of(_rows, *shapes)
    emulate()
    for turn in range(2):  # other tensors, other memory
        inputs = [random(*s, seed=i + turn) for i, s in enumerate(shapes)]
        (value,) = by_emulator(module, device, inputs, dtype="float32")
        assert np.allclose(value, run_on_cpu(module, inputs)[0], atol=1e-5)


def test_shared_memory_is_looked_up_in_each_run(device, emulate):
    def product(emit, x):
        value = emit(nn.relu(emit(relax.op.matmul(x, constant(random(8, 8))))))
        return relax.op.matmul(emit(relax.op.reshape(value, (1, 48, 8))), constant(random(8, 8)))

    module = module_of(product, (1, 48, 8))
    (region,) = cut(module).regions
    runtime = runtime_module(region)
    constants = [tvm.runtime.tensor(value) for _, value in region.constants()]
    runtime[f"__init_{region.symbol}"](constants)
    emulate()
    kept = []  # so that no memory comes twice
    for turn in range(3):
        data = random(1, 48, 8, seed=turn)
        kept += [tvm.runtime.tensor(data, device), tvm.runtime.empty((1, 48, 8), "float32", device)]
        runtime[region.symbol](*kept[-2:])
        assert np.allclose(kept[-1].numpy(), run_on_cpu(module, [data])[0], atol=1e-4)
        facts = runtime["adrenoc.clml.prepare"](0)
        assert (facts["shared"], facts["border_copies"]) == (2, 0)
    for turn in range(3):  # nothing was written into another run's memory
        data = random(1, 48, 8, seed=turn)
        assert np.array_equal(kept[2 * turn].numpy(), data)
        assert np.allclose(kept[2 * turn + 1].numpy(), run_on_cpu(module, [data])[0], atol=1e-4)


def test_a_recording_keeps_its_memory(device, emulate):
    """A region of rows without a copy inside is recorded, and copies at its border instead."""
    softmax = module_of(lambda _, x: nn.softmax(x, -1), (1, 4, 5))
    for recording in (True, False):
        emulate(recording=recording)
        data = [random(1, 4, 5)]
        (value,) = by_emulator(softmax, device, data, dtype="float32")
        assert np.allclose(value, run_on_cpu(softmax, data)[0], atol=1e-6)


def _module(graph: dict[str, Any], constants: list[str] = []):  # noqa: B006
    create = tvm_ffi.get_global_func("runtime.clml_runtime_create")
    return create("sym_openclml", json.dumps(graph), constants)


_GRAPH: dict[str, Any] = {
    "nodes": [
        {"op": "input", "name": "x", "attrs": {"shape": [[1, 3]], "dtype": ["float32"]}},
        {
            "op": "kernel",
            "name": "openclml.relax.nn.relu",
            "inputs": [[0, 0, 0]],
            "attrs": {
                "shape": [[1, 3]],
                "dtype": ["float32"],
                "activation_type": "relu",
                "num_inputs": 1,
                "num_outputs": 1,
            },
        },
    ],
    "arg_nodes": [0],
    "heads": [[1, 0, 0]],
    "node_row_ptr": [0, 1, 2],
}


def test_bytes_of_a_module(device):
    """Symbol, graph, names of the constants, each after its length: the form of TVM's runtime."""
    graph = json.dumps(_GRAPH).encode()
    wanted = b"".join(
        len(part).to_bytes(8, "little") + part for part in (b"sym_openclml", graph)
    ) + (0).to_bytes(8, "little")
    load = tvm_ffi.get_global_func("ffi.Module.load_from_bytes.clml")
    loaded = load(wanted)
    assert loaded.kind == "clml"
    assert loaded["get_symbol"]() == "sym_openclml"
    assert list(loaded["get_const_vars"]()) == []
    assert json.loads(loaded.inspect_source()) == _GRAPH
    for length in range(0, len(wanted) - 1, 7):
        with pytest.raises(ValueError, match="damaged"):
            load(wanted[:length])


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda g: g.pop("heads"), "lacks the key `heads`"),
        (lambda g: g["nodes"][1].pop("attrs"), "lacks the key `attrs`"),
        (lambda g: g["nodes"][1].update(inputs=[[1, 0, 0]]), "names node 1"),
        (lambda g: g["nodes"][1].update(inputs=[[0, 1, 0]]), "a further output"),
        (lambda g: g["nodes"][1].update(op="tuple"), "is a `tuple`"),
        (lambda g: g["nodes"][0]["attrs"].update(dtype=["int8"]), "holds int8"),
        (lambda g: g["nodes"][0]["attrs"].update(shape=[[0, 3]]), "has the extent 0"),
        (lambda g: g["nodes"][0]["attrs"].update(shape=[[1] * 5]), "a rank above four"),
        (lambda g: g["nodes"][0]["attrs"].update(shape="no"), "another type"),
        (lambda g: g.update(heads=[[0, 0, 0]]), "not the result of an operator"),
        (lambda g: g.update(heads=[]), "it has no output"),
    ],
)
def test_damaged_graphs(device, damage, said):
    graph = json.loads(json.dumps(_GRAPH))
    damage(graph)
    with pytest.raises(ValueError, match="the CLML graph") as caught:
        _module(graph)
    assert said in str(caught.value)


def test_an_unknown_operator_is_refused_when_it_is_prepared(device, emulate):
    graph = json.loads(json.dumps(_GRAPH))
    graph["nodes"][1]["name"] = "openclml.nn.fancy"
    emulate()
    x = tvm.runtime.tensor(random(1, 3), device)
    assert not _module(graph)["sym_openclml_usable"](1, x)


def test_wrong_arguments(device, emulate):
    emulate()
    module = _module(_GRAPH)
    x, y = (tvm.runtime.tensor(random(1, 3), device) for _ in range(2))
    module["sym_openclml"](x, y)
    assert np.array_equal(y.numpy(), np.maximum(x.numpy(), 0))
    with pytest.raises(ValueError, match="takes 1 inputs and 1 outputs, got 1"):
        module["sym_openclml"](x)
    with pytest.raises(ValueError, match="another shape or dtype"):
        module["sym_openclml"](tvm.runtime.tensor(random(1, 4), device), y)
    with pytest.raises(ValueError, match="whole buffers of an OpenCL device"):
        module["sym_openclml"](tvm.runtime.tensor(random(1, 3)), y)
    assert not module["sym_openclml_usable"](1, tvm.runtime.tensor(random(1, 3)))


def test_a_constant_too_few(device):
    with pytest.raises(ValueError, match="reads 0 constants, but 1 are named"):
        _module(_GRAPH, ["c"])
    module = _module(_GRAPH)
    with pytest.raises(ValueError, match="reads 0 constants, but was given 1"):
        module["__init_sym_openclml"]([tvm.runtime.tensor(random(1))])


@pytest.mark.parametrize(
    ("settings", "said"), [("[]", "of another type"), ('{"speed": 1}', "no setting `speed`")]
)
def test_wrong_settings(device, settings, said):
    with pytest.raises(ValueError, match=said):
        tvm_ffi.get_global_func("adrenoc.clml.emulate")(settings)


def test_extents_that_a_run_alone_tells_are_refused_when_it_is_prepared(device, emulate):
    graph = json.loads(json.dumps(_GRAPH))
    for node in graph["nodes"]:
        node["attrs"]["shape"] = [[1, -1]]
    emulate()
    module = _module(graph)
    assert not module["sym_openclml_usable"](1, tvm.runtime.tensor(random(1, 3), device))
    assert "an extent that a run alone tells" in module["adrenoc.clml.prepare"](0)["reason"]
