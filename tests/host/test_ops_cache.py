"""Attention over a cache, and layers that carry a state, beside onnxruntime's."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from adrenoc.kernels.families.attention.attention import candidates as attention_tiles
from adrenoc.kernels.families.attention.attention_walk import AttentionTile
from adrenoc.kernels.families.cache import operator
from adrenoc.target.gpu import Quirk
from adrenoc.target.target import Target, load_target
from tests.host.run_op import Ops
from tests.host.test_ops_n_bits import product

pytestmark = pytest.mark.operator

DOMAIN = "com.microsoft"


def attention(
    ops: Ops,
    *,
    tokens: int,
    rows: int,
    before: int,
    heads: int = 4,
    kept: int = 2,
    size: int = 16,
    packed: bool = True,
    rotated: int = 16,
    sinks: bool = False,
    bits: int = 0,
    projected: int = 0,
    added: bool = False,
    **attrs,
) -> None:
    """A cache of `rows` rows, in which there are `before`; all that is defined is an output.

    A product of `projected` bits may follow, with a residual, or one that is `added` to what it
    reads.
    """
    widths = [heads * size, kept * size, kept * size]
    shapes = [sum(widths)] if packed else widths
    qkv = [ops("Relu", ops.input(1, tokens, width)) for width in shapes]
    qkv += [""] * (3 - len(qkv))
    past = [held_rows(ops, bits, kept, rows, size) for _ in range(2)]
    inputs = [*qkv, *past, ops.const([before + tokens - 1], np.int32), ops.const(rows, np.int32)]
    if rotated:
        angles = np.arange(rows + 3)[:, None] * 10.0 ** -np.arange(rotated // 2)
        inputs += [ops.const(turn(angles)) for turn in (np.cos, np.sin)]
        attrs["do_rotary"] = 1
    if sinks:
        inputs += [*[""] * (11 - len(inputs)), ops.const(np.linspace(-4, 6, heads), np.float32)]
    if bits:
        kind = "PER_TENSOR" if kept == 1 else "PER_CHANNEL"
        attrs |= {"k_quant_type": kind, "v_quant_type": kind, "kv_cache_bit_width": bits}
        count = 1 if kept == 1 else kept * size
        scales = [np.linspace(0.4, 0.9, count) / (1 << (bits - 2)) for _ in range(2)]
        inputs += [*[""] * (12 - len(inputs)), *(ops.const(s, np.float32) for s in scales)]
    names = ops.several(
        "GroupQueryAttention",
        inputs,
        ["y", "k", "v"],
        domain=DOMAIN,
        num_heads=heads,
        kv_num_heads=kept,
        **attrs,
    )
    if added:
        product_of = ops("MatMul", names[0], ops.weight(heads * size, heads * size))
        mixed = ops("Add", product_of, names[0])
    elif projected:
        mixed = _project(ops, names[0], heads * size, projected)
    else:
        mixed = ops("Mul", names[0], ops.weight(heads * size))
    ops.output(mixed)
    for name in names[1:]:  # rows behind the last are anything
        ops.output(ops("Slice", name, ops.ints(0), ops.ints(before + tokens), ops.ints(2)))


def _project(ops: Ops, x: str, width: int, bits: int) -> str:
    """A product by weights of few bits, or of floats, and a residual."""
    if bits < 32:
        y = product(ops, x, width, 37, zeros="packed" if bits == 8 else "", bits=bits)
    else:
        y = ops("MatMul", x, ops.weight(width, 37))
    return ops("Add", y, ops.input(1, 1, 37))


def held_rows(ops: Ops, bits: int, kept: int, rows: int, size: int) -> str:
    """A cache of floats, or of whole numbers of few bits."""
    if not bits:
        return ops.input(1, kept, rows, size)
    dtype, width = (np.int8, size) if bits == 8 else (np.uint8, size // 2)
    return ops.whole_input(1, kept, rows, width, count=127, dtype=dtype)


CASES: dict[str, dict[str, Any]] = {
    "one token of many": {"tokens": 1, "rows": 300, "before": 270},
    "the first token": {"tokens": 1, "rows": 40, "before": 0},
    "a full cache": {"tokens": 3, "rows": 40, "before": 37, "packed": False},
    "a prompt": {"tokens": 19, "rows": 64, "before": 0},
    "a chunk": {"tokens": 9, "rows": 64, "before": 30, "heads": 3, "kept": 1, "size": 48},
    "a window": {"tokens": 5, "rows": 200, "before": 150, "local_window_size": 7},
    "capped": {"tokens": 2, "rows": 40, "before": 20, "softcap": 0.7, "scale": 0.9},
    "interleaved": {"tokens": 4, "rows": 40, "before": 20, "rotary_interleaved": 1},
    "half rotated": {"tokens": 2, "rows": 40, "before": 20, "size": 32, "packed": False},
    "not rotated": {"tokens": 2, "rows": 40, "before": 20, "rotated": 0},
    "groups of rows": {"tokens": 45, "rows": 400, "before": 290, "heads": 6},
    "rows that no group fills": {"tokens": 11, "rows": 90, "before": 79, "heads": 5, "kept": 1},
    "windows in several runs": {"tokens": 40, "rows": 500, "before": 444, "local_window_size": 100},
    "sinks": {"tokens": 3, "rows": 80, "before": 70, "sinks": True, "local_window_size": 60},
    "a smooth softmax": {"tokens": 2, "rows": 40, "before": 20, "smooth_softmax": 1, "size": 64},
}
STEPS: dict[str, dict[str, Any]] = {
    "many rows": {"rows": 300, "before": 270},
    "no row before": {"rows": 40, "before": 0},
    "the last row": {"rows": 40, "before": 39, "packed": False},
    "a window": {"rows": 200, "before": 150, "local_window_size": 7},
    "capped": {"rows": 90, "before": 70, "softcap": 0.7, "scale": 0.9},
    "interleaved, three to one": {"rows": 40, "before": 20, "rotary_interleaved": 1, "heads": 6},
    "half rotated": {"rows": 40, "before": 20, "size": 32, "packed": False},
    "six to one, not rotated": {"rows": 70, "before": 66, "heads": 6, "kept": 1, "rotated": 0},
    "heads of 48": {"rows": 150, "before": 140, "heads": 3, "kept": 3, "size": 48},
    "sinks, six to one": {"rows": 300, "before": 270, "heads": 6, "kept": 1, "sinks": True},
    "a smooth softmax": {"rows": 40, "before": 20, "smooth_softmax": 1, "softcap": 0.9},
}
"""Of one token: it adds its rows itself."""
KEPT: dict[str, dict[str, Any]] = {
    "bytes": {"tokens": 3, "rows": 80, "before": 70, "bits": 8},
    "nibbles": {"tokens": 2, "rows": 40, "before": 20, "bits": 4, "size": 32, "packed": False},
    "a step, bytes": {"tokens": 1, "rows": 300, "before": 270, "bits": 8, "sinks": True},
    "one scale": {"tokens": 1, "rows": 40, "before": 39, "bits": 8, "heads": 6, "kept": 1},
    "a step, nibbles": {
        **{"tokens": 1, "rows": 150, "before": 140},
        **{"heads": 3, "kept": 3, "size": 48, "bits": 4, "rotated": 32},
    },
}
"""Caches of whole numbers of few bits."""


@pytest.mark.parametrize(
    ("preset", "names"),
    [("fp32", CASES), ("mixed", CASES), ("fp16", ("a window", "groups of rows"))],
    ids=["fp32", "mixed", "fp16"],
)
def test_attention_over_a_cache(ops, device, preset, names):
    for name in names:
        attention(ops, **CASES[name])
    ops.check(device, preset)
    more = sum(CASES[name]["tokens"] > 1 for name in names)
    assert ops.kernels.count("cached_attention") == more
    assert ops.kernels.count("append_rows") == 2 * more
    assert not ops.fallbacks


@pytest.mark.parametrize("preset", ["fp32", "fp16"])
@pytest.mark.parametrize(
    "parts, sets", [(2, 1), (1, 2), pytest.param(4, 1, marks=pytest.mark.nightly)]
)
def test_parts_of_the_rows(ops, device, monkeypatch, preset, parts, sets):
    """Threads for parts of the rows that are there, some of which have none; threads of eight."""
    taken = []

    def candidates(*given) -> Iterator[AttentionTile]:
        tiles = list(attention_tiles(*given))
        chosen = [tile for tile in tiles if (tile.parts, tile.row_sets) == (parts, sets)]
        taken.append(bool(chosen))
        yield from chosen or tiles

    monkeypatch.setattr(operator, "candidates", candidates)
    few = ("one token of many", "the first token", "a chunk", "windows in several runs", "sinks")
    for name in CASES if parts == 4 else few:
        attention(ops, **CASES[name])
    ops.check(device, preset)
    assert any(taken), "no case has so many parts"


def test_attention_of_one_token(ops, device, preset):
    for case in STEPS.values():
        attention(ops, tokens=1, **case)
    ops.check(device, preset)
    assert ops.kernels.count("step_attention") == ops.kernels.count("join_parts") == len(STEPS)
    assert "append_rows" not in ops.kernels
    assert not ops.fallbacks


JOINED: dict[str, dict[str, Any]] = {
    "four bits": {"rows": 300, "before": 270, "projected": 4},
    "eight bits, heads of 48": {"rows": 200, "before": 199, "projected": 8, "size": 48},
    "two bits": {"rows": 90, "before": 3, "projected": 2, "size": 32},
    "floats": {"rows": 300, "before": 0, "projected": 32},
    "floats, heads of 80": {"rows": 70, "before": 66, "projected": 32, "size": 80, "rotated": 0},
    "sinks": {"rows": 300, "before": 270, "projected": 4, "heads": 6, "kept": 1, "sinks": True},
    "sinks, floats": {"rows": 90, "before": 70, "projected": 32, "smooth_softmax": 1},
    "capped in a window": {
        **{"rows": 200, "before": 150, "projected": 4},
        **{"local_window_size": 7, "softcap": 0.7},
    },
}
"""Products of what attention of one token makes: they join its parts."""


def test_products_join_the_parts_of_attention(ops, device, preset):
    for case in JOINED.values():
        attention(ops, tokens=1, **case)
    ops.check(device, preset)
    assert ops.kernels.count("step_attention") == len(JOINED)
    assert "join_parts" not in ops.kernels, ops.kernels
    assert not ops.fallbacks


def test_parts_that_are_added_to_their_product_are_joined_before(ops, device):
    """The product's epilogue reads what attention makes: it is needed beside what is multiplied."""
    attention(ops, tokens=1, rows=300, before=270, added=True)
    ops.check(device, "fp32")
    assert "join_parts" in ops.kernels, ops.kernels


