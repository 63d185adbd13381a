"""Tidy and shorten the OpenCL C that TVM prints: what a kernel has named is written by its name.

TVM's simplifier puts the value of a variable wherever the variable was, so that an index that a
kernel computes once is printed, and parsed by a phone's compiler, a hundred times.  Compilers find
the common parts again; the text says them once.

Before -> after:
    int gx0 = (((convert_int(get_group_id(0))) * 8) + (convert_int(get_local_id(0))));
    out[((((convert_int(get_group_id(0))) * 8) + (convert_int(get_local_id(0)))) + 1)] = ...

    int G0 = get_group_id(0), L0 = get_local_id(0);
    int gx0 = ((G0 * 8) + L0);
    out[(gx0 + 1)] = ...

What launches of kernels give them: images that are no arrays, and what is checked of arguments.

Layers of a tensor in such an image stand beside each other in the rows.  Such are images of the
pool (`adrenoc/passes/lower/plan_memory.py`).  A column that is not of its layer is sent far
beyond the image, where an array has its border, so that zeros are read there. Where all layers are
wider than an image may be, they stand in bands, one below the other, and rows that are not of their
layer go the same way.

Before -> after, for layers of 28 columns:
    __read_only image2d_array_t in0_ptr              __read_only image2d_t in0_ptr
    read_imagef(in0_ptr, s, ((int4)(x, y, l, 0)))    read_imagef(in0_ptr, s, BESIDE(28, x, y, l))

and for layers of 197 columns and one row in bands of 64 layers, 2 to the sixth:
    read_imagef(in0_ptr, s, ((int4)(x, y, l, 0)))    read_imagef(..., IN_BANDS(197, 1, 6, x, y, l))
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from adrenoc.base.errors import DefectError
from adrenoc.target.gpu import FILE_VECTOR_BYTES

_SECTION = "\n//: "
_HOOK = "tvm_callback_opencl_postproc"
_DECLARATION = re.compile(r"^__kernel void \w+\([^{;]*\);\n", re.MULTILINE)
_OLD_READS = re.compile(r"#ifdef __OPENCL_VERSION__\n.*?#endif\n#endif\n", re.DOTALL)
_SPELLED = re.compile(r"(\d\.\d+e[+-]\d+f?)\(\)")
"""A float with all its digits, which TVM takes for a function (`build.spell_floats`)."""
ROLLED = "rolled_"
"""Variables of loops that compilers are not to unroll begin so."""
_ROLLED_LOOP = re.compile(rf"(for \(int {ROLLED}(\w+) = 0; {ROLLED}\2 < \d+);")
_SHARED_HALVES = re.compile(r"(__local half4 \w+\[\d+\]);")
_POINTER = re.compile(r"__global (float|half)\*(?: restrict)? (\w+)")
START_CONSTANTS = "START_CONSTANTS("
"""What a kernel has in its text that may use the constant file."""
START_MATRICES = "START_MATRICES("
"""What a kernel has in its text that may use matrix units."""
CONSTANTS_STARTED = re.compile(r"START_CONSTANTS\((\w+), (\w+), (\d+), (\d+), (\d+)\)")
"""How it starts: place, weights, vectors of a wave, slots, waves
(`families/conv/built_in_conv.py`)."""
IN_FILE, ALIKE = "IN_THE_FILE", "ALIKE_IN_A_WAVE"
"""Attributes of such pointers, behind their names."""
_VECTOR = re.compile(r"\bv(load|store)4\(")
_AT = {"float": "FLOATS_AT", "half": "HALVES_AT"}
_READS = {f"READ_IMAGE{kind}(": f"read_image{kind.lower()}(" for kind in "HF"}
"""TVM's macros: with the sampler they are the functions."""


