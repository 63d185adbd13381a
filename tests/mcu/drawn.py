"""Models of operators whose every parameter is drawn: shapes, windows, steps, borders, quanta."""

from typing import Any

from tests.mcu.maker import Maker, Value

_RELUS = ("NONE", "NONE", "RELU", "RELU6", "RELU_N1_TO_1")


def drawn_model(seed: int, *, operators: int = 6, with_state: bool = False) -> bytes:
    """A model of some operators side by side, each on an input of its own.

    `with_state`: some may remember earlier runs, as not all cores can.
    """
    make = Maker(seed=seed)
    usual = (_convolution, _depthwise, _depthwise, _chain, _dense, _pool, _move, _pair)
    kinds = (*usual, _enlarged, _remembered) if with_state else usual
    made: list[Value] = []
    for _ in range(operators):
        kind = kinds[int(make.random.integers(len(kinds)))]
        made += kind(make)
    return make.finish(*made)


def _int(make: Maker, low: int, high: int) -> int:
    return int(make.random.integers(low, high + 1))


def _pick(make: Maker, *options):
    return options[int(make.random.integers(len(options)))]


def _channels(make: Maker) -> int:
    return int(_pick(make, 1, 2, 3, 4, 5, 8, 12, 16, 16, 20, 24, 32, 33, 48))


def _window(make: Maker) -> dict[str, Any]:
    """A window with the size of an image that it fits into."""
    kernel = (_int(make, 1, 5), _int(make, 1, 5))
    if make.random.random() < 0.4:
        kernel = (3, 3)
    strides, dilations = (_int(make, 1, 3), _int(make, 1, 3)), (1, 1)
    if make.random.random() < 0.3:
        strides, dilations = (1, 1), (_int(make, 1, 3), _int(make, 1, 3))
    if make.random.random() < 0.4:
        strides = (strides[0], strides[0])
    padding = _pick(make, "SAME", "VALID")
    least = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    if padding == "SAME":
        least = [1, 1]
    size = tuple(_int(make, low, low + 9) for low in least)
    relu = _pick(make, *_RELUS)
    how = {"strides": strides, "dilations": dilations, "padding": padding, "relu": relu}
    return {"kernel": kernel, "size": size, **how}


def _convolution(make: Maker) -> list[Value]:
    how = _window(make)
    if make.random.random() < 0.3:
        how["kernel"] = (1, 1)
    groups = _pick(make, 1, 1, 1, 2, 3)
    x = make.input(1, *how.pop("size"), _channels(make) * groups)
    per_channel = bool(make.random.random() < 0.8)
    how |= {"per_channel": per_channel, "groups": groups}
    return [make.conv(x, _channels(make) * groups, how.pop("kernel"), **how)]


def _depthwise(make: Maker) -> list[Value]:
    how = _window(make)
    many = _pick(make, 1, 1, 1, 2, 3)
    x = make.input(1, *how.pop("size"), _channels(make))
    return [make.depthwise(x, how.pop("kernel"), many=many, **how)]


def _chain(make: Maker) -> list[Value]:
    """A block as of MobileNetV2, with its sum."""
    x = make.input(1, _int(make, 1, 8), _int(make, 1, 8), _channels(make))
    y = make.conv(x, _channels(make), relu=_pick(make, *_RELUS))
    if make.random.random() < 0.5:
        y = make.unary(_pick(make, "HARD_SWISH", "RELU6"), y, scale=y.scale)
    y = make.depthwise(y, _pick(make, (3, 3), (5, 5)), relu=_pick(make, *_RELUS))
    return [make.add(x, make.conv(y, x.shape[3]), relu=_pick(make, "NONE", "RELU"))]


def _dense(make: Maker) -> list[Value]:
    x = make.input(_pick(make, 1, 1, 2, 5), _int(make, 1, 70))
    return [make.dense(x, _int(make, 1, 40), relu=_pick(make, *_RELUS))]


def _pool(make: Maker) -> list[Value]:
    how = _window(make)
    del how["dilations"]
    kernel = how.pop("kernel")
    height, width = (max(a, b) for a, b in zip(how.pop("size"), kernel, strict=True))
    x = make.input(1, height, width, _channels(make))
    return [make.pool(x, _pick(make, "AVERAGE_POOL_2D", "MAX_POOL_2D"), kernel, **how)]


def _move(make: Maker) -> list[Value]:
    x = make.input(1, _int(make, 1, 6), _int(make, 1, 6), _channels(make))
    pads = [[0, 0], *([_int(make, 0, 2), _int(make, 0, 2)] for _ in range(3))]
    padded = tuple(d + sum(p) for d, p in zip(x.shape, pads, strict=True))
    order = [0, *(int(a) + 1 for a in make.random.permutation(3))]
    turned = tuple(x.shape[a] for a in order)
    size = (1, _int(make, 1, 9), _int(make, 1, 9), x.shape[3])
    kernel, stride = (_int(make, 1, 4), _int(make, 1, 4)), _int(make, 1, 3)
    return [
        make.moved("PAD", x, [pads], padded, "PadOptions"),
        make.moved("TRANSPOSE", x, [order], turned, "TransposeOptions"),
        make.moved(
            "RESIZE_NEAREST_NEIGHBOR",
            x,
            [list(size[1:3])],
            size,
            "ResizeNearestNeighborOptions",
            halfPixelCenters=bool(make.random.random() < 0.5),
        ),
        make.conv_transpose(x, _channels(make), kernel, stride, _pick(make, "SAME", "VALID")),
        make.mean(x, _pick(make, (1, 2), (3,), (1, 2, 3), (2,)), keep=True),
    ]


def _enlarged(make: Maker) -> list[Value]:
    x = make.input(1, _int(make, 1, 9), _int(make, 1, 9), _int(make, 1, 6))
    size = (_int(make, 1, 20), _int(make, 1, 20))
    corners, half = _pick(make, (False, False), (True, False), (False, True))
    how = {"alignCorners": corners, "halfPixelCenters": half}
    options = "ResizeBilinearOptions"
    shape = (1, *size, x.shape[3])
    return [make.moved("RESIZE_BILINEAR", x, [list(size)], shape, options, **how)]


def _remembered(make: Maker) -> list[Value]:
    x = make.input(1, _int(make, 1, 40))
    return [make.svdf(x, _int(make, 1, 12), _int(make, 1, 4), _int(make, 1, 16))]


def _pair(make: Maker) -> list[Value]:
    shape = (1, _int(make, 1, 6), _int(make, 1, 6), _channels(make))
    a, b = make.input(*shape), make.input(*shape)
    row = make.input(1, 1, 1, shape[3])
    flat = make.input(1, _int(make, 2, 40), scale=_pick(make, 0.02, 0.1, 0.5))
    return [
        make.add(a, b, relu=_pick(make, *_RELUS)),
        make.binary("MUL", a, b, "MulOptions", _pick(make, *_RELUS)),
        make.binary("MUL", a, row, "MulOptions"),
        make.binary("SUB", b, row, "SubOptions"),
        make.softmax(flat, beta=_pick(make, 0.5, 1.0, 2.0)),
        make.unary("LOGISTIC", flat, scale=1 / 256, zero=-128),
        make.unary("TANH", flat, scale=1 / 128, zero=0),
        make.unary("HARD_SWISH", flat, scale=flat.scale * 0.9),
    ]
