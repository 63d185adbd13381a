"""What the code that launches a kernel checks of its arguments.

TVM has each launcher check all there is to know of each tensor: type, rank, dtype, shape, strides,
device.  Between kernels the tensors are the virtual machine's own, made with the shapes that the
same module says, and `main` checks rank, dtype and shape of what it is given.  So a launcher that
takes no input of the model keeps two checks of a tensor: that it is on the device and begins where
its memory does.  Seven parts of eight of a library's code were such checks.

Before -> after:
    assert ndim == 4; assert shape[0] == 1; ...; assert device_type == 4; launch(...)
    assert device_type == 4; launch(...)
"""

from __future__ import annotations

from typing import Any

from tvm_ffi.structural import structural_map

from adrenoc.base.tvmapi import Evaluate, tirx

TAKES_INPUT = "adrenoc.takes_input"
"""The attribute of a kernel that somebody outside of the module hands a tensor to."""

_KEPT = (".device_type", ".byte_offset")
"""How the messages of checks name what `main` does not look at."""
_HOST_FUNCTION = 1
"""TVM's calling convention of a function that its runtime calls."""


def drop_known_checks() -> Any:
    """TIR pass: launchers of kernels that take no input check what nothing else has checked."""

    nothing = Evaluate(tirx.const(0, "int32"))

    def drop(check: Any) -> Any:
        parts = check.message_parts
        # "Mismatched ", "in0", ".device_type on argument #", or "Invalid ", "in0.byte_offset".
        told = "".join(str(parts[place].value) for place in range(1, min(3, len(parts))))
        return check if any(word in told for word in _KEPT) else nothing

    @tirx.transform.prim_func_pass(opt_level=0)
    def drop_known(func: Any, _module: Any, _context: Any) -> Any:
        attrs = func.attrs
        if attrs.get("calling_conv") != _HOST_FUNCTION or attrs.get(TAKES_INPUT):
            return func
        body = structural_map(func.body, (tirx.AssertStmt, drop))
        return tirx.PrimFunc(func.params, body, func.ret_type, attrs)

    return drop_known
