"""Tidy the OpenCL C that TVM prints, while it prints it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_HOOK = "tvm_callback_opencl_postproc"
_DECLARATION = re.compile(r"^__kernel void \w+\([^{;]*\);\n", re.MULTILINE)
_OLD_READS = re.compile(r"#ifdef __OPENCL_VERSION__\n.*?#endif\n#endif\n", re.DOTALL)
_SPELLED = re.compile(r"(\d\.\d+e[+-]\d+f?)\(\)")
"""A float with all its digits, which TVM takes for a function (`build.spell_floats`)."""
ROLLED = "rolled_"
"""Variables of loops that compilers are not to unroll begin so."""
_ROLLED_LOOP = re.compile(rf"(for \(int {ROLLED}(\w+) = 0; {ROLLED}\2 < \d+);")
_ZERO = "#define ROLLED ((int)get_num_groups(2) >> 30)\n"
"""Zero, as no launch has so many work-groups; but compilers do not know, and hints are ignored."""
_ALWAYS = "#define ALWAYS(number) ((int)get_num_groups(2) != -(number))\n"
"""True, for a positive number, by the same token."""
_LOADS = {
    "LOAD_FLOAT4": "(((__global const float4*)(pointer) + (base))[offset])",
    "LOAD_INT4": "(((__global const int4*)(pointer) + (base))[offset])",
    "LOAD_UINT4": (
        "(((__global const uint4*)((__global const char*)(pointer) + 16u * (uint)(base)))[offset])"
    ),
}
"""Bodies of the macros `(pointer, base, offset)` that `tvmapi.load_vector` calls.

Offsets are constants: of one base in bytes, an address takes four instructions less than of a sum.
"""
_LOAD_HALF4 = "#define LOAD_HALF4(pointer, base, offset) "
_LOAD_HALVES = f"""\
#ifdef cl_khr_fp16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
{_LOAD_HALF4}convert_float4(as_half4(((__global const uint2*)(pointer) + (base))[offset]))
#else
{_LOAD_HALF4}vload_half4((base) + (offset), (__global const half*)(pointer))
#endif
"""
"""Another of these, of four halves as floats: in one load where the device has halves.

