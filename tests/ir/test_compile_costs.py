"""What a compilation costs: memory, work in proportion, and what of TVM it loads."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from model_zoo.tflite_net import TFLiteNet

from adrenoc.base.errors import HostMemoryError, MemoryLimitError
from adrenoc.base.host.memory import memory_errors
from adrenoc.base.reporter import SilentReporter
from adrenoc.compile.pipeline import State, run_stages
from adrenoc.ir.options import resolve_options
from adrenoc.target.target import load_target
from tests.commands import run_program
from tests.host.run_op import Ops
from tests.ir.planning import plan
from tests.models import graph, parse_nodes
from tests.patience import WAIT_S

SHAPE = (1, 8, 6, 4)
"""Of what goes through all of them: small, for the work that is counted is not arithmetic."""

_PER_CHANNEL = np.linspace(0.5, 1.5, SHAPE[1]).reshape(SHAPE[1], 1, 1)
_UNARY = (
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Cos", "Cosh"),
    *("Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu"),
    *("Log", "LogSoftmax", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign"),
    *("Sin", "Sinh", "Softmax", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "ThresholdedRelu"),
)
_BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Mean", "Sum")

HELD: dict[str, Any] = {
    **{"number": 0.9, "least": -1.0, "most": 3.0, "slope": np.full((8, 1, 1), 0.2)},
    **{"channels": _PER_CHANNEL, "root": 1.4142, "whole": 1.0, "tiny": 1e-5, "shape": [*SHAPE]},
    **{"rows": [1, 8, 24], "groups": [1, 2, 4, 6, 4], "one": [1], "two": [2], "both": [2, 3]},
    **{"six": [6], "four": [4], "twelve": [12], "last": [-1], "far": [-99], "third": 3},
    **{"widths": [0, 0, 1, 0, 0, 0, 0, 0], "halves": [4, 4], "parts": [3, 5]},
    **{"places": [3, 0, 1, 2, 4, 6, 5, 7], "each": np.indices(SHAPE).sum(0) % SHAPE[2]},
    **{"twofold": [1.0, 1.0, 2.0, 2.0], "matrix": np.eye(4) / 2, "ones4": np.ones(4)},
    **{"ones8": np.ones(8), "zeros8": np.zeros(8), "unit": 0.05, "zero": np.int8(3)},
    **{f"n{i}": _PER_CHANNEL.ravel() + i for i in range(4)},
}
"""The constants of all chains."""
WEIGHTS = {"w1": (8, 8, 1, 1), "w3": (8, 8, 3, 3), "deep": (8, 1, 3, 3)}
"""Drawn anew in each step."""
_AROUND = "pads = [1, 1, 1, 1]"
CHAINS: dict[str, str] = {
    **{op: f"y = {op}(x)" for op in _UNARY},
    **{f"{op} number": f"y = {op}(x, number)" for op in _BINARY},
    "Mod number": "y = Mod <fmod = 1>(x, number)",
    **{f"{op} channels": f"y = {op}(x, channels)" for op in ("Add", "Mul", "Div", "Max")},
    **{f"{op} twice": f"y = {op}(x, x)" for op in _BINARY},
    **{f"{op} ladder": f"y = {op}(x, before)" for op in _BINARY},
    "Clip": "y = Clip(x, least, most)",
    "PRelu": "y = PRelu(x, slope)",
    "Where": "a = Greater(x, before) y = Where(a, x, before)",
    "compared": "a = Less(x, before) y = Cast <to = 1>(a)",
    "cast": "a = Cast <to = 6>(x) y = Cast <to = 1>(a)",
    "silu": "a = Sigmoid(x) y = Mul(x, a)",
    "gelu": "a = Div(x, root) b = Erf(a) c = Add(b, whole) y = Mul(x, c)",
    # What a normalisation is written of: a difference, its square, a root, a quotient.
    "centred": """a = ReduceMean <keepdims = 1>(x, one) b = Sub(x, a) c = Mul(b, b)
                  d = ReduceMean <keepdims = 1>(c, one) e = Add(d, tiny) f = Sqrt(e)
                  y = Div(b, f)""",
    "Transpose": "y = Transpose <perm = [0, 1, 2, 3]>(x)",
    "transposes": """a = Transpose <perm = [0, 2, 3, 1]>(x) b = Sigmoid(a)
                     y = Transpose <perm = [0, 3, 1, 2]>(b)""",
    "reshapes": "a = Reshape(x, rows) b = Relu(a) y = Reshape(b, shape)",
    "Unsqueeze": "a = Unsqueeze(x, two) y = Squeeze(a, two)",
    "Expand": "a = ReduceMean <keepdims = 1>(x, both) y = Expand(a, shape)",
    "slice and pad": "a = Slice(x, one, six, two) y = Pad(a, widths)",
    "reversed": "y = Slice(x, last, far, two, last)",
    # Split by channels, the halves the other way round side by side again.
    "halves": "a, b = Split <axis = 1>(x, halves) y = Concat <axis = 1>(b, a)",
    # Parts of three and five channels, which lie in no whole texels.
    "odd parts": "a, b = Split <axis = 1>(x, parts) c = Relu(a) y = Concat <axis = 1>(b, c)",
    "nested concat": "a = Concat <axis = 1>(x, before) y = Slice(a, four, twelve, one)",
    "Gather": "y = Gather <axis = 1>(x, places)",
    "GatherElements": "y = GatherElements <axis = 2>(x, each)",
    "pixel shuffle": "a = DepthToSpace <blocksize = 2>(x) y = SpaceToDepth <blocksize = 2>(a)",
    "channel shuffle": """a = Reshape(x, groups) b = Transpose <perm = [0, 2, 1, 3, 4]>(a)
                          y = Reshape(b, shape)""",
    "Resize": """a = Resize <mode = "nearest">(x, , twofold)
                 y = AveragePool <kernel_shape = [2, 2], strides = [2, 2]>(a)""",
    "CumSum": "y = CumSum(x, third)",
    **{
        f"Reduce{op}": f"a = Reduce{op} <keepdims = 1>(x, one) y = Sub(x, a)"
        for op in ("Max", "Mean", "Sum", "L2", "LogSumExp")
    },
    **{op: f"y = {op} <kernel_shape = [3, 3], {_AROUND}>(x)" for op in ("MaxPool", "AveragePool")},
    "BatchNormalization": "y = BatchNormalization(x, n0, n1, n2, n3)",
    "LayerNormalization": "y = LayerNormalization <axis = -1>(x, ones4)",
    "InstanceNormalization": "y = InstanceNormalization(x, ones8, zeros8)",
    "MatMul": "y = MatMul(x, matrix)",
    "Conv 1x1": "y = Conv(x, w1)",
    "Conv 3x3": f"y = Conv <{_AROUND}>(x, w3)",
    "Conv depthwise": f"y = Conv <{_AROUND}, group = 8>(x, deep)",
    "Conv and Relu": "a = Conv(x, w1) y = Relu(a)",
    "residual": f"a = Conv <{_AROUND}>(x, w3) b = Relu(a) y = Add(x, b)",
    # Squeeze and excitation: a tensor by what is computed of all of it.
    "scaled": "a = GlobalAveragePool(x) b = Conv(a, w1) c = Sigmoid(b) y = Mul(x, c)",
    "quanta": "a = QuantizeLinear(x, unit, zero) y = DequantizeLinear(a, unit, zero)",
}
"""What is applied again and again, by name."""


_ONE = (
    *("ABS", "CEIL", "COS", "ELU", "EXP", "FLOOR", "HARD_SWISH", "LOG", "LOGISTIC", "NEG", "RELU"),
    *("RELU6", "ROUND", "RSQRT", "SIN", "SQRT", "SQUARE", "TANH"),
)
"""Operators of TFLite by element, of one operand."""
_TWO = (
    *("DIV", "FLOOR_DIV", "FLOOR_MOD", "MAXIMUM", "MINIMUM", "MUL", "POW"),
    *("SQUARED_DIFFERENCE", "SUB"),
)
_OPTIONS = {
    kind: f"{kind.title().replace('_', '')}Options"
    for kind in ("COS", "EXP", "HARD_SWISH", "NEG", "SQUARE", *_TWO)
} | dict.fromkeys(("MAXIMUM", "MINIMUM"), "MaximumMinimumOptions")
"""Operator -> its table of options."""
TFLITE = (
    *(f"{kind} chain" for kind in _ONE),
    *(f"{kind} {form}" for kind in _TWO for form in ("twice", "ladder")),
)
"""The chains of TFLite's operators, by name."""


