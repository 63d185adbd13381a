"""Variables that a TFLite file keeps from run to run, as inputs and outputs: states.

Before -> after:
    h = VAR_HANDLE(name); CALL_ONCE {name := first}
    x = READ_VARIABLE(h); ...; ASSIGN_VARIABLE(h, next)
                                        x = FROM_STATE(name); ...; name/next = TO_STATE(next)

A state begins as zeros.  So what lies in its memory is how far the variable is from its first
value, in quanta where the file has integers for real numbers.

Loads no TVM: signatures of files are read by it, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from adrenoc.importers.tflite.file import GraphInfo, Operator, TensorInfo, TFLiteFile
from adrenoc.importers.tflite.signatures import replace_main

FROM_STATE, TO_STATE = "adrenoc.from_state", "adrenoc.to_state"
FIRST = "First"
"""The option that holds the first value, as the file stores it."""

_HANDLE, _READ, _ASSIGN, _ONCE = "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE"
_WIDE = ("int16", "uint16")
"""Stored integers of which halves hold too few."""

Key = tuple[bytes, bytes]


@dataclass(frozen=True, kw_only=True)
class Lifted:
    """A file without variables in its main graph, and its states by names: past and next."""

    file: TFLiteFile
    states: tuple[tuple[str, str], ...] = ()


def lift_variables(file: TFLiteFile) -> Lifted:
    """Make states of the variables of the main graph whose first values the file has.

    What has none, or is used by other graphs, stays as it is, and is refused with the reason.
    """
    main = file.main
    firsts = _find_firsts(file)
    handles = _find_handles(main)
    left = {key for key in handles.values() if key not in firsts}
    used = {index for o in main.operators for index in o.inputs if o.kind not in (_READ, _ASSIGN)}
    if not handles or left or used & handles.keys():
        return Lifted(file=file)
    lifter = _Lifter(main=main, handles=handles, firsts=firsts)
    lifter.walk()
    return Lifted(file=replace_main(file, lifter.finish()), states=tuple(lifter.states))


def _find_handles(graph: GraphInfo) -> dict[int, Key]:
    """Return the variable that each handle of a graph names."""
    return {o.outputs[0]: _key(o) for o in graph.operators if o.kind == _HANDLE and o.outputs}


def _key(operator: Operator) -> Key:
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
            if operator.kind == _ASSIGN and operator.inputs[0] in handles:
                value = graph.tensors[operator.inputs[1]].value
                if value is not None:
                    firsts[handles[operator.inputs[0]]] = value
    return firsts


@dataclass(kw_only=True)
class _Lifter:
    main: GraphInfo
    handles: Mapping[int, Key]
    firsts: Mapping[Key, np.ndarray]
    tensors: list[TensorInfo] = field(init=False)
    operators: list[Operator] = field(default_factory=list)
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
        assigned = {self.handles[o.inputs[0]] for o in self.main.operators if o.kind == _ASSIGN}
        infos = self._forms()
        for key in dict.fromkeys(self.handles.values()):
            self._now[key] = self._begin(key, infos[key], is_state=key in assigned)
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
        for key in dict.fromkeys(k for k in self.handles.values() if k in assigned):
            self._end(key, infos[key])

    def _forms(self) -> dict[Key, TensorInfo]:
        """Return the tensor that says how each variable is stored: one that is read, or is
        assigned."""
        found: dict[Key, TensorInfo] = {}
        for operator in self.main.operators:
            if operator.kind == _READ:
                found[self.handles[operator.inputs[0]]] = self.main.tensors[operator.outputs[0]]
            elif operator.kind == _ASSIGN:
                key = self.handles[operator.inputs[0]]
                found.setdefault(key, self.main.tensors[operator.inputs[1]])
        return {key: replace(info, value=None) for key, info in found.items()}

    def _begin(self, key: Key, info: TensorInfo, *, is_state: bool) -> int:
        """Return what a variable holds at first: a state's past, or a constant where nothing sets
        it."""
        first, name = self.firsts[key], self._name(key)
        if not is_state:
            return self._add(replace(info, name=f"{name}/value", value=first))
        held = self._add(_held(info, name))
        self.inputs.append(held)
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


def _make(kind: str, given: int, made: int, first: np.ndarray) -> Operator:
    return Operator(
        kind=kind, custom=True, inputs=(given,), outputs=(made,), options={FIRST: first}
    )
