"""Relax module of kernels -> executable: host code by LLVM, kernels as OpenCL C."""

import ctypes
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import tvm_ffi
from tvm import relax
from tvm.ir.instrument import pass_instrument
from tvm.tirx import Evaluate
from tvm_ffi.structural import structural_map, structural_walk

from adrenoc.base.decision import DecisionLog
from adrenoc.base.host.time_trace import is_recording
from adrenoc.base.host.time_trace import section as traced
from adrenoc.base.tvmapi import Call, Var, tirx, tvm
from adrenoc.kernels.codegen.opencl_sharing import (
    kernel_name,
    read_programs,
    section,
    share,
    standalone,
)
from adrenoc.kernels.codegen.opencl_source import (
    Grid,
    add_sections,
    compact,
    forbid_contraction,
    printing,
    put_layers_beside,
    tidy,
)
from adrenoc.target.target import Target

_LLVM = "target.build.llvm"


@contextmanager
def traced_passes() -> Iterator[None]:
    """While this is open, TVM's passes and LLVM are sections, where somebody records."""
    if not is_recording():
        yield
        return
    generate = tvm_ffi.get_global_func(_LLVM)

    def trace_and_generate(module: Any, target: Any) -> Any:
        with traced("LLVM", "build"):
            return generate(module, target)

    now = tvm.transform.PassContext.current()
    instrumented = tvm.transform.PassContext(
        opt_level=now.opt_level, config=dict(now.config), instruments=[_make_instrument()]
    )
    with _replacing(_LLVM, trace_and_generate), instrumented:
        yield


@contextmanager
def _replacing(name: str, function: Callable[..., Any]) -> Iterator[None]:
    """While this is open, TVM calls another function by this name."""
    before = tvm_ffi.get_global_func(name)
    tvm_ffi.register_global_func(name, function, override=True)
    try:
        yield
    finally:
        tvm_ffi.register_global_func(name, before, override=True)


def _make_instrument() -> Any:
    class Passes:
        """Opens a section before each pass of TVM and closes it after."""

        def __init__(self) -> None:
            self.opened: list[ExitStack] = []

        def run_before_pass(self, _module: Any, info: Any) -> None:
            """TVM calls it."""
            stack = ExitStack()
            stack.enter_context(traced(str(info.name), "tvm"))
            self.opened.append(stack)

        def run_after_pass(self, _module: Any, _info: Any) -> None:
            """TVM calls it."""
            self.opened.pop().close()

    return pass_instrument(Passes)()


PIPELINE = "adrenoc"
"""The name under which TVM finds our TIR pipeline."""

TAKES_INPUT = "adrenoc.takes_input"
"""The attribute of a kernel that somebody outside of the module hands a tensor to."""

_KEPT = (".device_type", ".byte_offset")
"""How the messages of checks name what `main` does not look at."""
_HOST_FUNCTION = 1
"""TVM's calling convention of a function that its runtime calls."""

_GENERATOR = "target.build.opencl"
"""TVM's code generator: TIR of kernels to a module of OpenCL C."""
_DEVICE_KERNEL = 2
"""TVM's calling convention of what the device runs."""
_LAUNCH = "tirx.call_ffi_kernel"
"""What launches it: its name, its arguments and the extents of its thread axes."""
_POINTER = "_ptr"
"""How TVM ends the name of a kernel's pointer to a tensor."""
_PRINTED_DIGITS = 6
"""After the point, as TVM's printer writes a float."""
_SPELLED: dict[str, tuple[Any, int, str]] = {
    "float32": (np.float32, 8, "f"),
    "float64": (np.float64, 16, ""),
}
"""dtype -> its type in NumPy, the digits after the point that tell all its values apart, suffix."""


def tvm_target(target: Target) -> Any:
    """Return the TVM target: OpenCL for the kernels, LLVM for the code that launches them."""
    limits = target.limits
    device = {
        "kind": "opencl",
        "keys": ["opencl", "gpu"],
        "max_num_threads": limits.max_work_group_size,
        "max_threads_per_block": limits.max_work_group_size,
        "max_shared_memory_per_block": limits.local_mem_bytes,
        "max_function_args": limits.max_kernel_args,
    }
    # Launchers check their arguments and pass them on: optimised they run no faster that anybody
    # could measure, and take LLVM a fifth of a compilation.  What computes on the CPU is apart.
    host = {"kind": "llvm", "mtriple": target.llvm_triple, "opt-level": 0}
    return tvm.target.Target(device, host=host)


