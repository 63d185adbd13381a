"""TFLite files to Relax IR with static shapes and constant weights.

The graph stays NHWC, as the file has it; `passes` choose layouts.

Source: tvm.relax.frontend.tflite of apache-tvm 0.27.0.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections import Counter
from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax
from tvm.relax.frontend.tflite import from_tflite
from tvm.relax.frontend.tflite.tflite_frontend import OperatorConverter

from adrenoc.errors import CustomDomainError, ShapeError, UnsupportedOperatorError
from adrenoc.importers.flat import FlatFunction, flatten, rebuild, replace_main
from adrenoc.importers.formats import ModelFiles
from adrenoc.importers.frontend import CONVERTER_ERRORS, quote
from adrenoc.importers.imported import Imported
from adrenoc.importers.onnx_shapes import check_names
from adrenoc.importers.relax_values import UniqueNames, dtype_of, static_shape
from adrenoc.importers.tflite_file import Operator, TFLiteFile, read_tflite
from adrenoc.manifest import TensorSpec


def import_tflite(files: ModelFiles, *, shapes: Mapping[str, tuple[int, ...]]) -> Imported:
    """Import the TFLite model in `files`.

    A TFLite file fixes the shape of each tensor; `shapes` may repeat them, but not change them.

    Raises:
        ModelFormatError: damaged or cut off.
        CustomDomainError, UnsupportedOperatorError: every operator concerned is named.
        ShapeError: `shapes` names an unknown input or another shape.
    """
    file = read_tflite(files.paths[0])
    _check_operators(file)
    module, tensors = _convert(file)
    main = module["main"]
    for param, index in zip(main.params, file.inputs, strict=True):
        tensors[param.name] = file.tensor_names[index]
    inputs = tuple(
        _spec(file.tensor_names[i], p) for i, p in zip(file.inputs, main.params, strict=True)
    )
    _check_shapes(inputs, shapes)
    results = _results(main)
    return Imported(
        module=module,
        format="tflite",
        inputs=inputs,
        outputs=tuple(
            _spec(file.tensor_names[i], r) for i, r in zip(file.outputs, results, strict=True)
        ),
        decisions=(),
        model_sha256=files.sha256(),
        tensors=tensors,
    )


def _check_operators(file: TFLiteFile) -> None:
    custom = [o for o in file.operators if o.custom]
    if custom:
        raise CustomDomainError(
            f"custom operators: {_counts(custom)}; at {', '.join(map(file.label, custom))}",
            hint="convert the model with TFLITE_BUILTINS alone as supported_ops",
        )


def _counts(operators: list[Operator]) -> str:
    kinds = Counter(o.kind for o in operators)
    return ", ".join(f"{kind} ({count}x)" for kind, count in sorted(kinds.items()))


def _check_shapes(inputs: tuple[TensorSpec, ...], shapes: Mapping[str, tuple[int, ...]]) -> None:
    check_names(shapes, [spec.name for spec in inputs])
    for spec in inputs:
        wanted = shapes.get(spec.name, spec.shape)
        if tuple(wanted) != spec.shape:
            raise ShapeError(
                f"--shape {spec.name}:{','.join(map(str, wanted))} differs from "
                f"{list(spec.shape)}, which the TFLite file fixes for all its tensors",
                hint="leave --shape out, or convert the model with that input shape",
            )


def _convert(file: TFLiteFile) -> tuple[tvm.IRModule, dict[str, str]]:
    """The module with identifiers for names, and the tensor that each variable holds."""
    converters: list[_Converter] = []

    def make(*args: Any, **kwargs: Any) -> _Converter:
        converters.append(_Converter(file, *args, **kwargs))
        return converters[-1]

    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        module = from_tflite(file.model, op_converter=make)
    converter = converters[0]
    if converter.failures:
        failed = [operator for operator, _ in converter.failures]
        where = "; ".join(f"{file.label(o)}: {why}" for o, why in converter.failures)
        raise UnsupportedOperatorError(
            f"operators that cannot be imported: {_counts(failed)}; at {where}",
            hint="convert the model with other operators, without dynamic-range quantisation",
        )
    flat = _with_identifiers(flatten(module["main"]))
    main, origin = rebuild(flat)
    named = {new: converter.tensors[old] for new, old in origin.items() if old in converter.tensors}
    return replace_main(module, main.without_attr("params")), named


def _with_identifiers(flat: FlatFunction) -> FlatFunction:
    """Parameters under names that are identifiers: TFLite's may hold colons and slashes."""
    names = UniqueNames()
    renamed = {p: relax.Var(names.take(p.name), p.ty) for p in flat.params}
    return flat.with_params(renamed)