`vload_half4` promises the alignment of one half, so that compilers make four loads of it
(`scripts/estimate_networks`: a 1x1 convolution 960-320@7 takes twice as long on an Adreno 660).
"""
_AT = "((__global const char*)(pointer) + 4u * (uint)(base))"
_NUMBERS = {
    "LOAD_NUMBER": f"(((__global const float*){_AT})[offset])",
    "LOAD_NUMBERS": f"vload4(0, (__global const float*){_AT} + (offset))",
    "LOAD_ALIGNED": f"(*(__global const float4*)((__global const float*){_AT} + (offset)))",
}
"""Bodies of the macros `(pointer, base, offset)` that `tvmapi.load_numbers` calls."""
_SHARE = "#define SHARE_UINT4(pointer, at, words) (((__local uint4*)(pointer))[at] = (words))\n"
"""Words into local memory as they are, where another type is read after a barrier."""
_WHERE = "#define WORDS_WHERE(inside, words, word) ((inside) ? (words) : (uint4)(word))\n"
_PACK = """\
#define PACK_BYTES(v) ((uint)mad((v).z, 65536.0f, mad((v).y, 256.0f, (v).x)) | ((uint)(v).w << 24))
"""
"""Three bytes are a float without loss: ten instructions less than to convert each by itself."""
_ERROR_FUNCTION = """\
static float# ERROR_FUNCTION#(float# x) {
  float# a = select(select(x, (float#)(4.0f), x > 4.0f), (float#)(-4.0f), x < -4.0f), s = a * a;
  float# p = mad(s, (float#)(-2.72614225801306e-10f), (float#)(2.77068142495902e-08f));
  float# q = mad(s, (float#)(-1.45660718464996e-05f), (float#)(-2.13374055278905e-04f));
  p = mad(s, p, (float#)(-2.10102402082508e-06f));
  q = mad(s, q, (float#)(-1.68282697438203e-03f));
  p = mad(s, p, (float#)(-5.69250639462346e-05f));
  q = mad(s, q, (float#)(-7.37332916720468e-03f));
  p = mad(s, p, (float#)(-7.34990630326855e-04f));
  q = mad(s, q, (float#)(-1.42647390514189e-02f));
  p = mad(s, p, (float#)(-2.95459980854025e-03f));
  p = mad(s, p, (float#)(-1.60960333262415e-02f));
  return a * p / q;
}
"""
"""The error function, off by 4.2e-7 of it at most: a rational function of x in -4 to 4.

Compilers' own takes 180 instructions an element, and registers that leave half of the threads
(`scripts/estimate_networks`).  Source of the coefficients: Eigen, as TensorFlow has them.
"""
_SHARED_HALVES = re.compile(r"(__local half4 \w+\[\d+\]);")
DOT = """\
#if defined(__opencl_c_integer_dot_product_input_4x8bit_packed)
#define DOT_PRODUCT(weights, word, total) dot_acc_sat_4x8packed_su_int(weights, word, total)
#elif defined(cl_qcom_dot_product8)
#pragma OPENCL EXTENSION cl_qcom_dot_product8 : enable
#define DOT_PRODUCT(weights, word, total) qcom_dot8_acc(weights, word, total)
#else
#define DOT_BYTE(weights, word, i, total) \\
  mad24((int)as_char4(weights).s##i, (int)as_uchar4(word).s##i, total)
#define DOT_PRODUCT(weights, word, total) DOT_BYTE(weights, word, 0, DOT_BYTE(weights, word, 1, \\
  DOT_BYTE(weights, word, 2, DOT_BYTE(weights, word, 3, total))))
#endif
#define DOT_PRODUCTS(weights, word, total) ((int4)( \\
  DOT_PRODUCT((weights).x, word, (total).x), DOT_PRODUCT((weights).y, word, (total).y), \\
  DOT_PRODUCT((weights).z, word, (total).z), DOT_PRODUCT((weights).w, word, (total).w)))
"""
"""Dot products of four signed by four unsigned bytes: OpenCL's own where the device has them, else
Qualcomm's, which takes the signed ones first (LiteRT's and ggml's kernels; Mesa's disassembly).

They saturate, which no sum of `conv2d_dot.MOST_PRODUCTS` does: that is the hardware's instruction.
"""
_READ = re.compile(r"\bREAD_IMAGE([HF])\(")
"""TVM's macro: with the sampler it is the function."""


def tidy(source: str) -> str:
    """One kernel's source without what it does not need.

    - TVM declares every other kernel of the module above each kernel, which makes the text grow
      with the square of their number.
    - It drops the sampler unless the *device* version is exactly 2.0 or 3.0; without a sampler
      an out-of-range read is undefined, and the zero padding of convolutions relies on it.
    - It has no way to say that a loop stays a loop.
    """
    source = _OLD_READS.sub("", _DECLARATION.sub("", source))
    source = _READ.sub(lambda found: f"read_image{found[1].lower()}(", source)
    source = _SPELLED.sub(r"\1", source)
    source, rolled = _ROLLED_LOOP.subn(r"\1 + ROLLED;", source)
    defined = [
        f"#define {name}(pointer, base, offset) {body}\n"
        for name, body in (_LOADS | _NUMBERS).items()
        if f"{name}(" in source
    ]
    if "LOAD_HALF4(" in source:
        defined.append(_LOAD_HALVES)
    if "SHARE_UINT4(" in source:
        defined.append(_SHARE)
        source = _SHARED_HALVES.sub(r"\1 __attribute__((aligned(16)));", source)
    if "PACK_BYTES(" in source:
        defined.append(_PACK)
    if "WORDS_WHERE(" in source:
        defined.append(_WHERE)
    for lanes in ("4", ""):
        if f"ERROR_FUNCTION{lanes}(" in source:
            defined.append(_ERROR_FUNCTION.replace("#", lanes))
    if "DOT_PRODUCTS(" in source:
        defined.append(DOT)
    if "ALWAYS(" in source:
        defined.append(_ALWAYS)
    if rolled:
        defined.append(_ZERO)
    return "".join(defined) + source


def rounded_as_written(source: str) -> str:
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
