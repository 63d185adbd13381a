"""What a kernel computes, as JSON values: the same in every model, whatever its tensors are called.

A tuning log names kernels by the digest of this.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

from adrenoc.ir.body import Body
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.options import CompileOptions
from adrenoc.ir.program import Work

_IDENTIFIER = re.compile(r'"[^"]*"|(?<![\w.])[A-Za-z_]\w*(?:\.\w+)*')
_WORDS = {"and", "or", "not", "if", "else", "True", "False", "for", "in"}


def signature(graph: Graph, node: Node, options: CompileOptions) -> Work:
    """Operator, attributes, tensors (shape, dtype, memory, layout), expressions, precision.

    Names are left out, and so are values of constants and limits of the target: whether a
    target can run a schedule is asked where the schedule is chosen.
    """
    work: Work = {
        "op": node.op,
        "attrs": plain(node.attrs),
        "inputs": [_tensor(graph, name) for name in node.inputs],
        "output": _tensor(graph, node.output),
        "storage": options.storage_dtype,
        "compute": options.compute_dtype,
    }
    for part in ("body", "prologue", "epilogue"):
        body = getattr(node, part, None)
        if body is not None:
            work[part] = _expression(graph, node, body)
    if node.parts:
        work["parts"] = {k: _expression(graph, node, body) for k, body in node.parts.items()}
    return work


def plain(value: Any) -> Any:
    """Dataclasses, enums and tuples as what JSON has; what else there is, as text."""
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in sorted(value.items())}
    if isinstance(value, tuple | list):
        return [plain(part) for part in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return _number_names(str(value))


def _tensor(graph: Graph, name: str) -> list[Any]:
    tensor, placement = graph.tensors[name], graph.placements.get(name)
    shape = list(tensor.shape)
    if placement is None:
        return [shape, tensor.dtype]
    return [shape, placement.dtype, placement.memory.value, str(placement.layout)]


def _expression(graph: Graph, node: Node, body: Body) -> list[Any]:
    """Return the expression under canonical names, what each source is, and what is folded."""
    places: dict[str, Any] = {name: i for i, name in enumerate(node.inputs)}
    known = {**places, Node.RESULT: "result", Node.BESIDE: "beside"}
    sources = [
        known[name] if name in known else _tensor(graph, name) for name in body.sources.values()
    ]
    return [_number_names(str(body.value)), sources, [extent for _, extent in body.reduced]]


def _number_names(text: str) -> str:
    """Return the text with its own names numbered in the order in which they appear."""
    names: dict[str, str] = {}

    def rename(match: re.Match[str]) -> str:
        word = match[0]
        if word[0] == '"' or "." in word or word in _WORDS:
            return word
        return names.setdefault(word, f"v{len(names)}")

    return _IDENTIFIER.sub(rename, text)
