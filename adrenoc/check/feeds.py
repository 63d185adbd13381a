"""What a runtime is fed, and asked for, held against what the model takes and computes.

Calls a graph of a TFLite file in LiteRT: the main one, or that of the signature whose inputs are
given; inputs whose extents the file leaves open are resized first.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from adrenoc.base.errors import InputError
from adrenoc.base.text.spelling import list_first
from adrenoc.bundle.decoder_names import IMAGE_ROWS, TOKENS
from adrenoc.importers.tflite.stored import number_names


def check_tensor(model: Path, name: str, known: Iterable[str]) -> None:
    """Refuse the name of a tensor that the model does not compute. Raises InputError naming the
    nearest."""
    names = list(known)
    if name in names:
        return
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    raise InputError(
        f"{model} computes no tensor '{name}'",
        hint=f"ask for '{near[0]}'" if near else "list its tensors with netron or onnx",
    )


def select_feeds(
    model: Path, inputs: Mapping[str, np.ndarray], names: list[str]
) -> dict[str, np.ndarray]:
    """Return the arrays of these inputs, and rows of pictures that a decoder is given. Raises
    InputError where one is missing."""
    missing = [name for name in names if name not in inputs]
    if missing:
        raise InputError(
            f"{model} takes {list_first(map(repr, names), between=', ')}; there is no array for "
            f"{list_first(map(repr, missing), between=', ')}",
            hint=f"--input {missing[0]}=FILE.npy",
        )
    rows = [IMAGE_ROWS] if TOKENS in names and IMAGE_ROWS in inputs else []
    return {name: inputs[name] for name in (*names, *rows)}


def _check_feed(model: Path, detail: dict[str, Any], array: np.ndarray) -> None:
    """Refuse an array that LiteRT's input cannot hold. Raises InputError where its shape or its
    type is another."""
    shape, dtype = tuple(int(d) for d in detail["shape"]), np.dtype(detail["dtype"])
    if array.shape != shape or array.dtype != dtype:
        raise InputError(
            f"the array for '{detail['name']}' of {model} is {array.dtype} {list(array.shape)}; "
            f"expected {dtype} {list(shape)}",
            hint=f"--input {detail['name']}=FILE.npy with that shape",
        )


Arrays = dict[str, np.ndarray]
Details = list[dict[str, Any]]


def walk_calls(
    feeds: Sequence[Mapping[str, np.ndarray]],
    kept: Sequence[tuple[str, str]],
    call: Callable[[Arrays], Arrays],
) -> list[Arrays]:
    """Return what calls make one after the other, each given what the one before has left. `kept`
    are inputs and the outputs that they are in the next call."""
    made: list[Arrays] = []
    for feed in feeds:
        before = made[-1] if made else {}
        carried = {past: before[present] for past, present in kept if present in before}
        made.append(call({**feed, **carried}))
    return made


def call_graph(
    interpreter: Any, model: Path, inputs: Mapping[str, np.ndarray], tensors: tuple[str, ...]
) -> dict[str, np.ndarray]:
    """Return the outputs of a call and its intermediate `tensors`, by name (`list_tensors`).

    Raises InputError where an input is missing or does not fit, or a tensor is unknown;
    RuntimeError where LiteRT fails.
    """
    if {d["name"] for d in _list_inputs(interpreter)} <= inputs.keys():
        return _call_main(interpreter, model, inputs, tensors)
    for key in interpreter.get_signature_list():
        runner = interpreter.get_signature_runner(key)
        number = _find_graph(interpreter, runner.get_input_details())
        known = list_tensors(interpreter, number)
        taken = {key: known[d["index"]] for key, d in runner.get_input_details().items()}
        if {d["name"] for d in taken.values()} <= inputs.keys():
            return _call_signature(interpreter, runner, model, inputs, tensors, number)
    return _call_main(interpreter, model, inputs, tensors)  # it says what is missing


def list_tensors(interpreter: Any, number: int = 0) -> dict[int, dict[str, Any]]:
    """Return what LiteRT tells of each tensor by index, with names as the importer's."""
    told = {d["index"]: d for d in interpreter.get_tensor_details(number)}
    names = number_names(told[at]["name"] if at in told else "" for at in range(max(told) + 1))
    return {index: {**detail, "name": names[index]} for index, detail in told.items()}


