"""TFLite files to Relax IR with static shapes and constant weights.

The graph stays NHWC, as the file has it; `passes` choose layouts.  The translation is our own:
TVM's frontend keeps quantised networks in integers by operators of a dialect that has no kernels
here, refuses data in float with weights in integers, and leaves TFLite's rounding out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import tvm
from tvm import relax

from adrenoc.bundle.manifest import TensorSpec
from adrenoc.decision import Decision
from adrenoc.errors import CustomDomainError, ModelFormatError, ShapeError, UnsupportedOperatorError
from adrenoc.host.out_of_memory import is_out_of_memory
from adrenoc.importers.formats import EXPORT_AGAIN, ModelFiles
from adrenoc.importers.frontend import CONVERTER_ERRORS, quote
from adrenoc.importers.imported import Imported
from adrenoc.importers.onnx.unroll import MOST_NODES, too_many
from adrenoc.importers.shapes import check_names
from adrenoc.importers.states import check_states
from adrenoc.importers.tflite.bools import check_bools
from adrenoc.importers.tflite.file import GraphInfo, Operator, TensorInfo, TFLiteFile, read_tflite
from adrenoc.importers.tflite.node import (
    Emitter,
    Node,
    Value,
    constant_of,
    finish,
    store,
    value_of,
)
from adrenoc.importers.tflite.ops import CUSTOM_OPS, OPS
from adrenoc.relax.values import (
    UniqueNames,
    dtype_of,
    emit_named,
    make_constant,
    static_shape,
)
from adrenoc.text.spelling import list_first

_DTYPES = ("float32", "float16", "float64", "bool", *(f"int{n}" for n in (8, 16, 32, 64)))
_IO_DTYPES = (*_DTYPES, "uint8", "uint16", "uint32", "uint64")


def import_tflite(
    files: ModelFiles,
    *,
    shapes: Mapping[str, tuple[int, ...]],
    states: Sequence[tuple[str, str]] = (),
) -> Imported:
    """Import the TFLite model in `files`.

    A TFLite file fixes the shape of each tensor, but for axes that it leaves open: `shapes` may
    give inputs other extents there.  `states` are pairs of an input and the output that it is in
    the next run.

    Raises:
        ModelFormatError: damaged or cut off.
        CustomDomainError, UnsupportedOperatorError: every operator concerned is named.
        ShapeError: `shapes` names an unknown input or another shape.
        OptionError: `states` are not what the model has.
    """
    content, sha256 = files.read()
    file = _put_states_last(read_tflite(files.paths[0], content), states)
    main = file.main
    _check_signatures(file)
    _check_operators(file)
    for i in main.outputs:
        _spec(main.tensors[i])
    infos = [main.tensors[i] for i in main.inputs]
    inputs = _apply_shapes(infos, [_spec(info) for info in infos], shapes)
    converter = _Converter(file, inputs)
    module = converter.convert()
    if converter.failures:
        failed = [operator for operator, _, _ in converter.failures]
        where = list_first(f"{label}: {why}" for _, label, why in converter.failures)
        raise UnsupportedOperatorError(
            f"operators that cannot be imported: {_counts(failed)}; at {where}",
            hint="convert the model with other operators, or cut it before these",
        )
    outputs = tuple(
        replace(_spec(main.tensors[i]), shape=shape)
        for i, shape in zip(main.outputs, converter.shapes, strict=True)
    )
    check_states(states, inputs, outputs)
    return Imported(
        module=module,
        format="tflite",
        inputs=inputs,
        outputs=outputs[: len(outputs) - len(states)],
        decisions=converter.decisions(),
        model_sha256=sha256,
        tensors=converter.names,
        states=tuple(states),
    )


def _put_states_last(file: TFLiteFile, states: Sequence[tuple[str, str]]) -> TFLiteFile:
    """The same with the outputs that are states behind all others, in their order."""
    main, rest = file.graphs[0], file.graphs[1:]
    order = {present: at for at, (_, present) in enumerate(states, start=1)}
    outputs = sorted(main.outputs, key=lambda i: order.get(main.tensors[i].name, 0))
    return replace(file, graphs=(replace(main, outputs=tuple(outputs)), *rest))


def _check_signatures(file: TFLiteFile) -> None:
    """Refuse language models, whose prefill and decode are calls that share caches."""
    keys = [key for key in file.signatures if key == "decode" or key.startswith("prefill")]
    if len(file.signatures) > 1 and keys:
        raise UnsupportedOperatorError(
            f"the file has the signatures {list_first(keys, between=', ')} of a language model, "
            "which share caches; adrenoc takes one call of a TFLite file, and decoders in ONNX",
            hint="export the same model by onnxruntime-genai's builder or optimum, to ONNX",
        )


def _check_operators(file: TFLiteFile) -> None:
    custom = [
        (g, o) for g in file.graphs for o in g.operators if o.custom and o.kind not in CUSTOM_OPS
    ]
    if custom:
        raise CustomDomainError(
            f"custom operators: {_counts([o for _, o in custom])}; "
            f"at {list_first((g.label(o) for g, o in custom), between=', ')}",
            hint="convert the model with TFLITE_BUILTINS alone as supported_ops",
        )


def _counts(operators: Sequence[Operator]) -> str:
    kinds = Counter(o.kind for o in operators)
    return ", ".join(f"{kind} ({count}x)" for kind, count in sorted(kinds.items()))


def _apply_shapes(
    infos: Sequence[TensorInfo],
    specs: Sequence[TensorSpec],
    shapes: Mapping[str, tuple[int, ...]],
) -> tuple[TensorSpec, ...]:
    """The inputs with the extents that `shapes` gives to axes which the file leaves open."""
    check_names(shapes, [spec.name for spec in specs])
    for info in infos:
        wanted = tuple(shapes.get(info.name, info.shape))
        if not info.admits(wanted):
            given = ",".join(
                "D" if a in info.open_axes else str(d) for a, d in enumerate(info.shape)
            )
            raise ShapeError(
                f"--shape {info.name}:{','.join(map(str, wanted))} differs from "
                f"{list(info.shape)}, which the TFLite file fixes for all its tensors",
                hint=f"--shape {info.name}:{given}"
                if info.open_axes
                else "leave --shape out, or convert the model with that input shape",
            )
    return tuple(replace(spec, shape=tuple(shapes.get(spec.name, spec.shape))) for spec in specs)


def _spec(info: TensorInfo) -> TensorSpec:
    if any(extent <= 0 for extent in info.shape):
        raise ShapeError(
            f"'{info.name}' has the shape {list(info.shape)} in the TFLite file, expected fixed "
            "extents above zero",
            hint="convert the model with a fixed input shape",
        )
    if info.dtype not in _IO_DTYPES:
        raise UnsupportedOperatorError(
            f"'{info.name}' holds {info.dtype}, which no OpenCL device computes",
            hint="cut the model where it holds numbers",
        )
    return TensorSpec(name=info.name, shape=info.shape, dtype=info.dtype)


class _Converter:
    """Translates graph by graph; all failures are collected."""

    def __init__(self, file: TFLiteFile, inputs: Sequence[TensorSpec]) -> None:
        self.file = file
        self.inputs = inputs
        self._active = [0]
        """Numbers of the graphs that are being translated, each called by the one before it."""
        self._written = 0
        self.shapes: list[tuple[int, ...]] = []
        """Those that the outputs come out with."""
        self.builder = relax.BlockBuilder()
        self.emit = Emitter(self.builder)
        self.failures: list[tuple[Operator, str, str]] = []
        self.names: dict[str, str] = {}
        """Variable -> the tensor that it holds, as the file stores it."""
        self._unique = UniqueNames()

    def convert(self) -> tvm.IRModule:
        """The module; on failures it computes nothing of worth."""
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

    def _output(self, value: Value, info: TensorInfo) -> relax.Expr:
        expr = store(self.emit, value)
        var = emit_named(self.builder, expr, self._unique.take(info.name), output=True)
        self.names[var.name] = info.name
        self.shapes.append(static_shape(var) or info.shape)
        return var

    def _graph(self, graph: GraphInfo, inputs: Sequence[Value], prefix: str) -> list[Value]:
        """The results of a graph applied to `inputs`."""
        env = dict(zip(graph.inputs, inputs, strict=True))
        for operator in graph.operators:
            try:
                self._translate(graph, operator, env, prefix)
            except CONVERTER_ERRORS as error:
                if is_out_of_memory(error):
                    raise
                self.failures.append((operator, graph.label(operator), quote(error)))
                for index in operator.outputs:
                    env[index] = _stand_in(self.emit, graph.tensors[index])
        unmade = [i for i in graph.outputs if i not in env and graph.tensors[i].value is None]
        if unmade:
            raise ModelFormatError(
                f"the graph promises '{graph.tensors[unmade[0]].name}', but no operator makes it",
                hint=EXPORT_AGAIN,
            )
        return [self._read(graph, env, index) for index in graph.outputs]

    def _call(self, number: int, inputs: Sequence[Value], prefix: str) -> list[Value]:
        """The results of another graph of the file, of those that are not being translated."""
        if number in self._active:
            raise ValueError(f"graph {number} of the file calls itself")
        graph = self.file.graphs[number]
        self._written += len(graph.operators)
        if self._written > MOST_NODES:
            raise ValueError(too_many(self._written))
        self._active.append(number)
        try:
            return self._graph(graph, inputs, prefix)
        finally:
            self._active.pop()

    def _read(self, graph: GraphInfo, env: dict[int, Value], index: int) -> Value:
        if index not in env:
            env[index] = constant_of(graph.tensors[index])
        return env[index]

    def _translate(
        self, graph: GraphInfo, operator: Operator, env: dict[int, Value], prefix: str
    ) -> None:
        table = CUSTOM_OPS if operator.custom else OPS
        convert = table.get(operator.kind)
        if convert is None:
            raise NotImplementedError("not supported, expected an operator that adrenoc translates")
        inputs = [self._input(graph, env, i) for i in operator.inputs]
        check_bools(operator.kind, [v.info if v is not None else None for v in inputs])
        node = Node(
            emit=self.emit,
            operator=operator,
            inputs=inputs,
            results=[graph.tensors[i] for i in operator.outputs],
            file=self.file,
            call=lambda number, values: self._call(
                number, values, f"{prefix}{graph.label(operator)}/"
            ),
        )
        result = convert(node)
        results = result if isinstance(result, list) else [result]
        for index, one in zip(operator.outputs, results, strict=False):
            env[index] = self._set(graph.tensors[index], one, is_main=not prefix)

    def _input(self, graph: GraphInfo, env: dict[int, Value], index: int) -> Value | None:
        if index < 0:
            return None
        info = graph.tensors[index]
        if index not in env and info.value is None:
            # What nothing computes and nothing stores: a state's first value, or no number at all.
            return None if not info.is_variable else _zeros(info)
        return self._read(graph, env, index)

    def _set(self, info: TensorInfo, result: object, *, is_main: bool) -> Value:
        value = (
            result
            if isinstance(result, Value)
            else finish(self.emit, info, result, self._unique.take(info.name))
        )
        found = static_shape(value.expr)
        if info.dtype.startswith("COMPLEX") and found:
            found = found[:-1]  # pairs of numbers along a further axis
        if is_main and info.shape and not info.admits(found or ()):
            raise ValueError(f"'{info.name}' comes out as {found}, the file says {info.shape}")
        dtype = _numbers_of(info)[1]
        if dtype_of(value.expr) != dtype:
            raise TypeError(f"'{info.name}' comes out as {dtype_of(value.expr)}, not as {dtype}")
        if isinstance(value.expr, relax.Var) and not info.is_quantised and is_main:
            self.names.setdefault(value.expr.name, info.name)
        return Value(info=info, expr=value.expr)

    def decisions(self) -> tuple[Decision, ...]:
        """What was chosen, each with all the tensors concerned."""
        return tuple(
            Decision(subject=", ".join(dict.fromkeys(where)), taken=taken, reason=reason)
            for (taken, reason), where in self.emit.decisions.items()
        )


def _stand_in(emit: Emitter, info: TensorInfo) -> Value:
    """What takes the place of a tensor that could not be translated, to find further failures."""
    return Value(info=info, expr=emit(relax.op.zeros(*_numbers_of(info))))


def _zeros(info: TensorInfo) -> Value:
    """The first value of a state."""
    return Value(info=info, expr=make_constant(np.zeros(*_numbers_of(info))))


def _numbers_of(info: TensorInfo) -> tuple[tuple[int, ...], str]:
    dtype = "float32" if info.is_quantised or info.dtype not in _IO_DTYPES else info.dtype
    return tuple(max(1, extent) for extent in info.shape), dtype
