"""Input arrays for a model: seeded random numbers, .npy, .npz, adapters, raw bytes, images.

NumPy's files as others wrote them: numbers, or one sentence about what they are instead.
"""

from __future__ import annotations

import difflib
import math
import os
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np

from adrenoc.base.errors import DependencyError, InputError
from adrenoc.base.files.outputs import write_atomically
from adrenoc.base.files.read import open_plain, read_plain
from adrenoc.base.host.extras import import_onnxruntime, pip_install
from adrenoc.base.text.spelling import list_first, quote_word
from adrenoc.bundle.manifest import TensorSpec

NAMED_ARRAYS = (".npz", ".onnx_adapter")
"""Ends of files that hold arrays for several inputs, by name."""
_MOST_INPUT_BYTES = 4 << 30
T = TypeVar("T")
# What numpy, zipfile and Python's parser, which reads the headers, make of damage.
_DAMAGED = (
    *(ValueError, TypeError, KeyError, EOFError, SyntaxError, RecursionError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError),
)
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def _load_array(path: Path) -> np.ndarray:
    """Return the array of a .npy file. Raises InputError where the file is missing, damaged, or
    holds something else."""
    return _load_plain(path, _array)


def _load_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a .npz file, or the parameters of an adapter, by name. Raises InputError
    where the file is missing, damaged, too long, or holds something else; DependencyError where it
    is an adapter, and onnxruntime is not installed."""
    is_plain = path.suffix.lower() == ".npz"
    return _load_plain(path, _arrays if is_plain else lambda _: _read_adapter(path))


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a .npz file, whatever the arrays are called (`np.savez` takes no `file`). Raises
    OutputError where it cannot be written."""
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
    write_atomically(path, buffer.getvalue())


def _load_plain(path: Path, load: Callable[[BinaryIO], T]) -> T:
    try:
        with open_plain(path) as stream:
            return load(stream)
    except OSError as error:
        raise _unreadable(path, error) from error
    except _DAMAGED as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        # numpy takes whatever it does not know for objects, and says how to run them.
        told = reason[0]
        if told.startswith("Object arrays"):
            told = "it holds objects of Python, which are not loaded"
        elif "pickle" in told:
            told = "it begins as none does"
        raise InputError(
            f"{path} is not a NumPy file of numbers: {told}", hint="save it with np.save"
        ) from error


def _unreadable(path: Path, error: OSError) -> InputError:
    is_there = not isinstance(error, FileNotFoundError)
    what = f"cannot be read: {error.strerror or error}" if is_there else "does not exist"
    return InputError(f"input file {path} {what}", hint=f"ls {quote_word(path.parent)}")


def _array(stream: BinaryIO) -> np.ndarray:
    _check_length(stream)
    found: Any = np.load(stream, allow_pickle=False)
    if not isinstance(found, np.ndarray):
        raise ValueError("it is an archive; expected one array (.npz is how archives end)")
    return found


def _check_length(stream: BinaryIO) -> None:
    """Refuse a header that promises more than the file holds, before room is made for it."""
    if not stream.read(1).startswith(b"\x93"):
        stream.seek(0)
        return
    stream.seek(0)
    read = _HEADERS.get(np.lib.format.read_magic(stream))
    if read is not None:
        try:
            shape, _, dtype = read(stream)
        except MemoryError as error:  # Python's parser, of what is nested too deeply
            raise ValueError("its header is nested too deeply") from error
        promised = dtype.itemsize
        for extent in shape:  # numpy's product would overflow
            promised *= int(extent)
        left = os.fstat(stream.fileno()).st_size - stream.tell()
        if promised > left and not dtype.hasobject:
            raise ValueError(f"its header promises {promised} bytes, and {left} follow")
    stream.seek(0)


def _arrays(stream: BinaryIO) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(stream) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
        if size > _MOST_INPUT_BYTES:
            raise ValueError(f"it unpacks to {size} bytes, expected up to {_MOST_INPUT_BYTES}")
    stream.seek(0)
    with np.load(stream, allow_pickle=False) as loaded:
        found = {name: loaded[name] for name in loaded.files}
    other = [name for name, value in found.items() if not isinstance(value, np.ndarray)]
    if other:
        raise ValueError(f"{other[0]!r} in it is no array")
    return found


def _read_adapter(path: Path) -> dict[str, np.ndarray]:
    """Return the parameters of an adapter (LoRA) in onnxruntime's own format."""
    try:
        read = import_onnxruntime().AdapterFormat.read_adapter(str(path))
        # What onnxruntime gives lies in memory that goes with the file.
        return {name: np.array(value.numpy()) for name, value in read.get_parameters().items()}
    except ImportError as error:
        raise DependencyError(
            f"onnxruntime, which reads {path}, cannot be imported: {error}",
            hint=pip_install("check"),
        ) from error
    except RuntimeError as error:
        raise InputError(
            f"{path} is no adapter that onnxruntime reads",
            hint="Olive and onnxruntime's AdapterFormat().export_adapter(FILE) write such files",
        ) from error


IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".ppm", ".tif"})

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_PATCHES = "patches"
"""The layout [1, N * N, P * P * 3]: squares of P x P pixels, N in a row, row by row."""


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """How pixels become numbers: value / 255, then (value - mean) / std by channel.

    `mean` and `std` hold one number or one for each channel; `layout` is NCHW, NHWC or "" to tell
    by the extents.  With a `filter` (Pillow's number) an image of another size is resized: what is
    not of the input's form is cut off if it `crops`, else squeezed.
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    layout: str = ""
    filter: int | None = None
    crops: bool = False

    def __post_init__(self) -> None:
        if self.layout not in ("", "NCHW", "NHWC"):
            raise InputError(
                f"the layout is '{self.layout}'; expected NCHW or NHWC", hint="leave it out"
            )
        if not self.std or not all(self.std) or not all(map(math.isfinite, self.std)):
            raise InputError(
                f"STD of --image is {list(self.std)}; expected numbers other than 0",
                hint="--image 0.485,0.456,0.406/0.229,0.224,0.225",
            )
        if not self.mean or not all(map(math.isfinite, self.mean)):
            raise InputError(
                f"MEAN of --image is {list(self.mean)}; expected numbers",
                hint="--image 0.485,0.456,0.406/0.229,0.224,0.225",
            )


@dataclass(frozen=True, kw_only=True)
class InputFile:
    """A file for one input; without a name it serves the only input, or all of them (.npz)."""

    path: Path
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> InputFile:
        """Read `NAME=FILE` or `FILE`."""
        name, separator, path = text.rpartition("=")
        if not path:
            raise InputError(
                f"--input {text} names no file; expected NAME=FILE", hint="--input input=img.npy"
            )
        return cls(path=Path(path), name=name if separator else "")


def input_files(folder: Path) -> tuple[Path, ...]:
    """Return the .npz and .npy files of a folder by name: each is one set of inputs. All are read
    once: what is damaged is told before the minutes that a search takes. Raises InputError where
    there is no such folder, or none of them in it, or one of them is damaged."""
    try:
        found = sorted(p for p in folder.iterdir() if p.suffix.lower() in (".npz", ".npy"))
    except OSError as error:
        raise InputError(
            f"{folder} is not a folder that can be read; expected one with .npz or .npy files",
            hint="--inputs FOLDER",
        ) from error
    if not found:
        raise InputError(
            f"{folder} holds no .npz or .npy file", hint="np.savez(FILE, **{name: array})"
        )
    for path in found:
        if path.suffix.lower() == ".npz":
            _load_arrays(path)
        else:
            _load_array(path)
    return tuple(found)


class Inputs(dict[str, "np.ndarray"]):
    """Arrays by input; `drawn` are the inputs of random numbers, which nobody gave."""

    drawn: frozenset[str] = frozenset()

    def add(self, others: Mapping[str, np.ndarray]) -> Inputs:
        """Return these and others, which somebody gave."""
        inputs = Inputs({**self, **others})
        inputs.drawn = self.drawn
        return inputs


def make_inputs(
    specs: Sequence[TensorSpec],
    files: Sequence[InputFile] = (),
    *,
    seed: int = 0,
    image: ImageOptions | None = None,
) -> Inputs:
    """Return one array for each of `specs`, in order: from `files`, random where there is none.
    Raises InputError where a file is missing, damaged, of another shape or dtype, or for no
    input."""
    found: dict[str, np.ndarray] = {}
    options = image or ImageOptions()
    for file in files:
        if file.path.suffix.lower() in NAMED_ARRAYS:
            read = _read_named(file, specs)
        else:
            spec = _target(file, specs)
            read = {spec.name: _read_file(file.path, spec, options)}
        for name in found.keys() & read.keys():
            raise InputError(
                f"input '{name}' is given twice, by {file.path} and a file before it",
                hint="give each input one --input",
            )
        found.update(read)
    inputs = Inputs(
        (spec.name, found[spec.name] if spec.name in found else random_input(spec, seed=seed))
        for spec in specs
    )
    inputs.drawn = frozenset(inputs) - frozenset(found)
    return inputs


def shapes_of(
    specs: Sequence[TensorSpec], files: Sequence[InputFile]
) -> dict[str, tuple[int, ...]]:
    """Return the shapes that NumPy files say of themselves, by input; others take what is asked.
    Raises InputError where a file is missing, damaged, or for no input."""
    found: dict[str, tuple[int, ...]] = {}
    for file in files:
        suffix = file.path.suffix.lower()
        if suffix == ".npy":
            found[_target(file, specs).name] = tuple(_load_array(file.path).shape)
        elif suffix in NAMED_ARRAYS:
            arrays = _load_arrays(file.path)
            shapes = {name: tuple(array.shape) for name, array in arrays.items()}
            named = {s.name: shapes[s.name] for s in specs if s.name in shapes}
            only = len(shapes) == 1 and (len(specs) == 1 or bool(file.name))
            found.update(
                named or ({_target(file, specs).name: next(iter(shapes.values()))} if only else {})
            )
    return found


def random_input(spec: TensorSpec, *, seed: int = 0) -> np.ndarray:
    """Draw the random input of a tensor: the same numbers for the same seed, name, shape and dtype.
    Floats are normal with deviation 1; integers fit what they index, as far as that is known, else
    wide ones lie in 0 to 9."""
    generator = np.random.default_rng([seed, zlib.crc32(spec.name.encode())])
    dtype = np.dtype(spec.dtype)
    if dtype.kind == "f":
        return generator.standard_normal(spec.shape, np.float32).astype(dtype)
    if dtype.kind == "b":
        return generator.integers(0, 2, spec.shape).astype(dtype)
    if dtype.kind not in "iu":
        raise InputError(
            f"input '{spec.name}' has dtype {dtype}, for which there are no random numbers",
            hint=f"--input {spec.name}=FILE.npy",
        )
    return generator.integers(*whole_range(spec), spec.shape, dtype, endpoint=True)


def whole_range(spec: TensorSpec) -> tuple[int, int]:
    """Return the least and the largest whole number that is drawn for an input."""
    limits = np.iinfo(spec.dtype)
    if len(spec.bounds) == 2 and limits.min <= spec.bounds[0] <= spec.bounds[1] <= limits.max:
        return int(spec.bounds[0]), int(spec.bounds[1])
    return (int(limits.min), int(limits.max)) if np.dtype(spec.dtype).itemsize == 1 else (0, 9)


def _target(file: InputFile, specs: Sequence[TensorSpec]) -> TensorSpec:
    known = {spec.name: spec for spec in specs}
    if not file.name and len(specs) == 1:
        return specs[0]
    if file.name in known:
        return known[file.name]
    near = difflib.get_close_matches(file.name, known, n=1, cutoff=0.4)
    names = list_first((f"'{name}'" for name in known), between=", ")
    what = f"no input '{file.name}'" if file.name else f"{len(specs)} inputs"
    raise InputError(
        f"{file.path} is given, but the model has {what}; its inputs are {names}",
        hint=f"--input {near[0] if near else next(iter(known), 'NAME')}={quote_word(file.path)}",
    )


def _read_named(file: InputFile, specs: Sequence[TensorSpec]) -> dict[str, np.ndarray]:
    arrays = _load_arrays(file.path)
    if file.name or (len(arrays) == 1 and len(specs) == 1):
        spec = _target(file, specs)
        if spec.name not in arrays and len(arrays) == 1:
            return {spec.name: _fit(next(iter(arrays.values())), spec, file.path)}
        specs = [spec]
    result = {s.name: _fit(arrays[s.name], s, file.path) for s in specs if s.name in arrays}
    if not result:
        names = list_first((f"'{s.name}'" for s in specs), between=", ")
        raise InputError(
            f"{file.path} holds {', '.join(map(repr, arrays)) or 'nothing'}; expected {names}",
            hint="save it with np.savez(FILE, **{name: array})",
        )
    return result


def _read_file(path: Path, spec: TensorSpec, image: ImageOptions) -> np.ndarray:
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return _fit(_load_array(path), spec, path)
    if suffix in IMAGE_SUFFIXES:
        return _read_image(path, spec, image)
    try:
        content = read_plain(path, _MOST_INPUT_BYTES)
    except OSError as error:
        raise _unreadable(path, error) from error
    dtype = np.dtype(spec.dtype)
    expected = int(np.prod(spec.shape)) * dtype.itemsize
    if len(content) != expected:
        raise InputError(
            f"{path} holds {len(content)} bytes; input '{spec.name}' of {spec.dtype} "
            f"{list(spec.shape)} takes {expected}",
            hint="write the array with array.tofile(FILE), row-major",
        )
    return np.frombuffer(content, dtype).reshape(spec.shape).copy()


def _fit(array: np.ndarray, spec: TensorSpec, path: Path) -> np.ndarray:
    wanted = np.dtype(spec.dtype)
    if array.shape != spec.shape:
        raise InputError(
            f"{path} has the shape {list(array.shape)}; input '{spec.name}' takes "
            f"{list(spec.shape)}",
            hint=_hint_of_shape(array, spec),
        )
    floats = array.dtype.kind == "f" and wanted.kind == "f"
    if array.dtype != wanted and not floats:
        raise InputError(
            f"{path} holds {array.dtype}; input '{spec.name}' takes {wanted}",
            hint=f"array.astype('{wanted}')"
            if array.dtype.kind in "biuf"
            else f"save numbers of {wanted} with np.save",
        )
    return np.asarray(array, wanted, order="C")  # a scalar stays one


def _hint_of_shape(array: np.ndarray, spec: TensorSpec) -> str:
    """Return what an array of another shape could do, or the model."""
    ways = []
    if array.size == math.prod(spec.shape):
        ways.append(f"array.reshape({list(spec.shape)})")
    if array.size and array.ndim == len(spec.shape):
        extents = ",".join(map(str, array.shape))
        ways.append(f"compile with --shape {spec.name}:{extents}")
    return ", or ".join(ways) or f"save an array of the shape {list(spec.shape)} with np.save"


def _read_image(path: Path, spec: TensorSpec, options: ImageOptions) -> np.ndarray:
    layout = options.layout or _guess_layout(spec)
    channels, height, width = _extents(spec, layout)
    pixels = _pixels(path, _MODES[channels], (width, height), options)
    if pixels.shape[:2] != (height, width):
        raise InputError(
            f"{path} has {pixels.shape[1]}x{pixels.shape[0]} pixels; input '{spec.name}' takes "
            f"{width}x{height}",
            hint=f"resize it first: magick {quote_word(path)} -resize {width}x{height}! "
            "resized.png",
        )
    pixels = pixels.reshape(height, width, channels)
    dtype = np.dtype(spec.dtype)
    if dtype.kind == "f":
        for name, numbers in (("mean", options.mean), ("std", options.std)):
            if len(numbers) not in (1, channels):
                raise InputError(
                    f"--{name} has {len(numbers)} numbers; '{spec.name}' has {channels} channels",
                    hint=f"--{name} " + ",".join(["0.5"] * channels),
                )
        scaled = pixels.astype(np.float32) / 255.0
        values = (scaled - np.array(options.mean)) / np.array(options.std)
    elif dtype == np.uint8:
        values = pixels
    else:
        raise InputError(
            f"input '{spec.name}' takes {dtype}; an image gives floats or uint8",
            hint=f"--input {spec.name}=FILE.npy",
        )
    if layout == _PATCHES:
        count = math.isqrt(spec.shape[1])
        apart = values.reshape(count, height // count, count, width // count, channels)
        ordered = apart.transpose(0, 2, 1, 3, 4)
    else:
        ordered = values if layout == "NHWC" else values.transpose(2, 0, 1)
    return np.ascontiguousarray(ordered.reshape(spec.shape).astype(dtype))


def _guess_layout(spec: TensorSpec) -> str:
    if len(spec.shape) == 3 and _side_of_patches(spec):
        return _PATCHES
    return "NHWC" if len(spec.shape) == 4 and spec.shape[3] in _MODES else "NCHW"


def _side_of_patches(spec: TensorSpec) -> int:
    """Return the pixels on a side of an image in patches; 0 of what is none."""
    batch, count, numbers = spec.shape
    rows, side = math.isqrt(count), math.isqrt(numbers // 3)
    return rows * side if (batch, count, numbers) == (1, rows**2, 3 * side**2) else 0


def _extents(spec: TensorSpec, layout: str) -> tuple[int, int, int]:
    if layout == _PATCHES:
        side = _side_of_patches(spec)
        return 3, side, side
    if len(spec.shape) in (4, 5) and set(spec.shape[:-3]) == {1}:
        a, b, c = spec.shape[-3:]
        channels, height, width = (c, a, b) if layout == "NHWC" else (a, b, c)
        if channels in _MODES:
            return channels, height, width
    raise InputError(
        f"input '{spec.name}' of {list(spec.shape)} takes no image; expected one image of 1, 3 or "
        f"4 channels in {layout}",
        hint=f"--input {spec.name}=FILE.npy",
    )


def _pixels(path: Path, mode: str, size: tuple[int, int], options: ImageOptions) -> np.ndarray:
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise DependencyError(
            f"{path} is an image; Pillow, which reads images, is not installed",
            hint=pip_install("images"),
        ) from error
    try:
        with open_plain(path) as stream, Image.open(stream) as image:
            whole = image.convert(mode)
            if options.filter is None:
                return np.asarray(whole)
            how = Image.Resampling(options.filter)
            resized = ImageOps.fit(whole, size, how) if options.crops else whole.resize(size, how)
            return np.asarray(resized)
    except FileNotFoundError as error:
        raise _unreadable(path, error) from error
    # What Pillow's readers raise of damaged files.
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(
            f"{path} is not a whole image: {error}", hint="check it: file " + str(path)
        ) from error
