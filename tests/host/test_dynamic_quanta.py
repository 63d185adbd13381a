"""Dynamic quantisations choose their quanta by the data: halves before them would move each."""

import numpy as np

from tests.host.run_op import Ops


def _product(ops: Ops, x: str, channels: int) -> str:
    """A product of matrices as onnxruntime's dynamic quantisation writes it."""
    q, scale, zero = ops.several("DynamicQuantizeLinear", [x], ["q", "scale", "zero"])
    weight = ops.const(np.rint(ops.values(channels, channels) * 250), np.int8)
    whole = ops("MatMulInteger", q, weight, zero)
    scaled = ops("Mul", ops("Cast", whole, to=1), ops("Mul", scale, ops.const(0.004)))
    return ops("Add", scaled, ops.weight(channels))


def test_what_is_quantised_by_its_own_range_stays_in_float32(device):
    """Through the norm to the sum that it is of, as between the layers of a BERT."""
    ops = Ops(seed=3)
    x = ops.input(1, 24, 32)
    one = _product(ops, x, 32)
    total = ops("Add", one, x)
    normed = ops("LayerNormalization", total, ops.weight(32, around=1.0), ops.weight(32), axis=-1)
    ops.output(ops("Relu", _product(ops, normed, 32)))
    ops.check(device, "mixed", tolerance=1e-3)
    assert any("dynamic quantisations are computed" in d.reason for d in ops.decisions)