def tidy(source: str) -> str:
    """Return one kernel's source without what it does not need.

    - TVM declares every other kernel of the module above each kernel, which makes the text grow
      with the square of their number.
    - It drops the sampler unless the *device* version is exactly 2.0 or 3.0; without a sampler
      an out-of-range read is undefined, and the zero padding of convolutions relies on it.
    - It has no way to say that a loop stays a loop.
    - Its vector loads and stores promise no alignment (`align_vectors`).
    """
    source = _OLD_READS.sub("", _DECLARATION.sub("", source))
    for macro, function in _READS.items():
        source = source.replace(macro, function)
    if "()" in source:
        source = _SPELLED.sub(r"\1", source)
    source = _ROLLED_LOOP.sub(r"\1 + ROLLED;", source)
    if "SHARE_UINT4(" in source or START_CONSTANTS in source:
        source = _SHARED_HALVES.sub(r"\1 __attribute__((aligned(16)));", source)
    return add_sections(align_vectors(_declare_constants(source)))


def _declare_constants(source: str) -> str:
    """Return the text of a kernel that uses the constant file with its pointers declared by the
    macros of `prelude.cl`, and with a limit of waves where not all find a slot.

    Before -> after:
        __kernel void conv2d_kernel(__global uint* restrict in1_ptr, ...

        #undef FILE_BYTES
        #define FILE_BYTES 6144
        MOST_WAVES(12)
        __kernel void conv2d_kernel(COPIED_WEIGHTS in1_ptr ALIKE_IN_A_WAVE, ...
    """
    found = CONSTANTS_STARTED.search(source)
    if found is None:
        return source
    vectors, slots, waves = map(int, found.group(3, 4, 5))
    for pointer, declared in (
        (found[1], f"CONSTANT_PLACE {found[1]} {IN_FILE}"),
        (found[2], f"COPIED_WEIGHTS {found[2]} {ALIKE}"),
    ):
        source = re.sub(rf"__global (?:const )?uint\*(?: restrict)? {pointer}\b", declared, source)
    above = f"#undef FILE_BYTES\n#define FILE_BYTES {slots * vectors * FILE_VECTOR_BYTES}\n"
    above += f"MOST_WAVES({slots})\n" if slots < waves else ""
    return source.replace("__kernel void", f"{above}__kernel void", 1)


def align_vectors(source: str) -> str:
    """Return the text with loads and stores of four numbers at a multiple of four as those of a
    vector: of others compilers make four, with an address each.

    Before -> after:
        x = vload4(0, in0_ptr + ((y * 56) + 4));    x = FLOATS_AT(in0_ptr + ((y * 56) + 4));
        vstore4(x, 0, out_ptr + (y * 56));          FLOATS_AT(out_ptr + (y * 56)) = x;
    """
    return _align(source, {name: kind for kind, name in _POINTER.findall(source)})


def _align(source: str, kinds: dict[str, str]) -> str:
    written, taken = [], 0
    for found in _VECTOR.finditer(source):
        if found.start() < taken:
            continue  # within the value of a store
        end = closing(source, found.end() - 1)
        arguments = cut_outside(source[found.end() : end], ", ")
        pointer, _, offset = arguments[-1].partition(" + ")
        if pointer not in kinds or arguments[-2] != "0" or not is_multiple_of_four(offset):
            continue
        at = f"{_AT[kinds[pointer]]}({arguments[-1]})"
        if found[1] == "store":
            at = f"{at} = {_align(', '.join(arguments[:-2]), kinds)}"
        written += [source[taken : found.start()], at]
        taken = end + 1
    return "".join([*written, source[taken:]])


def is_multiple_of_four(value: str) -> bool:
    """Return whether an expression is one as it is written: a sum of products by multiples."""
    value = value.strip()
    while value.startswith("(") and closing(value, 0) == len(value) - 1:
        value = value[1:-1]
    terms = [term for part in cut_outside(value, " + ") for term in cut_outside(part, " - ")]
    if len(terms) > 1:
        return all(map(is_multiple_of_four, terms))
    factors = cut_outside(value, " * ")
    if len(factors) > 1:
        closed = all(factor.isdigit() or _is_closed(factor) for factor in factors)
        return closed and any(map(is_multiple_of_four, factors))
    return value.isdigit() and int(value) % 4 == 0


def closing(text: str, opening: int) -> int:
    """Return where the parenthesis at `opening` ends."""
    depth = 0
    for at in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at
    return len(text)


