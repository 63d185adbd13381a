"""Fixes the shapes of graph inputs: what the model says, completed by `--shape`.

Suggest options for inputs whose extents a model leaves open: such as it can be compiled for.

What files beside the model say of images, texts and sound comes first (config.json,
preprocessor_config.json and tokenizer_config.json as its makers write them, beside it or, in a
folder of exports, one folder up), then what is usual.  Each is tried; where none is what the model
takes, names stand for the extents that only its user knows.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx

from adrenoc.base.decision import ASSUMED, Decision
from adrenoc.base.errors import AdrenocError, ModelFormatError, ShapeError, UnsupportedOperatorError
from adrenoc.base.text.spelling import list_first, list_names, quote_word
from adrenoc.bundle.manifest import TensorSpec
from adrenoc.importers.containers import (
    CONFIG,
    PREPROCESSOR,
    TOKENIZER_CONFIG,
    read_beside,
    table_of,
)
from adrenoc.importers.onnx.follow_axes import find_batches
from adrenoc.importers.signature import Extent, extent_of
from adrenoc.importers.states import is_state_name


@dataclass(frozen=True, kw_only=True)
class OpenInputs:
    """Inputs whose shapes are not known: the `axes` of each, and which of these are `batches`."""

    axes: Mapping[str, Sequence[Extent]]
    dtypes: Mapping[str, str]
    batches: frozenset[tuple[str, int]]


def list_options(found: OpenInputs, extents: Mapping[str, Sequence[Extent]]) -> str:
    """Return an option for each input that those before it leave open, with these extents."""
    bound: set[str] = set()
    words = []
    for name, axes in found.axes.items():
        asked = [d for a, d in enumerate(axes) if (name, a) not in found.batches]
        if any(d is None or (isinstance(d, str) and d not in bound) for d in asked):
            shape = ",".join("D" if d is None else str(d) for d in extents[name])
            words.append(f"--shape {quote_word(f'{name}:{shape}')}")
        bound.update(d for d in axes if isinstance(d, str))
    return " ".join(words)


def write_options(found: OpenInputs) -> str:
    """Return the options to type, with a letter or name for extents that only the user knows."""
    known = {
        name: [1 if (name, axis) in found.batches else d for axis, d in enumerate(axes)]
        for name, axes in found.axes.items()
    }
    open_axes = [d for axes in known.values() for d in axes if not isinstance(d, int)]
    names = list_first(dict.fromkeys(str(d or "D") for d in open_axes), between=", ")
    return f"add {list_options(found, known)} (with the extents that you feed in place of {names})"


def fix_input_shapes(
    graph: onnx.GraphProto,
    shapes: Mapping[str, tuple[int, ...]],
    suggest: Callable[[OpenInputs], str] = write_options,
) -> tuple[list[TensorSpec], list[Decision]]:
    """Return the inputs of `graph` (initialisers left out) with static shapes, and what was
    assumed.

    A symbolic dimension that `shapes` fixes at one input is fixed wherever it occurs.  Where
    batches alone stay open they are 1, or what `shapes` says of other batches.  `suggest` writes
    the hint of an error for inputs that stay open. Raises ShapeError of an unknown input, a wrong
    rank, a contradiction, or a dimension left open."""
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    check_names(shapes, [value.name for value in inputs])
    dtypes = {v.name: _dtype(v) for v in inputs}  # first: what is no tensor has no shape either
    dims = {value.name: _dims(value) for value in inputs}
    symbols: dict[str, int] = {}
    for name, wanted in shapes.items():
        _bind(name, dims[name], wanted, symbols)
    ranked = {name: axes for name, axes in dims.items() if axes is not None}
    still = {
        name: _known(axes, symbols)
        for name, axes in ranked.items()
        if name not in shapes and not _are_fixed(_known(axes, symbols))
    }
    batches = find_batches(graph, ranked) if still else frozenset()
    given = {shapes[name][axis] for name, axis in batches if name in shapes}
    batch = given.pop() if len(given) == 1 else 1
    taken = {
        name: [batch if (name, axis) in batches else d for axis, d in enumerate(axes)]
        for name, axes in still.items()
    }
    if not all(map(_are_fixed, taken.values())):
        shown = ", ".join(f"'{n}' [{_format(ranked[n])}]" for n in still)
        what = "inputs have open dimensions: " + shown
        if len(still) == 1:
            what = f"input '{next(iter(still))}' has open dimensions [{_format(*still.values())}]"
        raise ShapeError(
            f"{what}; adrenoc compiles for fixed shapes",
            hint=suggest(OpenInputs(axes=still, dtypes=dtypes, batches=batches)),
        )
    static: dict[str, tuple[int, ...]] = {**shapes}
    for name, axes in dims.items():
        if axes is None and name not in shapes:
            raise ShapeError(
                f"input '{name}' has no shape in the model; adrenoc compiles for fixed shapes",
                hint=f"add --shape {name}:D,D,... with the extents that you feed",
            )
        if axes is not None and name not in shapes:
            extents = taken.get(name) or _known(axes, symbols)
            static[name] = tuple(d for d in extents if isinstance(d, int))
    specs = [TensorSpec(name=n, shape=static[n], dtype=dtype) for n, dtype in dtypes.items()]
    return specs, _tell_batch(still, batches, batch)


def _tell_batch(
    still: Mapping[str, Sequence[Extent]], batches: frozenset[tuple[str, int]], batch: int
) -> list[Decision]:
    if not still:
        return []
    name, axes = next(iter(still.items()))
    shown = ",".join("N" if (name, a) in batches else str(d) for a, d in enumerate(axes))
    return [
        Decision(
            subject=", ".join(still),
            taken=f"{ASSUMED} a batch of {batch}",
            reason="the file leaves it open; "
            f"--shape {quote_word(f'{name}:{shown}')} takes another",
        )
    ]


def _are_fixed(axes: Sequence[Extent]) -> bool:
    return all(isinstance(d, int) for d in axes)


def _format(axes: Sequence[Extent]) -> str:
    return ", ".join("?" if d is None else str(d) for d in axes)


def check_names(shapes: Mapping[str, object], known: Sequence[str]) -> None:
    """Refuse a `--shape` for an input that the model does not have."""
    for name in shapes:
        if name in known:
            continue
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
        guess = near[0] if near else known[0] if known else ""
        names = list_names(known)
        raise ShapeError(
            f"the model has no input '{name}'; its inputs are {names}",
            hint=f"--shape {guess}:..." if guess else "leave --shape out",
        )


def _dims(value: onnx.ValueInfoProto) -> list[Extent] | None:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    found = [extent_of(d) for d in tensor.shape.dim]
    # Some exporters write 0 for "any".
    return [d or None for d in found]


def _bind(
    name: str, dims: list[Extent] | None, wanted: tuple[int, ...], symbols: dict[str, int]
) -> None:
    given = ",".join(map(str, wanted))
    if any(extent < 0 for extent in wanted):
        raise ShapeError(
            f"--shape {name}:{given} has an extent below 0", hint=f"--shape {name}:1,..."
        )
    if dims is None:
        return
    shown = _format(dims)
    if len(dims) != len(wanted):
        raise ShapeError(
            f"--shape {name}:{given} has {len(wanted)} dimensions, but input '{name}' has "
            f"{len(dims)}: [{shown}]",
            hint=f"--shape {name}:{','.join(map(str, _known(dims, symbols)))}".replace("None", "D"),
        )
    for axis, (dim, extent) in enumerate(zip(dims, wanted, strict=True)):
        known = symbols.setdefault(dim, extent) if isinstance(dim, str) else dim
        if known is None or known == extent:
            continue
        fit = zip(_known(dims, symbols), wanted, strict=True)
        fitting = f"--shape {name}:{','.join(str(k if isinstance(k, int) else w) for k, w in fit)}"
        asked = f"--shape {name}:{given} asks for {extent} in dimension {axis}, where "
        if isinstance(dim, str):
            raise ShapeError(
                f"{asked}'{dim}' is {known} already: [{shown}]",
                hint=f"{fitting}, or another {dim} for all inputs",
            )
        raise ShapeError(
            f"{asked}the model has {known}: [{shown}]",
            hint=f"{fitting}, or export the model with that size",
        )


def _known(dims: Sequence[Extent], symbols: Mapping[str, int]) -> list[Extent]:
    return [symbols.get(d, d) if isinstance(d, str) else d for d in dims]


def _dtype(value: onnx.ValueInfoProto) -> str:
    kind = value.type.WhichOneof("value")
    element = value.type.tensor_type.elem_type
    if kind != "tensor_type" or element == onnx.TensorProto.STRING:
        what = "strings" if kind == "tensor_type" else str(kind).replace("_type", "s")
        raise UnsupportedOperatorError(
            f"input '{value.name}' holds {what}; adrenoc takes tensors of numbers",
            hint="cut that part off: onnx.utils.extract_model(...)",
        )
    if element in (onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128):
        raise UnsupportedOperatorError(
            f"input '{value.name}' holds complex numbers; adrenoc takes real ones",
            hint="feed real and imaginary parts along an axis, as DFT has them",
        )
    if element == onnx.TensorProto.UNDEFINED:
        raise ModelFormatError(
            f"input '{value.name}' has no element type", hint="export the model again"
        )
    return str(onnx.helper.tensor_dtype_to_np_dtype(element))


_USUAL_TOKENS = 128
_USUAL = ((128, (224, 224)), (512, (640, 640)), (1024, (48, 320)), (16000, (32, 320)))
"""Extents that are tried of what is neither an image nor a text (steps, frames, samples), each with
a height and a width of images: of objects, of scenes, of lines of text."""
_CHANNELS = (1, 3, 4)

Shapes = dict[str, tuple[int, ...]]


def suggest_shapes(found: OpenInputs, model: Path, read: Callable[[Shapes], object]) -> str:
    """Return the hint for open inputs of `model`; `read` imports it with such shapes."""
    said = read_known_sizes(model)
    for other, image in _USUAL:
        guess = _Guess(said=said, other=other, image=image)
        shapes = guess.shapes(found)
        with contextlib.suppress(AdrenocError):
            read(shapes)
            words = list_options(found, shapes)
            told = "".join(f"; {one}" for one in guess.told.values())
            return f"add {words} (with the extents that you feed{told})"
        if not guess.guessed:
            break
    return write_options(found)


@dataclass
class _Guess:
    """One choice of all extents: `image` for the pixels of images that no file tells the size of,
    `other` for what nothing is known of."""

    said: Mapping[str, Size]
    other: int
    image: tuple[int, int]
    guessed: bool = False
    told: dict[str, str] = field(default_factory=dict)
    """File -> the sentence that says what was taken of it."""

    def shapes(self, found: OpenInputs) -> Shapes:
        """Return shapes of the open inputs; a name has one extent in all of them."""
        bound: dict[str, int] = {}
        shapes: Shapes = {}
        for name, axes in found.axes.items():
            extents = []
            for axis, extent in enumerate(axes):
                chosen = extent if isinstance(extent, int) else bound.get(extent or "")
                if chosen is None:
                    chosen = self._choose(found, name, axis)
                if isinstance(extent, str):
                    bound[extent] = chosen
                extents.append(chosen)
            shapes[name] = tuple(extents)
        return shapes

    def _choose(self, found: OpenInputs, name: str, axis: int) -> int:
        axes = found.axes[name]
        (extents, source), usual = self._ask(axes, axis, found.dtypes[name])
        is_state = is_state_name(name) and len(axes) < 4 and not extents
        if (name, axis) in found.batches or is_state:
            return 1
        if extents:
            most = "up to " if usual else ""
            self.told.setdefault(source, f"{source} says {most}{extents[0]}")
            # A text may be as short as one likes; an image is of one size.
            return min(extents[0], usual or extents[0])
        if usual:
            return usual
        self.guessed = True
        return 1 if axis == 0 and len(axes) > 1 else self.other

    def _ask(self, axes: Sequence[Extent], axis: int, dtype: str) -> tuple[Size, int]:
        """Return what files say of an axis, and what is usual."""
        is_whole = dtype.startswith("int")
        if is_whole and len(axes) == 2 and axis == 1:
            return self.said["tokens"], _USUAL_TOKENS
        at = _axis_of_image(axes, axis)
        if at is not None and not is_whole:
            extents, source = self.said["image"]
            self.guessed |= not extents
            return ((extents[at : at + 1], source), 0) if extents else (_UNSAID, self.image[at])
        extents, source = self.said["frames"]
        if len(axes) == 3 and axis and axes[3 - axis] in extents[:1]:
            return (extents[1:], source), 0
        extents, source = self.said["states"]
        if len(axes) == 3 and axis == 1 and axes[2] in extents[:1]:
            return (extents[1:], source), 0
        if len(axes) == 2 and axis == 1 and self.said["samples"][0]:
            return self.said["samples"], 0
        return _UNSAID, 0


def _axis_of_image(axes: Sequence[Extent], axis: int) -> int | None:
    """Return 0 for the height of an image, 1 for its width; None of what is neither."""
    if len(axes) != 4:
        return None
    if axes[1] in _CHANNELS and axis >= 2:
        return axis - 2
    return axis - 1 if axes[3] in _CHANNELS and axis in (1, 2) else None


_MOST_TOKENS = 1 << 24
"""Tokenizers without a limit state a vast number."""


Size = tuple[tuple[int, ...], str]
"""A size, empty where nobody says it, and the file that says so."""
_UNSAID: Size = ((), "")


def read_known_sizes(model: Path) -> dict[str, Size]:
    """Read what lies beside a model: height and width of an `image`, the most `tokens` of a text,
    `frames` of a spectrum with its bands before them, `samples` of a sound, `states` of an encoder
    with their width before them."""
    found = {name: read_beside(model, name) for name in (PREPROCESSOR, CONFIG, TOKENIZER_CONFIG)}
    prepared, config, words = found[PREPROCESSOR], found[CONFIG], found[TOKENIZER_CONFIG]
    return {
        "image": _first(
            (_images_of(prepared), PREPROCESSOR),
            (_square(config.get("image_size")), CONFIG),
            (_square(table_of(config, "vision_config").get("image_size")), CONFIG),
        ),
        "tokens": _first(
            *(
                (_count(config.get(key)), CONFIG)
                for key in ("max_position_embeddings", "n_positions", "max_target_positions")
            ),
            (_count(table_of(config, "text_config").get("max_position_embeddings")), CONFIG),
            (_count(words.get("model_max_length")), TOKENIZER_CONFIG),
        ),
        "frames": _first(
            (_pair(prepared, "feature_size", "nb_max_frames"), PREPROCESSOR),
            (_pair(config, "num_mel_bins", "max_length"), CONFIG),
        ),
        "samples": _first((_count(prepared.get("n_samples")), PREPROCESSOR)),
        "states": _first((_pair(config, "d_model", "max_source_positions"), CONFIG)),
    }


def _first(*found: Size) -> Size:
    return next((one for one in found if one[0]), _UNSAID)


def _images_of(prepared: Mapping[str, Any]) -> tuple[int, ...]:
    """Return height and width after cropping, else after resizing."""
    keys = ["crop_size", "size"] if prepared.get("do_center_crop", True) else ["size"]
    return next((size for key in keys if (size := _square(prepared.get(key)))), ())


def _square(value: object) -> tuple[int, ...]:
    """Return height and width of a size as it may be written: a number, two, or a table."""
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
