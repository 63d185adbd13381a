"""Decoders in the standard's operators alone, as optimum and torch's exporters write them.

`plain` 14 spells attention, norms and rotation out and lets the past grow by Concat; 23 has the
standard's own Attention (with the past inside), RMSNormalization and RotaryEmbedding.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper

from model_zoo.decoders import Decoder

_FAR = np.finfo(np.float32).min


class PlainDecoder(Decoder):
    """The same decoder, its contributed operators in standard ones."""

    @property
    def model_opset(self) -> int:
        """Of the model: the oldest that optimum writes, or a newer one that is asked for."""
        return max(self.shape.plain, 17)

    def lengths(self) -> None:
        """Mask and angles, of shapes and position_ids."""
        for name, value in (("zero", 0), ("one_scalar", 1), ("two", 2)):
            self.constant(name, np.array(value, np.int64))
        for axis in (-1, 0, 1, 2):
            self.constant(f"axis{axis}", np.array([axis], np.int64))
        self.node("Shape", ["past_key_values.0.key"], ["past/shape"])
        self.node("Gather", ["past/shape", "two"], ["past/length"], axis=0)
        self.node("Shape", ["input_ids"], ["new/shape"])
        self.node("Gather", ["new/shape", "one_scalar"], ["new/length"], axis=0)
        self.node("Add", ["past/length", "new/length"], ["all/length"])
        self._mask()
        if self.shape.kind == "learned":
            return
        self._angles_at_positions()

    def _mask(self) -> None:
        s = self.shape
        self.node("Range", ["zero", "all/length", "one_scalar"], ["mask/others"])
        self.node("Range", ["past/length", "all/length", "one_scalar"], ["mask/mine"])
        self.node("Unsqueeze", ["mask/mine", "axis1"], ["mask/column"])
        self.node("LessOrEqual", ["mask/others", "mask/column"], ["mask/causal"])
        seen = "mask/causal"
        if s.window > 0:
            self.constant("window", np.array(s.window, np.int64))
            self.node("Sub", ["mask/column", "window"], ["mask/before"])
            self.node("Greater", ["mask/others", "mask/before"], ["mask/within"])
            self.node("And", [seen, "mask/within"], ["mask/both"])
            seen = "mask/both"
        self.node("Cast", ["attention_mask"], ["mask/there"], to=TensorProto.BOOL)
        self.node("Unsqueeze", ["mask/there", "axis1"], ["mask/there3"])
        self.node("Unsqueeze", ["mask/there3", "axis1"], ["mask/there4"])
        self.node("And", [seen, "mask/there4"], ["mask/seen"])
        self.floats("nothing", np.array(0.0))
        self.floats("far", np.array(_FAR if not s.half else -6e4))
        self.node("Where", ["mask/seen", "nothing", "far"], ["mask"])

    def _angles_at_positions(self) -> None:
        s = self.shape
        frequencies = s.theta ** (-np.arange(0, s.turned, 2) / s.turned)
        self.constant("frequencies", frequencies.astype(np.float32))
        self.node("Cast", ["position_ids"], ["positions"], to=TensorProto.FLOAT)
        self.node("Unsqueeze", ["positions", "axis2"], ["positions3"])
        self.node("Mul", ["positions3", "frequencies"], ["angles"])
        if s.plain < 23:
            self.node("Concat", ["angles", "angles"], ["both_angles"], axis=-1)
        element = helper.np_dtype_to_tensor_dtype(s.float_type)
        for op in ("Cos", "Sin"):
            cast = op if s.plain >= 23 else f"{op}3"
            self.node(op, ["angles" if s.plain >= 23 else "both_angles"], [f"{op}/float"])
            self.node("Cast", [f"{op}/float"], [cast], to=element)
            if s.plain < 23:
                self.node("Unsqueeze", [cast, "axis1"], [op])

    def embedding(self) -> str:
        """With learned positions, rows of theirs are added."""
        embedded = super().embedding()
        s = self.shape
        if s.kind != "learned":
            return embedded
        self.floats("places", self.weights(s.context, s.hidden) * np.sqrt(s.hidden))
        self.node("Range", ["past/length", "all/length", "one_scalar"], ["places/at"])
        self.node("Gather", ["places", "places/at"], ["places/rows"])
        self.node("Add", [embedded, "places/rows"], ["placed"])
        return "placed"

    def norm(self, name: str, root: str, skip: str, *, last: bool = False) -> tuple[str, str]:
        """The residual sum and its norm."""
        total = root
        if skip:
            total = f"{name}/sum"
            self.node("Add", [root, skip], [total])
        weight = self.floats(f"{name}/weight", self.gains(self.shape.hidden))
        return total, self._scaled(name, total, weight)

    def _scaled(self, name: str, x: str, weight: str) -> str:
        out = f"{name}/out"
        if self.shape.plain >= 23:
            self.node("RMSNormalization", [x, weight], [out], axis=-1, epsilon=1e-6)
            return out
        self.floats(f"{name}/epsilon", np.array(1e-6))
        self.floats(f"{name}/power", np.array(2.0))
        self.node("Pow", [x, f"{name}/power"], [f"{name}/square"])
        square, mean = f"{name}/square", f"{name}/mean"
        if self.model_opset < 18:
            self.node("ReduceMean", [square], [mean], axes=[-1])
        else:
            self.node("ReduceMean", [square, "axis-1"], [mean])
        self.node("Add", [f"{name}/mean", f"{name}/epsilon"], [f"{name}/raised"])
        self.node("Sqrt", [f"{name}/raised"], [f"{name}/root"])
        self.node("Reciprocal", [f"{name}/root"], [f"{name}/inverse"])
        self.node("Mul", [x, f"{name}/inverse"], [f"{name}/normed"])
        self.node("Mul", [weight, f"{name}/normed"], [out])
        return out

    def attention(self, prefix: str, layer: int, x: str) -> str:
        """Separate projections; heads apart; the rotation where there is one."""
        s, parts = self.shape, []
        for letter, heads in (("q", s.heads), ("k", s.kv_heads), ("v", s.kv_heads)):
            name = f"{prefix}/attn/{letter}"
            self.product(f"{name}_proj", x, s.hidden, heads * s.head, out=name)
            shape = self.constant(f"{name}/heads", np.array([0, 0, heads, s.head], np.int64))
            self.node("Reshape", [name, shape], [f"{name}/split"])
            part = f"{name}/split"
            if s.kind == "qwen3" and letter != "v":
                weight = self.floats(f"{name}_norm/weight", self.gains(s.head))
                part = self._scaled(f"{name}_norm", part, weight)
            self.node("Transpose", [part], [f"{name}/apart"], perm=[0, 2, 1, 3])
            turned = letter != "v" and s.kind != "learned"
            parts.append(self._turn(f"{name}/apart") if turned else f"{name}/apart")
        past = [f"past_key_values.{layer}.{kind}" for kind in ("key", "value")]
        present = [f"present.{layer}.{kind}" for kind in ("key", "value")]
        mix = self._one_node if s.plain >= 23 else self._spelt_out
        if s.multi_head:
            mix = self._multi_head
        return self._project_back(f"{prefix}/attn", mix(prefix, parts, past, present))

    def _project_back(self, at: str, mixed: str) -> str:
        """What heads have mixed, side by side, and its product."""
        width, out = self.shape.heads * self.shape.head, f"{at}/o_proj"
        self.node("Transpose", [mixed], [f"{at}/joined"], perm=[0, 2, 1, 3])
        shape = self.constant(f"{at}/whole", np.array([0, 0, width], np.int64))
        self.node("Reshape", [f"{at}/joined", shape], [f"{at}/rows"])
        return self.product(out, f"{at}/rows", width, self.shape.hidden, gain=0.5, out=f"{out}/out")

    def _turn(self, x: str) -> str:
        s, out = self.shape, f"{x}/turned"
        if s.plain >= 23:
            self.node("RotaryEmbedding", [x, "Cos", "Sin"], [out], interleaved=0)
            return out
        half = self.constant(f"{x}/half", np.array([s.turned // 2], np.int64))
        end = self.constant(f"{x}/end", np.array([2**31], np.int64))
        self.node("Mul", [x, "Cos"], [f"{x}/cos"])
        self.node("Slice", [x, "axis0", half, "axis-1"], [f"{x}/first"])
        self.node("Slice", [x, half, end, "axis-1"], [f"{x}/second"])
        self.node("Neg", [f"{x}/second"], [f"{x}/negative"])
        self.node("Concat", [f"{x}/negative", f"{x}/first"], [f"{x}/swapped"], axis=-1)
        self.node("Mul", [f"{x}/swapped", "Sin"], [f"{x}/sin"])
        self.node("Add", [f"{x}/cos", f"{x}/sin"], [out])
        return out

    def _multi_head(
        self, prefix: str, parts: list[str], past: list[str], present: list[str]
    ) -> str:
        """onnxruntime's operator, whose heads lie in one row."""
        s, flat = self.shape, []
        for part in parts:
            self.node("Transpose", [part], [f"{part}/tokens"], perm=[0, 2, 1, 3])
            shape = self.constant(f"{part}/shape", np.array([0, 0, s.heads * s.head], np.int64))
            self.node("Reshape", [f"{part}/tokens", shape], [f"{part}/flat"])
            flat.append(f"{part}/flat")
        out, apart = f"{prefix}/attn/flat", f"{prefix}/attn/out"
        bias = ""
        if s.biased:
            offsets = self.random.standard_normal(3 * s.heads * s.head) * 0.3
            bias = self.floats(f"{out}/bias", offsets)
        inputs = [*flat, bias, "", "mask", *past]
        self.contrib("MultiHeadAttention", inputs, [out, *present], num_heads=s.heads)
        shape = self.constant(f"{out}/shape", np.array([0, 0, s.heads, s.head], np.int64))
        self.node("Reshape", [out, shape], [f"{out}/split"])
        self.node("Transpose", [f"{out}/split"], [apart], perm=[0, 2, 1, 3])
        return apart

    def _one_node(self, prefix: str, parts: list[str], past: list[str], present: list[str]) -> str:
        out = f"{prefix}/attn/out"
        attrs = {"scale": float(self.shape.head**-0.5), "softcap": float(self.shape.softcap)}
        self.node("Attention", [*parts, "mask", *past], [out, *present], **attrs)
        return out

    def _spelt_out(self, prefix: str, parts: list[str], past: list[str], present: list[str]) -> str:
        s, at = self.shape, f"{prefix}/attn"
        group = s.heads // s.kv_heads
        repeated = []
        for name, old, new in zip(present, past, parts[1:], strict=True):
            self.node("Concat", [old, new], [name], axis=2)
            self.node("Unsqueeze", [name, "axis2"], [f"{name}/one"])
            ones = self.constant(f"{name}/ones", np.array([1, 1, group, 1, 1], np.int64))
            self.node("Expand", [f"{name}/one", ones], [f"{name}/group"])
            shape = self.constant(f"{name}/flat", np.array([1, s.heads, -1, s.head], np.int64))
            self.node("Reshape", [f"{name}/group", shape], [f"{name}/all"])
            repeated.append(f"{name}/all")
        return self._mix(at, parts[0], *repeated)

    def _mix(self, at: str, query: str, keys: str, values: str) -> str:
        """Attention in parts, of keys and values of each head."""
        s = self.shape
        self.node("Transpose", [keys], [f"{at}/turned_keys"], perm=[0, 1, 3, 2])
        self.node("MatMul", [query, f"{at}/turned_keys"], [f"{at}/products"])
        self.floats(f"{at}/root", np.array(np.sqrt(s.head)))
        self.node("Div", [f"{at}/products", f"{at}/root"], [f"{at}/scaled"])
        scores = f"{at}/scaled"
        if s.softcap:
            self.floats(f"{at}/cap", np.array(s.softcap))
            self.node("Div", [scores, f"{at}/cap"], [f"{at}/small"])
            self.node("Tanh", [f"{at}/small"], [f"{at}/bent"])
            self.node("Mul", [f"{at}/bent", f"{at}/cap"], [f"{at}/capped"])
            scores = f"{at}/capped"
        self.node("Add", [scores, "mask"], [f"{at}/masked"])
        self.node("Softmax", [f"{at}/masked"], [f"{at}/weights"], axis=-1)
        self.node("MatMul", [f"{at}/weights", values], [f"{at}/out"])
        return f"{at}/out"

    def finish(self) -> onnx.ModelProto:
        """The model in the opset that has its operators."""
        model = super().finish()
        next(one for one in model.opset_import if not one.domain).version = self.model_opset
        return model


