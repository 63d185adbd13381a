"""Suggest options for inputs whose extents a model leaves open: such as it can be compiled for.

What files beside the model say of images, texts and sound comes first (config.json,
preprocessor_config.json and tokenizer_config.json as its makers write them, beside it or, in a
folder of exports, one folder up), then what is usual.  Each is tried; where none is what the model
takes, names stand for the extents that only its user knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adrenoc.base.files.read import read_plain
from adrenoc.base.text.json_text import read_json
from adrenoc.importers.model_folders import folders_beside
from adrenoc.importers.shapes import OpenInputs, list_options, write_options
from adrenoc.importers.signature import Extent
from adrenoc.importers.states import is_state_name

_USUAL_TOKENS = 128
_USUAL = ((128, (224, 224)), (512, (640, 640)), (1024, (48, 320)), (16000, (32, 320)))
"""Extents that are tried of what is neither an image nor a text (steps, frames, samples), each with
a height and a width of images: of objects, of scenes, of lines of text."""
_CHANNELS = (1, 3, 4)

Shapes = dict[str, tuple[int, ...]]


def suggest_shapes(found: OpenInputs, model: Path, fits: Callable[[Shapes], bool]) -> str:
    """Return the hint for open inputs of `model`; `fits` tells whether it can be read with such
    shapes."""
    said = read_known_sizes(model)
    for other, image in _USUAL:
        guess = _Guess(said=said, other=other, image=image)
        shapes = guess.shapes(found)
        if fits(shapes):
            words = list_options(found, shapes)
            told = "".join(f"; {one}" for one in guess.sources(found))
            return f"add {words} (with the extents that you feed{told})"
        if not guess.guessed:
            break
    return write_options(found)


@dataclass
class _Guess:
    """One choice of all extents: `image` for the pixels of images that no file tells the size of,
    `other` for what nothing is known of."""

    said: KnownSizes
    other: int
    image: tuple[int, int]
    guessed: bool = False

    def shapes(self, found: OpenInputs) -> Shapes:
        """Shapes of the open inputs; a name has one extent in all of them."""
        bound: dict[str, int] = {}
        shapes: Shapes = {}
        for name, axes in found.axes.items():
            extents = []
            for axis, extent in enumerate(axes):
                chosen = extent if isinstance(extent, int) else bound.get(extent or "")
                if chosen is None:
                    is_batch = (name, axis) in found.batches
                    is_one = is_batch or (is_state_name(name) and len(axes) < 4)
                    chosen = 1 if is_one else self._extent(axes, axis, found.dtypes[name])
                if isinstance(extent, str):
                    bound[extent] = chosen
                extents.append(chosen)
            shapes[name] = tuple(extents)
        return shapes

    def _extent(self, axes: Sequence[Extent], axis: int, dtype: str) -> int:
        said, usual = self._ask(axes, axis, dtype)
        if said.extents:
            # A text may be as short as one likes; an image is of one size.
            return min(said.extents[0], usual or said.extents[0])
        if usual:
            return usual
        self.guessed = True
        return 1 if axis == 0 and len(axes) > 1 else self.other

    def _ask(self, axes: Sequence[Extent], axis: int, dtype: str) -> tuple[KnownSize, int]:
        """Return what files say of an axis, and what is usual."""
        is_whole = dtype.startswith("int")
        if is_whole and len(axes) == 2 and axis == 1:
            return self.said.tokens, _USUAL_TOKENS
        at = _axis_of_image(axes, axis)
        if at is not None and not is_whole:
            said = self.said.image
            part = KnownSize(extents=said.extents[at : at + 1], source=said.source)
            self.guessed |= not said.extents
            return (part, 0) if said.extents else (KnownSize(), self.image[at])
        frames = self.said.frames
        if len(axes) == 3 and axis and axes[3 - axis] in frames.extents[:1]:
            return KnownSize(extents=frames.extents[1:], source=frames.source), 0
        if len(axes) == 2 and axis == 1 and self.said.samples.extents:
            return self.said.samples, 0
        return KnownSize(), 0

    def sources(self, found: OpenInputs) -> Iterator[str]:
        """Yield what was taken from which file, a sentence each."""
        told = set()
        for name, axes in found.axes.items():
            for axis, extent in enumerate(axes):
                if isinstance(extent, int) or (name, axis) in found.batches:
                    continue
                said, usual = self._ask(axes, axis, found.dtypes[name])
                if not said.extents or said.source in told:
                    continue
                told.add(said.source)
                most = "up to " if usual else ""
                yield f"{said.source} says {most}{said.extents[0]}"


def _axis_of_image(axes: Sequence[Extent], axis: int) -> int | None:
    """0 for the height of an image, 1 for its width; None of what is neither."""
    if len(axes) != 4:
        return None
    if axes[1] in _CHANNELS and axis >= 2:
        return axis - 2
    return axis - 1 if axes[3] in _CHANNELS and axis in (1, 2) else None


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
