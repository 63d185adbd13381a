#!/usr/bin/env python3
"""Write a small synthesiser with seeded weights: make_synthesiser.py MODEL.onnx [--seed 0].

It is of VITS's structure (Kim et al. 2021) as optimum exports it: tokens to durations, frames by
these, noise, a coupling layer, and transposed convolutions that make 16 samples of each frame.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper, parser

TOKENS, HIDDEN, CHANNELS, WIDE = 32, 16, 8, 32

GRAPH = """synthesiser (int64[1, tokens] input_ids, int64[1, tokens] attention_mask)
        => (float[1, samples] waveform) {
    found = Gather (table, input_ids)
    counts = Cast <to = 1> (attention_mask)
    column = Unsqueeze (counts, axis_2)
    hidden = Mul (found, column)
    token_means = MatMul (hidden, to_means)
    token_spreads = MatMul (hidden, to_spreads)
    lengths = MatMul (hidden, to_lengths)
    grown = Exp (lengths)
    counted = Ceil (grown)
    durations = Transpose <perm = [0, 2, 1]> (counted)
    ends = CumSum (durations, two)
    starts = Sub (ends, durations)
    total = ReduceMax <keepdims = 0> (ends)
    count = Cast <to = 7> (total)
    numbers = Range (zero, count, one)
    frames = Cast <to = 1> (numbers)
    row = Unsqueeze (frames, axis_1)
    is_before = Less (row, ends)
    is_early = Less (row, starts)
    before = Cast <to = 1> (is_before)
    early = Cast <to = 1> (is_early)
    path = Sub (before, early)
    is_there = Less (frames, total)
    there = Cast <to = 1> (is_there)
    mask = Unsqueeze (there, axis_01)
    mean_rows = MatMul (path, token_means)
    means = Transpose <perm = [0, 2, 1]> (mean_rows)
    spread_rows = MatMul (path, token_spreads)
    spreads = Transpose <perm = [0, 2, 1]> (spread_rows)
    drawn = RandomNormalLike <seed = 3.0> (means)
    widths = Exp (spreads)
    wide_noise = Mul (drawn, widths)
    noise = Mul (wide_noise, noise_scale)
    prior = Add (means, noise)
    kept, moved = Split <axis = 1, num_outputs = 2> (prior)
    flow_in = Conv <kernel_shape = [1]> (kept, flow_pre, flow_pre_bias)
    flow_hidden = Mul (flow_in, mask)
    flow_wide = Conv <kernel_shape = [5], pads = [2, 2]> (flow_hidden, flow_conv, flow_conv_bias)
    flow_tanh = Tanh (flow_wide)
    flow_masked = Mul (flow_tanh, mask)
    flow_out = Conv <kernel_shape = [1]> (flow_masked, flow_post, flow_post_bias)
    flow_shift = Mul (flow_out, mask)
    shifted = Sub (moved, flow_shift)
    latents = Concat <axis = 1> (kept, shifted)
    spectrogram = Mul (latents, mask)
    v0 = Conv <kernel_shape = [7], pads = [3, 3]> (spectrogram, pre, pre_bias)
    v1 = LeakyRelu <alpha = 0.1> (v0)
    v2 = ConvTranspose <kernel_shape = [16], strides = [8], pads = [4, 4]> (v1, up_1, up_1_bias)
    v3 = LeakyRelu <alpha = 0.1> (v2)
    v4 = Conv <kernel_shape = [3], pads = [3, 3], dilations = [3]> (v3, res_1, res_1_bias)
    v5 = Add (v2, v4)
    v6 = LeakyRelu <alpha = 0.1> (v5)
    v7 = ConvTranspose <kernel_shape = [4], strides = [2], pads = [1, 1]> (v6, up_2, up_2_bias)
    v8 = LeakyRelu <alpha = 0.1> (v7)
    v9 = Conv <kernel_shape = [7], pads = [3, 3]> (v8, post, post_bias)
    sound = Tanh (v9)
    waveform = Squeeze (sound, axis_1)
}"""
WEIGHTS = {
    "table": (TOKENS, HIDDEN),
    "to_means": (HIDDEN, CHANNELS),
    "to_spreads": (HIDDEN, CHANNELS),
    "to_lengths": (HIDDEN, 1),
    "flow_pre": (HIDDEN, CHANNELS // 2, 1),
    "flow_conv": (HIDDEN, HIDDEN, 5),
    "flow_post": (CHANNELS // 2, HIDDEN, 1),
    "pre": (WIDE, CHANNELS, 7),
    "up_1": (WIDE, WIDE // 2, 16),
    "res_1": (WIDE // 2, WIDE // 2, 3),
    "up_2": (WIDE // 2, WIDE // 4, 4),
    "post": (1, WIDE // 4, 7),
}
NUMBERS = {
    "zero": np.array(0),
    "one": np.array(1),
    "two": np.array(2),
    "axis_1": np.array([1]),
    "axis_2": np.array([2]),
    "axis_01": np.array([0, 1]),
    "noise_scale": np.array(0.667, np.float32),
}


def make_synthesiser(seed: int = 0) -> onnx.ModelProto:
    random = np.random.default_rng(seed)
    graph = parser.parse_graph(GRAPH)
    arrays = dict(NUMBERS)
    for name, shape in WEIGHTS.items():
        fan = {"table": 1, "to_lengths": 8}.get(
            name, shape[0] if len(shape) == 2 else np.prod(shape[1:])
        )
        arrays[name] = (random.standard_normal(shape) * fan**-0.5).astype(np.float32)
        if len(shape) == 3:
            out = shape[1] if name.startswith("up") else shape[0]
            arrays[f"{name}_bias"] = (random.standard_normal(out) * 0.2).astype(np.float32)
    graph.initializer.extend(numpy_helper.from_array(v, name) for name, v in arrays.items())
    opsets = [onnx.helper.make_opsetid("", 18)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.checker.check_model(model)
    return model


def main() -> int:
    """Parse, build, write; return the exit code."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("model", type=Path)
    words.add_argument("--seed", type=int, default=0)
    given = words.parse_args()
    given.model.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(make_synthesiser(given.seed), given.model)
    return 0


if __name__ == "__main__":
    sys.exit(main())
