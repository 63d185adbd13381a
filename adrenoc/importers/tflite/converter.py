"""Translate operators of TFLite graphs, one by one, into a function of Relax.

What cannot be translated is refused, all of it at once.  Truth values are taken by operators that
move, choose, compare or combine them.  All others compute numbers, and LiteRT has no kernel for
them that takes bools.  Control flow, and what stands for a graph of its own, is written out:
    y = STABLEHLO_COMPOSITE(x) {f}       y = f(x)
    y = IF(c, x) {then: f, else: g}      y = where(c, f(x), g(x)), or one of them where c is known
    y = WHILE(n, x) {n < 2} {n+1, f(x)}  y = f(f(x))

Source: LiteRT 2.3, tried with operands of bool for each operator.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import tvm
from tvm import relax

from adrenoc.base.decision import Decision
from adrenoc.base.errors import (
    CustomDomainError,
    RefusedError,
    UnsupportedOperatorError,
)
from adrenoc.base.host.memory import is_out_of_memory
from adrenoc.base.text.spelling import list_first
from adrenoc.bundle.manifest import TensorSpec
from adrenoc.importers.formats import malformed
from adrenoc.importers.imported import CONVERTER_ERRORS, Imported, quote
from adrenoc.importers.onnx.unroll import MOST_NODES, too_many
from adrenoc.importers.relax.values import (
    Emitter,
    UniqueNames,
    constant_value,
    dtype_of,
    emit_named,
    make_constant,
    static_shape,
)
from adrenoc.importers.states import check_states
from adrenoc.importers.tflite.elementwise import ELEMENTWISE_OPS, Convert
from adrenoc.importers.tflite.file import GraphInfo, OperatorInfo, TensorInfo, TFLiteFile
from adrenoc.importers.tflite.index import INDEX_OPS, SELECT_CUSTOM_OPS
from adrenoc.importers.tflite.mediapipe import MEDIAPIPE_OPS
from adrenoc.importers.tflite.move import MOVE_OPS
from adrenoc.importers.tflite.node import (
    QUANTISED_RANGES,
    Result,
    TensorValue,
    TfliteNode,
    finish,
    store,
    subtract_zeros,
    value_of,
)
from adrenoc.importers.tflite.recurrent import RECURRENT_OPS
from adrenoc.importers.tflite.reduce import REDUCE_OPS
from adrenoc.importers.tflite.untranslated import (
    extension_names,
    hint_at_custom,
    load_extensions,
    why_not,
)
from adrenoc.importers.tflite.variables import BODY, COMPOSITE, FIRST, FROM_STATE, TO_STATE

MOST_ITERATIONS = 1024
"""Longer loops are refused: each iteration becomes kernels of its own."""

BY_DATA = (
    "it loops as many times as data tell, and a program for the GPU has a fixed number of steps"
)
_SUPPRESSION = "suppression"
_OF_BOXES = (
    ": tf.image.non_max_suppression is an operator and no loop, where non_max_suppression_padded "
    "is one; or give boxes and scores as outputs, and select on the CPU"
)
"""What to do about the loop of TensorFlow that its tensors' names tell."""


class LoopOfDataError(RefusedError):
    """How often a loop runs is known at run time alone."""


def _if(node: TfliteNode) -> list[Result]:
    numbers = [int(node.option(f"{name}SubgraphIndex")) for name in ("Then", "Else")]
    values = [node.value(i) for i in range(1, len(node.inputs))]
    condition = constant_value(node.data(0))
    if condition is not None:
        return list(node.call(numbers[0 if condition.reshape(-1)[0] else 1], values))
    branches = [node.call(number, values) for number in numbers]
    choice = node.emit(relax.op.reshape(node.data(0), []))
    # Both are computed: they have no effects, and kernels cannot be skipped.
    return [
        TensorValue(info=a.info, made=node.emit(relax.op.where(choice, a.expr, b.expr)))
        for a, b in zip(*branches, strict=True)
    ]


