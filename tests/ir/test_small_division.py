"""Division by a multiplication and a shift."""

import pytest

from adrenoc.kernels.families.expansion.expansion_plan import reciprocal


@pytest.mark.parametrize("divisor", [2, 3, 5, 7, 11, 23, 64, 90, 255, 361])
def test_quotients_are_exact_up_to_the_most(divisor):
    for most in (divisor, 2 * divisor - 1, 2047, 20000):
        found = reciprocal(divisor, most)
        assert found is not None
        factor, shift = found
        assert most * factor < 1 << 31
        assert all(n * factor >> shift == n // divisor for n in range(most + 1))


def test_there_is_none_where_products_would_not_fit():
    assert reciprocal(7, 1 << 30) is None
