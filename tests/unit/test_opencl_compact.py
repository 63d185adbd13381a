"""The text of kernels: shorter, and the same."""

from adrenoc.kernels.codegen.opencl_source import compact

_HEAD = "__kernel void k_kernel(__global float4* restrict a, __global float4* restrict out) {\n"
_X = "(((convert_int(get_group_id(0))) * 8) + (convert_int(get_local_id(0))))"


def _body(*lines: str) -> list[str]:
    """What becomes of lines of a kernel, without its braces."""
    text = _HEAD + "".join(f"  {line}\n" for line in lines) + "}\n\n"
    made = compact(text)
    assert made.startswith(_HEAD)
    assert made.endswith("}\n\n")
    return [line.strip() for line in made[len(_HEAD) :].splitlines()[:-2]]


def test_values_are_read_by_their_names() -> None:
    assert _body(f"int gx0 = {_X};", f"out[({_X} + 1)] = a[{_X}];") == [
        "int G0 = get_group_id(0);",
        "int L0 = get_local_id(0);",
        "int gx0 = ((G0 * 8) + L0);",
        "out[(gx0 + 1)] = a[gx0];",
    ]


def test_names_of_a_block_end_with_it() -> None:
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


def test_what_is_read_later_is_read_later() -> None:
    """A load of memory that may change between is not moved to another place."""
    lines = ["float4 v0 = out[3];", "out[3] = a[1];", "out[4] = out[3];", "out[5] = v0;"]
    assert _body(*lines) == lines


def test_products_that_are_added_stay_in_the_sum() -> None:
    """There a compiler rounds once; by name it would round twice."""
    lines = ["float4 p0 = (x * y);", "out[0] = ((x * y) + z);", "out[1] = p0;"]
    assert _body(*lines) == lines
    sums = _body("float4 s0 = ((x * y) + z);", "out[0] = (((x * y) + z) * w);", "out[1] = s0;")
    assert sums[1] == "out[0] = (s0 * w);"


def test_parts_of_other_words_and_arguments_are_no_values() -> None:
    lines = ["int s0 = (x + y);", "int m0 = max(x, y);", "out[s0] = f(x + y);"]
    assert _body(*lines, "out[m0] = fmax(x, y);") == [*lines, "out[m0] = fmax(x, y);"]


def test_only_other_names_and_unused_variables_go() -> None:
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


def test_conversions_of_what_is_an_int_go_and_others_stay() -> None:
    assert _body("int t0 = convert_int(((x * 4) + y));", "out[((x * 4) + y)] = a[t0];") == [
        "int t0 = ((x * 4) + y);",
        "out[t0] = a[t0];",
    ]
    (first, second) = _body("int b0 = convert_int((x == 2));", "out[b0] = f((x == 2));")
    assert second == "out[b0] = f((x == 2));", "a condition is no int"
    assert first == "int b0 = (x == 2);"


def test_floats_are_the_same_numbers() -> None:
    printed = ["0.000000e+00f", "1.500000e+00f", "3.25049057e+01f", "1.000000e-12f", "6.5e+04f"]
    text = _HEAD + "".join(f"  out[0] = {number};\n" for number in printed) + "}\n"
    made = [line.split(" = ")[1].rstrip(";") for line in compact(text).splitlines()[1:-1]]
    assert made == ["0.0f", "1.5f", "3.25049057e1f", "1.0e-12f", "6.5e4f"]
    for before, after in zip(printed, made, strict=True):
        assert float(before.rstrip("f")) == float(after.rstrip("f"))


def test_vectors_of_one_number() -> None:
    (line,) = _body(
        "out[0] = max(v, ((float4)(0.000000e+00f, 0.000000e+00f, 0.000000e+00f, 0.000000e+00f)));"
    )
    assert line == "out[0] = max(v, (float4)(0.0f));"


def test_what_is_no_kernel_stays() -> None:
    assert compact("#define X 1\n") == "#define X 1\n"
    own = "__kernel void k(__global int* G0) {\n  G0[0] = 1;\n}\n"
    assert compact(own) == own


def test_what_a_function_is_called_with_stays_in_parentheses() -> None:
    one = "v_.s0, v_.s0, v_.s0, v_.s0"
    lines = (
        f"out[0] = convert_half4((float4)({one}));",
        f"out[1] = native_exp((float4)({one})) * a[1];",
        "out[2] = convert_float4(v_).s0;",
        f"out[3] = ((float4)({one})) * a[1];",
    )
    assert _body(*lines) == [*lines[:3], "out[3] = v_.s0 * a[1];"]
