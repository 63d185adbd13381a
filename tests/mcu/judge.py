"""Holds networks against LiteRT's reference kernels, byte by byte."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert import interpreter as litert

from adrenoc.cli.main import main
from adrenoc.firmware.mcu.core import load_core
from adrenoc.firmware.mcu.emulator import Emulated, missing_tools, run_firmware
from adrenoc.firmware.mcu.evaluate import evaluate
from adrenoc.firmware.mcu.folder import Firmware, firmware_of, write_firmware
from adrenoc.firmware.mcu.program import make_program
from adrenoc.firmware.mcu.tflite.importer import network_of
from adrenoc.importers.tflite.file import read_tflite

needs_emulator = pytest.mark.skipif(
    bool(missing_tools()), reason=f"not installed: {' and '.join(missing_tools())}"
)


class Reference:
    """LiteRT on one model, with every tensor kept."""

    def __init__(self, content: bytes) -> None:
        self.run = litert.Interpreter(
            model_content=content,
            experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF,
            experimental_preserve_all_tensors=True,
        )
        self.run.allocate_tensors()

    def inputs(self, seed: int) -> dict[int, np.ndarray]:
        """Drawn numbers: mostly of the whole range, sometimes near its ends."""
        random = np.random.default_rng(seed)
        found = {}
        for detail in self.run.get_input_details():
            ends = np.iinfo(detail["dtype"])
            numbers = random.integers(ends.min, ends.max + 1, detail["shape"])
            if seed % 3 == 2:
                numbers = np.where(numbers < 0, ends.min, ends.max)
            found[detail["index"]] = numbers.astype(detail["dtype"])
        return found

    def compute(self, inputs: dict[int, np.ndarray]) -> None:
        """Compute; `tensor` then gives the results."""
        for index, array in inputs.items():
            self.run.set_tensor(index, array)
        self.run.invoke()

    def tensor(self, index: int) -> np.ndarray:
        return np.array(self.run.get_tensor(index))


def compile_firmware(model: Path, out: Path, *more: str, core: str = "cortex-m4") -> int:
    """Return how the command ends that makes a folder for firmware of a model."""
    return main(["firmware", "compile", str(model), "--device", core, "-o", str(out), *more])


def run_firmware_of(model: Path, out: Path, *more: str) -> int:
    """Return how the command ends that compares a folder's firmware with its model."""
    return main(["firmware", "run", str(out), "--check", str(model), *more])


def judge(content: bytes, seed: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Drawn inputs, and what LiteRT computes of them, by the names of tensors."""
    reference = Reference(content)
    inputs = reference.inputs(seed)
    reference.compute(inputs)
    given, made = reference.run.get_input_details(), reference.run.get_output_details()
    return (
        {detail["name"]: inputs[detail["index"]] for detail in given},
        {detail["name"]: reference.tensor(detail["index"]) for detail in made},
    )


def evaluate_and_compare(content: bytes, *, seeds: int = 3) -> None:
    """Every tensor of our evaluation is LiteRT's."""
    file = read_tflite(Path("m.tflite"), content)
    network = network_of(Path("m.tflite"), file)
    reference = Reference(content)
    kept: dict[int, np.ndarray] = {}
    for seed in range(seeds):
        inputs = reference.inputs(seed)
        reference.compute(inputs)
        values = evaluate(network, inputs, kept)
        for number, operator in enumerate(network.operators):
            if operator.result >= len(file.main.tensors):
                continue  # one that the translation added
            want, got = reference.tensor(operator.result), values[operator.result]
            wrong = int((want != got).sum())
            assert not wrong, f"{network.labels[number]} {number}: {wrong} of {want.size} differ"


def run_and_compare(
    content: bytes,
    folder: Path,
    *,
    core: str = "cortex-m4",
    seed: int = 1,
    write: Callable[..., None] = write_firmware,
    run: Callable[..., Emulated] = run_firmware,
) -> tuple[Firmware, Emulated]:
    """What the folder that `write` makes computes, as `run` runs it, is what LiteRT computes."""
    network = network_of(Path("m.tflite"), read_tflite(Path("m.tflite"), content))
    program = make_program(network, load_core(core))
    firmware = firmware_of(program, "")
    write(program, firmware, folder)
    reference = Reference(content)
    inputs = reference.inputs(seed)
    reference.compute(inputs)
    by_name = {network.tensors[index].name: array for index, array in inputs.items()}
    result = run(folder, firmware, by_name)
    for index in network.outputs:
        want, got = reference.tensor(index), result.outputs[network.tensors[index].name]
        wrong = int((want != got).sum())
        assert not wrong, f"{network.tensors[index].name}: {wrong} of {want.size} differ"
    return firmware, result
