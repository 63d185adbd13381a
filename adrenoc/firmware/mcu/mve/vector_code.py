"""Sums of products of bytes, sixteen at a time: two pixels by four channels, or one by eight.

Eight sums are as many as there are even registers, which is where VMLADAVA may add up.
"""

from __future__ import annotations

from dataclasses import dataclass

from adrenoc.firmware.mcu.dsp.assembly import function
from adrenoc.firmware.mcu.mve.vector_store import GUARD, LANES, VectorStore, gather_registers

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

    Pixels begin every `stride` bytes and have `steps` times sixteen; results have `channels`.
    """

    pixels: int
    groups: int
    steps: int
    stride: int
    channels: int
    store: VectorStore

    @property
    def name(self) -> str:
        """The name of the function."""
        return (
            f"vectors_{self.pixels}x{self.groups * LANES}_k{self.steps}_p{self.stride}"
            f"_c{self.channels}_{self.store.store.name}"
        )

    @property
    def rest(self) -> int:
        """How many channels the last step has, or 0 where that is all."""
        return self.channels % (LANES * self.groups)

    @property
    def step_instructions(self) -> int:
        """How many some pixels by some channels take."""
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
    """Return how many steps come first, and how many a round of the loop has that does the
    others."""
    if steps <= 2 * _MOST_UNROLL:
        return steps, 0
    return (steps - 1) % _MOST_UNROLL + 1, _MOST_UNROLL


def _products(block: VectorBlock, steps: int, *, fresh: bool) -> list[str]:
    """Some steps of sixteen bytes; the very first begins the sums."""
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
    """From sums to bytes in memory; `r7` goes on by the channels that are done."""
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
    """Where the last step has fewer channels: which lanes are stored. Flags and `r0` are
    lost."""
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
