"""What a model's own runtime computes, in the numbers of its firmware."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from adrenoc.check.reference import run_reference, run_reference_kernels
from adrenoc.firmware.mcu.folder import Firmware
from adrenoc.importers.formats import find_model_files


def expected_outputs(
    firmware: Firmware, model: Path, inputs: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the outputs of LiteRT's reference kernels, or of onnxruntime, as int8 by name.

    Raises:
        InputError: the model does not have these inputs.
        DependencyError: its runtime is not installed.
        ModelFormatError: that refuses it.
    """
    borders = dict(zip((*firmware.inputs, *firmware.outputs), firmware.borders, strict=True))
    feeds = {spec.name: borders[spec].to_model(inputs[spec.name]) for spec in firmware.inputs}
    tflite = find_model_files(model).format == "tflite"
    found = run_reference_kernels(model, feeds) if tflite else run_reference(model, feeds)
    known = {spec.name: borders[spec] for spec in firmware.outputs}
    return {name: known[name].to_firmware(a) if name in known else a for name, a in found.items()}


def judge_of(model: Path) -> str:
    """Return what computed the expected outputs, as the end of a sentence."""
    tflite = find_model_files(model).format == "tflite"
    return "LiteRT's reference kernels compute" if tflite else "onnxruntime computes"
