"""Print a program as C for an application processor, code and one file of constants, and as a
shared library that needs no other: what a bundle carries for the CPU.

Weights that a bundle's constants hold already, for its kernels for the GPU, are not in that file: a
packed constant is the model's own in another order. Where each of its elements lies is a sum of
places, one for each axis, and a place is a sum over digits of the index. These are a few numbers a
layer, by which `c/borrow.c` brings them into the order of the CPU's kernels as a library is loaded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np

import adrenoc
from adrenoc.base.files.aside import TemporaryFolder
from adrenoc.base.host.extras import find_c_compiler
from adrenoc.base.host.proc import run_tool
from adrenoc.bundle.bundle import CPU_LIBRARY
from adrenoc.firmware.mcu.folder import (
    LAYER_HOOK,
    NOT_FUSED,
    body_lines,
    border_lines,
    border_names,
    function_texts,
    struct_lines,
    title_text,
)
from adrenoc.firmware.mcu.kernel import WIDTHS
from adrenoc.firmware.mcu.neon.products import BLOCK
from adrenoc.firmware.mcu.operators import Convolution
from adrenoc.firmware.mcu.program import FirmwareProgram
from adrenoc.ir.layout import (
    MOST_DIGITS,
    Digits,
    find_axis_digits,
    forms_of,
    pack_indices,
    read_places,
)
from adrenoc.ir.program import Packing

_BORROWS = "neon_layer"
"""Kernels whose weights `c/borrow.c` knows how to lay out."""


@dataclass(frozen=True, kw_only=True)
class StoredWeights:
    """Weights within a packed constant of so many bytes: in elements of `width` bytes.

    `digits` give the place along each axis, counted from the element `first`: output channels, rows
    and columns of the window, input channels.
    """

    param: str
    param_bytes: int
    width: int
    first: int
    digits: tuple[Digits, ...]


@dataclass(frozen=True, kw_only=True)
class SharedWeight:
    """The weights of a step, of such `counts` along the same axes, and what holds the model's own.

    Where channels were left out, `outputs` and `inputs` are those that these are, -1 where all
    weights are zero.
    """

    step: str
    counts: tuple[int, ...]
    held: StoredWeights
    outputs: tuple[int, ...]
    inputs: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class _WeightSource:
    name: str
    value: np.ndarray
    constant: np.ndarray
    pack: Callable[[np.ndarray], np.ndarray]


def find_shared_weights(
    program: FirmwareProgram, params: Mapping[str, np.ndarray], packings: Mapping[str, Packing]
) -> tuple[SharedWeight, ...]:
    """Return the weights that packed constants of a bundle hold element by element."""
    sources: dict[int, list[_WeightSource]] = {}
    for name, packing in packings.items():
        if packing.pack is None:
            continue
        constant = packing.constant
        source = _WeightSource(name=name, value=params[name], constant=constant, pack=packing.pack)
        sources.setdefault(constant.size, []).append(source)
    operators = {operator.result: operator for operator in program.network.operators}
    originals = {operator.result: operator for operator in program.original.operators}
    found = []
    for step in program.steps:
        operator, original = operators[step.made], originals.get(step.made)
        if step.kernel.struct != _BORROWS or not isinstance(operator, Convolution):
            continue
        if not isinstance(original, Convolution):
            continue
        left = _what_is_left(operator, original, program.network.kept)
        held = _find_holder(original.weights, sources.get(original.weights.size, ()))
        if left is None or held is None:
            continue
        counts = operator.weights.shape
        weight = SharedWeight(
            step=step.name, counts=counts, held=held, outputs=left[0], inputs=left[1]
        )
        found.append(weight)
    return tuple(found)


def find_weight_sources(shared: Iterable[SharedWeight]) -> dict[str, int]:
    """Return the packed constants that shared weights lie in, in order, and their bytes."""
    return dict(sorted({(weight.held.param, weight.held.param_bytes) for weight in shared}))


def _what_is_left(
    operator: Convolution, original: Convolution, kept: Sequence[np.ndarray]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return which channels of the model's weights an operator has, of outputs and of inputs."""
    weights, left = original.weights, []
    for axis, tensor in ((0, operator.result), (3, operator.source)):
        channels = np.arange(weights.shape[axis])
        if operator.weights.shape[axis] < len(channels):
            channels = np.flatnonzero(kept[tensor])
        weights = weights.take(channels, axis)
        if weights.shape[axis] != operator.weights.shape[axis]:
            return None
        silent = ~operator.weights.any(tuple(a for a in range(4) if a != axis))
        left.append(np.where(silent, -1, channels))
    outputs, inputs = left
    held = (outputs[:, None, None, None] >= 0) & (inputs >= 0)
    if not np.array_equal(np.where(held, weights, 0), operator.weights):
        return None
    return _unless_all(outputs, len(original.weights)), _unless_all(
        inputs, original.weights.shape[3]
    )


