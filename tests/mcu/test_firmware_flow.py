"""From a file to a folder and back, by the command line."""

import json
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from adrenoc.base.errors import (
    BundleError,
    CheckFailedError,
    CompileError,
    OutputError,
    PolicyError,
    TargetError,
    UnsupportedOperatorError,
)
from adrenoc.cli.main import main
from adrenoc.firmware.mcu import emulator
from adrenoc.firmware.mcu.core import core_names, load_core
from tests.commands import run_program
from tests.mcu import networks
from tests.mcu.judge import compile_firmware, needs_emulator, run_and_compare, run_firmware_of
from tests.mcu.maker import Maker
from tests.patience import WAIT_S
from tests.tflite.build import ModelBuilder, T

FILES = ["CMakeLists.txt", "adrenoc-files.json", "main.c", "model.c", "model.h", "model.json"]


@pytest.fixture
def model(tmp_path) -> Path:
    path = tmp_path / "kws.tflite"
    path.write_bytes(networks.keywords(width=8, blocks=1, height=11))
    return path


def test_a_folder_for_firmware(model, tmp_path, capsys):
    out = tmp_path / "kws"
    again = tmp_path / "again"
    assert compile_firmware(model, out) == 0
    assert compile_firmware(model, again) == 0
    assert sorted(p.name for p in out.iterdir()) == sorted([*FILES, "self_test.c"])
    for name in (*FILES, "self_test.c"):
        assert (out / name).read_bytes() == (again / name).read_bytes()
    code = (out / "model.c").read_text()
    includes = [line for line in code.splitlines() if line.startswith("#include")]
    assert includes == ['#include "model.h"']
    assert "malloc" not in code
    assert compile_firmware(model, out) == 0
    (out / "mine.c").write_text("int mine;")
    code_of_error = compile_firmware(model, out)
    assert code_of_error == OutputError.exit_code
    capsys.readouterr()


