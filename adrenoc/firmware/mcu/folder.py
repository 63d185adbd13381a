"""Write a program as the folder that firmware is built with: header, code with its constants,
self-test, how to build them, and what a report and a run need; on request an object file, by a
compiler that this machine has."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterable, Mapping, Sequence
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
from adrenoc.firmware.mcu.kernel import Array
from adrenoc.firmware.mcu.network import (
    DTYPES,
    WIDTHS,
    Border,
    FirmwareTensor,
    Network,
    multiply_adds,
)
from adrenoc.firmware.mcu.program import FirmwareProgram, FirmwareStep

_SNIPPETS = Path(__file__).parent / "c"
_NUMBERS_A_LINE = 20
NOT_FUSED = "-ffp-contract=off"
"""No product and sum in one instruction: kernels of float32 round each, as the model's own runtime.

GCC fuses them by default under GNU's dialect of C, wherever a core can."""


def print_model(program: FirmwareProgram) -> dict[str, str]:
    """`model.h` and `model.c`."""
    return {"model.h": _header(program), "model.c": _code(program)}


def print_self_test(
    program: FirmwareProgram, inputs: Mapping[int, np.ndarray], outputs: Mapping[int, np.ndarray]
) -> dict[str, str]:
    """`self_test.c`, which compares one run with numbers, and a `main.c` that returns that."""
    network = program.network
    lines = ['#include "model.h"', ""]
    for names, tensors, values in (
        (border_names("input", network.inputs), network.inputs, inputs),
        (border_names("expected", network.outputs), network.outputs, outputs),
    ):
        for name, index in zip(names, tensors, strict=True):
            lines.append(array_text(name, _make_array(network.tensors[index], values[index])))
    results = border_names("output", network.outputs)
    made = [network.tensors[index] for index in network.outputs]
    lines += [
        f"static {ctype_of(tensor.dtype)} {name}[{tensor.elements}];"
        for name, tensor in zip(results, made, strict=True)
    ]
    lines.append("static int32_t arena[(MODEL_ARENA_BYTES + 3) / 4];")
    arguments = [*border_names("input", network.inputs), *results, "arena"]
    lines += ["", "int model_self_test(void) {"]
    lines += ["  model_reset(arena);"] if program.states else []
    lines += [f"  model_run({', '.join(arguments)});"]
    expected = border_names("expected", network.outputs)
    for name, want, tensor in zip(results, expected, made, strict=True):
        lines.append(f"  for (int i = 0; i < {tensor.elements}; ++i)")
        lines.append(f"    if ({name}[i] != {want}[i]) return 1;")
    lines += ["  return 0;", "}", ""]
    main = (
        "/* Returns 0 where the model computes here what it has to. */\n"
        "int model_self_test(void);\n\nint main(void) { return model_self_test(); }\n"
    )
    return {"self_test.c": "\n".join(lines), "main.c": main}


def print_cmake(program: FirmwareProgram) -> str:
    """Return a CMakeLists.txt: the library `model`, and with -DMODEL_SELF_TEST=ON a program."""
    flags = " ".join(program.core.flags)
    return (
        "# The library `model` for firmware: add_subdirectory() it and link to `model`.\n"
        f"# It was made for the {program.core.title}: {flags}\n"
        "cmake_minimum_required(VERSION 3.13)\n"
        "project(model C)\n"
        "add_library(model STATIC model.c)\n"
        "target_include_directories(model PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})\n"
        "target_compile_features(model PUBLIC c_std_11)\n"
        f"target_compile_options(model PRIVATE -O2 {NOT_FUSED})\n"
        'option(MODEL_SELF_TEST "a program that returns 0 where the model is right" OFF)\n'
        "if(MODEL_SELF_TEST)\n"
        "  add_executable(model_self_test main.c self_test.c)\n"
        "  target_link_libraries(model_self_test PRIVATE model)\n"
        "endif()\n"
    )


def border_names(stem: str, indices: Sequence[object]) -> list[str]:
    """Return what the inputs or outputs are called in C: numbered where there is more than one."""
    return [stem] if len(indices) == 1 else [f"{stem}{n}" for n in range(len(indices))]


def ctype_of(dtype: str) -> str:
    """Return what C calls the numbers of a tensor."""
    return f"{dtype}_t"


def _make_array(tensor: FirmwareTensor, values: np.ndarray) -> Array:
    return Array(suffix="", ctype=ctype_of(tensor.dtype), values=values)


def _signature(program: FirmwareProgram) -> str:
    network, parts = program.network, []
    ends = (("const ", "input", network.inputs), ("", "output", network.outputs))
    for const, stem, indices in ends:
        for name, index in zip(border_names(stem, indices), indices, strict=True):
            parts.append(f"{const}{ctype_of(network.tensors[index].dtype)} *{name}")
    return f"void model_run({', '.join(parts)}, void *arena)"


def _header(program: FirmwareProgram) -> str:
    network = program.network
    lines = [
        title_text(program),
        "#ifndef MODEL_H",
        "#define MODEL_H",
        "#include <stdint.h>",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        *_memory_lines(program),
        f"#define MODEL_ARENA_BYTES {max(program.memory.size_bytes, 4)}",
        "",
        "/* real = SCALE * (stored - ZERO_POINT); batch, height, width, channels */",
    ]
    lines += border_lines(network)
    lines += ["", f"{_signature(program)};"]
    if program.states:
        lines += ["/* Forgets earlier runs; before the first one too. */", f"{_RESET};"]
    lines += ["", "#ifdef __cplusplus", "}", "#endif", "#endif", ""]
    return "\n".join(lines)


_RESET = "void model_reset(void *arena)"


