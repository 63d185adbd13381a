"""The models that `scripts/replay` compiles: made here of seeded weights, small, of many kinds.

Networks come from `scripts/model_zoo`, chains of operators stand below, one function a kind, and
the rest are graphs that `tests/host/random_graphs` draws.  A model that is changed or left out
takes its rows of the table with it, so new ones are added at the end of their group.
"""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import onnx
from model_zoo import onnx_models, tflite_models

from tests.host.random_graphs.draw import draw_case
from tests.host.random_graphs.quantised import draw_quantised
from tests.host.run_op import Ops

DRAWN, DRAWN_QUANTISED = 16, 8
SEED = 16
SIZES = {"unet": 64, "vit": 64}
"""Heights and widths other than 96."""


def all_models() -> dict[str, Callable[[Path], None]]:
    """From a file's name to what writes it to a path; the suffix is the format."""
    made: dict[str, Callable[[Path], None]] = {}
    for name, make in onnx_models.MODELS.items():
        made[f"{name}.onnx"] = partial(_write_network, make, SIZES.get(name, 96))
    for name, network in tflite_models.MODELS.items():
        made[f"{name}.tflite"] = partial(_write_tflite, network)
    for name, chain in CHAINS.items():
        made[f"{name}.onnx"] = partial(_write_chain, chain)
    for number in range(DRAWN):
        made[f"drawn_{number}.onnx"] = partial(_write_drawn, number)
    for number in range(DRAWN_QUANTISED):
        made[f"quantised_{number}.onnx"] = partial(_write_quantised, number)
    return made


def _write_network(make: Callable[..., onnx.ModelProto], size: int, path: Path) -> None:
    onnx.save(make(size=size), path)


def _write_tflite(make: Callable[[], bytes], path: Path) -> None:
    path.write_bytes(make())


def _write_chain(chain: Callable[[Ops], str], path: Path) -> None:
    ops = Ops(seed=SEED)
    ops.output(chain(ops))
    ops.save(path)


def _write_drawn(number: int, path: Path) -> None:
    draw_case(random.Random(f"{SEED}/{number}").randint).ops.save(path)


def _write_quantised(number: int, path: Path) -> None:
    draw_quantised(random.Random(f"{SEED}/{number}").randint).save(path)


