"""The shapes of the MLPerf Tiny networks, with seeded weights, and small ones like them."""

from tests.mcu.lstm_maker import add_lstm
from tests.mcu.maker import Maker, Value


def keywords(*, width: int = 64, blocks: int = 4, height: int = 49, seed: int = 0) -> bytes:
    """DS-CNN: a strided convolution, pairs of depthwise and 1x1, a mean, a dense layer."""
    make = Maker(seed=seed)
    x = make.input(1, height, 10, 1)
    x = make.conv(x, width, (10, 4), strides=(2, 2), relu="RELU")
    for _ in range(blocks):
        x = make.depthwise(x, relu="RELU")
        x = make.conv(x, width, relu="RELU")
    return make.finish(_classified(make, x, 12))


def wake_words(*, size: int = 96, seed: int = 0) -> bytes:
    """MobileNetV1 of a quarter of the width."""
    make = Maker(seed=seed)
    x = make.input(1, size, size, 3)
    x = make.conv(x, 8, (3, 3), strides=(2, 2), relu="RELU6")
    widths = (16, 32, 32, 64, 64, 128, 128, 128, 128, 128, 128, 256, 256)
    for number, channels in enumerate(widths):
        stride = 2 if number in (1, 3, 5, 11) else 1
        x = make.depthwise(x, strides=(stride, stride), relu="RELU6")
        x = make.conv(x, channels, relu="RELU6")
    return make.finish(_classified(make, x, 2))


def images(*, size: int = 32, seed: int = 0) -> bytes:
    """ResNet-8."""
    make = Maker(seed=seed)
    x = make.input(1, size, size, 3)
    x = make.conv(x, 16, (3, 3), relu="RELU")
    for number, channels in enumerate((16, 32, 64)):
        steps = (2, 2) if number else (1, 1)
        y = make.conv(x, channels, (3, 3), strides=steps, relu="RELU")
        y = make.conv(y, channels, (3, 3))
        skip = make.conv(x, channels, strides=steps) if number else x
        x = make.add(skip, y, relu="RELU")
    return make.finish(_classified(make, x, 10))


def anomalies(*, width: int = 640, seed: int = 0) -> bytes:
    """An autoencoder of dense layers."""
    make = Maker(seed=seed)
    x = make.input(1, width)
    for channels in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        x = make.dense(x, channels, relu="RELU")
    return make.finish(make.dense(x, width))


def recurrent(*, width: int = 8, steps: int = 4, depth: int = 10, seed: int = 0) -> bytes:
    """A keyword LSTM, unrolled as converters do it: a split of gates at each step."""
    make = Maker(seed=seed)
    frames = make.input(1, steps, depth, scale=0.05)
    xs = make.parted("UNPACK", frames, [None], [(1, depth)] * steps, "UnpackOptions")
    state = make.dense(xs[0], width)
    cell = make.unary("TANH", make.dense(xs[0], width), scale=1 / 128, zero=0)
    for x in xs:
        both = make.add(make.dense(x, 4 * width), make.dense(state, 4 * width))
        shapes = [(1, width)] * 4
        gates = make.parted("SPLIT", both, [1, None], shapes, "SplitOptions")
        enter, forget, leave = (
            make.unary("LOGISTIC", gate, scale=1 / 256, zero=-128) for gate in gates[:3]
        )
        fresh = make.unary("TANH", gates[3], scale=1 / 128, zero=0)
        kept = make.binary("MUL", forget, cell, "MulOptions")
        cell = make.add(kept, make.binary("MUL", enter, fresh, "MulOptions"))
        shown = make.unary("TANH", cell, scale=1 / 128, zero=0)
        state = make.binary("MUL", leave, shown, "MulOptions")
    return make.finish(make.softmax(make.dense(state, 12)))


def keyword_lstm(*, cells: int = 10, rows: int = 6, depth: int = 9, seed: int = 0) -> bytes:
    """Two LSTMs as Keras and its converter make them, of whose rows the last one counts."""
    make = Maker(seed=seed)
    x = add_lstm(make, make.input(1, rows, depth, scale=0.05), cells, cell_bits=12)
    x = add_lstm(make, x, cells + 3, cell_bits=11)
    begin, end, step = [0, rows - 1, 0], [1, rows, cells + 3], [1, 1, 1]
    values = {"beginMask": 5, "endMask": 5, "shrinkAxisMask": 2}
    shape = (1, cells + 3)
    row = make.moved("STRIDED_SLICE", x, [begin, end, step], shape, "StridedSliceOptions", **values)
    return make.finish(make.softmax(make.dense(row, 12)))


def audio(*, width: int = 12, seed: int = 0) -> bytes:
    """Sounds in 16 bits: convolutions and gates over time with weights of 8 bits."""
    make = Maker(seed=seed, dtype="int16")
    x = make.conv(make.input(1, 24, 9, 1), width, (5, 3), strides=(2, 1), relu="RELU")
    for dilation in (1, 2):
        how = {"dilations": (dilation, 1)}
        shown = make.unary("TANH", make.conv(x, width, (3, 1), **how), scale=1 / 32768, zero=0)
        gate = make.depthwise(x, (3, 3))
        gate = make.unary("LOGISTIC", gate, scale=1 / 32768, zero=0)
        x = make.add(x, make.conv(make.binary("MUL", shown, gate, "MulOptions"), width))
    x = make.joined([x, x], 3)
    x = make.reshape(make.mean(x, (1, 2), keep=True), 1, 2 * width)
    return make.finish(make.softmax(make.dense(x, 11)))


def _classified(make: Maker, x: Value, classes: int) -> Value:
    x = make.pool(x, "AVERAGE_POOL_2D", (x.shape[1], x.shape[2]))
    x = make.reshape(x, 1, x.shape[3])
    return make.softmax(make.dense(x, classes))
