"""Run the model file itself with onnxruntime or LiteRT, in this process; what it is fed and asked
for is held against what the model takes and computes.

Who wants numbers to hold ours against asks `adrenoc.check.reference`, which runs this in a process
of its own: a runtime that crashes takes no more than that along. Of a TFLite file the main graph is
called, or that of the signature whose inputs are given; inputs whose extents the file leaves open
are resized first.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx

from adrenoc.base.errors import DependencyError, InputError, ModelFormatError, ToolError
from adrenoc.base.host.extras import import_onnxruntime, pip_install, runtime_errors
from adrenoc.base.text.spelling import list_first
from adrenoc.bundle.chat import IMAGE_ROWS, TOKENS
from adrenoc.check.inputs import Inputs
from adrenoc.importers.formats import find_model_files
from adrenoc.importers.onnx.contrib_quantised import OPENED, open_layers
from adrenoc.importers.onnx.load import load_onnx, read_proto
from adrenoc.importers.onnx.session import (
    mixes_signs,
    open_session,
    stores_halves,
    widen_tensors,
    with_embedding,
)
from adrenoc.importers.tflite.file import widen_weights
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
    """Return the outputs of a call and its intermediate `tensors`, by name (`list_tensors`). Raises
    InputError where an input is missing or does not fit, or a tensor is unknown; RuntimeError where
    LiteRT fails."""
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
    interpreter: Any, model: Path, outputs: Sequence[int], tensors: tuple[str, ...], number: int
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


ONNX_RUNTIME = "onnxruntime"
_LACKS_A_KERNEL = "NotImplemented"
"""What onnxruntime raises for operators that it has, though not of the model's types."""

BLOCK_PRODUCT, _ROUNDING = "MatMulNBits", "accuracy_level"
"""onnxruntime's operator of weights of few bits, and its leave to round data to bytes for it."""
_EXACT_LEVEL = 1
"""The highest that computes in float32."""

PLAIN, REFERENCE_KERNELS, UNSIGNED = "plain kernels", "reference kernels", "unsigned bytes"
WIDENED = "floats in place of halves"
"""Other ways in which a runtime computes the same model."""

_DELEGATE = "Delegate"
"""A part of LiteRT's words where what it hands a network to does not take it."""
_UNRESOLVED = "unresolved custom op"
_INSTEAD = "of LiteRT its plain kernels compute the reference"


def run_reference(
    model: Path,
    inputs: Mapping[str, np.ndarray],
    *,
    tensors: Iterable[str] = (),
    optimise: bool = True,
    threads: int = 0,
) -> dict[str, np.ndarray]:
    """Run `model` on `inputs`; return its outputs and the intermediate `tensors`, all by name.

    With `optimise` off, onnxruntime fuses nothing and LiteRT uses its plain kernels: slower, but
    each tensor is what the file says. Asking for intermediate tensors switches it off. `threads` 0
    leaves the number to the runtime. TFLite models with data in float and weights in 8 bits are
    computed with those weights as floats (`tflite.float_weights`), and so are recurrent layers of
    ONNX that would round their data (`onnx.open_layers`). Raises InputError where an input is
    missing or does not fit, or a tensor is unknown; DependencyError where the package that runs
    this format is not installed; ModelFormatError where the runtime refuses the model.
    """
    wanted = tuple(dict.fromkeys(tensors))
    plain = not optimise or bool(wanted)
    if find_model_files(model).format == "tflite":
        return _run_tflite(model, inputs, wanted, plain=plain, threads=threads)
    return _run_onnx(model, inputs, wanted, plain=plain, threads=threads)


