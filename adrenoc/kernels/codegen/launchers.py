"""What launches of kernels give them: images that are no arrays, and what is checked of arguments.

Layers of a tensor in such an image stand beside each other in the rows.  Such are images of the
pool (`adrenoc/passes/lower/plan_memory.py`).  A column that is not of its layer is sent far
beyond the image, where an array has its border, so that zeros are read there. Where all layers are
wider than an image may be, they stand in bands, one below the other, and rows that are not of their
layer go the same way.

Before -> after, for layers of 28 columns:
    __read_only image2d_array_t in0_ptr              __read_only image2d_t in0_ptr
    read_imagef(in0_ptr, s, ((int4)(x, y, l, 0)))    read_imagef(in0_ptr, s, BESIDE(28, x, y, l))

and for layers of 197 columns and one row in bands of 64 layers, 2 to the sixth:
    read_imagef(in0_ptr, s, ((int4)(x, y, l, 0)))    read_imagef(..., IN_BANDS(197, 1, 6, x, y, l))

TVM has each launcher check all there is to know of each tensor: type, rank, dtype, shape, strides,
device.  Between kernels the tensors are the virtual machine's own, made with the shapes that the
same module says, and `main` checks rank, dtype and shape of what it is given.  So a launcher that
takes no input of the model keeps two checks of a tensor: that it is on the device and begins where
its memory does.  Seven parts of eight of a library's code were such checks.

Before -> after:
    assert ndim == 4; assert shape[0] == 1; ...; assert device_type == 4; launch(...)
    assert device_type == 4; launch(...)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm_ffi.structural import structural_map

from adrenoc.base.errors import DefectError
from adrenoc.base.tvmapi import Evaluate, tirx
from adrenoc.kernels.codegen.opencl_source import closing, cut_outside

TAKES_INPUT = "adrenoc.takes_input"
"""The attribute of a kernel that somebody outside of the module hands a tensor to."""

_KEPT = (".device_type", ".byte_offset")
"""How the messages of checks name what `main` does not look at."""
_HOST_FUNCTION = 1
"""TVM's calling convention of a function that its runtime calls."""


def drop_known_checks() -> Any:
    """TIR pass: launchers of kernels that take no input check what nothing else has checked."""

    nothing = Evaluate(tirx.const(0, "int32"))

    def drop(check: Any) -> Any:
        parts = check.message_parts
        # "Mismatched ", "in0", ".device_type on argument #", or "Invalid ", "in0.byte_offset".
        told = "".join(str(parts[place].value) for place in range(1, min(3, len(parts))))
        return check if any(word in told for word in _KEPT) else nothing

    @tirx.transform.prim_func_pass(opt_level=0)
    def drop_known(func: Any, _module: Any, _context: Any) -> Any:
        attrs = func.attrs
        if attrs.get("calling_conv") != _HOST_FUNCTION or attrs.get(TAKES_INPUT):
            return func
        body = structural_map(func.body, (tirx.AssertStmt, drop))
        return tirx.PrimFunc(func.params, body, func.ret_type, attrs)

    return drop_known


_POINTER = "_ptr"
"""How TVM ends the name of a kernel's pointer to a tensor."""
_ARRAY, _SINGLE = "image2d_array_t", "image2d_t"
_PLACE = "(int4)("


@dataclass(frozen=True, kw_only=True)
class Grid:
    """How the layers of a tensor lie in an image that is no array: `bands` below each other."""

    columns: int
    rows: int
    layers: int
    """Of one band; a power of two where there are several."""
    bands: int = 1

    @property
    def width(self) -> int:
        """Texels of the image in a row."""
        return self.columns * self.layers

    @property
    def height(self) -> int:
        """Rows of the image."""
        return self.rows * self.bands

    @property
    def macro(self) -> str:
        """Return how the text of a kernel begins to name a place there."""
        return "BESIDE" if self.bands == 1 else "IN_BANDS"

    @property
    def numbers(self) -> tuple[int, ...]:
        """Return what it names first."""
        if self.bands == 1:
            return (self.columns,)
        return self.columns, self.rows, self.layers.bit_length() - 1


def put_layers_beside(source: str, grids: Mapping[str, Grid]) -> str:
    """Return the text of a kernel with these parameters as single images, whose layers lie in
    `grids`.

    Raises:
        DefectError: the text reads or writes one of them in another way than TVM prints.
    """
    for param, grid in grids.items():
        pointer = param + _POINTER
        declared = f"{_ARRAY} {pointer}"
        if declared not in source:
            continue  # no element of the result comes from it, so that TVM declares no parameter
        source = source.replace(declared, f"{_SINGLE} {pointer}", 1)
        source = _rewrite_accesses(source, pointer, grid)
    return source


def _rewrite_accesses(source: str, pointer: str, grid: Grid) -> str:
    parts, done = [], 0
    head = f"{grid.macro}({', '.join(map(str, grid.numbers))}"
    for found in re.finditer(rf"\b(?:read|write)_image[fh]\({pointer}, ", source):
        at = source.find(_PLACE, found.end())
        between = source[found.end() : at].strip("(")
        if at < 0 or between not in ("", "image_sampler, "):
            raise DefectError(f"{found[0]}... names no place: {source[found.start() :][:80]}")
        wrapped = source[at - 1] == "("
        opening = at + len(_PLACE) - 1
        end = closing(source, opening)
        coordinates = cut_outside(source[opening + 1 : end], ", ")
        if len(coordinates) != 4 or coordinates[3] != "0":
            raise DefectError(f"{found[0]}... is at {coordinates}, expected (x, y, layer, 0)")
        column, row, layer, _ = coordinates
        begin = at - wrapped
        parts += [source[done:begin], f"{head}, {column}, {row}, {layer})"]
        done = end + 1 + wrapped
    return "".join(parts) + source[done:]
