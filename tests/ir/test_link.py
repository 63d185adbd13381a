"""Linking: what comes out is what Android's loader wants, and the same each time."""

import platform
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import tirx as T  # noqa: N812

from adrenoc import native
from adrenoc.base.errors import DependencyError, DiskFullError, LinkError, ToolError
from adrenoc.base.host.proc import run_tool
from adrenoc.native.android.elf import check_extents, read_elf
from adrenoc.native.android.link import (
    ANDROID_PAGE_BYTES,
    Linker,
    Platform,
    check_library,
    compile_raise,
    find_linker,
    link_library,
    link_objects,
)
from adrenoc.native.android.runtime_toolchain import MIN_API
from tests.ndks import forget_ndks

ANDROID = "aarch64-linux-android"
_EXPORTED = frozenset({"__tvm_ffi__library_bin", "__TVMFFIErrorSetRaisedFromCStrParts"})
HERE = f"{platform.machine()}-unknown-linux-gnu"


def _compile(triple: str, kind: str = "opencl", **llvm):
    """relu(x + w) for `kind`, with its host code for `triple`; `llvm` says how that is made."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 4, 8, 8), "float32"))
    w = relax.Var("w", relax.TensorType((1, 4, 8, 8), "float32"))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            y = builder.emit_output(relax.op.nn.relu(relax.op.add(x, w)))
        builder.emit_func_output(y)
    host = {"kind": "llvm", "mtriple": triple, **llvm}
    target = tvm.target.Target({"kind": kind} if kind != "llvm" else host, host=host)
    return relax.build(builder.get(), target)


@pytest.fixture(scope="module")
def android():
    return _compile(ANDROID)


@pytest.fixture(scope="module")
def linker() -> Linker:
    return find_linker(host=False)


def test_android_library_holds_what_the_loader_wants(android, linker, tmp_path):
    info = link_library(android, tmp_path / "model.so", triple=ANDROID, linker=linker)
    assert info.machine == "aarch64"
    assert info.needed == ()
    assert info.page_bytes == ANDROID_PAGE_BYTES
    facts = read_elf(tmp_path / "model.so")
    assert {"__tvm_ffi__library_bin", "__tvm_ffi__library_ctx"} <= facts.exported
    assert not facts.text_relocations
    assert not facts.executable_stack
    assert not facts.undefined
    assert "__TVMFFIErrorSetRaisedFromCStrParts" in facts.exported


def test_a_library_tells_the_runtime_nothing_as_it_is_loaded(linker, tmp_path):
    """A process has one place for a library's modules by name: a second one warned on stderr."""
    library = _compile(ANDROID, **{"opt-level": 0})
    link_library(library, tmp_path / "model.so", triple=ANDROID, linker=linker)
    assert "TVMFFIEnvModRegisterSystemLibSymbol" not in read_elf(tmp_path / "model.so").undefined


def test_a_cut_library_is_known_by_its_headers(android, linker, tmp_path):
    """Loading it would end the process."""
    path = tmp_path / "model.so"
    link_library(android, path, triple=ANDROID, linker=linker)
    check_extents(path)
    whole = path.read_bytes()
    for kept in (0, 63, 64, 200, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:kept])
        with pytest.raises(LinkError, match=r"not an ELF file|cut off: it has"):
            check_extents(path)


@pytest.mark.parametrize(
    ("triple", "machine"),
    [
        ("aarch64-linux-android", "aarch64"),
        ("armv7a-linux-androideabi", "arm"),
        ("x86_64-linux-android", "x86_64"),
    ],
)
def test_each_abi_of_android(triple, machine, linker, tmp_path):
    info = link_library(_compile(triple), tmp_path / "model.so", triple=triple, linker=linker)
    assert (info.machine, info.page_bytes) == (machine, ANDROID_PAGE_BYTES)
    assert set(info.needed) <= {"libc.so", "libm.so"}
    facts = read_elf(tmp_path / "model.so")
    assert facts.is_stripped
    assert facts.android_api == 0  # it imports nothing that has a version


