"""Compute what references are asked, in a process that reads questions and writes answers.

Pipes carry both.  A question is a function of `_FUNCTIONS`: outputs by onnxruntime or LiteRT; a
TFLite decoder over some tokens, one call a token with its caches handed on; and where two disagree,
who is right.  onnxruntime computes in float32 as we do, and some of its ways lose all digits that
there are: the variance as a difference of squares, the logarithm of a sigmoid that has become zero.
onnx's own evaluator computes the same file in float64, as near to exact arithmetic as matters,
which settles whose the error is and how far onnxruntime as programs here have it is off.
"""

import os
import pickle
import signal
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from adrenoc.base.errors import AdrenocError, ModelFormatError
from adrenoc.base.host.extras import runtime_errors
from adrenoc.check.runtimes import (
    BLOCK_PRODUCT,
    find_rounding,
    open_interpreter,
    other_kernels,
    run_reference,
    run_reference_kernels,
    run_steps,
    select_feeds,
)
from adrenoc.device.compare import compare
from adrenoc.importers.formats import find_model_files
from adrenoc.importers.imported import CONVERTER_ERRORS
from adrenoc.importers.onnx.contrib_quantised import OPENED, open_layers
from adrenoc.importers.onnx.load import load_onnx, read_proto
from adrenoc.importers.onnx.session import (
    mixes_signs,
    open_as_installed,
    saturates,
    widen_tensors,
    with_embedding,
)
from adrenoc.importers.tflite.decoder_calls import (
    DECODE,
    LOGITS,
    MASKS,
    POSITIONS,
    TOKENS,
    mask_values,
)

_MOST_BYTES = 1 << 28
"""Of a model that is computed so: larger ones would take too long."""
_STASH = "stash_type"
"""The attribute by which norms name the type that they compute in; float32 where it is absent."""


def run_exact(model: Path, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Compute the outputs of an ONNX model in float64; none where that cannot be done. That is
    where onnx's evaluator lacks an operator, of TFLite, and of large models."""
    files = find_model_files(model)
    if files.format == "tflite" or sum(p.stat().st_size for p in files.paths) > _MOST_BYTES:
        return {}
    from onnx.reference import ReferenceEvaluator

    proto, _ = load_onnx(files)
    open_layers(proto)
    _state_types(proto)
    widen_tensors(proto, onnx.TensorProto.DOUBLE)
    feeds = {n: v.astype(np.float64) if v.dtype.kind == "f" else v for n, v in inputs.items()}
    names = [value.name for value in proto.graph.output]
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = ReferenceEvaluator(proto).run(names, feeds)
    except CONVERTER_ERRORS:
        return {}
    return {name: np.asarray(value) for name, value in zip(names, values, strict=True)}


def _state_types(model: onnx.ModelProto) -> None:
    """Write down the type that norms compute in, so that it can be another one."""
    for node in model.graph.node:
        opset = next((o.version for o in model.opset_import if o.domain == node.domain), 0)
        try:
            known = onnx.defs.get_schema(node.op_type, opset, node.domain).attributes
        except onnx.defs.SchemaError:
            continue
        if _STASH in known and not any(a.name == _STASH for a in node.attribute):
            node.attribute.append(onnx.helper.make_attribute(_STASH, onnx.TensorProto.FLOAT))


_WHY = {
    BLOCK_PRODUCT: "its accuracy_level lets it round data to bytes for products of few bits",
    OPENED: "it rounds data and states of recurrent layers to bytes",
}


def explain_installed(
    model: Path, inputs: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]
) -> str:
    """Say by how much onnxruntime's own outputs differ from `expected`, which are exact. Empty
    where they do not, and where nothing is in the model that it computes otherwise."""
    if find_model_files(model).format == "tflite":
        return ""
    why = [_WHY[operator] for operator in sorted(find_rounding(model))]
    if saturates() and mixes_signs(read_proto(model)):
        why.append("its CPU has no VNNI, and products of uint8 by int8 saturate")
    if not why:
        return ""
    with suppress(*runtime_errors()):  # what it refuses says nothing of its numbers
        session = with_embedding(model, open_as_installed(model))
        feeds = select_feeds(model, inputs, [value.name for value in session.get_inputs()])
        names = [value.name for value in session.get_outputs()]
        seen = dict(zip(names, session.run(names, feeds), strict=True))
        checked = compare({n: seen[n] for n in expected if n in seen}, expected, tolerance=0.0)
        worst = max(checked.tensors, key=lambda tensor: tensor.range_error, default=None)
        if worst is not None and worst.range_error > 0:
            return (
                f"onnxruntime on this computer is off the exact arithmetic by "
                f"{worst.range_error:.1e} of the range of `{worst.name}`: {'; '.join(why)}; ours "
                "are held against the exact ones"
            )
    return ""


def run_tokens(model: Path, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the logits after each of `inputs["tokens"]`, [tokens, vocabulary]. Raises as
    `open_interpreter` does."""
    run = open_interpreter(model, {}).get_signature_runner(DECODE)
    details = run.get_input_details()
    known = (*TOKENS, *POSITIONS, *MASKS)
    caches = {
        name: np.zeros(told["shape"], told["dtype"])
        for name, told in details.items()
        if name not in known
    }
    rows = []
    for position, token in enumerate(inputs["tokens"]):
        given = {}
        for name, told in details.items():
            shape, dtype = tuple(int(extent) for extent in told["shape"]), told["dtype"]
            if name in TOKENS:
                given[name] = np.full(shape, token, dtype)
            elif name in POSITIONS:
                given[name] = np.full(shape, position, dtype)
            elif name in MASKS:
                given[name] = mask_values(np.array([position]), shape, np.dtype(dtype).name)
        try:
            found = run(**given, **caches)
        except (RuntimeError, ValueError) as error:
            raise ModelFormatError(
                f"LiteRT cannot run {model}: {error}", hint="convert or download the model again"
            ) from error
        caches = {name: found[name] for name in caches}
        rows.append(found[LOGITS].reshape(-1))
    return {LOGITS: np.stack(rows)}


_FUNCTIONS = {
    function.__name__: function
    for function in (
        explain_installed,
        other_kernels,
        run_exact,
        run_reference,
        run_reference_kernels,
        run_steps,
        run_tokens,
    )
}


def main() -> None:
    """Answer until nobody asks any more."""
    # An interruption is for who asks, and ends this process by the end of the questions.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Who is killed leaves a question half asked, or an answer with nobody to read it: closing the
    # pipe would write that once more.
    with suppress(BrokenPipeError), os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what the runtimes print is no answer
        while True:
            try:
                question = pickle.load(sys.stdin.buffer)
            except (EOFError, pickle.UnpicklingError):
                return
            pickle.dump(_answer(*question), answers, protocol=pickle.HIGHEST_PROTOCOL)
            answers.flush()


def _answer(
    folder: str, function: str, model: Any, inputs: Any, more: dict[str, Any]
) -> tuple[str, Any]:
    with suppress(OSError):
        os.chdir(folder)
    try:
        return "done", _FUNCTIONS[function](model, inputs, **more)
    except AdrenocError as error:
        return "refused", (type(error).__name__, error.message, error.hint)
    except MemoryError:
        return "memory", None


if __name__ == "__main__":
    main()
