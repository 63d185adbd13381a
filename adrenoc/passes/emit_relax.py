"""Program and memory plan -> the Relax module that the virtual machine runs.

`main(inputs, params)` allocates each slot once, views the tensors in it, launches the kernels
in order and returns the outputs.  Scopes are stated where memory is allocated; the params come
in the scopes that the manifest names.
"""

from __future__ import annotations

from typing import Any

from tvm.ir import Op, StringImm

from adrenoc.operand import GLOBAL, OperandSpec
from adrenoc.passes.cpu_nodes import CPU, lowered_for_cpu
from adrenoc.passes.lower import Program
from adrenoc.passes.plan_memory import Storage, size_bytes
from adrenoc.tvmapi import Call, tvm

_COPY = "runtime.TVMTensorCopyFromTo"
"""TVM's runtime copies between devices with it; it returns when the copy is done."""

_GPU_DEVICE, _CPU_DEVICE = 0, 1
"""Indices into the devices that whoever runs the bundle gives the VM."""


def emit_relax(program: Program, storage: Storage, llvm_triple: str) -> Any:
    """The module with `main`, one TIR function a kernel and those that run on the CPU."""
    from tvm import relax

    graph = program.graph
    builder = relax.BlockBuilder()
    kernels = {name: builder.add_func(k.func, name) for name, k in program.kernels.items()}
    if program.cpu_functions:
        cpu = tvm.target.Target({"kind": "llvm", "mtriple": llvm_triple})
        for name, func in program.cpu_functions.items():
            kernels[name] = builder.add_func(lowered_for_cpu(func, cpu), name)
    known: dict[str, Any] = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        known[name] = relax.Var(name, relax.TensorType(tensor.shape, tensor.dtype))
    for number, param in enumerate(program.params.values()):
        ty = relax.TensorType(param.value.shape, str(param.value.dtype))
        known[param.name] = relax.Var(f"p{number}", ty)
    with builder.function("main", list(known.values())):
        slots = [
            builder.emit(_storage(slot.shape, slot.dtype, slot.scope), f"slot{i}")
            for i, slot in enumerate(storage.plan.slots)
        ]
        for step in program.steps:
            output = step.arguments[-1]
            spec = graph.operand(output)
            index = storage.slot_of.get(output)
            if index is None:  # an output of the graph outlives the run
                own = _storage((size_bytes(spec),), "uint8", GLOBAL)
                memory = builder.emit(own, f"{output}_storage")
            else:
                memory = slots[index]
            known[output] = builder.emit(_view(memory, spec), output)
            args = [known[graph.aliases.get(name, name)] for name in step.arguments]
            nothing = relax.TupleType([])
            callee = kernels[step.kernel] if step.kernel else relax.ExternFunc(_COPY)
            builder.emit(Call(callee, args, ty_args=[nothing]), "_")
        results = [known[name] for name in graph.outputs]
        builder.emit_func_output(results[0] if len(results) == 1 else relax.Tuple(results))
    return builder.finalize()


def _storage(shape: tuple[int, ...], dtype: str, scope: str) -> Any:
    from tvm import relax

    device = _CPU_DEVICE if scope == CPU else _GPU_DEVICE
    memory = GLOBAL if scope == CPU else scope
    return Call(
        Op.get("relax.vm.alloc_storage"),
        [relax.ShapeExpr(shape), relax.prim_value(device), _dtype(dtype), StringImm(memory)],
    )


def _view(storage: Any, spec: OperandSpec) -> Any:
    """A tensor in a slot."""
    from tvm import relax

    arguments = [
        storage,
        relax.prim_value(0),
        relax.ShapeExpr(spec.physical),
        _dtype(spec.dtype),
        StringImm(spec.scope),
    ]
    return Call(Op.get("relax.vm.alloc_tensor"), arguments)


def _dtype(dtype: str) -> Any:
    """A dtype as an argument of a VM operator."""
    from tvm import relax

    return tvm.ir.GenericConst(tvm.DataType(dtype), relax.AnyType())
