"""One record an operator: none is left out, none is made up, and what counts is stated."""

from collections.abc import Iterable
from pathlib import Path

import pytest

import adrenoc
from adrenoc.base.tvmapi import Op
from adrenoc.ir.graph import Node
from adrenoc.kernels.families import operators
from adrenoc.kernels.families.operators import OF_RELAX, OPERATORS, is_kind, is_product
from adrenoc.kernels.families.shared.operator import Kind, Numbers, Operator, no_operations

FAMILIES = Path(adrenoc.__file__).parent / "kernels" / "families"


def test_each_familys_records_are_joined():
    written = [
        path for path in FAMILIES.rglob("*.py") if "\nOPERATORS = " in path.read_text("utf-8")
    ]
    assert len(written) == len(operators._FAMILIES) == len({*map(id, operators._FAMILIES)})


def test_no_name_stands_twice():
    names = [each.name for family in operators._FAMILIES for each in family]
    assert len(names) == len(set(names)) == len(OPERATORS)


@pytest.mark.parametrize("operator", OF_RELAX.values(), ids=lambda operator: operator.name)
def test_what_precision_reckons_with_is_stated(operator):
    """Nothing of it has a default that would be right."""
    adds = operator.numbers in (Numbers.WEIGHTED, Numbers.SUMMED, Numbers.AVERAGED)
    assert operator.typical is not None
    assert not adds or operator.terms is not None
    weighs = operator.kind is Kind.CONVOLUTION or operator.name == "matmul"
    assert not weighs or operator.channel_weights is not None


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=lambda operator: operator.name)
def test_work_is_counted(operator):
    assert operator.is_product or operator.operations is not no_operations or operator.writes_into


@pytest.mark.parametrize("operator", OF_RELAX.values(), ids=lambda operator: operator.name)
def test_what_stays_whole_is_known_to_relax_and_to_batches(operator):
    assert Op.get(operator.relax)
    assert operator.follows_batch is not None
    assert operator.kind is not Kind.TRANSFORM


def _names(found: Iterable[Operator]) -> set[str]:
    return {operator.name for operator in found}


def test_products_are_those_that_add_up_weights_or_activations():
    kinds = {Kind.CONVOLUTION, Kind.PRODUCT, Kind.ATTENTION}
    assert _names(o for o in OPERATORS.values() if o.is_product) == _names(
        o for o in OPERATORS.values() if o.kind in kinds
    )


def test_a_copy_is_of_no_kind():
    copy = Node(name="c", op="to_cpu", inputs=("x",), output="c")
    assert not is_product(copy)
    assert not is_kind(copy, *Kind)
