"""Vision-language models in parts, as transformers.js has them: an embedding and a decoder of its
rows.

FOLDER/config.json, FOLDER/onnx/embed_tokens.onnx, FOLDER/onnx/decoder_model_merged.onnx
"""

import json
from pathlib import Path

import numpy as np
import onnx
from model_zoo.decoder_shape import DecoderShape
from model_zoo.make_decoders import make_decoder
from onnx import TensorProto, helper

ROWS = "inputs_embeds"


def split_decoder(shape: DecoderShape) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """The embedding of a decoder, and the decoder without it."""
    decoder = make_decoder(shape)
    graph = decoder.graph
    (lookup,) = (n for n in graph.node if "input_ids" in n.input and n.op_type != "Shape")
    (tokens,) = (value for value in graph.input if value.name == "input_ids")
    tables = [one for one in graph.initializer if one.name in lookup.input]
    element = helper.np_dtype_to_tensor_dtype(shape.float_type)
    rows = helper.make_tensor_value_info(ROWS, element, ["batch_size", "sequence", shape.hidden])
    given = lookup.output[0]
    for node in graph.node:
        node.input[:] = [ROWS if name in (given, "input_ids") else name for name in node.input]
    graph.node.remove(lookup)
    lookup.input[:] = ["input_ids" if name == ROWS else name for name in lookup.input]
    lookup.output[:] = [ROWS]
    embedding = helper.make_model(
        helper.make_graph([lookup], "embed_tokens", [tokens], [rows], tables),
        opset_imports=decoder.opset_import,
        ir_version=decoder.ir_version,
    )
    for table in tables:
        graph.initializer.remove(table)
    graph.input.remove(tokens)
    graph.input.insert(0, rows)
    return embedding, decoder


def round_table(embedding: onnx.ModelProto) -> None:
    """Bytes in the table and one scale, as onnxruntime's quantize_dynamic has it."""
    graph = embedding.graph
    (table,) = graph.initializer
    values = onnx.numpy_helper.to_array(table)
    scale = abs(values).max() / 127
    numbers = (values / scale).round().astype("int8")
    table.CopyFrom(onnx.numpy_helper.from_array(numbers, table.name))
    for name, value in (("scale", values.dtype.type(scale)), ("zero", numbers.dtype.type(0))):
        graph.initializer.append(onnx.numpy_helper.from_array(value, f"{table.name}/{name}"))
    (node,) = graph.node
    node.output[:] = ["numbers"]
    opened = ["numbers", f"{table.name}/scale", f"{table.name}/zero"]
    graph.node.append(helper.make_node("DequantizeLinear", opened, [ROWS]))


def write_parts(
    folder: Path, shape: DecoderShape, embedding: onnx.ModelProto, decoder: onnx.ModelProto
) -> None:
    """Both models with the configuration of their makers one folder up."""
    (folder / "onnx").mkdir(parents=True)
    onnx.save(embedding, folder / "onnx" / "embed_tokens.onnx")
    onnx.save(decoder, folder / "onnx" / "decoder_model_merged.onnx")
    text = {"max_position_embeddings": shape.context}
    config = {"text_config": text, "eos_token_id": shape.vocabulary - 1}
    (folder / "config.json").write_text(json.dumps(config))


def store_halves(embedding: onnx.ModelProto) -> None:
    """Rows in float16, as where parts are of different numbers."""
    (rows,) = embedding.graph.output
    rows.type.tensor_type.elem_type = TensorProto.FLOAT16
    (table,) = embedding.graph.initializer
    values = onnx.numpy_helper.to_array(table).astype("float16")
    table.CopyFrom(onnx.numpy_helper.from_array(values, table.name))


PATCH, SIDE = 4, 12
"""Pixels of a patch, and of an image, on a side: nine rows."""


def make_encoder(shape: DecoderShape) -> onnx.ModelProto:
    """Pictures to rows, as SmolVLM's vision encoder has it: those of zeros alone are left out.

    [1, 1, 3, H, W] and a mask of pixels to [1, rows, hidden].
    """
    draw = np.random.default_rng(9)
    weights = {
        "patches": draw.normal(size=(24, 3, PATCH, PATCH)) * 0.3,
        "projector": draw.normal(size=(24, shape.hidden)) * 0.3,
    }
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    encoder (float[batch, images, 3, height, width] pixel_values,
             bool[batch, images, height, width] pixel_attention_mask)
        => (float[images, rows, {shape.hidden}] image_features)
        <int64[4] pictures = {{-1, 3, {SIDE}, {SIDE}}}, int64[4] masks = {{-1, 1, {SIDE}, {SIDE}}},
         int64[3] flat = {{0, 24, -1}}, float zero = {{0}}, int64[3] axes = {{1, 2, 3}},
         int64 all = {{{3 * SIDE * SIDE}}}> {{
      each = Reshape (pixel_values, pictures)
      dark = Equal (each, zero)
      counts = Cast <to = 7> (dark)
      count = ReduceSum <keepdims = 0> (counts, axes)
      empty = Equal (count, all)
      real = Not (empty)
      found = NonZero (real)
      places = Transpose (found)
      kept = GatherND (each, places)
      mask = Reshape (pixel_attention_mask, masks)
      kept_mask = GatherND (mask, places)
      there = Cast <to = 1> (kept_mask)
      masked = Mul (kept, there)
      seen = Conv <strides = [{PATCH}, {PATCH}]> (masked, patches)
      wide = Tanh (seen)
      columns = Reshape (wide, flat)
      rows = Transpose <perm = [0, 2, 1]> (columns)
      image_features = MatMul (rows, projector)
    }}"""
    model = onnx.parser.parse_model(text)
    for name, value in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(value.astype(np.float32), name))
    return model
