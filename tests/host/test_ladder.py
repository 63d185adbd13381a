"""The last step of the ladder: operators on the CPU of a bundle, also for boards with Linux."""

import platform
from pathlib import Path

import numpy as np
import pytest

from adrenoc.base.errors import BundleError, CompileError
from adrenoc.base.reporter import SilentReporter
from adrenoc.bundle.bundle import LIBRARY, open_bundle
from adrenoc.cli.main import main
from adrenoc.compile.compiler import Compiled, compile_model
from adrenoc.importers.onnx.session import open_session
from adrenoc.ir.options import resolve_options
from adrenoc.native.android.elf import read_elf
from adrenoc.native.android.link import find_linker, link_library
from adrenoc.native.android.runtime_toolchain import find_abi
from adrenoc.target.target import load_target, runs_here
from tests.commands import refuse
from tests.host.run_op import place
from tests.models import graph, write


def _model(folder: Path) -> Path:
    """A GPU part, a part in double that only the CPU computes, and a GPU part again."""
    weight = np.random.default_rng(0).uniform(-1, 1, (6, 3, 3, 3)).astype(np.float32)
    nodes = (
        "conv = Conv <pads = [1, 1, 1, 1]>(x, w) act = Relu(conv) wide = Cast <to = 11>(act) "
        "grown = Exp(wide) summed = CumSum(grown, axis) narrow = Cast <to = 1>(summed) "
        "added = Add(narrow, act) y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]>(added)"
    )
    constants = {"w": weight, "axis": np.array(2)}
    made = graph(nodes, {"x": (1, 3, 6, 7)}, ["y", "summed"], constants, opset=18)
    return write(made, folder, "ladder.onnx")


def _compile(path: Path, device: str, **options) -> Compiled:
    target = load_target(device)
    resolved = resolve_options(
        target, preset="fp32", command_line={"check_ir": True, **options}
    ).options
    return compile_model(path, target=target, options=resolved, reporter=SilentReporter())


def test_cpu_part_computes_in_double(device, tmp_path):
    import tvm
    from tvm import relax

    path = _model(tmp_path)
    compiled = _compile(path, "host")
    x = np.random.default_rng(1).uniform(-1, 1, (1, 3, 6, 7)).astype(np.float32)
    arguments = [tvm.runtime.tensor(x, device)]
    arguments += place(((s, compiled.params[s.name]) for s in compiled.param_specs), device)
    machine = relax.VirtualMachine(compiled.library, [device, tvm.cpu()])
    seen = [t.numpy() for t in machine["main"](*arguments)]
    expected = open_session(path).run(["y", "summed"], {"x": x})
    assert seen[1].dtype == np.float64
    for value, reference in zip(seen, expected, strict=True):
        np.testing.assert_allclose(value, reference, rtol=1e-5, atol=1e-5)


def test_cpu_part_is_counted_and_explained(tmp_path):
    compiled = _compile(_model(tmp_path), "host")
    statistics = compiled.statistics
    assert statistics.nodes_cpu == 4
    assert statistics.nodes_texture >= 1
    # The activation goes there once; the sum and what is made of it come back.
    assert statistics.device_copies == 3
    said = {d.subject: d for d in compiled.decisions if d.taken.endswith("on the CPU")}
    assert {"grown", "summed"} <= set(said)
    assert "float64" in said["grown"].reason
    assert "export the model in float32" in said["grown"].reason
    assert "cpu" in {slot.scope for slot in compiled.memory.slots}
    on_gpu = sum(slot.bytes for slot in compiled.memory.slots if slot.scope != "cpu")
    assert compiled.memory.slot_bytes == on_gpu


def test_forbidden_cpu_lists_all_offenders(tmp_path):
    with pytest.raises(CompileError) as caught:
        _compile(_model(tmp_path), "host", forbid=("cpu",))
    for name in ("wide", "grown", "summed", "float64"):
        assert name in caught.value.message
    assert caught.value.message.startswith("4 operators")


