"""Caches of bytes: where ours and onnxruntime's differ, a number lay between two whole ones.

Every value of one row is put there by its scale, but for the last bits of a float, which no two
sums of the same products share.  Each such value is off by one count at most, all other values are
the same, and onnxruntime makes our logits of our cache: their error is that of these counts.
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from adrenoc.device.generate import Decoder
from adrenoc.device.run import local_place
from adrenoc.importers.onnx.session import open_session
from tests.host.decoder_bundles import DecoderShape, make_decoder_bundle, write_decoder

SHAPE = DecoderShape(layers=1, context=24, cache_bits=8, packed=False)
TOKENS = (3, 5, 7, 11, 2, 9, 44, 23, 1, 60, 8, 30)
ROW = 2
"""The token whose keys and values lie at edges: few others share the attention with it."""
COUNTS = 20
"""How many counts they have: half a count beside that is the edge."""
NEAR = 2e-5
"""In counts: a few last bits of a float of this size."""


def run_whole(model: Path, **pasts: np.ndarray) -> dict[str, np.ndarray]:
    """What onnxruntime makes of the tokens that the pasts do not hold yet."""
    session = open_session(model)
    empty = {
        port.name: np.zeros((1, 2, 0, 16), np.int8 if port.type == "tensor(int8)" else np.float32)
        for port in session.get_inputs()
        if port.name.startswith("past")
    }
    there = next(iter(pasts.values())).shape[2] if pasts else 0
    feeds = {
        "input_ids": np.array([TOKENS[there:]], np.int64),
        "attention_mask": np.ones((1, len(TOKENS)), np.int64),
    }
    names = [port.name for port in session.get_outputs()]
    return dict(zip(names, session.run(None, {**feeds, **empty, **pasts}), strict=True))


def open_caches(model: Path) -> Path:
    """The same decoder with caches of floats: what they hold before it is rounded."""
    proto = onnx.load(model)
    (node,) = [n for n in proto.graph.node if n.op_type == "GroupQueryAttention"]
    node.input[12] = node.input[13] = ""
    while not node.input[-1]:
        node.input.pop()
    kept = [a for a in node.attribute if "quant" not in a.name and "bit_width" not in a.name]
    del node.attribute[:]
    node.attribute.extend(kept)
    for value in (*proto.graph.input, *proto.graph.output):
        if value.type.tensor_type.elem_type == TensorProto.INT8:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    path = model.with_name("opened.onnx")
    onnx.save(proto, path)
    return path


def put_at_edges(model: Path, exact: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Scales by which all that a row holds lies between two whole numbers; those scales."""
    proto = onnx.load(model)
    found = {}
    for tensor in proto.graph.initializer:
        if tensor.name.endswith(("k_scale", "v_scale")):
            kind = "key" if tensor.name.endswith("k_scale") else "value"
            held = exact[f"present.0.{kind}"][0, :, ROW].reshape(-1)
            scales = (np.abs(held).astype(np.float64) / (COUNTS + 0.5)).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(scales, tensor.name))
            found[f"present.0.{kind}"] = scales.reshape(1, 2, 1, 16)
    onnx.save(proto, model)
    return found


def test_counts_that_differ_lie_at_edges(device, tmp_path):
    model = write_decoder(tmp_path, SHAPE)
    exact = run_whole(open_caches(model))
    scales = put_at_edges(model, exact)
    wanted = run_whole(model)
    bundle, _ = make_decoder_bundle(model, "fp32")
    with local_place(bundle, "") as place:
        decoder = Decoder(place, bundle)
        decoder.take_in(TOKENS[:-1])
        before = {n: np.array(decoder.read_cache(n)) for n in bundle.manifest.states}
        _, logits = decoder.step(TOKENS[-1], logits=True)
        after = {n: np.array(decoder.read_cache(n)) for n in bundle.manifest.states}
    others = 0
    for name, mine in after.items():
        present = name.replace("past_key_values", "present")
        apart = np.abs(mine.astype(int) - wanted[present].astype(int))
        counts = np.abs(exact[present].astype(np.float64) / scales[present])
        to_edge = np.abs(counts - np.floor(counts) - 0.5)
        assert (to_edge[:, :, ROW] < NEAR).all()
        assert apart.max() <= 1
        assert (to_edge[apart > 0] < NEAR).all()
        others += int((apart > 0).sum())
    assert others > 8  # of 64 that could go either way
    off = np.abs(logits - wanted["logits"][0, -1]).max() / np.ptp(wanted["logits"][0, -1])
    assert off > 1e-4
    again = run_whole(model, **before)["logits"][0, -1]
    assert np.abs(logits - again).max() / np.ptp(again) < 1e-6
