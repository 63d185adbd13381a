"""Variables that a TFLite file keeps from run to run, as inputs and outputs: states.

Before -> after:
    h = VAR_HANDLE(name); CALL_ONCE {name := first}
    x = READ_VARIABLE(h); ...; ASSIGN_VARIABLE(h, next)
                                        x = FROM_STATE(name); ...; name/next = TO_STATE(next)

A variable that a signature only reads is a state, too, where another sets it.

A state begins as zeros.  So what lies in its memory is how far the variable is from its first
value, in quanta where the file has integers for real numbers.

Loads no TVM: signatures of files are read by it, too.

Signatures are several ways to call a file, of which a compilation takes one.

Composites, by which exporters mark norms and attentions for runtimes that have a kernel for the
whole, have the graphs that they stand for in their places:
    y = STABLEHLO_COMPOSITE(x) {graph f}        the operators of f(x)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from adrenoc.base.decision import ASSUMED, Decision
from adrenoc.base.errors import OptionError
from adrenoc.base.text.spelling import did_you_mean, list_names, quote_word
from adrenoc.importers.formats import malformed
from adrenoc.importers.tflite.file import (
    MOST_TABLES,
    GraphInfo,
    OperatorInfo,
    TensorInfo,
    TFLiteFile,
)


def take_signature(file: TFLiteFile, key: str) -> TFLiteFile:
    """Return the file with the graph of a signature as its main one; as it is where `key` is empty.
    Raises OptionError where the file has no such signature."""
    if not key:
        return file
    known = {one.key: one for one in file.signatures}
    if key not in known:
        listed = list_names(known)
        has = f"its signatures are {listed}" if known else "it lists none"
        raise OptionError(
            f"--signature {key}: the file has no such signature{did_you_mean(key, list(known))}; "
            f"{has}",
            hint=f"--signature {quote_word(next(iter(known)))}" if known else "leave it out",
        )
    return replace(file, entry=known[key].graph)


def replace_main(file: TFLiteFile, graph: GraphInfo) -> TFLiteFile:
    """Return the file with another main graph."""
    graphs = (*file.graphs[: file.entry], graph, *file.graphs[file.entry + 1 :])
    return replace(file, graphs=graphs)


def tell_signature(file: TFLiteFile, key: str) -> list[Decision]:
    """Tell what was taken of a file with several signatures, and how to have another."""
    others = [one.key for one in file.signatures if one.graph != file.entry]
    if not others:
        return []
    taken = next((one for one in file.signatures if one.graph == file.entry), None)
    name = file.main.name if taken is None else taken.key
    listed = list_names(others)
    return [
        Decision(
            subject=name,
            taken=f"took the signature '{key}'"
            if key
            else f"{ASSUMED} the first graph's signature",
            reason=f"the file has others: {listed}; --signature {quote_word(others[0])} "
            "takes it, adrenoc compile --signature all every one",
        )
    ]


FROM_STATE, TO_STATE = "adrenoc.from_state", "adrenoc.to_state"
FIRST = "First"
"""The option that holds the first value, as the file stores it."""

_HANDLE, _READ, _ASSIGN, _ONCE = "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE"
_FORMS = {_READ: (1, 1), _ASSIGN: (2, 0)}
"""How many tensors they take, the variable first, and make."""
_WIDE = ("int16", "uint16")
"""Stored integers of which halves hold too few."""

Key = tuple[bytes, bytes]


def lift_variables(file: TFLiteFile) -> tuple[TFLiteFile, tuple[tuple[str, str], ...]]:
    """Make states of the variables of the main graph whose first values the file has; return the
    file without these variables, and the states by names: past and next. What has
    none, or is used by other graphs, stays as it is, and is refused with the reason."""
    main = file.main
    firsts = _find_firsts(file)
    handles = _find_handles(main)
    left = {key for key in handles.values() if key not in firsts}
    used = {index for o in main.operators for index in o.inputs if o.kind not in _FORMS}
    odd = [o for o in main.operators if o.kind in _FORMS and not _is_use(o, o.kind, handles)]
    if not handles or left or odd or used & handles.keys():
        return file, ()
    graphs = (main, *(file.graphs[one.graph] for one in file.signatures))
    changed = frozenset().union(*map(_find_assigned, graphs))
    lifter = _Lifter(main=main, handles=handles, firsts=firsts, changed=changed)
    lifter.walk()
    return replace_main(file, lifter.finish()), tuple(lifter.states)


def _find_handles(graph: GraphInfo) -> dict[int, Key]:
    """Return the variable that each handle of a graph names."""
    return {o.outputs[0]: _key(o) for o in graph.operators if o.kind == _HANDLE and o.outputs}


def _find_assigned(graph: GraphInfo) -> set[Key]:
    """Return the variables that a graph sets."""
    handles = _find_handles(graph)
    return {handles[o.inputs[0]] for o in graph.operators if _is_use(o, _ASSIGN, handles)}


def _is_use(operator: OperatorInfo, kind: str, handles: Mapping[int, Key]) -> bool:
    """Return whether an operator reads or sets, as `kind` does, a variable that a handle names."""
    form = len(operator.inputs), len(operator.outputs)
    return operator.kind == kind and form == _FORMS[kind] and operator.inputs[0] in handles


def _key(operator: OperatorInfo) -> Key:
    named = (operator.options.get(name) or b"" for name in ("Container", "SharedName"))
    container, shared = (name if isinstance(name, bytes) else str(name).encode() for name in named)
    return container, shared


def _find_firsts(file: TFLiteFile) -> dict[Key, np.ndarray]:
    """Return the constants that variables are set to before the first run."""
    firsts: dict[Key, np.ndarray] = {}
    for once in (o for o in file.main.operators if o.kind == _ONCE):
        number = int(once.options.get("InitSubgraphIndex", -1))
        if not 0 <= number < len(file.graphs):
            continue
        graph = file.graphs[number]
        handles = _find_handles(graph)
        for operator in graph.operators:
            if _is_use(operator, _ASSIGN, handles):
                value = graph.tensors[operator.inputs[1]].value
                if value is not None:
                    firsts[handles[operator.inputs[0]]] = value
    return firsts


@dataclass(kw_only=True)
class _Lifter:
    main: GraphInfo
    handles: Mapping[int, Key]
    firsts: Mapping[Key, np.ndarray]
    changed: frozenset[Key]
    """Variables that some signature sets."""
    tensors: list[TensorInfo] = field(init=False)
    operators: list[OperatorInfo] = field(default_factory=list)
    states: list[tuple[str, str]] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    _now: dict[Key, int] = field(default_factory=dict)
    """What each variable holds after the operators so far."""
    _moved: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tensors = list(self.main.tensors)

    def walk(self) -> None:
        """Write the operators, reads and assignments as the tensors that they name."""
        infos, assigned = self._forms(), _find_assigned(self.main)
        keys = [key for key in dict.fromkeys(self.handles.values()) if key in infos]
        for key in keys:
            self._now[key] = self._begin(key, infos[key], is_assigned=key in assigned)
        for operator in self.main.operators:
            if operator.kind in (_HANDLE, _ONCE):
                continue
            if operator.kind == _READ:
                self._moved[operator.outputs[0]] = self._now[self.handles[operator.inputs[0]]]
                continue
            inputs = tuple(self._moved.get(i, i) for i in operator.inputs)
            if operator.kind == _ASSIGN:
                self._now[self.handles[operator.inputs[0]]] = inputs[1]
            else:
                self.operators.append(replace(operator, inputs=inputs))
        for key in keys:
            if key in assigned:
                self._end(key, infos[key])

    def _forms(self) -> dict[Key, TensorInfo]:
        """Return the tensor that says how each variable is stored: one read, or assigned."""
        found: dict[Key, TensorInfo] = {}
        for operator in self.main.operators:
            if operator.kind == _READ:
                found[self.handles[operator.inputs[0]]] = self.main.tensors[operator.outputs[0]]
            elif operator.kind == _ASSIGN:
                key = self.handles[operator.inputs[0]]
                found.setdefault(key, self.main.tensors[operator.inputs[1]])
        return {key: replace(info, value=None) for key, info in found.items()}

    def _begin(self, key: Key, info: TensorInfo, *, is_assigned: bool) -> int:
        """Return what a variable holds at first: a state's past, or a constant where never set."""
        first, name = self.firsts[key], self._name(key)
        if key not in self.changed:
            return self._add(replace(info, name=f"{name}/value", value=first))
        held = self._add(_held(info, name))
        self.inputs.append(held)
        if not is_assigned:  # what another signature left is there for the next one
            self.outputs.append(held)
            self.states.append((name, name))
        value = self._add(replace(info, name=f"{name}/value"))
        self.operators.append(_make(FROM_STATE, held, value, first))
        return value

    def _end(self, key: Key, info: TensorInfo) -> None:
        name = self._name(key)
        held = self._add(_held(info, f"{name}/next"))
        self.operators.append(_make(TO_STATE, self._now[key], held, self.firsts[key]))
        self.outputs.append(held)
        self.states.append((name, f"{name}/next"))

    def _name(self, key: Key) -> str:
        """Return the variable's own name, which its handle may have had as well."""
        return "/".join(part.decode("utf-8", "replace") for part in key if part) or "variable"

    def _add(self, info: TensorInfo) -> int:
        self.tensors.append(info)
        return len(self.tensors) - 1

    def finish(self) -> GraphInfo:
        """Return the graph, of which the file's own tensors have no names of states."""
        taken = {name for pair in self.states for name in pair}
        count = len(self.main.tensors)
        tensors = [
            replace(one, name=f"{one.name}/file") if i < count and one.name in taken else one
            for i, one in enumerate(self.tensors)
        ]
        return replace(
            self.main,
            tensors=tuple(tensors),
            operators=tuple(self.operators),
            inputs=(*self.main.inputs, *self.inputs),
            outputs=(*(self._moved.get(i, i) for i in self.main.outputs), *self.outputs),
        )


