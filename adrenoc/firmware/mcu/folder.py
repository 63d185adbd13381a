"""Write the folder that firmware is built with: code, self-test, and what a report and a run need.

On request the code is an object file, by a compiler that this machine has: no Arm toolchain is
needed.
"""

import json
import math
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import adrenoc
from adrenoc.base.decision import Decision
from adrenoc.base.errors import BundleError
from adrenoc.base.files.outputs import make_listed_kind, write_folder_atomically, write_list
from adrenoc.base.files.read import read_plain, sha256_bytes
from adrenoc.base.host.extras import find_c_compiler
from adrenoc.base.host.proc import run_tool
from adrenoc.base.text.json_text import read_json
from adrenoc.bundle.manifest import TensorSpec, from_plain
from adrenoc.firmware.mcu.core import Core
from adrenoc.firmware.mcu.evaluate import evaluate
from adrenoc.firmware.mcu.network import DTYPES, WIDTHS, Border, multiply_adds
from adrenoc.firmware.mcu.print_c import NOT_FUSED, print_cmake, print_model, print_self_test
from adrenoc.firmware.mcu.program import FirmwareProgram

MODEL_FILE = "model.json"
FIRMWARE_FOLDER = make_listed_kind("firmware folder")
_VERSION = 5
_MOST_ELEMENTS = 1 << 26
_MOST_LAYERS = 1 << 14
_MOST_BYTES = {MODEL_FILE: 16 << 20, "model.h": 1 << 20}
_MOST_OTHER_BYTES = 1 << 30
_MADE_AGAIN = "compile the model again"


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One line of the report."""

    name: str
    operator: str
    tensor: str
    how: str
    flash_bytes: int
    scratch_bytes: int
    multiply_adds: int


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
    state_bytes: int
    """Bytes of the arena that are kept between runs."""
    constant_bytes: int
    layers: tuple[Layer, ...]
    decisions: tuple[Decision, ...]


def firmware_of(program: FirmwareProgram, sha256: str) -> Firmware:
    """Return the report of a program."""
    network = program.network

    def spec(index: int) -> TensorSpec:
        tensor = network.tensors[index]
        return TensorSpec(name=tensor.name, shape=tensor.shape, dtype=tensor.dtype)

    def border(index: int) -> Border:
        tensor = network.tensors[index]
        dtype = network.dtypes.get(index, tensor.dtype)
        return Border(scale=tensor.scale, zero=tensor.zero, dtype=dtype, stored=tensor.dtype)

    return Firmware(
        name=network.name,
        device=program.core.name,
        sha256=sha256,
        inputs=tuple(spec(i) for i in network.inputs),
        outputs=tuple(spec(i) for i in network.outputs),
        borders=tuple(border(i) for i in (*network.inputs, *network.outputs)),
        arena_bytes=program.memory.size_bytes,
        state_bytes=sum(state.size_bytes for state in program.states),
        constant_bytes=program.constant_bytes,
        layers=tuple(
            Layer(
                name=step.name,
                operator=step.label,
                tensor=network.tensors[step.made].name,
                how=step.kernel.how,
                flash_bytes=sum(array.size_bytes for array in step.kernel.arrays),
                scratch_bytes=step.kernel.scratch_bytes,
                multiply_adds=multiply_adds(network, step.made),
            )
            for step in program.steps
        ),
        decisions=program.decisions,
    )


def write_firmware(
    program: FirmwareProgram, firmware: Firmware, output: Path, *, with_object: bool = False
) -> None:
    """Write the folder, all or nothing.

    Raises OutputError where something else is there, or it cannot be written; DependencyError where
    an object file is wanted, and there is no compiler for it; ToolError where it does not compile.
    """
    inputs, outputs = self_test_vectors(program)
    model = print_model(program)
    compiled = build_object(model, program.core) if with_object else None
    files = {
        **model,
        **print_self_test(program, inputs, outputs),
        "CMakeLists.txt": print_cmake(program),
        MODEL_FILE: report_text(firmware),
    }
    objects = {} if compiled is None else {OBJECT_FILE: compiled}
    write_files(output, {**{name: text.encode() for name, text in files.items()}, **objects})


def write_files(output: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder of these files, all or nothing. Raises OutputError where something else is
    there, or it cannot be written."""
    with write_folder_atomically(output, FIRMWARE_FOLDER) as root:
        for name, content in files.items():
            (root / name).write_bytes(content)
        write_list(root, FIRMWARE_FOLDER)


def self_test_vectors(
    program: FirmwareProgram,
) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray]]:
    """Seeded inputs and what the network makes of them."""
    network = program.original
    random = np.random.default_rng(0)
    inputs = {}
    for index in network.inputs:
        tensor = network.tensors[index]
        drawn = random.integers(tensor.ends[0], tensor.ends[1] + 1, tensor.shape)
        inputs[index] = drawn.astype(tensor.dtype)
    values = evaluate(network, inputs)
    return inputs, {index: values[index] for index in network.outputs}