class _Converter(OperatorConverter):
    """Drives the frontend operator by operator: names, shapes checked, all failures collected."""

    def __init__(self, file: TFLiteFile, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.failures: list[tuple[Operator, str]] = []
        self.tensors: dict[str, str] = {}
        self._file = file
        self._unique = UniqueNames()

    def check_unsupported_ops(self) -> None:
        """Nothing: each operator is tried, and what fails is listed by name."""

    def convert_op_to_relax(self) -> None:
        """Translate all operators of the main graph."""
        for index, operator in enumerate(self._file.operators):
            node = self.subgraph.Operators(index)
            try:
                self._translate(node, operator)
            except CONVERTER_ERRORS as error:
                self.failures.append((operator, quote(error)))
                for output in operator.outputs:
                    self._set(output, relax.op.zeros(self._shape(output), "float32"))

    def _translate(self, node: Any, operator: Operator) -> None:
        convert = self.convert_map.get(operator.kind)
        if convert is None:
            raise NotImplementedError("not supported")
        self._refuse_hybrid(node)
        result = convert(op=node)
        if result is None:
            return  # A constant that the frontend keeps for its consumers.
        result = self.bb.normalize(result)
        for position, output in enumerate(operator.outputs):
            self._set(output, result[position] if len(operator.outputs) > 1 else result)

    def _refuse_hybrid(self, node: Any) -> None:
        tensors = [t for t in self.get_input_tensors(node) if t.tensor_idx >= 0]
        quantised = [t.qnn_params is not None for t in tensors]
        made = any(t.qnn_params is not None for t in self.get_output_tensors(node))
        if not made and any(quantised[1:]) and not quantised[0]:
            raise NotImplementedError(
                "integer weights with float data (dynamic-range quantisation)"
            )

    def _set(self, index: int, value: relax.Expr) -> None:
        name = self._file.tensor_names[index]
        if isinstance(value, relax.Call | relax.TupleGetItem):
            value = self.bb.emit(value, self._unique.take(name))
        if isinstance(value, relax.Var):
            self.tensors.setdefault(value.name, name)
        found, expected = static_shape(value), self._shape(index)
        if found != expected and expected:
            raise ValueError(
                f"TVM's frontend gives '{name}' the shape {found}, the file says {expected}"
            )
        self.exp_tab.set_expr(name, value, force_override=True)

    def _shape(self, index: int) -> tuple[int, ...]:
        tensor = self.subgraph.Tensors(index)
        return tuple(int(tensor.Shape(i)) for i in range(tensor.ShapeLength()))


def _results(main: relax.Function) -> list[relax.Expr]:
    """What `main` returns, one expression with a tensor type for each output."""
    body = main.body.body
    if isinstance(body, relax.Tuple):
        return list(body.fields)
    return [body]


def _spec(name: str, expr: relax.Expr) -> TensorSpec:
    shape = static_shape(expr)
    if shape is None or any(extent <= 0 for extent in shape):
        raise ShapeError(
            f"'{name}' has no fixed shape in the TFLite file",
            hint="convert the model with a fixed input shape",
        )
    return TensorSpec(name=name, shape=shape, dtype=dtype_of(expr))
