"""Decoders as onnxruntime-genai's builder writes them, of any extents, with seeded weights.

The graph is the one of its `cpu` int4 files: MatMulNBits in blocks, norms with their residual sums,
GroupQueryAttention with the rotation inside, past and present keys and values as inputs and
outputs, no position_ids; on request that of its `cuda` (float16) and `dml` (rotation apart) files.
Weights have a decaying spectrum, so that logits are not flat.
"""

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from model_zoo.decoder_shape import DecoderShape
from model_zoo.few_bits import quantise

OPSET = 21
CONTRIB = "com.microsoft"
_RANK = 24
"""Directions that a weight matrix has beside its noise."""
_NOISE = 0.3
"""Size of the noise beside the directions."""


class Decoder:
    """The nodes and weights of one decoder, from the embedding to the logits."""

    def __init__(self, shape: DecoderShape) -> None:
        self.shape = shape
        self.random = np.random.default_rng(shape.seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def make(self) -> onnx.ModelProto:
        s = self.shape
        self.lengths()
        root = self.embedding()
        skip = ""
        for layer in range(s.layers):
            prefix = f"/model/layers.{layer}"
            root, normed = self.norm(f"{prefix}/input_layernorm", root, skip)
            if s.has_state(layer):
                add = add_linear_attention if s.linear else add_short_conv
                mixed = add(self, prefix, layer, normed)
            else:
                mixed = self.attention(prefix, layer, normed)
            root, normed = self.norm(f"{prefix}/post_attention_layernorm", root, mixed)
            skip = self.mlp(prefix, normed)
        _, normed = self.norm("/model/final_norm", root, skip, last=True)
        self.product("/lm_head", normed, s.hidden, s.vocabulary, gain=6.0, out="logits")
        return self.finish()

    # Parts

    def lengths(self) -> None:
        """The mask's part: how many tokens there are in all, less one, and the mask's length."""
        self.constant("one", np.array([1], np.int64))
        self.constant("one_scalar", np.array(1, np.int64))
        self.node("ReduceSum", ["attention_mask", "one"], ["mask/sum"], keepdims=0)
        self.node("Sub", ["mask/sum", "one"], ["mask/less_one"])
        self.node("Cast", ["mask/less_one"], ["seqlens_k"], to=TensorProto.INT32)
        self.node("Shape", ["attention_mask"], ["mask/shape"])
        self.node("Gather", ["mask/shape", "one_scalar"], ["mask/length"], axis=0)
        self.node("Cast", ["mask/length"], ["total_length"], to=TensorProto.INT32)
        angles = self._angles()
        self.floats("cos_cache", np.cos(angles))
        self.floats("sin_cache", np.sin(angles))
        if self.shape.slopes:
            self._slopes()

    def _angles(self) -> np.ndarray:
        s = self.shape
        frequencies = s.theta ** (-np.arange(0, s.head, 2) / s.head)
        return np.arange(s.context)[:, None] * frequencies[None]

    def embedding(self) -> str:
        s = self.shape
        table = self.weights(s.vocabulary, s.hidden) * np.sqrt(s.hidden)
        if s.embedding_bits == 0:
            self.floats("embed", table)
            self.node("Gather", ["embed", "input_ids"], ["embedded"])
            return "embedded"
        packed, scales, zeros = quantise(table, s.block, zeros=s.zeros)
        self.constant("embed_q", packed.reshape(s.vocabulary, -1))
        self.floats("embed_s", scales)
        inputs = ["embed_q", "input_ids", "embed_s"]
        if zeros is not None:
            self.constant("embed_z", zeros)
            inputs.append("embed_z")
        attrs = {"bits": 4, "block_size": s.block, "gather_axis": 0, "quantize_axis": 1}
        self.contrib("GatherBlockQuantized", inputs, ["embedded"], **attrs)
        return "embedded"

    def norm(self, name: str, root: str, skip: str, *, last: bool = False) -> tuple[str, str]:
        """The residual sum and its norm."""
        weight = self.floats(f"{name}/weight", self.gains(self.shape.hidden))
        out = f"{name}/out"
        attrs = {"axis": -1, "epsilon": 1e-6, "stash_type": 1}
        if not skip:
            self.node("SimplifiedLayerNormalization", [root, weight], [out], **attrs)
            return root, out
        outputs = [out] if last else [out, "", "", f"{name}/sum"]
        self.contrib(
            "SkipSimplifiedLayerNormalization", [root, skip, weight], outputs, epsilon=1e-6
        )
        return f"{name}/sum", out

    def _project(self, prefix: str, x: str, widths: list[int]) -> list[str]:
        """Queries, keys and values; the first alone holds them all where they stay packed."""
        s = self.shape
        names = [f"{prefix}/attn/{letter}" for letter in "qkv"]
        if s.packed:
            whole = f"{prefix}/attn/qkv_proj"
            self.product(whole, x, s.hidden, sum(widths), biased=s.biased, out=f"{whole}/out")
            q, k, v = f"{whole}/out", "", ""
            if (s.kind == "qwen3" and not s.fused_norms) or s.rotary_apart:
                sizes = self.constant(f"{whole}/sizes", np.array(widths, np.int64))
                self.node("Split", [q, sizes], names, axis=-1)
                q, k, v = names
        else:
            for name, width in zip(names, widths, strict=True):
                biased = s.biased and name[-1] in s.biased
                self.product(f"{name}_proj", x, s.hidden, width, biased=biased, out=name)
            q, k, v = names
        return [q, k, v]

    def attention(self, prefix: str, layer: int, x: str) -> str:
        s = self.shape
        widths = [s.heads * s.head, s.kv_heads * s.head, s.kv_heads * s.head]
        q, k, v = self._project(prefix, x, widths)
        norms = ["", ""]
        if s.kind == "qwen3" and s.fused_norms:
            norms = [
                self.floats(f"{prefix}/attn/{letter}_norm/weight", self.gains(s.head))
                for letter in "qk"
            ]
        elif s.kind == "qwen3":
            q = self._head_norm(f"{prefix}/attn/q_norm", q, widths[0])
            k = self._head_norm(f"{prefix}/attn/k_norm", k, widths[1])
        if s.rotary_apart:
            q = self._rotate(f"{prefix}/attn/q_rotary", q)
            k = self._rotate(f"{prefix}/attn/k_rotary", k)
        out = f"{prefix}/attn/out"
        past = [f"past_key_values.{layer}.{kind}" for kind in ("key", "value")]
        present = [f"present.{layer}.{kind}" for kind in ("key", "value")]
        attrs: dict[str, Any] = {
            "num_heads": s.heads,
            "kv_num_heads": s.kv_heads,
            "scale": float(s.head**-0.5),
            "do_rotary": int(not s.rotary_apart),
            "rotary_interleaved": 0,
            "local_window_size": s.window if s.has_window(layer) else -1,
            "softcap": s.softcap,
        }
        if s.slides and s.has_window(layer):
            attrs["sliding_window_cache"] = 1
        inputs = [q, k, v, *past, "seqlens_k", "total_length"]
        if not s.rotary_apart:
            inputs += ["cos_cache", "sin_cache", *(["position_ids"] if s.positions else [])]
        inputs += [*[""] * (16 - len(inputs))]
        if s.slopes:
            inputs[10] = "attention_bias"
        if s.sinks:
            inputs[11] = self.floats(f"{prefix}/attn/sinks", self.random.uniform(-2, 3, s.heads))
        if s.cache_bits:
            inputs[12:14] = self._cache_scales(f"{prefix}/attn", attrs)
        if norms[0]:
            inputs[14:16] = norms
            attrs["qk_norm_epsilon"] = 1e-6
        while not inputs[-1]:
            inputs.pop()
        self.contrib("GroupQueryAttention", inputs, [out, *present], **attrs)
        mixed = f"{prefix}/attn/o_proj"
        return self.product(mixed, out, widths[0], s.hidden, gain=0.5, out=f"{mixed}/out")

    def _cache_scales(self, name: str, attrs: dict[str, Any]) -> list[str]:
        """Of each channel, for numbers from -4 to 4 or so."""
        s = self.shape
        attrs["k_quant_type"] = attrs["v_quant_type"] = "PER_CHANNEL"
        attrs["kv_cache_bit_width"] = s.cache_bits
        step, channels = 4.0 / (1 << (s.cache_bits - 1)), s.kv_heads * s.head
        scales = [step * self.random.uniform(0.8, 1.2, channels) for _ in range(2)]
        names = (f"{name}/k_scale", f"{name}/v_scale")
        return [
            self.constant(one, value.astype(np.float32))
            for one, value in zip(names, scales, strict=True)
        ]

    def _slopes(self) -> None:
        """What grows with the number of a row, of each head, for each token the same."""
        s = self.shape
        slopes = 2.0 ** -(np.arange(1, s.heads + 1) * 8 / s.heads)
        self.floats("slopes", slopes.reshape(1, s.heads, 1, 1))
        self.constant("axes_to_rows", np.array([1, 2], np.int64))
        self.constant("last_axis", np.array(1, np.int64))
        self.node("CumSum", ["attention_mask", "last_axis"], ["rows/counted"])
        element = helper.np_dtype_to_tensor_dtype(s.float_type)
        self.node("Cast", ["rows/counted"], ["rows/numbers"], to=element)
        self.node("Unsqueeze", ["rows/numbers", "axes_to_rows"], ["rows/apart"])
        self.node("Mul", ["rows/apart", "slopes"], ["rows/biases"])
        self.constant("axes_to_tokens", np.array([1, 3], np.int64))
        self.node("Shape", ["input_ids"], ["tokens/shape"])
        self.node("ConstantOfShape", ["tokens/shape"], ["tokens/zeros"])
        self.node("Cast", ["tokens/zeros"], ["tokens/floats"], to=element)
        self.node("Unsqueeze", ["tokens/floats", "axes_to_tokens"], ["tokens/apart"])
        self.node("Add", ["rows/biases", "tokens/apart"], ["attention_bias"])

    def _rotate(self, name: str, x: str) -> str:
        """The rotation by a node of its own."""
        inputs = [x, "position_ids", "cos_cache", "sin_cache"]
        op: str = "RotaryEmbedding"
        attrs: dict[str, Any] = {}
        if self.shape.streams:
            third = self.shape.head // 2 // 3
            sections = [self.shape.head // 2 - 2 * third, third, third]
            heads = self.shape.heads if "q_rotary" in name else self.shape.kv_heads
            op = "MRotaryEmbedding"
            attrs = {"mrope_section": sections, "mrope_layout": 1, "num_heads": heads}
            attrs["rotary_embedding_dim"] = self.shape.head
        self.contrib(op, inputs, [f"{name}/out"], interleaved=0, **attrs)
        return f"{name}/out"

    def _head_norm(self, name: str, x: str, width: int) -> str:
        """The norm over each head, as it stands before the attention."""
        s = self.shape
        heads = self.constant(f"{name}/heads", np.array([0, -1, s.head], np.int64))
        whole = self.constant(f"{name}/whole", np.array([0, -1, width], np.int64))
        weight = self.floats(f"{name}/weight", self.gains(s.head))
        self.node("Reshape", [x, heads], [f"{name}/split"])
        self.node(
            "SimplifiedLayerNormalization",
            [f"{name}/split", weight],
            [f"{name}/normed"],
            axis=-1,
            epsilon=1e-6,
            stash_type=1,
        )
        self.node("Reshape", [f"{name}/normed", whole], [f"{name}/out"])
        return f"{name}/out"

    def mlp(self, prefix: str, x: str) -> str:
        s, mlp = self.shape, f"{prefix}/mlp"
        self.product(f"{mlp}/gate_proj", x, s.hidden, s.mlp, out=f"{mlp}/gate")
        self.product(f"{mlp}/up_proj", x, s.hidden, s.mlp, out=f"{mlp}/up")
        self.node("Sigmoid", [f"{mlp}/gate"], [f"{mlp}/sigmoid"])
        self.node("Mul", [f"{mlp}/gate", f"{mlp}/sigmoid"], [f"{mlp}/silu"])
        self.node("Mul", [f"{mlp}/silu", f"{mlp}/up"], [f"{mlp}/gated"])
        return self.product(
            f"{mlp}/down_proj", f"{mlp}/gated", s.mlp, s.hidden, gain=0.5, out=f"{mlp}/out"
        )

    def product(
        self,
        name: str,
        x: str,
        k: int,
        n: int,
        *,
        gain: float = 1.0,
        biased: bool | str = False,
        out: str = "",
    ) -> str:
        s = self.shape
        if biased:
            self.product(name, x, k, n, gain=gain, out=f"{name}/unbiased")
            offsets = self.floats(f"{name}/bias", self.random.standard_normal(n) * 0.3)
            self.node("Add", [f"{name}/unbiased", offsets], [out])
            return out
        weight = self.weights(n, k) * gain
        if s.bits == 0:
            self.floats(f"{name}/weight", weight.T)
            self.node("MatMul", [x, f"{name}/weight"], [out])
            return out
        packed, scales, zeros = quantise(weight, s.block, zeros=s.zeros, bits=s.bits)
        if s.qdq:
            return self._opened_product(name, x, (packed, scales), out)
        inputs = [x, self.constant(f"{name}/q", packed), self.floats(f"{name}/s", scales)]
        if zeros is not None:
            inputs.append(self.constant(f"{name}/z", zeros))
        attrs = {"K": k, "N": n, "bits": s.bits, "block_size": s.block, "accuracy_level": 0}
        self.contrib("MatMulNBits", inputs, [out], **attrs)
        return out

    def _opened_product(
        self, name: str, x: str, weights: tuple[np.ndarray, np.ndarray], out: str
    ) -> str:
        """A product by signed weights in 4 bits that a node opens."""
        packed, scales = weights
        codes = np.stack([packed & 15, packed >> 4], -1).reshape(len(packed), -1).astype(int) - 8
        four = helper.make_tensor(f"{name}/q", TensorProto.INT4, codes.shape, codes.ravel())
        self.constants.append(four)
        opened, turned = f"{name}/opened", f"{name}/turned"
        inputs = [four.name, self.floats(f"{name}/s", scales)]
        attrs = {"axis": -1, "block_size": self.shape.block}
        self.node("DequantizeLinear", inputs, [opened], **attrs)
        self.node("Transpose", [opened], [turned], perm=[1, 0])
        self.node("MatMul", [x, turned], [out])
        return out

    # Numbers

    def weights(self, rows: int, columns: int) -> np.ndarray:
        """A matrix whose products keep the size of what they multiply, of a decaying spectrum."""
        rank = min(rows, columns, _RANK)
        strengths = np.arange(1, rank + 1) ** -0.7
        left = self.random.standard_normal((rows, rank)) * strengths
        directions = left @ self.random.standard_normal((rank, columns))
        directions /= np.sqrt((strengths**2).sum())
        noise = self.random.standard_normal((rows, columns))
        mixed: np.ndarray = (directions + _NOISE * noise) / np.sqrt(columns)
        return mixed

    def gains(self, size: int) -> np.ndarray:
        gains: np.ndarray = self.random.uniform(0.7, 1.3, size)
        return gains

    # Nodes

    def constant(self, name: str, value: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def floats(self, name: str, value: np.ndarray) -> str:
        return self.constant(name, value.astype(self.shape.float_type))

    def node(self, op: str, inputs: list[str], outputs: list[str], **attrs: Any) -> None:
        self.nodes.append(helper.make_node(op, inputs, outputs, name=outputs[0], **attrs))

    def contrib(self, op: str, inputs: list[str], outputs: list[str], **attrs: Any) -> None:
        self.nodes.append(
            helper.make_node(op, inputs, outputs, name=outputs[0], domain=CONTRIB, **attrs)
        )

    def finish(self) -> onnx.ModelProto:
        s, total = self.shape, "total_sequence_length"
        value = helper.make_tensor_value_info
        new = ["batch_size", "sequence_length"]
        inputs = [
            value("input_ids", TensorProto.INT64, new),
            value("attention_mask", TensorProto.INT64, ["batch_size", total]),
        ]
        if s.has_positions:
            streams = [3] if s.streams else []
            inputs.append(value("position_ids", TensorProto.INT64, [*streams, *new]))
        element = helper.np_dtype_to_tensor_dtype(s.float_type)
        kept = {0: element, 8: TensorProto.INT8, 4: TensorProto.UINT8}[s.cache_bits]
        width = s.head // 2 if s.cache_bits == 4 else s.head
        outputs = [value("logits", element, [*new, s.vocabulary])]
        for layer in range(s.layers):
            if s.has_state(layer):
                for past, present in list_state_ports(self, layer):
                    inputs.append(past)
                    outputs.append(present)
                continue
            for kind in ("key", "value"):
                for found, name, rows in (
                    (inputs, f"past_key_values.{layer}.{kind}", "past_sequence_length"),
                    (outputs, f"present.{layer}.{kind}", total),
                ):
                    slides = s.slides and s.has_window(layer)
                    axis = rows.replace("sequence", "sliding") if slides else rows
                    heads, numbers = s.kv_heads, width
                    if s.latent:
                        heads, numbers = 1, s.latent if kind == "key" else s.turned
                    extents = ["batch_size", heads, axis, numbers if not s.open_heads else name]
                    found.append(value(name, kept, extents))
        graph = helper.make_graph(self.nodes, "decoder", inputs, outputs, self.constants)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def add_short_conv(decoder: Decoder, prefix: str, layer: int, x: str) -> str:
    """The nodes of one; the state is what the convolution sees of earlier tokens."""
    s, name = decoder.shape, f"{prefix}/conv"
    width = s.hidden
    decoder.product(f"{name}/in_proj", x, width, 3 * width, gain=1.5, out=f"{name}/in_proj/out")
    decoder.node("Transpose", [f"{name}/in_proj/out"], [f"{name}/turned"], perm=[0, 2, 1])
    sizes = decoder.constant(f"{name}/sizes", np.array([width] * 3, np.int64))
    parts = [f"{name}/{letter}" for letter in "bcx"]
    decoder.node("Split", [f"{name}/turned", sizes], parts, axis=1)
    decoder.node("Mul", [parts[0], parts[2]], [f"{name}/gated"])
    _add_conv(decoder, layer, f"{name}/gated", f"{name}/mixed", width, activation="none")
    decoder.node("Mul", [parts[1], f"{name}/mixed"], [f"{name}/out"])
    decoder.node("Transpose", [f"{name}/out"], [f"{name}/back"], perm=[0, 2, 1])
    return decoder.product(
        f"{name}/out_proj", f"{name}/back", width, width, gain=0.5, out=f"{name}/out_proj/out"
    )


def _add_conv(
    decoder: Decoder, layer: int, x: str, out: str, width: int, *, activation: str
) -> None:
    """A convolution of each channel, over the tokens before too."""
    taps = decoder.random.uniform(-1, 1, (width, 1, decoder.shape.conv_taps))
    decoder.contrib(
        "CausalConvWithState",
        [x, decoder.floats(f"{out}/taps", taps), "", f"past.{layer}.conv"],
        [out, f"present.{layer}.conv"],
        activation=activation,
        ndim=1,
    )


def add_linear_attention(decoder: Decoder, prefix: str, layer: int, x: str) -> str:
    """The nodes of one; twice as many heads of values as of keys."""
    s, name = decoder.shape, f"{prefix}/linear"
    keys, values, head = s.kv_heads, 2 * s.kv_heads, s.head
    widths = [keys * head, keys * head, values * head]
    for part, width in (("qkv", sum(widths)), ("z", values * head), ("a", values), ("b", values)):
        decoder.product(f"{name}/{part}_proj", x, s.hidden, width, out=f"{name}/{part}")
    decoder.node("Transpose", [f"{name}/qkv"], [f"{name}/turned"], perm=[0, 2, 1])
    _add_conv(decoder, layer, f"{name}/turned", f"{name}/mixed", sum(widths), activation="silu")
    decoder.node("Transpose", [f"{name}/mixed"], [f"{name}/back"], perm=[0, 2, 1])
    sizes = decoder.constant(f"{name}/sizes", np.array(widths, np.int64))
    decoder.node("Split", [f"{name}/back", sizes], [f"{name}/{n}" for n in "qkv"], axis=-1)
    apart = decoder.constant(f"{name}/apart", np.array([0, 0, keys, head], np.int64))
    whole = decoder.constant(f"{name}/whole", np.array([0, 0, keys * head], np.int64))
    for part in "qk":
        decoder.node("Reshape", [f"{name}/{part}", apart], [f"{name}/{part}/heads"])
        decoder.node("LpNormalization", [f"{name}/{part}/heads"], [f"{name}/{part}/unit"], p=2)
        decoder.node("Reshape", [f"{name}/{part}/unit", whole], [f"{name}/{part}/normed"])
    bias = decoder.constant(f"{name}/bias", decoder.random.uniform(-3, 0, values).astype("f"))
    falls = decoder.constant(f"{name}/falls", -decoder.random.uniform(0.1, 3, values).astype("f"))
    gates = [f"{name}/decay", f"{name}/beta"]
    decoder.contrib("LinearAttentionGate", [f"{name}/a", bias, falls, f"{name}/b"], gates)
    decoder.contrib(
        "LinearAttention",
        [f"{name}/q/normed", f"{name}/k/normed", f"{name}/v", f"past.{layer}.recurrent", *gates],
        [f"{name}/seen", f"present.{layer}.recurrent"],
        q_num_heads=keys,
        kv_num_heads=values,
        update_rule="gated_delta",
        scale=float(head**-0.5),
    )
    gains = decoder.floats(f"{name}/norm/weight", decoder.gains(head))
    inputs = [f"{name}/seen", gains, f"{name}/z"]
    decoder.contrib("GatedRMSNorm", inputs, [f"{name}/gated"], epsilon=1e-6)
    out = f"{name}/out_proj"
    return decoder.product(
        out, f"{name}/gated", values * head, s.hidden, gain=0.5, out=f"{out}/out"
    )


def list_state_ports(decoder: Decoder, layer: int) -> list[tuple[Any, Any]]:
    """The inputs and outputs that are states of a layer."""
    s = decoder.shape
    element = helper.np_dtype_to_tensor_dtype(s.float_type)
    channels = 4 * s.kv_heads * s.head if s.linear else s.hidden
    states: dict[str, list[str | int]] = {"conv": ["batch_size", channels, s.conv_taps - 1]}
    if s.linear:
        states["recurrent"] = ["batch_size", 2 * s.kv_heads, s.head, s.head]
    value = helper.make_tensor_value_info
    return [
        (
            value(f"past.{layer}.{kind}", element, extents),
            value(f"present.{layer}.{kind}", element, extents),
        )
        for kind, extents in states.items()
    ]
