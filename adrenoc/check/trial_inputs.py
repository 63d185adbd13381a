"""Inputs for a model that nobody gave any: a few sets, which differ in what goes wrong on them.

Numbers of deviation 1 are tame: halves hold them and most that is computed of them.  What people
feed is not, so that each input takes one more set of the most that it means, one of rows that do
not vary, and one of rows that are nearly empty.

    image  float32 [1, 3, 224, 224]     normal, 0 to 1, flat rows, dots; to 255 where it is scaled
    sound  float32 [1, 16000]           normal, all of 16 bits where a spectrum is taken and -1 to 1
                                        where none is, flat rows, clicks
    ids    int64 [1, 128]               of the whole vocabulary, its end, the last word, few words

Nobody who draws numbers knows the scale that a network was made for.  Usual numbers times each of
some scales tell by how much a bundle has room; that is told, and fails no check.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from adrenoc.bundle.manifest import TensorSpec
from adrenoc.check.inputs import Inputs, make_inputs
from adrenoc.importers.formats import find_model_files

_HUGE_BYTES = 2 << 30
"""Of a model whose reference takes minutes: it is given the first set alone."""
_DENSITY = 1 / 16
"""Share of a sparse row that is not zero."""
_LARGE = 4.0
"""Times as large as usual, and about as much, are rows of what is neither an image nor a sound, as
levels and energies are: products of what has a mean make sums that grow with their length."""
_CHANNELS = (1, 3, 4)
_LEAST_IMAGE = 16
"""Pixels along each side of what is taken for an image."""
_LEAST_SOUND = 1024
"""Samples of what is taken for a sound, of few channels."""
_MOST_WIDE = 999
"""What whole numbers hold of which nothing is known: ids, counts, and steps of diffusion."""
_SOUNDS = ("audio", "wav", "pcm", "sound", "speech", "samples")
_SAMPLES = (-(2**15), 2**15 - 1)
"""What a sound of 16 bits holds."""
REFUSED = "the reference refuses the others"
_ONE = "one set of random numbers"
FORMS = ("usual numbers", "large numbers", "constant rows", "sparse rows")
"""What each set holds."""
Random = np.random.Generator


@dataclass(frozen=True, kw_only=True)
class Trials:
    """Sets of inputs, and in words what they hold."""

    sets: tuple[Inputs, ...]
    said: str

    def keep_first(self, why: str) -> Trials:
        """Return the first set alone, with the reason in words."""
        return Trials(sets=self.sets[:1], said=f"{_ONE}: {why}")


def draw_trials(model: Path, specs: Sequence[TensorSpec], *, seed: int) -> Trials:
    """Draw the sets for a model's inputs; the first is what `make_inputs` draws. Raises InputError
    where an input has a dtype for which there are no random numbers."""
    usual = make_inputs(specs, seed=seed)
    if not specs:
        return Trials(sets=(usual,), said="nothing, as the model takes no inputs")
    size = sum(path.stat().st_size for path in find_model_files(model).paths)
    if size > _HUGE_BYTES:
        return Trials(sets=(usual,), said="").keep_first(f"the model has {size >> 20} MiB")
    sets = [usual]
    for number, form in enumerate((_draw_large, _draw_flat, _draw_sparse)):
        inputs = Inputs()
        for spec in specs:
            random = np.random.default_rng([seed, number, zlib.crc32(spec.name.encode())])
            drawn = form(spec, usual[spec.name], random)
            inputs[spec.name] = np.asarray(drawn).astype(spec.dtype).reshape(spec.shape)
        inputs.drawn = usual.drawn
        sets.append(inputs)
    large = ", ".join(dict.fromkeys(_describe_large(spec) for spec in specs))
    return Trials(
        sets=tuple(sets),
        said=f"four sets of random numbers: usual ones, large ones ({large}), constant rows, "
        "sparse rows",
    )


def _draw_large(spec: TensorSpec, usual: np.ndarray, random: Random) -> np.ndarray:
    """Draw numbers as large as the input gets: both ends of it are there."""
    if usual.dtype.kind == "b":
        return np.ones_like(usual)
    if usual.dtype.kind != "f":
        low, high = _bounds(spec)
        found = random.integers(low, high, spec.shape, np.int64, endpoint=True).ravel()
        found[:1], found[-1:] = low, high
        return found
    if spec.bounds:
        return random.integers(spec.bounds[0], spec.bounds[1], spec.shape, endpoint=True)
    if _is_image(spec) or _is_sound(spec):
        return _draw_unit(spec, usual, random)
    return _change_rows(usual, lambda rows: (rows + 1) * _LARGE)


def _draw_flat(spec: TensorSpec, usual: np.ndarray, random: Random) -> np.ndarray:
    """Return every other row of one number each; of whole numbers the largest, everywhere."""
    if usual.dtype.kind == "b":
        return np.zeros_like(usual)
    if usual.dtype.kind != "f":
        return np.full(spec.shape, _bounds(spec)[1])
    return _change_rows(_draw_unit(spec, usual, random), lambda rows: rows[:, :1])


def _draw_sparse(spec: TensorSpec, usual: np.ndarray, random: Random) -> np.ndarray:
    """Return every other row nearly empty; of flags the first quarter, as padding is."""
    if usual.dtype.kind == "b" or (usual.dtype.kind != "f" and _bounds(spec) == (0, 1)):
        extent = spec.shape[-1] if spec.shape else 1
        return np.broadcast_to(np.arange(extent) >= extent // 4, spec.shape or (1,))
    if usual.dtype.kind != "f":
        low, high = _bounds(spec)
        return np.where(random.random(spec.shape) < _DENSITY, high, max(low, min(0, high)))
    drawn = _draw_unit(spec, usual, random)
    return _change_rows(drawn, lambda rows: rows * (random.random(rows.shape) < _DENSITY))


def _draw_unit(spec: TensorSpec, usual: np.ndarray, random: Random) -> np.ndarray:
    """Draw images in 0 to 1, and sounds in -1 to 1."""
    if _is_image(spec):
        return random.random(spec.shape) * (spec.bounds[1] if spec.bounds else 1)
    return random.uniform(-1, 1, spec.shape) if _is_sound(spec) else usual


def _change_rows(array: np.ndarray, change: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return every other row, along the last axis, changed; halves are not computed with."""
    if not array.size:
        return array
    rows = array.astype(np.float64).reshape(-1, array.shape[-1] if array.ndim else 1)
    rows[::2] = change(rows[::2])
    return rows


