"""Sections of a time trace for what TVM does: its passes, and LLVM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from adrenoc.base.host.time_trace import is_recording, section
from adrenoc.base.tvmapi import tvm

_LLVM = "target.build.llvm"


@contextmanager
def traced_passes() -> Iterator[None]:
    """While this is open, TVM's passes and its code generator for the host are sections, where
    somebody records."""
    if not is_recording():
        yield
        return
    import tvm_ffi

    generate = tvm_ffi.get_global_func(_LLVM)

    def trace_and_generate(module: Any, target: Any) -> Any:
        with section("LLVM", "build"):
            return generate(module, target)

    now = tvm.transform.PassContext.current()
    tvm_ffi.register_global_func(_LLVM, trace_and_generate, override=True)
    try:
        with tvm.transform.PassContext(
            opt_level=now.opt_level, config=dict(now.config), instruments=[_make_instrument()]
        ):
            yield
    finally:
        tvm_ffi.register_global_func(_LLVM, generate, override=True)


def _make_instrument() -> Any:
    from tvm.ir.instrument import pass_instrument

    class Passes:
        """Opens a section before each pass of TVM and closes it after."""

        def __init__(self) -> None:
            self.opened: list[ExitStack] = []

        def run_before_pass(self, _module: Any, info: Any) -> None:
            """TVM calls it."""
            stack = ExitStack()
            stack.enter_context(section(str(info.name), "tvm"))
            self.opened.append(stack)

        def run_after_pass(self, _module: Any, _info: Any) -> None:
            """TVM calls it."""
            self.opened.pop().close()

    return pass_instrument(Passes)()
