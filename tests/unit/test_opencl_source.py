"""The text of kernels: shorter and the same, and one for kernels that differ in constants alone."""

import pytest

from adrenoc.base.errors import DefectError
from adrenoc.kernels.codegen.opencl_sharing import (
    Shared,
    kernel_name,
    read_programs,
    section,
    share,
    standalone,
)
from adrenoc.kernels.codegen.opencl_source import (
    Grid,
    align_vectors,
    compact,
    forbid_contraction,
    prelude,
    put_layers_beside,
    tidy,
)

_HEAD = "__kernel void k_kernel(__global float4* restrict a, __global float4* restrict out) {\n"
_X = "(((convert_int(get_group_id(0))) * 8) + (convert_int(get_local_id(0))))"


def _body(*lines: str) -> list[str]:
    """What becomes of lines of a kernel, without its braces."""
    text = _HEAD + "".join(f"  {line}\n" for line in lines) + "}\n\n"
    made = compact(text)
    assert made.startswith(_HEAD)
    assert made.endswith("}\n\n")
    return [line.strip() for line in made[len(_HEAD) :].splitlines()[:-2]]


def test_values_are_read_by_their_names():
    assert _body(f"int gx0 = {_X};", f"out[({_X} + 1)] = a[{_X}];") == [
        "int G0 = get_group_id(0);",
        "int L0 = get_local_id(0);",
        "int gx0 = ((G0 * 8) + L0);",
        "out[(gx0 + 1)] = a[gx0];",
    ]


def test_names_of_a_block_end_with_it():
    lines = _body(
        "if (c) {",
        f"  int gx0 = {_X};",
        f"  out[{_X}] = a[{_X}];",
        "} else {",
        f"  out[{_X}] = a[0];",
        "}",
        f"out[{_X}] = a[1];",
    )
    assert "out[gx0] = a[gx0];" in lines
    assert lines.count("out[((G0 * 8) + L0)] = a[0];") == 1
    assert lines[-1] == "out[((G0 * 8) + L0)] = a[1];"


def test_what_is_read_later_is_read_later():
    """A load of memory that may change between is not moved to another place."""
    lines = ["float4 v0 = out[3];", "out[3] = a[1];", "out[4] = out[3];", "out[5] = v0;"]
    assert _body(*lines) == lines


def test_products_that_are_added_stay_in_the_sum():
    """There a compiler rounds once; by name it would round twice."""
    lines = ["float4 p0 = (x * y);", "out[0] = ((x * y) + z);", "out[1] = p0;"]
    assert _body(*lines) == lines
    sums = _body("float4 s0 = ((x * y) + z);", "out[0] = (((x * y) + z) * w);", "out[1] = s0;")
    assert sums[1] == "out[0] = (s0 * w);"


def test_parts_of_other_words_and_arguments_are_no_values():
    lines = ["int s0 = (x + y);", "int m0 = max(x, y);", "out[s0] = f(x + y);"]
    assert _body(*lines, "out[m0] = fmax(x, y);") == [*lines, "out[m0] = fmax(x, y);"]


def test_only_other_names_and_unused_variables_go():
    lines = _body(
        "float4 v_ = as_float4(read_imagef(in0, s, ((int4)(x, y, 0, 0))));",
        "float4 a0 = v_;",
        "int unused0 = 7;",
        "int unused1 = (unused0 + 1);",
        "out[0] = ((((float4)((a0).s1, (a0).s1, (a0).s1, (a0).s1)) * k0) + acc0_ptr[0]);",
    )
    assert lines == [
        "float4 v_ = read_imagef(in0, s, ((int4)(x, y, 0, 0)));",
        "out[0] = ((v_.s1 * k0) + acc0_ptr[0]);",
    ]


def test_conversions_of_what_is_an_int_go_and_others_stay():
    assert _body("int t0 = convert_int(((x * 4) + y));", "out[((x * 4) + y)] = a[t0];") == [
        "int t0 = ((x * 4) + y);",
        "out[t0] = a[t0];",
    ]
    (first, second) = _body("int b0 = convert_int((x == 2));", "out[b0] = f((x == 2));")
    assert second == "out[b0] = f((x == 2));", "a condition is no int"
    assert first == "int b0 = (x == 2);"


