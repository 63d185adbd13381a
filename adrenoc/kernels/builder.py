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

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tvm_ffi.structural import StructuralKey

from adrenoc.kernels.access import Access
from adrenoc.kernels.memories import access_to
from adrenoc.layout import LANES
from adrenoc.opencl_source import ROLLED
from adrenoc.operand import OperandSpec
from adrenoc.target import Limits
from adrenoc.tvmapi import (
    AllocBuffer,
    AttrStmt,
    Bind,
    BufferLoad,
    BufferStore,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IterVar,
    PrimFunc,
    SeqStmt,
    Var,
    barrier,
    bits_of,
    decl_buffer,
    dtype_of,
    iconst,
    kept,
    share_words,
    splat,
    tirx,
    vector_dtype,
)

THREADS_WANTED = 64
"""Threads a work-group where the grid allows: one wave of every Adreno since the 6xx."""


Threads = tuple[int, int, int]
PickGroup = Callable[[Threads], Threads]
"""Threads in x, y, z -> threads a group, where a kernel does not say itself."""


@dataclass(frozen=True)
class Launch:
    """How a kernel is launched: threads a group, and groups, in x, y, z."""

    work_group: tuple[int, int, int]
    grid: tuple[int, int, int]


class Registers:
    """A small array of vectors; every index is a constant, so it lives in registers."""

    def __init__(self, builder: KernelBuilder, count: int, dtype: str) -> None:
        self._builder = builder
        self._buffer = decl_buffer(
            (count,), vector_dtype(dtype), name=builder.fresh("acc"), scope="local"
        )
        self._count = count
        self._dtype = dtype
        builder.emit(AllocBuffer(self._buffer))

    def fill(self, value: float) -> None:
        """Set every vector to a constant."""
        for i in range(self._count):
            self[i] = splat(tirx.const(value, self._dtype))

    def __getitem__(self, index: int) -> Expr:
        return BufferLoad(self._buffer, [iconst(index)])

    def __setitem__(self, index: int, value: Expr) -> None:
        self._builder.emit(BufferStore(self._buffer, value, [iconst(index)]))


class SharedArray:
    """Vectors in local memory, which the threads of a work-group share."""

    def __init__(self, builder: KernelBuilder, count: int, dtype: str) -> None:
        self._builder = builder
        self._buffer = decl_buffer(
            (count,), vector_dtype(dtype), name=builder.fresh("shared"), scope="shared"
        )
        builder.emit(AllocBuffer(self._buffer))

    def __getitem__(self, index: Expr) -> Expr:
        return BufferLoad(self._buffer, [index])

    def __setitem__(self, index: Expr, value: Expr) -> None:
        self._builder.emit(BufferStore(self._buffer, value, [index]))

    def put_words(self, index: Expr, words: Expr) -> None:
        """Store four 32-bit words, of an array of halves two vectors, as number `index` of such.

        Halves that are taken out of words and put back cost two instructions each.
        """
        self._builder.emit(share_words(self._buffer, index, words))


