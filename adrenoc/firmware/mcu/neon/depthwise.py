"""Depthwise convolutions of any window, sixteen channels at a time; 3x3 by a walk of their own.

The walk takes eight channels and reads a column of the image once for three outputs.  By SDOT each
product adds three rows of a column: bytes of four rows are turned so that a channel's lie side by
side.  With a stride of one, four rows give two rows of outputs then: the weights of the second are
those of the first, a byte further on.  By SMULL and SMLAL the products of two taps are added in
sixteen bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from adrenoc.base.errors import RefusedError
from adrenoc.firmware.mcu.kernel import Array, FirmwareKernel, fields_of
from adrenoc.firmware.mcu.neon.assembly import (
    NeonConstants,
    NeonStore,
    arm_function,
    pack_constants,
)
from adrenoc.firmware.mcu.network import Network, image_fields
from adrenoc.firmware.mcu.operators import Depthwise

_GROUP = 16
_MOST_TAPS = 128
"""As c/neon_depthwise.c has it."""


def neon_depthwise(operator: Depthwise, network: Network) -> FirmwareKernel:
    """Return the kernel of a depthwise convolution. Raises RefusedError where its window, channels
    or rule are not covered."""
    window, channels = operator.window, operator.weights.shape[2]
    depth = network.shape4(operator.source)[3]
    if depth != channels:
        raise RefusedError(f"{channels} channels of {depth}")
    if operator.weights.shape[0] * operator.weights.shape[1] > _MOST_TAPS:
        raise RefusedError(f"a window of {list(window.kernel)}")
    rule = pack_constants(operator)
    if rule.store.kind == "double":
        raise RefusedError("sums that are scaled in float64")
    numbers = {**image_fields(operator, network), **window.fields(dilated=True)}
    numbers |= {"careful": int((operator.weights == -128).any())}
    bias, constants = rule.pad_channels(_GROUP)
    zeros = np.full(channels, operator.zero_in, np.int8)
    walks = _walks(operator, network, rule)
    arrays = (
        Array(suffix="weights", ctype="int8_t", values=operator.weights),
        Array(suffix="zeros", ctype="int8_t", values=zeros),
        Array(suffix="bias", ctype="int32_t", values=bias),
        Array(suffix="constants", ctype="int32_t", values=constants),
        *(
            Array(suffix=f"{walk.way}_blocks", ctype="int8_t", values=_blocks(operator, rule, walk))
            for walk in walks
        ),
    )
    return FirmwareKernel(
        call="run_neon_depthwise(environment, &{layer}, {in0}, {out});",
        how=("columns of 3x3, 8" if walks else "16") + f" channels at once{rule.store.how}",
        snippets=("requantise", "environment", "neon_runs", "neon_store", "neon_depthwise"),
        texts=tuple(walk.code() for walk in walks),
        arrays=arrays,
        struct="neon_depthwise_layer",
        fields=fields_of(
            numbers | rule.store.fields,
            arrays,
            {f"{walk.way}_code": f"ARM_CODE({walk.name})" for walk in walks},
        ),
    )


def _walks(operator: Depthwise, network: Network, rule: NeonConstants) -> tuple[WindowWalk, ...]:
    """Return the functions for windows of 3x3, where they cover this one."""
    window, channels = operator.window, operator.weights.shape[2]
    _, _, width, _ = network.shape4(operator.source)
    _, _, out_width, _ = network.shape4(operator.result)
    if window.kernel != (3, 3) or window.dilations != (1, 1) or channels % CHANNELS:
        return ()
    if window.strides not in ((1, 1), (2, 2)):
        return ()
    stride = window.strides[0]
    beyond = max(0, (out_width - 1) * stride + 3 - window.left - width)
    # With a stride of two, only the last column of the last output may lie outside.
    inside = window.left <= 3 - stride and beyond <= 3 - stride
    if not inside or out_width * stride < 3 or width < 3:
        return ()
    careful = bool((operator.weights == -128).any())
    return (
        ProductWalk(stride=stride, store=rule.store, careful=careful),
        DotWalk(stride=stride, store=rule.store),
    )


def _blocks(operator: Depthwise, rule: NeonConstants, walk: WindowWalk) -> np.ndarray:
    """Pack eight channels: the window's columns, four bytes a channel for SDOT; what follows."""
    bias, constants = rule.pad_channels(CHANNELS)
    taps = operator.weights.transpose(2, 1, 0).reshape(-1, CHANNELS, 3, 3)
    if isinstance(walk, DotWalk):
        grown = np.zeros((*taps.shape[:3], 4), np.int8)
        grown[..., :3] = taps
        ordered = grown.transpose(0, 2, 1, 3).reshape(len(taps), -1)
    else:
        ordered = np.zeros((len(taps), walk.weight_bytes), np.int8)
        ordered[:, : taps[0].size] = taps.transpose(0, 2, 3, 1).reshape(len(taps), -1)
    words = [part.reshape(len(taps), -1).astype("<i4") for part in (bias, constants)]
    return np.concatenate([ordered, *(part.view(np.int8) for part in words)], 1)