def test_floats_are_the_same_numbers():
    printed = ["0.000000e+00f", "1.500000e+00f", "3.25049057e+01f", "1.000000e-12f", "6.5e+04f"]
    text = _HEAD + "".join(f"  out[0] = {number};\n" for number in printed) + "}\n"
    made = [line.split(" = ")[1].rstrip(";") for line in compact(text).splitlines()[1:-1]]
    assert made == ["0.0f", "1.5f", "3.25049057e1f", "1.0e-12f", "6.5e4f"]
    for before, after in zip(printed, made, strict=True):
        assert float(before.rstrip("f")) == float(after.rstrip("f"))


def test_vectors_of_one_number():
    (line,) = _body(
        "out[0] = max(v, ((float4)(0.000000e+00f, 0.000000e+00f, 0.000000e+00f, 0.000000e+00f)));"
    )
    assert line == "out[0] = max(v, (float4)(0.0f));"


def test_what_is_no_kernel_stays():
    assert compact("#define X 1\n") == "#define X 1\n"
    own = "__kernel void k(__global int* G0) {\n  G0[0] = 1;\n}\n"
    assert compact(own) == own


def test_what_a_function_is_called_with_stays_in_parentheses():
    one = "v_.s0, v_.s0, v_.s0, v_.s0"
    lines = (
        f"out[0] = convert_half4((float4)({one}));",
        f"out[1] = native_exp((float4)({one})) * a[1];",
        "out[2] = convert_float4(v_).s0;",
        f"out[3] = ((float4)({one})) * a[1];",
    )
    assert _body(*lines) == [*lines[:3], "out[3] = v_.s0 * a[1];"]


_DEFINES = "#define A 1\n__kernel void k(__global float* p) {\n"
_OFF = "#pragma OPENCL FP_CONTRACT OFF\n"


def test_quanta_are_made_of_products_that_are_rounded():
    """The pragma comes before all else in the body; in a program, other kernels keep theirs."""
    made = forbid_contraction(_DEFINES + "  p[0] = rint((p[1] * 2.0f) + 3.0f);\n}\n")
    assert made == _DEFINES + _OFF + "  p[0] = rint((p[1] * 2.0f) + 3.0f);\n}\n"


def test_loops_keep_their_fused_products():
    summed = _DEFINES + "  for (int i = 0; i < 9; ++i) s += p[i] * w[i];\n  p[0] = rint(s);\n}\n"
    assert forbid_contraction(summed) == summed
    plain = _DEFINES + "  p[0] = p[1] * 2.0f + 3.0f;\n}\n"
    assert forbid_contraction(plain) == plain


def test_a_kernel_gets_the_sections_that_it_calls_for():
    called = [name for name, _ in prelude()]
    assert len(called) == len(set(called))
    kernel = "__kernel void k(__global float* p) {\n  p[0] = ERROR_FUNCTION4(p[1]);\n}\n"
    function = dict(prelude())["ERROR_FUNCTION4("]
    assert tidy(kernel) == function + kernel
    assert "float#" not in function
    assert "float4 x" in function


def test_no_comment_of_ours_goes_to_drivers():
    assert all("//" not in text and text.endswith("\n") for _, text in prelude())


def test_vectors_at_multiples_of_four_are_read_whole():
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


_TEXT = """__kernel void add_0_kernel(__read_only image2d_array_t in0_ptr, __read_only image2d_array_t in0_ptr_1, __write_only image2d_array_t out_ptr) {
  float4 a = read_imagef(in0_ptr, image_sampler, ((int4)(max(gx0, 0), (gy0 + t[1]), 2, 0)));
  float4 b = read_imageh(in0_ptr_1, image_sampler, ((int4)(0, 0, gz0, 0)));
  write_imagef(out_ptr, (int4)(gx0, gy0, (gz0 + 3), 0), as_float4(a + b));
}
"""  # noqa: E501


def _grid(columns: int) -> Grid:
    return Grid(columns=columns, rows=1, layers=3)


def test_layers_stand_in_bands():
    grid = Grid(columns=197, rows=1, layers=64, bands=3)
    assert (grid.width, grid.height) == (197 * 64, 3)
    text = put_layers_beside(_TEXT, {"out": grid})
    assert "write_imagef(out_ptr, IN_BANDS(197, 1, 6, gx0, gy0, (gz0 + 3)), " in text