def build_executable(
    module: Any,
    target: Target,
    log: DecisionLog | None = None,
    *,
    layer_grids: Mapping[str, Mapping[str, Grid]] | None = None,
) -> Any:
    """Compile a module made by `emit_relax` to an executable of TVM's virtual machine.  Kernels
    that differ in constants alone run one program; `log` is told which.  `layer_grids` has the
    parameters of kernels that are images without layers, as `put_layers_beside` takes them."""
    tirx.compilation_pipeline.register_tir_pipeline(PIPELINE, _tir_pipeline)
    relax_passes = tvm.transform.Sequential(
        [
            relax.transform.RemovePurityChecking(),
            relax.transform.KillAfterLastUse(),
            relax.transform.LowerRuntimeBuiltin(),
            relax.transform.ComputePrimValue(),
            relax.transform.VMShapeLower(),
            relax.transform.AttachGlobalSymbol(),
        ]
    )
    with sharing_programs(log, layer_grids or {}), traced_passes():
        return relax.build(
            module, tvm_target(target), relax_pipeline=relax_passes, tir_pipeline=PIPELINE
        )


@dataclass(frozen=True, kw_only=True)
class DeviceKernel:
    """One kernel as a module for the device alone: who launches it needs no code of ours.  That
    takes a third of the time of a kernel with its launcher, and nothing has to be linked."""

    module: Any
    name: str
    arguments: tuple[int, ...]
    """Which arguments of the function it takes, in its order."""
    extents: tuple[Any, ...]
    """Of its thread axes, as its launcher passes them behind the arguments."""

    @property
    def source(self) -> str:
        """Return its OpenCL C."""
        (source,) = module_sources(self.module).values()
        return source

    def launcher(self, device: Any) -> Callable[..., None]:
        """Return what launches it on a device, with the arguments of the function as tensors."""
        launch, choose_device = self.module[self.name], tvm.get_global_func("__tvm_set_device")
        extents = [int(extent) for extent in self.extents]

        def run(*tensors: Any) -> None:
            choose_device(device.dlpack_device_type(), device.index)
            memory = (ctypes.c_void_p(tensors[place].data_ptr()) for place in self.arguments)
            launch(*memory, *extents)

        return run


def device_kernel(func: Any, target: Target) -> DeviceKernel:
    """Compile one kernel for the device alone."""
    own = tvm_target(target)
    module = tvm.IRModule({func.attrs["global_symbol"]: func})
    split = _split()(tirx.transform.BindTarget(own)(module))
    parts = {
        part.attrs.get("calling_conv") == _DEVICE_KERNEL: v for v, part in split.functions.items()
    }
    symbol, kernel = parts[True], split[parts[True]]
    places = {param.name: place for place, param in enumerate(func.params)}
    extents: list[Any] = []

    def note(call: Any) -> None:
        if call.op.name == _LAUNCH:
            extents.extend(call.args[1 + len(kernel.params) :])

    structural_walk(split[parts[False]].body, (Call, note))
    with printing(_edit_source):
        finished = _finalize_device()(tvm.IRModule({symbol: kernel}))
        built = tvm.get_global_func(_GENERATOR)(finished, own)
    return DeviceKernel(
        module=built,
        name=symbol.name_hint,
        arguments=tuple(places[param.name.removesuffix(_POINTER)] for param in kernel.params),
        extents=tuple(extents),
    )


def kernel_sources(executable: Any) -> dict[str, str]:
    """Return the OpenCL C of each kernel, by kernel name without TVM's `_kernel` suffix."""
    return module_sources(executable.mod)


def module_sources(module: Any) -> dict[str, str]:
    """Return the text of each kernel of a runtime module, by name, as `kernel_sources` does."""
    return {
        name.removesuffix("_kernel"): standalone(name, shared)
        for text in module_texts(module)
        for name, shared in read_programs(text).items()
    }


def module_texts(module: Any) -> list[str]:
    """Return the OpenCL C of each set of kernels, as a driver's compiler is to get it."""
    sets = [part for part in _all_modules(module) if part.kind == "opencl"]
    return [part.inspect_source("cl") for part in sets]