def firmware_to_json(firmware: Firmware) -> dict[str, Any]:
    """Firmware as JSON values."""
    return {"version": _VERSION, "adrenoc": adrenoc.__version__, **asdict(firmware)}


def report_text(firmware: Firmware) -> str:
    """Return what `open_firmware` reads."""
    return json.dumps(firmware_to_json(firmware), indent=1) + "\n"


def is_firmware(path: Path) -> bool:
    """Return whether a path is a folder that `compile` wrote for a microcontroller."""
    return FIRMWARE_FOLDER.listed(path) is not None


def open_firmware(path: Path) -> Firmware:
    """Read the folder back. Raises BundleError where it is damaged, or was changed since."""
    where = str(path / MODEL_FILE)
    try:
        plain = read_json(_read_listed(path, MODEL_FILE))
        version = plain.pop("version") if isinstance(plain, dict) else None
        if version != _VERSION:
            raise ValueError(f"version {version}, expected {_VERSION}")
        plain.pop("adrenoc", None)
    except ValueError as error:
        raise BundleError(f"{where} is damaged: {error}", hint=_again(path)) from error
    firmware = from_plain(Firmware, plain, where)
    _check_sizes(firmware, where)
    return firmware


def read_files(path: Path, names: Iterable[str]) -> dict[str, bytes]:
    """Files of a folder: what `compile` wrote there, and nothing else. Raises BundleError where a
    file is missing or was changed since."""
    return {name: _read_listed(path, name) for name in names}


def _read_listed(path: Path, name: str) -> bytes:
    """Return a file whose content has the digest that the folder lists for it."""
    listed = FIRMWARE_FOLDER.listed(path) or {}
    try:
        content = read_plain(path / name, _MOST_BYTES.get(name, _MOST_OTHER_BYTES))
    except OSError as error:
        reason = error.strerror or str(error)
        raise BundleError(f"{path / name} cannot be read: {reason}", hint=_again(path)) from error
    if sha256_bytes(content) != listed.get(name):
        raise BundleError(
            f"{path / name} was changed since adrenoc wrote it, and is not run", hint=_again(path)
        )
    return content


def _check_sizes(firmware: Firmware, where: str) -> None:
    """What no microcontroller holds was not written by `compile`, whatever the digests say."""
    for spec in (*firmware.inputs, *firmware.outputs):
        told = f"{where}: tensor '{spec.name}' is {spec.dtype} {list(spec.shape)}"
        if spec.dtype not in WIDTHS:
            raise BundleError(f"{told}, expected {' or '.join(WIDTHS)}", hint=_MADE_AGAIN)
        if any(d < 1 for d in spec.shape) or math.prod(spec.shape) > _MOST_ELEMENTS:
            raise BundleError(f"{told}, expected 1 to {_MOST_ELEMENTS} elements", hint=_MADE_AGAIN)
    for border in firmware.borders:
        if border.scale <= 0 or border.dtype not in DTYPES or border.stored not in WIDTHS:
            raise BundleError(f"{where}: no border is {border}", hint=_MADE_AGAIN)
    if len(firmware.borders) != len(firmware.inputs) + len(firmware.outputs):
        raise BundleError(
            f"{where} has {len(firmware.borders)} borders, expected one for each input and output",
            hint=_MADE_AGAIN,
        )
    if not 0 < len(firmware.layers) <= _MOST_LAYERS:
        raise BundleError(
            f"{where} has {len(firmware.layers)} layers, expected 1 to {_MOST_LAYERS}",
            hint=_MADE_AGAIN,
        )


def _again(path: Path) -> str:
    return f"compile the model again, with -o {path}"


OBJECT_FILE = "model.o"
_OPTIONS = (
    *("-std=c11", "-O2", NOT_FUSED, "-ffreestanding", "-ffunction-sections"),
    "-fno-unwind-tables",
)


def build_object(files: Mapping[str, str], core: Core) -> bytes:
    """Compile `model.c` of some `files`, by text, for a core. Raises DependencyError where there is
    no compiler for it, ToolError where it does not compile."""
    compiler = _compiler(core)
    with tempfile.TemporaryDirectory(prefix="adrenoc-") as place:
        work = Path(place)
        for name, text in files.items():
            (work / name).write_text(text, encoding="utf-8")
        made = work / OBJECT_FILE
        command = [*compiler, *_OPTIONS, "-c", str(work / "model.c"), "-o", str(made)]
        run_tool(command, deed=f"compile model.c for the {core.title}")
        return made.read_bytes()


def _compiler(core: Core) -> list[str]:
    soft = "-mfloat-abi=soft" in core.flags
    triple = f"thumb-freestanding-{'eabi' if soft else 'eabihf'}"
    cpu = core.facts.cpu.replace("-", "_")
    zig = ("-target", triple, f"-mcpu={cpu}", "-fno-asynchronous-unwind-tables")
    return find_c_compiler(core.title, zig, ("arm-none-eabi-gcc", *core.flags))
