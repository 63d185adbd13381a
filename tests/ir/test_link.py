"""NDKs and linking: which one is taken, and what comes out is what Android's loader wants."""

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
from adrenoc.base.errors import DependencyError, DiskFullError, LinkError, OptionError, ToolError
from adrenoc.base.host.proc import run_tool
from adrenoc.cli.main import main
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
from adrenoc.native.android.runtime_build import build_runtime
from adrenoc.native.android.runtime_toolchain import MIN_API, find_ndk, ndk_version, why_no_ndk
from tests.ndks import fake_ndk, forget_ndks


def test_the_order_in_which_ndks_are_looked_for(tmp_path, monkeypatch):
    forget_ndks(monkeypatch, tmp_path)
    expected = []
    fake_ndk(tmp_path / "Android/Sdk/ndk/27.0.1", "27.0.1")
    expected.append(("~/Android/Sdk", "27.0.1"))
    # In an SDK the newest counts, wherever the SDK was found.
    fake_ndk(tmp_path / "sdk/ndk/28.0.1", "28.0.1")
    for variable, value, revision in (
        ("ANDROID_HOME", "sdk", "28.0.1"),
        ("ANDROID_NDK", "a", "23.0.1"),
        ("ANDROID_NDK_ROOT", "b", "24.0.1"),
        ("ANDROID_NDK_HOME", "c", "25.0.1"),
    ):
        if variable != "ANDROID_HOME":
            fake_ndk(tmp_path / value, revision)
        found = find_ndk()
        assert (found.origin, found.revision) == expected[-1]
        monkeypatch.setenv(variable, str(tmp_path / value))
        expected.append((variable, revision))
    found = find_ndk()
    assert (found.origin, found.revision) == expected[-1]
    asked = find_ndk(fake_ndk(tmp_path / "d", "26.0.1"))
    assert (asked.origin, asked.revision) == ("--set ndk", "26.0.1")
    assert asked.toolchain_file == tmp_path / "d/build/cmake/android.toolchain.cmake"


def test_ndk_by_option_by_environment_and_in_the_sdk(tmp_path, monkeypatch):
    forget_ndks(monkeypatch, tmp_path)
    for revision in ("23.1.7779620", "27.0.12077973", "21.4.7075529", "9.0.1"):
        fake_ndk(tmp_path / "Android/Sdk/ndk" / revision, revision)
    assert find_linker(host=False).version == "NDK 27.0.12077973, LLD 18 of the NDK"
    named = fake_ndk(tmp_path / "named", "25.2.9519653")
    monkeypatch.setenv("ANDROID_NDK_HOME", str(named))
    assert find_linker(host=False).version.startswith("NDK 25.2.9519653")
    asked = fake_ndk(tmp_path / "asked", "26.1.10909125")
    assert find_linker(host=False, ndk=asked).version.startswith("NDK 26.1.10909125")


def test_an_ndk_that_does_not_serve_is_an_error(tmp_path):
    old = fake_ndk(tmp_path / "old", "21.4.7075529")
    assert ndk_version(old) == (21, 4, 7075529)
    with pytest.raises(DependencyError, match="is r21; adrenoc needs r23"):
        find_linker(host=False, ndk=old)
    with pytest.raises(DependencyError, match="is not an Android NDK"):
        find_linker(host=False, ndk=tmp_path)
    other = fake_ndk(tmp_path / "other", "27.0.1")
    next(other.glob("toolchains/**/ld.lld")).unlink()
    with pytest.raises(
        DependencyError, match=r"is not whole: it has no .*linux-x86_64/bin/ld\.lld"
    ):
        find_linker(host=False, ndk=other)


@pytest.mark.parametrize(
    ("revision", "version"),
    [
        ("23.0.7599858", (23, 0, 7599858)),
        ("25.2.9519653", (25, 2, 9519653)),
        ("26.0.10404224-beta1", (26, 0, 10404224)),
        ("27.2.12479018", (27, 2, 12479018)),
        ("28.0.13004108", (28, 0, 13004108)),
    ],
)
def test_releases_of_the_ndk(revision, version, tmp_path):
    ndk = find_ndk(fake_ndk(tmp_path / "ndk", revision))
    assert ndk.version == version
    assert ndk.apis == (21, 35)
    assert ndk.toolchain_file.is_file()
    assert (ndk.tools / "ld.lld").is_file()


