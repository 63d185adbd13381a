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
from tests.models import graph
from tests.patience import WAIT_S

SHAPE = (1, 8, 6, 4)
"""Of what goes through all of them: small, for the work that is counted is not arithmetic."""

Step = Callable[[Ops, str, str], str]
"""From the last result and the one before it, the next."""


def _unary(op: str, **attrs) -> Step:
    return lambda net, x, _: net(op, x, **attrs)


_PER_CHANNEL = np.linspace(0.5, 1.5, SHAPE[1]).reshape(SHAPE[1], 1, 1)


def _by(op: str, *values: object, **attrs) -> Step:
    return lambda net, x, _: net(op, x, *map(net.const, values), **attrs)


def _odd_parts(net: Ops, x: str, _: str) -> str:
    """Parts of three and five channels, which lie in no whole texels."""
    first, second = net.split(x, 1, 3, 5)
    return net("Concat", second, net("Relu", first), axis=1)


def _channel_shuffle(net: Ops, x: str, _: str) -> str:
    split = net("Reshape", x, net.ints(1, 2, 4, 6, 4))
    return net("Reshape", net("Transpose", split, perm=[0, 2, 1, 3, 4]), net.ints(*SHAPE))


def _slice_pad(net: Ops, x: str, _: str) -> str:
    bounds = (net.ints(1), net.ints(6), net.ints(2))
    return net("Pad", net("Slice", x, *bounds), net.ints(0, 0, 1, 0, 0, 0, 0, 0))


def _resize(net: Ops, x: str, _: str) -> str:
    up = net("Resize", x, "", net.const([1, 1, 2, 2]), mode="nearest")
    return net("AveragePool", up, kernel_shape=[2, 2], strides=[2, 2])


def _conv(kernel: int, group: int = 1) -> Step:
    def step(net: Ops, x: str, _: str) -> str:
        weight = net.weight(8, 8 // group, kernel, kernel)
        return net("Conv", x, weight, pads=[kernel // 2] * 4, group=group)

    return step


def _quanta(net: Ops, x: str, _: str) -> str:
    scale, zero = net.const(0.05), net.const(3, "int8")
    return net("DequantizeLinear", net("QuantizeLinear", x, scale, zero), scale, zero)


def _centred(net: Ops, x: str, _: str) -> str:
    """What a normalisation is written of: a difference, its square, a root, a quotient."""
    axes = net.ints(1)
    rest = net("Sub", x, net("ReduceMean", x, axes, keepdims=1))
    square = net("ReduceMean", net("Mul", rest, rest), axes, keepdims=1)
    return net("Div", rest, net("Sqrt", net("Add", square, net.const(1e-5))))


_UNARY = (
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Cos", "Cosh"),
    *("Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu"),
    *("Log", "LogSoftmax", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign"),
    *("Sin", "Sinh", "Softmax", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "ThresholdedRelu"),
)
_BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Mean", "Sum")

CHAINS: dict[str, Step] = {
    **{op: _unary(op) for op in _UNARY},
    **{f"{op} number": _by(op, 0.9) for op in _BINARY},
    "Mod number": lambda net, x, _: net("Mod", x, net.const(0.9), fmod=1),
    **{f"{op} channels": _by(op, _PER_CHANNEL) for op in ("Add", "Mul", "Div", "Max")},
    **{f"{op} twice": lambda net, x, _, op=op: net(op, x, x) for op in _BINARY},
    **{f"{op} ladder": lambda net, x, before, op=op: net(op, x, before) for op in _BINARY},
    "Clip": lambda net, x, _: net("Clip", x, net.const(-1.0), net.const(3.0)),
    "PRelu": _by("PRelu", np.full((SHAPE[1], 1, 1), 0.2)),
    "Where": lambda net, x, before: net("Where", net("Greater", x, before), x, before),
    "compared": lambda net, x, before: net("Cast", net("Less", x, before), to=1),
    "cast": lambda net, x, _: net("Cast", net("Cast", x, to=6), to=1),
    "silu": lambda net, x, _: net("Mul", x, net("Sigmoid", x)),
    "gelu": lambda net, x, _: net(
        "Mul", x, net("Add", net("Erf", net("Div", x, net.const(1.4142))), net.const(1.0))
    ),
    "centred": _centred,
    "Transpose": _unary("Transpose", perm=[0, 1, 2, 3]),
    "transposes": lambda net, x, _: net(
        "Transpose", net("Sigmoid", net("Transpose", x, perm=[0, 2, 3, 1])), perm=[0, 3, 1, 2]
    ),
    "reshapes": lambda net, x, _: net(
        "Reshape", net("Relu", net("Reshape", x, net.ints(1, 8, 24))), net.ints(*SHAPE)
    ),
    "Unsqueeze": lambda net, x, _: net("Squeeze", net("Unsqueeze", x, net.ints(2)), net.ints(2)),
    "Expand": lambda net, x, _: net(
        "Expand", net("ReduceMean", x, net.ints(2, 3), keepdims=1), net.ints(*SHAPE)
    ),
    "slice and pad": _slice_pad,
    "reversed": lambda net, x, _: net("Slice", x, *map(net.ints, (-1, -99, 2, -1))),
    # Split by channels, the halves the other way round side by side again.
    "halves": lambda net, x, _: net("Concat", *reversed(net.split(x, 1, 4, 4)), axis=1),
    "odd parts": _odd_parts,
    "nested concat": lambda net, x, before: net(
        "Slice", net("Concat", x, before, axis=1), *map(net.ints, (4, 12, 1))
    ),
    "Gather": lambda net, x, _: net("Gather", x, net.ints(3, 0, 1, 2, 4, 6, 5, 7), axis=1),
    "GatherElements": lambda net, x, _: net(
        "GatherElements", x, net.const(np.indices(SHAPE).sum(0) % SHAPE[2], "int64"), axis=2
    ),
    "pixel shuffle": lambda net, x, _: net(
        "SpaceToDepth", net("DepthToSpace", x, blocksize=2), blocksize=2
    ),
    "channel shuffle": _channel_shuffle,
    "Resize": _resize,
    "CumSum": lambda net, x, _: net("CumSum", x, net.const(3, "int64")),
    **{
        f"Reduce{op}": lambda net, x, _, op=op: net(
            "Sub", x, net(f"Reduce{op}", x, net.ints(1), keepdims=1)
        )
        for op in ("Max", "Mean", "Sum", "L2", "LogSumExp")
    },
    "MaxPool": _unary("MaxPool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    "AveragePool": _unary("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    "BatchNormalization": _by("BatchNormalization", *(_PER_CHANNEL.ravel() + i for i in range(4))),
    "LayerNormalization": _by("LayerNormalization", np.ones(4), axis=-1),
    "InstanceNormalization": _by("InstanceNormalization", np.ones(8), np.zeros(8)),
    "MatMul": _by("MatMul", np.eye(4) / 2),
    "Conv 1x1": _conv(1),
    "Conv 3x3": _conv(3),
    "Conv depthwise": _conv(3, 8),
    "Conv and Relu": lambda net, x, before: net("Relu", _conv(1)(net, x, before)),
    "residual": lambda net, x, before: net("Add", x, net("Relu", _conv(3)(net, x, before))),
    # Squeeze and excitation: a tensor by what is computed of all of it.
    "scaled": lambda net, x, before: net(
        "Mul", x, net("Sigmoid", _conv(1)(net, net("GlobalAveragePool", x), before))
    ),
    "quanta": _quanta,
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
    for _ in range(length):
        before, last = last, CHAINS[name](net, last, before)
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
