"""Decoders in TFLite with seeded weights: signatures for prompts and for one token, shared caches.

In the forms that litert-torch writes: caches as [1, rows, heads, numbers] or transposed for GPUs,
masks that are given or looked up, weights in floats, or in 8 or 4 bits by row or by block.
"""

from dataclasses import dataclass

import numpy as np
from flatbuffers import flexbuffers

from model_zoo.tflite_graph import GraphWriter, TFLiteFileWriter

_HIDDEN = -1e9


@dataclass(frozen=True, kw_only=True)
class TFLiteDecoder:
    """Extents and form of a decoder; `lengths` are those of its signatures for prompts.

    `block` numbers of a row share a scale (0: all of it); `window` rows are seen (0: all before).
    """

    layers: int = 2
    width: int = 64
    heads: int = 4
    kept: int = 2
    head: int = 16
    inner: int = 96
    vocabulary: int = 97
    rows: int = 48
    lengths: tuple[int, ...] = (4,)
    transposed: bool = False
    mask_given: bool = True
    composite: bool = False
    bits: int = 0
    block: int = 0
    cap: float = 0.0
    window: int = 0
    seed: int = 0


def make_tflite_decoder(shape: TFLiteDecoder) -> bytes:
    file = TFLiteFileWriter()
    writer = _Writer(file, shape)
    for length in shape.lengths:
        writer.write_call(f"prefill_{length}", length)
    writer.write_call("decode", 1)
    writer.write_composites()
    return file.write()