def _library(folder: Path, linker: Linker, source: str, *flags: str) -> Path:
    """A library for arm64 of one assembler file."""
    (folder / "made.s").write_text(source)
    made = folder / "made.o"
    command = [sys.executable, "-m", "ziglang", "clang", "-target", "aarch64-linux-android"]
    run_tool([*command, "-c", str(folder / "made.s"), "-o", str(made)], deed="assemble")
    output = folder / "libmade.so"
    lld = [*linker.command, "-m", "aarch64linux", "-shared", *flags]
    run_tool([*lld, str(made), "-o", str(output)], deed="link")
    return output


def _note(api: int) -> str:
    """What the NDK's startup code puts into each library."""
    return (
        '.section .note.android.ident,"a",%note\n'
        f'.long 8, 132, 1\n.asciz "Android"\n.long {api}\n.zero 128\n'
    )


@pytest.mark.parametrize("api", [24, 34])
def test_the_api_level_in_the_ndks_note(api, linker, tmp_path):
    pytest.importorskip("ziglang")
    facts = read_elf(_library(tmp_path, linker, _note(api)))
    assert facts.android_api == api
    library = replace(
        facts, soname="model.so", needed=(), page_bytes=ANDROID_PAGE_BYTES, exported=_EXPORTED
    )
    if api <= MIN_API:
        check_library(library, platform=Platform.from_triple(ANDROID), where="model.so")
        return
    with pytest.raises(LinkError, match=r"asks for Android 34 .API level., expected 24 at most"):
        check_library(library, platform=Platform.from_triple(ANDROID), where="model.so")


def test_the_api_level_of_imported_symbols(linker, tmp_path):
    pytest.importorskip("ziglang")
    # What the NDK's libc.so is to a linker: names, each with the release that brought it.
    versions = tmp_path / "libc.map"
    versions.write_text("LIBC { global: open; };\nLIBC_Q { global: newer; } LIBC;\n")
    (tmp_path / "libc").mkdir()
    functions = (
        ".globl open, newer\n.type open,%function\n.type newer,%function\nopen:\nnewer: ret\n"
    )
    libc = _library(
        tmp_path / "libc", linker, functions, f"--version-script={versions}", "-soname", "libc.so"
    )
    for number, (symbol, api) in enumerate((("open", 21), ("newer", 29))):
        folder = tmp_path / str(number)
        folder.mkdir()
        facts = read_elf(_library(folder, linker, f".globl f\nf: bl {symbol}\n", str(libc)))
        assert facts.needed == ("libc.so",)
        assert facts.android_api == api


def test_equal_objects_give_equal_bytes(android, linker, tmp_path):
    written = []
    for name, compiled in (("a", android), ("b", android), ("c", _compile(ANDROID))):
        (tmp_path / name).mkdir()
        link_library(compiled, tmp_path / name / "model.so", triple=ANDROID, linker=linker)
        written.append((tmp_path / name / "model.so").read_bytes())
    assert written[0] == written[1] == written[2]
    assert str(tmp_path).encode() not in written[0]