def cut_outside(text: str, between: str) -> list[str]:
    """Return the parts of a text, cut where `between` stands outside of parentheses."""
    parts: list[str] = []
    depth = first = 0
    for at, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0 and text.startswith(between, at):
            parts.append(text[first:at])
            first = at + len(between)
    return [*parts, text[first:]]


def add_sections(source: str) -> str:
    """Return the text after the sections of `prelude.cl` that it calls for and lacks."""
    missing = (text for called, text in prelude() if called in source and text not in source)
    return "".join(missing) + source


@cache
def prelude() -> tuple[tuple[str, str], ...]:
    """Return the sections of `prelude.cl`, each after the text that calls for it."""
    whole = Path(__file__).with_name("prelude.cl").read_text(encoding="utf-8")
    sections = []
    for section in whole.split(_SECTION)[1:]:
        called, _, text = section.partition("\n")
        lines = (line for line in text.splitlines(keepends=True) if not line.startswith("//"))
        text = "".join(lines).rstrip("\n") + "\n"
        for lanes in ("4", "") if "#" in called else ("#",):
            name, written = called.replace("#", lanes), text.replace("#", lanes)
            sections.append((name, _define_once(name.rstrip("("), written)))
    return tuple(sections)


def _define_once(name: str, text: str) -> str:
    """Return the text of a function so that texts which become one program define it once."""
    if "static " not in text:
        return text
    return f"#ifndef HAS_{name}\n#define HAS_{name}\n{text}#endif\n"


def forbid_contraction(source: str) -> str:
    """Products are rounded before they are added, in a kernel without loops that makes integers.
    Compilers may make one instruction of both, which rounds but once: what lies half way between
    two quanta then falls to the other one."""
    opening = source.find("{\n", source.find("__kernel"))
    if opening < 0 or "rint(" not in source or "for (" in source:
        return source
    return f"{source[: opening + 2]}#pragma OPENCL FP_CONTRACT OFF\n{source[opening + 2 :]}"


@contextmanager
def printing(edit: Callable[[str], str]) -> Iterator[None]:
    """While this is open, TVM's OpenCL printer hands each kernel through `edit`."""
    import tvm_ffi

    tvm_ffi.register_global_func(_HOOK, lambda source, _target: edit(source), override=True)
    try:
        yield
    finally:
        tvm_ffi.remove_global_func(_HOOK)


_TYPES = "int|uint|float|half|float4|half4|int4|uint4"
_DECLARED = re.compile(rf"\s*(?P<type>{_TYPES}) (?P<name>\w+) = (?P<value>.*);$")
_ALIAS = re.compile(rf"\s*(?:{_TYPES}) (?P<name>\w+) = (?P<value>[A-Za-z_]\w*);$")
_WORK_ITEM = re.compile(r"\(convert_int\(get_(group|local)_id\(([012])\)\)\)")
_CONVERTED = re.compile(r"convert_int\((\(.*\)|\w+)\)")
_WORD = re.compile(r"[A-Za-z_]\w*")
_WORDS = re.compile(r"([A-Za-z_]\w*)")
"""Splits a text: each second part is a word."""
# What follows a word in parentheses is what that function is called with: they stay.
_LANE = re.compile(r"(?<!\w)\((\w+)\)\.s(?=[0-3])")
_LANES_OF_ONE = re.compile(
    r"(?<!\w)\(\((?:float4|half4)\)\(((?:\w+|\(\w+\[\w+\]\))\.s[0-3]), \1, \1, \1\)\) \* "
)
_SAME_NUMBERS = re.compile(r"(?<!\w)\(\((float4|half4)\)\(([\w.+-]+), \2, \2, \2\)\)")
_FLOAT = re.compile(r"(\d(?<![\w.]\d)\.\d*?)0*(?:e([+-])0?(\d+))f\b")
_READ = re.compile(r"as_float4\((read_imagef\(.*\))\);$", re.MULTILINE)
_OTHER_TYPES = re.compile(r"uint|float|half|char|short|long|[=!<>]=|[<>] ")
_SHORTEST_VALUE = 4
_ITEMS = {f"{kind[0].upper()}{axis}": (kind, axis) for kind in ("group", "local") for axis in "012"}
"""How a text of ours names where a work-item is."""


