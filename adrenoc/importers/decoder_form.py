"""Tells a decoder with past and present keys and values by its inputs and outputs, and how it wants
to be talked to by what its makers published beside it.

Loads neither TVM nor files of weights beside the model; a TFLite file is read whole.

Source: Hugging Face's "Chat templates" and "GenerationConfig"; onnxruntime-genai's configuration;
transformers' processors of Idefics3, SmolVLM and LFM2-VL.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from adrenoc.base.decision import Decision
from adrenoc.base.errors import ModelFormatError
from adrenoc.base.files.read import read_plain
from adrenoc.base.text.json_text import read_json
from adrenoc.bundle.chat import (
    EMBEDDINGS,
    LOGITS,
    MASK,
    PAST_BRANCH,
    POSITIONS,
    RANGES,
    TOKENS,
    ChatSettings,
    PictureSettings,
    Sampling,
)
from adrenoc.importers.containers import (
    CONFIG,
    PREPROCESSOR,
    TOKENIZER_CONFIG,
    folders_beside,
    read_beside,
    table_of,
)
from adrenoc.importers.formats import ModelFiles, find_model_files
from adrenoc.importers.signature import Extent, Port, Signature, read_signature
from adrenoc.importers.states import GENAI_CONFIG, CacheSpec, DecoderForm, StateSpec, names_of_next
from adrenoc.ir.options import TOKEN_OPTIONS

_POSITIONS = ("max_target_positions", "max_position_embeddings", "n_positions")
"""What the makers call the most tokens that there may be: decoders of speech, others, GPT-2."""

_KEPT = ("float32", "float16", "int8", "uint8")
"""Dtypes of caches: bytes are numbers of 8 bits, or two of 4."""

_RENAMED = (("past_key_values", "present"), ("past", "present"))
"""How exporters make the name of an output of that of an input."""
_ENCODERS = ".encoder."
"""In names of keys and values of an encoder's: a merged file's graph for a past gives them back
empty, though only the first call makes them."""


def find_decoder(model: Path, signature: Signature | None = None) -> DecoderForm | None:
    """Return the form of a decoder whose past grows from run to run; None of any other model.

    `signature` is the model's, where it was read before. Raises ModelNotFoundError or
    ModelFormatError as `find_model_files` does, or where it is a decoder that takes embeddings in
    place of tokens; UnsupportedOperatorError where it is a decoder in TFLite whose signatures are
    not covered."""
    files = find_model_files(model)
    if files.format != "onnx":
        return _find_in_tflite(files)
    signature = signature or read_signature(model)
    inputs = {port.name for port in signature.inputs}
    outputs = {port.name for port in signature.outputs}
    merged = PAST_BRANCH in inputs
    sliding = _sliding_beside(model)
    caches = [
        CacheSpec(
            past=port.name,
            present=present,
            heads=heads,
            head=head,
            dtype=port.dtype,
            least=sliding.get(_layer_of(port.name), 0),
        )
        for port in signature.inputs
        if port.dtype in _KEPT and len(port.axes or ()) == 4
        for _, heads, rows, width in [port.axes or ()]
        if (head := _width_of_head(model, width, port.dtype))
        if isinstance(heads, int) and not isinstance(rows, int)
        if (present := _present_of(port.name, outputs))
        if not (merged and _ENCODERS in port.name)
    ]
    if caches and EMBEDDINGS in inputs and TOKENS not in inputs:
        raise ModelFormatError(
            f"{model} is a decoder that takes embeddings ('{EMBEDDINGS}') in place of tokens, as "
            "the text part of a vision-language model: no token can be fed to its next step",
            hint="put embed_tokens.onnx, which looks them up, beside it; or export the text model "
            f"so that it takes '{TOKENS}' (onnxruntime-genai's builder without exclude_embeds), or "
            "compile one step as it is by --shape for every input",
        )
    if TOKENS not in inputs or LOGITS not in outputs:
        return None
    recurrent = _find_recurrent(signature, {cache.past for cache in caches})
    if not caches and not recurrent:
        return None
    context, source = _context_beside(model)
    return DecoderForm(
        caches=tuple(caches),
        recurrent=recurrent,
        slides=_may_slide(signature, caches),
        masked=MASK in inputs,
        positions=POSITIONS in inputs,
        streams=_count_streams(signature),
        merged=merged,
        single=_tokens_of(signature) == 1,
        context=context,
        source=source,
        tokens=_tokens_beside(model),
    )


def _find_recurrent(signature: Signature, caches: set[str]) -> tuple[StateSpec, ...]:
    """Return states of fixed extents but for the batch, of a model of one token or any number."""
    outputs = {port.name for port in signature.outputs}
    tokens = next(port for port in signature.inputs if port.name == TOKENS)
    if len(tokens.axes or ()) != 2 or _tokens_of(signature) not in (None, 1):
        return ()
    found = []
    for port in signature.inputs:
        shape = _shape_of_one(port, (tokens.axes or ())[0])
        present = next((name for name in names_of_next(port.name) if name in outputs), "")
        if shape and present and port.name not in {TOKENS, MASK, POSITIONS, *caches}:
            found.append(StateSpec(past=port.name, present=present, shape=shape, dtype=port.dtype))
    return tuple(found)


def _tokens_of(signature: Signature) -> int | None:
    """Return how many tokens a run takes; None where the file leaves that open."""
    tokens = next(port for port in signature.inputs if port.name == TOKENS)
    extent = tokens.axes[1] if len(tokens.axes or ()) == 2 and tokens.axes else None
    return extent if isinstance(extent, int) else None


def _shape_of_one(port: Port, batch: Extent) -> tuple[int, ...]:
    """Return the shape for a batch of one; empty where other axes are open."""
    shape: list[int] = []
    for at, axis in enumerate(port.axes or ()):
        is_batch = at == 0 or (axis is not None and axis == batch)
        if not isinstance(axis, int) and not is_batch:
            return ()
        shape.append(axis if isinstance(axis, int) else 1)
    return tuple(shape)


def _count_streams(signature: Signature) -> int:
    """Return how many positions a token has: models of pictures count time, height and width."""
    for port in signature.inputs:
        axes = port.axes or ()
        if port.name == POSITIONS and len(axes) == 3 and isinstance(axes[0], int):
            return axes[0]
    return 1


def _find_in_tflite(files: ModelFiles) -> DecoderForm | None:
    from adrenoc.importers.tflite.decoder_calls import decoder_form, is_decoder
    from adrenoc.importers.tflite.file import read_tflite

    try:
        file = read_tflite(files.paths[0], files.read()[0])
    except ModelFormatError:
        return None  # the importer says what is wrong
    if not is_decoder(file):
        return None
    form = decoder_form(file)
    tokens = _tokens_beside(files.paths[0])
    return replace(form, tokens={**tokens, "end_tokens": files.ends or tokens["end_tokens"]})


def _width_of_head(model: Path, said: Extent, dtype: str) -> int:
    """Return elements of a row of a head, 0 where nobody says: newer builders leave the axis open,
    since a cache of 4 bits has half as many as a head."""
    if isinstance(said, int):
        return said
    size = _decoder_beside(model).get("head_size")
    if type(size) is not int or size <= 0:
        return 0
    return size // 2 if dtype == "uint8" else size


def _decoder_beside(model: Path) -> dict[str, Any]:
    """Return what genai's configuration says of the decoder's layers."""
    return table_of(table_of(read_beside(model, GENAI_CONFIG), "model"), "decoder")


def _sliding_beside(model: Path) -> dict[int, int]:
    """Return the layers whose caches slide by genai's configuration, and their rows."""
    said = table_of(_decoder_beside(model), "sliding_window")
    size, layers = said.get("window_size"), said.get("layers")
    if type(size) is not int or not isinstance(layers, list):
        return {}
    return {layer: size for layer in layers if type(layer) is int}


