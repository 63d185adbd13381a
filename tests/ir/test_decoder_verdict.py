"""What `adrenoc check` says of a decoder with caches."""

import json
from pathlib import Path

import onnx
import pytest
from onnx import helper

from tests.commands import invoke, succeed
from tests.host.decoder_bundles import DecoderShape, write_decoder
from tests.models import write_network

SHAPE = DecoderShape(layers=2, context=300)


def check(model: Path, *options: str) -> dict[str, object]:
    done = succeed("check", model, "--device", "adreno:750", "--json", *options)
    return dict(json.loads(done.output)["decoder"] or {})


@pytest.mark.parametrize(("preset", "bytes_each"), [("fp32", 4), ("mixed", 2)])
def test_what_a_token_takes(tmp_path, preset, bytes_each):
    model = write_decoder(tmp_path, SHAPE)
    usual = check(model, "--preset", preset)
    shorter = check(model, "--preset", preset, "--context", "150")
    cache = SHAPE.layers * 2 * SHAPE.kv_heads * SHAPE.head * bytes_each
    assert (usual["rows"], shorter["rows"]) == (300, 150)
    assert (usual["cache_bytes"], shorter["cache_bytes"]) == (300 * cache, 150 * cache)
    assert usual["weight_bytes"] == shorter["weight_bytes"]
    # Four bits a weight with a scale each block, and no more than that of the embedding's table.
    products = (
        SHAPE.layers
        * SHAPE.hidden
        * (2 * SHAPE.heads * SHAPE.head + 2 * SHAPE.kv_heads * SHAPE.head + 3 * SHAPE.mlp)
    )
    packed = (products + SHAPE.vocabulary * SHAPE.hidden) * (0.5 + bytes_each / SHAPE.block)
    assert packed <= int(str(usual["weight_bytes"])) < 1.1 * packed
    empty, full = (float(str(usual[key])) for key in ("tokens_per_s", "full_tokens_per_s"))
    assert empty / full == pytest.approx(1 + 300 * cache / int(str(usual["weight_bytes"])))


def test_states_alone_make_no_decoder(tmp_path):
    """What a network of sound keeps from step to step are no caches of tokens."""
    # ONNX operator reference, LinearAttention-27.
    step, state = [2, 1, 32], [2, 4, 8, 8]
    inputs = {"q": step, "k": step, "v": step, "past": state, "decay": step, "beta": [2, 1, 4]}
    outputs = {"output": step, "present": state}
    node = helper.make_node("LinearAttention", [*inputs], [*outputs], q_num_heads=4, kv_num_heads=4)
    ends = (
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in of]
        for of in (inputs.items(), outputs.items())
    )
    opsets = [helper.make_opsetid("", 27)]
    model = helper.make_model(helper.make_graph([node], "g", *ends), opset_imports=opsets)
    onnx.save(model, tmp_path / "model.onnx")
    assert check(tmp_path / "model.onnx") == {}


def test_a_context_is_of_decoders(tmp_path):
    model = write_network(tmp_path, "mobilenet_v2")
    done = invoke("check", model, "--device", "host", "--context", "9", catch=True)
    assert done.exit_code == 2
    assert "--context and --prefill are for decoders" in done.output