def _unless_all(channels: np.ndarray, count: int) -> tuple[int, ...]:
    """Return the channels, none where they are all of them."""
    return () if np.array_equal(channels, np.arange(count)) else tuple(channels.tolist())


def _find_holder(weights: np.ndarray, sources: Iterable[_WeightSource]) -> StoredWeights | None:
    """Return the first of the constants that holds the model's weights, and how."""
    for source in sources:
        order = _order_of(weights, source.constant)
        if order is None:
            continue
        dtype = str(source.value.dtype)
        constant, pack = source.constant, source.pack
        packed = pack_indices(constant, pack, source.value.nbytes)
        for form in forms_of(dtype) if packed else ():
            places = read_places(packed, constant.size, form)
            if places is None:
                continue
            shape = [weights.shape[axis] for axis in order]
            found = _describe_places(
                source, form, weights, places.reshape(shape).transpose(np.argsort(order))
            )
            if found is not None:
                return found
    return None


def _describe_places(
    source: _WeightSource, form: str, weights: np.ndarray, places: np.ndarray
) -> StoredWeights | None:
    """Return the places of the weights as digits of their indices, where they are that."""
    elements = source.value.reshape(-1).view(form)
    digits = find_axis_digits(places)
    if digits is None or not np.array_equal(elements[places], weights):
        return None
    return StoredWeights(
        param=source.name,
        param_bytes=elements.nbytes,
        width=elements.itemsize,
        first=int(places.flat[0]),
        digits=digits,
    )


def _order_of(weights: np.ndarray, constant: np.ndarray) -> tuple[int, ...] | None:
    """Return the order of the weights' axes in which they are that constant."""
    for order in permutations(range(weights.ndim)):
        if np.array_equal(weights.transpose(order).reshape(-1), constant.reshape(-1)):
            return order
    return None


WEIGHTS_FILE = "model.weights"
ENVIRONMENT_FILE = "model_environment.h"
_INTERFACE = Path(adrenoc.__file__).parent / "native" / "runtime" / "src" / "model"
_DTYPES = {"int8": 0, "uint8": 1, "float32": 2}
_EVEN = 3
"""float32, rounded with halves to even."""


def print_cpu_model(
    program: FirmwareProgram, *, halves_to_even: bool = False, shared: Sequence[SharedWeight] = ()
) -> dict[str, bytes]:
    """`model.h`, what it includes, `model.c` and the file of constants.

    `halves_to_even`: so the model's own runtime rounds numbers of float32 at its inputs.  Weights
    of `shared` are not in the file: the library takes them of a bundle's constants.
    """
    places, constants = _laid_out(program, names_of(shared))
    parts = [
        _code(program, places, room_lines(program, shared)),
        *filling_lines(shared),
        *_facts(program, halves_to_even, find_weight_sources(shared)),
    ]
    texts = {
        "model.h": _header(program),
        ENVIRONMENT_FILE: (_INTERFACE / ENVIRONMENT_FILE).read_text(encoding="utf-8"),
        "model.c": "\n".join(parts),
    }
    return {**{name: text.encode() for name, text in texts.items()}, WEIGHTS_FILE: constants}


def _laid_out(
    program: FirmwareProgram, lent: Collection[str]
) -> tuple[list[tuple[str, str, int]], bytes]:
    """Names, types and places of all constants in one file, and that file."""
    found = [
        (f"constant{index}", "int8_t", np.asarray(value, np.int8))
        for index, value in program.network.constants.items()
    ]
    for step in program.steps:
        for array in step.kernel.arrays:
            name, kind = f"{step.name}_{array.suffix}", array.ctype
            if name in lent:
                continue
            sign = "u" if kind.startswith("uint") else "i"
            found.append((name, kind, np.asarray(array.values).astype(f"<{sign}{WIDTHS[kind]}")))
    places, parts, at = [], [], 0
    for name, kind, values in found:
        places.append((name, kind, at))
        content = values.tobytes()
        # Vectors may read a little beyond the end.
        content += bytes(-len(content) % ALIGN)
        parts.append(content)
        at += len(content)
    return places, b"".join(parts) or bytes(ALIGN)