CHANNELS = 8
_CONSTANTS_BYTES = 96
"""Of eight channels: bias, and constants."""
_OUTSIDE = "v31"
_SIGNATURE = "void {}(const window_rows *rows)"


@dataclass(frozen=True, kw_only=True)
class WindowWalk(ABC):
    """A function for strides of one or of two, both ways, and how sums become bytes."""

    stride: int
    store: NeonStore
    way: ClassVar[str]
    extension: ClassVar[str]
    weight_bytes: ClassVar[int]
    """Bytes of the weights of eight channels, before their bias and constants."""

    @property
    def name(self) -> str:
        """Return the name of the function."""
        return f"depthwise_{self.way}_{self.stride}_{self.store.name}"

    def code(self) -> str:
        """Return the text of the function, as c/neon_depthwise.c has `window_rows`."""
        return arm_function(self.name, _SIGNATURE, self._lines(), extension=self.extension)

    def _lines(self) -> list[str]:
        """x1, x2 outputs, x3 their step, x5 left, x6 right, x7 constants, x8 blocks, x9 on rows.
        From x13 on the rows' steps; x4 counts outputs that see only columns of the image."""
        return [
            *("ldp x9, x10, [x0]", "ldp x11, x12, [x0, #16]"),
            *("ldp x13, x14, [x0, #32]", "ldp x15, x16, [x0, #48]"),
            *("ldp x1, x2, [x0, #64]", "ldr x3, [x0, #80]"),
            *("ldp x5, x6, [x0, #96]", "ldp x7, x8, [x0, #112]"),
            *("ldr x17, [x0, #136]", f"ld1r {{{_OUTSIDE}.16b}}, [x17]"),
            *self.store.prepare(),
            "1:",
            *self._constants(),
            *self._walk(),
            # Back to the first column, and on to the next channels.
            "9:",
            "ldr x17, [x0, #128]",
            *(f"msub x{9 + n}, x17, x{13 + n}, x{9 + n}" for n in range(4)),
            *(f"add x{9 + n}, x{9 + n}, #{CHANNELS}" for n in range(4)),
            "ldr x17, [x0, #144]",
            *(f"msub x{n}, x17, x3, x{n}" for n in (1, 2)),
            *(f"add x{n}, x{n}, #{CHANNELS}" for n in (1, 2)),
            f"add x7, x7, #{self.weight_bytes + _CONSTANTS_BYTES}",
            "subs x8, x8, #1",
            "b.ne 1b",
        ]

    def _constants(self) -> list[str]:
        at = self.weight_bytes + 32
        lines = [f"ldp q26, q27, [x7, #{at}]", f"ldp q28, q29, [x7, #{at + 32}]"]
        return [*self._weights(), *lines, "ldr x4, [x0, #88]"]

    def _walk(self) -> list[str]:
        """Outputs of a row, or two, with the columns in three places that rotate."""
        first = [*self._start(0, 2), *(self._start(1, 3) if self.stride == 1 else [])]
        rotations = [(0, 1, 2), (1, 2, 0), (2, 0, 1)]
        if self.stride == 2:
            rotations = [(0, 1, 2), (2, 1, 0)]
        lines = [*first, "cbz x4, 60f", "4:"]
        for number, rotation in enumerate(rotations):
            lines += self._columns(rotation) + self._output(rotation)
            lines.append("subs x4, x4, #1")
            last = number == len(rotations) - 1
            lines.append("b.ne 4b" if last else f"b.eq {61 + number}f")
        for number in range(len(rotations)):
            # With the places as they are after so many outputs.
            lines.append(f"{60 + number}:")
            lines += self._end(rotations, number)
            lines.append("b 9f")
        return lines

    def _start(self, place: int, label: int) -> list[str]:
        """Return a column that may lie to the left of the image: number `place` of the row."""
        return [
            f"cmp x5, #{place + 1}",
            f"b.lt {30 + label}f",
            *self._fill_outside(place),
            f"b {40 + label}f",
            f"{30 + label}:",
            *self._column(place),
            f"{40 + label}:",
        ]

    def _end(self, rotations: list[tuple[int, int, int]], number: int) -> list[str]:
        """Outputs that see columns to the right of the image: at most two with a stride of one."""
        lines = []
        for more in range(2 if self.stride == 1 else 1):
            rotation = rotations[(number + more) % len(rotations)]
            lines += [f"cmp x6, #{more + 1}", "b.lt 9f"]
            if self.stride == 2:
                lines += self._column(rotation[1])
            lines += self._fill_outside(rotation[2]) + self._output(rotation)
        return lines

    def _columns(self, rotation: tuple[int, int, int]) -> list[str]:
        lines = self._column(rotation[1]) if self.stride == 2 else []
        return lines + self._column(rotation[2])

    @abstractmethod
    def _weights(self) -> list[str]:
        """Weights into registers, from x7."""

    @abstractmethod
    def _fill_outside(self, place: int) -> list[str]:
        """Return a column of what lies outside of the image."""

    @abstractmethod
    def _column(self, place: int) -> list[str]:
        """Return the next column of the image, in one of three places."""

    @abstractmethod
    def _output(self, rotation: tuple[int, int, int]) -> list[str]:
        """Return a pixel of eight channels, of one row or two, of columns in such places."""


