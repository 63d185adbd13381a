"""Convolutions of any window, and dense layers, as products of rows and tiles of sixteen channels.

A tile's function computes any number of rows, by SMMLA, SDOT (six rows at once) or SMLAL.  Weights
are blocks of eight bytes of each channel; of each two rows and two channels SMMLA adds eight
products to each of four sums.  SDOT reads the same weights by LD2, which parts the first four bytes
of four channels from the second four.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from adrenoc.firmware.mcu.dsp.products import patch_fields
from adrenoc.firmware.mcu.kernel import Array, FirmwareKernel, fields_of, table_text
from adrenoc.firmware.mcu.neon.assembly import (
    NeonConstants,
    NeonStore,
    arm_function,
    pack_constants,
    stores,
)
from adrenoc.firmware.mcu.network import Network
from adrenoc.firmware.mcu.operators import Convolution
from adrenoc.firmware.mcu.plain import images_of

CHANNELS = 16
ROWS = 6
_PAIRS = ROWS // 2
_SUMS = 8
"""Sums lie in v8 to v31."""
NATURAL_WORDS = 3 * CHANNELS
"""Bias, and constants of four channels after another; then both for pairs of channels, twice."""
_WORD = 4
SIGNATURE = (
    "void {}(const int8_t *rows, int64_t stride, const int8_t *weights, int64_t blocks, "
    "int8_t *out, int64_t out_stride, const int32_t *constants, int64_t count)"
)


@dataclass(frozen=True, kw_only=True)
class ProductTile:
    """A function: for how many of the sixteen channels, how sums become bytes, by which way.
    `careful` of weights of -128: two products of those may not fit into sixteen bits."""

    way: str
    channels: int
    store: NeonStore
    careful: bool = False

    @property
    def name(self) -> str:
        """Return the name of the function."""
        end = "_careful" if self.careful else ""
        return f"products_{self.way}_{self.channels}_{self.store.name}{end}"

    def code(self) -> str:
        """Return the text of the function."""
        return arm_function(self.name, SIGNATURE, _rows_loop(self), extension=WAYS[self.way][0])


def _rows_loop(tile: ProductTile) -> list[str]:
    """Blocks of the most rows while there are so many, then one of what is left. x0 rows, x1
    stride, x2 weights, x3 blocks, x4 out, x5 its stride, x6 constants, x7 count."""
    _, block, most_pairs = WAYS[tile.way]
    lines = ["add x16, x1, x1, lsl #1", "lsl x16, x16, #1"] if most_pairs == 3 else []
    lines += ["lsl x16, x1, #1"] if most_pairs == 1 else []
    for place, pairs in enumerate(range(most_pairs, 0, -1)):
        # The code for p pairs computes 2p rows, or one less.
        lines += [f"{1 + place}:", f"cmp x7, #{2 * pairs - 1}", f"b.lt {2 + place}f"]
        lines += block(tile, pairs, f"{20 * pairs}")
        if place == 0:
            lines += ["add x0, x0, x16", f"subs x7, x7, #{2 * pairs}", "b.gt 1b"]
        lines.append("b 9f")
    return [*lines, f"{1 + most_pairs}:", "9:"]


def _pointers(pairs: int) -> list[str]:
    """x9 to x14 at the rows of a block, and x15 between the last two: one may stand for both."""
    lines = [f"cmp x7, #{2 * pairs}", "mov x17, x2", "mov x9, x0"]
    for row in range(1, 2 * pairs - 1):
        lines.append(f"add x{9 + row}, x{8 + row}, x1")
    last = 8 + 2 * pairs
    lines += [f"add x{last}, x{last - 1}, x1", f"csel x{last}, x{last - 1}, x{last}, lt"]
    return [*lines, "csel x15, xzr, x5, lt"]


def _walk_blocks(label: str, two: list[str], one: list[str]) -> list[str]:
    """Go through the blocks of eight bytes, two at a time, and one that is left."""
    loop = ["subs x8, x3, #2", f"b.lt {label}2f", f"{label}1:", *two, "subs x8, x8, #2"]
    return [*loop, f"b.ge {label}1b", f"{label}2:", f"tbz x3, #0, {label}3f", *one, f"{label}3:"]


def _store_row(tile: ProductTile, row: int, pairs: int, register: str) -> list[str]:
    """Clamp sixteen bytes and store them; the step is nothing where the last row stands for two."""
    step = "x15" if row == 2 * pairs - 2 else "x5"
    return tile.store.clamp(register) + stores(register, "x4", tile.channels, step)


def _store_sums(tile: ProductTile, row: int, pairs: int, sums: Sequence[str]) -> list[str]:
    """Narrow the scaled sums of a row, in four registers, and store them."""
    a, b, c, d = sums
    lines = tile.store.narrow(a, b) + tile.store.narrow(c, d)
    lines += [f"sqxtn {a}.8b, {a}.8h", f"sqxtn2 {a}.16b, {c}.8h"]
    return lines + _store_row(tile, row, pairs, a)


# --- SMMLA ----------------------------------------------------------------------------------------


def _pair_block(tile: ProductTile, pairs: int, label: str) -> list[str]:
    lines = _pointers(pairs)
    twice = NATURAL_WORDS * _WORD
    for pair in range(pairs):
        for two in range(0, 8, 2):
            at = _SUMS + 8 * pair + two
            lines.append(f"ldp q{at}, q{at + 1}, [x6, #{twice + 16 * two}]")
    lines += _walk_blocks(label, _pair_step(pairs), _pair_half(pairs))
    for two in range(8):
        lines.append(f"ldp q0, q1, [x6, #{twice + 128 + 32 * two}]")
        for pair in range(pairs):
            lines += tile.store.scale_sums(f"v{_SUMS + 8 * pair + two}", "v0", "v1")
    lines += tile.store.prepare()
    for pair in range(pairs):
        first = _SUMS + 8 * pair
        for two in range(0, 8, 2):
            lines += tile.store.narrow(f"v{first + two}", f"v{first + two + 1}")
        for part in (0, 4):
            low, high = f"v{first + part}", f"v{first + part + 2}"
            lines += [f"sqxtn {low}.8b, {low}.8h", f"sqxtn2 {low}.16b, {high}.8h"]
        a, b = f"v{first}", f"v{first + 4}"
        lines += [f"uzp1 v0.8h, {a}.8h, {b}.8h", f"uzp2 v1.8h, {a}.8h, {b}.8h"]
        for row, register in enumerate(("v0", "v1")):
            lines += _store_row(tile, 2 * pair + row, pairs, register)
    return lines


def _pair_step(pairs: int) -> list[str]:
    """Sixteen bytes of each row, in eight registers."""
    lines, low, high = [], [], []
    for row in range(2 * pairs):
        lines.append(f"ldr q{row}, [x{9 + row}], #16")
    spare = 6
    for pair in range(pairs):
        even, odd = 2 * pair, 2 * pair + 1
        lines += [
            f"zip1 v{spare}.2d, v{even}.2d, v{odd}.2d",
            f"zip2 v{odd}.2d, v{even}.2d, v{odd}.2d",
        ]
        low.append(spare)
        high.append(odd)
        spare = even
    free = [n for n in range(8) if n not in (*low, *high)][:2]
    for rows in (low, high):
        lines += _multiply_rows(rows, free)
    return lines


def _pair_half(pairs: int) -> list[str]:
    """Eight bytes of each row."""
    lines = []
    for row in range(2 * pairs):
        lines.append(f"ldr d{row}, [x{9 + row}], #8")
    for pair in range(pairs):
        lines.append(f"zip1 v{2 * pair}.2d, v{2 * pair}.2d, v{2 * pair + 1}.2d")
    return lines + _multiply_rows([2 * pair for pair in range(pairs)], [6, 7])


def _multiply_rows(rows: list[int], free: list[int]) -> list[str]:
    lines = []
    for two in range(0, 8, 2):
        lines.append(f"ldp q{free[0]}, q{free[1]}, [x17], #32")
        for n in (0, 1):
            for pair, register in enumerate(rows):
                total = _SUMS + 8 * pair + two + n
                lines.append(f"smmla v{total}.4s, v{register}.16b, v{free[n]}.16b")
    return lines


# --- SDOT -----------------------------------------------------------------------------------------


def _four_block(tile: ProductTile, pairs: int, label: str) -> list[str]:
    lines = _pointers(pairs)
    rows = 2 * pairs
    for row in range(rows):
        at = _SUMS + 4 * row
        lines += [f"ldp q{at}, q{at + 1}, [x6]", f"ldp q{at + 2}, q{at + 3}, [x6, #32]"]
    two = [f"ldr q{row}, [x{9 + row}], #16" for row in range(rows)]
    one = [f"ldr d{row}, [x{9 + row}], #8" for row in range(rows)]
    first = _dot_rows(rows, 0)
    lines += _walk_blocks(label, [*two, *first, *_dot_rows(rows, 2)], one + first)
    for four in range(4):
        lines.append(f"ldp q0, q1, [x6, #{64 + 32 * four}]")
        for row in range(rows):
            lines += tile.store.scale_sums(f"v{_SUMS + 4 * row + four}", "v0", "v1")
    lines += tile.store.prepare()
    for row in range(rows):
        sums = [f"v{_SUMS + 4 * row + n}" for n in range(4)]
        lines += _store_sums(tile, row, pairs, sums)
    return lines


def _dot_rows(rows: int, lane: int) -> list[str]:
    """Return a block of eight bytes of each row, from a lane of four on."""
    lines = []
    for four in range(4):
        lines.append("ld2 {v6.4s, v7.4s}, [x17], #32")
        for part in (0, 1):
            for row in range(rows):
                total = _SUMS + 4 * row + four
                lines.append(f"sdot v{total}.4s, v{6 + part}.16b, v{row}.4b[{lane + part}]")
    return lines


# --- SMULL, SMLAL ---------------------------------------------------------------------------------


def _product_block(tile: ProductTile, pairs: int, label: str) -> list[str]:
    """Return two rows by eight channels, twice: sums of four parts in v16 to v31."""
    lines = []
    for part in (0, 1):
        lines += _pointers(pairs)
        lines += [f"movi v{16 + n}.4s, #0" for n in range(16)]
        two = [*_widen_blocks(tile, part, 2), "add x17, x17, #256"]
        lines += _walk_blocks(f"{label[:-1]}{part}", two, _widen_blocks(tile, part, 1))
        for row in (0, 1):
            for four in (0, 1):
                a, b, c, d = (f"v{16 + 8 * row + 4 * four + n}" for n in range(4))
                lines += [
                    f"addp {a}.4s, {a}.4s, {b}.4s",
                    f"addp {c}.4s, {c}.4s, {d}.4s",
                    f"addp v{8 * part + 2 * row + four}.4s, {a}.4s, {c}.4s",
                ]
        # The sums of both parts are kept in v0 to v3 and v8 to v11.
        if part == 0:
            lines += [f"mov v{12 + n}.16b, v{n}.16b" for n in range(4)]
    return lines + _product_stores(tile, pairs)


def _product_stores(tile: ProductTile, pairs: int) -> list[str]:
    sums = [["v12", "v13", "v8", "v9"], ["v14", "v15", "v10", "v11"]]
    lines = []
    for four in range(4):
        lines += [f"ldr q0, [x6, #{16 * four}]", f"ldp q1, q2, [x6, #{64 + 32 * four}]"]
        for row in (0, 1):
            lines.append(f"add {sums[row][four]}.4s, {sums[row][four]}.4s, v0.4s")
            lines += tile.store.scale_sums(sums[row][four], "v1", "v2")
    lines += tile.store.prepare()
    for row, of_row in enumerate(sums):
        lines += _store_sums(tile, row, pairs, of_row)
    return lines


def _widen_blocks(tile: ProductTile, part: int, blocks: int) -> list[str]:
    """Return blocks of eight bytes: products of two are added in sixteen bits, if they fit."""
    lines = []
    for row in (0, 1):
        for block in range(blocks):
            lines.append(f"ld1r {{v{2 * row + block}.2d}}, [x{9 + row}], #8")
    for four in range(2):
        for block in range(blocks):
            place = f"[x17, #{128 * block + 64 * part + 32 * four}]"
            lines.append(f"ldp q{4 + 2 * block}, q{5 + 2 * block}, {place}")
        for column in range(4):
            more, lanes = ("2", "16b") if column % 2 else ("", "8b")
            for row in (0, 1):
                total = f"v{16 + 8 * row + 4 * four + column}"
                product = f"v{8 + (2 * column + row) % 4}"
                for block in range(blocks):
                    added = block and not tile.careful
                    deed = "smlal" if added else "smull"
                    weights = f"v{4 + 2 * block + column // 2}"
                    source = f"v{2 * row + block}.{lanes}, {weights}.{lanes}"
                    lines.append(f"{deed}{more} {product}.8h, {source}")
                    if block == blocks - 1 or tile.careful:
                        lines.append(f"sadalp {total}.4s, {product}.8h")
    return lines


WAYS: dict[str, tuple[str, Callable[[ProductTile, int, str], list[str]], int]] = {
    "neon": ("", _product_block, 1),
    "dot": ("dotprod", _four_block, _PAIRS),
    "i8mm": ("i8mm", _pair_block, _PAIRS),
}
"""The instructions that products can use, in the order of c/environment.c: the assembler's word for
what each needs, the code of a block, and the most pairs of rows that it has."""


BLOCK = 8
"""Bytes of each channel that lie side by side."""
MOST_THREADS = 8
"""The most threads, as c/environment.c has it."""
_STRIP_BYTES = 16 << 10
_MOST_STRIP = 16 * ROWS


def neon_products(operator: Convolution, network: Network) -> FirmwareKernel:
    """Return the kernel of a convolution or a dense layer. Raises RefusedError where its rule is
    not covered."""
    if operator.joined is not None:
        raise TypeError("a sum was given to a convolution that has no place for it")
    rule = pack_constants(operator)
    (_, _, depth), (height, width, channels) = images_of(operator, network)
    blocks = -(-operator.weights[0].size // BLOCK)
    gathered = not (operator.is_dense and depth % BLOCK == 0)
    strip = _strip(height * width, blocks * BLOCK)
    careful = bool((operator.weights == -128).any())
    counts = (CHANNELS, channels % CHANNELS)
    tiles = {
        (way, count): ProductTile(
            way=name, channels=count, store=rule.store, careful=careful and name == "neon"
        )
        for way, name in enumerate(WAYS)
        for count in ({CHANNELS} if channels >= CHANNELS else set()) | ({counts[1]} - {0})
    }
    names = {key: f"ARM_CODE({tile.name})" for key, tile in tiles.items()}
    numbers = {
        "pixels": height * width,
        "channels": channels,
        "blocks": blocks,
        "strip": strip,
        "gathered": int(gathered),
        **rule.store.fields,
    }
    arrays = (
        Array(suffix="weights", ctype="int8_t", values=_weights(operator, blocks)),
        Array(suffix="constants", ctype="int32_t", values=tile_constants(rule)),
    )
    table = {"tiles": table_text(names, range(len(WAYS)), counts)}
    return FirmwareKernel(
        call="run_neon_products(environment, &{layer}, {in0}, {out}, {scratch});",
        how=f"tiles of {ROWS} pixels by {CHANNELS} channels{rule.store.how}",
        snippets=(
            *("requantise", "environment", "neon_runs", "patch_layer", "byte_patches"),
            *("neon_store", "neon_products"),
        ),
        texts=tuple(tile.code() for tile in tiles.values()),
        arrays=arrays,
        struct="neon_layer",
        fields=fields_of({"patch": patch_fields(operator, network)}, numbers, arrays, table),
        scratch_bytes=MOST_THREADS * strip * blocks * BLOCK if gathered else 0,
    )


def _strip(pixels: int, row_bytes: int) -> int:
    """Return how many pixels go through all channels before the next: as many as a cache keeps."""
    most = max(ROWS, min(_STRIP_BYTES // row_bytes, _MOST_STRIP) // ROWS * ROWS)
    return min(most, -(-pixels // ROWS) * ROWS)


def _weights(operator: Convolution, blocks: int) -> np.ndarray:
    """Tiles of sixteen channels; in each, blocks of eight bytes, of all channels side by side."""
    rows = operator.weights.reshape(operator.weights.shape[0], -1)
    tiles = -(-len(rows) // CHANNELS)
    grown = np.zeros((tiles * CHANNELS, blocks * BLOCK), np.int8)
    grown[: len(rows), : rows.shape[1]] = rows
    return grown.reshape(tiles, CHANNELS, blocks, BLOCK).transpose(0, 2, 1, 3)


def tile_constants(rule: NeonConstants) -> np.ndarray:
    """Return the constants of each tile of sixteen channels, then of pairs of them, twice."""
    bias, constants = rule.pad_channels(CHANNELS)
    tiles = len(bias) // CHANNELS
    twice = np.tile(bias.reshape(tiles, CHANNELS // 2, 1, 2), (1, 1, 2, 1))
    if rule.store.kind == "double":
        # Two numbers of two words each, before both pixels.
        halves = constants.reshape(tiles, CHANNELS // 2, 1, 4)
        pairs = np.tile(halves, (1, 1, 2, 1))
    else:
        fours = constants.reshape(tiles, CHANNELS // 4, 2, 2, 1, 2)
        pairs = np.tile(fours.transpose(0, 1, 3, 2, 4, 5), (1, 1, 1, 1, 2, 1))
    parts = (bias, constants, twice, pairs)
    return np.concatenate([part.reshape(tiles, -1) for part in parts], 1)
