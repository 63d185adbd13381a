"""The C API for Python: a bundle is loaded once, and each run takes and gives NumPy's arrays.

    with Model("mobilenet_v2.adrenoc") as model:
        scores = model.run({"input": pixels})["output"]

What a run does not give of a bundle's states goes on from the run before.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from adrenoc.base.errors import BundleError, DeviceError, InputError
from adrenoc.base.files.read import cache_folder
from adrenoc.base.text.spelling import quote_word
from adrenoc.native import open_software_driver

if TYPE_CHECKING:
    import numpy as np

_BAD_ARGUMENT, _NOT_FOUND, _BAD_BUNDLE, _UNSUPPORTED, _CONTEXT_FULL = 1, 2, 3, 9, 11
_MOST_AXES = 16


class ModelTensor(NamedTuple):
    """An input or output."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class DeviceMemory(NamedTuple):
    """Bytes of the device that all models hold, and how often constants left it and came back."""

    used: int
    budget: int
    evictions: int
    returns: int


class Model:
    """A loaded bundle, on the first OpenCL device or one that is named."""

    def __init__(self, bundle: Path | str, *, device: str = "") -> None:
        """`device` is a number or a part of a name, or "cpu" for code for the CPU.

        Raises BundleError where it is not there, damaged, or for another machine; DeviceError where
        there is no such device, or it refuses the kernels; DependencyError or ToolError where this
        machine's runtime cannot be built.
        """
        self._bundle = str(bundle)
        self._model = ctypes.c_void_p()
        self._bound: dict[str, np.ndarray] = {}  # what the model reads until others are
        options = _Options(struct_bytes=ctypes.sizeof(_Options))
        options.device = device.encode() or None
        options.opencl_library = open_software_driver().encode() or None
        options.cache_folder = os.fsencode(cache_folder() / "programs")
        path = os.fsencode(self._bundle)
        self._call("load", path, ctypes.byref(options), ctypes.byref(self._model))
        self._free = weakref.finalize(self, _open().adrenoc_free, self._model)
        self._free.atexit = False  # the process gives all back
        self.inputs = self._list("input")
        """By name, in the model's order."""
        self.outputs = self._list("output")

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give its memory back; it cannot run any more."""
        self._free()
        self._model = ctypes.c_void_p()

    @property
    def device(self) -> str:
        """Return the name of what it runs on."""
        return str(_open().adrenoc_device_name(self._model).decode())

    @property
    def notes(self) -> str:
        """Return what a developer should know of how it runs here, a line each."""
        return str(_open().adrenoc_notes(self._model).decode())

    def run(
        self, inputs: Mapping[str, np.ndarray], *, wanted: Collection[str] | None = None
    ) -> dict[str, np.ndarray]:
        """Compute once; returns the outputs that are `wanted`, or all of them. Raises InputError
        where an input is unknown, missing, or of another shape or dtype; DeviceError where the
        device failed."""
        import numpy as np

        asked = self.outputs.keys() if wanted is None else set(wanted)
        self._check_names(inputs.keys() - self.inputs.keys(), "input", self.inputs)
        self._check_names(asked - self.outputs.keys(), "output", self.outputs)
        given = [
            self._fit(info, inputs[name]) if name in inputs else None
            for name, info in self.inputs.items()
        ]
        made = {
            name: np.empty(self._output_shape(given, place), info.dtype)
            for place, (name, info) in enumerate(self.outputs.items())
            if name in asked
        }
        results = [made.get(name) for name in self.outputs]
        self._call("run_with", self._model, *_tensors(given), *_tensors(results), None)
        return made

    def generate(
        self,
        prompt: Sequence[int],
        inputs: Mapping[str, np.ndarray] | None = None,
        *,
        max_tokens: int = 0,
        bias: Mapping[int, float] | None = None,
    ) -> list[int]:
        """Take in a prompt, and make the likeliest tokens after it up to an end token, or so many.

        `inputs` are what a decoder reads beside its tokens, as what an encoder has made; `bias` is
        added to tokens' logits. Raises InputError where the model is no decoder, has no room for
        more, or an input does not fit; DeviceError where the device failed.
        """
        given = inputs or {}
        self._check_names(given.keys() - self.inputs.keys(), "input", self.inputs)
        held = {name: self._fit(self.inputs[name], value) for name, value in given.items()}
        for place, name in enumerate(self.inputs):
            if name in held:
                memory = ctypes.c_void_p(held[name].ctypes.data)
                words = (ctypes.c_size_t(place), memory, ctypes.c_size_t(held[name].nbytes))
                self._call("bind_input", self._model, *words)
        self._bound |= held
        tokens: list[int] = []

        def take(token: int, _user: object) -> int:
            tokens.append(token)
            return 0

        on_token = _OnToken(take)
        how = _Generation(struct_bytes=ctypes.sizeof(_Generation), max_tokens=max_tokens)
        how.bias_count = len(bias or {})
        how.bias_tokens = (ctypes.c_int64 * how.bias_count)(*(bias or {}))
        how.bias = (ctypes.c_float * how.bias_count)(*(bias or {}).values())
        taken = (ctypes.c_int64 * len(prompt))(*prompt), ctypes.c_size_t(len(prompt))
        self._call("generate", self._model, *taken, ctypes.byref(how), on_token, None)
        return tokens

    def rewind(self, tokens: int = 0) -> None:
        """Forget all but the first tokens of a decoder's context."""
        self._call("rewind", self._model, ctypes.c_uint64(tokens))

    def _check_names(self, unknown: Collection[str], kind: str, known: Iterable[str]) -> None:
        if unknown:
            raise InputError(
                f"{self._bundle} has no {kind} '{min(unknown)}', expected {', '.join(known)}",
                hint=f"adrenoc inspect {quote_word(self._bundle)}",
            )

    def _fit(self, info: ModelTensor, value: np.ndarray) -> np.ndarray:
        """Return an array as the runtime reads it."""
        import numpy as np

        array = np.asarray(value)
        if not np.can_cast(array.dtype, info.dtype, "same_kind"):
            raise InputError(
                f"'{info.name}' of {self._bundle} gets {array.dtype}, expected {info.dtype}",
                hint=f"array.astype('{info.dtype}')",
            )
        return np.ascontiguousarray(array, info.dtype).reshape(array.shape)

    def _output_shape(self, given: Sequence[np.ndarray | None], place: int) -> tuple[int, ...]:
        shapes = (_Shape * len(given))(*map(_shape, given))
        rank = ctypes.c_uint32(_MOST_AXES)
        extents = (ctypes.c_int64 * _MOST_AXES)()
        counts = ctypes.c_size_t(len(given)), ctypes.c_size_t(place)
        self._call("output_shape_for", self._model, shapes, *counts, extents, ctypes.byref(rank))
        return tuple(extents[: rank.value])

    @property
    def buckets(self) -> list[dict[str, ModelTensor]]:
        """Return the inputs of each choice of shapes that there is, the smallest first."""
        count = _open().adrenoc_bucket_count(self._model)
        return [self._list("input", "bucket_input", ctypes.c_size_t(n)) for n in range(count)]

    def _list(self, kind: str, told: str = "", *of: ctypes.c_size_t) -> dict[str, ModelTensor]:
        """Return the inputs or outputs, by name, as the function that is `told` gives them."""
        found = {}
        for place in range(getattr(_open(), f"adrenoc_{kind}_count")(self._model)):
            info = _Info()
            words = (*of, ctypes.c_size_t(place), ctypes.byref(info))
            self._call(f"{told or kind}_info", self._model, *words)
            shape = tuple(info.shape[: info.rank])
            name, dtype = info.name.decode(), info.dtype.decode()
            found[name] = ModelTensor(name=name, dtype=dtype, shape=shape)
        return found

    def _call(self, name: str, *words: Any) -> None:
        _call(name, *words, of=self._bundle)


