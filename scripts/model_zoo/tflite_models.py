"""Networks as TFLite files: a small MobileNetV1 (Howard et al. 2017), one of mixed paddings."""

from model_zoo.tflite_net import TFLiteNet


def mobilenet_v1_small(
    *, size: int = 96, width: float = 0.25, classes: int = 10, seed: int = 0
) -> bytes:
    """MobileNetV1 with fused ReLU6 and SAME padding."""
    net = TFLiteNet((1, size, size, 3), seed=seed)
    x = net.conv(net.input, max(8, int(32 * width)), 3, stride=2, activation="relu6")
    blocks = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5]
    for base, stride in [*blocks, (1024, 2), (1024, 1)]:
        x = net.depthwise(x, 3, stride=stride, activation="relu6")
        x = net.conv(x, max(8, int(base * width)), 1, activation="relu6")
    return net.finish(net.classifier(x, classes))


def mixed_small(*, size: int = 31, width: float = 1.0, classes: int = 10, seed: int = 0) -> bytes:
    """A small net with both paddings, odd extents, pools, a concatenation and a residual sum."""
    net = TFLiteNet((1, size, size, 3), seed=seed)
    base = max(3, int(6 * width))
    x = net.conv(net.input, base, 3, stride=2, padding="valid", activation="relu")
    x = net.depthwise(x, 3, multiplier=2, activation="relu6")
    pooled = net.pool(x, "maximum", 3, 2)
    x = net.concat([pooled, net.pool(x, "average", 3, 2)])
    x = net.add(x, net.conv(x, net.shapes[x][3], 5, activation=""), activation="relu")
    x = net.pool(x, "average", 2, 2, padding="valid")
    return net.finish(net.classifier(x, classes))


MODELS = {"mobilenet_v1_small": mobilenet_v1_small, "mixed_small": mixed_small}