def run_reference_kernels(model: Path, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Run a TFLite `model` by LiteRT's reference kernels, whose integers are the format's own.
    Raises InputError where an input is missing or does not fit, DependencyError where LiteRT is not
    installed, ModelFormatError where it refuses the model."""
    return _run_tflite(model, inputs, (), plain=True, threads=0, kernels=REFERENCE_KERNELS)


def reference_version(kind: str) -> str:
    """Return the package that computes the reference for models of this format, with its version.
    Raises DependencyError where it is not installed."""
    package = "ai-edge-litert" if kind == "tflite" else "onnxruntime"
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError as error:
        raise DependencyError(
            f"{package}, which computes the reference for this model, is not installed",
            hint=pip_install("check"),
        ) from error


def other_kernels(
    model: Path, inputs: Mapping[str, np.ndarray]
) -> dict[str, dict[str, np.ndarray]]:
    """Return the outputs of the runtime's other kernels for the same model, by their names. Each
    rounds in its own way; those that refuse the model are left out."""
    tflite = find_model_files(model).format == "tflite"
    found = {}
    for kernels in (PLAIN, REFERENCE_KERNELS) if tflite else _onnx_kernels(model):
        with suppress(InputError, ModelFormatError, ToolError):
            run = _run_tflite if tflite else _run_onnx
            found[kernels] = run(model, inputs, (), plain=True, threads=0, kernels=kernels)
    return found


def _onnx_kernels(model: Path) -> tuple[str, ...]:
    graph = read_proto(model).graph
    return (PLAIN, UNSIGNED, *([WIDENED] if stores_halves(graph) else []))


def import_runtime(package: str, module: str, what: str) -> ModuleType:
    """Return a module of a package that is needed for this format alone. Raises DependencyError
    where it cannot be imported."""
    import importlib

    try:
        return import_onnxruntime() if module == ONNX_RUNTIME else importlib.import_module(module)
    except ImportError as error:
        raise DependencyError(
            f"{package}, which computes the reference for {what} models, cannot be imported: "
            f"{error}",
            hint=pip_install("check"),
        ) from error


def run_steps(
    model: Path,
    feeds: Sequence[Mapping[str, np.ndarray]],
    *,
    kept: Sequence[tuple[str, str]],
    tensors: Iterable[str] = (),
    optimise: bool = True,
) -> list[dict[str, np.ndarray]]:
    """Run a model once on each of `feeds`, and return what `run_reference` does of each run. `kept`
    are inputs and the outputs of the run before that they are; the first run is given them.
    Variables of a TFLite file go from run to run by themselves."""
    wanted = tuple(dict.fromkeys(tensors))
    if find_model_files(model).format == "tflite":
        interpreter = open_interpreter(model, feeds[0], keep_all=bool(wanted))
        return walk_calls(feeds, kept, lambda feed: _call_tflite(interpreter, model, feed, wanted))
    session = _open_session(model, wanted, plain=not optimise or bool(wanted), threads=0)
    return walk_calls(feeds, kept, lambda feed: _run_session(session, model, feed))


def _run_onnx(
    model: Path,
    inputs: Mapping[str, np.ndarray],
    tensors: tuple[str, ...],
    *,
    plain: bool,
    threads: int,
    kernels: str = PLAIN,
) -> dict[str, np.ndarray]:
    session = _open_session(model, tensors, plain=plain, threads=threads, kernels=kernels)
    return _run_session(session, model, inputs, widen=kernels == WIDENED)


def _open_session(
    model: Path, tensors: tuple[str, ...], *, plain: bool, threads: int, kernels: str = PLAIN
) -> Any:
    import_runtime(ONNX_RUNTIME, ONNX_RUNTIME, "ONNX")
    unsigned, found = kernels == UNSIGNED, find_rounding(model)
    source: Path | Any = model
    beside = None
    if tensors or kernels == WIDENED or OPENED in found:
        source = _change(model, tensors, widen=kernels == WIDENED)
    elif found:
        source, beside = read_proto(model), model.parent
        _round_nothing(source)
        if mixes_signs(source, as_unsigned=unsigned):
            source = _change(model, tensors, widen=False)
    plain &= kernels == PLAIN
    try:
        session = open_session(
            source, beside=beside, plain=plain, signed=not unsigned, threads=threads
        )
        return with_embedding(model, session)
    except runtime_errors() as error:
        if type(error).__name__ == _LACKS_A_KERNEL:
            raise ToolError(
                f"onnxruntime cannot compute {model}, so that there is nothing to compare with: "
                f"{error}",
                hint="leave --check out, or check the model exported with other types",
            ) from error
        raise ModelFormatError(
            f"onnxruntime refuses {model}: {error}", hint="python -m onnx.bin.checker MODEL"
        ) from error


def _run_session(
    session: Any, model: Path, inputs: Mapping[str, np.ndarray], *, widen: bool = False
) -> dict[str, np.ndarray]:
    feeds = select_feeds(model, inputs, [value.name for value in session.get_inputs()])
    if widen:
        feeds = {name: _widen(array) for name, array in feeds.items()}
    names = [value.name for value in session.get_outputs()]
    try:
        results = session.run(names, feeds)
    except runtime_errors() as error:
        raise _cannot_run("onnxruntime", model, inputs, error) from error
    return dict(zip(names, results, strict=True))


def _widen(array: np.ndarray) -> np.ndarray:
    """Halves as floats, of whatever package their dtype is."""
    return array.astype(np.float32) if str(array.dtype) in ("float16", "bfloat16") else array


def _cannot_run(
    runtime: str, model: Path, inputs: Mapping[str, np.ndarray], error: Exception
) -> InputError:
    """Whose numbers may be at fault: those drawn here, or those given."""
    drawn = inputs.drawn if isinstance(inputs, Inputs) else frozenset()
    random = [name for name in inputs if name in drawn]
    whole = [name for name in random if inputs[name].dtype.kind in "iub"]
    if whole:
        names = list_first((f"'{name}'" for name in whole), between=", ")
        return InputError(
            f"{runtime} cannot run {model}: {error}; {names} hold random numbers, as none were "
            "given, and these may not fit what the model does with them",
            hint=f"--input {whole[0]}=FILE.npy with numbers that fit",
        )
    if random and len(random) == len(inputs):
        return InputError(
            f"{runtime} cannot run {model} on random numbers: {error}",
            hint=f"--input {random[0]}=FILE.npy, or look for the fault in {runtime}",
        )
    return InputError(
        f"{runtime} cannot run {model} on the arrays given: {error}",
        hint="check the numbers in them: indices have to lie within what they index",
    )


def tensor_names(model: Path) -> frozenset[str]:
    """Return the names of all tensors that a model computes."""
    if find_model_files(model).format == "tflite":
        runtime = import_runtime("ai-edge-litert", "ai_edge_litert.interpreter", "TFLite")
        told = list_tensors(runtime.Interpreter(model_path=str(model)))
        return frozenset(str(detail["name"]) for detail in told.values())

    graph = read_proto(model).graph
    return frozenset(name for node in graph.node for name in node.output)


def find_rounding(model: Path) -> set[str]:
    """Return the operators of the model for which onnxruntime rounds data to bytes first."""

    def rounds(node: onnx.NodeProto) -> bool:
        if node.op_type == BLOCK_PRODUCT:
            return any(a.name == _ROUNDING and a.i > _EXACT_LEVEL for a in node.attribute)
        return bool(node.op_type == OPENED)

    nodes = read_proto(model).graph.node
    return {node.op_type for node in nodes if rounds(node)}


def _round_nothing(model: Any) -> None:
    """Take back the leave to round data for products of weights of few bits."""
    for node in model.graph.node:
        if node.op_type == BLOCK_PRODUCT:
            exact = [a for a in node.attribute if a.name != _ROUNDING]
            del node.attribute[:]
            node.attribute.extend(exact)


def _change(model: Path, tensors: tuple[str, ...], *, widen: bool) -> Any:
    """Return the model with `tensors` among its outputs and without roundings of data. To `widen`
    it makes floats of halves."""
    proto, _ = load_onnx(find_model_files(model))
    known = {name for node in proto.graph.node for name in node.output if name}
    present = {value.name for value in proto.graph.output}
    open_layers(proto)
    if widen:
        widen_tensors(proto)
    _round_nothing(proto)
    for name in tensors:
        check_tensor(model, name, known)
        if name not in present:
            proto.graph.output.append(onnx.ValueInfoProto(name=name))
    return proto


def _run_tflite(
    model: Path,
    inputs: Mapping[str, np.ndarray],
    tensors: tuple[str, ...],
    *,
    plain: bool,
    threads: int,
    kernels: str = PLAIN,
) -> dict[str, np.ndarray]:
    interpreter = open_interpreter(
        model, inputs, kernels=kernels if plain else "", keep_all=bool(tensors), threads=threads
    )
    return _call_tflite(interpreter, model, inputs, tensors)


def _call_tflite(
    interpreter: Any, model: Path, inputs: Mapping[str, np.ndarray], tensors: tuple[str, ...]
) -> dict[str, np.ndarray]:
    try:
        return call_graph(interpreter, model, inputs, tensors)
    except (RuntimeError, ValueError) as error:
        raise _cannot_run("LiteRT", model, inputs, error) from error


def open_interpreter(
    model: Path,
    inputs: Mapping[str, np.ndarray],
    *,
    kernels: str = "",
    keep_all: bool = False,
    threads: int = 0,
) -> Any:
    """LiteRT with the model, for inputs of these extents; floats have weights as floats. Raises
    DependencyError where LiteRT is not installed, ModelFormatError where it refuses the model."""
    runtime = import_runtime("ai-edge-litert", "ai_edge_litert.interpreter", "TFLite")
    schema = import_runtime("ai-edge-litert", "ai_edge_litert.schema_py_generated", "TFLite")
    types = runtime.OpResolverType
    chosen = {PLAIN: types.BUILTIN_WITHOUT_DEFAULT_DELEGATES, REFERENCE_KERNELS: types.BUILTIN_REF}

    def start(resolver: Any) -> Any:
        arguments = {
            "num_threads": threads or None,
            "experimental_preserve_all_tensors": keep_all,
            "experimental_op_resolver_type": resolver,
        }
        files = find_model_files(model)
        content, _ = files.read()
        if files.part is None:
            interpreter = runtime.Interpreter(model_path=str(model), **arguments)
        else:  # in a container
            interpreter = runtime.Interpreter(model_content=content, **arguments)
        floats = widen_weights(content, schema)
        if floats is not None:
            interpreter = runtime.Interpreter(model_content=floats, **arguments)
        resize_inputs(interpreter, inputs)  # as it lies in the file it may not fit itself
        interpreter.allocate_tensors()
        return interpreter

    try:
        try:
            return start(chosen.get(kernels, types.AUTO))
        except RuntimeError as error:
            if kernels in chosen or _DELEGATE not in str(error):
                raise
            print(f"  ! XNNPACK refuses {model}: {_INSTEAD}", file=sys.stderr)
            return start(chosen[PLAIN])
    except (RuntimeError, ValueError) as error:
        if _UNRESOLVED in str(error):
            raise ToolError(
                f"LiteRT cannot compute {model}, so that there is nothing to compare with: "
                f"{str(error).splitlines()[0]}",
                hint="leave --check out, and hold what --save FILE writes against the runtime that "
                "the model is made for",
            ) from error
        raise ModelFormatError(
            f"LiteRT refuses {model}: {error}", hint="convert or download the model again"
        ) from error
