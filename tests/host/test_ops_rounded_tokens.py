"""Products of many tokens that are rounded to bytes, by weights of few bits."""

import math
from dataclasses import replace

import numpy as np
import pytest

from adrenoc.kernels.families.n_bits.n_bits_dot import explain_not_rounded
from adrenoc.target.gpu import Quirk
from adrenoc.target.target import load_target
from tests.host.run_op import Ops
from tests.host.test_ops_n_bits import product

pytestmark = pytest.mark.operator

CASES = [
    # tokens, inputs, outputs, bits, block, zero points
    ((1, 17, 64), 24, 4, 32, ""),
    ((33, 96), 70, 4, 16, "packed"),
    ((1, 130, 256), 21, 4, 128, "float"),
    ((2, 3, 11, 64), 50, 4, 64, "packed"),
    ((1, 19, 128), 33, 2, 32, ""),
    ((40, 64), 12, 2, 64, "packed"),
    ((1, 21, 96), 36, 8, 32, ""),
    ((1, 23, 256), 40, 8, 128, "packed"),
    ((37, 48), 18, 8, 16, "packed"),
]


@pytest.fixture(autouse=True)
def _win(monkeypatch) -> None:
    """Tokens are rounded whatever it would gain."""
    module = "adrenoc.passes.fuse.fuse_products"
    monkeypatch.setattr(f"{module}.least_matrix_clocks", lambda *_: math.inf)


def _rounded_ops(seed: int = 0) -> Ops:
    ops = Ops(seed)
    ops.asked = {"int8_prompts": True}
    return ops


def _held_by_bytes(shape: tuple[int, ...], group: int, seed: int) -> np.ndarray:
    """Numbers that a byte and a scale hold exactly: of each group the largest is 127 of them."""
    random = np.random.default_rng(seed)
    whole = random.integers(-127, 128, (*shape[:-1], shape[-1] // group, group))
    whole[..., 3] = random.choice([-127, 127], whole.shape[:-1])
    scales = 2.0 ** random.integers(-9, -5, (*whole.shape[:-1], 1))
    return (whole * scales).reshape(shape).astype(np.float32)


def test_bytes_give_the_product_of_what_they_hold(device, preset):
    ops = _rounded_ops()
    for number, (shape, n, bits, block, zeros) in enumerate(CASES):
        x = ops.input(*shape)
        ops.given(x, _held_by_bytes(shape, min(block, 32), number))
        y = product(ops, x, shape[-1], n, block=block, zeros=zeros, seed=number, bits=bits)
        ops.output(ops("Add", y, ops.weight(n)))
    ops.check(device, preset, 2e-5 if preset == "fp32" else None)
    assert ops.kernels.count("n_bits_dot") == ops.kernels.count("round_tokens") == len(CASES)
    assert not ops.fallbacks


@pytest.mark.parametrize("size", [1e-6, 1.0, 3e4])
def test_random_tokens_lose_what_bytes_cannot_hold(device, size):
    ops = _rounded_ops()
    ops.output(product(ops, ops.input(64, 512, low=-size, high=size), 512, 96))
    seen = ops.run(device, "fp32")
    (name,) = seen
    expected = ops.reference()[name]
    assert 1e-5 < np.abs(seen[name] - expected).max() / np.ptp(expected) < 5e-3


def test_tokens_of_zeros_give_zeros(device):
    ops = _rounded_ops()
    x = ops.input(20, 64)
    ops.given(x, np.zeros((20, 64), np.float32))
    ops.output(product(ops, x, 64, 8, zeros="packed"))
    (value,) = ops.run(device, "fp32").values()
    assert not value.any()


def test_what_several_products_read_is_rounded_once(device):
    ops = _rounded_ops()
    x = ops.input(24, 64)
    ops.given(x, np.abs(_held_by_bytes((24, 64), 32, 0)))
    shared = ops("Relu", x)
    for seed in range(3):
        ops.output(product(ops, shared, 64, 20, seed=seed))
    ops.check(device, "fp32", 2e-5)
    assert ops.kernels.count("round_tokens") == 1 and ops.kernels.count("n_bits_dot") == 3


def _reasons(ops: Ops) -> list[str]:
    return [d.reason for d in ops.decisions if d.taken == "tokens are not rounded"]


def test_what_has_no_kernel_of_dot_products_is_told(device):
    ops = _rounded_ops()
    ops.output(product(ops, ops.input(20, 72), 72, 8))
    ops.check(device, "fp32")
    assert _reasons(ops) == ["72 inputs are no whole number of blocks of 32"]
    assert "n_bits_dot" not in ops.kernels


@pytest.mark.parametrize(
    ("block", "held"), [(8, False), (16, True), (24, False), (32, True), (48, False), (96, True)]
)
def test_groups_are_whole_reads_of_sixteen(block, held):
    """A blockwise DequantizeLinear may have blocks of any size."""
    assert (not explain_not_rounded(block * 2, block)) is held


def test_a_model_without_such_products_is_told(device):
    ops = _rounded_ops()
    ops.output(ops("Relu", ops.input(20, 64)))
    ops.check(device, "fp32")
    (told,) = [d for d in ops.decisions if d.subject == "int8 prompts"]
    assert (told.taken, told.reason) == (
        "nothing is rounded",
        "no product by weights of 2, 4 or 8 bits",
    )


def test_few_tokens_and_other_gpus_keep_theirs(device):
    ops = _rounded_ops()
    ops.output(product(ops, ops.input(16, 64), 64, 8), product(ops, ops.input(20, 64), 64, 8))
    host = load_target("host")
    quirk = Quirk(name="q", text="They are wrong.", source="s", avoid=("dot-products",))
    ops.check(device, "fp32", target=replace(host, gpu=replace(host.gpu, quirks=(quirk,))))
    (reason,) = _reasons(ops)
    assert reason == "quirk q: s" and "n_bits_dot" not in ops.kernels
    ops.run(device, "fp32")
    assert ops.kernels.count("n_bits_dot") == 1 and ops.kernels.count("n_bits") == 1


def test_nothing_is_rounded_that_would_gain_nothing(device, monkeypatch):
    monkeypatch.setattr("adrenoc.passes.fuse.fuse_products.least_matrix_clocks", lambda *_: 1.0)
    ops = _rounded_ops()
    ops.output(product(ops, ops.input(20, 64), 64, 8))
    ops.check(device, "fp32")
    (reason,) = _reasons(ops)
    assert reason.startswith("estimated ") and reason.endswith(", 1 as they are")
