"""A program as C: a header, the code with its constants, a self-test and how to build them."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

import adrenoc
from adrenoc.firmware.mcu.kernel import Array
from adrenoc.firmware.mcu.network import FirmwareTensor, Network
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
