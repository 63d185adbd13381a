"""Kernels that differ in constants alone run one program."""

import pytest

from adrenoc.kernels.codegen.opencl_sharing import (
    Shared,
    kernel_name,
    read_programs,
    section,
    share,
    standalone,
)


def _kernel(name: str, *lines: str) -> str:
    body = "".join(f"  {line}\n" for line in lines)
    return f"__kernel void {name}(__global float* a, __global float* out) {{\n{body}}}\n\n"


def _share(*bodies: tuple[str, ...]) -> tuple[list[Shared], list[str]]:
    """What becomes of kernels k0, k1, ... and what is said of it."""
    texts = {f"k{i}_kernel": _kernel(f"k{i}_kernel", *body) for i, body in enumerate(bodies)}
    shared, decisions = share(texts)
    assert list(shared) == list(texts)
    return list(shared.values()), [f"{d.subject} {d.taken}: {d.reason}" for d in decisions]


def test_constants_that_differ_become_arguments() -> None:
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


def test_packed_words_become_arguments_by_their_bits() -> None:
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
def test_numbers_beyond_int_stay_where_their_bits_will_not_do(form: str) -> None:
    shared, said = _share(*((f"out[0] = {form.format(n)};",) for n in (7, 2147483648, 5)))
    assert [kernel.program for kernel in shared] == ["k0_kernel", "k1_kernel", "k2_kernel"]
    assert said[0].endswith("it differs from k0 in a number beyond int, which stays a constant")


def test_words_beyond_uint_stay() -> None:
    shared, _ = _share(*((f"out[0] = (uint){n};",) for n in (7, 4294967296)))
    assert [kernel.program for kernel in shared] == ["k0_kernel", "k1_kernel"]


def test_equal_texts_share_without_arguments() -> None:
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
def test_what_compilers_make_something_of_stays(why: str, lines: tuple[str, ...]) -> None:
    bodies = [tuple(line.replace("#", number) for line in lines) for number in ("2", "3", "2")]
    (first, second, third), said = _share(*bodies)
    assert (first.program, second.program, third.program) == ("k0_kernel", "k1_kernel", "k0_kernel")
    assert not first.constants
    assert said == [
        f"k1 has a program of its own: it differs from k0 in {why}, which stays a constant",
        "k2 runs the program of k0: their text is the same",
    ]


def test_the_bound_of_a_loop_that_stays_a_loop_becomes_an_argument() -> None:
    loop = "for (int rolled_i = 0; rolled_i < # + ROLLED; ++rolled_i) {"
    (first, _), _ = _share((loop.replace("#", "4"), "}"), (loop.replace("#", "9"), "}"))
    assert "rolled_i < C0 + ROLLED;" in first.text
    assert "rolled_i = 0;" in first.text


def test_numbers_are_lifted_where_they_stand_in_their_own_text() -> None:
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


def test_numbers_of_too_many_kinds_stay() -> None:
    bodies = [tuple(f"out[0] = f({n + 100 * k * (n + 1)});" for n in range(20)) for k in (0, 1)]
    (first, second), _ = _share(*bodies)
    assert (first.program, second.program) == ("k0_kernel", "k1_kernel")


def test_names_of_arguments_are_nobodys() -> None:
    (first, second), _ = _share(("out[C0] = a[1];",), ("out[C0] = a[2];",))
    assert (first.program, second.program) == ("k0_kernel", "k1_kernel")


def test_a_set_of_kernels_is_read_as_it_was_written() -> None:
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
