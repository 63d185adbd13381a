"""Options for inputs whose extents a model leaves open: such as it can be compiled for.

What the files beside it say comes first, then what is usual; each is tried, and where none is what
the model takes, names stand for the extents that only its user knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from adrenoc.importers.known_sizes import KnownSize, KnownSizes, read_known_sizes
from adrenoc.importers.shapes import OpenInputs, list_options, write_options
from adrenoc.importers.signature import Extent
from adrenoc.importers.states import is_state_name

_USUAL_TOKENS = 128
_USUAL = (
    (128, (224, 224)),
    (512, (640, 640)),
    (1024, (48, 320)),
    (16000, (32, 320)),
)
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