def _all_modules(module: Any) -> list[Any]:
    found = [module]
    for imported in module.imports:
        found += _all_modules(imported)
    return found


def _edit_source(source: str, layer_grids: Mapping[str, Mapping[str, Grid]] | None = None) -> str:
    edited = forbid_contraction(compact(tidy(source)))
    grids = (layer_grids or {}).get(kernel_name(edited).removesuffix("_kernel"))
    return add_sections(put_layers_beside(edited, grids)) if grids else edited


@contextmanager
def sharing_programs(
    log: DecisionLog | None, layer_grids: Mapping[str, Mapping[str, Grid]]
) -> Iterator[None]:
    """While this is open, TVM's code generator makes sets of kernels that share programs.  It
    prints each kernel by itself, so it prints twice: as they are, and then, from empty bodies, what
    `share` made of them all."""
    generate = tvm_ffi.get_global_func(_GENERATOR)

    def edit(source: str) -> str:
        return _edit_source(source, layer_grids)

    def share_and_generate(module: Any, target: Any) -> Any:
        texts: dict[str, str] = {}
        with traced("print OpenCL C", "build"), printing(edit):
            for symbol, func in module.functions.items():
                # A module of its own: TVM declares all kernels of one above each, and looks
                # through their bodies for that.
                alone = generate(tvm.IRModule({symbol: func}, attrs=module.attrs), target)
                (text,) = module_texts(alone)
                texts |= {name: own.text for name, own in read_programs(text).items()}
        with traced("share programs", "build"):
            shared, decisions = share(texts)
        if log is not None:
            for decision in decisions:
                log.add(decision.subject, decision.taken, decision.reason)
        nothing = tirx.Evaluate(tirx.const(0, "int32"))
        empty = tvm.IRModule(
            {
                name: tirx.PrimFunc(func.params, nothing, func.ret_type, func.attrs)
                for name, func in module.functions.items()
            }
        )
        sections = {name: section(name, one) for name, one in shared.items()}
        with printing(lambda source: sections[kernel_name(source)]):
            return generate(empty, target)

    with _replacing(_GENERATOR, share_and_generate):
        yield


def _tir_pipeline() -> tuple[Any, Any, Any]:
    """Lowering of kernels that are already bound to threads, and TVM's own finalisation."""
    whole = tvm.transform.Sequential(
        [_split(), tirx.transform.MakePackedAPI(), drop_known_checks()]
    )
    return whole, tirx.compilation_pipeline.finalize_host_passes, _finalize_device


def drop_known_checks() -> Any:
    """TIR pass: launchers of kernels that take no input check what nothing else has checked.

    TVM has each launcher check all there is to know of each tensor: type, rank, dtype, shape,
    strides, device.  Between kernels the tensors are the virtual machine's own, made with the
    shapes that the same module says, and `main` checks rank, dtype and shape of what it is given.
    So a launcher that takes no input of the model keeps two checks of a tensor: that it is on the
    device and begins where its memory does.  Seven parts of eight of a library's code were such
    checks.

    Before -> after:
        assert ndim == 4; assert shape[0] == 1; ...; assert device_type == 4; launch(...)
        assert device_type == 4; launch(...)
    """

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


def _split() -> Any:
    """Lower kernels that are already bound to threads; what launches them is apart then."""
    passes = [
        tirx.transform.StmtSimplify(),
        tirx.transform.FlattenBuffer(),
        tirx.transform.NarrowDataType(32),
        tirx.transform.VectorizeLoop(True),
        tirx.transform.UnrollLoop(),
        tirx.transform.VerifyMemory(),
        tirx.transform.AnnotateEntryFunc(),
        tirx.transform.SplitHostDevice(),
    ]
    return tvm.transform.Sequential(passes)


def _finalize_device() -> Any:
    return tvm.transform.Sequential(
        [
            type_textures_by_arithmetic(),
            tirx.transform.StmtSimplify(),
            tirx.transform.LowerIntrin(),
            spell_floats(),
        ]
    )