def test_products_that_join_caches_of_few_bits(ops, device):
    for name in ("a step, bytes", "one scale", "a step, nibbles"):
        for projected in (4, 32):
            attention(ops, **KEPT[name], projected=projected)
    ops.check(device, "fp32")
    assert "join_parts" not in ops.kernels, ops.kernels


@pytest.mark.parametrize("nests", [False, True], ids=["kernels", "loop nests"])
def test_caches_of_few_bits(ops, device, nests):
    # Of floats alone: what a half rounds may be another number of few bits.
    target = load_target("host")
    if nests:
        target = avoid_kernels(target)
    for case in KEPT.values():
        attention(ops, **case)
    ops.check(device, "fp32", target=target)
    assert bool(ops.fallbacks) == nests


def avoid_kernels(target: Target) -> Target:
    """A target whose driver is wrong with the kernels."""
    words = ("operator:append_rows", "operator:cached_attention")
    quirk = Quirk(name="q", text="t", source="s", avoid=words)
    return replace(target, gpu=replace(target.gpu, quirks=(*target.gpu.quirks, quirk)))


def test_targets_that_avoid_the_kernels_have_loop_nests(ops, device):
    target = avoid_kernels(load_target("host"))
    for name in ("a window", "interleaved", "half rotated", "not rotated", "sinks"):
        attention(ops, **CASES[name])
    attention(ops, tokens=2, rows=40, before=20, size=32, rotated=16, softcap=0.5)
    ops.check(device, "fp32", target=target)
    assert len(ops.fallbacks) == 18, ops.fallbacks