def _may_slide(signature: Signature, caches: list[CacheSpec]) -> bool:
    """Return whether the file gives the rows of caches of a window a name of their own."""
    axes = {
        port.name: (port.axes or ())[2] for port in signature.inputs if len(port.axes or ()) == 4
    }
    windows = {axes[cache.past] for cache in caches if cache.least}
    return bool(windows) and not windows & {axes[c.past] for c in caches if not c.least}


def _layer_of(name: str) -> int:
    """Return the first number in a name, which is that of a layer; -1 where there is none."""
    found = re.search(r"\d+", name)
    return -1 if found is None else int(found[0])


def _present_of(past: str, outputs: set[str]) -> str:
    """Return the output that is the same cache, by exporters' names; empty where there is none."""
    for old, new in _RENAMED:
        name = past.replace(old, new, 1)
        if name != past and name in outputs:
            return name
    return ""


def _context_beside(model: Path) -> tuple[int, str]:
    """Return the context that a configuration states, and which one; 0 where none is understood."""
    for key in ("context_length", *_POSITIONS):
        length, name = _said_beside(model, key)
        if type(length) is int and length > 0:
            return length, name
    return 0, ""


def _tokens_beside(model: Path) -> dict[str, tuple[int, ...]]:
    """Return the tokens that end a text by a configuration, a number or a list of them, and those
    that are not made, as Whisper's that stand for sounds.

    What generation_config.json lists is more than config.json has: a model's turn may end with a
    token of its own."""
    files = {"end_tokens": (GENAI_CONFIG, GENERATION_CONFIG, CONFIG)}
    found = {}
    for option in TOKEN_OPTIONS:
        key = "eos_token_id" if option == "end_tokens" else option
        said, _ = _said_beside(model, key, files.get(option, (GENERATION_CONFIG,)))
        some = said if isinstance(said, list) else [said]
        found[option] = tuple(one for one in some if type(one) is int and one >= 0)
    return found