def spell_floats() -> Any:
    """TIR pass: floats that TVM's printer would round are written with all their digits.

    It prints seven digits, and a float needs up to nine: a scale of a quantised model would be
    off by more than it is rounded by.  A call without arguments prints its name; `tidy` takes the
    parentheses away.

    Before -> after:
        x * 32.504904f                  x * call("3.25049038e+01f")
        x * 32.504904f, as printed      x * 3.25049038e+01f, not x * 3.250490e+01f
    """

    def spell_number(number: Any) -> Any:
        kind = _SPELLED.get(str(number.ty))
        if kind is None or not math.isfinite(number.value):
            return number
        dtype, digits, suffix = kind
        exact = dtype(number.value)
        if dtype(f"{number.value:.{_PRINTED_DIGITS}e}") == exact:
            return number
        return tirx.call_pure_extern(str(number.ty), f"{float(exact):.{digits}e}{suffix}")

    @tirx.transform.prim_func_pass(opt_level=0)
    def spell(func: Any, _module: Any, _context: Any) -> Any:
        body = structural_map(func.body, (tirx.FloatImm, spell_number))
        if body.same_as(func.body):
            return func
        return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)

    return spell


def type_textures_by_arithmetic() -> Any:
    """TIR pass: a texture parameter gets the dtype that the kernel reads or writes it with.

    A half image is read and written as float4 where a kernel computes in float.  TVM's OpenCL
    printer takes the width of a texel from the parameter instead, and would print a `half8`.

    Before -> after:
        out: handle("float16", "global.texture")    out: handle("float32", "global.texture")
        texture2d_store(out.data, ..., float32x4)   texture2d_store(out, ..., float32x4)
    """

    return tirx.transform.prim_func_pass(_retype_textures, opt_level=0)


def _retype_textures(func: Any, _module: Any, _context: Any) -> Any:
    textures = {
        param.name
        for param in func.params
        if isinstance(param.ty, tvm.ir.PointerType) and "texture" in str(param.ty.storage_scope)
    }
    if not textures:
        return func
    owners, dtypes = _find_texture_uses(func.body)
    pointers: dict[str, Any] = {}
    for param in func.params:
        if param.name in textures:
            element = tvm.ir.PrimType(dtypes.get(param.name, "float32"))
            kind = tvm.ir.PointerType(element, param.ty.storage_scope)
            pointers[param.name] = Var(param.name, kind)

    def point(call: Any) -> Any:
        if not _is_texture_call(call):
            return call
        args = list(call.args)
        args[0] = pointers[owners[_buffer_of(args[0]).name]]
        return Call(call.op, args, ret_ty=call.ty)

    def drop(declaration: Any) -> Any:
        used = isinstance(declaration.data, Var) and declaration.data.name in pointers
        return tirx.Evaluate(tirx.const(0, "int32")) if used else declaration

    body = structural_map(func.body, [(Call, point), (tirx.DeclBuffer, drop)])
    params = [pointers.get(param.name, param) for param in func.params]
    return tirx.PrimFunc(params, body, func.ret_type, func.attrs)


def _is_texture_call(call: Any) -> bool:
    """Return whether a call of TIR reads or writes a texture."""
    called = call.op
    return called in _texture_calls()


@cache
def _texture_calls() -> frozenset[Any]:
    """TVM's operators that read and write textures."""
    return frozenset(tvm.ir.Op.get(f"tirx.texture2d_{way}") for way in ("load", "store"))


def _buffer_of(pointer: Any) -> Any:
    """Return the buffer of `buffer_data(buffer)`, or the pointer itself."""
    return pointer.args[0] if isinstance(pointer, Call) else pointer


def _find_texture_uses(body: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Return for each buffer the parameter that it is declared over, and for each texture parameter
    the dtype of the elements that the kernel reads or writes (the last one that it does)."""
    owners: dict[str, str] = {}
    uses: list[tuple[str, str]] = []

    def note_owner(declaration: Any) -> None:
        if isinstance(declaration.data, Var):
            owners[declaration.buffer.name] = declaration.data.name

    def note_dtype(call: Any) -> None:
        if _is_texture_call(call):
            stored = call.op.name.endswith("store")
            dtype = str((call.args[5] if stored else call).ty).partition("x")[0]
            uses.append((_buffer_of(call.args[0]).name, dtype))

    structural_walk(body, [(Call, note_dtype), (tirx.DeclBuffer, note_owner)], order="post")
    dtypes = {owners.get(name, name): dtype for name, dtype in uses}
    return owners, dtypes