@pytest.mark.parametrize(
    "text", ["", "Pkg.Desc = Android NDK\n", "Pkg.Revision = new\n", "Pkg.BaseRevision = 27.0.1\n"]
)
def test_properties_without_a_revision(text, tmp_path):
    (tmp_path / "source.properties").write_text(text)
    with pytest.raises(DependencyError, match=r"no `source\.properties` with a Pkg\.Revision"):
        ndk_version(tmp_path)


def test_properties_with_the_ends_of_lines_of_windows(tmp_path):
    (tmp_path / "source.properties").write_bytes(b"Pkg.Desc = x\r\nPkg.Revision=27.0.1\r\n")
    assert ndk_version(tmp_path) == (27, 0, 1)


@pytest.mark.parametrize(("host", "system"), [("darwin", "macOS"), ("windows", "Windows")])
def test_an_ndk_for_another_system(host, system, tmp_path, monkeypatch):
    forget_ndks(monkeypatch, tmp_path)
    foreign = fake_ndk(tmp_path / "Android/Sdk/ndk/27.0.1", "27.0.1", host=f"{host}-x86_64")
    with pytest.raises(DependencyError, match=f"does not run on Linux: its tools are for {system}"):
        find_ndk(foreign)
    # In an SDK it is passed over, and named where nothing else is there.
    assert find_ndk() is None
    assert f"its tools are for {system}" in why_no_ndk()
    fake_ndk(tmp_path / "Android/Sdk/ndk/26.0.1", "26.0.1")
    found = find_ndk()
    assert found is not None and found.revision == "26.0.1"


def test_an_ndk_of_several_systems_serves(tmp_path):
    folder = fake_ndk(tmp_path / "ndk", "27.0.1", host="darwin-x86_64")
    (folder / "toolchains/llvm/prebuilt/linux-x86_64/bin").mkdir(parents=True)
    ndk = find_ndk(folder)
    assert ndk is not None and ndk.tools.parent.name == "linux-x86_64"


def test_why_no_ndk_is_there(tmp_path, monkeypatch):
    forget_ndks(monkeypatch, tmp_path)
    assert why_no_ndk() == "none in the usual places, and no variable names one"
    fake_ndk(tmp_path / "Android/Sdk/ndk/21.4.7075529", "21.4.7075529")
    assert "is r21; adrenoc needs r23 or newer" in why_no_ndk()
    with pytest.raises(DependencyError, match=r"needs an Android NDK: .* is r21"):
        build_runtime(abi="arm64-v8a", cache=tmp_path)


def test_the_api_level_is_checked(tmp_path, monkeypatch, capsys):
    forget_ndks(monkeypatch, tmp_path)
    ndk = fake_ndk(tmp_path / "ndk", "29.0.1", apis=(26, 36))
    monkeypatch.setenv("ANDROID_NDK_HOME", str(ndk))
    command = ["runtime", "build"]
    assert main(command) == DependencyError.exit_code
    said = " ".join(capsys.readouterr().err.split())
    assert "compiles for the API levels 26 to 36, not for 24" in said
    assert "--api 26" in said
    assert main([*command, "--api", "23"]) == OptionError.exit_code
    assert "API level 23 is too old" in capsys.readouterr().err
    with pytest.raises(DependencyError, match="not for 37"):
        build_runtime(abi="arm64-v8a", ndk=ndk, api=37, cache=tmp_path)


def test_an_ndk_without_its_files_for_cmake(tmp_path):
    ndk = fake_ndk(tmp_path / "ndk", "27.0.1")
    (ndk / "build/cmake/android.toolchain.cmake").unlink()
    with pytest.raises(DependencyError, match="is not whole: it has no build/cmake/android"):
        build_runtime(abi="x86_64", ndk=ndk, cache=tmp_path)


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
