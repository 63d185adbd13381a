"""How products are added up where a kernel multiplies in halves.

A total in halves is rounded with each number that is added to it.  Of n products of no common
sign, of which b are added to each other first, the total is off by about

    U sqrt(b / 2 + n / (2 b))        U = 2.0e-4, the mean square rounding of a half

of its size: 0.06% of 64 products by four, 0.16% of 512; and where the products have one sign it
may overflow on its way to a small sum.  A total in float is off by U sqrt(b / 2) and holds
anything, for a conversion and an addition a step: 12 to 40% of a product of two activations
(`scripts/bench_kernels`, 197 x 64 x 197 on Adreno 660 and 750).
"""

from __future__ import annotations

from adrenoc.base.tvmapi import Expr, cast, dtype_of
from adrenoc.ir.layout import LANES
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.runs import MANY_PRODUCTS
from adrenoc.kernels.team import ACCUMULATOR

LONG_SUM = 256
"""Products beyond which their total is in float: 0.12% of error."""


def total_dtype(builder: KernelBuilder, products: int) -> str:
    """Return the dtype of a total of so many products."""
    return ACCUMULATOR if products > LONG_SUM else builder.compute


def add_products(builder: KernelBuilder, total: Expr, products: list[Expr]) -> Expr:
    """Return the products of one step added to a total, in halves to each other first."""
    if builder.compute != "float16":
        return sum(products, total)
    step = sum(products[1:], products[0])
    return total + (cast(step, f"{ACCUMULATOR}x{LANES}") if _is_wide(total) else step)


def adds_in_runs(out: Access, products: int) -> bool:
    """Return whether sums of so many products go in runs: where the result has all bits of a
    float."""
    return products > MANY_PRODUCTS and out.spec.dtype == ACCUMULATOR


def _is_wide(total: Expr) -> bool:
    return bool(dtype_of(total) == f"{ACCUMULATOR}x{LANES}")