def tflite_chain(name: str, length: int) -> bytes:
    """The file that applies an operator of `TFLITE` so many times."""
    kind, form = name.split()
    n, c, h, w = SHAPE
    net = TFLiteNet((n, h, w, c))
    before = last = net.input
    for _ in range(length):
        operands = {"chain": (last,), "twice": (last, last), "ladder": (last, before)}[form]
        before, last = last, net.plain(kind, *operands, options=_OPTIONS.get(kind, ""))
    return net.finish(last)


def write_chain(folder: Path, name: str, length: int) -> Path:
    """A chain of either format as a file."""
    if name in TFLITE:
        path = folder / "chain.tflite"
        path.write_bytes(tflite_chain(name, length))
        return path
    net = Ops(opset=20)
    before = last = net.input(*SHAPE)
    used = {given for node in parse_nodes(CHAINS[name]) for given in node.input}
    for _ in range(length):
        drawn = {given: net.weight(*WEIGHTS[given]) for given in used & WEIGHTS.keys()}
        following = net.text(CHAINS[name], x=last, before=before, **HELD, **drawn)
        before, last = last, following
    net.output(last)
    path = folder / "chain.onnx"
    net.save(path)
    return path


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
FAST = [name for name in CHAINS if name not in SLOW]


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
    return calls_of(planning(write_chain(folder, name, length)), limit)


@pytest.mark.nightly
@pytest.mark.parametrize("name", [*FAST, *TFLITE])
def test_work_grows_with_the_length(name, tmp_path):
    calls_at(tmp_path, name, 1)  # first uses
    few = calls_at(tmp_path, name, SHORT)
    limit = LONG * max(MOST * few / SHORT, PER_OPERATOR)
    many = calls_at(tmp_path, name, LONG, limit)
    assert many <= limit, f"{SHORT} operators take {few} calls, {LONG} more than {limit:.0f}"


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["Relu", "RELU chain"])
def test_two_thousand_operators_need_no_deep_stack(name, tmp_path):
    planning(write_chain(tmp_path, name, 2000))()


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
