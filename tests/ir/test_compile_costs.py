"""What a compilation costs: memory, work in proportion, and what of TVM it loads."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import onnx
import pytest
import tvm

from adrenoc.base.errors import HostMemoryError, MemoryLimitError
from adrenoc.base.host.memory import memory_errors
from adrenoc.base.reporter import SilentReporter
from adrenoc.compile.pipeline import State, run_stages
from adrenoc.ir.options import resolve_options
from adrenoc.target.target import load_target
from tests.commands import run_program
from tests.ir import chains
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
    nodes = "y = MatMul(x, w)"
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
    nodes = "r = Relu(x) y = Sigmoid(r)"
    model = graph(nodes, {"x": [1, 8, 64, 64]}, ["y"])
    plan(model, until="plan_memory", preset="fp32", max_alloc_bytes=1 << 20)
    with pytest.raises(MemoryLimitError, match=r"takes 0.1 MiB in one piece, .* 0.1 MiB"):
        plan(model, until="plan_memory", preset="fp32", max_alloc_bytes=1 << 16)


SHORT, LONG = 6, 24
MOST = 2.0
"""How much steeper than in proportion calls may grow."""

PER_OPERATOR = 100_000
"""Calls that an operator may take in any case: what moves fuse until an expression is full."""

# Their schedules are searched for anew at each step, which is slow and says nothing more.
SLOW = {"Conv 1x1", "Conv 3x3", "Conv depthwise", "Conv and Relu", "scaled", "residual"}
FAST = [name for name in chains.CHAINS if name not in SLOW]


class TooMuchError(BaseException):
    """More calls than the length allows."""


def calls_of(work: Callable[[], Any], limit: float) -> int:
    """How many Python functions are called; the work ends soon beyond the limit."""
    count = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event == "call"
        if count > limit:
            raise TooMuchError  # TVM makes another error of it on its way

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    except (TooMuchError, RuntimeError):
        if count <= limit:
            raise
    finally:
        sys.setprofile(before)
    return count


def planning(path: Path) -> Callable[[], Any]:
    """What plans a model up to its memory."""
    target = load_target("adreno:750")
    options = resolve_options(target, preset="mixed", command_line={}).options
    start = State(model=path, target=target, options=options)
    return lambda: run_stages(start, reporter=SilentReporter(), stop_after="plan_memory")


def calls_at(folder: Path, name: str, length: int, limit: float = 10**7) -> int:
    return calls_of(planning(chains.write_chain(folder, name, length)), limit)


@pytest.mark.nightly
@pytest.mark.parametrize("name", [*FAST, *chains.TFLITE])
def test_work_grows_with_the_length(name, tmp_path):
    calls_at(tmp_path, name, 1)  # first uses
    few = calls_at(tmp_path, name, SHORT)
    limit = LONG * max(MOST * few / SHORT, PER_OPERATOR)
    many = calls_at(tmp_path, name, LONG, limit)
    assert many <= limit, f"{SHORT} operators take {few} calls, {LONG} more than {limit:.0f}"


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["Relu", "RELU chain"])
def test_two_thousand_operators_need_no_deep_stack(name, tmp_path):
    planning(chains.write_chain(tmp_path, name, 2000))()


_LOAD = """
import sys
from adrenoc.compile.load_tvm import load_tvm
load_tvm()
import adrenoc.compile.compiler, adrenoc.importers.onnx.importer
"""


def _run(text: str) -> str:
    return run_program([sys.executable, "-c", _LOAD + text], check=True).stdout


def test_a_compilation_loads_no_tuner_and_no_schedules_of_gpus():
    parts = _run("print('\\n'.join(sys.modules))").split()
    assert "tvm.relax" in parts
    for package in ("tvm.s_tir.meta_schedule", "tvm.s_tir.dlight", "tvm.relax.training"):
        assert package in parts
        assert not [part for part in parts if part.startswith(f"{package}.")]


def test_what_is_put_off_is_loaded_by_who_asks():
    text = """
import tvm
from tvm import s_tir
from tvm.relax.training import SetupTrainer
print(s_tir.dlight.gpu.Matmul.__name__, tvm.s_tir.meta_schedule.tune_tir.__name__)
"""
    assert _run(text) == "Matmul tune_tir\n"
