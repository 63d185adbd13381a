"""A model of one node that names a bundle, which onnxruntime computes by adrenoc's provider.

A decoder's caches stay in the session: its node reads tokens and the mask of all tokens so far,
from which the provider knows how many came before, and makes the logits after the last
(`adrenoc/native/onnxruntime/model.cc`).  That is what onnxruntime-genai gives a model that has no
inputs for caches, and what a loop of one's own has at hand; caches as tensors would be moved to the
device and back as a whole with each token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from adrenoc.base.files.outputs import write_atomically
from adrenoc.bundle.buckets import BatchRule, BucketEntry, Buckets, read_buckets
from adrenoc.bundle.bundle import Bundle, open_bundle
from adrenoc.bundle.chat import LOGITS, MASK, PAST_LENGTH, TOKENS, is_decoder
from adrenoc.bundle.manifest import TensorSpec

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

    _Infos = list[ValueInfoProto]

PROVIDER = "AdrenocExecutionProvider"
_OPSET = 17  # of a model without operators of ONNX: what every onnxruntime since 1.23 reads
_IR_VERSION = 8

_NO_BATCH = BatchRule(inputs=(), outputs=(), refused="")


def context_file(bundle: Path) -> Path:
    """Return where the model of a bundle lies: `NAME_ctx.onnx` beside it."""
    return bundle.with_name(f"{bundle.stem}_ctx.onnx")


def write_onnx_context(path: Path) -> Path:
    """Write the model that names the bundle at `path`, beside it, and return its path."""
    place = context_file(path)
    write_atomically(place, make_context(open_bundle(path), path.name))
    return place


def make_context(bundle: Bundle, name: str) -> bytes:
    """Return the model of a bundle that lies beside it by that name."""
    return _model(bundle, name).SerializeToString(deterministic=True)


def _model(bundle: Bundle, name: str) -> ModelProto:
    from onnx import helper

    manifest = bundle.manifest
    inputs, outputs = _decoder_tensors(bundle) if is_decoder(manifest) else _tensors(bundle)
    node = helper.make_node(
        "EPContext",
        [one.name for one in inputs],
        [one.name for one in outputs],
        name=manifest.name,
        domain="com.microsoft",
        source=PROVIDER,
        main_context=1,
        embed_mode=0,
        ep_cache_context=name,
        partition_name=manifest.name,
        onnx_model_filename=manifest.model.file,
        notes=f"{manifest.target.name}, {manifest.options.preset}",
    )
    graph = helper.make_graph([node], manifest.name, inputs, outputs)
    return helper.make_model(
        graph,
        producer_name="adrenoc",
        ir_version=_IR_VERSION,
        opset_imports=[helper.make_opsetid("", _OPSET), helper.make_opsetid("com.microsoft", 1)],
    )


def _tensors(bundle: Bundle) -> tuple[_Infos, _Infos]:
    manifest = bundle.manifest
    entry = BucketEntry(folder=".", inputs=manifest.inputs, outputs=manifest.outputs)
    buckets = read_buckets(bundle) or Buckets(buckets=(entry,), batch=_NO_BATCH)
    batch = buckets.batch
    in_axes = {} if batch.refused else dict.fromkeys(batch.inputs, 0)
    out_axes = {} if batch.refused else {one.name: one.axis for one in batch.outputs}
    inputs = _open([entry.inputs for entry in buckets.buckets], in_axes)
    return inputs, _open([entry.outputs for entry in buckets.buckets], out_axes)


def _decoder_tensors(bundle: Bundle) -> tuple[_Infos, _Infos]:
    manifest = bundle.manifest
    own = {TOKENS, PAST_LENGTH, *manifest.states}
    tokens = next(spec for spec in manifest.inputs if spec.name == TOKENS)
    buckets = read_buckets(bundle)
    one_token = buckets.buckets[0].outputs if buckets else manifest.outputs
    inputs = [
        _info(TOKENS, tokens.dtype, [*tokens.shape[:-1], "tokens"]),
        _info(MASK, "int64", [1, "tokens_so_far"]),
        *(_info(one.name, one.dtype, one.shape) for one in manifest.inputs if one.name not in own),
    ]
    return inputs, [_info(o.name, o.dtype, o.shape) for o in one_token if o.name == LOGITS]


def _open(buckets: Sequence[Sequence[TensorSpec]], filled: Mapping[str, int]) -> _Infos:
    """Return the tensors of all buckets, with a name for each extent that is not in all of them.
    `filled` has the axes that may also be shorter than any bucket's."""
    opened = []
    for specs in zip(*buckets, strict=True):
        name = specs[0].name
        columns = [set(extents) for extents in zip(*(spec.shape for spec in specs), strict=True)]
        shape: list[str | int] = [
            f"{name}_{axis}" if len(seen) > 1 or filled.get(name) == axis else seen.pop()
            for axis, seen in enumerate(columns)
        ]
        opened.append(_info(name, specs[0].dtype, shape))
    return opened


def _info(name: str, dtype: str, shape: Sequence[str | int]) -> ValueInfoProto:
    import numpy as np
    from onnx import helper

    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape
    )
