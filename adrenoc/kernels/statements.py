"""The statements of one kernel: names, registers, loops, conditions."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce

from tvm_ffi.structural import StructuralKey

from adrenoc.base.tvmapi import (
    AllocBuffer,
    Bind,
    BufferLoad,
    BufferStore,
    Expr,
    For,
    ForKind,
    IfThenElse,
    SeqStmt,
    Stmt,
    Var,
    always,
    barrier,
    bits_of,
    decl_buffer,
    dtype_of,
    iconst,
    keep_in_place,
    splat,
    tirx,
    vector_dtype,
)
from adrenoc.ir.layout import LANES
from adrenoc.kernels.codegen.opencl_source import ROLLED


class Statements:
    """Collects statements, the innermost block last; `compute` is the dtype of the arithmetic."""

    def __init__(self, *, compute: str) -> None:
        self.compute = compute
        self.shared_bytes = 0
        self._blocks: list[list[Stmt]] = [[]]
        self._names: dict[str, int] = {}
        self._named: dict[int, tuple[list[Stmt] | None, dict[StructuralKey, Expr]]] = {}
        """What `share` named, by the identity of the block, which is held so that it stays one."""

    def fresh(self, hint: str) -> str:
        """Return a name that this kernel has not used yet."""
        number = self._names.get(hint, 0)
        self._names[hint] = number + 1
        return f"{hint}{number}"

    def emit(self, stmt: Stmt) -> None:
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
        """Bind a value as `let` does, or give the name that the innermost block has for it.  For
        values that never change: reads of inputs."""
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
        """Bind a value as `let_once` does, to a name that TVM's simplifier leaves in place.  TVM's
        simplifier writes arithmetic that `let` names into each of its uses; what stands in many
        indices, and these in others, would grow without end."""
        return value if isinstance(value, Var) else self.let_once(keep_in_place(value), hint)

    def registers(
        self, count: int, *, dtype: str | None = None, fill: float | None = None
    ) -> Registers:
        """Allocate `count` vectors of four, all of which begin as `fill`."""
        allocated = Registers(self, count, dtype or self.compute)
        if fill is not None:
            allocated.fill(fill)
        return allocated

    def allocate_shared(self, count: int, *, dtype: str | None = None) -> SharedArray:
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
    def loop(self, extent: int | Expr, hint: str = "i", *, rolled: bool = False) -> Iterator[Expr]:
        """A serial loop; a loop of one iteration leaves no trace.  Compilers are asked to keep a
        rolled one as it is (`opencl_source`)."""
        if isinstance(extent, int):
            if extent == 1:
                yield iconst(0)
                return
            extent = iconst(extent)
        var = Var(self.fresh(f"{ROLLED}{hint}" if rolled else hint), "int32")
        self._blocks.append([])
        yield var
        body = self._blocks.pop()
        self.emit(For(var, iconst(0), extent, ForKind.SERIAL, sequence(body)))

    @contextmanager
    def apart(self, part: int) -> Iterator[None]:
        """Run the statements, which compilers cannot mix with those of other parts.  Where many
        texels are read, and each is needed for a moment only, compilers ask for all of them first,
        in registers that other threads could have.  The condition always holds, which they do not
        know (`prelude.cl`); each part has its own, so that none are merged."""
        with self.when(always(part)):
            yield

    @contextmanager
    def when(self, condition: Expr | None) -> Iterator[None]:
        """Run the statements only where `condition` holds; None means always."""
        if condition is None:
            yield
            return
        self._blocks.append([])
        yield
        body = self._blocks.pop()
        self.emit(IfThenElse(condition, sequence(body), None))


class Registers:
    """A small array of vectors; every index is a constant, so it lives in registers."""

    def __init__(self, statements: Statements, count: int, dtype: str) -> None:
        self._statements = statements
        self._buffer = decl_buffer(
            (count,), vector_dtype(dtype), name=statements.fresh("acc"), scope="local"
        )
        self.count = count
        self.dtype = dtype
        statements.emit(AllocBuffer(self._buffer))

    def fill(self, value: float) -> None:
        """Set every vector to a constant."""
        for i in range(self.count):
            self[i] = splat(tirx.const(value, self.dtype))

    def __getitem__(self, index: int) -> Expr:
        return BufferLoad(self._buffer, [iconst(index)])

    def __setitem__(self, index: int, value: Expr) -> None:
        self._statements.emit(BufferStore(self._buffer, value, [iconst(index)]))


class SharedArray:
    """Vectors in local memory, which the threads of a work-group share."""

    def __init__(self, statements: Statements, count: int, dtype: str) -> None:
        self._statements = statements
        self._buffer = decl_buffer(
            (count,), vector_dtype(dtype), name=statements.fresh("shared"), scope="shared"
        )
        statements.emit(AllocBuffer(self._buffer))

    def __getitem__(self, index: Expr) -> Expr:
        return BufferLoad(self._buffer, [index])

    def __setitem__(self, index: Expr, value: Expr) -> None:
        self._statements.emit(BufferStore(self._buffer, value, [index]))

    @property
    def pointer(self) -> Expr:
        """Return where it begins."""
        return self._buffer.data

    def put_words(self, index: Expr, words: Expr) -> None:
        """Store four 32-bit words, of an array of halves two vectors, as number `index` of such.
        Halves that are taken out of words and put back cost two instructions each."""
        share = tirx.call_extern("int32", "SHARE_UINT4", self._buffer.data, index, words)
        self._statements.emit(tirx.Evaluate(share))


def sequence(statements: Sequence[Stmt]) -> Stmt:
    """Statements one after another, as one."""
    return statements[0] if len(statements) == 1 else SeqStmt(list(statements))


def all_of(*conditions: Expr | None) -> Expr | None:
    """Return whether all of them hold; None means always."""
    asked = [one for one in conditions if one is not None]
    return reduce(operator.and_, asked) if asked else None
