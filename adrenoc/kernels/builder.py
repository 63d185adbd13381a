"""Write one OpenCL kernel as TIR: parameters, threads, loops, registers.

```
k = KernelBuilder("conv2d", compute="float32", limits=limits)
x, y = k.input(x_spec), k.output(y_spec)
gx, gy, gz = k.threads(width, height, blocks)
with k.loop(4) as i:
    v = k.let(x.texel(0, i, gy, gx))
...
func = k.build()
```
"""

from collections.abc import Callable, Sequence

from adrenoc.base.tvmapi import (
    AttrStmt,
    Buffer,
    Expr,
    IfThenElse,
    IterVar,
    PrimFunc,
    Var,
    decl_buffer,
    iconst,
)
from adrenoc.ir.layout import Memory, OperandSpec
from adrenoc.ir.program import Launch
from adrenoc.kernels.access import (
    Access,
    BlockedBufferAccess,
    BytesAccess,
    PlainAccess,
    TextureAccess,
)
from adrenoc.kernels.function_digits import coarsen, keep_digits_near_one
from adrenoc.kernels.statements import Statements, sequence
from adrenoc.target.gpu import Limits

THREADS_WANTED = 64
"""Threads a work-group where the grid allows: one wave of every Adreno since the 6xx."""

Threads = tuple[int, int, int]
PickGroup = Callable[[Threads], Threads]
"""Threads in x, y, z -> threads a group."""


