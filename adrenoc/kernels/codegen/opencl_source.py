"""Tidy the OpenCL C that TVM prints, while it prints it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

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
_READS = {f"READ_IMAGE{kind}(": f"read_image{kind.lower()}(" for kind in "HF"}
"""TVM's macros: with the sampler they are the functions."""


def tidy(source: str) -> str:
    """One kernel's source without what it does not need.

    - TVM declares every other kernel of the module above each kernel, which makes the text grow
      with the square of their number.
    - It drops the sampler unless the *device* version is exactly 2.0 or 3.0; without a sampler
      an out-of-range read is undefined, and the zero padding of convolutions relies on it.
    - It has no way to say that a loop stays a loop.
    """
    source = _OLD_READS.sub("", _DECLARATION.sub("", source))
    for macro, function in _READS.items():
        source = source.replace(macro, function)
    if "()" in source:
        source = _SPELLED.sub(r"\1", source)
    source = _ROLLED_LOOP.sub(r"\1 + ROLLED;", source)
    if "SHARE_UINT4(" in source:
        source = _SHARED_HALVES.sub(r"\1 __attribute__((aligned(16)));", source)
    return add_sections(source)


def add_sections(source: str) -> str:
    """Return the text, after the sections of `prelude.cl` that it calls for and does not have
    yet."""
    missing = (text for called, text in prelude() if called in source and text not in source)
    return "".join(missing) + source


@cache
def prelude() -> tuple[tuple[str, str], ...]:
    """Return the sections of `prelude.cl`, each after the text that calls for it."""
    written = Path(__file__).with_name("prelude.cl").read_text(encoding="utf-8")
    sections = []
    for section in written.split(_SECTION)[1:]:
        called, _, text = section.partition("\n")
        lines = (line for line in text.splitlines(keepends=True) if not line.startswith("//"))
        text = "".join(lines).rstrip("\n") + "\n"
        kinds = ("4", "") if "#" in called else ("#",)
        sections += [(called.replace("#", lanes), text.replace("#", lanes)) for lanes in kinds]
    return tuple(sections)


def forbid_contraction(source: str) -> str:
    """Products are rounded before they are added, in a kernel without loops that makes integers.

    Compilers may make one instruction of both, which rounds but once: what lies half way between
    two quanta then falls to the other one.
    """
    opening = source.find("{\n", source.find("__kernel"))
    if opening < 0 or "rint(" not in source or "for (" in source:
        return source
    return f"{source[: opening + 2]}#pragma OPENCL FP_CONTRACT OFF\n{source[opening + 2 :]}"


@contextmanager
def printing(edit: Callable[[str], str]) -> Iterator[None]:
    """While this is open, TVM's OpenCL printer hands each kernel through `edit`."""
    import tvm_ffi

    def postproc(source: str, _target: Any) -> str:
        return edit(source)

    tvm_ffi.register_global_func(_HOOK, postproc, override=True)
    try:
        yield
    finally:
        tvm_ffi.remove_global_func(_HOOK)
