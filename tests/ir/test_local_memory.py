"""Local memory: what a tile is weighed with is what its kernel declares, and the device has it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import adrenoc.kernels.families
from adrenoc.importers.relax.recurrent_cells import Cell
from adrenoc.ir.layout import LANES, Extents, Layout
from adrenoc.ir.operand import Memory, OperandSpec
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.epilogue import Epilogue, Finished
from adrenoc.kernels.families.attention.attention import AttentionOperands, attention
from adrenoc.kernels.families.attention.attention_rule import AttentionWork
from adrenoc.kernels.families.attention.attention_rule import candidates as attention_candidates
from adrenoc.kernels.families.cache.cached_attention import CachedOperands, cached_attention
from adrenoc.kernels.families.cache.step_attention import step_attention
from adrenoc.kernels.families.cache.step_operands import StepOperands
from adrenoc.kernels.families.cache.step_rules import StepWork
from adrenoc.kernels.families.cache.step_rules import candidates as step_candidates
from adrenoc.kernels.families.conv.centred_conv import centred_conv
from adrenoc.kernels.families.conv.conv2d_dot import conv2d_dot
from adrenoc.kernels.families.conv.conv2d_local import conv2d_local
from adrenoc.kernels.families.conv.conv_tile_local import local_bytes, local_candidates
from adrenoc.kernels.families.depthwise import depthwise_rule
from adrenoc.kernels.families.depthwise.depthwise import depthwise
from adrenoc.kernels.families.excite.hidden_token import HiddenToken, MeanToken, token_bytes
from adrenoc.kernels.families.expansion import expansion_tile
from adrenoc.kernels.families.expansion.expansion import expansion
from adrenoc.kernels.families.n_bits.n_bits import NBitsOperands, NBitsWeights
from adrenoc.kernels.families.n_bits.n_bits_dot import RoundedOperands, n_bits_dot
from adrenoc.kernels.families.n_bits.n_bits_dot_rule import DotWork, dot_bytes, dot_candidates
from adrenoc.kernels.families.n_bits.n_bits_matrix import n_bits_matrix
from adrenoc.kernels.families.n_bits.n_bits_rule import matrix_bytes, matrix_candidates
from adrenoc.kernels.families.n_bits.rounded import Rounding
from adrenoc.kernels.families.recurrent.recurrent import RecurrentOperands, RecurrentTile, recurrent
from adrenoc.kernels.families.recurrent.recurrent_rule import RecurrentWork
from adrenoc.kernels.families.recurrent.recurrent_rule import candidates as recurrent_candidates
from adrenoc.kernels.families.separable import separable_tile
from adrenoc.kernels.families.separable.separable import separable
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry
from adrenoc.kernels.families.shared.conv_work import ConvWork
from adrenoc.kernels.families.shared.mixed_parts import OF_SCORES, MixedParts, mixed_bytes
from adrenoc.kernels.families.winograd import winograd_conv_rule
from adrenoc.kernels.families.winograd.winograd import Tiling
from adrenoc.kernels.families.winograd.winograd_conv import winograd_conv
from adrenoc.kernels.families.winograd.winograd_matrices import winograd
from adrenoc.kernels.work_group import groups_within
from adrenoc.target.target import Target, load_target

TILES = 8
"""Of a case, of thousands: those whose kernels are made."""
OF_TEAMS = {"scan/scan.py"}
"""Vectors that threads tell each other, one each: `most_threads` of the target bounds them."""

Claims = list[tuple[int, Callable[[KernelBuilder], None]]]
"""Of each tile, the bytes that it is weighed with, and what writes its kernel."""


def _tensor(n: int, c: int, h: int, w: int, dtype: str, memory: Memory) -> OperandSpec:
    return OperandSpec(shape=(n, c, h, w), dtype=dtype, memory=memory, layout=Layout("NCHW"))


def _image(builder: KernelBuilder, e: Extents, *, out: bool = False) -> Access:
    spec = _tensor(e.n, e.c, e.h, e.w, "float32", Memory.TEXTURE)
    return builder.output(spec) if out else builder.input(spec)


def _flat(builder: KernelBuilder, dtype: str = "float32") -> Access:
    return builder.input(
        OperandSpec(shape=(1 << 20,), dtype=dtype, memory=Memory.PLAIN, layout=None)
    )


def _weights(builder: KernelBuilder) -> Access:
    """Halves lie as two in a word."""
    return _flat(builder, "uint32" if builder.compute == "float16" else "float32")


def _ends(builder: KernelBuilder, out: Extents) -> tuple[Access, Epilogue]:
    access = _image(builder, out, out=True)
    return access, Epilogue(builder, None, {}, access)


def _source(work: ConvWork) -> Extents:
    (sy, sx), e = work.geometry.strides, work.out
    return Extents(e.n, work.in_blocks * LANES, e.h * sy, e.w * sx)


def _conv_work(draw: random.Random, *, half: bool, kernel: int) -> ConvWork:
    size = draw.choice((7, 14, 28))
    return ConvWork(
        geometry=ConvGeometry(kernel=(kernel, kernel), padding=(kernel // 2, kernel // 2)),
        out=Extents(1, draw.choice((16, 64, 116)), size, size),
        in_blocks=draw.choice((4, 13, 29, 64)),
        channels=LANES,
        storage_bytes=4,
        half=half,
    )


def _local(draw: random.Random, target: Target, half: bool) -> Claims:
    work = _conv_work(draw, half=half, kernel=draw.choice((1, 3)))

    def write(tile: Any, builder: KernelBuilder) -> None:
        x, weight = _image(builder, _source(work)), _weights(builder)
        conv2d_local(builder, work.geometry, tile, x, weight, *_ends(builder, work.out))

    tiles = local_candidates(work, target.limits, target.cost)
    return [(local_bytes(work, tile), partial(write, tile)) for tile in tiles]


def _centred(draw: random.Random, target: Target, _half: bool) -> Claims:
    work = replace(_conv_work(draw, half=False, kernel=1), centred=True)

    def write(tile: Any, builder: KernelBuilder) -> None:
        x, weight = _image(builder, _source(work)), _weights(builder)
        columns = _image(builder, Extents(1, LANES, 2, work.out.blocks))
        centred_conv(builder, tile, x, weight, columns, 1e-5, *_ends(builder, work.out))

    tiles = local_candidates(work, target.limits, target.cost)
    return [(local_bytes(work, tile), partial(write, tile)) for tile in tiles]


def _dot(draw: random.Random, target: Target, _half: bool) -> Claims:
    work = replace(_conv_work(draw, half=False, kernel=draw.choice((1, 3))), words=1)

    def write(tile: Any, builder: KernelBuilder) -> None:
        e = _source(work)
        x: Any = builder.input(_tensor(1, 4 * e.c, e.h, e.w, "uint32", Memory.BYTES))
        weight, rest = _flat(builder, "uint32"), _flat(builder, "int32")
        conv2d_dot(builder, work.geometry, tile, x, weight, rest, *_ends(builder, work.out))

    tiles = local_candidates(work, target.limits, target.cost)
    return [(local_bytes(work, tile), partial(write, tile)) for tile in tiles]


def _in_bits(draw: random.Random, target: Target, half: bool) -> Claims:
    work = _conv_work(draw, half=half, kernel=1)
    work, bits = replace(work, in_blocks=4 * work.in_blocks), draw.choice((2, 4, 8))

    def write(tile: Any, builder: KernelBuilder) -> None:
        x, words = _image(builder, _source(work)), _flat(builder, "uint32")
        scales = _image(builder, Extents(1, LANES, work.out.blocks, work.in_blocks))
        matrix = NBitsWeights(words=words, scales=scales, zeros=None, zero=8.0, block=16, bits=bits)
        operands = NBitsOperands(x=x, weights=(matrix,))
        n_bits_matrix(builder, tile, operands, *_ends(builder, work.out))

    tiles = matrix_candidates(work, target.limits, target.cost, bits)
    return [(matrix_bytes(work, tile), partial(write, tile)) for tile in tiles]


def _of_rounded(draw: random.Random, target: Target, _half: bool) -> Claims:
    bits, block = draw.choice((2, 4, 8)), draw.choice((16, 32, 64))
    rounding = Rounding(inputs=block * draw.randint(1, 12), block=block, bits=bits, zero=0)
    conv = replace(_conv_work(draw, half=False, kernel=1), words=1)
    conv = replace(conv, in_blocks=rounding.first_beside)
    has_zeros = bits < 8 and draw.random() < 0.5
    work = DotWork(conv=conv, rounding=rounding, zeros=has_zeros)

    def write(tile: Any, builder: KernelBuilder) -> None:
        e = conv.out
        x: Any = builder.input(_tensor(1, rounding.channels, e.h, e.w, "uint32", Memory.BYTES))
        scales = _image(builder, Extents(1, LANES, e.blocks, rounding.inputs // block))
        zeros = _image(builder, scales.extents) if has_zeros else None
        words = _flat(builder, "uint32")
        matrix = NBitsWeights(
            words=words, scales=scales, zeros=zeros, zero=0.0, block=block, bits=bits
        )
        operands = RoundedOperands(x=x, rounding=rounding, weights=matrix)
        n_bits_dot(builder, tile, operands, *_ends(builder, e))

    tiles = dot_candidates(work, target.limits, target.cost)
    return [(dot_bytes(work, tile), partial(write, tile)) for tile in tiles]


def _winograd(draw: random.Random, target: Target, half: bool) -> Claims:
    work = _conv_work(draw, half=half, kernel=3)
    tiling = Tiling.cover(winograd(2), work.out)

    def write(tile: Any, builder: KernelBuilder) -> None:
        x, weight = _image(builder, _source(work)), _weights(builder)
        winograd_conv(builder, tiling, tile, (1, 1), x, weight, *_ends(builder, work.out))

    tiles = winograd_conv_rule.conv_candidates(
        work, tiling, target.limits, target.cost, textures=False
    )
    return [
        (winograd_conv_rule.local_bytes(work, tiling, tile), partial(write, tile)) for tile in tiles
    ]


def _finish(builder: KernelBuilder, e: Extents, texels: int) -> tuple[Finished, dict[str, Access]]:
    """Nothing is done to the sums, and that reads so many texels of each block."""
    spec = _tensor(e.n, e.c, e.h, e.w, "float32", Memory.TEXTURE)
    given = {f"c{n}": _image(builder, Extents(1, e.c, 1, 1)) for n in range(texels)}
    return Finished(builder, None, {}, spec), given


def _separable(draw: random.Random, target: Target, half: bool) -> Claims:
    pointwise = _conv_work(draw, half=half, kernel=1)
    source = _source(pointwise)
    work = separable_tile.SeparableWork(
        depthwise=ConvGeometry(kernel=(3, 3), padding=(1, 1), groups=source.c),
        source=source,
        pointwise=pointwise,
        finish_work=0,
        finish_texels=draw.choice((0, 1, 2)),
    )

    def write(tile: Any, builder: KernelBuilder) -> None:
        x, taps, weight = _image(builder, source), _flat(builder), _weights(builder)
        finish = _finish(builder, source, work.finish_texels)
        ends = _ends(builder, pointwise.out)
        separable(builder, work.depthwise, tile, x, taps, weight, *finish, *ends)

    tiles = separable_tile.candidates(work, target.limits, target.cost)
    return [(separable_tile.local_bytes(work, tile), partial(write, tile)) for tile in tiles]


def _expansion(draw: random.Random, target: Target, half: bool) -> Claims:
    channels, size = draw.choice((8, 24, 40)), draw.choice((7, 14, 28))
    out, source = Extents(1, 4 * channels, size, size), Extents(1, channels, size, size)
    work = expansion_tile.ExpansionWork(
        depthwise=ConvGeometry(kernel=(3, 3), padding=(1, 1), groups=out.c),
        source=source,
        out=out,
        storage_bytes=4,
        half=half,
        finish_work=8,
        finish_texels=draw.choice((0, 1, 2)),
        epilogue_work=0,
    )

    def write(tile: Any, builder: KernelBuilder) -> None:
        x, weight, taps = _image(builder, source), _weights(builder), _flat(builder)
        finish = _finish(builder, out, work.finish_texels)
        region = work.region(tile)
        expansion(
            builder, work.depthwise, tile, region, x, weight, taps, *finish, *_ends(builder, out)
        )

    tiles = expansion_tile.candidates(work, target.limits, target.cost)
    return [
        (expansion_tile.local_bytes(work, tile, work.region(tile)), partial(write, tile))
        for tile in tiles
    ]


def _depthwise(draw: random.Random, target: Target, _half: bool) -> Claims:
    kernel = draw.choice((3, 5, 7))
    work = replace(_conv_work(draw, half=False, kernel=kernel), in_blocks=1)
    work = replace(work, geometry=replace(work.geometry, groups=work.out.c))

    def write(tile: Any, builder: KernelBuilder) -> None:
        x, weight = _image(builder, work.out), _flat(builder)
        depthwise(builder, work.geometry, tile, x, weight, *_ends(builder, work.out))

    of_block = target.limits.local_mem_bytes // depthwise_rule.blocks_held(1, target.limits)
    tiles = depthwise_rule.candidates(work, target.limits, target.cost)
    return [(of_block * kernel**2 * t.work_group[2], partial(write, t)) for t in tiles]


def _attention(draw: random.Random, target: Target, half: bool) -> Claims:
    rows, depth, channels = draw.choice((7, 64, 197)), draw.choice((32, 64)), draw.choice((32, 64))
    power = "float16" if half else "float32"
    work = AttentionWork(
        heads=2,
        rows=rows,
        keys=rows,
        depth_blocks=depth // LANES,
        value_blocks=channels // LANES,
        storage_bytes=4,
        power_bytes=2 if half else 4,
        query_bytes=2 if half else 4,
    )

    def write(tile: Any, builder: KernelBuilder) -> None:
        q, k, v = (_image(builder, Extents(1, c, 2, rows)) for c in (depth, depth, channels))
        out = _image(builder, Extents(1, channels, 2, rows), out=True)
        operands = AttentionOperands(
            q=q, k=k, v=v, scale=1.0, value_scale=1.0, rescore=None, write=out.write, guarded=False
        )
        attention(builder, tile, operands, power, power)

    tiles = attention_candidates(work, target.limits, target.cost)
    sizes = (work.power_bytes, work.depth_blocks, work.query_bytes)
    return [(tile.shared_bytes(*sizes), partial(write, tile)) for tile in tiles]


def _cached(draw: random.Random, target: Target, half: bool) -> Claims:
    size, rows, tokens = draw.choice((16, 48, 64, 128, 256)), draw.choice((40, 1000)), 3
    blocks, held = size // LANES, "float16" if half else "float32"

    def write(tile: Any, builder: KernelBuilder) -> None:
        caches = [builder.input(_cache(rows, size)) for _ in range(2)]
        position = OperandSpec(shape=(1,), dtype="int32", memory=Memory.PLAIN, layout=None)
        operands = CachedOperands(
            q=_image(builder, Extents(1, 4 * size, 1, tokens)),
            keys=caches[0],
            values=caches[1],
            position=builder.input(position),
            rotation=None,
            norm=None,
            sinks=None,
            bias=None,
            quanta=(None, None),
            tokens=tokens,
            heads=4,
            kv_heads=2,
            head=size,
            rows=rows,
            held=rows,
            first=0,
            scale=1.0,
            window=0,
            cap=0.0,
        )
        _, epilogue = _ends(builder, Extents(1, 4 * size, 1, tokens))
        cached_attention(builder, tile, operands, (held, held), epilogue)

    work = AttentionWork(
        heads=2,
        rows=2 * tokens,
        keys=rows // 2,
        depth_blocks=blocks,
        value_blocks=blocks,
        storage_bytes=2,
        power_bytes=2 if half else 4,
        query_bytes=2 if half else 4,
    )
    tiles = attention_candidates(work, target.limits, target.cost)
    return [
        (tile.shared_bytes(work.power_bytes, blocks, work.query_bytes), partial(write, tile))
        for tile in tiles
    ]


def _step(draw: random.Random, target: Target, _half: bool) -> Claims:
    size, group = draw.choice((16, 48, 64, 128)), draw.choice((1, 2, 4, 7))
    heads = 2 * group
    work = StepWork(kept=2, group=group, blocks=size // LANES, rows=1000, splits=4, element_bytes=2)

    def write(tile: Any, builder: KernelBuilder) -> None:
        qkv = _image(builder, Extents(1, (heads + 4) * size, 1, 1))
        position = OperandSpec(shape=(1,), dtype="int32", memory=Memory.PLAIN, layout=None)
        caches = [builder.output(_cache(1000, size)) for _ in range(2)]
        operands = StepOperands(
            heads=(qkv, qkv, qkv),
            firsts=(0, heads * size, (heads + 2) * size),
            norms=(None, None),
            rotation=None,
            bias=None,
            quanta=(None, None),
            position=builder.input(position),
            keys=caches[0],
            values=caches[1],
            queries=heads,
            kept=2,
            head=size,
            rows=1000,
            held=1000,
            scale=1.0,
            window=0,
            cap=0.0,
            splits=4,
        )
        step_attention(builder, tile, operands)

    tiles = step_candidates(work, target.limits, target.cost)
    return [(tile.shared_bytes(work.blocks, group), partial(write, tile)) for tile in tiles]


def _cache(rows: int, size: int) -> OperandSpec:
    return OperandSpec(shape=(1, 2, rows, size), dtype="float16", memory=Memory.PLAIN, layout=None)


def _recurrent(draw: random.Random, target: Target, half: bool) -> Claims:
    kind = draw.choice(("RNN", "GRU", "LSTM"))
    batch, steps, blocks = draw.choice((1, 3)), draw.choice((1, 9)), draw.choice((1, 7, 64))
    reset_before = kind == "GRU" and draw.choice((True, False))
    work = RecurrentWork(
        kind=kind, blocks=blocks, steps=steps, batch=batch, reset_before=reset_before
    )
    dtype = "float16" if half else "float32"

    def write(tile: RecurrentTile, builder: KernelBuilder) -> None:
        width, memory = 4 * blocks * work.gates, Memory.TEXTURE
        operands = RecurrentOperands(
            projected=builder.input(_rows(batch, steps, width, dtype, memory)),
            weights=builder.input(_tensor(1, LANES, blocks, width, dtype, memory)),
            extra=None,
            states=(),
            cell=Cell(kind=kind, activations=("sigmoid", "tanh", "tanh"), clip=0.0, clip_cell=0.0),
            steps=steps,
            batch=batch,
            blocks=blocks,
            reverse=False,
            reset_before=reset_before,
            keeps_cell=False,
        )
        out = builder.output(_rows(batch, steps, 4 * blocks, dtype, memory))
        recurrent(builder, tile, operands, out, Epilogue(builder, None, {}, out))

    tiles = recurrent_candidates(work, target.limits, target.cost)
    return [
        (tile.shared_bytes(kind, blocks, reset_before=reset_before), partial(write, tile))
        for tile in tiles
    ]


def _rows(n: int, rows: int, c: int, dtype: str, memory: Memory) -> OperandSpec:
    return OperandSpec(shape=(n, rows, c), dtype=dtype, memory=memory, layout=Layout("NWC"))


def _mixed(draw: random.Random, _target: Target, _half: bool) -> Claims:
    splits, queries, head = draw.choice((1, 2, 8)), draw.choice((1, 6, 16)), draw.choice((16, 80))
    spec = OperandSpec(
        shape=(splits, queries, head + OF_SCORES),
        dtype="float32",
        memory=Memory.BLOCKED,
        layout=Layout("NWC"),
    )

    def write(group: tuple[int, int, int], builder: KernelBuilder) -> None:
        mixed = MixedParts(builder, builder.input(spec), None)
        builder.threads(*group, work_group=group, cooperate=True)
        mixed.begin(group)

    return [(mixed_bytes(spec.extents), partial(write, group)) for group in ((8, 4, 1), (64, 2, 1))]


def _excite(draw: random.Random, target: Target, _half: bool) -> Claims:
    side = draw.choice((1, 7, 14))
    image = Extents(1, draw.choice((16, 96, 480)), side, side)
    hidden = Extents(1, draw.choice((8, 24, 116)), 1, 1)
    threads = groups_within(target.cost.gemv.threads_of_layers, target.limits)

    def write(count: int, builder: KernelBuilder) -> None:
        x: Access = _image(builder, image)
        token = MeanToken(builder, x) if side > 1 else x
        between = _tensor(1, hidden.c, 1, 1, "float32", Memory.TEXTURE)
        finish = Finished(builder, None, {}, between)
        weights = _image(builder, Extents(1, LANES, hidden.blocks, LANES * image.blocks))
        layer = HiddenToken(builder, token, weights, finish, hidden.c, 1)
        group = (count, 1, 1)
        builder.threads(*group, work_group=group, cooperate=True)
        layer.begin(group)

    claims = [(token_bytes(image, hidden.blocks, n), partial(write, n)) for n in threads]
    return [claim for claim in claims if claim[0] <= target.limits.local_mem_bytes]


OF_FLOATS = (
    *(_centred, _dot, _of_rounded, _depthwise, _attention, _cached, _mixed, _recurrent, _step),
)
"""What computes in floats whatever the preset."""
FAMILIES: dict[str, list[Any]] = {
    "attention/attention_walk.py": [_attention, _cached],
    "cache/new_heads.py": [_step],
    "cache/step_attention.py": [_step],
    "conv/local_conv.py": [_local, _centred, _dot, _in_bits],
    "depthwise/depthwise.py": [_depthwise],
    "excite/hidden_token.py": [_excite],
    "excite/shared_sums.py": [_excite],
    "expansion/expansion.py": [_expansion],
    "n_bits/n_bits_dot.py": [_of_rounded],
    "recurrent/recurrent.py": [_recurrent],
    "separable/separable.py": [_separable],
    "shared/mixed_parts.py": [_mixed],
    "winograd/winograd_conv.py": [_winograd],
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("half", [False, True], ids=["float", "half"])
@pytest.mark.parametrize("family", {f: 0 for of_file in FAMILIES.values() for f in of_file})
def test_tiles_claim_what_kernels_declare(family: Any, half: bool, seed: int) -> None:
    draw = random.Random(seed)
    target = load_target(draw.choice(("adreno", "adreno:a610", "adreno:a660")))
    claims = family(draw, target, half)
    assert claims
    assert max(claimed for claimed, _ in claims) <= target.limits.local_mem_bytes
    compute = "float16" if half and family not in OF_FLOATS else "float32"
    largest = max(claims, key=lambda claim: claim[0])
    for claimed, write in [largest, *draw.sample(claims, min(TILES, len(claims)))]:
        builder = KernelBuilder("tried", compute=compute, limits=target.limits)
        write(builder)
        assert builder.shared_bytes == claimed


def test_every_family_that_declares_local_memory_is_among_them() -> None:
    folder = Path(adrenoc.kernels.families.__file__).parent
    declaring = {
        str(path.relative_to(folder))
        for path in folder.rglob("*.py")
        if "builder.allocate_shared(" in path.read_text()
    }
    assert declaring == set(FAMILIES) | OF_TEAMS
