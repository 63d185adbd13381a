"""RotaryEmbedding apart from attention, beside onnxruntime's."""

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.operator

DOMAIN = "com.microsoft"
CASES: dict[str, tuple[tuple[int, ...], int, list[Any], dict[str, int]]] = {
    "one token": ((1, 1, 64), 16, [[7]], {}),
    "tokens": ((1, 5, 64), 16, [[3, 4, 5, 6, 9]], {}),
    "from the first one's": ((1, 5, 64), 16, [2], {}),
    "two texts": ((2, 3, 32), 16, [[0, 1, 2], [5, 6, 7]], {}),
    "heads apart": ((1, 4, 5, 16), 16, [[3, 4, 5, 6, 9]], {}),
    "heads apart, from the first one's": ((2, 4, 5, 16), 16, [3], {}),
    "neighbours": ((1, 5, 64), 16, [[3, 4, 5, 6, 9]], {"interleaved": 1}),
    "a part of a head": (
        (1, 5, 96),
        16,
        [[3, 4, 5, 6, 9]],
        {"num_heads": 3, "rotary_embedding_dim": 16},
    ),
    "neighbours of a part": (
        (1, 2, 96),
        8,
        [[3, 4]],
        {"num_heads": 3, "rotary_embedding_dim": 8, "interleaved": 1},
    ),
}


@pytest.mark.parametrize("preset", ["fp32", "mixed"])
def test_rotary_embedding(ops, device, preset):
    for shape, rotated, positions, attrs in CASES.values():
        angles = np.arange(12)[:, None] * 10.0 ** -np.arange(rotated // 2)
        tables = [ops.const(turn(angles)) for turn in (np.cos, np.sin)]
        x = ops("Relu", ops.input(*shape))
        inputs = [x, ops.const(positions, np.int64), *tables]
        ops.output(ops("RotaryEmbedding", *inputs, domain=DOMAIN, **attrs))
    ops.check(device, preset)
