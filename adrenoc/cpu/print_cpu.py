"""A program as C for an application processor: code, and all constants in one file beside it."""

from __future__ import annotations

import numpy as np

from adrenoc.mcu.kernel import WIDTHS
from adrenoc.mcu.print_c import (
    LAYER_HOOK,
    body_lines,
    border_lines,
    border_names,
    function_texts,
    struct_lines,
    title_text,
)
from adrenoc.mcu.program import Program

WEIGHTS_FILE = "model.weights"
_ALIGN = 64


def print_cpu_model(program: Program) -> dict[str, bytes]:
    """`model.h`, `model.c` and the file of constants."""
    places, constants = _laid_out(program)
    texts = {"model.h": _header(program), "model.c": _code(program, places)}
    return {**{name: text.encode() for name, text in texts.items()}, WEIGHTS_FILE: constants}


def _laid_out(program: Program) -> tuple[list[tuple[str, str, int]], bytes]:
    """Names, types and places of all constants in one file, and that file."""
    found = [
        (f"constant{index}", "int8_t", np.asarray(value, np.int8))
        for index, value in program.network.constants.items()
    ]
    for step in program.steps:
        for array in step.kernel.arrays:
            name, kind = f"{step.name}_{array.suffix}", array.ctype
            sign = "u" if kind.startswith("uint") else "i"
            found.append((name, kind, np.asarray(array.values).astype(f"<{sign}{WIDTHS[kind]}")))
    places, parts, at = [], [], 0
    for name, kind, values in found:
        places.append((name, kind, at))
        content = values.tobytes()
        # Vectors may read a little beyond the end.
        content += bytes(-len(content) % _ALIGN)
        parts.append(content)
        at += len(content)
    return places, b"".join(parts) or bytes(_ALIGN)


def _header(program: Program) -> str:
    network = program.network
    sizes = [
        "{" + ", ".join(f"MODEL_{n}_BYTES" for n in border_names(stem, indices)) + "}"
        for stem, indices in (("INPUT", network.inputs), ("OUTPUT", network.outputs))
    ]
    lines = [
        title_text(program),
        "#ifndef MODEL_H",
        "#define MODEL_H",
        "#include <stdint.h>",
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
        _ENVIRONMENT,
        "",
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "#endif",
        "",
    ]
    return "\n".join(lines)


_ENVIRONMENT = """\
/* What a core can do, beside its plain instructions: bits of `features`. */
#define MODEL_HAS_NEON 1u
#define MODEL_HAS_DOT 2u  /* SDOT */
#define MODEL_HAS_I8MM 4u /* SMMLA */

/* Who computes: `each`, if it is not NULL, calls task(argument, part) once for each part, on any of
 * `threads` threads, and comes back when all have ended.  threads.h has one. */
typedef struct model_environment {
  uint32_t features;
  int32_t threads;
  void *pool;
  void (*each)(void *pool, int32_t parts, void (*task)(const void *argument, int32_t part),
               const void *argument);
} model_environment;

void model_compute(const void *const *inputs, void *const *outputs, void *arena,
                   const model_environment *environment);"""


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


def _code(program: Program, places: list[tuple[str, str, int]]) -> str:
    network = program.network
    parts = [title_text(program), '#include "model.h"', "", *LAYER_HOOK, _WEIGHTS]
    parts += [
        f"#define {name} ((const {kind} *)(const void *)(model_weights + {at}))"
        for name, kind, at in places
    ]
    parts += function_texts(program)
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