def _said_beside(
    model: Path, key: str, files: Sequence[str] = (GENAI_CONFIG, CONFIG)
) -> tuple[Any, str]:
    """Return what the first of some configurations says that there is, and the file's name. Nothing
    where it is not understood."""
    for name in files:
        whole = read_beside(model, name)
        if name == GENAI_CONFIG:
            whole = table_of(whole, "model")
        said = whole.get(key)
        if said is None:  # of a model of pictures and text
            said = table_of(whole, "text_config").get(key)
        if said is not None:
            return said, name
    return None, ""


TEMPLATE_FILE = "chat_template.jinja"
GENERATION_CONFIG = "generation_config.json"
_MOST_TEMPLATE_BYTES = 1 << 20
_IMAGE_TOKENS = ("image_token_id", "image_token_index")
_AROUND = {
    "idefics3": (("<fake_token_around_image>", "<global-img>"), ("<fake_token_around_image>",)),
    "lfm2_vl": (("<|image_start|>",), ("<|image_end|>",)),
}
_AROUND["smolvlm"] = _AROUND["idefics3"]
"""Models whose templates have one word for a picture -> what processors put around its rows."""
_SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")


def read_chat_settings(
    model: Path, tokenizer: bytes = b""
) -> tuple[ChatSettings | None, tuple[Decision, ...]]:
    """Read what lies beside a model, or one folder up; None where nothing has a template.

    `tokenizer` is the tokenizer.json that goes with it. Damaged files say nothing, with a Decision
    each."""
    decisions: list[Decision] = []
    files = {
        name: read_beside(model, name, decisions)
        for name in (TOKENIZER_CONFIG, GENERATION_CONFIG, GENAI_CONFIG, CONFIG, PREPROCESSOR)
    }
    config = files[TOKENIZER_CONFIG]
    template, source = _template_of(model, config)
    if not template:
        return None, tuple(decisions)
    picked, picked_by = _sampling_of(files[GENERATION_CONFIG], files[GENAI_CONFIG])
    special = {key: text for key in _SPECIAL if (text := _token(config.get(key)))}
    decisions.append(
        Decision(
            subject="chat template",
            taken="goes into the bundle",
            reason=f"{source} has it"
            + (f"; tokens are picked as {picked_by} says" * bool(picked_by)),
        )
    )
    settings = ChatSettings(
        template=template,
        special_tokens=special,
        sampling=picked,
        picture=_picture_of(files[CONFIG], files[PREPROCESSOR], tokenizer),
    )
    return settings, tuple(decisions)