class LatentDecoder(PlainDecoder):
    """The same decoder, its keys and values out of rows of few numbers."""

    def attention(self, prefix: str, layer: int, x: str) -> str:
        """Queries by heads; a row to keep; keys and values of all rows that are kept."""
        s, at = self.shape, f"{prefix}/attn"
        plain, width = s.head - s.turned, s.heads * s.head
        self.product(f"{at}/q_proj", x, s.hidden, width, out=f"{at}/q")
        self.product(f"{at}/kv_a_proj", x, s.hidden, s.latent + s.turned, out=f"{at}/a")
        self._split(f"{at}/a", (s.latent, s.turned), (f"{at}/raw", f"{at}/key"))
        weight = self.floats(f"{at}/a_norm/weight", self.gains(s.latent))
        normed = self._scaled(f"{at}/a_norm", f"{at}/raw", weight)
        past, present = (
            [f"{name}.{layer}.{kind}" for kind in ("key", "value")]
            for name in ("past_key_values", "present")
        )
        rows = self._turn(self._by_heads(f"{at}/key", 1, s.turned))
        for old, new, name in zip(
            past, (self._by_heads(normed, 1, s.latent), rows), present, strict=True
        ):
            self.node("Concat", [old, new], [name], axis=2)
        keys, values = self._open(at, present, plain)
        self._split(self._by_heads(f"{at}/q", s.heads, s.head), (plain, s.turned), (
            f"{at}/q/plain", f"{at}/q/far",
        ))  # fmt: skip
        query = f"{at}/query"
        self.node("Concat", [f"{at}/q/plain", self._turn(f"{at}/q/far")], [query], axis=-1)
        return self._project_back(at, self._mix(at, query, keys, values))

    def _open(self, at: str, present: list[str], plain: int) -> tuple[str, str]:
        """Keys and values of each head, out of all rows."""
        s = self.shape
        opened = self.floats(f"{at}/kv_b", self.weights(s.latent, s.heads * (plain + s.head)))
        flat = self.constant(f"{at}/kv_b/flat", np.array([1, -1, s.latent], np.int64))
        self.node("Reshape", [present[0], flat], [f"{at}/latent"])
        self.node("MatMul", [f"{at}/latent", opened], [f"{at}/opened"])
        both = self._by_heads(f"{at}/opened", s.heads, plain + s.head)
        self._split(both, (plain, s.head), (f"{at}/k/plain", f"{at}/v"))
        ones = self.constant(f"{at}/ones", np.array([1, s.heads, 1, 1], np.int64))
        self.node("Expand", [present[1], ones], [f"{at}/k/far"])
        self.node("Concat", [f"{at}/k/plain", f"{at}/k/far"], [f"{at}/k"], axis=-1)
        return f"{at}/k", f"{at}/v"

    def _mix(self, at: str, query: str, keys: str, values: str) -> str:
        if self.shape.plain >= 23:
            out, scale = f"{at}/out", float(self.shape.head**-0.5)
            self.node("Attention", [query, keys, values, "mask"], [out], scale=scale)
            return out
        return super()._mix(at, query, keys, values)

    def _by_heads(self, x: str, heads: int, head: int) -> str:
        shape = self.constant(f"{x}/heads", np.array([0, 0, heads, head], np.int64))
        self.node("Reshape", [x, shape], [f"{x}/split"])
        self.node("Transpose", [f"{x}/split"], [f"{x}/apart"], perm=[0, 2, 1, 3])
        return f"{x}/apart"

    def _split(self, x: str, widths: tuple[int, int], names: tuple[str, str]) -> None:
        sizes = self.constant(f"{x}/widths", np.array(widths, np.int64))
        self.node("Split", [x, sizes], list(names), axis=-1)
