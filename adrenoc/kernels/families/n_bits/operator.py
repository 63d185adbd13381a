"""The records of products by constant matrices of few bits, of language models above all."""

from collections.abc import Mapping

import numpy as np

from adrenoc.importers.relax.own import N_BITS
from adrenoc.ir.graph import Graph, Node, Tensor
from adrenoc.ir.layout import channels_last
from adrenoc.kernels.families.n_bits.n_bits import few_tokens_rule, suits_few
from adrenoc.kernels.families.n_bits.n_bits_dot import ROUNDING, dot_rule, round_rule
from adrenoc.kernels.families.n_bits.n_bits_matrix import many_tokens_rule
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext
from adrenoc.kernels.families.shared.operator import (
    Along,
    Batch,
    Kind,
    Numbers,
    Operator,
    channel_of_result,
    channels_last_at,
    count_per_input_element,
    size_of,
)
from adrenoc.kernels.families.shared.row_product import (
    JOINED,
    N_BITS_DOT,
    ROUND_TOKENS,
    extents_read,
    read_form,
)
from adrenoc.kernels.families.shared.typical import NotKnownError, TypicalRun


def n_bits_rule(context: RuleContext, node: Node) -> KernelCall:
    """`attrs`: `block`, the inputs of a scale, and `zero` where no zero points are inputs.

    `gated` where a second matrix is there, whose products `parts` finish, and the epsilon as
    `normed` where there are gains.
    """
    few = suits_few(context.graph.operand(node.output).extents, context.cost)
    return (few_tokens_rule if few else many_tokens_rule)(context, node)


def typical_n_bits(run: TypicalRun, node: Node, data: np.ndarray) -> np.ndarray:
    """Return sums of terms of both signs, alike for all outputs."""
    scales = run.graph.tensors[node.inputs[2]].value
    if scales is None:
        raise NotKnownError
    terms = run.graph.tensors[node.inputs[0]].shape[-1]
    steps = 2.0 ** (int(node.attrs["bits"]) - 2)  # half of what the bits hold on either side
    size = steps * float(np.abs(scales).mean()) * np.sqrt(terms)
    return np.asarray(data[..., :1] * size)


def _refuses(node: Node, tensors: Mapping[str, Tensor]) -> str | None:
    if any(tensors[name].value is None for name in node.inputs[1:]):
        return "its weights are computed, expected constants"
    rank = len(tensors[node.inputs[0]].shape)
    return None if channels_last(rank) is not None else f"an operand of rank {rank}"


def _follows_batch(batch: Batch, node: Node) -> Along | None:
    along = batch.along.get(node.inputs[0])
    last = len(batch.shape(node.output)) - 1
    return None if along is None or along.axis == last else along


def _terms(graph: Graph, node: Node) -> int:
    return (
        extents_read(graph, node).c
        if node.attrs.get(JOINED)
        else graph.tensors[node.inputs[0]].shape[-1]
    )


def _multiply_adds(graph: Graph, node: Node) -> int:
    return size_of(graph, node.output) * _terms(graph, node) * len(read_form(node).matrices)


def _multiply_adds_of_rounded(graph: Graph, node: Node) -> int:
    return size_of(graph, node.output) * int(node.attrs[ROUNDING].inputs)


OPERATORS = (
    Operator(
        name="n_bits",
        kind=Kind.PRODUCT,
        numbers=Numbers.WEIGHTED,
        rule=n_bits_rule,
        relax=N_BITS,
        refuses=_refuses,
        wants_layout=channels_last_at(0),
        makes_layout=channel_of_result,
        whole_numbers=frozenset((1,)),
        reads_often=True,
        follows_batch=_follows_batch,
        multiply_adds=_multiply_adds,
        terms=_terms,
        typical=typical_n_bits,
    ),
    Operator(
        name=ROUND_TOKENS,
        kind=Kind.TRANSFORM,
        rule=round_rule,
        numbers=Numbers.COMPUTED,
        operations=count_per_input_element(2),
    ),
    Operator(
        name=N_BITS_DOT,
        kind=Kind.PRODUCT,
        numbers=Numbers.WEIGHTED,
        rule=dot_rule,
        multiply_adds=_multiply_adds_of_rounded,
    ),
)