def pick_work_group(extents: Sequence[int], limits: Limits) -> tuple[int, int, int]:
    """Return threads a group in x, y, z: powers of two, at most what the target allows.
    Two-dimensional groups walk an image best: 16 x 16 before 8 x 8 before a row.  Where the target
    is wrong with all that would do, (1, 1, 1) is left."""
    wanted = min(THREADS_WANTED, power_of_two_within(limits.max_work_group_size))
    wide, high, deep = map(power_of_two_within, limits.group_sides)
    x = min(power_of_two(extents[0]), 16, wanted, wide)
    y = min(power_of_two(extents[1]), wanted // x, high)
    z = min(power_of_two(extents[2]), wanted // (x * y), deep)
    if (x, y, z) in limits.banned_work_groups and y > 1:
        y //= 2
    x = min(power_of_two(extents[0]), wanted // (y * z), wide)
    if limits.refuse_group((x, y, z)):
        return _largest(extents, wanted, limits)
    return (x, y, z)


def _largest(extents: Sequence[int], wanted: int, limits: Limits) -> tuple[int, int, int]:
    """Return the most threads in powers of two that are not banned, beside each other first."""
    sides = [[1 << i for i in range(power_of_two(e).bit_length())] for e in extents]
    allowed = (
        (x * y * z, x, y, z)
        for x in sides[0]
        for y in sides[1]
        for z in sides[2]
        if x * y * z <= wanted and not limits.refuse_group((x, y, z))
    )
    _, *group = max(allowed, default=(1, 1, 1, 1))
    return (group[0], group[1], group[2])


def power_of_two(extent: int) -> int:
    """Return the smallest power of two that covers `extent`."""
    return 1 << max(extent - 1, 0).bit_length()


def power_of_two_within(most: int) -> int:
    """Return the largest power of two that is not above `most`."""
    return 1 << (most.bit_length() - 1)


def groups_within(threads: Sequence[int], limits: Limits) -> list[int]:
    """Numbers of threads a group, each cut to what the target takes; powers of two, each once."""
    most = power_of_two_within(limits.max_work_group_size)
    return list(dict.fromkeys(min(number, most) for number in threads))


class KernelBuilder(Statements):
    """The statements of one kernel, with its parameters and threads."""

    def __init__(self, family: str, *, compute: str, limits: Limits, coarse: bool = True) -> None:
        super().__init__(compute=compute)
        self.family = family
        self.limits = limits
        self._coarse = coarse
        self._params: list[Expr] = []
        self._specs: list[OperandSpec] = []
        self._outputs = 0
        self._thread_axes: list[tuple[IterVar, int]] = []
        self._guard: Expr | None = None
        self.inside: Expr | None = None
        self.launch: Launch | None = None
        self.pick_group: PickGroup = lambda extents: pick_work_group(extents, limits)
        self.local: tuple[Expr, Expr, Expr] = (iconst(0), iconst(0), iconst(0))
        self.group: tuple[Expr, Expr, Expr] = (iconst(0), iconst(0), iconst(0))

    # Parameters

    def input(self, spec: OperandSpec) -> Access:
        """Declare the next tensor parameter that is read."""
        return self._declare(spec, f"in{len(self._params)}")

    def output(self, spec: OperandSpec) -> Access:
        """Declare the next tensor parameter that is written; those come last."""
        self._outputs += 1
        return self._declare(spec, "out" if self._outputs == 1 else f"out{self._outputs}")

    @property
    def scopes(self) -> tuple[str, ...]:
        """Return the memory scope of each parameter, in order."""
        return tuple(spec.scope for spec in self._specs)

    def _declare(self, spec: OperandSpec, name: str) -> Access:
        buffer = decl_buffer(spec.physical, spec.dtype, name=name, scope=spec.scope)
        self._params.append(buffer)
        self._specs.append(spec)
        return _ACCESS[spec.memory](spec, buffer, self)

    # Threads

    def threads(
        self,
        x: int,
        y: int = 1,
        z: int = 1,
        *,
        work_group: tuple[int, int, int] | None = None,
        cooperate: bool = False,
    ) -> tuple[Expr, Expr, Expr]:
        """Return one thread for each point of x * y * z; returns its coordinates.

        Threads beyond the extents exist where the work-group does not divide them, and do
        nothing; if threads `cooperate`, they run like the others, for a barrier needs them all,
        and the kernel leaves out their writes (`inside`).  `local` and `group` are the
        coordinates within the work-group and of it.
        """
        extents = (x, y, z)
        group = work_group or self.pick_group(extents)
        x_groups, y_groups, z_groups = (-(-e // g) for e, g in zip(extents, group, strict=True))
        self.launch = Launch(work_group=group, grid=(x_groups, y_groups, z_groups))
        coordinates, within, of_group = [], [], []
        for axis, extent, per_group in zip("xyz", extents, group, strict=True):
            block = IterVar(None, Var(f"group_{axis}", "int32"), 1, f"blockIdx.{axis}")
            thread = IterVar(None, Var(f"local_{axis}", "int32"), 1, f"threadIdx.{axis}")
            self._thread_axes += [(block, -(-extent // per_group)), (thread, per_group)]
            within.append(thread.var if per_group > 1 else iconst(0))
            of_group.append(block.var if extent > per_group else iconst(0))
            if extent == 1:
                coordinates.append(iconst(0))
                continue
            coordinate = self.let(block.var * iconst(per_group) + thread.var, f"g{axis}")
            coordinates.append(coordinate)
            if extent % per_group:
                inside = coordinate < iconst(extent)
                self._guard = inside if self._guard is None else self._guard & inside
        self.local = within[0], within[1], within[2]
        self.group = of_group[0], of_group[1], of_group[2]
        if cooperate:
            self.inside, self._guard = self._guard, None
        # The guard needs the coordinates, so these stay outside of it.
        self._prologue = self._blocks[-1]
        self._blocks = [[]]
        return coordinates[0], coordinates[1], coordinates[2]

    # Result

    @property
    def is_coarse(self) -> bool:
        """Return whether functions of the device's own precision will do: where all that the
        kernel writes is rounded to halves."""
        written = self._specs[-self._outputs :]
        return self._coarse and all(spec.dtype == "float16" for spec in written)

    def build(self, name: str) -> PrimFunc:
        """Finish the kernel: nothing can be emitted afterwards."""
        return self.refine(self.written(name))

    def written(self, name: str) -> PrimFunc:
        """Return the kernel as its rule wrote it, before `refine`."""
        body = sequence(self._blocks[0])
        if self._guard is not None:
            body = IfThenElse(self._guard, body, None)
        body = sequence([*self._prologue, body])
        for axis, extent in reversed(self._thread_axes):
            body = AttrStmt(axis, "thread_extent", iconst(extent), body)
        func = PrimFunc(self._params, body)
        return func.with_attr("global_symbol", name).with_attr("tirx.noalias", True)

    def refine(self, func: PrimFunc) -> PrimFunc:
        """Return a kernel that was written with the functions that it is to call."""
        body = keep_digits_near_one(func.body)
        return func.with_body(coarsen(body) if self.is_coarse else body)


_ACCESS: dict[Memory, Callable[[OperandSpec, Buffer, Statements], Access]] = {
    Memory.TEXTURE: TextureAccess,
    Memory.BLOCKED: BlockedBufferAccess,
    Memory.BYTES: BytesAccess,
    Memory.PLAIN: PlainAccess,
}
