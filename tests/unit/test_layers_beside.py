"""Kernels' texts for images whose layers stand beside each other."""

import pytest

from adrenoc.base.errors import DefectError
from adrenoc.kernels.codegen.launchers import Grid, put_layers_beside

_TEXT = """__kernel void add_0_kernel(__read_only image2d_array_t in0_ptr, __read_only image2d_array_t in0_ptr_1, __write_only image2d_array_t out_ptr) {
  float4 a = read_imagef(in0_ptr, image_sampler, ((int4)(max(gx0, 0), (gy0 + t[1]), 2, 0)));
  float4 b = read_imageh(in0_ptr_1, image_sampler, ((int4)(0, 0, gz0, 0)));
  write_imagef(out_ptr, (int4)(gx0, gy0, (gz0 + 3), 0), as_float4(a + b));
}
"""  # noqa: E501


def _grid(columns: int) -> Grid:
    return Grid(columns=columns, rows=1, layers=3)


def test_layers_stand_in_bands() -> None:
    grid = Grid(columns=197, rows=1, layers=64, bands=3)
    assert (grid.width, grid.height) == (197 * 64, 3)
    text = put_layers_beside(_TEXT, {"out": grid})
    assert "write_imagef(out_ptr, IN_BANDS(197, 1, 6, gx0, gy0, (gz0 + 3)), " in text


def test_only_the_named_parameters_change() -> None:
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
def test_a_place_of_another_form_is_refused(place: str) -> None:
    text = _TEXT.replace("(int4)(gx0, gy0, (gz0 + 3), 0)", place)
    with pytest.raises(DefectError):
        put_layers_beside(text, {"out": _grid(7)})
