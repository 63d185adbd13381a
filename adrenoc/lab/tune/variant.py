"""One candidate as OpenCL C that a device can build, with the tensors that it is launched on.

Weights are the model's own; other inputs are random, the same for all candidates of a task.
Tensors lie in files of a scratch folder, so that candidates share them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from adrenoc.ir.layout import Memory, OperandSpec, TexelOrder
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.codegen.build import device_kernel
from adrenoc.kernels.families.shared.context import KernelCall
from adrenoc.kernels.weights import pack_blocked
from adrenoc.lab.tune.tasks import TunePlan, TuneTask

KERNEL = "kernel"
"""What a candidate's kernel is called before TVM splits it from what launches it."""
PATTERN = 16411
"""Random elements that a device repeats over a large input, for a session brings some 40 MB a
second: a prime, so that rows and blocks differ."""


_FINITE_BELOW = 1 << 30
"""Words below it are floats from zero to two, if they are read as such."""


@dataclass(frozen=True, kw_only=True)
class Argument:
    """A tensor on the device: physical shape, dtype, memory scope, and the file of its value.

    `repeated`: the file holds its first elements, and all others are those again.
    """

    shape: tuple[int, ...]
    dtype: str
    scope: str
    file: str
    repeated: bool = False


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A candidate as a device takes it: OpenCL C, work-items, arguments.

    The last argument is the output and has no file; `bytes`: its words hold four quanta each.
    """

    kernel: str
    source: str
    work_items: tuple[int, int, int]
    work_group: tuple[int, int, int]
    arguments: tuple[Argument, ...]
    bytes: bool = False


BuildVariant = Callable[[TuneTask, int], Variant]
"""From a task and the number of a candidate to what runs it."""


class VariantBuilder:
    """Builds candidates; their tensors lie in `scratch`."""

    def __init__(self, plan: TunePlan, scratch: Path) -> None:
        self._plan, self._scratch = plan, scratch

    def __call__(self, task: TuneTask, number: int) -> Variant:
        """Build one candidate.

        Raises:
            AdrenocError: it cannot be compiled.
        """
        call, context = self._plan.call(task, task.candidates[number])
        builder = self.builder(task, number, call)
        kernel = device_kernel(builder.build(KERNEL), self._plan.target)
        launch = builder.launch
        if launch is None:
            raise ValueError(f"{task.title} launches no threads")
        arguments = []
        output = len(call.arguments) - 1
        for place in kernel.arguments:
            name = call.arguments[place]
            param = context.params.get(name)
            spec = param.spec if param is not None else context.graph.operand(name)
            value = param.value if param is not None else None
            argument = Argument(
                shape=tuple(value.shape) if value is not None else spec.physical,
                dtype=str(value.dtype) if value is not None else spec.dtype,
                scope=spec.scope,
                file="" if place == output else str(self._save(task, place, name, spec, value)),
                repeated=place != output and value is None and is_repeated(spec),
            )
            arguments.append(argument)
        if kernel.arguments[-1] != output:
            raise ValueError(f"{task.title} does not write its last argument")
        groups = zip(launch.work_group, launch.grid, strict=True)
        width, height, depth = (threads * count for threads, count in groups)
        return Variant(
            kernel=kernel.name,
            source=kernel.source,
            work_items=(width, height, depth),
            work_group=launch.work_group,
            arguments=tuple(arguments),
            bytes=spec.memory is Memory.BYTES,
        )

    def builder(self, task: TuneTask, number: int, call: KernelCall) -> KernelBuilder:
        """Return the kernel builder of a candidate."""
        return call.builder

    def _rows_there(self, task: TuneTask) -> int:
        """Half of the rows of the cache that a kernel goes over: what its number of rows says."""
        graph = self._plan.graph
        pasts = {past for past, _ in self._plan.options.caches}
        rows = (
            graph.tensors[name].shape[2] for name in task.node.inputs if graph.owner(name) in pasts
        )
        return next(rows, 0) // 2

    def _save(
        self, task: TuneTask, place: int, name: str, spec: OperandSpec, value: np.ndarray | None
    ) -> Path:
        safe = "".join(c if c.isalnum() else "_" for c in name)[-80:]
        path = self._scratch / f"{task.digest}_{place}_{safe}.npy"
        if not path.exists():
            made = value if value is not None else random_value(spec, f"{task.digest}{place}")
            there = self._rows_there(task)
            if there and value is None and not spec.dtype.startswith("float"):
                made = np.full(spec.shape, there, spec.dtype)
            np.save(path, np.asarray(made, order="C"))
        return path


def is_repeated(spec: OperandSpec) -> bool:
    """Return whether a large input is a short pattern repeated, not with lanes of zeros."""
    if spec.memory is Memory.BYTES:
        return False
    return math.prod(spec.shape) == math.prod(spec.physical) > PATTERN


def random_value(spec: OperandSpec, seed: str) -> np.ndarray:
    """Return a tensor as it lies in memory, or the pattern that it repeats.

    Lanes beyond the last channel are zero.
    """
    random = np.random.default_rng(list(seed.encode()))
    shape = (PATTERN,) if is_repeated(spec) else spec.shape
    if spec.memory is Memory.BYTES:
        # Words beside bytes may be scales (`n_bits/n_bits_dot.py`).
        return random.integers(0, _FINITE_BELOW, spec.physical, np.uint32)
    if spec.dtype.startswith("float"):
        value = random.standard_normal(shape).astype(spec.dtype)
    else:  # small enough for any index
        value = random.integers(0, 2, shape).astype(spec.dtype)
    if is_repeated(spec) or spec.memory in (Memory.PLAIN, Memory.CPU):
        return value
    roles = spec.roles
    return pack_blocked(value, roles.roles, roles.order is TexelOrder.ROWS)