def test_forbidden_buffers_name_the_reason(tmp_path):
    # A texture on any Adreno is at most 16384 texels wide, and has at most 2048 layers.
    pool = "MaxPool <kernel_shape = [3, 3], strides = [2, 2]>(b)"
    nodes = f"a = Relu(x) b = Sin(a) y = {pool}"
    path = write(graph(nodes, {"x": (1, 16384, 20, 1000)}, ["y"], opset=18), tmp_path)
    with pytest.raises(CompileError, match=r"b \(buffer, NCHW4c: as planes it is 1000 x 20"):
        _compile(path, "adreno", forbid=("buffer",))


def test_cpu_part_links_for_the_phone(tmp_path):
    pytest.importorskip("ziglang")
    compiled = _compile(_model(tmp_path), "adreno")
    facts = link_library(
        compiled.library,
        tmp_path / "model.so",
        triple=load_target("adreno").llvm_triple,
        linker=find_linker(host=False),
    )
    # The exponential in double comes from the phone's libm.
    assert "libm.so" in facts.needed


TRIPLE = "aarch64-unknown-linux-gnu"
SHAPE = (1, 4, 8, 8)


@pytest.fixture
def model(tmp_path) -> Path:
    """A transcendental in doubles, which no GPU computes: the CPU part calls the C library."""
    nodes = "d = Cast <to = 11>(x) s = Sinh(d) y = Cast <to = 1>(s)"
    return write(graph(nodes, {"x": SHAPE}, ["y"]), tmp_path)


def test_the_library_is_for_linux(model, tmp_path):
    bundle, android = tmp_path / "b", tmp_path / "a"
    assert main(["compile", str(model), "--os", "linux", "-o", str(bundle)]) == 0
    assert main(["compile", str(model), "-o", str(android)]) == 0
    made = open_bundle(bundle)
    assert made.manifest.target.llvm_triple == TRIPLE
    facts = read_elf(made.root / LIBRARY)
    assert facts.machine == "aarch64"
    # Some kernels of arm64 Linux have pages of 64 KiB.
    assert facts.page_bytes == 65536
    assert set(facts.needed) == {"libm.so.6"}
    phone = open_bundle(android)
    assert phone.manifest.target.llvm_triple == "aarch64-linux-android"
    assert phone.manifest.target.digest != made.manifest.target.digest
    ours, theirs = ({k.name: k.source for k in b.kernels()} for b in (made, phone))
    assert ours == theirs


def test_each_gpu_of_a_set_is_for_linux(model, tmp_path):
    bundle = tmp_path / "b"
    words = ["--device", "adreno:690,adreno:740", "--os", "linux"]
    assert main(["compile", str(model), *words, "-o", str(bundle)]) == 0
    made = open_bundle(bundle)
    assert made.manifest.target.llvm_triple == TRIPLE
    libraries = sorted(made.root.rglob(LIBRARY))
    assert libraries
    assert {read_elf(path).page_bytes for path in libraries} == {65536}


def test_no_archive_for_android_takes_it(model, tmp_path, capsys):
    bundle = tmp_path / "b"
    assert main(["compile", str(model), "--os", "linux", "-o", str(bundle)]) == 0
    code = main(["package", str(bundle), "--as", "aar", "-o", str(tmp_path / "r")])
    assert code == BundleError.exit_code
    assert f"was compiled for Linux ({TRIPLE}), expected one for Android" in capsys.readouterr().err


def test_it_runs_on_machines_of_its_kind_alone(model, tmp_path):
    assert runs_here(f"{platform.machine()}-unknown-linux-gnu")
    assert not runs_here(f"{platform.machine()}-linux-android")
    assert find_abi("aarch64-linux-android") == "arm64-v8a"
    if platform.machine() == "aarch64":
        assert find_abi(TRIPLE) == "host"
        return
    assert find_abi(TRIPLE) == "aarch64-linux"
    bundle = tmp_path / "b"
    assert main(["compile", str(model), "--os", "linux", "-o", str(bundle)]) == 0
    assert TRIPLE in refuse(BundleError, "run", bundle)


@pytest.mark.parametrize("device", ["host", "host:660,host:750"])
def test_it_is_for_snapdragons(device, model, tmp_path):
    words = ["--device", device, "--os", "linux", "-o", str(tmp_path / "b")]
    assert "--os is for GPUs of Snapdragons" in refuse(2, "compile", model, *words)
