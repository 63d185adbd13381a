"""A call of a TFLite decoder, for some tokens and over caches of some rows, to Relax."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from adrenoc.base.decision import Decision
from adrenoc.base.errors import OptionError
from adrenoc.base.text.spelling import list_first
from adrenoc.bundle.manifest import TensorSpec
from adrenoc.importers.imported import Imported
from adrenoc.importers.tflite.converter import GraphConverter
from adrenoc.importers.tflite.decoder.find_attention import DecoderAttention
from adrenoc.importers.tflite.decoder.join import PAST_LENGTH, TOKENS, join_call
from adrenoc.importers.tflite.decoder.own_ops import DECODER_OPS, PRODUCT
from adrenoc.importers.tflite.decoder.roles import Call, read_calls
from adrenoc.importers.tflite.file import GraphInfo, TensorInfo, TFLiteFile
from adrenoc.importers.tflite.refusals import check_imported, check_operators


def import_call(file: TFLiteFile, sha256: str, shapes: Mapping[str, tuple[int, ...]]) -> Imported:
    """Import the call of the tokens that `shapes` has, over caches of its rows.

    Raises:
        OptionError: the file has no such call, or caches of fewer rows.
        CustomDomainError, UnsupportedOperatorError: every operator concerned is named.
    """
    call, rows = _choose(file, shapes)
    graph, found = join_call(file, call, rows)
    check_operators((graph,), DECODER_OPS)
    inputs = [_spec(graph.tensors[index], rows, call.length) for index in graph.inputs]
    whole = replace(file, graphs=(graph, *file.graphs), entry=0)
    converter = GraphConverter(whole, inputs, DECODER_OPS)
    module = converter.convert()
    check_imported(converter)
    states = tuple((name, f"{name}/next") for name in call.caches)
    outputs = tuple(
        TensorSpec(name=graph.tensors[index].name, shape=shape, dtype=graph.tensors[index].dtype)
        for index, shape in zip(graph.outputs, converter.shapes, strict=True)
    )
    return Imported(
        module=module,
        format="tflite",
        inputs=tuple(inputs),
        outputs=outputs[: len(outputs) - len(states)],
        decisions=(*_explain(call, graph, found, rows), *converter.decisions()),
        model_sha256=sha256,
        tensors=converter.names,
        states=states,
    )


def _choose(file: TFLiteFile, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Call, int]:
    calls = {call.length: call for call in read_calls(file)}
    wanted = shapes.get(TOKENS, (1, 1))[-1]
    call = calls.get(wanted)
    if call is None:
        lengths = list_first(map(str, calls), between=", ")
        raise OptionError(
            f"the file has no signature of {wanted} tokens, expected one of {lengths}",
            hint=f"adrenoc compile MODEL --prefill {max(calls)}",
        )
    rows = next(shapes[name][2] for name in call.caches)
    return call, rows


def _spec(info: TensorInfo, rows: int, tokens: int) -> TensorSpec:
    bounds = (0, max(rows - tokens, 0)) if info.name == PAST_LENGTH else ()
    return TensorSpec(name=info.name, shape=info.shape, dtype=info.dtype, bounds=bounds)


def _explain(
    call: Call, graph: GraphInfo, found: list[DecoderAttention], rows: int
) -> list[Decision]:
    windows = sorted({one.window for one in found if one.window})
    kept = [one for one in graph.operators if one.kind == PRODUCT]
    decisions = [
        Decision(
            subject=f"{len(call.caches)} states",
            taken=f"caches of {rows} rows, written in place",
            reason=f"the signature '{call.key}' takes and gives them under one name",
        ),
        Decision(
            subject=f"{len(found)} attentions",
            taken="read and write their caches in place",
            reason="products, masks and softmax are those of an attention over the rows up to "
            "each token" + (f", of the last {windows[0]} in some" if windows else ""),
        ),
    ]
    if kept:
        decisions.append(
            Decision(
                subject=f"{len(kept)} products",
                taken="weights stay in the 4 or 8 bits of the file, data in floats",
                reason="a token waits for weights; LiteRT rounds data to 8 bits beside them",
            )
        )
    return decisions