def set_memory_budget(megabytes: float) -> None:
    """Limit what all models hold on the device between runs; 0 for no limit. Beyond it those that
    were used longest ago give their constants up until their next run."""
    _call("set_memory_budget", ctypes.c_uint64(int(megabytes * 1e6)))


def read_memory() -> DeviceMemory:
    """Return what all models hold now."""
    found = _Memory(struct_bytes=ctypes.sizeof(_Memory))
    _call("get_memory", ctypes.byref(found))
    return DeviceMemory(
        used=found.used_bytes,
        budget=found.budget_bytes,
        evictions=found.evictions,
        returns=found.returns,
    )


class _Options(ctypes.Structure):
    """The first fields of `adrenoc_options`."""

    _fields_ = (
        ("struct_bytes", ctypes.c_uint32),
        ("trust_files", ctypes.c_uint32),
        ("device", ctypes.c_char_p),
        ("opencl_library", ctypes.c_char_p),
        ("cache_folder", ctypes.c_char_p),
    )


class _Info(ctypes.Structure):
    """`adrenoc_tensor_info`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("rank", ctypes.c_uint32),
        ("bytes", ctypes.c_uint64),
    )


class _Shape(ctypes.Structure):
    """`adrenoc_shape`."""

    _fields_ = (("extents", ctypes.POINTER(ctypes.c_int64)), ("rank", ctypes.c_uint32))


class _Tensor(ctypes.Structure):
    """`adrenoc_tensor`."""

    _fields_ = (
        ("memory", ctypes.c_void_p),
        ("kind", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("bytes", ctypes.c_uint64),
        ("offset", ctypes.c_uint64),
        ("shape", _Shape),
    )


class _Generation(ctypes.Structure):
    """`adrenoc_generation`, as far as its bias."""

    _fields_ = (
        ("struct_bytes", ctypes.c_uint32),
        ("max_tokens", ctypes.c_uint32),
        ("temperature", ctypes.c_float),
        ("top_k", ctypes.c_uint32),
        ("top_p", ctypes.c_float),
        ("seed", ctypes.c_uint64),
        ("end_tokens", ctypes.POINTER(ctypes.c_int64)),
        ("end_count", ctypes.c_size_t),
        ("min_p", ctypes.c_float),
        ("repetition_penalty", ctypes.c_float),
        ("presence_penalty", ctypes.c_float),
        ("frequency_penalty", ctypes.c_float),
        ("bias_tokens", ctypes.POINTER(ctypes.c_int64)),
        ("bias", ctypes.POINTER(ctypes.c_float)),
        ("bias_count", ctypes.c_size_t),
    )


_OnToken = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64, ctypes.c_void_p)


class _Memory(ctypes.Structure):
    """`adrenoc_memory`."""

    _fields_ = (
        ("struct_bytes", ctypes.c_uint32),
        ("models", ctypes.c_uint32),
        ("evicted", ctypes.c_uint32),
        ("budget_bytes", ctypes.c_uint64),
        ("used_bytes", ctypes.c_uint64),
        ("pooled_bytes", ctypes.c_uint64),
        ("evictions", ctypes.c_uint64),
        ("returns", ctypes.c_uint64),
        ("return_ms", ctypes.c_double),
    )


@cache
def _open() -> ctypes.CDLL:
    """Open this machine's runtime, which is built where it is not there yet."""
    from adrenoc.native.android.runtime_build import build_runtime

    api = ctypes.CDLL(str(build_runtime().library))
    for name in ("last_error", "device_name", "notes"):
        getattr(api, f"adrenoc_{name}").restype = ctypes.c_char_p
    for name in ("input_count", "output_count", "bucket_count"):
        getattr(api, f"adrenoc_{name}").restype = ctypes.c_size_t
    return api


