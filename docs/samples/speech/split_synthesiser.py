#!/usr/bin/env python3
"""Cut a synthesiser of VITS's structure in two: split_synthesiser.py MODEL.onnx FOLDER.

How long speech becomes is known as it is computed: the tokens' durations say it.  What decides
that, front.onnx, is small, and onnxruntime computes it on the CPU.  Most of the work is what makes
sound of frames, voice.onnx: it takes as many as it is compiled for, and a mask says which count.

Convolutions read zeros beyond the last frame.  In voice.onnx they do so behind the last one that
counts, so that all samples before that are what they would be without the others.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CONVOLUTIONS = ("Conv", "ConvTranspose")
LATENTS, MASK, SOUND = "latents", "mask", "waveform"


def main() -> None:
    """Parse, cut, write."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("model", type=Path)
    words.add_argument("folder", type=Path)
    given = words.parse_args()
    front, voice = split(onnx.load(given.model))
    mask_convolutions(voice.graph)
    given.folder.mkdir(parents=True, exist_ok=True)
    onnx.save(front, given.folder / "front.onnx")
    onnx.save(voice, given.folder / "voice.onnx")


def split(model: onnx.ModelProto) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Return what makes frames and their mask, and what makes sound of them.

    The cut is behind the noise that is drawn last, where it is added to the frames' means.
    """
    graph, drawn = model.graph, ""
    for node in graph.node:
        if node.op_type.startswith("RandomNormal"):
            drawn = node.output[0]
    noise = [node for node in graph.node if drawn in node.input]
    while noise and noise[0].op_type == "Mul":
        noise = [node for node in graph.node if noise[0].output[0] in node.input]
    if not drawn or [node.op_type for node in noise] != ["Add"]:
        raise SystemExit("the model adds no noise to frames, as VITS does")
    latents, sound = noise[0].output[0], graph.output[0].name
    behind = follow(graph, {latents})
    given = follow(graph, {value.name for value in graph.input}) - behind - {latents}
    others = {n for node in graph.node if node.output[0] in behind for n in node.input} & given
    if len(others) != 1:
        raise SystemExit(f"behind the noise it reads {sorted(others)}, expected the mask of frames")
    (mask,) = others
    front = extract(model, {value.name for value in graph.input}, [latents, mask])
    voice = extract(model, {latents, mask}, [sound])
    names = {name: f"{name}/own" for name in (LATENTS, MASK, SOUND)}
    names |= {latents: LATENTS, mask: MASK, sound: SOUND}
    for part in (front.graph, voice.graph):
        for node in part.node:
            node.input[:] = [names.get(name, name) for name in node.input]
            node.output[:] = [names.get(name, name) for name in node.output]
    shapes: dict[str, list[int | str]] = {
        LATENTS: [1, "channels", "frames"],
        MASK: [1, 1, "frames"],
    }
    between = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    ]
    front.graph.input.extend(graph.input)
    front.graph.output.extend(between)
    voice.graph.input.extend(between)
    voice.graph.output.extend([graph.output[0]])
    voice.graph.output[0].name = SOUND
    return front, voice


def follow(graph: onnx.GraphProto, names: set[str]) -> set[str]:
    """Return what is computed of some values, directly or not."""
    made: set[str] = set()
    for node in graph.node:
        if not (names | made).isdisjoint(node.input):
            made.update(node.output)
    return made


def extract(model: onnx.ModelProto, known: set[str], wanted: list[str]) -> onnx.ModelProto:
    """Return the nodes that make what is wanted of what is known, without inputs and outputs."""
    needed, kept = set(wanted), []
    for node in reversed(model.graph.node):
        if not needed.isdisjoint(node.output):
            kept.append(node)
            needed.update(name for name in node.input if name not in known)
    constants = [one for one in model.graph.initializer if one.name in needed]
    graph = helper.make_graph(kept[::-1], model.graph.name, [], [], constants)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def mask_convolutions(graph: onnx.GraphProto) -> None:
    """Have convolutions read zeros for frames that do not count."""
    rates, masks, nodes = {LATENTS: 1, MASK: 1}, {1: MASK}, []
    masked = {node.output[0] for node in graph.node if node.op_type == "Mul" and MASK in node.input}
    for node in graph.node:
        rate = max((rates.get(name, 1) for name in node.input), default=1)
        settings = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        is_wide = node.op_type in CONVOLUTIONS and settings["kernel_shape"] != [1]
        if is_wide and node.input[0] not in masked:
            if rate not in masks:
                masks[rate] = f"{MASK}_{rate}"
                scales = numpy_helper.from_array(
                    np.array([1, 1, rate], np.float32), f"scale_{rate}"
                )
                graph.initializer.append(scales)
                how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
                how["nearest_mode"] = "floor"
                inputs = [MASK, "", scales.name]
                nodes.append(helper.make_node("Resize", inputs, [masks[rate]], **how))
            counted = f"{node.input[0]}/{MASK}"
            if counted not in masked:
                nodes.append(helper.make_node("Mul", [node.input[0], masks[rate]], [counted]))
                masked.add(counted)
            node.input[0] = counted
        if node.op_type == "ConvTranspose":
            rate *= settings["strides"][0]
        rates.update(dict.fromkeys(node.output, rate))
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


if __name__ == "__main__":
    main()
