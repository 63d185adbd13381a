"""Convolutions of any window as products of bytes by the vector extension, sixteen at a time, and
how a vector of four sums becomes four bytes.

Two pixels by four channels, or one by eight, are added up at once: eight sums are as many as there
are even registers, which is where VMLADAVA may add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from adrenoc.base.errors import RefusedError
from adrenoc.firmware.mcu.dsp.assembly import DspConstants, OutputStage, function, pack_constants
from adrenoc.firmware.mcu.dsp.products import patch_fields, sum_fields
from adrenoc.firmware.mcu.kernel import (
    Array,
    Choice,
    FirmwareKernel,
    fields_of,
    strips_of,
    table_text,
)
from adrenoc.firmware.mcu.network import Network
from adrenoc.firmware.mcu.operators import Convolution
from adrenoc.firmware.mcu.plain import images_of

LANES = 4
GUARD = "defined(__ARM_FEATURE_MVE)"
"""What the preprocessor knows of a compiler for the vector extension."""


def gather_registers(vector: int, registers: Sequence[str]) -> list[str]:
    """Instructions that put four registers into the lanes of a vector, in order."""
    first, second, third, fourth = registers
    return [f"vmov d{2 * vector}, {first}, {second}", f"vmov d{2 * vector + 1}, {third}, {fourth}"]


def scale_by_float(sums: str, factors: str) -> list[str]:
    """Instructions that scale sums in float32, halves to even."""
    return [
        f"vcvt.f32.s32 {sums}, {sums}",
        f"vmul.f32 {sums}, {sums}, {factors}",
        f"vcvtn.s32.f32 {sums}, {sums}",
    ]


@dataclass(frozen=True, kw_only=True)
class VectorStore:
    """A `Store`, four channels a vector: rows of biases, multipliers, offsets, perhaps shifts."""

    store: OutputStage

    @property
    def rows(self) -> int:
        """Rows of constants that a group of four channels has."""
        return 3 if self.store.shift else 4

    def bounds(self, low: str, high: str, spare: str) -> list[str]:
        """Instructions that fill two vectors with the bounds, by way of a spare register."""
        return [
            f"mov {spare}, #{self.store.low}",
            f"vdup.32 {low}, {spare}",
            f"mov {spare}, #{self.store.high}",
            f"vdup.32 {high}, {spare}",
        ]

    def scale_sums(
        self, sums: Sequence[str], constants: Sequence[str], spare: str, bounds: tuple[str, str]
    ) -> list[str]:
        """Instructions from sums to bytes, with a vector for each row of constants. The first of
        these, and `spare`, may be lost."""
        bias, multiplier, offset = constants[:3]
        lines = [f"vadd.i32 {s}, {s}, {bias}" for s in sums]
        if self.store.single:
            for s in sums:
                lines += scale_by_float(s, multiplier)
        elif self.store.shift is None:
            for s in sums:
                lines += [f"vqrdmulh.s32 {s}, {s}, {multiplier}", f"vshr.s32 {spare}, {s}, #31"]
                lines += [f"vadd.i32 {s}, {s}, {spare}"]
        else:
            lines += [f"vrmulh.s32 {s}, {s}, {multiplier}" for s in sums]
        lines += [f"vadd.i32 {s}, {s}, {offset}" for s in sums]
        if self.store.shift and not self.store.single:
            lines += [f"vshr.s32 {s}, {s}, #{self.store.shift}" for s in sums]
        elif not self.store.single:
            lines += [f"vshl.s32 {s}, {s}, {constants[3]}" for s in sums]
        for s in sums:
            lines += [f"vmax.s32 {s}, {s}, {bounds[0]}", f"vmin.s32 {s}, {s}, {bounds[1]}"]
        return lines

    def print_c(self, total: str, constants: str, step: int) -> str:
        """Return a C expression of a byte: the channel's constants lie `step` apart."""
        parts = [f"({constants})[{n * step}]" for n in range(self.rows)]
        if self.store.single:
            raw = f"requantise_single({total} + {', '.join(parts[:3])})"
        elif self.store.shift is None:
            raw = f"vector_twice({total} + {', '.join(parts)})"
        else:
            shift = str(-self.store.shift) if self.store.shift else parts[3]
            raw = f"vector_high({total} + {', '.join(parts[:3])}, {shift})"
        return f"(int8_t)clamp_int8({raw}, {self.store.low}, {self.store.high})"


