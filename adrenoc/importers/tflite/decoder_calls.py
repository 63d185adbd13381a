"""What the inputs and outputs of a decoder's signatures are, by the names that exporters give.

Caches of a decoder's call: where the new rows of each go, and which of its axes are rows.

A TFLite decoder as plans see it: its caches, their rows, and the lengths of its calls.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from adrenoc.base.errors import UnsupportedOperatorError
from adrenoc.base.text.spelling import list_first
from adrenoc.importers.states import CacheSpec, DecoderForm
from adrenoc.importers.tflite.file import GraphInfo, OperatorInfo, SignatureInfo, TFLiteFile
from adrenoc.importers.tflite.variables import inline_composites

DECODE, PREFILL, LOGITS = "decode", "prefill", "logits"

TOKENS = ("tokens", "token_ids", "input_ids")
POSITIONS = ("input_pos", "positions", "cache_position")
MASKS = ("mask", "attn_mask", "attention_mask")
"""Names of inputs."""

_CACHE = re.compile(r"(kv_cache_[kv]|[kv]_cache)_(\d+)$")
_HIDDEN = {"float32": -1e30, "float16": -3e4}
"""What a mask of floats has where a token does not look."""

_HINT = (
    "export it with the mask and the positions as inputs, or neither, and its token table inside "
    "(litert-torch's usual form); decoders in ONNX go too"
)


def not_covered(text: str) -> UnsupportedOperatorError:
    """Return the error of a language model in a form that nothing here reads."""
    return UnsupportedOperatorError(text, hint=_HINT)


@dataclass(frozen=True, kw_only=True, eq=False)
class Call:
    """A signature: so many tokens behind those that the caches hold; tensors are indices.

    `graph` has no composites.  `positions` and `mask` are -1 where the signature takes none,
    `logits` where it gives none.  `caches` are inputs by name, each with the output of that name.
    """

    key: str
    graph: GraphInfo
    length: int
    tokens: int
    positions: int
    mask: int
    logits: int
    caches: Mapping[str, tuple[int, int]]


def mask_values(mine: np.ndarray, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return what a caller gives for a mask of some shape: tokens of the numbers `mine` see all up
    to it. Raises ValueError where the shape is no [1, 1, tokens, rows] or [1, tokens, 1, rows]."""
    seen = np.arange(shape[-1])[None, :] <= mine[:, None]
    value = np.where(seen, 0.0, _HIDDEN[dtype]) if dtype in _HIDDEN else seen
    return np.asarray(value.astype(dtype).reshape(shape))


def is_decoder(file: TFLiteFile) -> bool:
    """Return whether a file's signatures are a language model's, whether covered or not."""
    keys = [signature.key for signature in file.signatures]
    return DECODE in keys and any(key.startswith(PREFILL) for key in keys)


def read_calls(file: TFLiteFile) -> tuple[Call, ...]:
    """Return the calls of a decoder, that of one token first, those of prompts by length. Raises
    UnsupportedOperatorError where they take or give what nothing here does, each named."""
    decode = [s for s in file.signatures if s.key == DECODE]
    others = [s for s in file.signatures if s.key.startswith(PREFILL)]
    unknown = [
        f"{signature.key} takes '{name}'"
        for signature in [*decode, *others]
        for name in signature.inputs
        if not (name in (*TOKENS, *POSITIONS, *MASKS) or _CACHE.search(name))
    ]
    if unknown:
        raise not_covered(
            f"signatures of a language model with inputs that are not covered: "
            f"{list_first(unknown, between=', ')}; expected tokens, input_pos, mask and caches "
            "(kv_cache_k_0, kv_cache_v_0, ...)"
        )
    calls = [_read_call(file, signature) for signature in [*decode, *others]]
    if calls[0].length != 1 or calls[0].logits < 0:
        raise not_covered(
            f"the signature 'decode' takes {calls[0].length} tokens and gives "
            f"{list_first(decode[0].outputs, between=', ')}; expected one token and 'logits'"
        )
    return (calls[0], *sorted(calls[1:], key=lambda call: call.length))


