"""Parse the OpenCL C of a bundle before it is written, by clang's own front end.

One call takes all kernels: clang takes longer to start than to parse.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path

from adrenoc.base.errors import DefectError, ToolError
from adrenoc.base.files.temporary import TemporaryFolder, temporary_name
from adrenoc.base.host.proc import run_tool
from adrenoc.kernels.codegen.opencl_sharing import Shared

_FUNCTION = re.compile(r"^static \w+ (\w+)\(", re.MULTILINE)
_MACRO = re.compile(r"^ *#define (\w+)", re.MULTILINE)
_ERROR = re.compile(r"^(\w+):(\d+):(\d+): (?:fatal )?error: (.*)$", re.MULTILINE)
_OPTIONS = (
    *("-x", "cl", "-cl-std=CL3.0", "-target", "spir64", "-fsyntax-only", "-w"),
    *("-Xclang", "-fdeclare-opencl-builtins", "-cl-no-stdinc"),
)
"""clang knows OpenCL's functions itself; the header that declares the types is in no package."""
_SIGNED = ("char", "short", "int", "long")
_SCALARS = (*_SIGNED, *(f"u{name}" for name in _SIGNED), "half", "float", "double")
_WIDTHS = (2, 3, 4, 8, 16)
_CONSTANTS = {
    "CLK_LOCAL_MEM_FENCE": "1",
    "CLK_GLOBAL_MEM_FENCE": "2",
    "CLK_NORMALIZED_COORDS_FALSE": "0",
    "CLK_ADDRESS_CLAMP": "4",
    "CLK_FILTER_NEAREST": "16",
    "INFINITY": "(__builtin_inff())",
    "NAN": '(__builtin_nanf(""))',
}


def find_front_end() -> str | None:
    """Return the program whose `clang` parses OpenCL C: the package ziglang has one; else None."""
    found = importlib.util.find_spec("ziglang")
    if found is None or not found.origin:
        return None
    return str(Path(found.origin).with_name("zig"))


def parse_opencl(front_end: str, programs: Mapping[str, Shared]) -> None:
    """Parse the programs of a set of kernels, by the name of the kernel.

    Raises:
        DefectError: a text is no OpenCL C: naming the kernel, the line and the file that keeps it.
    """
    texts = {name: own.text for name, own in programs.items() if own.program == name}
    if not texts:
        return
    with TemporaryFolder("verify") as folder:
        source = folder / "kernels.cl"
        parts = (_alone(number, *text) for number, text in enumerate(texts.items()))
        source.write_text("".join([_declare_types(), *parts]), encoding="utf-8")
        try:
            run_tool([front_end, "clang", *_OPTIONS, str(source)], deed="parse the kernels")
        except ToolError as error:
            found = _ERROR.search(error.message)
            if found is None:
                raise
            name, line, column, said = found.groups()
            kept = temporary_name(f"adrenoc-{name}-").with_suffix(".cl")
            kept.write_text(texts[name], encoding="utf-8")
            raise DefectError(
                f"{name} is no OpenCL C: {said} (line {line}, column {column} of {kept})"
            ) from error


def _declare_types() -> str:
    """Return what OpenCL C has beside its functions, as far as kernels use it."""
    lines = [f"typedef unsigned {name} u{name};" for name in _SIGNED]
    lines += ["typedef __SIZE_TYPE__ size_t;", "typedef uint cl_mem_fence_flags;"]
    lines += [
        f"typedef {name} {name}{width} __attribute__((ext_vector_type({width})));"
        for name in _SCALARS
        for width in _WIDTHS
    ]
    lines += [
        f"#define as_{name}{width}(x) __builtin_astype((x), {name}{width})"
        for name in _SCALARS
        for width in ("", *_WIDTHS)
    ]
    lines += [f"#define {name} {value}" for name, value in _CONSTANTS.items()]
    return "\n".join(lines) + "\n"


def _alone(number: int, name: str, text: str) -> str:
    """Return a text so that others of the same file neither lend it what it defines nor clash with
    it."""
    functions = _FUNCTION.findall(text)
    head = "".join(f"#define {function} {function}_{number}\n" for function in functions)
    foot = "".join(f"#undef {macro}\n" for macro in [*functions, *_MACRO.findall(text)])
    return f'{head}#line 1 "{name}"\n{text}\n{foot}'
