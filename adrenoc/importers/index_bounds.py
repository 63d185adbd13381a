"""Which whole numbers each input may hold, found from what it indexes, or is scaled by.

Random numbers for a model have to fit: an id beyond its table fails in the reference, or compares
what neither was meant to compute.  Read backwards from what indexes, as far as that is simple
arithmetic: this is for drawing numbers, and refuses none.

    take(table[30522, 768], astype(ids))             ids: 0 to 30521
    take(table[2, 768], kinds + 0)                   kinds: 0 to 1
    (1 - astype(mask)) * -1e4                        mask: 0 to 1
    image / 255, image - 127.5                       image, in float: 0 to 255
    power(conv1d(pad(x[1, 16000]), w), 2)            x, in float, is a sound: -32768 to 32767

A spectrum is taken of sounds of any scale; a network that convolves them has learned its own.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from adrenoc.bundle.manifest import TensorSpec
from adrenoc.importers.relax.values import constant_value, dtype_of, op_name, static_shape

Bounds = tuple[float, float]
"""The smallest and the largest number."""

_PIXELS = (0, 255)
_SCALES: dict[str, Bounds] = {"divide": (50, 260), "multiply": (1 / 260, 1 / 50)}
_MEANS: Bounds = (90, 135)
"""What pixels of 8 bits are divided by, and what is subtracted from them."""

_SOUND = (-(2**15), 2**15 - 1)
_SAMPLES, _ROWS = 256, 2
"""A sound has so many samples at least, in so many rows at most."""
_SIZES = frozenset({"abs", "log", "power", "sqrt", "square"})
"""Operators that take sizes, as of a spectrum."""
_TRANSFORMS = frozenset({"nn.conv1d", "nn.conv2d", "matmul"})
_SHIFTED = frozenset({"nn.pad", "concat", "add", "subtract", "multiply", "divide"})
"""Operators that leave a sound or a spectrum one, beside those of `_SAME`."""

_SAME = frozenset(
    {
        *("astype", "reshape", "permute_dims", "expand_dims", "squeeze", "flatten", "flip"),
        *("broadcast_to", "strided_slice", "repeat", "tile", "take", "split", "gather_elements"),
    }
)
"""Operators whose results are numbers of their first operand."""

_INDEXED: dict[str, int] = {"gather_elements": 1, "scatter_elements": 1, "take": 1}
"""Operators that look up along one axis, and which operand holds the places."""

_COMPARE = frozenset({"equal", "greater", "greater_equal", "less", "less_equal", "not_equal"})


def find_bounds(module: Any, inputs: Iterable[TensorSpec]) -> tuple[TensorSpec, ...]:
    """Return the inputs, those of whole numbers with the bounds that they have to keep."""
    specs = tuple(inputs)
    function, walk = module["main"], _Walk()
    found = walk.walk(function)
    bounded = []
    for spec, parameter in zip(specs, function.params, strict=False):
        bounds = found.get(parameter)
        if np.dtype(spec.dtype).kind == "f":
            is_sound = _is_row(parameter) and parameter in walk.sounds
            known = _PIXELS if bounds == _PIXELS else _SOUND if is_sound else ()
            bounded.append(replace(spec, bounds=known))
            continue
        whole = np.dtype(spec.dtype).kind in "iu" and bounds is not None
        bounded.append(replace(spec, bounds=_whole(spec, bounds)) if whole and bounds else spec)
    return (*bounded, *specs[len(bounded) :])


def _whole(spec: TensorSpec, bounds: Bounds) -> tuple[int, ...]:
    """Return the bounds as whole numbers of the dtype; empty where none are left."""
    info = np.iinfo(spec.dtype)
    low, high = (max(bounds[0], info.min), min(bounds[1], info.max))
    if low < 0 <= high:
        low = 0  # what counts from the end is as good as what counts from the start
    return (math.ceil(low), math.floor(high)) if low <= high else ()


class _Walk:
    """One walk over a function from its end to its start."""

    def __init__(self) -> None:
        self._wanted: dict[Any, Bounds] = {}
        self._flags: dict[Any, Bounds] = {}
        self.sounds: set[Any] = set()
        """Variables of floats of which a spectrum is taken."""
        self._spectra: set[Any] = set()

    def walk(self, function: Any) -> dict[Any, Bounds]:
        """Return the bounds of variables; those of flags count where nothing is looked up."""
        for block in reversed(list(function.body.blocks)):
            for binding in reversed(list(block.bindings)):
                value = getattr(binding, "value", None)
                wanted = self._wanted.get(binding.var)
                flags = self._flags.get(binding.var)
                if isinstance(value, relax.Var):
                    self._carry(binding.var, {value})
                    self._pass(value, wanted, flags)
                elif isinstance(value, relax.TupleGetItem):
                    self._carry(binding.var, {value.tuple_value})
                    self._pass(value.tuple_value, wanted, flags)
                elif isinstance(value, relax.Tuple):
                    for part in value.fields:
                        self._pass(part, wanted, flags)
                elif isinstance(value, relax.Call):
                    self._call(value, wanted, flags, binding.var)
        return {**self._flags, **self._wanted}

    def _call(self, call: Any, wanted: Bounds | None, flags: Bounds | None, made: Any) -> None:
        name = op_name(call).removeprefix("relax.")
        args = list(call.args)
        self._look_up(name, call, args)
        self._look_for_sound(name, args, made)
        if name in _COMPARE:
            self._compare(args)
        elif name == "astype" and str(call.attrs.dtype) == "bool":
            self._pass(args[0], None, (0, 1))
        elif name in _SAME:
            self._pass(args[0], wanted, flags)
        elif name == "concat":
            for part in args[0].fields if isinstance(args[0], relax.Tuple) else args[:1]:
                self._pass(part, wanted, flags)
        elif name == "where":
            for part in args[1:]:
                self._pass(part, wanted, flags)
        elif name in _ARITHMETIC or name in _SCALES:
            self._arithmetic(name, args, wanted)

    def _look_for_sound(self, name: str, args: list[Any], made: Any) -> None:
        """Look back from sizes, over a linear transform, to what a spectrum is taken of."""
        fields = args[0].fields if args and isinstance(args[0], relax.Tuple) else args
        read = {part for part in fields if isinstance(part, relax.Var)}
        squares = name == "multiply" and args[0].same_as(args[1])
        if name in _SIZES or squares:
            self._spectra |= read
        elif name in _TRANSFORMS and made in self._spectra:
            self.sounds |= read
        elif name in _SAME or name in _SHIFTED:
            self._carry(made, read)

    def _carry(self, made: Any, read: set[Any]) -> None:
        """Carry what is said of a variable to those that it is made of."""
        for known in (self._spectra, self.sounds):
            if made in known:
                known.update(read)

    def _look_up(self, name: str, call: Any, args: list[Any]) -> None:
        """Ask of indices what an operator that indexes by them asks."""
        if name in _INDEXED:
            shape, axis = static_shape(args[0]), call.attrs.axis
            if shape:
                extent = math.prod(shape) if axis is None else shape[int(axis) % len(shape)]
                self._pass(args[_INDEXED[name]], (0, extent - 1), None)
        elif name in ("gather_nd", "scatter_nd"):
            shape, places = static_shape(args[0]), static_shape(args[1])
            if shape and places:
                first = int(call.attrs.batch_dims) if name == "gather_nd" else 0
                extents = shape[first : first + places[-1]]
                self._pass(args[1], (0, min(extents, default=1) - 1), None)

    def _compare(self, args: list[Any]) -> None:
        """Take what is compared with many numbers for one of them; with one number, for a flag."""
        for place, other in ((args[0], args[1]), (args[1], args[0])):
            value = constant_value(other)
            if value is None or value.dtype.kind not in "iuf" or not value.size:
                continue
            if value.size > 1:
                self._pass(place, (float(value.min()), float(value.max())), None)
            elif value.item() in (0, 1):
                self._pass(place, None, (0, 1))

    def _arithmetic(self, name: str, args: list[Any], wanted: Bounds | None) -> None:
        a, b = (constant_value(arg) for arg in args[:2])
        if name == "subtract" and a is not None and a.size == 1 and a.item() == 1:
            self._pass(args[1], None, (0, 1))  # 1 - mask
        if name in (*_SCALES, "subtract") and b is not None and b.size and b.dtype.kind == "f":
            least, most = _SCALES.get(name, _MEANS)
            if least <= float(b.min()) and float(b.max()) <= most:
                self._pass(args[0], None, _PIXELS)
        if wanted is None or name not in _ARITHMETIC or (a is not None and b is not None):
            return
        if a is None and b is None:
            low, high = wanted
            half = (math.ceil(low / 2), high // 2) if name == "add" else (0.0, min(high, -low))
            if name in ("add", "subtract") and half[0] <= half[1]:
                self._pass(args[0], half, None)
                self._pass(args[1], half, None)
            return
        constant, other = (a, args[1]) if a is not None else (b, args[0])
        if constant is None or not constant.size or constant.dtype.kind not in "iuf":
            return
        left = a is not None and name in ("subtract",)
        least, most = float(constant.min()), float(constant.max())
        bounds = _ARITHMETIC["subtract from" if left else name](wanted, least, most)
        if bounds is not None and bounds[0] <= bounds[1]:
            self._pass(other, bounds, None)

    def _pass(self, value: Any, wanted: Bounds | None, flags: Bounds | None) -> None:
        """Ask bounds of a variable; of two that exclude each other, those from zero on count."""
        is_tensor = isinstance(value, relax.Var) and isinstance(value.ty, relax.TensorType)
        if not is_tensor or dtype_of(value) in ("", "bool"):
            return
        for held, bounds in ((self._wanted, wanted), (self._flags, flags)):
            if bounds is None:
                continue
            before = held.get(value, (-math.inf, math.inf))
            both = max(before[0], bounds[0]), min(before[1], bounds[1])
            held[value] = both if both[0] <= both[1] else max(before, bounds)


def _is_row(value: Any) -> bool:
    """Return whether a variable is a row of many samples."""
    shape = static_shape(value) or ()
    longest = max(shape, default=0)
    return longest >= _SAMPLES and math.prod(shape) <= _ROWS * longest


_Inverse = Callable[[Bounds, float, float], Bounds | None]

_ARITHMETIC: dict[str, _Inverse] = {
    "add": lambda w, least, most: (w[0] - least, w[1] - most),
    "subtract": lambda w, least, most: (w[0] + most, w[1] + least),
    "subtract from": lambda w, least, most: (most - w[1], least - w[0]),
    "multiply": lambda w, least, most: (w[0] / least, w[1] / most) if least > 0 else None,
    "floor_divide": lambda w, least, most: (
        (w[0] * most, (w[1] + 1) * least - 1) if least > 0 else None
    ),
    "maximum": lambda w, least, most: (min(w[0], 0), w[1]),
    "minimum": lambda w, least, most: (w[0], w[1]),
}
"""What an operand has to be for the result to be within bounds; the other is least to most."""
