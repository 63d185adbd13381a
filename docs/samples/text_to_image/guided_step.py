#!/usr/bin/env python3
"""Write a step of text to image as one model: guided_step.py PIPELINE STEP.onnx [--pixels 512].

PIPELINE is a folder that optimum has exported.  A step runs the U-Net on a batch of two, without
and with the prompt, guides, and takes the latents from one timestep to another (-1: the image) by
DDIM (Song et al. 2020).  They go in and come out in one form, so that they can be a state, which
stays on the GPU.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, parser

CLIP_TOKENS = 77
BEFORE = """before (float[1,{channels},{extent},{extent}] latents, int64[1] from_timestep,
        int64[1] to_timestep, float[1] guidance) => ({sample}, {timestep}) {{
    step_both = Concat <axis = 0> (latents, latents)
    {sample} = Cast <to = {sample_kind}> (step_both)
    step_time = Reshape (from_timestep, step_form)
    {timestep} = Cast <to = {timestep_kind}> (step_time)
}}"""
AFTER = """after (float[2,{channels},{extent},{extent}] {predicted}) =>
        (float[1,{channels},{extent},{extent}] next_latents,
         float[1,{channels},{extent},{extent}] latent_sample) {{
    step_predicted = Cast <to = 1> ({predicted})
    step_plain = Gather <axis = 0> (step_predicted, step_0)
    step_prompted = Gather <axis = 0> (step_predicted, step_1)
    step_away = Sub (step_prompted, step_plain)
    step_guided = Mul (step_away, guidance)
    step_noise = Add (step_plain, step_guided)
    step_from = Add (from_timestep, step_1)
    step_to = Add (to_timestep, step_1)
    step_from_signal = Gather <axis = 0> (step_signals, step_from)
    step_from_noise = Gather <axis = 0> (step_noises, step_from)
    step_to_signal = Gather <axis = 0> (step_signals, step_to)
    step_to_noise = Gather <axis = 0> (step_noises, step_to)
    step_part = Mul (step_noise, step_from_noise)
    step_rest = Sub (latents, step_part)
    step_image = Div (step_rest, step_from_signal)
    step_kept = Mul (step_image, step_to_signal)
    step_added = Mul (step_noise, step_to_noise)
    next_latents = Add (step_kept, step_added)
    latent_sample = Mul (next_latents, step_scale)
}}"""


def main() -> None:
    """Parse, wrap the U-Net, write."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("pipeline", type=Path)
    words.add_argument(
        "output", type=Path, help="beside the U-Net, where that has a file of weights"
    )
    words.add_argument("--pixels", type=int, default=512, help="extents of the image (512)")
    given = words.parse_args()
    # Weights in other files stay there: the step names the same ones.
    model = onnx.load(given.pipeline / "unet" / "model.onnx", load_external_data=False)
    vae = read_settings(given.pipeline / "vae_decoder" / "config.json")
    make_step(
        model.graph,
        alphas_of(read_settings(given.pipeline / "scheduler" / "scheduler_config.json")),
        extent=given.pixels // 2 ** (len(vae["block_out_channels"]) - 1),
        scale=vae.get("scaling_factor", 0.18215),
    )
    onnx.save(model, given.output)


def read_settings(path: Path) -> dict[str, Any]:
    """Return what a file of settings says."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def alphas_of(settings: dict[str, Any]) -> np.ndarray:
    """Return which part of a variance is the image's: in the image, then at each timestep."""
    first, last = settings["beta_start"], settings["beta_end"]
    count, schedule = settings["num_train_timesteps"], settings["beta_schedule"]
    if (found := settings.get("prediction_type", "epsilon")) != "epsilon":
        raise SystemExit(f"the U-Net predicts {found}, expected epsilon")
    if schedule != "scaled_linear":
        raise SystemExit(f"the scheduler's betas are {schedule}, expected scaled_linear")
    betas = np.linspace(math.sqrt(first), math.sqrt(last), count) ** 2
    alphas = np.cumprod(1 - betas)
    image = 1.0 if settings.get("set_alpha_to_one", True) else alphas[0]
    return np.array([image, *alphas])


def make_step(graph: onnx.GraphProto, alphas: np.ndarray, *, extent: int, scale: float) -> None:
    """Make a U-Net's graph that of a step; what it makes, by `scale`, is what the decoder takes."""
    sample, timestep, text, *others = graph.input
    if others:
        raise SystemExit(f"the U-Net takes {others[0].name}, too, which this sample does not make")
    words = {
        "sample": sample.name,
        "sample_kind": sample.type.tensor_type.elem_type,
        "timestep": timestep.name,
        "timestep_kind": timestep.type.tensor_type.elem_type,
        "predicted": graph.output[0].name,
        "channels": sample.type.tensor_type.shape.dim[1].dim_value,
        "extent": extent,
    }
    before, after = (parser.parse_graph(text.format(**words)) for text in (BEFORE, AFTER))
    rows, tokens, _ = text.type.tensor_type.shape.dim
    rows.dim_value, tokens.dim_value = 2, tokens.dim_value or CLIP_TOKENS
    constants = {
        "step_form": np.ones(len(timestep.type.tensor_type.shape.dim), np.int64),
        "step_0": np.array([0], np.int64),
        "step_1": np.array([1], np.int64),
        "step_signals": np.sqrt(alphas).astype(np.float32),
        "step_noises": np.sqrt(1 - alphas).astype(np.float32),
        "step_scale": np.array([1 / scale], np.float32),
    }
    graph.initializer.extend(numpy_helper.from_array(v, name) for name, v in constants.items())
    nodes = [*before.node, *graph.node, *after.node]
    inputs = [*before.input, text]
    for field, values in (("node", nodes), ("input", inputs), ("output", after.output)):
        graph.ClearField(field)
        getattr(graph, field).extend(values)
    graph.ClearField("value_info")  # with the names of extents that are numbers now


if __name__ == "__main__":
    main()
