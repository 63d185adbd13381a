"""Networks of hundreds of MiB, with the extents of well-known ones and seeded weights.

Sources of the architectures: Rombach et al. 2022 (U-Net and decoder of Stable Diffusion 1.5),
Radford et al. 2021 (the text encoder of CLIP ViT-L/14), Yang et al. 2024 (Depth Anything, small),
Kirillov et al. 2023 (the image encoder of SAM-B), Radford et al. 2022 (the encoder of Whisper
base).
"""

import math

import numpy as np
import onnx
from onnx import TensorProto

from model_zoo.onnx_net import (
    RESIDUAL_SCALE,
    OnnxNet,
    add_places,
    attention,
    encoder_layer,
    gelu,
    group_norm,
    layer_norm,
    linear,
    patches,
    reshape,
    silu,
    to_image,
    to_tokens,
    transpose,
)


def sd_unet(*, size: int = 64, width: float = 1.0, seed: int = 0) -> onnx.ModelProto:
    """The U-Net of Stable Diffusion 1.5 in float16: four levels, three of them see the text."""
    net = OnnxNet("sd_unet", (1, 4, size, size), seed=seed, dtype=np.float16)
    base = max(1, round(10 * width)) * 32
    text = net.input("text", (1, 77, 768))
    return net.finish(unet(net, net.input("time", (1, base)), text, (1, 2, 4, 4)))


def unet(net: OnnxNet, time: str, text: str, factors: tuple[int, ...], layers: int = 2) -> str:
    """A U-Net of which all levels but the last see the text, with factors on the channels."""
    base, last = net.shapes[time][1], len(factors) - 1
    for _ in range(2):
        time = silu(net, linear(net, time, 4 * base, gain=1.0))

    def residual(x: str, out: int) -> str:
        return _residual(net, x, out, time)

    def see_text(x: str) -> str:
        _, channels, high, wide = net.shapes[x]
        y = to_tokens(net, net.conv(group_norm(net, x), channels, 1))
        y = net.add(y, attention(net, layer_norm(net, y), 8))
        y = net.add(y, attention(net, layer_norm(net, y), 8, of=text))
        normed = layer_norm(net, y)
        gate = gelu(net, linear(net, normed, 4 * channels, gain=1.0))
        hidden = linear(net, normed, 4 * channels, gain=1.0)
        gated = net.node("Mul", [hidden, gate], net.shapes[gate])
        y = net.add(y, linear(net, gated, channels, gain=RESIDUAL_SCALE))
        return net.add(x, net.conv(to_image(net, y, (high, wide)), channels, 1))

    x = net.conv("input", base, 3)
    kept = [x]
    for level, factor in enumerate(factors):
        for _ in range(layers):
            x = residual(x, base * factor)
            x = see_text(x) if level < last else x
            kept.append(x)
        if level < last:
            x = net.conv(x, base * factor, 3, stride=2)
            kept.append(x)
    x = residual(see_text(residual(x, factors[-1] * base)), factors[-1] * base)
    for level, factor in enumerate(reversed(factors)):
        for _ in range(layers + 1):
            x = residual(net.concat([x, kept.pop()]), base * factor)
            x = see_text(x) if level else x
        if level < last:
            x = net.conv(_double(net, x), base * factor, 3)
    return net.conv(silu(net, group_norm(net, x)), 4, 3)


def sd_decoder(*, size: int = 64, width: float = 1.0, seed: int = 0) -> onnx.ModelProto:
    """The decoder of Stable Diffusion's images: eight times the extents of what it is given."""
    net = OnnxNet("sd_decoder", (1, 4, size, size), seed=seed)
    return net.finish(decoder(net, max(1, round(4 * width)) * 32, (4, 4, 2, 1)))


def decoder(net: OnnxNet, base: int, factors: tuple[int, ...]) -> str:
    """The image of latents, of twice the extents after each level but the last."""
    size = net.shapes["input"][2]
    x = _residual(net, net.conv(net.conv("input", 4, 1), factors[0] * base, 3), factors[0] * base)
    seen = attention(net, to_tokens(net, group_norm(net, x)), 1)
    x = _residual(net, net.add(x, to_image(net, seen, (size, size))), factors[0] * base)
    for level, factor in enumerate(factors):
        for _ in range(3):
            x = _residual(net, x, base * factor)
        if level < len(factors) - 1:
            x = net.conv(_double(net, x), base * factor, 3)
    return net.conv(silu(net, group_norm(net, x)), 3, 3)


