import numpy as np
import pytest

from adrenoc.bundle.params import FilterTransform
from adrenoc.ir import half
from adrenoc.ir.half import round_constant
from adrenoc.kernels.families.winograd.winograd import winograd

MATRIX = winograd(2).weight_transform


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("rows", [1, 7, 64, 65])
def test_parts_are_what_the_whole_is(
    rows: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(half, "PART_ELEMENTS", rows * 18)
    filters = np.random.default_rng(0).standard_normal((65, 2, 3, 3)).astype(np.float32)
    filters[3, 1] = 3e4  # their sum is beyond half
    filters[40, 1, 2, 2] = 7e4  # and this is it by itself
    held: list[int] = []
    apply = FilterTransform.apply

    def watched(self: FilterTransform, part: np.ndarray) -> np.ndarray:
        held.append(len(part))
        return apply(self, part)

    monkeypatch.setattr(FilterTransform, "apply", watched)
    with np.errstate(over="ignore"):
        made = round_constant(filters, dtype, MATRIX)
        plain = round_constant(filters, dtype)
        whole = apply(FilterTransform.from_matrix(MATRIX), plain.value).astype(dtype)
    assert max(held) == min(rows, 65)
    np.testing.assert_array_equal(made.value, whole)
    assert made.value.dtype == dtype
    assert plain.lost == (1 if dtype == "float16" else 0)
    assert made.lost == (2 if dtype == "float16" else 0)
    assert made.largest == (np.float32(7e4) if dtype == "float16" else 0)


def test_without_rows_the_other_extents_are_right() -> None:
    made = round_constant(np.zeros((0, 3, 3, 3), np.float32), "float16", MATRIX)
    assert made.value.shape == (0, 3, 4, 4)


def test_what_was_infinite_before_is_not_lost() -> None:
    made = round_constant(np.array([np.inf, 1e6, -np.nan, 2.0]), "float16")
    assert (made.lost, made.largest) == (1, 1e6)