@dataclass(frozen=True)
class _Named:
    """A value that has a name from its line to the end of its block."""

    depth: int
    value: str
    name: str


def compact(source: str) -> str:
    """Shorten a kernel's text without changing what it computes; other texts stay as they are."""
    start = source.find("__kernel")
    opening = source.find("{\n", start)
    if start < 0 or opening < 0 or _find_items(source):
        return source
    head, body = source[: opening + 2], source[opening + 2 :]
    body = _WORK_ITEM.sub(lambda found: f"{found[1][0].upper()}{found[2]}", body)
    lines = _drop_unused(*_drop_aliases(_reuse_names(body.split("\n"))))
    body = _shorter_numbers("\n".join(lines))
    items = ((item, *_ITEMS[item]) for item in _find_items(body))
    declared = "".join(f"  int {item} = get_{kind}_id({axis});\n" for item, kind, axis in items)
    return head + declared + body


def _find_items(text: str) -> list[str]:
    """Return which of `_ITEMS` are words of the text."""
    # A pattern that begins with what stands in the text is looked for by that.
    return [item for item in _ITEMS if re.search(rf"{item}(?<!\w{item})\b", text)]


def _reuse_names(lines: list[str]) -> list[str]:
    """Values that have names are read by them."""
    known: list[_Named] = []
    written, depth = [], 0
    for printed in lines:
        line, stripped = printed, printed.lstrip()
        if stripped.startswith("}"):
            depth -= 1
            known = [named for named in known if named.depth <= depth]
            stripped = stripped[1:]
        for named in known:
            if named.value in line:
                line = _replace_value(line, named)
        found = _DECLARED.match(line)
        if found is not None:
            line, values = _rewrite_declaration(line, found)
            known += [_Named(depth, value, found["name"]) for value in values]
        depth += stripped.count("{") - stripped.count("}")
        written.append(line)
    return written


def _replace_value(line: str, named: _Named) -> str:
    """Return the line with the name in place of the value, which is there at least as a text.
    `(x)` is no value in `f(x)`, nor is `max(x, y)` in `fmax(x, y)`."""
    parts, taken = [], 0
    found = line.find(named.value)
    while found >= 0:
        before = line[found - 1 : found]
        if before.isalnum() or before in ("_", "."):
            found = line.find(named.value, found + 1)
            continue
        parts += [line[taken:found], named.name]
        taken = found + len(named.value)
        found = line.find(named.value, taken)
    return "".join([*parts, line[taken:]])


def _rewrite_declaration(line: str, found: re.Match[str]) -> tuple[str, list[str]]:
    """Return a declaration as it is written, and the values that mean the same after it."""
    value, is_integer = found["value"], found["type"] == "int"
    converted = _CONVERTED.fullmatch(value) if is_integer else None
    if converted is not None and _is_closed(converted[1]):
        # To initialise an int converts.
        line = line.replace(value, converted[1])
        value = "" if _OTHER_TYPES.search(converted[1]) else converted[1]
    if len(value) < _SHORTEST_VALUE or "[" in value or _WORD.fullmatch(value):
        return line, []
    # A product that is added is rounded once where it stands in the sum, and twice by name.
    is_exact = is_integer or _outermost(value) not in ("*", "-", "")
    return line, [value] if is_exact and _is_closed(value) else []


def _is_closed(value: str) -> bool:
    """Return whether the text is one word, call or parenthesis, so that it can stand anywhere."""
    opened = value.find("(")
    if opened < 0:
        return bool(_WORD.fullmatch(value))
    called = opened == 0 or _WORD.fullmatch(value[:opened]) is not None
    return called and closing(value, opened) == len(value) - 1


def _outermost(value: str) -> str:
    """Return the operator of a parenthesis, `call` of a call, "" where there is none."""
    if not value.startswith("("):
        return "call"
    depth = 0
    for at, character in enumerate(value):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 1 and character in "+-*/%&|<>" and value[at - 1] == " ":
            return "+" if character == "-" else character
        if depth == 1 and character == "-":
            return "-"
    return ""