def _header(program: FirmwareProgram) -> str:
    network = program.network
    sizes = [
        "{" + ", ".join(f"MODEL_{n}_BYTES" for n in border_names(stem, indices)) + "}"
        for stem, indices in (("INPUT", network.inputs), ("OUTPUT", network.outputs))
    ]
    lines = [
        title_text(program),
        "#ifndef MODEL_H",
        "#define MODEL_H",
        f'#include "{ENVIRONMENT_FILE}"',
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        "/* Working memory, aligned to 64 bytes; nothing in it has to be kept between runs. */",
        f"#define MODEL_ARENA_BYTES {max(program.memory.size_bytes, 4)}",
        "",
        "/* real = SCALE * (stored - ZERO_POINT); batch, height, width, channels */",
        *border_lines(network),
        f"#define MODEL_INPUT_SIZES {sizes[0]}",
        f"#define MODEL_OUTPUT_SIZES {sizes[1]}",
        "",
        "void model_compute(const void *const *inputs, void *const *outputs, void *arena,",
        "                   const model_environment *environment);",
        "",
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "#endif",
        "",
    ]
    return "\n".join(lines)


_WEIGHTS = """\
/* All constants; MODEL_WEIGHTS is the path of their file. */
#ifndef MODEL_WEIGHTS
#define MODEL_WEIGHTS "model.weights"
#endif
__attribute__((visibility("hidden"))) extern const int8_t model_weights[];
__asm__(
    ".pushsection .rodata\\n"
    ".hidden model_weights\\n"
    ".globl model_weights\\n"
    ".p2align 6\\n"
    "model_weights:\\n"
    ".incbin \\"" MODEL_WEIGHTS "\\"\\n"
    ".popsection\\n");"""


def _code(program: FirmwareProgram, places: list[tuple[str, str, int]], borrowed: list[str]) -> str:
    network = program.network
    parts = [title_text(program), '#include "model.h"', "", *LAYER_HOOK, _WEIGHTS]
    parts += [
        f"#define {name} ((const {kind} *)(const void *)(model_weights + {at}))"
        for name, kind, at in places
    ]
    parts += [*borrowed, *function_texts(program)]
    for step in program.steps:
        parts += struct_lines(step)
    parts += [
        '__attribute__((visibility("default")))',
        "void model_compute(const void *const *inputs, void *const *outputs, void *memory,",
        "                   const model_environment *environment) {",
        "  (void)environment;",
    ]
    for kind, stem, indices in (
        ("const int8_t", "input", network.inputs),
        ("int8_t", "output", network.outputs),
    ):
        for number, name in enumerate(border_names(stem, indices)):
            parts += [f"  {kind} *const {name} = {stem}s[{number}];", f"  (void){name};"]
    return "\n".join([*parts, *body_lines(program)])


def _facts(program: FirmwareProgram, halves_to_even: bool, sources: Mapping[str, int]) -> list[str]:
    """Return the table that a runtime finds in a library of the model."""
    network = program.network
    indices = (*network.inputs, *network.outputs)
    rows = []
    for index in indices:
        tensor, dtype = network.tensors[index], network.dtypes.get(index, "int8")
        scale = float(np.float32(tensor.scale)).hex()
        kind = _EVEN if dtype == "float32" and halves_to_even else _DTYPES[dtype]
        rows.append(f"    {{{kind}, {tensor.zero}, {scale}f, {tensor.elements}}},")
    ends = f"{len(network.inputs)}, {len(network.outputs)}, {len(sources)}"
    params = [f'    {{"{name}", {size}}},' for name, size in sources.items()]
    head = f"static const model_param model_params[{len(params)}] = {{"
    takes = "model_params, model_borrow" if params else "0, 0"
    return [
        *([head, *params, "};"] if params else []),
        f"static const model_border model_borders[{len(indices)}] = {{",
        *rows,
        "};",
        '__attribute__((visibility("default"))) const model_facts adrenoc_cpu_model = {',
        f"    MODEL_FACTS_VERSION, {ends}, MODEL_ARENA_BYTES, model_borders, model_compute,",
        f"    {takes}}};",
        "",
    ]


ALIGN = 64
"""The alignment of each constant, in bytes: vectors may read a little beyond its end."""
_BORROW = Path(__file__).parent / "c" / "borrow.c"