_SUMS = ("v0", "v1", "v2", "v3")
_TURNED = (8, 10, 12)
_FIRST, _SECOND = 14, 20


@dataclass(frozen=True, kw_only=True)
class DotWalk(WindowWalk):
    """A window by SDOT: a column is two registers, four bytes of each channel; weights too."""

    way: ClassVar[str] = "dot"
    extension: ClassVar[str] = "dotprod"
    weight_bytes: ClassVar[int] = 96

    def _weights(self) -> list[str]:
        lines = [f"ldp q{_FIRST + n}, q{_FIRST + n + 1}, [x7, #{16 * n}]" for n in (0, 2, 4)]
        if self.stride == 1:
            lines += [f"shl v{_SECOND + n}.4s, v{_FIRST + n}.4s, #8" for n in range(6)]
        return lines

    def _fill_outside(self, place: int) -> list[str]:
        return [f"mov v{_TURNED[place] + n}.16b, {_OUTSIDE}.16b" for n in (0, 1)]

    def _column(self, place: int) -> list[str]:
        rows, t = 4 if self.stride == 1 else 3, _TURNED[place]
        return [
            *(f"ld1 {{v{n}.8b}}, [x{9 + n}], x{13 + n}" for n in range(rows)),
            "zip1 v0.16b, v0.16b, v1.16b",
            f"zip1 v2.16b, v2.16b, v{rows - 1}.16b",
            f"zip1 v{t}.8h, v0.8h, v2.8h",
            f"zip2 v{t + 1}.8h, v0.8h, v2.8h",
        ]

    def _output(self, rotation: tuple[int, int, int]) -> list[str]:
        two = self.stride == 1
        lines = [f"ldp q0, q1, [x7, #{self.weight_bytes}]"]
        lines += [f"ldp q2, q3, [x7, #{self.weight_bytes}]"] if two else []
        for kx, place in enumerate(rotation):
            for row, weights in enumerate((_FIRST, _SECOND)[: 1 + two]):
                for half in (0, 1):
                    source = f"v{_TURNED[place] + half}.16b, v{weights + 2 * kx + half}.16b"
                    lines.append(f"sdot {_SUMS[2 * row + half]}.4s, {source}")
        for n, register in enumerate(_SUMS[: 4 if two else 2]):
            constants = ("v26", "v27") if n % 2 == 0 else ("v28", "v29")
            lines += self.store.scale_sums(register, *constants)
        lines += self.store.narrow("v0", "v1")
        lines += self.store.narrow("v2", "v3") if two else []
        lines.append("sqxtn v0.8b, v0.8h")
        lines += ["sqxtn2 v0.16b, v2.8h"] if two else []
        lines += self.store.clamp("v0")
        # Where there is one row only, both lie at one place, and the first has the last word.
        lines += ["st1 {v0.d}[1], [x2], x3"] if two else []
        return [*lines, "st1 {v0.8b}, [x1], x3"]


