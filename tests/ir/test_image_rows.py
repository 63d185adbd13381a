"""Loads of an image's rows: each reads within its row, and together they give every pixel."""

from hypothesis import given
from hypothesis import strategies as st

from adrenoc.ir.layout import Extents, Layout, Memory, OperandSpec
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry, Load, LoadReach, RowPlan

_EXTENT = st.integers(1, 40)


def _image(layout: str, channels: int, width: int) -> OperandSpec:
    extents = {"N": 2, "C": channels, "H": 3, "W": width}
    return OperandSpec(
        shape=tuple(extents[role] for role in layout),
        dtype="float32",
        memory=Memory.PLAIN,
        layout=Layout(layout),
    )


def _given(plan: RowPlan, load: Load, first: int) -> dict[int, int | None]:
    """What the thread whose own pixels begin at `first` gets: places in the row, None for zeros."""
    at = first + load.at
    start = {
        LoadReach.WITHIN: at,
        LoadReach.BEFORE: max(at, 0),
        LoadReach.BEHIND: min(at, plan.last - plan.step + load.at),
        LoadReach.EITHER: min(max(at, 0), plan.width - 1),
    }[load.reach]
    assert 0 <= start <= plan.width - load.count
    inside = load.reach is LoadReach.WITHIN or 0 <= at < plan.width
    return {load.at + i: start + i if inside else None for i in range(load.count)}


@given(
    layout=st.sampled_from(["NCHW", "NHWC", "CHW", "HWC"]),
    channels=st.integers(1, 4),
    width=_EXTENT,
    taps=st.integers(1, 7),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
    padding=st.integers(0, 6),
    behind=st.integers(0, 6),
    pixels=st.integers(1, 7),
)
def test_every_pixel_is_given(
    layout, channels, width, taps, stride, dilation, padding, behind, pixels
):
    spec = _image(layout, channels, width)
    reach = (taps - 1) * dilation + 1
    columns = (width + padding + behind - reach) // stride + 1
    if columns < 1:
        return
    geometry = ConvGeometry(
        kernel=(1, taps), strides=(1, stride), dilation=(1, dilation), padding=(0, padding)
    )
    plan = RowPlan.from_image(spec, geometry, Extents(2, 8, 3, columns), pixels)
    assert plan.count >= len(list(plan.loads))
    for first in range(0, plan.last + 1, plan.step):
        seen: dict[int, int | None] = {}
        for load in plan.loads:
            seen.update(_given(plan, load, first))
        for column in plan.columns:
            for i in range(plan.pitch):
                at = (column - padding) * plan.pitch + i
                place = first + at
                assert seen[at] == (place if 0 <= place < plan.width else None)


def test_aligned_rows_take_a_load_for_four_numbers():
    geometry = ConvGeometry(kernel=(3, 3), strides=(2, 2), padding=(1, 1))
    plan = RowPlan.from_image(_image("NCHW", 3, 224), geometry, Extents(1, 32, 112, 112), 4)
    assert [load.reach for load in plan.loads] == [
        LoadReach.EITHER,
        LoadReach.WITHIN,
        LoadReach.WITHIN,
    ]
    assert (plan.aligned, plan.count) == (True, 9)


def test_rows_of_odd_widths_are_not_aligned():
    geometry = ConvGeometry(kernel=(3, 3), padding=(1, 1))
    plan = RowPlan.from_image(_image("NCHW", 3, 223), geometry, Extents(1, 32, 223, 223), 4)
    assert not plan.aligned


def test_other_orders_have_no_plan():
    geometry = ConvGeometry(kernel=(3, 3), padding=(1, 1))
    out = Extents(2, 8, 3, 8)
    assert RowPlan.from_image(_image("NCWH", 3, 8), geometry, out, 1) is None
    assert RowPlan.from_image(_image("NCHW", 5, 8), geometry, out, 1) is None
