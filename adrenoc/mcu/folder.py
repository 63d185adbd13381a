"""The folder that firmware is built with: code, self-test, and what a report and a run need."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import adrenoc
from adrenoc.bundle.manifest import TensorSpec
from adrenoc.decision import Decision
from adrenoc.errors import BundleError
from adrenoc.files.outputs import write_folder_atomically
from adrenoc.files.owned_folder import LIST_FILE, listed_kind, write_list
from adrenoc.files.read import read_plain
from adrenoc.mcu.borders import Border
from adrenoc.mcu.evaluate import evaluate
from adrenoc.mcu.object_file import OBJECT_FILE, build_object
from adrenoc.mcu.print_c import print_cmake, print_model, print_self_test
from adrenoc.mcu.program import Program
from adrenoc.text.json_text import read_json

MODEL_FILE = "model.json"
FIRMWARE_FOLDER = listed_kind("firmware folder")
_VERSION = 2


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One line of the report."""

    name: str
    operator: str
    tensor: str
    how: str
    flash_bytes: int
    scratch_bytes: int


@dataclass(frozen=True, kw_only=True)
class Firmware:
    """What is known of a model as C, and kept beside it as `model.json`."""

    name: str
    device: str
    sha256: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    borders: tuple[Border, ...]
    """What numbers of inputs, then outputs, stand for."""
    arena_bytes: int
    constant_bytes: int
    layers: tuple[Layer, ...]
    decisions: tuple[Decision, ...]


def firmware_of(program: Program, sha256: str) -> Firmware:
    """The report of a program."""
    network = program.network

    def spec(index: int) -> TensorSpec:
        tensor = network.tensors[index]
        return TensorSpec(name=tensor.name, shape=tensor.shape, dtype="int8")

    def border(index: int) -> Border:
        tensor, dtype = network.tensors[index], network.dtypes.get(index, "int8")
        return Border(scale=tensor.scale, zero=tensor.zero, dtype=dtype)

    return Firmware(
        name=network.name,
        device=program.core.name,
        sha256=sha256,
        inputs=tuple(spec(i) for i in network.inputs),
        outputs=tuple(spec(i) for i in network.outputs),
        borders=tuple(border(i) for i in (*network.inputs, *network.outputs)),
        arena_bytes=program.memory.size_bytes,
        constant_bytes=program.constant_bytes,
        layers=tuple(
            Layer(
                name=step.name,
                operator=step.label,
                tensor=network.tensors[step.made].name,
                how=step.kernel.how,
                flash_bytes=sum(array.size_bytes for array in step.kernel.arrays),
                scratch_bytes=step.kernel.scratch_bytes,
            )
            for step in program.steps
        ),
        decisions=program.decisions,
    )


def write_firmware(
    program: Program, firmware: Firmware, output: Path, *, with_object: bool = False
) -> None:
    """Write the folder, all or nothing.

    Raises:
        OutputError: something else is there, or it cannot be written.
        DependencyError: an object file is wanted, and there is no compiler for it.
        ToolError: it does not compile.
    """
    inputs, outputs = self_test_vectors(program)
    model = print_model(program)
    compiled = build_object(model, program.core) if with_object else None
    files = {
        **model,
        **print_self_test(program, inputs, outputs),
        "CMakeLists.txt": print_cmake(program),
        MODEL_FILE: json.dumps(plain_firmware(firmware), indent=1) + "\n",
    }
    with write_folder_atomically(output, FIRMWARE_FOLDER) as root:
        for name, text in files.items():
            (root / name).write_text(text, encoding="utf-8")
        if compiled is not None:
            (root / OBJECT_FILE).write_bytes(compiled)
        write_list(root, FIRMWARE_FOLDER)


def self_test_vectors(program: Program) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray]]:
    """Seeded inputs and what the network makes of them."""
    network = program.original
    random = np.random.default_rng(0)
    inputs = {
        index: random.integers(-128, 128, network.tensors[index].shape).astype(np.int8)
        for index in network.inputs
    }
    values = evaluate(network, inputs)
    return inputs, {index: values[index] for index in network.outputs}


def plain_firmware(firmware: Firmware) -> dict[str, Any]:
    """As JSON has it."""
    return {"version": _VERSION, "adrenoc": adrenoc.__version__, **asdict(firmware)}


def is_firmware(path: Path) -> bool:
    """Whether a path is a folder that `compile` wrote for a microcontroller."""
    return (path / LIST_FILE).is_file() and FIRMWARE_FOLDER.listed(path) is not None


def open_firmware(path: Path) -> Firmware:
    """Read the folder back.

    Raises:
        BundleError: it is damaged, or a file of it was changed.
    """
    try:
        plain = read_json(read_plain(path / MODEL_FILE))
        if plain["version"] != _VERSION:
            raise ValueError(f"version {plain['version']}, expected {_VERSION}")
        return Firmware(
            name=str(plain["name"]),
            device=str(plain["device"]),
            sha256=str(plain["sha256"]),
            inputs=tuple(_spec(entry) for entry in plain["inputs"]),
            outputs=tuple(_spec(entry) for entry in plain["outputs"]),
            borders=tuple(Border(**entry) for entry in plain["borders"]),
            arena_bytes=int(plain["arena_bytes"]),
            constant_bytes=int(plain["constant_bytes"]),
            layers=tuple(Layer(**entry) for entry in plain["layers"]),
            decisions=tuple(Decision(**entry) for entry in plain["decisions"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BundleError(
            f"{path / MODEL_FILE} is damaged: {error}",
            hint=f"compile the model again, with -o {path}",
        ) from error


def _spec(entry: Mapping[str, Any]) -> TensorSpec:
    shape = tuple(int(d) for d in entry["shape"])
    return TensorSpec(name=str(entry["name"]), shape=shape, dtype=str(entry["dtype"]))