class _Writer:
    def __init__(self, file: TFLiteFileWriter, shape: TFLiteDecoder) -> None:
        self.file, self.shape = file, shape
        self._random = np.random.default_rng(shape.seed)
        self._weights: dict[str, tuple[np.ndarray, np.ndarray | None]] = {}
        self._composites: list[tuple[int, int]] = []

    def write_call(self, name: str, length: int) -> None:
        """A signature that takes `length` tokens."""
        s, graph = self.shape, self.file.graph(name)
        tokens = graph.tensor((1, length), "int32")
        position = graph.tensor((length,), "int32")
        inputs = {"tokens": tokens, "input_pos": position}
        if s.mask_given:
            inputs["mask"] = graph.tensor((1, 1, length, s.rows))
        k_form, v_form = self._cache_forms()
        caches = [
            (graph.tensor(k_form), graph.tensor(v_form)) for _ in range(s.layers)
        ]  # fmt: skip
        for layer, pair in enumerate(caches):
            inputs |= {f"kv_cache_{k}_{layer}": index for k, index in zip("kv", pair, strict=True)}
        mask = inputs.get("mask", -1)
        if mask < 0:
            mask = self._look_up_mask(graph, position, length)
        angles = self._angles(graph, position, length)
        x = self._embed(graph, tokens, length)
        outputs: dict[str, int] = {}
        for layer, (keys, values) in enumerate(caches):
            mixed, kept = self._attend(graph, x, layer, (keys, values), (position, mask), angles)
            outputs |= {f"kv_cache_{k}_{layer}": i for k, i in zip("kv", kept, strict=True)}
            x = graph.by_element("ADD", x, mixed)
            x = graph.by_element("ADD", x, self._feed_forward(graph, x, layer))
        if length == 1:
            outputs["logits"] = self._linear(graph, self._norm(graph, x), "head", s.vocabulary)
        self.file.sign(graph, inputs, outputs)

    def _cache_forms(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        s = self.shape
        if s.transposed:
            return (1, s.kept, s.rows, s.head), (1, s.kept, s.head, s.rows)
        return ((1, s.rows, s.kept, s.head),) * 2

    def _look_up_mask(self, graph: GraphWriter, position: int, length: int) -> int:
        s = self.shape
        rows, mine = np.arange(s.rows)[None], np.arange(s.rows)[:, None]
        seen = (rows <= mine) & ((rows > mine - s.window) if s.window else True)
        table = graph.constant(np.where(seen, 0, _HIDDEN).astype(np.float32))
        found = graph.emit(
            "GATHER", [table, position], (length, s.rows), options="GatherOptions", axis=0
        )
        return graph.reshape(found, 1, 1, length, s.rows)

    def _angles(self, graph: GraphWriter, position: int, length: int) -> tuple[int, int]:
        half = self.shape.head // 2
        steps = (10000.0 ** (-np.arange(half) / half)).astype(np.float32)
        real = graph.emit("CAST", [position], (length,), options="CastOptions")
        whole = graph.reshape(real, 1, length, 1, 1)
        turned = graph.by_element("MUL", whole, graph.constant(steps.reshape(1, 1, 1, half)))
        return graph.by_element("COS", turned), graph.by_element("SIN", turned)

    def _embed(self, graph: GraphWriter, tokens: int, length: int) -> int:
        s = self.shape
        table = self._weight(graph, "table", s.vocabulary, s.width, 1.0)
        found = graph.emit(
            "EMBEDDING_LOOKUP", [graph.reshape(tokens, length), table], (length, s.width)
        )
        return graph.reshape(found, 1, length, s.width)

    def _attend(
        self,
        graph: GraphWriter,
        x: int,
        layer: int,
        caches: tuple[int, int],
        places: tuple[int, int],
        angles: tuple[int, int],
    ) -> tuple[int, tuple[int, int]]:
        s = self.shape
        position, mask = places
        length = graph.shapes[x][1]
        normed = self._norm(graph, x)
        q, k, v = (
            graph.reshape(
                self._linear(graph, normed, f"{name}{layer}", heads * s.head),
                *(1, length, heads, s.head),
            )
            for name, heads in (("q", s.heads), ("k", s.kept), ("v", s.kept))
        )
        q, k = (self._rotate(graph, one, angles) for one in (q, k))
        axes = (1, 1)
        if s.transposed:
            k, v, axes = graph.transpose(k, 0, 2, 1, 3), graph.transpose(v, 0, 2, 3, 1), (2, 3)
        pairs = zip(caches, (k, v), axes, strict=True)
        keys, values = (self._update(graph, *pair, position) for pair in pairs)
        mix = self._mix_transposed if s.transposed else self._mix
        flat = graph.reshape(mix(graph, q, keys, values, mask), 1, length, s.heads * s.head)
        return self._linear(graph, flat, f"o{layer}", s.width), (keys, values)

    def _rotate(self, graph: GraphWriter, x: int, angles: tuple[int, int]) -> int:
        shape = (*graph.shapes[x][:-1], self.shape.head // 2)
        cos, sin = angles
        low, high = (
            graph.emit(
                "SLICE",
                [x, *(graph.constant(np.array(v, np.int32)) for v in ([0, 0, 0, at], shape))],
                shape,
                options="SliceOptions",
            )
            for at in (0, shape[-1])
        )
        parts = [
            graph.by_element(
                kind, graph.by_element("MUL", one, cos), graph.by_element("MUL", other, sin)
            )
            for kind, one, other in (("SUB", low, high), ("ADD", high, low))
        ]
        return graph.emit(
            "CONCATENATION", parts, graph.shapes[x], options="ConcatenationOptions", axis=3
        )

    def _update(self, graph: GraphWriter, cache: int, new: int, axis: int, position: int) -> int:
        first = graph.emit(
            "SLICE",
            [position, *(graph.constant(np.array([n], np.int32)) for n in (0, 1))],
            (1,),
            "int32",
            "SliceOptions",
        )
        zeros = [graph.constant(np.zeros(n, np.int32)) for n in (axis, 3 - axis) if n]
        order = [zeros[0], first, *zeros[1:]]
        starts = graph.emit("CONCATENATION", order, (4,), "int32", "ConcatenationOptions", axis=0)
        return graph.emit("DYNAMIC_UPDATE_SLICE", [cache, new, starts], graph.shapes[cache])

    def _mix(self, graph: GraphWriter, q: int, keys: int, values: int, mask: int) -> int:
        """Products a head, of keys and values that are repeated for the heads that share them."""
        s = self.shape
        length, group = graph.shapes[q][1], s.heads // s.kept
        by_head = graph.transpose(q, 0, 2, 1, 3)
        scale = graph.constant(np.float32(s.head**-0.25).reshape(1))

        def repeat(cache: int) -> int:
            apart = graph.reshape(graph.transpose(cache, 0, 2, 1, 3), s.kept, 1, s.rows, s.head)
            shape = (s.kept, group, s.rows, s.head)
            form = graph.constant(np.array(shape, np.int32))
            wide = graph.emit("BROADCAST_TO", [apart, form], shape)
            return graph.reshape(wide, 1, s.heads, s.rows, s.head)

        k = graph.by_element("MUL", repeat(keys), scale)
        scores = graph.product(
            graph.by_element("MUL", by_head, scale), graph.transpose(k, 0, 1, 3, 2)
        )
        mixed = graph.product(self._soften(graph, scores, mask), repeat(values))
        return graph.transpose(graph.reshape(mixed, 1, s.heads, length, s.head), 0, 2, 1, 3)

    def _mix_transposed(self, graph: GraphWriter, q: int, keys: int, values: int, mask: int) -> int:
        """A product for all heads that share a head of the cache, one below the other."""
        s = self.shape
        length, group = graph.shapes[q][1], s.heads // s.kept
        scale = graph.constant(np.float32(s.head**-0.5).reshape(1))
        stacked = graph.reshape(
            graph.transpose(graph.by_element("MUL", q, scale), 0, 2, 1, 3),
            *(1, s.kept, group * length, s.head),
        )
        wide = graph.emit(
            "CONCATENATION",
            [mask] * group,
            (1, 1, group * length, s.rows),
            options="ConcatenationOptions",
            axis=2,
        )
        scores = graph.product(stacked, keys, turned=True)
        mixed = graph.product(self._soften(graph, scores, wide), values, turned=True)
        return graph.transpose(graph.reshape(mixed, 1, s.heads, length, s.head), 0, 2, 1, 3)

    def _soften(self, graph: GraphWriter, scores: int, mask: int) -> int:
        if self.shape.cap:
            cap, back = (
                graph.constant(np.array([value], np.float32))
                for value in (self.shape.cap, 1 / self.shape.cap)
            )
            scores = graph.by_element("TANH", graph.by_element("MUL", scores, back))
            scores = graph.by_element("MUL", scores, cap)
        masked = graph.by_element("ADD", scores, mask)
        return graph.emit(
            "SOFTMAX", [masked], graph.shapes[masked], options="SoftmaxOptions", beta=1.0
        )

    def _feed_forward(self, graph: GraphWriter, x: int, layer: int) -> int:
        s, normed = self.shape, self._norm(graph, x)
        gate, up = (self._linear(graph, normed, f"{n}{layer}", s.inner) for n in ("gate", "up"))
        opened = graph.by_element("MUL", gate, graph.by_element("LOGISTIC", gate))
        return self._linear(graph, graph.by_element("MUL", opened, up), f"down{layer}", s.width)

    def _norm(self, graph: GraphWriter, x: int) -> int:
        shape = graph.shapes[x]
        if not self.shape.composite:
            return _write_norm(graph, x)
        return graph.emit(
            "STABLEHLO_COMPOSITE",
            [x],
            shape,
            options="StableHLOCompositeOptions",
            name="odml.rms_norm",
            compositeAttributes=flexbuffers.Dumps({"epsilon": 1e-6}),
            decompositionSubgraphIndex=self._composite(shape[1]),
        )

    def _composite(self, length: int) -> int:
        """The number that the graph of a norm of so many tokens will have."""
        known = [one for one, _ in self._composites]
        if length not in known:
            number = len(self.shape.lengths) + 1 + len(known)
            self._composites.append((length, number))
        return dict(self._composites)[length]

    def write_composites(self) -> None:
        """The graphs that composites stand for."""
        for length, _ in self._composites:
            graph = self.file.graph(f"odml.rms_norm.impl_{length}")
            x = graph.tensor((1, length, self.shape.width))
            graph.inputs, graph.outputs = [x], [_write_norm(graph, x)]

    def _linear(self, graph: GraphWriter, x: int, name: str, units: int) -> int:
        depth = graph.shapes[x][-1]
        weight = self._weight(graph, name, units, depth, 1.4 * depth**-0.5)
        return graph.emit(
            "FULLY_CONNECTED",
            [x, weight, -1],
            (*graph.shapes[x][:-1], units),
            options="FullyConnectedOptions",
            keepNumDims=True,
        )

    def _weight(self, graph: GraphWriter, name: str, rows: int, depth: int, size: float) -> int:
        s = self.shape
        if name not in self._weights:
            real = (self._random.normal(size=(rows, depth)) * size).astype(np.float32)
            self._weights[name] = _round(real, s.bits, s.block) if s.bits else (real, None)
        value, scales = self._weights[name]
        if scales is None:
            return graph.constant(value)
        return graph.quantised(value, scales, s.bits, s.block)


def _write_norm(graph: GraphWriter, x: int) -> int:
    """A division by the root of the mean square of each row."""
    shape = graph.shapes[x]
    axis = graph.constant(np.array([2], np.int32))
    square = graph.by_element("MUL", x, x)
    mean = graph.emit(
        "MEAN", [square, axis], (*shape[:2], 1), options="ReducerOptions", keepDims=True
    )
    small = graph.constant(np.array([1e-6], np.float32))
    return graph.by_element(
        "MUL", x, graph.by_element("RSQRT", graph.by_element("ADD", mean, small))
    )


def _round(real: np.ndarray, bits: int, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers of some bits and the scales of their rows or blocks."""
    rows, depth = real.shape
    apart = real.reshape(rows, -1, block or depth)
    most = (1 << (bits - 1)) - 1
    scales = (np.abs(apart).max(-1, keepdims=True) / most).astype(np.float16).astype(np.float32)
    codes = np.clip(np.rint(apart / scales), -most - 1, most).astype(np.int8)
    return codes.reshape(rows, depth), np.ascontiguousarray(
        scales[..., 0].astype(np.float16 if block else np.float32)
    )
