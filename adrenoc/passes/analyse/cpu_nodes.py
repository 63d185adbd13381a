"""Nodes without a kernel of ours: operators on the CPU of the same bundle, and regions of CLML.

The last step of the ladder: what no OpenCL kernel can say (doubles, sequential loops) keeps the TIR
function that TVM's legalisation gives, and LLVM compiles it with the code that launches the
kernels.

Before -> after:
    lv: R.Tensor((2, 3), "float64") = R.cumsum(x)      node cpu, attrs func=cumsum(x) -> lv

A region of CLML is one node that reads and writes row-major tensors.  A node has one output.  The
further results of a region are made before it, as memory that nothing has written yet, and the
region takes them as inputs.

Before -> after:
    r = call_dps_packed("clml0_..", (x,)) -> (a, b)      alloc -> b;  clml(x, b) -> a
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from adrenoc.base.decision import DecisionLog
from adrenoc.base.errors import CompileError
from adrenoc.base.tvmapi import tirx, tvm
from adrenoc.ir.graph import ALLOC, CLML, CPU, Node
from adrenoc.kernels.body_cost import parts_of_kind

_STEP_BY_STEP = frozenset({"non_max_suppression", "non_zero"})

_LIBRARY_CALLS = ("tirx.call_packed", "tirx.call_extern", "tirx.tvm_call_packed")


def wide_dtype(func: Any) -> str | None:
    """Return why a function's dtypes keep it off the GPU; None where they do not."""
    wide = next((b for b in func.params if str(b.dtype) == "float64"), None)
    return None if wide is None else f"{wide.name} is float64, which no Adreno computes"


def cpu_nodes(
    func: Any,
    args: Sequence[str],
    outputs: Sequence[str],
    *,
    op: str,
    reason: str,
    log: DecisionLog,
) -> Iterator[Node]:
    """Yield a node for each output of `func`: each computes all, and the unread ones fall away."""
    calls = parts_of_kind(func.body, tvm.ir.Call)
    called = sorted(
        {
            str(call.args[0])
            for call in calls
            if isinstance(call.op, tvm.ir.Op) and call.op.name in _LIBRARY_CALLS
        }
    )
    if called:
        raise CompileError(
            f"operator {op} ({', '.join(outputs)}) is {reason}; on the CPU it would call "
            f"{', '.join(called)}, which the runtime on the device does not have",
            hint="cut the model before it: python -c 'import onnx.utils; help("
            "onnx.utils.extract_model)'",
        )
    for position, output in enumerate(outputs):
        log.add(output, f"{op} on the CPU", f"{reason}; {remedy(op, reason)}")
        kept = [*range(len(args)), len(args) + position]
        yield Node(
            name=output,
            op=CPU,
            inputs=tuple(dict.fromkeys(args)),
            output=output,
            attrs={"func": _keep_params(func, kept), "arguments": (*args, output)},
            fused=(op,),
        )


def remedy(operator: str, reason: str) -> str:
    """Return what a user can do about an operator that is on the CPU for `reason`."""
    if "float64" in reason:
        return "export the model in float32 to keep it on the GPU"
    if operator in _STEP_BY_STEP:
        return "its steps need each other: cut it off, and do it in the app, to save the copies"
    return "export it with other operators to keep it on the GPU"


def _keep_params(func: Any, kept: Sequence[int]) -> Any:
    """Return the function with the parameters `kept`; the others become buffers inside."""
    params = list(func.params)
    inner = [p for i, p in enumerate(params) if i not in kept]
    body = func.body
    if inner:
        root = body.block
        block = tvm.s_tir.SBlock(
            root.iter_vars,
            root.reads,
            root.writes,
            root.name_hint,
            root.body,
            root.init,
            [*root.alloc_buffers, *inner],
            root.match_buffers,
            root.annotations,
        )
        body = tvm.s_tir.SBlockRealize(body.iter_values, body.predicate, block)
    return tirx.PrimFunc([params[i] for i in kept], body, func.ret_type, func.attrs)


def lower_for_cpu(func: Any, target: Any) -> Any:
    """Return the function without blocks, bound to the CPU, as `tirx.build` takes it."""
    s_tir = tvm.s_tir.transform
    passes: list[Callable[..., Any]] = [
        s_tir.CanonicalizeLoop,
        s_tir.LowerInitBlock,
        s_tir.PlanAndUpdateBufferAllocationLocation,
        s_tir.ConvertBlocksToOpaque,
        s_tir.CompactBufferAllocation,
        s_tir.LowerMatchBuffer,
        s_tir.LowerOpaqueBlock,
    ]
    name = str(func.attrs["global_symbol"])
    module = tvm.IRModule({name: func})
    module = tvm.transform.Sequential([make() for make in passes])(module)
    return module[name].with_attr("target", target)


def region_nodes(symbol: str, arguments: Sequence[str], results: Sequence[str]) -> list[Node]:
    """Return the nodes of one region."""
    nodes = [Node(name=name, op=ALLOC, inputs=(), output=name) for name in results[1:]]
    nodes.append(
        Node(
            name=results[0],
            op=CLML,
            inputs=(*dict.fromkeys(arguments), *results[1:]),
            output=results[0],
            attrs={"symbol": symbol, "arguments": tuple(arguments), "results": tuple(results)},
            fused=(CLML,),
        )
    )
    return nodes
