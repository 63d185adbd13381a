"""Kind of memory -> the access that reads and writes it."""

from __future__ import annotations

from collections.abc import Callable

from adrenoc.base.tvmapi import Buffer
from adrenoc.ir.operand import Memory, OperandSpec
from adrenoc.kernels.access import Access, BlockedBufferAccess, PlainAccess, TextureAccess
from adrenoc.kernels.bytes_access import BytesAccess
from adrenoc.kernels.statements import Statements

_ACCESS: dict[Memory, Callable[[OperandSpec, Buffer, Statements], Access]] = {
    Memory.TEXTURE: TextureAccess,
    Memory.BLOCKED: BlockedBufferAccess,
    Memory.BYTES: BytesAccess,
    Memory.PLAIN: PlainAccess,
}


def access_to(spec: OperandSpec, buffer: Buffer, statements: Statements) -> Access:
    """Return the access for this kind of memory."""
    return _ACCESS[spec.memory](spec, buffer, statements)
