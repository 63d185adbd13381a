"""What is written into a kernel's text beside what TVM prints."""

from adrenoc.kernels.codegen.opencl_source import align_vectors, forbid_contraction, prelude, tidy

_HEAD = "#define A 1\n__kernel void k(__global float* p) {\n"
_OFF = "#pragma OPENCL FP_CONTRACT OFF\n"


def test_quanta_are_made_of_products_that_are_rounded() -> None:
    """The pragma comes before all else in the body; in a program, other kernels keep theirs."""
    made = forbid_contraction(_HEAD + "  p[0] = rint((p[1] * 2.0f) + 3.0f);\n}\n")
    assert made == _HEAD + _OFF + "  p[0] = rint((p[1] * 2.0f) + 3.0f);\n}\n"


def test_loops_keep_their_fused_products() -> None:
    summed = _HEAD + "  for (int i = 0; i < 9; ++i) s += p[i] * w[i];\n  p[0] = rint(s);\n}\n"
    assert forbid_contraction(summed) == summed
    plain = _HEAD + "  p[0] = p[1] * 2.0f + 3.0f;\n}\n"
    assert forbid_contraction(plain) == plain


def test_a_kernel_gets_the_sections_that_it_calls_for() -> None:
    called = [name for name, _ in prelude()]
    assert len(called) == len(set(called))
    kernel = "__kernel void k(__global float* p) {\n  p[0] = ERROR_FUNCTION4(p[1]);\n}\n"
    function = dict(prelude())["ERROR_FUNCTION4("]
    assert tidy(kernel) == function + kernel
    assert "float#" not in function
    assert "float4 x" in function


def test_no_comment_of_ours_goes_to_drivers() -> None:
    assert all("//" not in text and text.endswith("\n") for _, text in prelude())


def test_vectors_at_multiples_of_four_are_read_whole() -> None:
    head = "__kernel void k(__global float* restrict x, __global half* y, __local float* z) {\n"
    lines = {
        "vload4(0, x + (((i * 8) + (j * 12)) - 4))": "FLOATS_AT(x + (((i * 8) + (j * 12)) - 4))",
        "vload4(0, y + ((i + 3) * 4))": "HALVES_AT(y + ((i + 3) * 4))",
        "vstore4(f(vload4(0, x + (i * 4)), a), 0, y + 0);": "HALVES_AT(y + 0) = "
        "f(FLOATS_AT(x + (i * 4)), a);",
        "vstore4(vload4(0, x + (i * 4)), 0, y + i);": "vstore4(FLOATS_AT(x + (i * 4)), 0, y + i);",
    }
    for printed, wanted in lines.items():
        assert align_vectors(head + printed) == head + wanted
    for other in ("x + ((i * 4) + j)", "x + (i * 6)", "x + (4 * i ? j : 0)", "z + (i * 4)"):
        assert align_vectors(f"{head}vload4(0, {other})") == f"{head}vload4(0, {other})"
