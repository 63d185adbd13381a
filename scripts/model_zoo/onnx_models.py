"""The networks: MobileNetV2, ResNet-18, SqueezeNet 1.1, a U-Net, a vision transformer.

Sources of the architectures: Sandler et al. 2018 (MobileNetV2), He et al. 2015 (ResNet),
Iandola et al. 2016 (SqueezeNet), Ronneberger et al. 2015 (U-Net), Dosovitskiy et al. 2020 (ViT).
"""

import onnx

from model_zoo.onnx_net import (
    RESIDUAL_SCALE,
    OnnxNet,
    add_places,
    encoder_layer,
    layer_norm,
    patches,
)


def mobilenet_v2(
    *, size: int = 224, width: float = 1.0, classes: int = 1000, seed: int = 0
) -> onnx.ModelProto:
    """MobileNetV2 with its batch normalisations in place."""
    net = OnnxNet("mobilenet_v2", (1, 3, size, size), seed=seed)

    def channels(count: float) -> int:
        rounded = max(8, int(count * width + 4) // 8 * 8)
        return rounded + 8 if rounded < 0.9 * count * width else rounded

    def unit(x: str, out: int, kernel: int, *, stride: int = 1, groups: int = 1) -> str:
        return net.relu6(
            net.batch_norm(net.conv(x, out, kernel, stride=stride, groups=groups, bias=False))
        )

    x = unit("input", channels(32), 3, stride=2)
    blocks = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1)]
    for expansion, base, repeats, first_stride in [*blocks, (6, 160, 3, 2), (6, 320, 1, 1)]:
        for index in range(repeats):
            stride, start = first_stride if index == 0 else 1, x
            hidden, out = net.shapes[x][1] * expansion, channels(base)
            if expansion != 1:
                x = unit(x, hidden, 1)
            x = unit(x, hidden, 3, stride=stride, groups=hidden)
            skips = stride == 1 and net.shapes[start][1] == out
            x = net.batch_norm(
                net.conv(x, out, 1, bias=False), scale=RESIDUAL_SCALE if skips else 1.0
            )
            if skips:
                x = net.add(start, x)
    x = unit(x, channels(1280) if width > 1.0 else 1280, 1)
    return net.finish(net.classifier(x, classes))


def resnet18(
    *, size: int = 224, width: float = 1.0, classes: int = 1000, seed: int = 0
) -> onnx.ModelProto:
    """ResNet-18 with its batch normalisations in place."""
    net = OnnxNet("resnet18", (1, 3, size, size), seed=seed)
    base = max(8, int(64 * width))
    x = net.relu(net.batch_norm(net.conv("input", base, 7, stride=2, bias=False)))
    x = net.max_pool(x, 3, 2, pad=1)
    for stage in range(4):
        for index in range(2):
            out, stride, start = base << stage, 2 if stage and not index else 1, x
            x = net.relu(net.batch_norm(net.conv(x, out, 3, stride=stride, bias=False)))
            x = net.batch_norm(net.conv(x, out, 3, bias=False), scale=RESIDUAL_SCALE)
            if net.shapes[start] != net.shapes[x]:
                start = net.batch_norm(net.conv(start, out, 1, stride=stride, bias=False))
            x = net.relu(net.add(x, start))
    return net.finish(net.classifier(x, classes))


def squeezenet(
    *, size: int = 224, width: float = 1.0, classes: int = 1000, seed: int = 0
) -> onnx.ModelProto:
    """SqueezeNet 1.1: fire modules with concatenation, no batch normalisation."""
    net = OnnxNet("squeezenet", (1, 3, size, size), seed=seed)
    x = net.relu(net.conv("input", max(8, int(64 * width)), 3, stride=2))
    for squeeze, expand, count in ((16, 64, 2), (32, 128, 2), (48, 192, 2), (64, 256, 2)):
        if squeeze < 64:
            x = net.max_pool(x, 3, 2)
        small, large = max(2, int(squeeze * width)), max(4, int(expand * width))
        for _ in range(count):
            x = net.relu(net.conv(x, small, 1))
            x = net.concat([net.relu(net.conv(x, large, k)) for k in (1, 3)])
    x = net.relu(net.conv(x, classes, 1))
    pooled = net.node("GlobalAveragePool", [x], (1, classes, 1, 1))
    return net.finish(net.node("Flatten", [pooled], (1, classes), axis=1))


def unet(*, size: int = 64, width: float = 1.0, classes: int = 3, seed: int = 0) -> onnx.ModelProto:
    """A U-Net of three levels that goes up by a transposed convolution, then by interpolation."""
    net = OnnxNet("unet", (1, 3, size, size), seed=seed)
    base = max(4, int(16 * width))

    def pair(x: str, out: int) -> str:
        for _ in range(2):
            x = net.relu(net.batch_norm(net.conv(x, out, 3, bias=False)))
        return x

    levels = [pair("input", base)]
    for depth in (1, 2):
        levels.append(pair(net.max_pool(levels[-1], 2, 2), base << depth))
    x = net.upsample_by_transpose(levels[2], base << 1)
    x = pair(net.concat([x, levels[1]]), base << 1)
    x = net.upsample_by_resize(x)
    x = pair(net.concat([x, levels[0]]), base)
    return net.finish(net.conv(x, classes, 1))


def vit(
    *, size: int = 224, width: float = 1.0, classes: int = 1000, seed: int = 0, depth: int = 4
) -> onnx.ModelProto:
    """A vision transformer: patches of 16, heads of 64 channels, mean over tokens at the end."""
    net = OnnxNet("vit", (1, 3, size, size), seed=seed)
    heads = max(1, round(3 * width))
    dim = 64 * heads
    x = add_places(net, patches(net, dim, 16))
    for _ in range(depth):
        x = encoder_layer(net, x, heads)
    x = layer_norm(net, x)
    mean = net.node("ReduceMean", [x], (1, dim), axes=[1], keepdims=0)
    weight = net.constant(net.weights.matrix(dim, classes, gain=9.0))
    bias = net.constant(net.weights.bias(classes, 0.5))
    return net.finish(net.node("Gemm", [mean, weight, bias], (1, classes)))


def lstm(*, size: int = 64, seed: int = 0) -> onnx.ModelProto:
    """An LSTM of 64 units over `size` steps of 40 numbers."""
    net = OnnxNet("lstm", (size, 1, 40), seed=seed)
    inputs = ["input", *(net.constant(net.weights.matrix(256, n)[None]) for n in (40, 64))]
    return net.finish(net.node("LSTM", inputs, (size, 1, 1, 64), hidden_size=64))


MODELS = {
    "mobilenet_v2": mobilenet_v2,
    "resnet18": resnet18,
    "squeezenet": squeezenet,
    "unet": unet,
    "vit": vit,
}
