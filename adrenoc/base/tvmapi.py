"""The TVM names that move between releases, and the few TIR forms that every kernel uses.

Kernels are built as TIR by hand rather than scheduled from a compute definition: a texture read
is a whole vector, an out-of-range read is a zero, and neither survives TVM's generic loop
transformations (see docs/explanation/kernels.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import tvm
from tvm import sym, tirx
from tvm.ir import Call, Op, PrimType, StringImm
from tvm.tirx import (
    AllocBuffer,
    AttrStmt,
    Bind,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    IterVar,
    PrimFunc,
    SeqStmt,
    Var,
    decl_buffer,
)

# fmt: off
__all__ = [
    "AllocBuffer", "AttrStmt", "Bind", "BufferLoad", "BufferStore", "Call", "Evaluate", "Expr",
    "For", "ForKind", "IfThenElse", "IterVar", "Op", "PrimFunc", "SeqStmt", "StringImm", "Var",
    "decl_buffer", "sym", "tirx", "tvm",
]
# fmt: on

if TYPE_CHECKING:
    # TVM has no stubs, so for a type checker its classes are anything at all.  These say what
    # kernels do with them: arithmetic gives expressions, and a statement or a buffer is neither.

    class Expr(Protocol):  # noqa: PLW1641 - compared, never hashed by what it says
        """A TIR expression: a number, or a vector of them, at a place in a kernel."""

        @property
        def ty(self) -> Any: ...  # noqa: D102 - TVM's own
        def same_as(self, other: object) -> bool: ...  # noqa: D102 - TVM's own
        def astype(self, dtype: str) -> Expr: ...  # noqa: D102 - TVM's own
        def __add__(self, other: Expr | float) -> Expr: ...
        def __radd__(self, other: Expr | float) -> Expr: ...
        def __sub__(self, other: Expr | float) -> Expr: ...
        def __rsub__(self, other: Expr | float) -> Expr: ...
        def __mul__(self, other: Expr | float) -> Expr: ...
        def __rmul__(self, other: Expr | float) -> Expr: ...
        def __truediv__(self, other: Expr | float) -> Expr: ...
        def __rtruediv__(self, other: Expr | float) -> Expr: ...
        def __neg__(self) -> Expr: ...
        def __eq__(self, other: object) -> Expr: ...  # type: ignore[override]
        def __ne__(self, other: object) -> Expr: ...  # type: ignore[override]
        def __lt__(self, other: Expr | float) -> Expr: ...
        def __le__(self, other: Expr | float) -> Expr: ...
        def __gt__(self, other: Expr | float) -> Expr: ...
        def __ge__(self, other: Expr | float) -> Expr: ...
        def __and__(self, other: Expr | int) -> Expr: ...
        def __or__(self, other: Expr | int) -> Expr: ...
        def __xor__(self, other: Expr | int) -> Expr: ...
        def __lshift__(self, other: Expr | int) -> Expr: ...
        def __rshift__(self, other: Expr | int) -> Expr: ...

    class Stmt(Protocol):
        """A TIR statement."""

        def same_as(self, other: object) -> bool: ...

    class Buffer(Protocol):
        """A TIR buffer: memory with a shape and a dtype."""

        @property
        def dtype(self) -> Any: ...
        @property
        def shape(self) -> Any: ...
        @property
        def data(self) -> Expr: ...
        @property
        def name(self) -> str: ...
        def scope(self) -> str: ...
        def same_as(self, other: object) -> bool: ...

else:
    Expr = Stmt = Buffer = Any

IF_THEN_ELSE = "prim.if_then_else"
"""The operator that evaluates one of two values."""

_LOADS = {
    ("float32", "float32"): ("LOAD_FLOAT4", "float32"),
    ("uint32", "float32"): ("LOAD_HALF4", "float32"),
    ("uint32", "float16"): ("LOAD_UINT4", "uint32"),
    ("uint32", "uint32"): ("LOAD_UINT4", "uint32"),
    ("int32", "int32"): ("LOAD_INT4", "int32"),
}
"""(dtype of the buffer, of the arithmetic) -> (macro of `prelude.cl`, dtype of its result)."""


def iconst(value: int) -> Expr:
    """Return an int32 constant."""
    return tirx.const(value, "int32")


def fconst(value: float, dtype: str) -> Expr:
    """Return a constant of this scalar dtype."""
    return tirx.const(value, dtype)


def dtype_of(expr: Expr) -> str:
    """Return the dtype of an expression as text, such as `float32x4`."""
    return str(expr.ty)


def lanes_of(expr: Expr) -> int:
    """Return the number of lanes of an expression."""
    dtype = dtype_of(expr)
    return int(dtype.rpartition("x")[2]) if "x" in dtype else 1


def bits_of(dtype: str) -> int:
    """Bits of one element of a scalar dtype as it lies in memory."""
    return 8 if dtype == "bool" else int("".join(c for c in dtype if c.isdigit()))


def bytes_of(dtype: str) -> int:
    """Bytes of one element of a scalar dtype as it lies in memory."""
    return bits_of(dtype) // 8


def const_int(expr: Expr) -> int | None:
    """Return the value of a constant integer expression, else None."""
    return int(expr.value) if isinstance(expr, tirx.IntImm) else None


def vector_dtype(dtype: str) -> str:
    """Return the dtype of one texel of this scalar dtype."""
    return f"{dtype}x4"


def call(op: str, args: Sequence[Expr], dtype: str) -> Expr:
    """Call the operator of this full name."""
    return Call(Op.get(op), list(args), ret_ty=PrimType(dtype))


def cast(value: Expr, dtype: str) -> Expr:
    """Convert a value; vectors stay vectors of as many lanes."""
    return value if dtype_of(value) == dtype else tirx.Cast(dtype, value)


def select(condition: Expr, then: Expr, otherwise: Expr) -> Expr:
    """Evaluate both, take one: for values that are cheap and safe to have."""
    return tirx.Select(condition, then, otherwise)


def floordiv(a: Expr, b: int) -> Expr:
    """Divide, rounding down."""
    return tirx.floordiv(a, iconst(b))


def floormod(a: Expr, b: int) -> Expr:
    """Return what `floordiv` leaves."""
    return tirx.floormod(a, iconst(b))


def minimum(a: Expr, b: Expr) -> Expr:
    """Return the smaller one, lane by lane."""
    return tirx.Min(a, b)


def maximum(a: Expr, b: Expr) -> Expr:
    """Return the larger one, lane by lane."""
    return tirx.Max(a, b)


def larger(a: Expr, b: Expr) -> Expr:
    """Return the larger one, lane by lane, and NaN where one is NaN.

    Functions of `prelude.cl`: `max` of OpenCL C may give the other one, and GPUs do.  Beside a
    constant that takes two instructions, else four."""
    return _by_lanes("LARGER", a, b) if _is_float(a) else maximum(a, b)


def smaller(a: Expr, b: Expr) -> Expr:
    """Return the smaller one, lane by lane, and NaN where one is NaN, as `larger`."""
    return _by_lanes("SMALLER", a, b) if _is_float(a) else minimum(a, b)


def quotient(a: Expr, b: Expr) -> Expr:
    """Divide floats and round as IEEE 754 says: OpenCL C's own division may be off by 2.5 units."""
    return _by_lanes("QUOTIENT", a, b)