@pytest.mark.parametrize("origin", ["lld", "cc"])
def test_host_library_loads_here(origin, linker, tmp_path):
    compiler = shutil.which("cc")
    if origin == "cc":
        if compiler is None:
            pytest.skip("no C compiler on the PATH")
        linker = Linker(command=(compiler,), origin="cc", version="the system's")
    info = link_library(_compile(HERE, "llvm"), tmp_path / "model.so", triple=HERE, linker=linker)
    assert info.machine == platform.machine()
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(tmp_path / "model.so")), tvm.cpu())
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal((1, 4, 8, 8)).astype("float32") for _ in range(2))
    result = machine["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(w))
    np.testing.assert_allclose(result.numpy(), np.maximum(x + w, 0))


def test_what_is_wrong_with_an_argument_is_told_to_who_opened_the_library(linker, tmp_path):
    @T.prim_func
    def kernel(a: T.handle):
        A = T.match_buffer(a, (4,), "float32")
        for i in range(4):
            A[i] = A[i] + T.float32(1)

    native.load()
    output = _link_kernel(kernel, linker, tmp_path, HERE)
    library = tvm.get_global_func("adrenoc.load_library")(str(output))
    with pytest.raises(ValueError, match="4"):
        library["kernel"](tvm.runtime.tensor(np.ones(3, "float32")))


def test_routines_of_libc_and_libm_name_their_library(linker, tmp_path):
    @T.prim_func
    def kernel(a: T.handle):
        A = T.match_buffer(a, (4,), "float32")
        for i in range(4):
            A[i] = T.call_extern("float32", "expf", A[i])
        T.evaluate(T.call_extern("handle", "memset", A.data, 0, 16))

    facts = read_elf(_link_kernel(kernel, linker, tmp_path))
    assert facts.needed == ("libc.so", "libm.so")
    whole = replace(facts, exported=facts.exported | _EXPORTED)
    check_library(whole, platform=Platform.from_triple(ANDROID), where="model.so")


def test_a_symbol_that_nobody_has_is_refused(linker, tmp_path):
    @T.prim_func
    def kernel(a: T.handle):
        A = T.match_buffer(a, (4,), "float32")
        for i in range(4):
            A[i] = T.call_extern("float32", "expensive", A[i])

    facts = read_elf(_link_kernel(kernel, linker, tmp_path))
    with pytest.raises(LinkError, match="needs expensive, which no library of the device"):
        check_library(facts, platform=Platform.from_triple(ANDROID), where="model.so")


def _link_kernel(kernel, linker: Linker, folder: Path, triple: str = ANDROID) -> Path:
    host = tvm.target.Target({"kind": "llvm", "mtriple": triple})
    made = folder / "kernel.o"
    tvm.tirx.build(kernel, target=host).write_to_file(str(made))
    output = folder / "model.so"
    raising = compile_raise(folder, triple)
    link_objects([made, raising], output, platform=Platform.from_triple(triple), linker=linker)
    return output


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"machine": "x86_64"}, "is for x86_64, expected aarch64"),
        ({"soname": "other.so"}, "is named `other.so`"),
        ({"needed": ("libc.so", "libc++_shared.so")}, r"needs libc\+\+_shared.so"),
        ({"page_bytes": 4096}, "aligned to 4096 bytes, expected 16384"),
        ({"text_relocations": True}, "has text relocations"),
        ({"executable_stack": True}, "asks for an executable stack"),
        ({"exported": frozenset()}, "does not export `__tvm_ffi__library_bin`"),
    ],
)
def test_each_wrong_fact_is_refused(android, linker, tmp_path, change, said):
    link_library(android, tmp_path / "model.so", triple=ANDROID, linker=linker)
    facts = replace(read_elf(tmp_path / "model.so"), **change)
    with pytest.raises(LinkError, match=said):
        check_library(facts, platform=Platform.from_triple(ANDROID), where="model.so")


def test_a_failing_linker_tells_how_to_run_it_again(android, tmp_path):
    broken = tmp_path / "ld.lld"
    broken.write_text("#!/bin/sh\necho 'ld.lld: error: out of luck' >&2\nexit 7\n")
    broken.chmod(0o755)
    linker = Linker(command=(str(broken),), origin="path", version="broken")
    with pytest.raises(ToolError, match=r"exited with 7:\nld\.lld: error: out of luck") as caught:
        link_library(android, tmp_path / "model.so", triple=ANDROID, linker=linker)
    assert str(broken) in caught.value.hint


def test_a_full_folder_for_temporary_files_is_named(android, linker, tmp_path, monkeypatch):
    monkeypatch.setattr("adrenoc.native.android.link.SCRATCH_BYTES", 1 << 60)
    with pytest.raises(DiskFullError, match="the folder for temporary files"):
        link_library(android, tmp_path / "model.so", triple=ANDROID, linker=linker)


def test_what_is_no_elf_is_named(tmp_path):
    (tmp_path / "text.o").write_text("I am no object file")
    with pytest.raises(LinkError, match=r"text\.o is not an ELF file"):
        read_elf(tmp_path / "text.o")


def test_without_any_linker_the_fix_is_named(tmp_path, monkeypatch):
    forget_ndks(monkeypatch, tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DependencyError) as caught:
        find_linker(host=False)
    assert "[link]'" in caught.value.hint
