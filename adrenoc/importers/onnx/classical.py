"""Operators of scikit-learn's pipelines (domain ai.onnx.ml), in standard ones.

Before -> after:
    y = ai.onnx.ml.Scaler(x)               y = (x - offset) * scale
    label, z = LinearClassifier(x)         z = Softmax(x W + b), label = classes[ArgMax(z)]

Source: the reference of ONNX's ML operators, and onnxruntime where that says nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from adrenoc.importers.onnx.writer import CannotWriteError, Writer

ML_DOMAIN = "ai.onnx.ml"
_FLOAT = 1
_INT64 = 7


def read_floats(write: Writer) -> str:
    """The first input in float32, in which these operators compute."""
    x = write.input(0)
    return x if write.dtype(x) == "float32" else write("Cast", x, to=_FLOAT)


def list_attribute(write: Writer, name: str, dtype: Any = np.float32) -> np.ndarray:
    """An attribute that is a list of numbers; empty where it is not given.

    Raises:
        CannotWriteError: it is given as a tensor, as newer versions can have it.
    """
    if f"{name}_as_tensor" in write.attrs:
        raise CannotWriteError(f"its {name} are a tensor of doubles; expected a list of floats")
    return np.asarray(write.attrs.get(name, ()), dtype)


def transform_scores(write: Writer, scores: str, out: str = "") -> str:
    """What becomes of sums at the end.

    Raises:
        CannotWriteError: it is none of the transforms that are in use.
    """
    name = write.text("post_transform", "NONE")
    if name == "SOFTMAX":
        return write("Softmax", scores, out=out, axis=1)
    known = {"NONE": "Identity", "LOGISTIC": "Sigmoid"}
    if name not in known:
        raise CannotWriteError(f"post_transform {name} is none of NONE, LOGISTIC and SOFTMAX")
    return write(known[name], scores, out=out)


def read_classes(write: Writer) -> np.ndarray:
    """The labels of the classes.

    Raises:
        CannotWriteError: they are words.
    """
    for name in ("classlabels_strings", "classlabels_ints", "classlabels_int64s"):
        labels = write.attrs.get(name)
        if labels and name == "classlabels_strings":
            raise CannotWriteError("its classes are words: train it with classes 0, 1, ...")
        if labels:
            return np.asarray(labels, np.int64)
    raise CannotWriteError("it names no classes")


def write_labels(write: Writer, scores: str, classes: np.ndarray) -> None:
    """The class of the largest score of each row, as the first output."""
    if np.array_equal(classes, np.arange(len(classes))):
        write("ArgMax", scores, out=write.result, axis=1, keepdims=0)
        return
    best = write("ArgMax", scores, axis=1, keepdims=0)
    write("Gather", write.array(classes), best, out=write.result, axis=0)


def _scaler(write: Writer) -> None:
    x = read_floats(write)
    offset, scale = (list_attribute(write, name) for name in ("offset", "scale"))
    moved = write("Sub", x, write.array(offset)) if offset.size else x
    factor = write.array(scale if scale.size else np.ones(1, np.float32))
    write("Mul", moved, factor, out=write.result)


def _normalizer(write: Writer) -> None:
    """Rows by their largest number, sum or length; rows of zeros stay as they are."""
    _need_opset(write)
    x, norm, shape = read_floats(write), write.text("norm", "MAX"), write.shape(write.input(0))
    axis = len(shape) - 1
    if norm == "MAX" and write.opset < 18:
        size = write("ReduceMax", x, axes=[axis], keepdims=1)
    elif norm == "MAX":
        size = write("ReduceMax", x, write.array(np.array([axis])), keepdims=1)
    elif norm in ("L1", "L2"):
        parts = write("Abs", x) if norm == "L1" else write("Mul", x, x)
        size = write.reshape(write.total(parts, axis), *shape[:-1], 1)
        size = write("Sqrt", size) if norm == "L2" else size
    else:
        raise CannotWriteError(f"norm {norm} is none of MAX, L1 and L2")
    zero, one = (write.array(np.float32(v)) for v in (0, 1))
    write("Div", x, write("Where", write("Equal", size, zero), one, size), out=write.result)


def _need_opset(write: Writer) -> None:
    """Choices between floats, and their equality, are older in no model.

    Raises:
        CannotWriteError: the model's standard operators are older.
    """
    if write.opset < 11:
        raise CannotWriteError(
            f"the model is of opset {write.opset}; expected 11 or newer: convert it with that"
        )


def _linear(write: Writer, weights: np.ndarray, bias: np.ndarray) -> str:
    """x W + b of coefficients that lie row after row."""
    depth = write.shape(write.input(0))[-1]
    if weights.size == 0 or weights.size % depth:
        raise CannotWriteError(f"it has {weights.size} coefficients for {depth} features")
    rows = np.ascontiguousarray(weights.reshape(-1, depth).T)
    total = write("MatMul", read_floats(write), write.array(rows))
    return write("Add", total, write.array(bias)) if bias.size else total


def _linear_regressor(write: Writer) -> None:
    names = ("coefficients", "intercepts")
    total = _linear(write, *(list_attribute(write, name) for name in names))
    transform_scores(write, total, write.result)


def _linear_classifier(write: Writer) -> None:
    classes = read_classes(write)
    weights, bias = (list_attribute(write, name) for name in ("coefficients", "intercepts"))
    if weights.size != len(classes) * write.shape(write.input(0))[-1]:
        raise CannotWriteError(f"it has one row of coefficients for {len(classes)} classes")
    scores = _linear(write, weights, bias)
    write_labels(write, scores, classes)
    transform_scores(write, scores, write.output(1))


def _binarizer(write: Writer) -> None:
    bound = write.array(np.float32(write.number("threshold", 0.0)))
    above = write("Greater", read_floats(write), bound)
    write("Cast", above, out=write.result, to=write.element(write.input(0)))


def _imputer(write: Writer) -> None:
    _need_opset(write)
    x, wanted = write.input(0), list_attribute(write, "imputed_value_floats")
    if write.dtype(x) != "float32" or not wanted.size:
        raise CannotWriteError("it replaces integers; expected float32")
    missing = write.number("replaced_value_float", 0.0)
    if np.isnan(missing):
        found = write("IsNaN", x)
    else:
        found = write("Equal", x, write.array(np.float32(missing)))
    write("Where", found, write.array(wanted), x, out=write.result)


def _array_feature_extractor(write: Writer) -> None:
    """Columns of the last axis; of a line they become one row."""
    x, places = write.input(0), write.input(1)
    shape = write.shape(x)
    flat = write.reshape(places, -1)
    if len(shape) == 1:
        taken = write("Gather", x, flat, axis=0)
        write.reshape(taken, 1, -1, out=write.result)
    else:
        write("Gather", x, flat, out=write.result, axis=len(shape) - 1)


def _feature_vectorizer(write: Writer) -> None:
    parts = []
    for name in write.node.input:
        rows = write.reshape(name, write.shape(name)[0], -1)
        parts.append(rows if write.dtype(name) == "float32" else write("Cast", rows, to=_FLOAT))
    write("Concat", *parts, out=write.result, axis=1)


def _one_hot_encoder(write: Writer) -> None:
    """A last axis with one for each category, which is 1 where the number is that one."""
    _need_opset(write)
    categories = np.asarray(write.attrs.get("cats_int64s", ()), np.int64)
    if not categories.size:
        raise CannotWriteError("its categories are words: encode them before the model")
    x = write.input(0)
    if write.dtype(x) != "int64":
        x = write("Cast", x, to=_INT64)
    apart = write.reshape(x, *write.shape(write.input(0)), 1)
    same = write("Equal", apart, write.array(categories))
    write("Cast", same, out=write.result, to=_FLOAT)


def _read_table(write: Writer, name: str) -> np.ndarray:
    """The keys or the values of a LabelEncoder.

    Raises:
        CannotWriteError: they are words.
    """
    if f"{name}_tensor" in write.attrs:
        table = onnx.numpy_helper.to_array(write.attrs[f"{name}_tensor"]).reshape(-1)
    elif f"{name}_int64s" in write.attrs:
        table = np.asarray(write.attrs[f"{name}_int64s"], np.int64)
    else:
        table = np.asarray(write.attrs.get(f"{name}_floats", ()), np.float32)
    if not table.size or table.dtype.kind not in "fi":
        raise CannotWriteError(f"its {name} are words: encode them before the model")
    return table


def _label_encoder(write: Writer) -> None:
    """The value of the first key that a number equals, or the default where none does."""
    _need_opset(write)
    keys, values = (_read_table(write, name) for name in ("keys", "values"))
    if len(keys) != len(values) or (keys.dtype.kind == "f" and np.isnan(keys).any()):
        raise CannotWriteError(f"it has {len(values)} values for {len(keys)} keys, or keys of NaN")
    is_whole = values.dtype.kind == "i"
    default = write.attrs.get("default_int64", -1) if is_whole else write.number("default_float", 0)
    if "default_tensor" in write.attrs:
        default = onnx.numpy_helper.to_array(write.attrs["default_tensor"]).reshape(-1)[0]
    x = write.input(0)
    apart = write.reshape(x, *write.shape(x), 1)
    same = write("Cast", write("Equal", apart, write.array(keys)), to=_FLOAT)
    # Behind all keys stands one that is always equal, but less so.
    some = write.array(np.full((*write.shape(x), 1), 0.5, np.float32))
    found = write("ArgMax", write("Concat", same, some, axis=-1), axis=-1, keepdims=0)
    table = np.append(values, np.asarray(default, values.dtype))
    write("Gather", write.array(table), found, out=write.result, axis=0)


def _zip_map(write: Writer) -> None:
    raise CannotWriteError(
        "it makes maps of words: convert with options={'zipmap': False} (skl2onnx), zipmap=False"
    )


CLASSICAL: dict[str, Callable[[Writer], None]] = {
    "ArrayFeatureExtractor": _array_feature_extractor,
    "Binarizer": _binarizer,
    "FeatureVectorizer": _feature_vectorizer,
    "Imputer": _imputer,
    "LabelEncoder": _label_encoder,
    "LinearClassifier": _linear_classifier,
    "LinearRegressor": _linear_regressor,
    "Normalizer": _normalizer,
    "OneHotEncoder": _one_hot_encoder,
    "Scaler": _scaler,
    "ZipMap": _zip_map,
}
