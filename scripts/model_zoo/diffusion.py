"""The three parts of a small text-to-image pipeline, under the names that optimum gives them."""

import math

import numpy as np
import onnx
from onnx import TensorProto

from model_zoo.large_models import decoder, text_encoder, unet
from model_zoo.onnx_net import OnnxNet

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