def clip_text(*, width: float = 1.0, seed: int = 0) -> onnx.ModelProto:
    """CLIP's encoder of 77 tokens, which are looked up in a table of 49,408."""
    net = OnnxNet("clip_text", (1, 77), seed=seed, input_dtype=np.int64)
    heads = max(1, round(12 * width))
    return net.finish(text_encoder(net, 49408, 64 * heads, heads, 12))


def text_encoder(net: OnnxNet, words: int, dim: int, heads: int, layers: int) -> str:
    """Tokens that see themselves and those before them."""
    batch, count = net.shapes["input"]
    table = net.constant(net.weights.matrix(words, dim, gain=0.04 * words))
    x = add_places(net, net.node("Gather", [table, "input"], (batch, count, dim)))
    mask = net.constant(np.triu(np.full((1, 1, count, count), -1e4, np.float32), 1))
    for _ in range(layers):
        x = encoder_layer(net, x, heads, mask=mask)
    return layer_norm(net, x)


def depth_anything(*, size: int = 518, width: float = 1.0, seed: int = 0) -> onnx.ModelProto:
    """Depth Anything: a vision transformer of patches of 14, four of whose layers become a map."""
    net = OnnxNet("depth_anything", (1, 3, size, size), seed=seed)
    heads = max(1, round(6 * width))
    side, dim = size // 14, 64 * heads
    x = add_places(net, patches(net, dim, 14))
    levels = []
    for layer in range(12):
        x = encoder_layer(net, x, heads)
        if layer % 3 == 2:
            levels.append(net.conv(to_image(net, x, (side, side)), 64, 3))
    x = levels.pop()
    while levels:
        x = net.add(x, net.conv(net.relu(net.add(x, levels.pop())), 64, 3))
    x = net.relu(net.conv(_double(net, _double(net, x)), 32, 3))
    return net.finish(net.relu(net.conv(x, 1, 1)))


def sam_encoder(*, size: int = 1024, width: float = 1.0, seed: int = 0) -> onnx.ModelProto:
    """SAM-B's image encoder: attention in windows of 16 x 16 patches, in four layers to all."""
    net = OnnxNet("sam_encoder", (1, 3, size, size), seed=seed)
    heads = max(1, round(12 * width))
    side, dim = size // 16, 64 * heads
    x = add_places(net, patches(net, dim, 16))
    for layer in range(12):
        x = encoder_layer(net, x, heads) if layer % 3 == 2 else _in_windows(net, x, heads, side)
    image = to_image(net, x, (side, side))
    return net.finish(net.conv(net.conv(image, 256, 1), 256, 3))


