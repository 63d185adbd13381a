"""Do the kernels' texts read and write the images that the launches give them for that?

This is the last look: the text is what a phone's driver compiles.  Clang's own front end parses it
before a bundle is written.  One call takes all kernels: clang takes longer to start than to parse.
"""

import re
from collections.abc import Iterable, Mapping

import numpy as np

from adrenoc.base.errors import DefectError, ToolError
from adrenoc.base.files.aside import TemporaryFolder, temporary_name
from adrenoc.base.host.proc import run_tool
from adrenoc.ir.layout import TEXTURE
from adrenoc.ir.program import Kernel, Program
from adrenoc.kernels.codegen.opencl_sharing import Shared, read_programs
from adrenoc.kernels.codegen.opencl_source import ALIKE, IN_FILE, Grid

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
    """Set a text apart from others of the same file: none lends it a name or clashes with it."""
    functions = _FUNCTION.findall(text)
    head = "".join(f"#define {function} {function}_{number}\n" for function in functions)
    foot = "".join(f"#undef {macro}\n" for macro in [*functions, *_MACRO.findall(text)])
    return f'{head}#line 1 "{name}"\n{text}\n{foot}'


_HEAD = re.compile(r"__kernel void \w+\(([^)]*)\)")
_CONSTANT = re.compile(r" (?:int|float) C\d+")
"""A last argument that no launch gives: the runtime sets it (kernels/codegen/opencl_sharing.py)."""
_INTS = range(-(2**31), 2**31)
_POINTER = "_ptr"
"""How TVM ends the name of a parameter that points to a tensor."""
_USED = re.compile(r"(read|READ|write)_(?:image|IMAGE)\w*\((\w+)")
_QUALIFIERS = {(False, True): "__write_only", (True, False): "__read_only"}
"""(is read, is written) -> how the image is declared; both at once is undefined."""


def check_sources(
    program: Program,
    sources: Mapping[str, str],
    layer_grids: Mapping[str, Mapping[str, Grid]] | None = None,
) -> None:
    """Hold each kernel's text against the launches.

    `layer_grids` has, for the parameters of each kernel that are no arrays, how layers lie there.

    Raises:
        DefectError: naming the kernel and the argument.
    """
    written = {
        step.kernel: step.written
        for part in (program, *program.regions.values())
        for step in part.steps
        if step.place == "gpu"
    }
    for name, kernel in program.kernels.items():
        text = sources.get(name)
        head = None if text is None else _HEAD.search(text)
        if text is None or head is None:
            raise DefectError(f"there is no text of the kernel {name}")
        parameters = head.group(1).split(",")
        while _CONSTANT.fullmatch(parameters[-1]):
            parameters.pop()
        last = len(kernel.scopes) - written.get(name, 1)
        places = _places(kernel, parameters, last)
        used = set(_USED.findall(text))
        writes = {variable for verb, variable in used if verb == "write"}
        reads = {variable for verb, variable in used if verb != "write"}
        for place, parameter in zip(places, parameters, strict=True):
            *words, variable = _words(parameter)
            scope = kernel.scopes[place]
            grid = (layer_grids or {}).get(name, {}).get(variable.removesuffix(_POINTER))
            image = "image2d_array_t" if grid is None else "image2d_t"
            if (scope == TEXTURE) != (image in words):
                raise DefectError(f"{name} declares {variable} as {' '.join(words)}, not {scope}")
            if grid is not None:
                _check_places(name, variable, grid, sources[name])
            if scope == TEXTURE:
                _check_image(name, variable, words, place >= last, (reads, writes))


def check_constants(sets: Iterable[str]) -> None:
    """Hold the arguments that the runtime sets itself against what it reads: ints and floats.

    Raises:
        DefectError: naming the kernel and the number.
    """
    for text in sets:
        for name, shared in read_programs(text).items():
            for kind, number in shared.constants:
                if not _is_read(kind, number):
                    raise DefectError(f"{name} has the constant {kind} {number}, beyond its type")


def _is_read(kind: str, number: str) -> bool:
    if kind == "int":
        return re.fullmatch(r"-?\d+", number) is not None and int(number) in _INTS
    with np.errstate(over="ignore"):
        return kind == "float" and number.endswith("f") and np.isfinite(np.float32(number[:-1]))


def _places(kernel: Kernel, parameters: list[str], last: int) -> list[int]:
    """Return which argument of a launch each declared parameter is.

    TVM declares no parameter for an input that no element of the result comes from, as a part of a
    concatenation of which a slice takes others; those from `last` on are written, and all there.
    """
    if len(parameters) == len(kernel.scopes):
        return list(range(len(parameters)))
    known = {param.name: place for place, param in enumerate(kernel.func.params)}
    names = [_words(parameter)[-1:] for parameter in parameters]
    places = [known.get(name[0].removesuffix(_POINTER), -1) if name else -1 for name in names]
    missing = set(range(len(kernel.scopes))) - set(places)
    if -1 in places or places != sorted(set(places)) or any(place >= last for place in missing):
        raise DefectError(f"{kernel.name} declares {len(places)} arguments: {len(kernel.scopes)}")
    return places


def _words(parameter: str) -> list[str]:
    """Return how a parameter is declared, its name last."""
    words = parameter.replace("*", " ").split()
    return [word for word in words if word not in (ALIKE, IN_FILE)]


def _check_places(name: str, variable: str, grid: Grid, text: str) -> None:
    """Each read and write of an image without layers says how the layers lie."""
    numbers = ", ".join(rf"(?:{number}|C\d+)" for number in grid.numbers)
    expected = re.compile(rf"{grid.macro}\({numbers}, ")
    for found in re.finditer(rf"_image[fh]\({variable}, (?:image_sampler, )?", text):
        if not expected.match(text, found.end()):
            seen = text[found.end() :][:40]
            raise DefectError(f"{name} finds {variable}, of layers in {grid}, by {seen}...")


def _check_image(
    name: str, variable: str, words: list[str], out: bool, used: tuple[set[str], set[str]]
) -> None:
    """It is declared as what it is, and used so."""
    reads, writes = used
    if variable in writes and variable in reads:
        raise DefectError(f"{name} reads {variable}, an image that it writes")
    if variable in (reads if out else writes):
        raise DefectError(f"{name} {'reads' if out else 'writes'} {variable}, and should not")
    if _QUALIFIERS[(not out, out)] not in words:
        raise DefectError(f"{name} declares {variable} as {' '.join(words)}")