def _drop_aliases(lines: list[str]) -> tuple[list[str], Counter[str]]:
    """Drop other names for variables (`float4 a0 = v_;`), and count the words that are left."""
    names: dict[str, str] = {}
    kept = []
    for line in lines:
        found = _ALIAS.match(line)
        if found is not None:
            names[found["name"]] = names.get(found["value"], found["value"])
        else:
            kept.append(line)
    parts = _WORDS.split("\n".join(kept))
    words = parts[1::2]
    if names:
        parts[1::2] = words = [names.get(word, word) for word in words]
    return "".join(parts).split("\n"), Counter(words)


def _drop_unused(lines: list[str], uses: Counter[str]) -> list[str]:
    """Variables that nothing reads go, with what only they read."""
    kept = []
    for line in reversed(lines):
        declared = _DECLARED.match(line)
        if declared is not None and uses[declared["name"]] == 1:
            uses.subtract(_WORD.findall(line))
        else:
            kept.append(line)
    return kept[::-1]


def _shorter_numbers(body: str) -> str:
    """Return lanes, vectors of one number and floats in their shortest spelling."""
    body = _LANE.sub(r"\1.s", body)
    body = _LANES_OF_ONE.sub(r"\1 * ", body)
    body = _SAME_NUMBERS.sub(r"(\1)(\2)", body)
    body = _FLOAT.sub(_float, body)
    return _READ.sub(r"\1;", body)


def _float(found: re.Match[str]) -> str:
    digits = found[1] + ("0" if found[1].endswith(".") else "")
    exponent = found[3].lstrip("0")
    sign = "-" if found[2] == "-" else ""
    return f"{digits}e{sign}{exponent}f" if exponent else f"{digits}f"


_PTR = "_ptr"
"""How TVM ends the name of a kernel's pointer to a tensor."""
_ARRAY, _SINGLE = "image2d_array_t", "image2d_t"
_PLACE = "(int4)("


@dataclass(frozen=True, kw_only=True)
class Grid:
    """How the layers of a tensor lie in an image that is no array: `bands` below each other."""

    columns: int
    rows: int
    layers: int
    """Of one band; a power of two where there are several."""
    bands: int = 1

    @property
    def width(self) -> int:
        """Texels of the image in a row."""
        return self.columns * self.layers

    @property
    def height(self) -> int:
        """Rows of the image."""
        return self.rows * self.bands

    @property
    def macro(self) -> str:
        """Return how the text of a kernel begins to name a place there."""
        return "BESIDE" if self.bands == 1 else "IN_BANDS"

    @property
    def numbers(self) -> tuple[int, ...]:
        """Return what it names first."""
        if self.bands == 1:
            return (self.columns,)
        return self.columns, self.rows, self.layers.bit_length() - 1


def put_layers_beside(source: str, grids: Mapping[str, Grid]) -> str:
    """Return the text of a kernel with these parameters as single images, whose layers lie in
    `grids`."""
    for param, grid in grids.items():
        pointer = param + _PTR
        declared = f"{_ARRAY} {pointer}"
        if declared not in source:
            continue  # no element of the result comes from it, so that TVM declares no parameter
        source = source.replace(declared, f"{_SINGLE} {pointer}", 1)
        parts, done = [], 0
        head = f"{grid.macro}({', '.join(map(str, grid.numbers))}"
        for found in re.finditer(rf"\b(?:read|write)_image[fh]\({pointer}, ", source):
            at = source.find(_PLACE, found.end())
            between = source[found.end() : at].strip("(")
            if at < 0 or between not in ("", "image_sampler, "):
                raise DefectError(f"{found[0]}... names no place: {source[found.start() :][:80]}")
            wrapped = source[at - 1] == "("
            opening = at + len(_PLACE) - 1
            end = closing(source, opening)
            coordinates = cut_outside(source[opening + 1 : end], ", ")
            if len(coordinates) != 4 or coordinates[3] != "0":
                raise DefectError(f"{found[0]}... is at {coordinates}, expected (x, y, layer, 0)")
            column, row, layer, _ = coordinates
            begin = at - wrapped
            parts += [source[done:begin], f"{head}, {column}, {row}, {layer})"]
            done = end + 1 + wrapped
        source = "".join(parts) + source[done:]
    return source
