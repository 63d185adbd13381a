"""What the files beside a model say of the sizes that it was made for: images, texts, sound.

These are config.json, preprocessor_config.json and tokenizer_config.json as the model's makers
write them, beside the model or, where it lies in a folder of exports, one folder up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adrenoc.base.files.read import read_plain
from adrenoc.base.text.json_text import read_json
from adrenoc.importers.model_folders import folders_beside

_CONFIG, _PREPROCESSOR, _TOKENIZER = (
    "config.json",
    "preprocessor_config.json",
    "tokenizer_config.json",
)
_MOST_BYTES = 8 << 20
_MOST_TOKENS = 1 << 24
"""Tokenizers without a limit state a vast number."""


@dataclass(frozen=True, kw_only=True)
class KnownSize:
    """A size, 0 where nobody says it, and the file that says so."""

    extents: tuple[int, ...] = ()
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class KnownSizes:
    """Height and width of an `image`, the most `tokens` of a text, the `frames` of a spectrum with
    its bands before them, the `samples` of a sound."""

    image: KnownSize = KnownSize()
    tokens: KnownSize = KnownSize()
    frames: KnownSize = KnownSize()
    samples: KnownSize = KnownSize()


def read_known_sizes(model: Path) -> KnownSizes:
    """Read what lies beside a model; what is damaged or missing says nothing."""
    found = {name: _read(model, name) for name in (_PREPROCESSOR, _CONFIG, _TOKENIZER)}
    prepared, config, words = found[_PREPROCESSOR], found[_CONFIG], found[_TOKENIZER]
    return KnownSizes(
        image=_first(
            (_images_of(prepared), _PREPROCESSOR),
            (_square(config.get("image_size")), _CONFIG),
            (_square(_table(config, "vision_config").get("image_size")), _CONFIG),
        ),
        tokens=_first(
            *(
                (_count(config.get(key)), _CONFIG)
                for key in ("max_position_embeddings", "n_positions")
            ),
            (_count(_table(config, "text_config").get("max_position_embeddings")), _CONFIG),
            (_count(words.get("model_max_length")), _TOKENIZER),
        ),
        frames=_first(
            (_pair(prepared, "feature_size", "nb_max_frames"), _PREPROCESSOR),
            (_pair(config, "num_mel_bins", "max_length"), _CONFIG),
        ),
        samples=_first((_count(prepared.get("n_samples")), _PREPROCESSOR)),
    )


def _first(*found: tuple[tuple[int, ...], str]) -> KnownSize:
    return next(
        (KnownSize(extents=extents, source=name) for extents, name in found if extents), KnownSize()
    )


def _images_of(prepared: Mapping[str, Any]) -> tuple[int, ...]:
    """Height and width after cropping, else after resizing."""
    keys = ["crop_size", "size"] if prepared.get("do_center_crop", True) else ["size"]
    return next((size for key in keys if (size := _square(prepared.get(key)))), ())


def _square(value: object) -> tuple[int, ...]:
    """Height and width of a size as it may be written: a number, two, or a table."""
    if isinstance(value, dict):
        both = value.get("height"), value.get("width")
        return _square(list(both) if None not in both else value.get("shortest_edge"))
    if isinstance(value, list):
        sizes = tuple(size for one in value for size in _count(one))
        return sizes if len(sizes) == 2 else ()
    return _count(value) * 2


def _pair(table: Mapping[str, Any], one: str, other: str) -> tuple[int, ...]:
    both = (*_count(table.get(one)), *_count(table.get(other)))
    return both if len(both) == 2 else ()


def _count(value: object) -> tuple[int, ...]:
    return (value,) if type(value) is int and 0 < value < _MOST_TOKENS else ()


def _table(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = table.get(key)
    return found if isinstance(found, dict) else {}


def _read(model: Path, name: str) -> dict[str, Any]:
    for folder in folders_beside(model):
        try:
            found = read_json(read_plain(folder / name, _MOST_BYTES))
        except (OSError, ValueError):
            continue
        if isinstance(found, dict):
            return found
    return {}