def _memory_lines(program: FirmwareProgram) -> list[str]:
    if not program.states:
        return [
            "/* Working memory, aligned to 4 bytes; nothing in it has to be kept between runs. */"
        ]
    kept = sum(state.size_bytes for state in program.states)
    return [
        "/* Working memory, aligned to 4 bytes.  It has to be kept between runs: what the model",
        f" * remembers is in it ({kept} bytes). */",
    ]


def _reset_lines(program: FirmwareProgram) -> list[str]:
    lines = [_RESET + " {", "  int8_t *const bytes = arena;"]
    for state in program.states:
        end, (count, value) = state.at + state.size_bytes, state.end
        for first, after, fill in ((state.at, end - count, 0), (end - count, end, value)):
            if first < after:
                line = f"  for (int32_t i = {first}; i < {after}; ++i) bytes[i] = {fill};"
                lines.append(line)
    return [*lines, "}"]


def title_text(program: FirmwareProgram) -> str:
    """Return the comment that a file begins with."""
    name = comment_text(program.network.name)
    return f"/* {name}, for the {program.core.title}: by adrenoc {adrenoc.__version__}. */"


def border_lines(network: Network) -> list[str]:
    """Return what a header says of inputs and outputs."""
    lines = []
    for stem, indices in (("INPUT", network.inputs), ("OUTPUT", network.outputs)):
        for name, index in zip(border_names(stem, indices), indices, strict=True):
            tensor = network.tensors[index]
            lines += [
                f"/* {comment_text(tensor.name)}: {' x '.join(map(str, tensor.shape))} */",
                f"#define MODEL_{name}_BYTES {tensor.size_bytes}",
                f"#define MODEL_{name}_SCALE {np.float32(tensor.scale)!s}f",
                f"#define MODEL_{name}_ZERO_POINT ({tensor.zero})",
            ]
    return lines


def comment_text(text: str) -> str:
    """Return a name as it may stand in a comment."""
    plain = "".join(c if c.isprintable() and c.isascii() else "?" for c in text)
    return plain.replace("*/", "* /").replace("/*", "/ *").replace("\\", "/").replace("??", "? ?")


LAYER_HOOK = (
    "/* For reports: what to do when a layer has been computed. */",
    "#ifndef MODEL_LAYER_DONE",
    "#define MODEL_LAYER_DONE(number) ((void)0)",
    "#endif",
    "",
)


def _code(program: FirmwareProgram) -> str:
    parts = [title_text(program), '#include "model.h"', "", *LAYER_HOOK, *function_texts(program)]
    for index, value in program.network.constants.items():
        tensor = program.network.tensors[index]
        parts.append(array_text(f"constant{index}", _make_array(tensor, value)))
    for step in program.steps:
        parts += [array_text(f"{step.name}_{array.suffix}", array) for array in step.kernel.arrays]
        parts += struct_lines(step)
    if program.states:
        parts += _reset_lines(program)
    parts.append(_signature(program).replace("void *arena", "void *memory") + " {")
    return "\n".join([*parts, *body_lines(program)])


def function_texts(program: FirmwareProgram) -> list[str]:
    """Return the functions that the layers call."""
    snippets = once(s for step in program.steps for s in step.kernel.snippets)
    texts = once(text for step in program.steps for text in step.kernel.texts)
    return [*map(snippet_text, snippets), *texts]


def snippet_text(name: str) -> str:
    """Return a file of `c/`."""
    return (_SNIPPETS / f"{name}.c").read_text(encoding="utf-8")


def body_lines(program: FirmwareProgram) -> list[str]:
    """Return the body of the function that calls them, over `memory`."""
    lines = ["  int8_t *const arena = memory;", "  (void)arena;"]
    for number, step in enumerate(program.steps):
        lines.append(f"  {call_text(step)} /* {step.label} */")
        lines.append(f"  MODEL_LAYER_DONE({number});")
    return [*lines, "}", ""]


def once(items: Iterable[str]) -> list[str]:
    """Return each of them, in the order of its first place."""
    return list(dict.fromkeys(items))


def call_text(step: FirmwareStep) -> str:
    """Return the statement that computes a layer."""
    places = {f"in{n}": place for n, place in enumerate(step.sources)}
    return step.kernel.call.format(
        layer=step.name, out=step.result, scratch=step.scratch, state=step.state, **places
    )


def struct_lines(step: FirmwareStep) -> list[str]:
    """Return the struct of a layer, if it has one."""
    kernel = step.kernel
    if not kernel.struct:
        return []
    lines = [f"    .{name} = {text.format(layer=step.name)}," for name, text in kernel.fields]
    return [f"static const {kernel.struct} {step.name} = {{", *lines, "};"]


def array_text(name: str, array: Array) -> str:
    """Return a constant as C."""
    flat = np.asarray(array.values).reshape(-1).tolist()
    lines = [f"static const {array.ctype} {name}[{len(flat)}] __attribute__((aligned(8))) = {{"]
    shown = [_number(value, array.ctype) for value in flat]
    for start in range(0, len(shown), _NUMBERS_A_LINE):
        lines.append("    " + ",".join(shown[start : start + _NUMBERS_A_LINE]) + ",")
    lines.append("};")
    return "\n".join(lines)


def _number(value: int, ctype: str) -> str:
    if ctype == "int64_t":
        # The most negative number has no literal of its own.
        return f"INT64_C({value})" if value > -(1 << 63) else "INT64_MIN"
    if ctype == "int32_t" and value == -(1 << 31):
        return "INT32_MIN"
    return f"{value}u" if ctype == "uint32_t" else str(value)


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
    """Write the folder, all or nothing. Raises OutputError where something else is there, or it
    cannot be written; DependencyError where an object file is wanted, and there is no compiler for
    it; ToolError where it does not compile."""
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
    """Refuse what no microcontroller holds: `compile` did not write it, whatever digests say."""
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