def _read_call(file: TFLiteFile, signature: SignatureInfo) -> Call:
    graph = inline_composites(file, file.graphs[signature.graph])
    tokens = _only(signature.inputs, TOKENS)
    caches = {
        name: (index, signature.outputs.get(name, -1))
        for name, index in signature.inputs.items()
        if _CACHE.search(name)
    }
    lost = [name for name, (_, after) in caches.items() if after < 0]
    if tokens < 0 or not caches or lost:
        what = f"gives no '{lost[0]}' back" if lost else "takes no tokens or no caches"
        raise not_covered(
            f"the signature '{signature.key}' {what}; it takes "
            f"{list_first(signature.inputs, between=', ')}"
        )
    shape = graph.tensors[tokens].shape
    if len(shape) != 2 or shape[0] != 1:
        raise UnsupportedOperatorError(
            f"the tokens of the signature '{signature.key}' have the shape {list(shape)}; expected "
            "[1, tokens]: a bundle keeps one cache",
            hint="export it with a batch of one",
        )
    return Call(
        key=signature.key,
        graph=graph,
        length=shape[1],
        tokens=tokens,
        positions=_only(signature.inputs, POSITIONS),
        mask=_only(signature.inputs, MASKS),
        logits=signature.outputs.get(LOGITS, -1),
        caches=dict(sorted(caches.items(), key=lambda item: _order(item[0]))),
    )


def _order(name: str) -> tuple[int, str]:
    """Sort by layer, keys first."""
    found = _CACHE.search(name)
    return (int(found[2]) if found else 0, name)


def _only(tensors: Mapping[str, int], names: Iterable[str]) -> int:
    return next((tensors[name] for name in names if name in tensors), -1)


UPDATE = "DYNAMIC_UPDATE_SLICE"


@dataclass(frozen=True, kw_only=True)
class DecoderCache:
    """A cache before and after a call, its new rows, and the axes of rows, heads and numbers."""

    name: str
    before: int
    after: int
    update: int
    starts: int
    axes: tuple[int, int, int]
    heads: int
    rows: int
    head: int
    dtype: str


def find_caches(call: Call) -> dict[str, DecoderCache]:
    """Return the caches of a call by name. Raises UnsupportedOperatorError where some are not
    written row by row, each named."""
    makers = {index: one for one in call.graph.operators for index in one.outputs}
    found, odd = {}, []
    for name, (before, after) in call.caches.items():
        maker = makers.get(after)
        axis = None if maker is None else _axis_of_rows(call, maker, before)
        if maker is None or axis is None:
            odd.append(f"'{name}' is made by {'nothing' if maker is None else maker.kind}")
            continue
        info = call.graph.tensors[before]
        heads, head = (a for a in range(1, len(info.shape)) if a != axis)
        found[name] = DecoderCache(
            name=name,
            before=before,
            after=after,
            update=maker.inputs[1],
            starts=maker.inputs[2],
            axes=(axis, heads, head),
            heads=info.shape[heads],
            rows=info.shape[axis],
            head=info.shape[head],
            dtype=info.dtype,
        )
    if odd:
        raise not_covered(
            f"caches of the signature '{call.key}' that no rows are added to: "
            f"{list_first(odd, between=', ')}; expected {UPDATE} of each, as [1, rows, heads, "
            "numbers] or with the rows at another axis"
        )
    return found


def _axis_of_rows(call: Call, maker: OperatorInfo, before: int) -> int | None:
    """Return the one axis at which less is written than there is; None of anything else."""
    if maker.kind != UPDATE or maker.inputs[0] != before:
        return None
    whole, part = (call.graph.tensors[index].shape for index in maker.inputs[:2])
    axes = [a for a, (d, u) in enumerate(zip(whole, part, strict=False)) if d != u]
    shaped = len(whole) == len(part) == 4 and whole[0] == 1
    if not shaped or len(axes) != 1 or axes[0] == 0 or part[axes[0]] != call.length:
        return None
    return axes[0]


def check_starts(cache: DecoderCache, starts: np.ndarray | None, past: int) -> str:
    """Return why the new rows do not go right behind the past; empty where they do."""
    expected = [past if axis == cache.axes[0] else 0 for axis in range(4)]
    if starts is None:
        return f"where '{cache.name}' is written is computed of data"
    if list(starts.reshape(-1)) != expected:
        return f"'{cache.name}' is written at {list(starts.reshape(-1))}, expected {expected}"
    return ""


def decoder_form(file: TFLiteFile) -> DecoderForm:
    """Return the form of a file of which `is_decoder` says that it is one. Raises
    UnsupportedOperatorError where its signatures are not covered."""
    calls = read_calls(file)
    caches = find_caches(calls[0])
    return DecoderForm(
        caches=tuple(
            CacheSpec(
                past=cache.name,
                present=cache.name,
                heads=cache.heads,
                head=cache.head,
                dtype=cache.dtype,
            )
            for cache in caches.values()
        ),
        masked=False,
        positions=False,
        context=0,
        rows=min(cache.rows for cache in caches.values()),
        lengths=tuple(call.length for call in calls if call.length > 1),
    )
