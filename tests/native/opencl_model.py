"""A small Relax module that goes through a texture, compiled for OpenCL with TVM's own passes.

Run as a program it writes the compiled library to the path given: in a process that has not
loaded our runtime, so that TVM's code generator saves the kernels in its own form.
"""

# ruff: noqa: N805, N812 (TVMScript is not Python: no self, and its own short names)

import sys

import tvm
from tvm import relax
from tvm.s_tir.backend.adreno import pipeline as adreno_pipeline
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T
from tvm.tirx import compilation_pipeline as tir_pipeline

N, Y, X = 2, 3, 5


# The texture is stored with four equal lanes: TVM's vectoriser writes only the last lane of a
# store whose lanes differ, which is not the runtime's affair.
@I.ir_module(s_tir=True)
class TexturePath:
    """`main` spreads [N, Y, X] over the four lanes of a texture, then shifts it right by one."""

    I.module_global_infos(
        {
            "vdevice": [
                I.vdevice({"kind": "opencl", "device": "adreno"}, 0, "global"),
                I.vdevice({"kind": "opencl", "device": "adreno"}, 0, "global.texture"),
            ]
        }
    )

    @T.prim_func(s_tir=True)
    def spread(
        A: T.Buffer((N, Y, X), "float32"),
        B: T.Buffer((N, Y, X, 4), "float32", scope="global.texture"),
    ):
        T.func_attr({"tirx.is_scheduled": 1})
        for n in T.thread_binding(N, thread="blockIdx.y"):
            for y in T.thread_binding(Y, thread="blockIdx.x"):
                for x in T.thread_binding(X, thread="threadIdx.x"):
                    for c in T.vectorized(4):
                        B[n, y, x, c] = A[n, y, x]

    @T.prim_func(s_tir=True)
    def shift(
        A: T.Buffer((N, Y, X, 4), "float32", scope="global.texture"),
        B: T.Buffer((N, Y, X, 4), "float32"),
    ):
        T.func_attr({"tirx.is_scheduled": 1})
        for n in T.thread_binding(N, thread="blockIdx.y"):
            for y in T.thread_binding(Y, thread="blockIdx.x"):
                for x in T.thread_binding(X, thread="threadIdx.x"):
                    for c in T.vectorized(4):
                        B[n, y, x, c] = A[n, y, x - 1, c]

    @R.function
    def main(x: R.Tensor((N, Y, X), "float32", "opencl:0:global")):
        cls = TexturePath
        t = R.call_tir(
            cls.spread, (x,), out_ty=R.Tensor((N, Y, X, 4), "float32", "opencl:1:global.texture")
        )
        return R.call_tir(
            cls.shift, (t,), out_ty=R.Tensor((N, Y, X, 4), "float32", "opencl:0:global")
        )


def build():
    """The compiled module; its storage is planned by TVM, in bytes."""
    # TVM registers this pipeline without its two final parts, so `tirx.build` cannot use it.
    tir_pipeline.register_tir_pipeline(
        "adreno_complete",
        lambda: (
            adreno_pipeline.default_tir_pipeline(),
            tir_pipeline.finalize_host_passes,
            tir_pipeline.finalize_device_passes,
        ),
    )
    target = tvm.target.Target({"kind": "opencl", "device": "adreno"}, host="llvm")
    with target:
        return relax.build(TexturePath, target=target, tir_pipeline="adreno_complete")


if __name__ == "__main__":
    build().export_library(sys.argv[1])
