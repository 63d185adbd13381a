"""A decoder that also looks at what an encoder has made, and the encoder, as Whisper's are; seeded.

The encoder gives keys and values for each layer, as onnxruntime-genai's builder writes it, or
hidden states, of which optimum's first call of the decoder makes them.
"""

import numpy as np
import onnx
from model_zoo.decoder_shape import DecoderShape
from model_zoo.plain_decoders import PlainDecoder
from onnx import TensorProto, helper

FRAMES, FEATURES = 12, 8
"""Of what the encoder takes: [1, features, frames]."""
_HIDDEN = 32


class CrossDecoder(PlainDecoder):
    """A decoder of standard operators with attention over an encoder's keys and values.

    `masked` ones read which of the encoder's rows count, as T5's and Marian's do.
    """

    masked = False

    def attention(self, prefix: str, layer: int, x: str) -> str:
        """The tokens' own attention, and that over the encoder's rows."""
        s, at = self.shape, f"{prefix}/cross"
        own = super().attention(prefix, layer, x)
        keys, values = (f"past_key_values.{layer}.encoder.{kind}" for kind in ("key", "value"))
        self.product(f"{at}/q_proj", x, s.hidden, s.heads * s.head, out=f"{at}/q")
        split = self.constant(f"{at}/heads", np.array([0, 0, s.heads, s.head], np.int64))
        self.node("Reshape", [f"{at}/q", split], [f"{at}/split"])
        self.node("Transpose", [f"{at}/split"], [f"{at}/apart"], perm=[0, 2, 1, 3])
        self.node("Transpose", [keys], [f"{at}/turned"], perm=[0, 1, 3, 2])
        self.node("MatMul", [f"{at}/apart", f"{at}/turned"], [f"{at}/products"])
        self.floats(f"{at}/scale", np.array(s.head**-0.5))
        self.node("Mul", [f"{at}/products", f"{at}/scale"], [f"{at}/scores"])
        if self.masked:
            one, far = (self.floats(f"{at}/{v:g}", np.array(v)) for v in (1.0, 1e4))
            self.node("Sub", ["encoder_attention_mask", one], [f"{at}/off"])
            self.node("Mul", [f"{at}/off", far], [f"{at}/bias"])
            self.node("Add", [f"{at}/scores", f"{at}/bias"], [f"{at}/masked"])
        seen = f"{at}/masked" if self.masked else f"{at}/scores"
        self.node("Softmax", [seen], [f"{at}/weights"], axis=-1)
        self.node("MatMul", [f"{at}/weights", values], [f"{at}/mixed"])
        self.node("Transpose", [f"{at}/mixed"], [f"{at}/joined"], perm=[0, 2, 1, 3])
        whole = self.constant(f"{at}/whole", np.array([0, 0, s.heads * s.head], np.int64))
        self.node("Reshape", [f"{at}/joined", whole], [f"{at}/rows"])
        self.product(f"{at}/o_proj", f"{at}/rows", s.heads * s.head, s.hidden, out=f"{at}/out")
        both = f"{at}/both"
        self.node("Add", [own, f"{at}/out"], [both])
        return both

    def finish(self) -> onnx.ModelProto:
        """The model, which also takes the encoder's keys and values."""
        model = super().finish()
        shape = [1, self.shape.heads, FRAMES, self.shape.head]
        for layer in range(self.shape.layers):
            for kind in ("key", "value"):
                name = f"past_key_values.{layer}.encoder.{kind}"
                model.graph.input.append(
                    helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
                )
        if self.masked:
            model.graph.input.append(_float("encoder_attention_mask", [1, FRAMES]))
        return model


def make_cross_decoder(shape: DecoderShape) -> onnx.ModelProto:
    """The decoder; it takes its weights with it."""
    return CrossDecoder(shape).make()


def make_masked_decoder(shape: DecoderShape) -> onnx.ModelProto:
    """The same, which also takes a mask of the encoder's rows."""
    maker = CrossDecoder(shape)
    maker.masked = True
    return maker.make()


def make_encoder(
    shape: DecoderShape, *, gives_keys: bool = True, masked: bool = False
) -> onnx.ModelProto:
    """Features to keys and values for each layer of the decoder, or to hidden states."""
    graph = _Graph(seed=5)
    graph.node("Transpose", ["input_features"], "frames", perm=[0, 2, 1])
    graph.node("MatMul", ["frames", graph.weight("in", FEATURES, _HIDDEN)], "wide")
    inputs = [_float("input_features", [1, FEATURES, FRAMES])]
    if masked:
        inputs.append(_float("attention_mask", [1, FRAMES]))
        apart = graph.constant("column", np.array([1, FRAMES, 1], np.int64))
        graph.node("Reshape", ["attention_mask", apart], "counts")
        graph.node("Mul", ["wide", "counts"], "counted")
    graph.node("Tanh", ["counted" if masked else "wide"], "last_hidden_state")
    outputs = [_float("last_hidden_state", [1, FRAMES, _HIDDEN])]
    if gives_keys:
        outputs = graph.write_keys(shape, "last_hidden_state")
    return graph.finish(inputs, outputs)


def make_first_call(shape: DecoderShape) -> onnx.ModelProto:
    """Hidden states to keys and values, beside tokens of which nothing comes that counts here."""
    graph = _Graph(seed=6)
    graph.node("Cast", ["input_ids"], "logits", to=TensorProto.FLOAT)
    outputs = [_float("logits", [1, 1]), *graph.write_keys(shape, "encoder_hidden_states")]
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, 1])
    return graph.finish([ids, _float("encoder_hidden_states", [1, FRAMES, _HIDDEN])], outputs)


class _Graph:
    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []

    def weight(self, name: str, rows: int, columns: int) -> str:
        value = self._random.normal(size=(rows, columns)) * 1.5 * rows**-0.5
        return self.constant(name, value.astype(np.float32))

    def constant(self, name: str, value: np.ndarray) -> str:
        self._weights.append(onnx.numpy_helper.from_array(value, name))
        return name

    def node(self, op: str, inputs: list[str], output: str, **attrs) -> None:
        self._nodes.append(helper.make_node(op, inputs, [output], **attrs))

    def write_keys(self, shape: DecoderShape, hidden: str) -> list[onnx.ValueInfoProto]:
        """Keys and values of each layer; the outputs that they are."""
        outputs = []
        form = np.array([1, FRAMES, shape.heads, shape.head], np.int64)
        apart = self.constant("apart", form)
        for layer in range(shape.layers):
            for kind in ("key", "value"):
                name = f"present.{layer}.encoder.{kind}"
                matrix = self.weight(f"{name}/weight", _HIDDEN, shape.heads * shape.head)
                self.node("MatMul", [hidden, matrix], f"{name}/flat")
                self.node("Reshape", [f"{name}/flat", apart], f"{name}/split")
                self.node("Transpose", [f"{name}/split"], name, perm=[0, 2, 1, 3])
                outputs.append(_float(name, [1, shape.heads, FRAMES, shape.head]))
        return outputs

    def finish(
        self, inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto]
    ) -> onnx.ModelProto:
        graph = helper.make_graph(self._nodes, "encoder", inputs, outputs, self._weights)
        opsets = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _float(name: str, shape: list[int]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
