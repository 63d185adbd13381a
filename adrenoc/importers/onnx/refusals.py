"""One error for all nodes of an ONNX model that cannot be imported, the first with their reasons.

A node that reads what another refused node makes is not named: nothing is known of it.
Of operators that have no place in a program of fixed shapes it says what to do, and of a decoder's
caches all that keeps them from being written in place.
"""

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field

import onnx

from adrenoc.base.errors import CustomDomainError, UnsupportedOperatorError
from adrenoc.base.refused import RefusedError
from adrenoc.base.text.spelling import list_first
from adrenoc.importers.onnx.graph import OnnxGraph, all_nodes, first_output, is_standard, node_label


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A node that cannot be imported, and why; the reason may be empty."""

    node: onnx.NodeProto
    reason: str


def find_refused(graph: OnnxGraph, known: Set[str]) -> tuple[list[Refused], frozenset[str]]:
    """Return the nodes that are refused, and the tensors that these make with all that is computed
    of them.

    They are refused for their operator, which is neither the standard's nor one of `known`, or for
    how it is used.  That cannot be told of nodes that read what refused ones make: those are not
    named.
    """
    refused: list[Refused] = []
    unknown: set[str] = set()
    for node in graph.nodes:
        every, first = list(all_nodes([node])), first_output(node)
        reason = graph.refusals.get(first, "")
        reads_unknown = any(not unknown.isdisjoint(inner.input) for inner in every)
        found = [Refused(node=inner, reason=reason) for inner in every if not is_standard(inner)]
        is_missing = is_standard(node) and node.op_type not in known
        if is_missing or (is_standard(node) and reason and not reads_unknown):
            found.append(Refused(node=node, reason=reason or REMEDIES.get(node.op_type, "")))
        if reads_unknown and first in graph.untold:
            found = []  # supported as far as anybody knows, and would bury those that are not
        refused += found
        if found or reads_unknown:
            unknown.update(name for name in node.output if name)
    return refused, frozenset(unknown)


_OF_ONE_CPU = "com.microsoft.nchwc"
"""Operators over blocks of 8 or 16 channels, as the CPU that wrote the file has lanes."""


def raise_refusals(
    graph: OnnxGraph, refused: Sequence[Refused], failed: Sequence[Refused] = ()
) -> None:
    """Raise one error that counts all refused nodes and names the first; nothing where none are.

    `failed` are nodes of known operators that are used as no translation covers.

    Raises:
        CustomDomainError: some are outside of the standard.
        UnsupportedOperatorError: all are of the standard.
    """
    foreign = [one for one in refused if not is_standard(one.node)]
    missing = [one for one in refused if is_standard(one.node)]
    parts = [
        ("operators outside of the ONNX standard", foreign),
        ("operators not supported", missing),
        ("operators cannot be imported as it is used here", failed),
    ]
    kinds = [f"{what}: {_counts(nodes)}" for what, nodes in parts if nodes]
    if not kinds:
        return
    where = list_first(_describe(graph, one) for _, nodes in parts for one in nodes)
    message = f"{'; '.join(kinds)}; at {where}"
    if foreign:
        domains = {refused.node.domain for refused in foreign}
        hint = (
            "export without optimisation for one runtime, or cut these nodes off with "
            "onnx.utils.extract_model"
        )
        if domains == {"ai.onnx.ml"}:
            hint = (
                "export trees and other classical models in standard operators, as hummingbird-ml "
                "does, or leave them to onnxruntime"
            )
        elif _OF_ONE_CPU in domains:
            message = (
                f"{message}; onnxruntime optimised the file for one CPU, whose order of weights it "
                "has and does not tell"
            )
            hint = (
                "compile the .onnx file that it was made of; a plain .ort file of that: python -m "
                "onnxruntime.tools.convert_onnx_models_to_ort MODEL.onnx"
            )
        raise CustomDomainError(message, hint=hint)
    raise UnsupportedOperatorError(
        message,
        hint="cut the model before these nodes with onnx.utils.extract_model, or export it with "
        "other operators",
    )


def _counts(refused: Iterable[Refused]) -> str:
    nodes = [one.node for one in refused]
    kinds = Counter(n.op_type if is_standard(n) else f"{n.domain}.{n.op_type}" for n in nodes)
    return ", ".join(f"{kind} ({count}x)" for kind, count in sorted(kinds.items()))


def _describe(graph: OnnxGraph, one: Refused) -> str:
    """Return `'name' (float32 [1, 3], ?): why`: the operands by dtype and shape."""
    types = [graph.types.get(name) for name in one.node.input if name]
    dims = ["of unknown shape" if t is None or t.shape is None else list(t.shape) for t in types]
    pairs = zip(types, dims, strict=True)
    shown = ", ".join("?" if t is None else f"{t.dtype} {shape}" for t, shape in pairs)
    label = node_label(one.node) + (f" ({shown})" if shown else "")
    return label + (f": {one.reason}" if one.reason else "")


_COUNT = "how much it gives depends on data"

_RANDOM = ("Bernoulli", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
_OF_TEXT = ("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit")
REMEDIES = {
    **dict.fromkeys(_RANDOM, "it draws random numbers: make them an input"),
    **dict.fromkeys(_OF_TEXT, "it works on strings: prepare text before the model"),
    "Compress": f"{_COUNT}; with a constant condition it is a Gather, else multiply by a mask",
    "ImageDecoder": "it decodes files: decode before, and feed pixels",
    "Scan": "the number of its steps is not known: fix it by --shape",
    "Unique": f"{_COUNT}: give its input as an output, and do it on the CPU",
}
"""Operator -> the reason, and the nearest rewrite."""


AS_IT_IS = (
    "adrenoc compile MODEL --shape INPUT:1,... for each input compiles the graph as it is, for "
    "one length of its past"
)
"""What to type for a decoder whose attention is in no form that is known."""


@dataclass(kw_only=True)
class NotCovered:
    """Reasons, each with the attentions that it is the reason for."""

    others: list[str] = field(default_factory=list)
    """What is no single attention's."""
    _attentions: dict[str, list[str]] = field(default_factory=dict)

    def add(self, label: str, reason: RefusedError) -> None:
        """Note that an attention is in no form that is known."""
        self._attentions.setdefault(str(reason), []).append(label)

    def raise_if_any(self) -> None:
        """Say all of it.

        Raises:
            UnsupportedOperatorError: there is anything.
        """
        found = [*self.others]
        found += [reason.format(_name(labels)) for reason, labels in self._attentions.items()]
        if found:
            raise UnsupportedOperatorError("; ".join(found), hint=AS_IT_IS)


def _name(labels: Sequence[str]) -> str:
    names = list_first((f"'{label}'" for label in labels), between=", ")
    return f"the attention {names}" if len(labels) == 1 else f"{len(labels)} attentions, {names},"
