"""One or more models for each built-in operator that LiteRT's CPU kernels compute."""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.tflite.build import ModelBuilder, T, start


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model, what to feed it and what LiteRT makes of it, by tensor name.

    `quanta` names the outputs whose integers stand for real numbers: they may be off by one.
    `tolerance` is the share of the range by which floats may be off.
    """

    name: str
    operator: str
    model: bytes
    inputs: Mapping[str, np.ndarray]
    outputs: Mapping[str, np.ndarray]
    quanta: frozenset[str] = frozenset()
    tolerance: float = 1e-4
    excluded: str = ""
    file_name: str = "case.tflite"

    def difference(self, seen: Mapping[str, np.ndarray]) -> str:
        """What is wrong with the outputs; empty where nothing is."""
        for name, expected in self.outputs.items():
            value = seen[name]
            if value.shape != expected.shape or value.dtype != expected.dtype:
                return (
                    f"{name} is {value.dtype} {list(value.shape)}, "
                    f"expected {expected.dtype} {list(expected.shape)}"
                )
            error = np.abs(value.astype(np.float64) - expected.astype(np.float64))
            allowed = 1.0 if name in self.quanta else 0.0
            if expected.dtype.kind == "f":
                # One number has no range: its size stands for it.
                span = np.ptp(expected) if expected.size > 1 else np.abs(expected).max(initial=0)
                allowed = self.tolerance * max(float(span), 1e-3)
            wrong = ~(error <= allowed)
            if wrong.any():
                return f"{name}: {int(wrong.sum())} of {wrong.size} by up to {error.max():.3g}"
        return ""


Reference = bytes | Callable[[Sequence[np.ndarray]], list[np.ndarray]] | None
"""What to hold a model against: LiteRT on itself (None), LiteRT on another model, or a function."""

Build = Callable[[np.random.Generator], tuple[ModelBuilder, Reference]]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to build a case; `excluded` says why there is none to run.

    `exact` allows integers that stand for real numbers no quantum, of those that LiteRT gives by
    default; others are held against its plain kernels.
    """

    name: str
    operator: str
    build: Build | None = None
    tolerance: float = 1e-4
    exact: bool = False
    excluded: str = ""

    def case(self) -> Case:
        """The case, with LiteRT's results.

        Raises:
            RuntimeError, ValueError: LiteRT does not take the model.
        """
        case = partial(Case, name=self.name, operator=self.operator, excluded=self.excluded)
        if self.build is None:
            return case(model=b"", inputs={}, outputs={})
        made, reference = self.build(np.random.default_rng(zlib.crc32(self.name.encode())))
        model, expected = made.finish()
        main = made.graphs[0]
        if callable(reference):
            expected = reference(main.feeds)
        elif reference is not None:
            expected = _run(reference, main.feeds)
        elif self.exact:
            expected = _run(model, main.feeds, plain=False)
        names = [main.tensors[i].name.decode() for i in main.outputs]
        quantised = {
            name
            for name, index in zip(names, main.outputs, strict=True)
            if main.tensors[index].quantization is not None
        }
        fed = [main.tensors[i].name.decode() for i in main.inputs]
        return case(
            model=model,
            inputs=dict(zip(fed, main.feeds, strict=True)),
            outputs=dict(zip(names, expected, strict=True)),
            quanta=frozenset(() if self.exact else quantised),
            tolerance=self.tolerance,
        )


def _run(model: bytes, feeds: Sequence[np.ndarray], *, plain: bool = True) -> list[np.ndarray]:
    run = start(model, plain=plain)
    for detail, feed in zip(run.get_input_details(), feeds, strict=True):
        run.set_tensor(detail["index"], feed)
    run.invoke()
    return [np.array(run.get_tensor(d["index"])) for d in run.get_output_details()]


# Tensors of a case, as functions of the random generator


Make = Callable[[np.random.Generator], "T | None"]


def f(*shape: int, low: float = -2.0, high: float = 2.0) -> Make:
    """Floats as input."""
    return lambda r: T(data=r.uniform(low, high, shape).astype(np.float32))


def i(*shape: int, low: int = -9, high: int = 10, dtype: str = "int32") -> Make:
    """Integers as input."""
    return lambda r: T(dtype=dtype, data=r.integers(low, high, shape).astype(dtype))


def b(*shape: int) -> Make:
    """Booleans as input."""
    return lambda r: T(dtype="bool", data=r.integers(0, 2, shape).astype(bool))


def k(value, dtype: str = "int32") -> Make:
    return lambda _: T(dtype=dtype, data=np.asarray(value, dtype), is_constant=True)


def w(*shape: int, low: float = -1.0, high: float = 1.0) -> Make:
    return lambda r: T(data=r.uniform(low, high, shape).astype(np.float32), is_constant=True)


_RANGE = {"int8": (-128, 128), "uint8": (0, 256), "int16": (-32768, 32768), "int4": (-8, 8)}