@dataclass(frozen=True, kw_only=True)
class ProductWalk(WindowWalk):
    """A window by SMULL and SMLAL: a column is three registers from v8 on; weights lie from v17 on.
    `careful` of weights of -128: two products of those may not fit into sixteen bits."""

    careful: bool = False
    way: ClassVar[str] = "neon"
    extension: ClassVar[str] = ""
    weight_bytes: ClassVar[int] = 80

    @property
    def name(self) -> str:
        """Return the name of the function."""
        return super().name + ("_careful" if self.careful else "")

    def _weights(self) -> list[str]:
        lines = [f"ldp d{17 + n}, d{18 + n}, [x7, #{8 * n}]" for n in (0, 2, 4, 6)]
        return [*lines, "ldr d25, [x7, #64]"]

    def _fill_outside(self, place: int) -> list[str]:
        return [f"mov v{8 + 3 * place + n}.8b, {_OUTSIDE}.8b" for n in range(3)]

    def _column(self, place: int) -> list[str]:
        return [f"ld1 {{v{8 + 3 * place + n}.8b}}, [x{9 + n}], x{13 + n}" for n in range(3)]

    def _output(self, rotation: tuple[int, int, int]) -> list[str]:
        lines = [f"ldp q0, q1, [x7, #{self.weight_bytes}]"]
        taps = [
            (8 + 3 * place + row, 17 + 3 * kx + row)
            for kx, place in enumerate(rotation)
            for row in range(3)
        ]
        step = 1 if self.careful else 2
        for first in range(0, 9, step):
            product = f"v{2 + first // step % 2}"
            for n, (pixel, weight) in enumerate(taps[first : first + step]):
                deed = "smlal" if n else "smull"
                lines.append(f"{deed} {product}.8h, v{pixel}.8b, v{weight}.8b")
            lines.append(f"saddw v0.4s, v0.4s, {product}.4h")
            lines.append(f"saddw2 v1.4s, v1.4s, {product}.8h")
        lines += self.store.scale_sums("v0", "v26", "v27") + self.store.scale_sums(
            "v1", "v28", "v29"
        )
        lines += [*self.store.narrow("v0", "v1"), "sqxtn v0.8b, v0.8h"]
        return [*lines, *self.store.clamp("v0"), "st1 {v0.8b}, [x1], x3"]