def names_of(shared: Sequence[SharedWeight]) -> set[str]:
    """Return the names of the constants that are lent."""
    return {f"{weight.step}_weights" for weight in shared}


def room_lines(program: FirmwareProgram, shared: Sequence[SharedWeight]) -> list[str]:
    """Room for the weights that are lent, each under its name."""
    lent = names_of(shared)
    lines, at = [], 0
    for step in program.steps:
        for array in step.kernel.arrays:
            name = f"{step.name}_{array.suffix}"
            if name in lent:
                lines.append(f"#define {name} (model_borrowed + {at})")
                at += array.size_bytes + -array.size_bytes % ALIGN
    room = f"static int8_t model_borrowed[{at}] __attribute__((aligned({ALIGN})));"
    return [room, *lines] if lines else []


def filling_lines(shared: Sequence[SharedWeight]) -> list[str]:
    """Return the function that fills that room from all sources in their order, if any."""
    if not shared:
        return []
    names = list(find_weight_sources(shared))
    channels, rows = [], []
    for weight in shared:
        held, left = weight.held, []
        for kind, numbers in (("outputs", weight.outputs), ("inputs", weight.inputs)):
            left.append(f"{weight.step}_{kind}" if numbers else "0")
            if numbers:
                listed = ", ".join(map(str, numbers))
                channels.append(f"static const int32_t {left[-1]}[] = {{{listed}}};")
        digits = ", ".join(
            "{" + ", ".join(f"{{{radix}, {stride}}}" for radix, stride in axis) + "}"
            for axis in held.digits
        )
        counts = ", ".join(map(str, weight.counts))
        blocks = -(-math.prod(weight.counts[1:]) // BLOCK)
        where = f"{weight.step}_weights, {names.index(held.param)}, {held.width}"
        end = f"{held.first}, {', '.join(left)}"
        rows.append(f"    {{{where}, {{{counts}}}, {blocks}, {{{digits}}}, {end}}},")
    return [
        f"#define MODEL_MOST_DIGITS {MOST_DIGITS}",
        _BORROW.read_text(encoding="utf-8"),
        *channels,
        f"static const shared_weight_t model_shared_weights[{len(shared)}] = {{",
        *rows,
        "};",
        "static void model_borrow(const void *const *params) {",
        f"  for (int32_t i = 0; i < {len(shared)}; ++i)",
        "    borrow(&model_shared_weights[i], params[model_shared_weights[i].param]);",
        "}",
    ]


_OPTIONS = (
    *("-std=gnu11", "-O2", NOT_FUSED, "-fPIC", "-ffreestanding", "-fno-builtin"),
    "-fvisibility=hidden",
    *("-fno-asynchronous-unwind-tables", "-nostdlib", "-shared", f"-Wl,-soname,{CPU_LIBRARY}"),
    *("-Wl,-z,max-page-size=16384", "-Wl,-z,noexecstack", "-Wl,-z,defs"),
)
_GCC = {"aarch64": "aarch64-linux-gnu-gcc", "x86_64": "x86_64-linux-gnu-gcc"}


def build_cpu_library(
    program: FirmwareProgram,
    machine: str,
    *,
    halves_to_even: bool,
    shared: Sequence[SharedWeight] = (),
) -> bytes:
    """Compile and link a program for the processors of a `machine`, as `aarch64`.

    Weights of `shared` are taken of a bundle's constants as it is loaded. Raises DependencyError
    where there is no compiler for them, ToolError where it does not compile.
    """
    compiler = _compiler(machine)
    with TemporaryFolder("link") as work:
        printed = print_cpu_model(program, halves_to_even=halves_to_even, shared=shared)
        for name, content in printed.items():
            (work / name).write_bytes(content)
        made = work / CPU_LIBRARY
        weights = f'-DMODEL_WEIGHTS="{work / WEIGHTS_FILE}"'
        source = str(work / "model.c")
        command = [*compiler, *_OPTIONS, f"-I{work}", weights, source, "-o", str(made)]
        run_tool(command, deed=f"compile the model for the CPU ({machine})")
        return made.read_bytes()


def _compiler(machine: str) -> list[str]:
    cpu = {"aarch64": "generic", "x86_64": "x86_64"}.get(machine, "baseline")
    zig = ("-target", f"{machine}-linux-none", f"-mcpu={cpu}")
    gcc = [_GCC[machine]] if machine in _GCC else []
    return find_c_compiler(f"CPU of the device ({machine})", zig, gcc)