def _template_of(model: Path, config: Mapping[str, Any]) -> tuple[str, str]:
    """Return the template, and the file that has it; of several named ones the default."""
    for folder in folders_beside(model):
        try:
            return read_plain(folder / TEMPLATE_FILE, _MOST_TEMPLATE_BYTES).decode(), TEMPLATE_FILE
        except (OSError, ValueError):
            continue
    held = config.get("chat_template")
    if isinstance(held, list):
        named = {one.get("name"): one.get("template") for one in held if isinstance(one, dict)}
        held = named.get("default", next(iter(named.values()), None))
    is_one = isinstance(held, str) and len(held) <= _MOST_TEMPLATE_BYTES
    return (held, TOKENIZER_CONFIG) if is_one and held is not None else ("", "")


def _sampling_of(generation: Mapping[str, Any], genai: Mapping[str, Any]) -> tuple[Sampling, str]:
    """Return how tokens are picked, and by which file; the likeliest where none says to draw."""
    search = genai.get("search")
    for said, name in ((generation, GENERATION_CONFIG), (search, f"{GENAI_CONFIG} (search)")):
        if not isinstance(said, dict):
            continue
        is_drawn = said.get("do_sample") is True
        found: dict[str, Any] = {"temperature": 1.0} if is_drawn else {}
        names = RANGES if is_drawn else ("repetition_penalty",)
        read = {n: _number(said.get(n), *RANGES[n]) for n in names}
        found |= {n: value for n, value in read.items() if value is not None}
        if found:
            top_k = int(found.pop("top_k", 0))
            return Sampling(top_k=top_k, **found), name
    return Sampling(), ""


def _picture_of(
    config: Mapping[str, Any], prepared: Mapping[str, Any], tokenizer: bytes
) -> PictureSettings | None:
    """Return how pictures go in; None where the model takes none."""
    token = next((config[key] for key in _IMAGE_TOKENS if type(config.get(key)) is int), None)
    if token is None:
        return None
    added = read_json(tokenizer).get("added_tokens") if tokenizer else None
    listed = [one for one in added if isinstance(one, dict)] if isinstance(added, list) else []
    known = {one.get("content"): one["id"] for one in listed if type(one.get("id")) is int}
    before, after = _AROUND.get(str(config.get("model_type")), ((), ()))
    is_normal = prepared.get("do_normalize") is not False
    chosen = prepared.get("resample")
    return PictureSettings(
        token=token,
        before=tuple(known[word] for word in before if word in known),
        after=tuple(known[word] for word in after if word in known),
        mean=_channels(prepared.get("image_mean") if is_normal else None) or (0.0,),
        std=_channels(prepared.get("image_std") if is_normal else None) or (1.0,),
        crops=prepared.get("do_center_crop") is True,
        filter=chosen if type(chosen) is int and 0 <= chosen < 6 else PictureSettings.filter,
    )


def _channels(value: object) -> tuple[float, ...]:
    """Return a number for each channel; nothing of anything else."""
    read = [_number(one, 0.0, 1.0) for one in value] if isinstance(value, list) else []
    return tuple(one for one in read if one is not None)


def _number(value: object, least: float, most: float) -> float | None:
    """Return a number in its range; None for anything else, which says nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if least <= value <= most else None


def _token(value: object) -> str:
    """Return a special token: its text, or a table with it."""
    held = value.get("content") if isinstance(value, dict) else value
    return held if isinstance(held, str) else ""