def q(
    *shape: int, dtype: str = "int8", scale: float = 0.02, zero: int = 0, constant: bool = False
) -> Make:
    """Quantised numbers as input, or as a constant."""

    def make(r: np.random.Generator) -> T:
        data = r.integers(*_RANGE[dtype], shape).astype("int8" if dtype == "int4" else dtype)
        return T(dtype=dtype, data=data, scales=[scale], zeros=[zero], is_constant=constant)

    return make


def qw(*shape: int, axis: int | None = None, dtype: str = "int8", scale: float = 0.01) -> Make:
    """Quantised weights, with a scale for each index of `axis`."""

    def make(r: np.random.Generator) -> T:
        low, high = (-127, 128) if dtype == "int8" else _RANGE[dtype]
        data = r.integers(low, high, shape).astype("int8" if dtype == "int4" else dtype)
        scales = (scale * r.uniform(0.5, 1.5, 1 if axis is None else shape[axis])).tolist()
        return T(dtype=dtype, data=data, scales=scales, axis=axis or 0, is_constant=True)

    return make


def qb(count: int, dtype: str = "int32", size: int = 5000) -> Make:
    """A bias of quantised weights."""
    kind = partial(T, dtype=dtype, scales=[1.0], zeros=[0], is_constant=True)
    return lambda r: kind(data=r.integers(-size, size, count).astype(dtype))


def state(*shape: int) -> Make:
    """A variable: what is kept from run to run, zero at first."""
    return lambda _: T(shape=shape, is_variable=True)


def none(_: np.random.Generator) -> None:
    """An input that is left out."""
    return


F32 = T()
RELU, RELU6 = {"fusedActivationFunction": 1}, {"fusedActivationFunction": 3}


def qt(dtype: str = "int8", scale: float = 0.02, zero: int = 0) -> T:
    """A quantised result."""
    return T(dtype=dtype, scales=[scale], zeros=[zero])


def it(dtype: str = "int32") -> T:
    """A result of plain integers or booleans."""
    return T(dtype=dtype)


_SHARED = {
    **dict.fromkeys(("MEAN", "SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN"), "ReducerOptions"),
    **dict.fromkeys(("REDUCE_ALL", "REDUCE_ANY"), "ReducerOptions"),
    **dict.fromkeys(("MAX_POOL_2D", "AVERAGE_POOL_2D", "L2_POOL_2D"), "Pool2DOptions"),
    **dict.fromkeys(("MAXIMUM", "MINIMUM"), "MaximumMinimumOptions"),
    "CONV_3D_TRANSPOSE": "Conv3DOptions",
    "L2_NORMALIZATION": "L2NormOptions",
    "UNIDIRECTIONAL_SEQUENCE_RNN": "SequenceRNNOptions",
}
"""Operator -> the record of its options, where it is not called after the operator alone."""
_RECORDS = {name.lower(): name for name in vars(schema) if name.endswith("Options")}


def _options_of(kind: str) -> str:
    return _SHARED.get(kind, _RECORDS.get(f"{kind.replace('_', '')}Options".lower(), ""))


def one(
    kind: str,
    inputs: Sequence[Make],
    results: Sequence[T] = (F32,),
    values: Mapping[str, Any] | None = None,
    custom: bytes | None = None,
    reference: Reference = None,
) -> Build:
    """A model of one operator."""

    def build(r: np.random.Generator) -> tuple[ModelBuilder, Reference]:
        made = ModelBuilder()
        graph = made.graph()
        tensors = [make(r) for make in inputs]
        indices = [graph.add(_with_scales(t, tensors)) for t in tensors]
        graph.outputs = graph.op(
            kind, indices, results, _options_of(kind), dict(values or {}), custom
        )
        return made, reference

    return build


def _with_scales(tensor: T | None, others: Sequence[T | None]) -> T | None:
    """A bias has the scales of the products that it is added to."""
    if tensor is None or tensor.dtype not in ("int32", "int64") or not tensor.scales:
        return tensor
    scales = np.ones(1)
    for other in others:
        if other is not None and other is not tensor and other.scales:
            scales = scales * np.asarray(other.scales, np.float32)
    return replace(tensor, scales=list(scales), zeros=[0] * scales.size)


def load_recipes() -> dict[str, Recipe]:
    from tests.tflite import cases_control, cases_math, cases_move, cases_product, cases_window

    found: dict[str, Recipe] = {}
    for part in (cases_math, cases_move, cases_window, cases_product, cases_control):
        for recipe in part.recipes():
            if recipe.name in found:
                raise ValueError(f"two cases are called {recipe.name}")
            found[recipe.name] = recipe
    return found


def recipe(
    operator: str, suffix: str, *args, tolerance: float = 1e-4, exact: bool = False, **options
) -> Recipe:
    """A recipe of one operator, named after it."""
    name, build = (
        "_".join(filter(None, (operator.lower(), suffix))),
        one(operator, *args, **options),
    )
    return Recipe(name=name, operator=operator, build=build, tolerance=tolerance, exact=exact)


def excluded(operator: str, reason: str) -> Recipe:
    """An operator without a case."""
    return Recipe(name=operator.lower(), operator=operator, excluded=reason)


Recipes = Iterator[Recipe]