def _call(name: str, *words: Any, of: str = "") -> None:
    """Call a function that tells a status, and raise what it says."""
    status = getattr(_open(), f"adrenoc_{name}")(*words)
    if status == 0:
        return
    said = _open().adrenoc_last_error().decode()
    message = f"{of}: {said}" if of and of not in said else said
    if status in (_BAD_ARGUMENT, _UNSUPPORTED, _CONTEXT_FULL):
        raise InputError(message, hint=f"adrenoc inspect {quote_word(of)}")
    if status in (_NOT_FOUND, _BAD_BUNDLE):
        raise BundleError(message, hint="adrenoc compile MODEL --device host")
    raise DeviceError(message, hint="adrenoc doctor")


def _shape(array: np.ndarray | None) -> _Shape:
    """Return an array's shape, or that it does not matter."""
    if array is None:
        return _Shape()
    return _Shape((ctypes.c_int64 * array.ndim)(*array.shape), array.ndim)


def _tensors(arrays: Sequence[np.ndarray | None]) -> tuple[Any, ctypes.c_size_t]:
    """Return what describes arrays to `adrenoc_run_with`, and how many there are."""
    found = (_Tensor * len(arrays))()
    for tensor, array in zip(found, arrays, strict=True):
        if array is not None:
            tensor.memory, tensor.bytes = array.ctypes.data, array.nbytes
        tensor.shape = _shape(array)
    return found, ctypes.c_size_t(len(arrays))