@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m55"])
def test_the_self_test_on_this_computer(core, model, tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler on this machine")
    out = tmp_path / "kws"
    assert compile_firmware(model, out, core=core) == 0
    program = tmp_path / "self_test"
    sources = [str(out / name) for name in ("main.c", "model.c", "self_test.c")]
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined", "-std=c11"]
    subprocess.run([compiler, *flags, *sources, "-o", str(program)], check=True)
    done = subprocess.run([str(program)], capture_output=True, check=False)
    assert done.returncode == 0
    assert not done.stderr
    text = (out / "self_test.c").read_text()
    begin = text.index("{", text.index("expected[")) + 1
    number = text[begin:].split(",")[0]
    other = text[:begin] + str(int(number) ^ 1) + text[begin + len(number) :]
    (out / "self_test.c").write_text(other)
    subprocess.run([compiler, *flags, *sources, "-o", str(program)], check=True)
    assert subprocess.run([str(program)], check=False).returncode == 1


@needs_emulator
@pytest.mark.parametrize(
    "core", sorted({n for n in core_names() if n[:3] != "cpu"} - {"cortex-m4"})
)
def test_each_core_computes_the_same(core, tmp_path):
    run_and_compare(networks.keywords(width=8, blocks=1, height=11), tmp_path / "m", core=core)


@needs_emulator
def test_a_run_compares_every_byte(model, tmp_path, capsys):
    out = tmp_path / "kws"
    assert compile_firmware(model, out) == 0
    capsys.readouterr()
    assert run_firmware_of(model, out, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["passed"] is True
    assert said["instructions"] > 1000
    assert all(layer["instructions"] >= 0 for layer in said["layers"])
    other = tmp_path / "other.tflite"
    other.write_bytes(networks.keywords(width=8, blocks=1, height=11, seed=1))
    assert run_firmware_of(other, out) == CheckFailedError.exit_code


@needs_emulator
@pytest.mark.parametrize("level", ["-O0", "-Os"])
@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m55"])
@pytest.mark.parametrize("network", ["keywords", "anomalies", "audio", "keyword_lstm"])
def test_code_compiles_without_a_warning(network, core, level, model, tmp_path):
    out = tmp_path / "kws"
    if network == "anomalies":
        model.write_bytes(networks.anomalies(width=40))
    elif network != "keywords":
        model.write_bytes(getattr(networks, network)())
    assert compile_firmware(model, out, core=core) == 0
    strict = [*load_core(core).flags, "-std=c11", "-Wall", "-Wextra", "-Werror", level]
    files = ["-c", out / "model.c", "-o", tmp_path / "model.o"]
    done = run_program(["arm-none-eabi-gcc", *strict, *files])
    assert done.returncode == 0, done.stderr


@needs_emulator
@pytest.mark.skipif(find_spec("ziglang") is None, reason="not installed: ziglang")
@pytest.mark.parametrize("core", ["cortex-m0plus", "cortex-m4", "cortex-m55"])
def test_an_object_file_computes_the_same(core, model, tmp_path):
    """Compiled by clang, and linked by GCC with what checks it."""
    out = tmp_path / "kws"
    assert compile_firmware(model, out, "--object", core=core) == 0
    facts = load_core(core)
    board, place = facts.board, Path(emulator.__file__).parent / "board"
    sizes = {
        "flash_start": board.flash_start or 0,
        "flash_bytes": board.flash_kib << 10,
        "ram_start": board.ram_start,
        "ram_bytes": board.ram_kib << 10,
    }
    image = tmp_path / "image.elf"
    sources = [out / "main.c", out / "self_test.c", out / "model.o", place / "startup.c"]
    command = ["arm-none-eabi-gcc", *facts.flags, "-O1", "-nostartfiles", "--specs=nosys.specs"]
    command += [f"-Wl,--defsym={name}={size}" for name, size in sizes.items()]
    command += ["-T", str(place / "board.ld"), *map(str, sources), "-o", str(image)]
    subprocess.run(command, check=True, capture_output=True)
    command = ["qemu-system-arm", "-M", board.machine, "-display", "none", "-monitor", "none"]
    command += ["-serial", "none", "-semihosting-config", "enable=on,target=native"]
    done = subprocess.run([*command, "-kernel", str(image)], timeout=WAIT_S, check=False)
    assert done.returncode == 0


def test_inspect_shows_a_folder(model, tmp_path, capsys):
    out = tmp_path / "kws"
    assert compile_firmware(model, out, core="cortex-m55") == 0
    capsys.readouterr()
    assert main(["inspect", str(out)]) == 0
    said = capsys.readouterr().out
    assert all(word in said for word in ("cortex-m55", "arena", "vectors", "DEPTHWISE_CONV_2D"))
    assert main(["inspect", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["device"] == "cortex-m55"
    assert main(["inspect", str(out), "--kernel", "x"]) == BundleError.exit_code


def test_an_output_twice_is_refused(tmp_path, capsys):
    make = Maker()
    x = make.input(1, 4, 4, 4)
    y = make.conv(x, 4)
    for name, outputs in (("twice", (y, y)), ("input", (x, y))):
        path = tmp_path / f"{name}.tflite"
        path.write_bytes(Maker.finish(make, *outputs))
        make.graph.outputs.clear()
        code = main(["firmware", "check", str(path), "--device", "cortex-m4"])
        assert code == CompileError.exit_code
        assert "output" in capsys.readouterr().err


def test_a_float_model_says_how_to_quantise(tmp_path, capsys):
    build = ModelBuilder()
    graph = build.graph()
    x = graph.add(T(shape=(1, 4)))
    graph.inputs.append(x)
    graph.outputs += graph.op("RELU", [x], [T(shape=(1, 4))])
    path = tmp_path / "floats.tflite"
    path.write_bytes(build.write())
    assert compile_firmware(path, tmp_path / "o") == CompileError.exit_code
    said = capsys.readouterr().err
    assert "float32" in said
    assert "representative_dataset" in said
    assert not (tmp_path / "o").exists()


def test_operators_that_a_converter_left_in_floats_are_named(tmp_path, capsys):
    make = Maker(seed=1)
    x = make.conv(make.input(1, 4, 4, 8), 8)
    graph, floats = make.graph, T(shape=(1, 4, 4, 8))
    (real,) = graph.op("DEQUANTIZE", [x.index], [floats])
    (root,) = graph.op("RSQRT", [real], [floats])
    back = T(dtype="int8", shape=(1, 4, 4, 8), scales=[0.1], zeros=[0])
    graph.outputs += graph.op("QUANTIZE", [root], [back])
    path = tmp_path / "islands.tflite"
    path.write_bytes(make.model.write())
    assert (
        compile_firmware(path, tmp_path / "o", core="cpu:arm64")
        == UnsupportedOperatorError.exit_code
    )
    said = capsys.readouterr().err
    assert "is quantised, but 1 of its operators compute in float32" in said
    assert "RSQRT" in said
    assert "representative_dataset" not in said


def test_all_that_cannot_go_is_named_at_once(tmp_path, capsys):
    make = Maker()
    x = make.input(1, 4, 4, 4)
    tensor = T(dtype="int8", shape=x.shape, scales=[x.scale], zeros=[x.zero])
    make.graph.op("COS", [x.index], [tensor])
    make.graph.op("L2_NORMALIZATION", [x.index], [tensor])
    path = tmp_path / "m.tflite"
    path.write_bytes(make.finish(make.conv(x, 4)))
    assert compile_firmware(path, tmp_path / "o") == UnsupportedOperatorError.exit_code
    said = capsys.readouterr().err
    assert "2 operators" in said
    assert "COS" in said
    assert "L2_NORMALIZATION" in said


def test_options_and_names_that_mean_nothing(model, capsys):
    compiled = ["firmware", "compile", str(model), "--device"]
    assert main([*compiled, "cortex-m99"]) == TargetError.exit_code
    assert "cortex-m4" in capsys.readouterr().err
    assert main(["compile", str(model), "--device", "cortex-m4"]) == TargetError.exit_code
    assert "adrenoc firmware compile MODEL --device cortex-m4" in capsys.readouterr().err
    assert main(["check-accuracy", str(model), "--device", "cortex-m4"]) == TargetError.exit_code


def test_limits_of_flash_and_ram(model, tmp_path, capsys):
    checked = ["firmware", "check", str(model), "--device", "cortex-m4"]
    assert main([*checked, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["budget"]
    assert said["broken"] == []
    assert said["ram_bytes"] > max(alive["bytes"] for alive in said["alive"]) > 0
    assert main([*checked, "--limit", "ram-kib=64", "--limit", "flash-kib=512"]) == 0
    capsys.readouterr()
    assert (
        main([*checked, "--limit", "ram-kib=1", "--limit", "flash-kib=1"]) == PolicyError.exit_code
    )
    assert "2 of the limits" in capsys.readouterr().err
    out = tmp_path / "out"
    compiled = ["firmware", "compile", str(model), "--device", "cortex-m4", "-o", str(out)]
    assert main([*compiled, "--limit", "ram-kib=1"]) == PolicyError.exit_code
    assert not out.exists()
    assert main([*compiled, "--limit", "ram-kib=64"]) == 0
    assert main([*checked, "--limit", "ram-kib=x"]) == 2