def _while(node: TfliteNode) -> list[Result]:
    condition, body = (int(node.option(f"{name}SubgraphIndex")) for name in ("Cond", "Body"))
    values = [node.value(i) for i in range(len(node.inputs))]
    for _ in range(MOST_ITERATIONS):
        known = constant_value(node.call(condition, values)[0].expr)
        if known is None:
            suppresses = any(_SUPPRESSION in result.name for result in node.results)
            raise LoopOfDataError(BY_DATA + (_OF_BOXES if suppresses else ""))
        if not known.reshape(-1)[0]:
            return list(values)
        values = node.call(body, values)
    raise RefusedError(f"more iterations than {MOST_ITERATIONS}, expected at most as many")


def _from_state(node: TfliteNode) -> TensorValue:
    """Return what a variable holds: its first value, and how far the state is from that."""
    info, held = node.results[0], node.data(0)
    if info.is_quantised:
        held = held if dtype_of(held) == "float32" else node.emit(held.astype("float32"))
    value = _shift(node, held, relax.op.add)
    if info.is_quantised:
        low, high = (float(bound - info.zero) for bound in QUANTISED_RANGES[info.dtype])
        value = node.emit(relax.op.clip(relax.op.round(value), low, high))
    return TensorValue(info=info, made=value)


def _to_state(node: TfliteNode) -> Result:
    """Return how far a value is from the first one of its variable."""
    value = _shift(node, node.value(0).expr, relax.op.subtract)
    wanted = node.results[0].dtype
    return value if dtype_of(value) == wanted else value.astype(wanted)


def _shift(
    node: TfliteNode, x: relax.Expr, change: Callable[[relax.Expr, relax.Expr], relax.Expr]
) -> relax.Expr:
    info = node.results[0] if node.operator.kind == FROM_STATE else node.info(0)
    stored = node.option(FIRST)
    first = subtract_zeros(replace(info, value=stored)) if info.is_quantised else stored
    first = np.asarray(first).astype(dtype_of(x))
    return node.emit(change(x, make_constant(first))) if first.any() else x


STATE_OPS: dict[str, Convert] = {FROM_STATE: _from_state, TO_STATE: _to_state}


CONTROL_OPS: dict[str, Convert] = {
    "IF": _if,
    "STABLEHLO_WHILE": _while,
    "WHILE": _while,
    COMPOSITE: lambda node: list(
        node.call(int(node.option(BODY)), [node.value(i) for i in range(len(node.inputs))])
    ),
}


_SIZES = (8, 16, 32, 64)
NUMERIC_DTYPES = (
    *("float32", "float16", "float64", "bool"),
    *(f"{kind}{size}" for kind in ("int", "uint") for size in _SIZES),
)
"""Those that a tensor of the bundle may have."""

Failure = tuple[OperatorInfo, str, str]
"""An operator, where it is, and why it cannot be translated."""