def _list_inputs(interpreter: Any) -> Details:
    known = list_tensors(interpreter)
    return [known[detail["index"]] for detail in interpreter.get_input_details()]


def _call_main(
    interpreter: Any, model: Path, inputs: Mapping[str, np.ndarray], tensors: tuple[str, ...]
) -> dict[str, np.ndarray]:
    feeds = select_feeds(model, inputs, [d["name"] for d in _list_inputs(interpreter)])
    if resize_inputs(interpreter, inputs):
        interpreter.allocate_tensors()
    for detail in _list_inputs(interpreter):
        _check_feed(model, detail, feeds[detail["name"]])
        interpreter.set_tensor(detail["index"], feeds[detail["name"]])
    interpreter.invoke()
    made = [detail["index"] for detail in interpreter.get_output_details()]
    return _read(interpreter, model, made, tensors, 0)


def resize_inputs(interpreter: Any, inputs: Mapping[str, np.ndarray]) -> bool:
    """Give the main graph's open inputs the extents that are given; whether any had others."""
    details = _list_inputs(interpreter)
    resized = [d for d in details if d["name"] in inputs and _is_resized(d, inputs[d["name"]])]
    for detail in resized:
        interpreter.resize_tensor_input(detail["index"], inputs[detail["name"]].shape)
    return bool(resized)


def _call_signature(
    interpreter: Any,
    runner: Any,
    model: Path,
    inputs: Mapping[str, np.ndarray],
    tensors: tuple[str, ...],
    number: int,
) -> dict[str, np.ndarray]:
    known = list_tensors(interpreter, number)
    taken = {key: known[d["index"]] for key, d in runner.get_input_details().items()}
    for detail in taken.values():
        if not _is_resized(detail, inputs[detail["name"]]):
            _check_feed(model, detail, inputs[detail["name"]])
    made = runner(**{key: inputs[detail["name"]] for key, detail in taken.items()})
    given = {key: known[d["index"]]["name"] for key, d in runner.get_output_details().items()}
    outputs = {name: np.array(made[key]) for key, name in given.items()}
    left = tuple(name for name in tensors if name not in outputs)
    return {**outputs, **_read(interpreter, model, [], left, number)}


def _find_graph(interpreter: Any, taken: Mapping[str, Mapping[str, Any]]) -> int:
    """Return the number of the graph that has these inputs."""
    wanted = {(detail["index"], detail["name"]) for detail in taken.values()}
    for number in range(interpreter.num_subgraphs()):
        if wanted <= {(d["index"], d["name"]) for d in interpreter.get_tensor_details(number)}:
            return number
    raise RuntimeError("LiteRT knows no graph of the signature")


def _read(
    interpreter: Any,
    model: Path,
    outputs: Sequence[int],
    tensors: tuple[str, ...],
    number: int,
) -> dict[str, np.ndarray]:
    known = list_tensors(interpreter, number)
    wanted = {known[index]["name"]: index for index in outputs}
    indices = {detail["name"]: index for index, detail in known.items()}
    for name in tensors:
        check_tensor(model, name, indices)
        wanted.setdefault(name, indices[name])
    return {name: np.array(interpreter.get_tensor(at, number)) for name, at in wanted.items()}


def _is_resized(detail: Mapping[str, Any], array: np.ndarray) -> bool:
    """Return whether an array has other extents than LiteRT's open input now."""
    now, said = list(detail["shape"]), list(detail["shape_signature"])
    if list(array.shape) == now or len(now) != array.ndim or len(said) != array.ndim:
        return False
    return all(a == b or s < 0 for a, b, s in zip(array.shape, now, said, strict=True))