def _bounds(spec: TensorSpec) -> tuple[int, int]:
    """Return the whole numbers that an input may hold: what it indexes, or a narrow dtype."""
    info = np.iinfo(spec.dtype)
    if len(spec.bounds) == 2 and info.min <= spec.bounds[0] <= spec.bounds[1] <= info.max:
        return spec.bounds[0], spec.bounds[1]
    if "mask" in spec.name.lower():
        return 0, 1
    if _is_sound(spec):
        return max(int(info.min), _SAMPLES[0]), min(int(info.max), _SAMPLES[1])
    return (int(info.min), int(info.max)) if info.bits <= 16 else (0, _MOST_WIDE)


def _is_image(spec: TensorSpec) -> bool:
    if len(spec.shape) != 4:
        return False
    _, a, b, c = spec.shape
    planar, packed = a in _CHANNELS and min(b, c), c in _CHANNELS and min(a, b)
    return max(planar, packed) >= _LEAST_IMAGE


def _is_sound(spec: TensorSpec) -> bool:
    """Return whether it is called one, has the extents of one, or a spectrum is taken of it."""
    if spec.bounds and np.dtype(spec.dtype).kind == "f":
        return spec.bounds[0] < 0
    if any(word in spec.name.lower() for word in _SOUNDS):
        return True
    few = int(np.prod(spec.shape[:-1])) <= 2
    return spec.shape[-1:] >= (_LEAST_SOUND,) and len(spec.shape) <= 3 and few


def _describe_large(spec: TensorSpec) -> str:
    dtype = np.dtype(spec.dtype)
    if dtype.kind in "iu":
        low, high = _bounds(spec)
        return f"{low} to {high}"
    if dtype.kind == "b":
        return "all true"
    if spec.bounds:
        return f"{spec.bounds[0]} to {spec.bounds[1]}"
    if _is_image(spec):
        return "0 to 1"
    return (
        "-1 to 1" if _is_sound(spec) else f"rows of {_LARGE:.0f} times as much about {_LARGE:.0f}"
    )


SCALES = (1e-3, 1e2, 1e4)
Arrays = Mapping[str, np.ndarray]


def scale_inputs(usual: Inputs) -> list[Inputs]:
    """Inputs at each of the scales; none where nothing of floats was drawn."""
    floats = [name for name in usual.drawn if usual[name].dtype.kind == "f"]
    if not floats:
        return []
    scaled = []
    for scale in SCALES:
        with np.errstate(over="ignore"):
            one = usual.add({name: usual[name] * usual[name].dtype.type(scale) for name in floats})
        scaled.append(one)
    return scaled


def tell_range(ours: Sequence[Arrays], theirs: Sequence[Arrays]) -> str:
    """Tell at which scales outputs are not finite where float32's are; one of each for a scale."""
    lost = [
        (f"{scale:g} times", name)
        for scale, made, wanted in zip(SCALES, ours, theirs, strict=True)
        for name, value in made.items()
        if name in wanted and np.isfinite(wanted[name]).all() and not np.isfinite(value).all()
    ]
    if not lost:
        return f"finite as float32 is on {SCALES[0]:g} to {SCALES[-1]:g} times the usual ones"
    scales = ", ".join(dict.fromkeys(scale for scale, _ in lost))
    return (
        f"on {scales} the usual ones `{lost[0][1]}` is not finite where float32 is "
        "(--preset fp32 holds them)"
    )