def _is_float(value: Expr) -> bool:
    return dtype_of(value).startswith("float")


def _by_lanes(name: str, a: Expr, b: Expr) -> Expr:
    dtype = dtype_of(a)
    kind, lanes = "_HALF" if dtype.startswith("float16") else "", "4" if lanes_of(a) > 1 else ""
    return tirx.call_pure_extern(dtype, f"{name}{kind}{lanes}", a, b)


def clamp(value: Expr, low: int, high: int) -> Expr:
    """Return an integer kept within low..high."""
    return maximum(minimum(value, iconst(high)), iconst(low))


def simplify(expr: Expr) -> Expr:
    """Return the expression, simplified by TVM's arithmetic."""
    return sym.Analyzer().simplify(expr)


def store(buffer: Buffer, index: Sequence[Expr], value: Expr) -> Stmt:
    """Return the statement that stores into a buffer."""
    return BufferStore(buffer, value, list(index))


def if_then_else(condition: Expr, then: Expr, otherwise: Expr) -> Expr:
    """Evaluate `then` or `otherwise`, never both; the condition is a scalar."""
    return call(IF_THEN_ELSE, [condition, then, otherwise], dtype_of(then))


def barrier() -> Stmt:
    """Return a statement: wait for the threads of the work-group and for their local memory."""
    return tirx.Evaluate(call("tirx.tvm_storage_sync", [StringImm("shared")], "void"))


def splat(value: Expr) -> Expr:
    """Return a scalar in all four lanes."""
    return tirx.Broadcast(value, 4)


def lane(vector: Expr, index: int) -> Expr:
    """Return one lane of a vector of four."""
    return tirx.Shuffle([vector], [iconst(index)])


_OPENCL_TYPE = {
    "float32": "float",
    "float16": "half",
    "int32": "int",
    "uint32": "uint",
    "bool": "int",
}


def construct(scalars: Sequence[Expr]) -> Expr:
    """Return a vector of four out of four scalars.

    TVM prints a Shuffle of scalars as `float4(a, b, c, d)`, which is CUDA; OpenCL wants the type in
    parentheses, and that is what a call to an external function of this name prints."""
    dtype = dtype_of(scalars[0])
    name = f"({_OPENCL_TYPE[dtype]}4)"
    return tirx.call_pure_extern(vector_dtype(dtype), name, *scalars)


