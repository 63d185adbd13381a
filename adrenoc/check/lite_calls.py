"""Calls a graph of a TFLite file in LiteRT: the main one, or that of the signature whose inputs are
given; inputs whose extents the file leaves open are resized first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from adrenoc.check.feeds import check_feed, check_tensor, select_feeds

Arrays = dict[str, np.ndarray]
Details = list[dict[str, Any]]


def walk_calls(
    feeds: Sequence[Mapping[str, np.ndarray]],
    kept: Sequence[tuple[str, str]],
    call: Callable[[Arrays], Arrays],
) -> list[Arrays]:
    """What calls make one after the other, each given what the one before has left.

    `kept` are inputs and the outputs that they are in the next call.
    """
    made: list[Arrays] = []
    for feed in feeds:
        before = made[-1] if made else {}
        carried = {past: before[present] for past, present in kept if present in before}
        made.append(call({**feed, **carried}))
    return made


def call_graph(
    interpreter: Any, model: Path, inputs: Mapping[str, np.ndarray], tensors: tuple[str, ...]
) -> dict[str, np.ndarray]:
    """The outputs of a call and its intermediate `tensors`, by the names that tensors have.

    Raises:
        InputError: an input is missing or does not fit, or a tensor is unknown.
        RuntimeError: LiteRT fails.
    """
    main = interpreter.get_input_details()
    if {d["name"] for d in main} <= inputs.keys():
        return _call_main(interpreter, model, inputs, tensors)
    for key in interpreter.get_signature_list():
        runner = interpreter.get_signature_runner(key)
        taken = runner.get_input_details()
        if {d["name"] for d in taken.values()} <= inputs.keys():
            return _call_signature(interpreter, runner, model, inputs, tensors)
    return _call_main(interpreter, model, inputs, tensors)  # it says what is missing


def _call_main(
    interpreter: Any, model: Path, inputs: Mapping[str, np.ndarray], tensors: tuple[str, ...]
) -> dict[str, np.ndarray]:
    details = interpreter.get_input_details()
    feeds = select_feeds(model, inputs, [d["name"] for d in details])
    if resize_inputs(interpreter, inputs):
        interpreter.allocate_tensors()
        details = interpreter.get_input_details()
    for detail in details:
        check_feed(model, detail, feeds[detail["name"]])
        interpreter.set_tensor(detail["index"], feeds[detail["name"]])
    interpreter.invoke()
    return _read(interpreter, model, interpreter.get_output_details(), tensors, 0)


def resize_inputs(interpreter: Any, inputs: Mapping[str, np.ndarray]) -> bool:
    """Give the main graph's open inputs the extents that are given; whether any had others."""
    details = interpreter.get_input_details()
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
) -> dict[str, np.ndarray]:
    taken = runner.get_input_details()
    for detail in taken.values():
        if not _is_resized(detail, inputs[detail["name"]]):
            check_feed(model, detail, inputs[detail["name"]])
    made = runner(**{key: inputs[detail["name"]] for key, detail in taken.items()})
    given = runner.get_output_details()
    outputs = {detail["name"]: np.array(made[key]) for key, detail in given.items()}
    left = tuple(name for name in tensors if name not in outputs)
    number = _find_graph(interpreter, list(taken.values())) if left else 0
    return {**outputs, **_read(interpreter, model, [], left, number)}


def _find_graph(interpreter: Any, taken: Details) -> int:
    """The number of the graph that has these inputs."""
    wanted = {(detail["index"], detail["name"]) for detail in taken}
    for number in range(interpreter.num_subgraphs()):
        if wanted <= {(d["index"], d["name"]) for d in interpreter.get_tensor_details(number)}:
            return number
    raise RuntimeError("LiteRT knows no graph of the signature")


def _read(
    interpreter: Any, model: Path, outputs: Details, tensors: tuple[str, ...], number: int
) -> dict[str, np.ndarray]:
    wanted = {detail["name"]: detail["index"] for detail in outputs}
    known = {d["name"]: d["index"] for d in interpreter.get_tensor_details(number)}
    for name in tensors:
        check_tensor(model, name, known)
        wanted.setdefault(name, known[name])
    return {name: np.array(interpreter.get_tensor(at, number)) for name, at in wanted.items()}


def _is_resized(detail: Mapping[str, Any], array: np.ndarray) -> bool:
    """Whether an array has other extents than LiteRT's input now, where the file leaves them
    open."""
    now, said = list(detail["shape"]), list(detail["shape_signature"])
    if list(array.shape) == now or len(now) != array.ndim or len(said) != array.ndim:
        return False
    return all(a == b or s < 0 for a, b, s in zip(array.shape, now, said, strict=True))