def _conv(ops: Ops, x: str, channels: int, out: int, kernel: int, **attrs: object) -> str:
    group = int(attrs.get("group", 1))  # type: ignore[call-overload]
    weight = ops.weight(out, channels // group, kernel, kernel)
    pad = kernel // 2
    return ops("Conv", x, weight, ops.weight(out), pads=[pad] * 4, **attrs)


def _inverted_residuals(ops: Ops) -> str:
    x = ops.input(1, 24, 56, 56)
    for _ in range(2):
        wide = ops("Clip", _conv(ops, x, 24, 144, 1), ops.const(0.0), ops.const(6.0))
        wide = ops("Clip", _conv(ops, wide, 144, 144, 3, group=144), ops.const(0.0), ops.const(6.0))
        x = ops("Add", x, _conv(ops, wide, 144, 24, 1))
    return x


def _squeeze_excite(ops: Ops) -> str:
    x = ops("HardSwish", _conv(ops, ops.input(1, 40, 28, 28), 40, 120, 1))
    x = ops("HardSwish", _conv(ops, x, 120, 120, 5, group=120, strides=[2, 2]))
    gate = _conv(ops, ops("GlobalAveragePool", x), 120, 32, 1)
    gate = ops("HardSigmoid", _conv(ops, ops("Relu", gate), 32, 120, 1))
    return _conv(ops, ops("Mul", x, gate), 120, 40, 1)


def _winograd(ops: Ops) -> str:
    x = ops.input(1, 64, 56, 56)
    for _ in range(3):
        x = ops("Relu", _conv(ops, x, 64, 64, 3))
    return x


def _grouped_shuffle(ops: Ops) -> str:
    x = _conv(ops, ops.input(1, 48, 28, 28), 48, 48, 1, group=4)
    x = ops("Reshape", x, ops.ints(1, 4, 12, 28, 28))
    x = ops("Transpose", x, perm=[0, 2, 1, 3, 4])
    return _conv(ops, ops("Reshape", x, ops.ints(1, 48, 28, 28)), 48, 48, 3, group=48)


def _dense(ops: Ops) -> str:
    x = ops.input(1, 32, 28, 28)
    for channels in (32, 48, 64):
        x = ops("Concat", x, ops("Relu", _conv(ops, x, channels, 16, 3)), axis=1)
    return x


def _upsampling(ops: Ops) -> str:
    x = ops.input(1, 32, 14, 14)
    up = ops("ConvTranspose", x, ops.weight(32, 16, 4, 4), strides=[2, 2], pads=[1] * 4)
    resized = ops("Resize", x, "", ops.const([1.0, 1.0, 2.0, 2.0]), mode="linear")
    both = ops("Concat", up, resized, axis=1)
    return ops("Sigmoid", ops("DepthToSpace", _conv(ops, both, 48, 12, 3), blocksize=2))


def _decoder_head(ops: Ops) -> str:
    x = _conv(ops, ops.input(1, 64, 20, 20), 64, 85, 1)
    x = ops("Transpose", ops("Reshape", x, ops.ints(1, 85, 400)), perm=[0, 2, 1])
    x, wh, scores = ops.split(x, 2, 2, 2, 81)
    boxes = ops("Mul", ops("Exp", wh), ops.weight(1, 1, 2, around=4.0))
    return ops("Concat", x, boxes, ops("Sigmoid", scores), axis=2)


def _recurrent(ops: Ops) -> str:
    x = ops.input(7, 1, 24)
    w, r, b = ops.weight(1, 128, 24), ops.weight(1, 128, 32), ops.weight(1, 256)
    (y,) = ops.several("LSTM", [x, w, r, b], ["y"], hidden_size=32)
    return ops("Reshape", y, ops.ints(7, 32))


def _group_norm(ops: Ops) -> str:
    x = _conv(ops, ops.input(1, 32, 28, 28), 32, 32, 3)
    x = ops("Reshape", x, ops.ints(1, 8, -1))
    x = ops("InstanceNormalization", x, ops.weight(8, around=1.0), ops.weight(8))
    x = ops("Reshape", x, ops.ints(1, 32, 28, 28))
    return ops("Mul", x, ops("Sigmoid", x))


def _windowed_attention(ops: Ops) -> str:
    x = ops.input(4, 49, 96)
    heads = []
    for _ in range(3):
        part = ops("MatMul", x, ops.weight(96, 96))
        part = ops("Reshape", part, ops.ints(4, 49, 3, 32))
        heads.append(ops("Transpose", part, perm=[0, 2, 1, 3]))
    query, key, value = heads
    scores = ops("MatMul", query, ops("Transpose", key, perm=[0, 1, 3, 2]))
    scores = ops("Add", ops("Mul", scores, ops.const(0.177)), ops.weight(1, 3, 49, 49))
    mixed = ops("MatMul", ops("Softmax", scores, axis=-1), value)
    mixed = ops("Reshape", ops("Transpose", mixed, perm=[0, 2, 1, 3]), ops.ints(4, 49, 96))
    return ops("MatMul", mixed, ops.weight(96, 96))


def _linear_attention(ops: Ops) -> str:
    x = ops.input(1, 8, 196, 16, low=0.0)
    key, value = ops("Relu", ops.input(1, 8, 196, 16)), ops.input(1, 8, 196, 16)
    context = ops("MatMul", ops("Transpose", key, perm=[0, 1, 3, 2]), value)
    total = ops("ReduceSum", key, ops.ints(2), keepdims=1)
    weight = ops("ReduceSum", ops("Mul", x, total), ops.ints(3), keepdims=1)
    return ops("Div", ops("MatMul", x, context), ops("Add", weight, ops.const(1e-6)))


def _speech(ops: Ops) -> str:
    x = ops.input(1, 40, 101)
    x = ops("Conv", x, ops.weight(64, 40, 5), ops.weight(64), pads=[2, 2])
    x = ops("Conv", ops("Relu", x), ops.weight(64, 1, 9), pads=[4, 4], group=64)
    x = ops("Relu", ops("Conv", x, ops.weight(64, 64, 1)))
    x = ops("ReduceMean", x, ops.ints(2), keepdims=0)
    return ops("Softmax", ops("Gemm", x, ops.weight(64, 12), ops.weight(12)), axis=1)


def _moves(ops: Ops) -> str:
    x = ops.input(1, 16, 20, 20)
    part = ops("Slice", x, ops.ints(2, 3), ops.ints(18, 17), ops.ints(2, 3))
    part = ops("Pad", part, ops.ints(0, 0, 1, 2, 0, 0, 3, 4), mode="reflect")
    pooled = ops("MaxPool", part, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    taken = ops("Gather", pooled, ops.ints(3, 1, 2, 0), axis=2)
    return ops("ReduceMax", ops("Transpose", taken, perm=[0, 2, 3, 1]), ops.ints(1), keepdims=0)


def _classifier(ops: Ops) -> str:
    x = ops("AveragePool", ops.input(1, 512, 7, 7), kernel_shape=[7, 7])
    x = ops("Gemm", ops("Flatten", x), ops.weight(512, 1000), ops.weight(1000))
    return ops("LogSoftmax", x, axis=1)


CHAINS: dict[str, Callable[[Ops], str]] = {
    "inverted_residuals": _inverted_residuals,
    "squeeze_excite": _squeeze_excite,
    "winograd": _winograd,
    "grouped_shuffle": _grouped_shuffle,
    "dense": _dense,
    "upsampling": _upsampling,
    "decoder_head": _decoder_head,
    "recurrent": _recurrent,
    "group_norm": _group_norm,
    "windowed_attention": _windowed_attention,
    "linear_attention": _linear_attention,
    "speech": _speech,
    "moves": _moves,
    "classifier": _classifier,
}