def whisper_encoder(*, size: int = 3000, width: float = 1.0, seed: int = 0) -> onnx.ModelProto:
    """Whisper base's encoder of `size` columns of a spectrogram, 30 seconds of sound."""
    net = OnnxNet("whisper_encoder", (1, 80, size), seed=seed)
    heads = max(1, round(8 * width))
    x = "input"
    for stride in (1, 2):
        _, channels, columns = net.shapes[x]
        filters = net.weights.filters((64 * heads, channels, 3, 1), 3 * channels)[..., 0]
        shape = (1, 64 * heads, columns // stride)
        inputs = [x, net.constant(filters)]
        x = net.node("Conv", inputs, shape, kernel_shape=[3], strides=[stride], pads=[1, 1])
        x = gelu(net, x)
    x = add_places(net, to_tokens(net, x))
    for _ in range(6):
        x = encoder_layer(net, x, heads)
    return net.finish(layer_norm(net, x))


def _residual(net: OnnxNet, x: str, out: int, time: str = "") -> str:
    """Two convolutions behind norms, and what they read; between them a product of `time`."""
    y = net.conv(silu(net, group_norm(net, x)), out, 3)
    if time:
        shift = reshape(net, linear(net, time, out, gain=0.1), (1, out, 1, 1))
        y = net.node("Add", [y, shift], net.shapes[y])
    y = net.conv(silu(net, group_norm(net, y)), out, 3)
    return net.add(x if net.shapes[x] == net.shapes[y] else net.conv(x, out, 1), y)


def _double(net: OnnxNet, x: str) -> str:
    """An image of twice the extents, by its nearest pixels."""
    batch, channels, height, width = net.shapes[x]
    shape = (batch, channels, 2 * height, 2 * width)
    sizes = net.constant(np.array(shape, np.int64))
    how = {"mode": "nearest", "nearest_mode": "floor"}
    how["coordinate_transformation_mode"] = "asymmetric"
    return net.node("Resize", [x, "", "", sizes], shape, **how)


def _in_windows(net: OnnxNet, x: str, heads: int, side: int) -> str:
    """A layer of which each 16 x 16 tokens see themselves alone."""
    dim, count = net.shapes[x][-1], side // 16
    parts = transpose(net, reshape(net, x, (count, 16, count, 16, dim)), [0, 2, 1, 3, 4])
    x = encoder_layer(net, reshape(net, parts, (count * count, 256, dim)), heads)
    parts = transpose(net, reshape(net, x, (count, count, 16, 16, dim)), [0, 2, 1, 3, 4])
    return reshape(net, parts, (1, side * side, dim))


LARGE = {
    "sd_unet": sd_unet,
    "sd_decoder": sd_decoder,
    "clip_text": clip_text,
    "depth_anything": depth_anything,
    "sam_encoder": sam_encoder,
    "whisper_encoder": whisper_encoder,
}


TEXT, TOKENS, WORDS = 32, 77, 64
_BASE = 32

SETTINGS = {
    "scheduler/scheduler_config.json": {
        "_class_name": "DDIMScheduler",
        "beta_start": 0.00085,
        "beta_end": 0.012,
        "beta_schedule": "scaled_linear",
        "num_train_timesteps": 1000,
        "prediction_type": "epsilon",
        "set_alpha_to_one": False,
        "steps_offset": 1,
    },
    "vae_decoder/config.json": {"block_out_channels": [32, 64], "scaling_factor": 0.18215},
}
"""What files beside the models say."""


def make_text_encoder(seed: int = 0) -> onnx.ModelProto:
    """Two rows of tokens to hidden states."""
    net = OnnxNet("text_encoder", (2, TOKENS), seed=seed, input_dtype=np.int64)
    model = net.finish(text_encoder(net, WORDS, TEXT, 4, 2))
    return _rename(model, input="input_ids", output="last_hidden_state")


def make_unet(size: int, seed: int = 0) -> onnx.ModelProto:
    """Two latents of `size` squared to the noise in them."""
    net = OnnxNet("unet", (2, 4, size, size), seed=seed)
    step = net.input("timestep", (1,), dtype=np.int64)
    text = net.input("encoder_hidden_states", (2, TOKENS, TEXT))
    rates = np.exp(np.arange(_BASE // 2) * (-math.log(10_000) / (_BASE // 2)))
    whole = net.node("Cast", [step], (1,), to=TensorProto.FLOAT)
    angles = net.node("Mul", [whole, net.constant(rates[None])], (1, _BASE // 2))
    turned = [net.node(op, [angles], (1, _BASE // 2)) for op in ("Cos", "Sin")]
    time = net.node("Concat", turned, (1, _BASE), axis=1)
    model = net.finish(unet(net, time, text, (1, 2), layers=1))
    return _rename(model, input="sample", output="out_sample")


def make_vae_decoder(size: int, seed: int = 0) -> onnx.ModelProto:
    """Latents of `size` squared to an image of twice that."""
    net = OnnxNet("vae_decoder", (1, 4, size, size), seed=seed)
    return _rename(net.finish(decoder(net, 32, (2, 1))), input="latent_sample", output="sample")


def _rename(model: onnx.ModelProto, **names: str) -> onnx.ModelProto:
    for value in (*model.graph.input, *model.graph.output):
        value.name = names.get(value.name, value.name)
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    return model