class GraphConverter:
    """Translates graph by graph, the first one of the file as `main`; all failures are collected.
    `more` translates operators that no file has: what rewrites of the graph put there."""

    def __init__(
        self,
        file: TFLiteFile,
        inputs: Sequence[TensorSpec] = (),
        more: Mapping[str, Convert] | None = None,
    ) -> None:
        self.file = file
        self.inputs = inputs
        kinds = (o.kind for graph in file.graphs for o in graph.operators if o.custom)
        self._custom = {**load_extensions(kinds), **_CUSTOM_OPS, **(more or {})}
        self._active = [file.entry]
        """Numbers of the graphs that are being translated, each called by the one before it."""
        self._written = 0
        self._shapes: list[tuple[int, ...]] = []
        """Those that the outputs come out with."""
        self.builder = relax.BlockBuilder()
        self.emit = Emitter(self.builder)
        self.failures: list[Failure] = []
        self._guessed: set[TensorValue] = set()
        """What is computed of stand-ins for tensors that could not be translated."""
        self.names: dict[str, str] = {}
        """Variable -> the tensor that it holds, as the file stores it."""
        self._unique = UniqueNames()

    def import_main(
        self, sha256: str, told: Sequence[Decision], states: Sequence[tuple[str, str]]
    ) -> Imported:
        """Return the model of a file with this digest; its last outputs are `states`. Raises
        UnsupportedOperatorError, naming all that could not be translated; OptionError where no
        memory can be such states."""
        module, main = self._convert(), self.file.main
        if self.failures:
            _refuse(self.failures)
        outputs = tuple(
            TensorSpec(name=main.tensors[i].name, shape=shape, dtype=main.tensors[i].dtype)
            for i, shape in zip(main.outputs, self._shapes, strict=True)
        )
        check_states(states, self.inputs, outputs)
        return Imported(
            module=module,
            format="tflite",
            inputs=tuple(self.inputs),
            outputs=outputs[: len(outputs) - len(states)],
            decisions=(*told, *self.decisions()),
            model_sha256=sha256,
            tensors=self.names,
            states=tuple(states),
        )

    def _convert(self) -> tvm.IRModule:
        """Return the module; on failures it computes nothing of worth."""
        main = self.file.main
        params = []
        for spec in self.inputs:
            param = relax.Var(
                self._unique.take(spec.name), relax.TensorType(spec.shape, spec.dtype)
            )
            self.names[param.name] = spec.name
            params.append(param)
        with self.builder.function("main", params):
            with self.builder.dataflow():
                values = [
                    value_of(self.emit, main.tensors[i], p)
                    for i, p in zip(main.inputs, params, strict=True)
                ]
                results = [
                    self._output(v, main.tensors[i])
                    for v, i in zip(self._graph(main, values, ""), main.outputs, strict=True)
                ]
            self.builder.emit_func_output(results[0] if len(results) == 1 else results)
        return self.builder.get()

    def evaluate(
        self, graph: GraphInfo, given: Mapping[int, np.ndarray], wanted: Sequence[int]
    ) -> dict[int, np.ndarray]:
        """Return what tensors of a graph hold where `given` ones hold that; those that are not
        known then are left out: all, where something on the way cannot be translated."""
        env = {
            index: TensorValue(info=graph.tensors[index], made=make_constant(value))
            for index, value in given.items()
        }
        with self.builder.function("probe", []):
            with self.builder.dataflow():
                for operator in graph.operators:
                    self._try(graph, operator, env, "")
                nothing = self.builder.emit_output(make_constant(np.zeros((), np.int32)))
            self.builder.emit_func_output(nothing)
        if self.failures:
            return {}
        found = {i: constant_value(self._read(graph, env, i).expr) for i in wanted}
        return {index: value for index, value in found.items() if value is not None}

    def _output(self, value: TensorValue, info: TensorInfo) -> relax.Expr:
        expr = store(self.emit, value)
        var = emit_named(self.builder, expr, self._unique.take(info.name), output=True)
        self.names[var.name] = info.name
        self._shapes.append(static_shape(var) or info.shape)
        return var

    def _graph(
        self, graph: GraphInfo, inputs: Sequence[TensorValue], prefix: str
    ) -> list[TensorValue]:
        """Return the results of a graph applied to `inputs`."""
        env = dict(zip(graph.inputs, inputs, strict=True))
        for operator in graph.operators:
            self._try(graph, operator, env, prefix)
        unmade = [i for i in graph.outputs if i not in env and graph.tensors[i].value is None]
        if unmade:
            raise malformed(
                f"the graph promises '{graph.tensors[unmade[0]].name}', but no operator makes it"
            )
        return [self._read(graph, env, index) for index in graph.outputs]

    def _try(
        self, graph: GraphInfo, operator: OperatorInfo, env: dict[int, TensorValue], prefix: str
    ) -> None:
        """Translate an operator, or note why not and go on with stand-ins for what it makes. Where
        those do not fit what reads them, that is no failure of its own."""
        first = len(self.failures)
        guessed = any(env.get(index) in self._guessed for index in operator.inputs)
        try:
            self._translate(graph, operator, env, prefix)
        except CONVERTER_ERRORS as error:
            if is_out_of_memory(error):
                raise
            inner = self.failures[first:]
            if isinstance(error, LoopOfDataError):  # all else that failed in it follows from that
                loops = [failure for failure in inner if BY_DATA in failure[2]]
                self.failures[first:] = loops or inner
            if not (guessed or inner) or self._converter_of(operator) is None:
                self.failures.append((operator, graph.label(operator), quote(error)))
            guessed = True
            for index in operator.outputs:
                info = graph.tensors[index]
                nothing = self.emit(relax.op.zeros(*_numbers_of(info)))
                env[index] = TensorValue(info=info, made=nothing)
        if guessed:
            self._guessed.update(env[index] for index in operator.outputs if index in env)

    def _converter_of(self, operator: OperatorInfo) -> Convert | None:
        return (self._custom if operator.custom else OPS).get(operator.kind)

    def _call(self, number: int, inputs: Sequence[TensorValue], prefix: str) -> list[TensorValue]:
        """Return the results of another graph of the file, of those not being translated."""
        if number in self._active:
            raise RefusedError(f"graph {number} of the file calls itself")
        graph = self.file.graphs[number]
        self._written += len(graph.operators)
        if self._written > MOST_NODES:
            raise RefusedError(too_many(self._written))
        self._active.append(number)
        try:
            return self._graph(graph, inputs, prefix)
        finally:
            self._active.pop()

    def _read(self, graph: GraphInfo, env: dict[int, TensorValue], index: int) -> TensorValue:
        if index not in env:
            env[index] = TensorValue(info=graph.tensors[index])
        return env[index]

    def _translate(
        self, graph: GraphInfo, operator: OperatorInfo, env: dict[int, TensorValue], prefix: str
    ) -> None:
        convert = self._converter_of(operator)
        if convert is None:
            others = (other.kind for other in graph.operators)
            raise RefusedError(why_not(operator.kind, others))
        inputs = [self._input(graph, env, i) for i in operator.inputs]
        check_bools(operator.kind, [v.info if v is not None else None for v in inputs])
        node = TfliteNode(
            emit=self.emit,
            operator=operator,
            inputs=inputs,
            results=[graph.tensors[i] for i in operator.outputs],
            call=lambda number, values: self._call(
                number, values, f"{prefix}{graph.label(operator)}/"
            ),
        )
        result = convert(node)
        results = result if isinstance(result, list) else [result]
        for index, one in zip(operator.outputs, results, strict=False):
            env[index] = self._set(graph.tensors[index], one, is_main=not prefix)

    def _input(
        self, graph: GraphInfo, env: dict[int, TensorValue], index: int
    ) -> TensorValue | None:
        if index < 0:
            return None
        info = graph.tensors[index]
        if index not in env and info.value is None:
            # What nothing computes and nothing stores: a state's first value, or no number at all.
            first = make_constant(np.zeros(*_numbers_of(info))) if info.is_variable else None
            return None if first is None else TensorValue(info=info, made=first)
        return self._read(graph, env, index)

    def _set(self, info: TensorInfo, result: object, *, is_main: bool) -> TensorValue:
        value = (
            result
            if isinstance(result, TensorValue)
            else finish(self.emit, info, result, self._unique.take(info.name))
        )
        found = static_shape(value.expr)
        if info.dtype.startswith("COMPLEX") and found:
            found = found[:-1]  # pairs of numbers along a further axis
        if is_main and info.shape and not info.admits(found or ()):
            raise RefusedError(f"'{info.name}' comes out as {found}, the file says {info.shape}")
        dtype = _numbers_of(info)[1]
        if dtype_of(value.expr) != dtype:
            raise RefusedError(f"'{info.name}' comes out as {dtype_of(value.expr)}, not as {dtype}")
        if isinstance(value.expr, relax.Var) and not info.is_quantised and is_main:
            self.names.setdefault(value.expr.name, info.name)
        return TensorValue(info=info, made=value.expr)

    def decisions(self) -> tuple[Decision, ...]:
        """Return what was chosen, each with all the tensors concerned."""
        return tuple(
            Decision(subject=", ".join(dict.fromkeys(where)), taken=taken, reason=reason)
            for (taken, reason), where in self.emit.decisions.items()
        )


