"""A model that this machine has no memory for ends in one sentence."""

import sys

import onnx
import pytest
import tvm
from onnx import helper

from adrenoc.base.errors import HostMemoryError, MemoryLimitError
from adrenoc.base.host.memory import memory_errors
from tests.commands import run_program
from tests.ir.planning import plan
from tests.models import graph
from tests.patience import WAIT_S

CHECK = """
import resource, sys
import adrenoc.check.check_model, adrenoc.importers.onnx.importer
from adrenoc.cli.main import main
from adrenoc.base.host.memory import LEAST_BYTES
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
limit = max(used + (1 << 28), LEAST_BYTES)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
sys.exit(main(["check", sys.argv[1], "--device", "adreno:730"]))
"""


def test_a_model_larger_than_memory(tmp_path):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    model = graph(nodes, {"x": (1, 1 << 15)}, ["y"])
    weights = model.graph.initializer.add(
        name="w", dims=[1 << 15, 1 << 13], data_type=onnx.TensorProto.FLOAT
    )
    weights.data_location = onnx.TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="w.bin")
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(1 << 30)
    run = run_program([sys.executable, "-c", CHECK, str(tmp_path / "m.onnx")], timeout=WAIT_S)
    assert run.returncode == HostMemoryError.exit_code, run.stderr
    assert "no memory left for the stage import of" in run.stderr
    assert "Traceback" not in run.stderr


def test_what_tvm_raises_is_known():
    with pytest.raises(HostMemoryError, match="for a tensor"), memory_errors("a tensor"):
        tvm.runtime.empty((1 << 50,), "int8")
    with pytest.raises(RuntimeError, match="something else"), memory_errors("a tensor"):
        raise RuntimeError("something else")


def test_what_a_gpu_does_not_give_in_one_piece_is_refused():
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Sigmoid", ["r"], ["y"])]
    model = graph(nodes, {"x": [1, 8, 64, 64]}, ["y"])
    plan(model, until="plan_memory", preset="fp32", max_alloc_bytes=1 << 20)
    with pytest.raises(MemoryLimitError, match=r"takes 0.1 MiB in one piece, .* 0.1 MiB"):
        plan(model, until="plan_memory", preset="fp32", max_alloc_bytes=1 << 16)