class KernelBuilder:
    """Collects the statements of one kernel; `compute` is the dtype of its arithmetic."""

    def __init__(self, family: str, *, compute: str, limits: Limits) -> None:
        self.family = family
        self.compute = compute
        self.limits = limits
        self._params: list[Expr] = []
        self._specs: list[OperandSpec] = []
        self._blocks: list[list[Expr]] = [[]]
        self._thread_axes: list[tuple[IterVar, int]] = []
        self._guard: Expr | None = None
        self.inside: Expr | None = None
        self._names: dict[str, int] = {}
        self._named: dict[int, tuple[list[Expr] | None, dict[StructuralKey, Expr]]] = {}
        """What `share` named, by the identity of the block, which is held so that it stays one."""
        self.launch: Launch | None = None
        self.pick_group: PickGroup = lambda extents: pick_work_group(extents, limits)
        self.local: tuple[Expr, Expr, Expr] = (iconst(0), iconst(0), iconst(0))
        self.group: tuple[Expr, Expr, Expr] = (iconst(0), iconst(0), iconst(0))
        self.shared_bytes = 0

    # Parameters

    def input(self, spec: OperandSpec) -> Access:
        """Declare the next tensor parameter that is read."""
        return self._declare(spec, f"in{len(self._params)}")

    def output(self, spec: OperandSpec) -> Access:
        """Declare the tensor parameter that is written: the last one."""
        return self._declare(spec, "out")

    @property
    def scopes(self) -> tuple[str, ...]:
        """The memory scope of each parameter, in order."""
        return tuple(spec.scope for spec in self._specs)

    def _declare(self, spec: OperandSpec, name: str) -> Access:
        buffer = decl_buffer(spec.physical, spec.dtype, name=name, scope=spec.scope)
        self._params.append(buffer)
        self._specs.append(spec)
        return access_to(spec, buffer, self)

    # Statements

    def fresh(self, hint: str) -> str:
        """A name that this kernel has not used yet."""
        number = self._names.get(hint, 0)
        self._names[hint] = number + 1
        return f"{hint}{number}"

    def emit(self, stmt: Expr) -> None:
        """Append a statement to the innermost block."""
        self._blocks[-1].append(stmt)

    def let(self, value: Expr, hint: str = "v") -> Expr:
        """Bind a value to a name, so that it is computed once."""
        if isinstance(value, Var):
            return value
        var = Var(self.fresh(hint), dtype_of(value))
        self.emit(Bind(var, value))
        return var

    def let_once(self, value: Expr, hint: str = "v") -> Expr:
        """As `let`; what the innermost block has bound so already gets the name that it has.

        For values that never change: reads of inputs.
        """
        block = self._blocks[-1]
        known, names = self._named.get(id(block), (None, {}))
        if known is not block:
            names = {}
            self._named[id(block)] = (block, names)
        key = StructuralKey(value)
        if key not in names:
            names[key] = self.let(value, hint)
        return names[key]

    def share(self, value: Expr, hint: str = "v") -> Expr:
        """As `let_once`, with a name that is kept.

        TVM's simplifier writes arithmetic that `let` names into each of its uses; what stands in
        many indices, and these in others, would grow without end.
        """
        return value if isinstance(value, Var) else self.let_once(kept(value), hint)

    def registers(self, count: int, *, dtype: str | None = None) -> Registers:
        """Allocate `count` vectors of four."""
        return Registers(self, count, dtype or self.compute)

    def shared(self, count: int, *, dtype: str | None = None) -> SharedArray:
        """Allocate `count` vectors of four in local memory."""
        dtype = dtype or self.compute
        self.shared_bytes += count * LANES * bits_of(dtype) // 8
        return SharedArray(self, count, dtype)

    def barrier(self) -> None:
        """Wait for all threads of the work-group, and for what they wrote to local memory."""
        self.emit(barrier())

    @contextmanager
    def computing(self, dtype: str) -> Iterator[None]:
        """Compute in another dtype for a while: the epilogue of a kernel of half products."""
        before, self.compute = self.compute, dtype
        yield
        self.compute = before

    @contextmanager
    def loop(self, extent: int, hint: str = "i", *, rolled: bool = False) -> Iterator[Expr]:
        """A serial loop; a loop of one iteration leaves no trace.

        Compilers are asked to keep a rolled one as it is (`opencl_source`).
        """
        if extent == 1:
            yield iconst(0)
            return
        var = Var(self.fresh(f"{ROLLED}{hint}" if rolled else hint), "int32")
        self._blocks.append([])
        yield var
        body = self._blocks.pop()
        self.emit(For(var, iconst(0), iconst(extent), ForKind.SERIAL, _sequence(body)))

    @contextmanager
    def when(self, condition: Expr | None) -> Iterator[None]:
        """Run the statements only where `condition` holds; None means always."""
        if condition is None:
            yield
            return
        self._blocks.append([])
        yield
        body = self._blocks.pop()
        self.emit(IfThenElse(condition, _sequence(body), None))

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
        """One thread for each point of x * y * z; returns its coordinates.

        Threads beyond the extents exist where the work-group does not divide them, and do
        nothing; if threads `cooperate`, they run like the others, for a barrier needs them all,
        and the kernel leaves out their writes (`inside`).  `local` and `group` are the
        coordinates within the work-group and of it.
        """
        extents = (x, y, z)
        group = work_group or self.pick_group(extents)
        self.launch = Launch(
            work_group=group,
            grid=tuple(-(-e // g) for e, g in zip(extents, group, strict=True)),  # type: ignore[arg-type]
        )
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
        self.local, self.group = (within[0], within[1], within[2]), tuple(of_group)
        if cooperate:
            self.inside, self._guard = self._guard, None
        # The guard needs the coordinates, so these stay outside of it.
        self._prologue = self._blocks[-1]
        self._blocks = [[]]
        return coordinates[0], coordinates[1], coordinates[2]

    # Result

    def build(self, name: str) -> PrimFunc:
        """The finished kernel."""
        body = _sequence(self._blocks[0])
        if self._guard is not None:
            body = IfThenElse(self._guard, body, None)
        body = _sequence([*self._prologue, body])
        for axis, extent in reversed(self._thread_axes):
            body = AttrStmt(axis, "thread_extent", iconst(extent), body)
        func = PrimFunc(self._params, body)
        return func.with_attr("global_symbol", name).with_attr("tirx.noalias", True)


def pick_work_group(extents: Sequence[int], limits: Limits) -> tuple[int, int, int]:
    """Threads a group in x, y, z: powers of two, at most what the target allows.

    Two-dimensional groups walk an image best (16 x 16 before 8 x 8 before a row, ADRENO.md
    2.8); 8 x 8 and 4 x 16 are avoided because they gave wrong values on an Adreno 840.
    """
    wanted = min(THREADS_WANTED, limits.max_work_group_size)
    x = min(power_of_two(extents[0]), 16, wanted)
    y = min(power_of_two(extents[1]), wanted // x)
    z = min(power_of_two(extents[2]), wanted // (x * y))
    if (x, y) in ((8, 8), (4, 16)):
        y //= 2
    x = min(power_of_two(extents[0]), wanted // (y * z))
    return (x, y, z)


def power_of_two(extent: int) -> int:
    """The smallest power of two that covers `extent`."""
    return 1 << max(extent - 1, 0).bit_length()


def _sequence(statements: Sequence[Expr]) -> Expr:
    return statements[0] if len(statements) == 1 else SeqStmt(list(statements))