def keep_in_place(value: Expr) -> Expr:
    """Put the value behind a call that TVM knows nothing of: it is computed where it stands. The
    function of OpenCL C gives it as it is.  A value of another dtype comes back as it was."""
    dtype = dtype_of(value)
    name = _CONVERT.get(dtype)
    return value if name is None else tirx.call_extern(dtype, name, value)


_CONVERT = {"int32": "convert_int", "float32": "convert_float", "float16": "convert_half"}


OWN_FUNCTIONS = {
    "tirx.erf": "ERROR_FUNCTION",
    "tirx.tanh": "TANH_FUNCTION",
    "tirx.log1p": "LOG1P_FUNCTION",
    "expm1": "EXPM1_FUNCTION",
}
"""Functions that `prelude.cl` has, by what their names there begin with; TVM has no `expm1`."""


def own_function(operator: str, value: Expr, dtype: str, *, exact: bool = True) -> Expr:
    """Return one of these of a float or of four; if not `exact`, as far as halves can tell."""
    lanes = "4" if lanes_of(value) > 1 else ""
    wide = cast(value, f"float32x{lanes}" if lanes else "float32")
    name = f"{OWN_FUNCTIONS[operator]}{lanes}"
    found = tirx.call_pure_extern(dtype_of(wide), name, wide, iconst(int(exact)))
    return cast(found, dtype)


def always(number: int) -> Expr:
    """Return a condition that holds, untold to compilers; those of other numbers are others. A
    macro that `prelude.cl` defines."""
    return tirx.call_extern("bool", "ALWAYS", iconst(number))


def load_vector(buffer: Buffer, base: Expr, offset: int, compute: str) -> Expr:
    """Load vector `base + offset` of a flat 32-bit buffer.

    A float buffer gives four floats.  Of packed halves, half arithmetic gets 16 bytes as words and
    float arithmetic gets four converted floats.  TVM's own vector load promises no alignment, and
    compilers split it; these are macros that `prelude.cl` defines."""
    stored = str(buffer.dtype)
    name, dtype = _LOADS[stored, compute]
    # Bytes are read by many products: TVM would repeat a call that it knows to be pure in each.
    call_extern = tirx.call_extern if compute == "uint32" else tirx.call_pure_extern
    return call_extern(vector_dtype(dtype), name, buffer.data, base, offset)


def load_numbers(buffer: Buffer, base: Expr, offset: int, count: int, *, aligned: bool) -> Expr:
    """Number `base + offset` of a buffer of floats, whatever its shape, or four from there on.

    Four are loaded at once where they are `aligned`, at a multiple of 16 bytes, and perhaps else.
    Macros of `prelude.cl`."""
    if count == 1:
        return tirx.call_extern("float32", "LOAD_NUMBER", buffer.data, base, offset)
    name = "LOAD_ALIGNED" if aligned else "LOAD_NUMBERS"
    return tirx.call_extern("float32x4", name, buffer.data, base, offset)


def load_texel(buffer: Buffer, at: Expr) -> Expr:
    """Vector number `at` of a buffer of floats or of halves as four floats (`prelude.cl`)."""
    name = "LOAD_HALF4" if str(buffer.dtype) == "float16" else "LOAD_FLOAT4"
    return tirx.call_extern("float32x4", name, buffer.data, at, 0)


def round_numbers(value: Expr) -> Expr:
    """Four floats as the nearest whole ones, the even ones of two."""
    return tirx.call_pure_extern("float32x4", "rint", value)


def dot_products(weights: Expr, word: Expr, total: Expr) -> Expr:
    """Four sums and four products of four bytes each, in 32 bits.

    `weights` holds four words of signed bytes, `word` one of unsigned bytes; a macro that
    `prelude.cl` defines, by the device's dot product where it has one."""
    return tirx.call_pure_extern("int32x4", "DOT_PRODUCTS", weights, word, total)


def pack_bytes(numbers: Expr) -> Expr:
    """Four floats, whole numbers from 0 to 255, as the bytes of a word."""
    return tirx.call_pure_extern("uint32", "PACK_BYTES", numbers)


def texture_load(buffer: Buffer, layer: Expr, row: Expr, col: Expr, dtype: str) -> Expr:
    """Read one texel as four values of `dtype`; outside of the image all four are zero.

    `dtype` is what the kernel computes in, not how the image stores: the texture unit converts a
    half image to float for free, so mixed precision costs no instruction."""
    width_bits = iconst(4 * bits_of(dtype))
    texel = tirx.Ramp(iconst(0), iconst(1), 4)
    return call(
        "tirx.texture2d_load",
        [buffer.data, col, row, layer, width_bits, texel],
        vector_dtype(dtype),
    )


def texture_store(buffer: Buffer, layer: Expr, row: Expr, col: Expr, value: Expr) -> Stmt:
    """Write one texel, a vector of four, with the conversion that the image format asks for."""
    width_bits = iconst(4 * bits_of(dtype_of(value).partition("x")[0]))
    return Evaluate(
        call("tirx.texture2d_store", [buffer.data, col, row, layer, width_bits, value], "void")
    )