CHANNELS = 12


def _add_conv(ops: Ops, tokens: int, *, past: bool = True, **attrs) -> None:
    """A convolution of four taps over so many tokens, and the state after them."""
    before = 3 * attrs.get("dilation", 1)
    is_last = attrs.get("channels_last", 0)

    def shape(length: int) -> tuple[int, ...]:
        return (1, length, CHANNELS) if is_last else (1, CHANNELS, length)

    x = ops.input(*shape(tokens))
    weight, bias = ops.weight(CHANNELS, 1, 4), ops.weight(CHANNELS)
    held = ops.input(*shape(before)) if past else ""
    names = ops.several(
        "CausalConvWithState", [x, weight, bias, held], ["y", "next"], domain=DOMAIN, **attrs
    )
    ops.output(*names)


@pytest.mark.parametrize("preset", ["fp32", "mixed"])
@pytest.mark.parametrize("tokens", [1, 2, 9])
def test_causal_convolution(ops, device, tokens, preset):
    _add_conv(ops, tokens, activation="silu")
    ops.check(device, preset)


@pytest.mark.parametrize(
    "attrs",
    [{"past": False}, {"dilation": 2}, {"channels_last": 1, "activation": "swish"}],
    ids=str,
)
def test_forms_of_the_convolution(ops, device, attrs):
    _add_conv(ops, 5, **attrs)
    ops.check(device, "fp32")