def test_only_the_named_parameters_change():
    text = put_layers_beside(_TEXT, {"in0": _grid(28), "out": _grid(7), "absent": _grid(3)})
    assert text.splitlines() == [
        "__kernel void add_0_kernel(__read_only image2d_t in0_ptr, "
        "__read_only image2d_array_t in0_ptr_1, __write_only image2d_t out_ptr) {",
        "  float4 a = read_imagef(in0_ptr, image_sampler, "
        "BESIDE(28, max(gx0, 0), (gy0 + t[1]), 2));",
        "  float4 b = read_imageh(in0_ptr_1, image_sampler, ((int4)(0, 0, gz0, 0)));",
        "  write_imagef(out_ptr, BESIDE(7, gx0, gy0, (gz0 + 3)), as_float4(a + b));",
        "}",
    ]


@pytest.mark.parametrize(
    "place", ["at0", "(int4)(gx0, gy0, 2, 1)", "(int4)(gx0, gy0, 2)", "(int2)(gx0, gy0)"]
)
def test_a_place_of_another_form_is_refused(place):
    text = _TEXT.replace("(int4)(gx0, gy0, (gz0 + 3), 0)", place)
    with pytest.raises(DefectError):
        put_layers_beside(text, {"out": _grid(7)})


def _kernel(name: str, *lines: str) -> str:
    body = "".join(f"  {line}\n" for line in lines)
    return f"__kernel void {name}(__global float* a, __global float* out) {{\n{body}}}\n\n"


def _share(*bodies: tuple[str, ...]) -> tuple[list[Shared], list[str]]:
    """What becomes of kernels k0, k1, ... and what is said of it."""
    texts = {f"k{i}_kernel": _kernel(f"k{i}_kernel", *body) for i, body in enumerate(bodies)}
    shared, decisions = share(texts)
    assert list(shared) == list(texts)
    return list(shared.values()), [f"{d.subject} {d.taken}: {d.reason}" for d in decisions]


def test_constants_that_differ_become_arguments():
    (first, second), said = _share(
        ("if (gx0 < 56) {", "  out[(gx0 + 8)] = (a[gx0] * 2.5f);", "}", "out[0] = a[56];"),
        ("if (gx0 < 28) {", "  out[(gx0 + 8)] = (a[gx0] * 1.5f);", "}", "out[0] = a[28];"),
    )
    assert first.program == second.program == "k0_kernel"
    assert first.text == second.text
    assert "__global float* out, int C0, float C1) {" in first.text
    assert "if (gx0 < C0) {" in first.text
    assert "out[(gx0 + 8)] = (a[gx0] * C1);" in first.text, "what is the same stays"
    assert first.constants == (("int", "56"), ("float", "2.5f"))
    assert second.constants == (("int", "28"), ("float", "1.5f"))
    assert said == ["k1 runs the program of k0: they differ in 2 constants, which became arguments"]


def test_packed_words_become_arguments_by_their_bits():
    """A word of four bytes such as 133 is 2240120197, beyond `int`: the runtime reads `int`s."""
    shared, _ = _share(
        *((f"out[0] = select(a[0], (uint){word});",) for word in (2240120197, 134, 4294967295))
    )
    assert {kernel.program for kernel in shared} == {"k0_kernel"}
    assert "select(a[0], (uint)C0);" in shared[0].text
    assert [kernel.constants for kernel in shared] == [
        (("int", "-2054847099"),),
        (("int", "134"),),
        (("int", "-1"),),
    ]


@pytest.mark.parametrize("form", ["(a[0] + {})", "(uint)({} - a[0])", "(ulong){}"])
def test_numbers_beyond_int_stay_where_their_bits_will_not_do(form):
    shared, said = _share(*((f"out[0] = {form.format(n)};",) for n in (7, 2147483648, 5)))
    assert [kernel.program for kernel in shared] == ["k0_kernel", "k1_kernel", "k2_kernel"]
    assert said[0].endswith("it differs from k0 in a number beyond int, which stays a constant")


def test_words_beyond_uint_stay():
    shared, _ = _share(*((f"out[0] = (uint){n};",) for n in (7, 4294967296)))
    assert [kernel.program for kernel in shared] == ["k0_kernel", "k1_kernel"]


def test_equal_texts_share_without_arguments():
    (first, second), said = _share(("out[0] = a[1];",), ("out[0] = a[1];",))
    assert (first.program, second.program) == ("k0_kernel", "k0_kernel")
    assert first.constants == second.constants == ()
    assert said == ["k1 runs the program of k0: their text is the same"]


