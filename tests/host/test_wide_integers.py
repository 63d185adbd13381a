"""int64 data keeps all of its bits, beside indices that are int32."""

import numpy as np
from onnx import TensorProto

from adrenoc.base.reporter import SilentReporter
from adrenoc.compile.pipeline import State, run_stages
from adrenoc.ir.options import resolve_options
from adrenoc.target.target import load_target
from tests.host.run_op import execute
from tests.models import graph, write


def test_sums_and_choices_beyond_32_bits(device, tmp_path):
    large = 2**40
    nodes = (
        "a = Add(x, large) total = ReduceSum <keepdims = 1>(a) up = Greater(a, large) "
        "kept = Where(up, a, zero) row = Gather <axis = 0>(a, first)"
    )
    constants = {
        "large": np.array(large, np.int64),
        "zero": np.array(0, np.int64),
        "first": np.array([1, 0], np.int64),
    }
    names = ["total", "kept", "row"]
    model = graph(nodes, {"x": (3, 5)}, names, constants, dtype=TensorProto.INT64)
    x = (np.arange(15, dtype=np.int64) - 7).reshape(3, 5)
    target = load_target("host")
    options = resolve_options(target, preset="fp32", command_line={"check_ir": True}).options
    state = State(model=write(model, tmp_path), target=target, options=options)
    state, _ = run_stages(state, reporter=SilentReporter())
    total, kept, row = execute(state, [x], device)
    a = x + large
    np.testing.assert_array_equal(total, a.sum(keepdims=True))
    np.testing.assert_array_equal(kept, np.where(a > large, a, 0))
    np.testing.assert_array_equal(row, a[[1, 0]])