def _add_attention(
    ops: Ops, tokens: int, rule: str, *, heads: tuple[int, int] = (2, 2), like: bool = False
) -> None:
    """Queries and keys of 8 numbers, values of 12, with decays of a few tokens to hundreds."""
    queries, kept = heads
    key, value = 8, 12
    q = ops.input(1, tokens, queries * key)
    k = ops.input(1, tokens, queries * key)
    if like:  # every key the same: each token takes off what all before it added
        ops.given(k, np.tile(np.full(key, key**-0.5, np.float32), (1, tokens, queries)))
    else:
        ops.given(k, _unit_keys(tokens, queries, key))
    v = ops.input(1, tokens, kept * value)
    past = ops.input(1, kept, key, value)
    decay = ops.input(1, tokens, kept, low=-0.8, high=-0.01) if "gated" in rule else ""
    beta = ops.input(1, tokens, kept, low=0.1, high=1.0) if "delta" in rule else ""
    names = ops.several(
        "LinearAttention",
        [q, k, v, past, decay, beta],
        ["y", "next"],
        domain=DOMAIN,
        q_num_heads=queries,
        kv_num_heads=kept,
        update_rule=rule,
    )
    ops.output(*names)


def _unit_keys(tokens: int, heads: int, size: int) -> np.ndarray:
    drawn = np.random.default_rng(1).standard_normal((1, tokens, heads, size))
    drawn /= np.linalg.norm(drawn, axis=-1, keepdims=True)
    return drawn.reshape(1, tokens, heads * size).astype(np.float32)


@pytest.mark.parametrize("preset", ["fp32", "mixed"])
@pytest.mark.parametrize("tokens", [1, 6, 16])
@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_linear_attention(device, rule, tokens, preset):
    ops = Ops(seed=tokens)
    _add_attention(ops, tokens, rule)
    ops.check(device, preset)


@pytest.mark.parametrize("tokens", [1, 5])
def test_states_that_share_queries(ops, device, tokens):
    _add_attention(ops, tokens, "gated_delta", heads=(2, 4))
    ops.check(device, "fp32")


def test_keys_that_are_all_alike(ops, device):
    # The triangle that is inverted is as full as it can be.
    _add_attention(ops, 128, "delta", like=True)
    ops.check(device, "fp32")


def test_those_of_the_standard(device):
    """From opset 27 on, by the same names."""
    ops = Ops(opset=27)
    x, held = ops.input(1, CHANNELS, 5), ops.input(1, CHANNELS, 3)
    inputs = [x, ops.weight(CHANNELS, 1, 4), ops.weight(CHANNELS), held]
    ops.output(*ops.several("CausalConvWithState", inputs, ["y", "next"], activation="silu"))
    q, k, v = (ops.input(1, 5, 16) for _ in range(3))
    decay, beta = ops.input(1, 5, 2, low=-1.0, high=-0.1), ops.input(1, 5, 2, low=0.1, high=1.0)
    inputs = [q, k, v, ops.input(1, 2, 8, 8), decay, beta]
    heads = {"q_num_heads": 2, "kv_num_heads": 2}
    ops.output(*ops.several("LinearAttention", inputs, ["y", "next"], **heads))
    ops.check(device, "fp32")


@pytest.mark.parametrize(
    ("heads", "kept", "decays"), [(4, 4, (4,)), (8, 4, (4,)), (4, 4, (4, 8))], ids=str
)
def test_other_forms_of_the_standard_s(device, heads, kept, decays):
    """A batch, more heads of queries than states, a decay of each key: by its definition."""
    ops = Ops(opset=27)
    q, k, v = ops.input(2, 5, heads * 8), ops.input(2, 5, kept * 8), ops.input(2, 5, kept * 8)
    decay = ops.input(2, 5, int(np.prod(decays)), low=-1.0, high=-0.1)
    beta = ops.input(2, 5, kept, low=0.1, high=1.0)
    inputs = [q, k, v, ops.input(2, kept, 8, 8), decay, beta]
    attrs = {"q_num_heads": heads, "kv_num_heads": kept}
    ops.output(*ops.several("LinearAttention", inputs, ["y", "next"], **attrs))
    ops.check(device, "fp32")


@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
def test_gates(ops, device, activation):
    a, b, heads = ops.input(1, 5, 4), ops.input(1, 5, 4), 4
    names = ops.several(
        "LinearAttentionGate",
        [a, ops.weight(heads), ops.weight(heads, around=-1.0), b],
        ["decay", "beta"],
        domain=DOMAIN,
    )
    gains = ops.weight(8, around=1.0)
    x, gate = ops.input(1, 5, heads * 8), ops.input(1, 5, heads * 8)
    normed = ops("GatedRMSNorm", x, gains, gate, domain=DOMAIN, activation=activation, epsilon=1e-6)
    ops.output(*names, normed)
    ops.check(device, "fp32")