@pytest.mark.parametrize(
    ("why", "lines"),
    [
        ("the size of an array", ("float acc0_ptr[#];", "out[0] = a[1];")),
        ("the index of a register", ("float acc0_ptr[8];", "acc0_ptr[#] = a[1];")),
        ("the bound of a loop that is unrolled", ("for (int i = 0; i < #; ++i) {", "}")),
        ("a divisor", ("int x = (gx0 / #);",)),
        ("a divisor", ("int x = (gx0 % #);",)),
        ("an axis of threads", ("int x = get_group_id(#);",)),
        ("an offset in memory", ("out[0] = LOAD_FLOAT4(a, base, #);",)),
        (
            "an offset in memory",
            (
                "for (int rolled_i = 0; rolled_i < 2 + ROLLED; ++rolled_i) {",
                "  s += shared0_ptr[(v0 + #)];",
                "}",
            ),
        ),
        ("a macro", ("if (ALWAYS(#)) {", "}")),
        (
            "the stride of an inner loop",
            (
                "for (int rolled_i = 0; rolled_i < 2 + ROLLED; ++rolled_i) {",
                "  s += a[(rolled_i * #)];",
                "}",
            ),
        ),
    ],
)
def test_what_compilers_make_something_of_stays(why, lines):
    bodies = [tuple(line.replace("#", number) for line in lines) for number in ("2", "3", "2")]
    (first, second, third), said = _share(*bodies)
    assert (first.program, second.program, third.program) == ("k0_kernel", "k1_kernel", "k0_kernel")
    assert not first.constants
    assert said == [
        f"k1 has a program of its own: it differs from k0 in {why}, which stays a constant",
        "k2 runs the program of k0: their text is the same",
    ]


def test_the_bound_of_a_loop_that_stays_a_loop_becomes_an_argument():
    loop = "for (int rolled_i = 0; rolled_i < # + ROLLED; ++rolled_i) {"
    (first, _), _ = _share((loop.replace("#", "4"), "}"), (loop.replace("#", "9"), "}"))
    assert "rolled_i < C0 + ROLLED;" in first.text
    assert "rolled_i = 0;" in first.text


def test_numbers_are_lifted_where_they_stand_in_their_own_text():
    """The second program's numbers have other lengths than the first's."""
    divisors, extents = ("8", "8", "1024", "1024"), ("5", "77", "123456", "9")
    bodies = [
        (f"int x = (gx0 / {divisor});", f"out[x] = f(a[1], {extent});")
        for divisor, extent in zip(divisors, extents, strict=True)
    ]
    shared, _ = _share(*bodies)
    assert [one.program for one in shared] == ["k0_kernel"] * 2 + ["k2_kernel"] * 2
    assert "(gx0 / 8)" in shared[0].text
    assert "(gx0 / 1024)" in shared[2].text
    for one, extent in zip(shared, extents, strict=True):
        assert "out[x] = f(a[1], C0);" in one.text
        assert one.constants == (("int", extent),)


def test_numbers_of_too_many_kinds_stay():
    bodies = [tuple(f"out[0] = f({n + 100 * k * (n + 1)});" for n in range(20)) for k in (0, 1)]
    (first, second), _ = _share(*bodies)
    assert (first.program, second.program) == ("k0_kernel", "k1_kernel")


def test_names_of_arguments_are_nobodys():
    (first, second), _ = _share(("out[C0] = a[1];",), ("out[C0] = a[2];",))
    assert (first.program, second.program) == ("k0_kernel", "k1_kernel")


def test_a_set_of_kernels_is_read_as_it_was_written():
    shared, _ = share(
        {
            "a_kernel": _kernel("a_kernel", "out[0] = a[3];"),
            "b_kernel": _kernel("b_kernel", "out[0] = a[4];"),
            "c_kernel": _kernel("c_kernel", "out[0] = -a[4];"),
        }
    )
    text = "".join(f"// Function: {name}\n{section(name, one)}\n" for name, one in shared.items())
    read = read_programs(text)
    assert {n: (s.program, s.constants) for n, s in read.items()} == {
        n: (s.program, s.constants) for n, s in shared.items()
    }
    alone = standalone("b_kernel", read["b_kernel"])
    assert alone.startswith("// The program of a, with C0 = 4\n")
    assert kernel_name(alone) == "b_kernel"
    assert "out[0] = a[C0];" in alone
    assert standalone("c_kernel", read["c_kernel"]).startswith("__kernel void c_kernel(")