def _numbers_of(info: TensorInfo) -> tuple[tuple[int, ...], str]:
    dtype = "float32" if info.is_quantised or info.dtype not in NUMERIC_DTYPES else info.dtype
    return tuple(max(1, extent) for extent in info.shape), dtype


_TAKE_BOOLS = frozenset(
    {
        *CONTROL_OPS,
        *(MOVE_OPS.keys() - {"RANGE"}),
        *("ARG_MAX", "ARG_MIN", "CAST", "EQUAL", "NOT_EQUAL", "REDUCE_ALL", "REDUCE_ANY"),
        *("LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR", "SELECT", "SELECT_V2", "ZEROS_LIKE"),
        *("EMBEDDING_LOOKUP", "GATHER", "GATHER_ND", "HASHTABLE_LOOKUP", "STABLEHLO_GATHER"),
        *("MATRIX_DIAG", "MATRIX_SET_DIAG", "ONE_HOT", "SCATTER_ND", "SPARSE_TO_DENSE", "WHERE"),
        "STABLEHLO_PAD",
    }
)


def check_bools(kind: str, operands: Sequence[TensorInfo | None]) -> None:
    """Check that an operator which computes numbers gets no truth values."""
    if kind in _TAKE_BOOLS:
        return
    for index, info in enumerate(operands):
        if info is not None and info.dtype == "bool":
            raise RefusedError(f"input {index} ('{info.name}') holds bool; {kind} takes numbers")


