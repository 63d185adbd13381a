"""Ranges of shapes on the command line, and the buckets that they stand for."""

import pytest

from adrenoc.base.errors import ShapeError
from adrenoc.cli.shape_ranges import ShapeRange, buckets_of, parse_shape_or_range


def buckets(*texts: str) -> list[dict[str, tuple[int, ...]]]:
    return [dict(shapes) for shapes in buckets_of([parse_shape_or_range(t) for t in texts])]


def test_a_shape_without_ranges_is_one_bucket() -> None:
    assert parse_shape_or_range("x:1,3") == ("x", (1, 3))
    assert buckets("x:1,3", "y:2") == [{"x": (1, 3), "y": (2,)}]
    assert buckets() == [{}]


def test_doubling_steps_and_lists() -> None:
    found = parse_shape_or_range("a:b:1..6,100..256/64,1|9|4,7")
    assert isinstance(found, ShapeRange)
    assert found.name == "a:b"
    assert found.extents == ((1, 2, 4, 6), (100, 164, 228, 256), (1, 4, 9), (7,))


def test_ranges_multiply_and_the_largest_is_last() -> None:
    found = buckets("x:1..4,3..6/3")
    assert found[0] == {"x": (1, 3)}
    assert found[-1] == {"x": (4, 6)}
    assert len(found) == 6


def test_alike_ranges_at_the_same_axis_vary_together() -> None:
    found = buckets("ids:1|2,16..32", "mask:1|2,16..32")
    assert len(found) == 4
    assert all(one["ids"] == one["mask"] for one in found)


_VAST = "9" * 5000


@pytest.mark.parametrize(
    "text",
    [
        *("x:4..2", "x:0..4", "x:1..", "x:1|0", "x:1..4/0..2", ":1..2", "x:1..4/0"),
        *(f"x:{_VAST}", f"x:1..{_VAST}", f"x:1|{_VAST}", "x:1..4/" + _VAST, "x:2147483648"),
    ],
    ids=lambda text: text[:12],
)
def test_no_range(text: str) -> None:
    with pytest.raises(ShapeError, match="expected"):
        parse_shape_or_range(text)


def test_too_many_buckets() -> None:
    with pytest.raises(ShapeError, match="make 36 buckets"):
        buckets("x:1..6/1,1..6/1")