def _held(info: TensorInfo, name: str) -> TensorInfo:
    """Return the tensor that lies in a state's memory: plain numbers, which begin as zeros."""
    if not info.is_quantised:
        return replace(info, name=name)
    dtype = "int32" if info.dtype in _WIDE else "float32"
    return TensorInfo(name=name, shape=info.shape, dtype=dtype)


def _make(kind: str, given: int, made: int, first: np.ndarray) -> OperatorInfo:
    return OperatorInfo(
        kind=kind, custom=True, inputs=(given,), outputs=(made,), options={FIRST: first}
    )


COMPOSITE, BODY = "STABLEHLO_COMPOSITE", "DecompositionSubgraphIndex"


def inline_composites(file: TFLiteFile, graph: GraphInfo) -> GraphInfo:
    """Return the same as `graph` without composites. Raises ModelFormatError where one stands for
    itself, or for more than any model has."""
    if not any(operator.kind == COMPOSITE for operator in graph.operators):
        return graph
    inliner = _Inliner(file, list(graph.tensors))
    inliner.write(graph.operators, {}, ())
    return replace(graph, tensors=tuple(inliner.tensors), operators=tuple(inliner.operators))


class _Inliner:
    def __init__(self, file: TFLiteFile, tensors: list[TensorInfo]) -> None:
        self.file = file
        self.tensors = tensors
        self.operators: list[OperatorInfo] = []

    def write(
        self, operators: tuple[OperatorInfo, ...], places: dict[int, int], active: tuple[int, ...]
    ) -> None:
        """Write operators; `places` has the tensors here for theirs, where these differ."""
        for one in operators:
            operator = replace(
                one,
                inputs=tuple(places.get(i, i) for i in one.inputs),
                outputs=tuple(places.get(i, i) for i in one.outputs),
            )
            if operator.kind == COMPOSITE:
                self._open(operator, active)
            else:
                self.operators.append(operator)
            if len(self.operators) + len(self.tensors) > MOST_TABLES:
                raise malformed(
                    f"its composites stand for more than {MOST_TABLES} operators and tensors"
                )

    def _open(self, composite: OperatorInfo, active: tuple[int, ...]) -> None:
        number = int(composite.options.get(BODY, -1))
        if not 0 < number < len(self.file.graphs) or number in active:
            raise malformed(
                f"a composite stands for graph {number} of {len(self.file.graphs)}, expected "
                "another one than those that it is in"
            )
        body = self.file.graphs[number]
        if (len(body.inputs), len(body.outputs)) != (len(composite.inputs), len(composite.outputs)):
            raise malformed(
                f"a composite has {len(composite.inputs)} inputs and {len(composite.outputs)} "
                f"outputs, its graph {len(body.inputs)} and {len(body.outputs)}"
            )
        places = {index: len(self.tensors) + index for index in range(len(body.tensors))}
        self.tensors += [
            replace(info, name=f"{info.name}__{len(self.operators)}") for info in body.tensors
        ]
        places[-1] = -1
        places.update(zip(body.inputs, composite.inputs, strict=True))
        made = [i for i in body.outputs if i not in body.inputs]
        places.update(
            (inner, outer)
            for inner, outer in zip(body.outputs, composite.outputs, strict=True)
            if inner in made
        )
        self.write(body.operators, places, (*active, number))
        for inner, outer in zip(body.outputs, composite.outputs, strict=True):
            if inner in body.inputs:  # handed through as it is
                self._copy(places[inner], outer)

    def _copy(self, source: int, to: int) -> None:
        shape, value = len(self.tensors), np.asarray(self.tensors[to].shape, np.int32)
        self.tensors.append(
            TensorInfo(name=f"shape_{shape}", shape=value.shape, dtype="int32", value=value)
        )
        self.operators.append(
            OperatorInfo(kind="RESHAPE", custom=False, inputs=(source, shape), outputs=(to,))
        )
