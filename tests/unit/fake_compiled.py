"""A compiled model made by hand, and its bundle."""

from pathlib import Path

import numpy as np

from adrenoc.base.decision import DecisionLog
from adrenoc.bundle.bundle import LIBRARY, LaunchInfo, fill_bundle
from adrenoc.bundle.manifest import (
    KernelInfo,
    LibraryInfo,
    Manifest,
    MemoryPlan,
    MemorySlot,
    ModelInfo,
    OptionsInfo,
    ParamSpec,
    Statistics,
    TargetInfo,
    TensorSpec,
)


class FakeCompiled:
    """What `compile_model` returns, made by hand: one convolution with its weights in a texture."""

    def __init__(self) -> None:
        rng = np.random.default_rng(7)
        spec = ParamSpec(name="p0", shape=(1, 9, 4, 4), dtype="float16", scope="global.texture")
        self.library = object()
        self.param_specs = (spec, ParamSpec(name="p1", shape=(8,), dtype="float32"))
        self.params = {
            "p0": rng.standard_normal(spec.shape).astype(spec.dtype),
            # Strided, as a transposed weight is.
            "p1": rng.standard_normal((8, 2)).astype("float32")[:, 0],
        }
        self.packings = {}
        self.inputs = (TensorSpec(name="image", shape=(1, 3, 8, 8), dtype="float32"),)
        self.outputs = (TensorSpec(name="scores", shape=(1, 8), dtype="float32"),)
        self.states: tuple[str, ...] = ()
        self.kernels = (
            KernelInfo(
                name="conv2d_kernel",
                family="conv2d",
                calls=2,
                scopes=("global.texture", "global.texture", "global"),
                work_group=(8, 8, 1),
                grid=(1, 1, 2),
                source="__kernel void conv2d_kernel() {}\n",
            ),
        )
        slot = MemorySlot(scope="global.texture", shape=(2, 8, 8, 4), dtype="float16", bytes=1024)
        self.memory = MemoryPlan(slots=(slot,), slot_bytes=1024)
        self.statistics = Statistics(nodes_texture=1, tensors_texture=2, layout_kernels=1)
        self.regions = ()
        self.launches = (
            LaunchInfo(kernel="conv2d_kernel", node="conv_1", flops=9216, bytes=2048, floor_us=0.5),
            LaunchInfo(kernel="conv2d_kernel", node="conv_2", flops=9216, bytes=2048),
        )
        self.decisions = DecisionLog()
        self.decisions.add("conv2d_0", "texture", "8 channels fill 2 blocks")


ABOUT = {
    "name": "tiny",
    "model": ModelInfo(file="tiny.onnx", format="onnx", sha256="ab" * 32),
    "target": TargetInfo(
        name="host", host=True, llvm_triple="x86_64-unknown-linux-gnu", digest="cd" * 32
    ),
    "options": OptionsInfo(
        preset="fp32", values={"storage_dtype": "float32", "shapes": ()}, digest="ef" * 32
    ),
    "versions": {"adrenoc": "0.1.0", "linker": "LLD 22"},
}


def make_bundle_folder(folder: Path) -> Manifest:
    folder.mkdir(parents=True, exist_ok=True)
    # An ELF header that names neither segments nor sections.
    (folder / LIBRARY).write_bytes(b"\x7fELF\2\1\1".ljust(64, b"\0"))
    library = LibraryInfo(
        machine="x86_64", soname="model.so", needed=("libm.so.6",), page_bytes=4096
    )
    return fill_bundle(folder, FakeCompiled(), library=library, manifest=ABOUT)
