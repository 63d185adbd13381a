"""Layers that carry a state from token to token, of onnxruntime's own domain."""

import numpy as np
import pytest

from tests.host.run_op import Ops

pytestmark = pytest.mark.operator

DOMAIN = "com.microsoft"
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