OPS: dict[str, Convert] = {
    **CONTROL_OPS,
    **ELEMENTWISE_OPS,
    **INDEX_OPS,
    **MOVE_OPS,
    **RECURRENT_OPS,
    **REDUCE_OPS,
}
"""Built-in operators."""

_CUSTOM_OPS: dict[str, Convert] = {**MEDIAPIPE_OPS, **SELECT_CUSTOM_OPS, **STATE_OPS}
"""Custom operators by their own name."""


def check_operators(graphs: Iterable[GraphInfo], known: Iterable[str] = ()) -> None:
    """Refuse custom operators that are neither `known` nor translated, naming them all."""
    known = {*known, *_CUSTOM_OPS, *extension_names()}
    custom = [(g, o) for g in graphs for o in g.operators if o.custom and o.kind not in known]
    if custom:
        raise CustomDomainError(
            f"custom operators: {_counts([o for _, o in custom])}; "
            f"at {list_first((g.label(o) for g, o in custom), between=', ')}",
            hint=hint_at_custom(o.kind for _, o in custom),
        )


def _refuse(failures: Sequence[Failure]) -> None:
    failed = [operator for operator, _, _ in failures]
    labels: dict[str, list[str]] = {}
    for operator, label, why in failures:
        labels.setdefault(why, []).append(label if operator.outputs else operator.kind)
    where = list_first(
        f"{list_first(dict.fromkeys(same), between=', ')}: {why}" for why, same in labels.items()
    )
    raise UnsupportedOperatorError(
        f"operators that cannot be imported: {_counts(failed)}; at {where}",
        hint="convert the model with other operators, or cut it before these",
    )


def _counts(operators: Sequence[OperatorInfo]) -> str:
    kinds = Counter(o.kind for o in operators)
    return ", ".join(f"{kind} ({count}x)" for kind, count in sorted(kinds.items()))