def vector_constants(rule: DspConstants, multiple: int) -> np.ndarray:
    """Return a row for each channel: bias, multiplier, offset, and a left shift if it has its own.
    Channels of zeros fill it up to a `multiple`."""
    columns = [rule.bias, rule.constants[:, 0], rule.constants[:, 1]]
    if not rule.store.shift:
        columns.append(-rule.constants[:, 2])
    table = np.stack(columns, 1)
    missing = -len(table) % multiple
    return np.concatenate([table, np.zeros((missing, table.shape[1]), table.dtype)])


_SNIPPETS = (
    *("requantise", "add_lines", "vectors"),
    *("patch_layer", "byte_patches", "vector_products"),
)
_MOST_OFFSET = 4095
"""That an instruction adds to an address."""
_LAYER, _STRIP, _PIXEL, _GATHERED_BYTE, _CHANNEL_STEP, _ADDED = 80, 60, 60, 0.35, 8, 10
"""Instructions as gcc makes them: of a layer, a strip, a pixel that is gathered and each byte of
it, of a step of channels beside its products, and of a byte of a sum."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Vectors:
    """A schedule: pixels in registers (two by four channels, or one by eight) and in a strip. Of
    all pixels, so many `direct` ones are read where they lie."""

    operator: Convolution
    rule: DspConstants
    pixels: int
    direct: int
    tile: int
    strip: int

    @property
    def groups(self) -> int:
        """Return how many groups of four channels there are."""
        return 1 if self.tile == 2 else 2

    @property
    def steps(self) -> int:
        """Return how many instructions take all bytes of a pixel."""
        return _steps(self.operator)

    @property
    def scratch_bytes(self) -> int:
        """Return what a strip takes that is gathered, and what is added to."""
        gathered = self.steps * STEP if self.direct < self.pixels else 0
        added = self.operator.weights.shape[0] if self.operator.joined else 0
        return int(self.strip * (gathered + added))

    @property
    def instructions(self) -> float:
        """Estimate them: the products are counted, the code around them is fitted."""
        channels, _, _, depth = self.operator.weights.shape
        gathered = self.pixels - self.direct
        total = _LAYER + gathered * (_PIXEL + _GATHERED_BYTE * self.steps * STEP)
        if gathered or self.operator.joined:
            total += -(-self.pixels // self.strip) * _STRIP
        if self.operator.joined:
            total += _ADDED * self.pixels * channels
        for count, times in ((self.tile, self.pixels // self.tile), (1, self.pixels % self.tile)):
            steps = -(-channels // (LANES * self.groups))
            step = self._block(count, depth).step_instructions
            total += times * (_CHANNEL_STEP + steps * (_CHANNEL_STEP + step))
        return total

    def _block(self, pixels: int, stride: int) -> VectorBlock:
        return VectorBlock(
            pixels=pixels,
            groups=self.groups,
            steps=self.steps,
            stride=stride,
            channels=self.operator.weights.shape[0],
            store=VectorStore(store=self.rule.store),
        )

    def _blocks(self) -> dict[tuple[int, int], VectorBlock]:
        """Return the functions that are needed, by (whether they gather, whether single)."""
        ways = (self.direct, self.operator.weights.shape[3])
        gathered = (self.pixels - self.direct, self.steps * STEP)
        return {
            (way, single): self._block(1 if single else self.tile, stride)
            for way, (count, stride) in enumerate((ways, gathered))
            for single in (0, 1)
            if (single and count % self.tile) or (not single and count >= self.tile)
        }

    def kernel(self, network: Network) -> FirmwareKernel:
        operator, multiple = self.operator, LANES * self.groups
        blocks = self._blocks()
        added = "{in1}" if operator.joined else "0"
        table = vector_constants(self.rule, multiple)
        rules = table.reshape(-1, LANES, table.shape[1]).transpose(0, 2, 1).reshape(-1)
        weights = _weights(operator, self.steps, multiple)
        numbers = {
            "patch": patch_fields(operator, network),
            "pixels": self.pixels,
            "channels": operator.weights.shape[0],
            "bytes": self.steps * STEP,
            "strip": self.strip,
            "direct": self.direct,
            "adds": int(operator.joined is not None),
            "group": self.tile,
            "sum": sum_fields(operator.joined),
            "weights": "{layer}_weights",
            "rules": "{layer}_rules",
            "rules_end": f"{{layer}}_rules + {len(rules)}",
            "code": table_text({k: block.name for k, block in blocks.items()}, (0, 1), (0, 1)),
        }
        tile = "2 pixels by 4" if self.tile == 2 else "a pixel by 8"
        return FirmwareKernel(
            call=f"run_vectors(&{{layer}}, {{in0}}, {added}, {{out}}, (int8_t *)({{scratch}}));",
            how=f"vectors, {tile} channels" + self.rule.store.how,
            snippets=_SNIPPETS,
            texts=tuple(map(vector_code, blocks.values())),
            arrays=(
                Array(suffix="weights", ctype="int8_t", values=weights),
                Array(suffix="rules", ctype="int32_t", values=rules),
            ),
            struct="vector_layer",
            fields=fields_of(numbers),
            scratch_bytes=self.scratch_bytes,
            gap_bytes=self._gap_bytes(),
            gap_source=1 if operator.joined else None,
        )

    def _gap_bytes(self) -> int | None:
        """Return how far before the input the output begins: two pixels are read, then written."""
        if self.operator.joined is not None or not self.operator.is_dense:
            return None if self.operator.joined is None else 0
        channels, _, _, depth = self.operator.weights.shape
        return int(max(2 * channels, self.pixels * channels - (self.pixels - 2) * depth))


def vector_choices(operator: Convolution, network: Network) -> list[Choice]:
    """Return the schedules of a convolution or a dense layer. Raises RefusedError where its rule or
    its shape is not covered."""
    rule = pack_constants(operator)
    (_, _, depth), (height, width, channels) = images_of(operator, network)
    pixels, reach = height * width, _steps(operator) * STEP
    if max(2 * max(reach, depth), 2 * channels) > _MOST_OFFSET:
        raise RefusedError(f"pixels of {reach} bytes, or {channels} channels")
    direct = 0
    if operator.is_dense:  # in whole vectors, which may not read beyond the last pixel
        safe = max(0, (pixels * depth - reach) // depth + 1)
        direct = pixels if safe >= pixels else safe // 2 * 2
    strips = strips_of(pixels, min(2, pixels))
    if direct == pixels and operator.joined is None:
        strips = (min(2, pixels),)
    plans = [
        _Vectors(operator=operator, rule=rule, pixels=pixels, direct=direct, tile=tile, strip=strip)
        for tile in ((2, 1) if pixels > 1 else (1,))
        for strip in strips
    ]
    return [
        Choice(
            actions={"way": "vectors", "pixels": plan.tile, "strip": plan.strip},
            instructions=plan.instructions,
            scratch_bytes=plan.scratch_bytes,
            make=partial(plan.kernel, network),
        )
        for plan in plans
    ]


def _steps(operator: Convolution) -> int:
    return int(-(-operator.weights[0].size // STEP))


def _weights(operator: Convolution, steps: int, multiple: int) -> np.ndarray:
    """Pack each group of four channels: sixteen bytes of each, then the next sixteen ..."""
    rows = operator.weights.reshape(operator.weights.shape[0], -1)
    grown = np.zeros((-(-len(rows) // multiple) * multiple, steps * STEP), np.int8)
    grown[: len(rows), : rows.shape[1]] = rows
    return grown.reshape(-1, LANES, steps, STEP).transpose(0, 2, 1, 3)


STEP = 16
"""Bytes that one instruction multiplies."""
_SUMS = (("r0", "r2", "r4", "r6"), ("r8", "r10", "r12", "lr"))
_CONSTANTS = ("q2", "q3", "q6", "q7")
_BOUNDS = ("q4", "q5")
_SPARE = "q2"
_SAVED = 100
"""Bytes of registers on the stack."""
_MOST_UNROLL = 4
_MOST_INDEX = 127
"""That a store of bytes adds to an address."""


@dataclass(frozen=True, kw_only=True)
class VectorBlock:
    """A function for groups of `pixels` pixels, by `groups` groups of four channels at a time.
    Pixels begin every `stride` bytes and have `steps` times sixteen; results have `channels`."""

    pixels: int
    groups: int
    steps: int
    stride: int
    channels: int
    store: VectorStore

    @property
    def name(self) -> str:
        """Return the name of the function."""
        return (
            f"vectors_{self.pixels}x{self.groups * LANES}_k{self.steps}_p{self.stride}"
            f"_c{self.channels}_{self.store.store.name}"
        )

    @property
    def rest(self) -> int:
        """Return how many channels the last step has, or 0 where that is all."""
        return self.channels % (LANES * self.groups)

    @property
    def step_instructions(self) -> int:
        """Return how many some pixels by some channels take."""
        first, unroll = _pick_unroll(self.steps)
        rounds = (self.steps - first) // unroll if unroll else 0
        products = len(_products(self, first, fresh=True))
        products += rounds * (2 + len(_products(self, unroll, fresh=False)))
        return products + len(_finish_sums(self))


def vector_code(block: VectorBlock) -> str:
    """Return the function: pixels up to `end`, and all channels, whose rules go up to `last`."""
    reach = block.steps * STEP
    lines = ["push {r4-r11, lr}", "vpush {d8-d15}", "push {r1, r2}"]
    lines += block.store.bounds(*_BOUNDS, "r4")
    lines += ["mov r7, r3", "mov r1, r0", "1:", "ldr r5, [sp, #0]", "ldr r11, [sp, #4]"]
    if block.pixels == 2:
        lines.append(f"add r3, r1, #{block.stride}")
    else:
        lines.append(f"add r3, r5, #{LANES * reach}")
    first, unroll = _pick_unroll(block.steps)
    if first < block.steps:
        lines.append(f"add r9, r1, #{reach}")
    lines += ["2:", *_products(block, first, fresh=True)]
    if first < block.steps:
        lines += ["3:", *_products(block, unroll, fresh=False), "cmp r1, r9", "bne 3b"]
    lines.append(f"sub r1, r1, #{reach}")
    if block.pixels == 2:
        lines.append(f"sub r3, r3, #{reach}")
    elif block.groups == 2:
        lines += ["mov r5, r3", f"add r3, r3, #{LANES * reach}"]
    lines += _finish_sums(block)
    lines += [f"ldr r0, [sp, #{_SAVED + 12}]", "cmp r11, r0", "bne 2b"]
    lines.append(f"add r1, r1, #{block.pixels * block.stride}")
    written = -(-block.channels // (LANES * block.groups)) * LANES * block.groups
    if gap := block.pixels * block.channels - written:
        lines.append(f"{'add' if gap > 0 else 'sub'} r7, r7, #{abs(gap)}")
    lines += [f"ldr r0, [sp, #{_SAVED + 8}]", "cmp r1, r0", "bne 1b"]
    lines += ["add sp, sp, #8", "vpop {d8-d15}", "pop {r4-r11, pc}"]
    signature = (
        f"{block.name}(const int8_t *pixels, const int8_t *weights,\n"
        "    const int32_t *rule, int8_t *out, const int8_t *end, const int32_t *last)"
    )
    return function(signature, lines, _twin(block), where=GUARD)


def _pick_unroll(steps: int) -> tuple[int, int]:
    """Return how many steps come first, and how many each round of the loop has."""
    if steps <= 2 * _MOST_UNROLL:
        return steps, 0
    return (steps - 1) % _MOST_UNROLL + 1, _MOST_UNROLL


def _products(block: VectorBlock, steps: int, *, fresh: bool) -> list[str]:
    """Return some steps of sixteen bytes; the very first begins the sums."""
    lines = []
    for step in range(steps):
        multiply = "vmladav.s8" if fresh and step == 0 else "vmladava.s8"
        lines.append("vldrb.u8 q0, [r1], #16")
        if block.pixels == 2:
            lines.append("vldrb.u8 q1, [r3], #16")
        for channel in range(LANES):
            weights = ("q2", "q3")[channel % 2]
            lines.append(f"vldrb.u8 {weights}, [r5], #16")
            lines.append(f"{multiply} {_SUMS[0][channel]}, {weights}, q0")
            if block.pixels == 2:
                lines.append(f"{multiply} {_SUMS[1][channel]}, {weights}, q1")
        for channel in range(LANES if block.groups == 2 else 0):
            weights = ("q2", "q3")[channel % 2]
            lines.append(f"vldrb.u8 {weights}, [r3], #16")
            lines.append(f"{multiply} {_SUMS[1][channel]}, {weights}, q0")
    return lines


def _finish_sums(block: VectorBlock) -> list[str]:
    """Turn sums into bytes in memory; `r7` goes on by the channels that are done."""
    lines = [
        line
        for n in range(max(block.pixels, block.groups))
        for line in gather_registers(n, _SUMS[n])
    ]
    if block.pixels == 2 or block.groups == 1:
        lines += _scale_sums(block, [f"q{n}" for n in range(block.pixels)])
        lines += _mask(block, 0)
        if block.pixels == 2:
            place = f"[r7, #{block.channels}]"
            if block.channels > _MOST_INDEX:
                lines.append(f"add r2, r7, #{block.channels}")
                place = "[r2]"
            lines += _store(block, f"q1, {place}")
        return lines + _store(block, "q0, [r7], #4")
    for group in range(2):
        lines += _scale_sums(block, [f"q{group}"])
        lines += [*_mask(block, group), *_store(block, f"q{group}, [r7], #4")]
    return lines


def _scale_sums(block: VectorBlock, vectors: list[str]) -> list[str]:
    constants = _CONSTANTS[: block.store.rows]
    lines = [f"vldrw.u32 {c}, [r11], #16" for c in constants]
    return lines + block.store.scale_sums(vectors, constants, _SPARE, _BOUNDS)


def _mask(block: VectorBlock, group: int) -> list[str]:
    """Return which lanes the last step stores, if not all. Flags and `r0` are lost."""
    if not block.rest:
        return []
    left = max(0, min(LANES, block.rest - LANES * group))
    behind = (block.groups - 1 - group) * 4 * LANES * block.store.rows
    last = ["mov r2, r11"] if not behind else [f"add r2, r11, #{behind}"]
    return [
        *last,
        f"ldr r0, [sp, #{_SAVED + 12}]",
        "cmp r2, r0",
        "ite eq",
        f"moveq r0, #{left}",
        f"movne r0, #{LANES}",
        "vctp.32 r0",
    ]


def _store(block: VectorBlock, what: str) -> list[str]:
    return ["vpst", f"vstrbt.32 {what}"] if block.rest else [f"vstrb.32 {what}"]


def _twin(block: VectorBlock) -> str:
    reach, rows = block.steps * STEP, block.store.rows
    rule = f"rule + c / {LANES} * {LANES * rows} + c % {LANES}"
    return (
        "{\n"
        f"  for (; pixels != end; pixels += {block.stride}, out += {block.channels})\n"
        f"    for (int32_t c = 0; c < {block.channels}; ++c) {{\n"
        f"      const int8_t *const own = weights + c / {LANES} * {LANES * reach}"
        f" + c % {LANES} * {STEP};\n"
        "      int32_t sum = 0;\n"
        f"      for (int32_t i = 0; i < {reach}; ++i)\n"
        f"        sum += pixels[i] * own[i / {STEP} * {LANES * STEP} + i % {STEP}];\n"
        f"      out[c] = {block.store.print_c('sum', rule, LANES)};\n"
        "    }\n"
        "  (void)last;\n"
        "}"
    )
