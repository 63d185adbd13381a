"""The command line: what it resolves, what it shows, and how it fails."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import adrenoc.compile.make
from adrenoc.base.errors import BundleError
from adrenoc.base.text.report import shorten
from adrenoc.cli.main import cli, main
from tests.commands import run_program


def _json(capsys: pytest.CaptureFixture[str]):
    return json.loads(capsys.readouterr().out)


def list_commands(group: click.Group, *before: str) -> Iterator[list[str]]:
    """Yield the words of every command, those of groups of groups too."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from list_commands(command, *before, name)
        else:
            yield [*before, name]


def _loaded_by(command: list[str], folder: Path) -> set[str]:
    """The packages that a fresh process in `folder` has loaded after a command that succeeds."""
    script = (
        "import sys\n"
        "from adrenoc.cli.main import main\n"
        f"code = main({command!r})\n"
        "print('\\nloaded', *{name.partition('.')[0] for name in sys.modules})\n"
        "sys.exit(code)\n"
    )
    done = run_program([sys.executable, "-c", script], check=True, cwd=folder)
    first, *loaded = done.stdout.splitlines()[-1].split()
    assert first == "loaded"
    assert "click" in loaded
    return set(loaded)


@pytest.mark.parametrize("command", [["--help"], ["compile", "--help"], ["run", "--help"]])
def test_help_loads_nothing_heavy(command, tmp_path):
    heavy = {"tvm", "tvm_ffi", "onnx", "numpy", "rich", "tflite", "safetensors", "elftools"}
    assert not heavy & _loaded_by(command, tmp_path)


@pytest.mark.parametrize("command", [["targets"], ["presets"], ["inspect", "BUNDLE"]])
def test_looking_needs_no_tvm(command, bundle_folder, tmp_path):
    command = [str(bundle_folder) if part == "BUNDLE" else part for part in command]
    assert not {"tvm", "tvm_ffi", "onnx"} & _loaded_by(command, tmp_path)


def test_every_command_has_help_and_json(capsys):
    assert set(cli.commands) == {
        *("compile", "check", "check-accuracy", "run", "inspect", "view", "diff", "package"),
        *("targets", "doctor", "build", "presets", "compare", "prove", "chat", "serve"),
        *("tune", "device", "firmware", "runtime"),
    }
    for words in list_commands(cli):
        assert main([*words, "--help"]) == 0
        assert "--json" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["device"], ["tune", "log"]])
def test_a_group_alone_shows_its_help_and_no_error(capsys, words):
    main(words)
    said = capsys.readouterr()
    text = said.out + said.err
    assert text.startswith("Usage: ") and "error: " not in text and "try: " not in text


def test_help_lists_each_command_once_with_its_whole_sentence(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    listed = re.findall(r"^  ([a-z][a-z-]*)  +[A-Z]", text, re.M)
    assert sorted(listed) == sorted(cli.commands)
    words = " ".join(text.split())
    for command in cli.commands.values():
        assert " ".join((command.help or "").split("\n\n")[0].split()) in words, command.name


def test_compile_writes_a_bundle_and_then_takes_it_from_the_cache(model, compiled, capsys):
    command = ["compile", str(model), "--device", "adreno:750", "--preset", "fp16", "--json"]
    command += ["--shape", "input:0:1,3,8,8"]
    assert main(command) == 0
    first = _json(capsys)
    (call,) = compiled
    assert call["target"].name == "adreno:a750"
    assert call["options"].compute_dtype == "float16"
    assert call["options"].shapes == (("input:0", (1, 3, 8, 8)),)
    assert first["path"] == "net.adrenoc"
    assert not first["cached"]
    before = Path("net.adrenoc/manifest.json").read_bytes()

    assert main([*command, "--output", "again.adrenoc"]) == 0
    assert _json(capsys)["cached"]
    assert len(compiled) == 1
    assert Path("again.adrenoc/manifest.json").read_bytes() == before

    assert main([*command, "--no-cache"]) == 0
    assert not _json(capsys)["cached"]
    assert len(compiled) == 2
    assert Path("net.adrenoc/manifest.json").read_bytes() == before


def test_a_cached_compile_loads_no_tvm(model, compiled):
    assert main(["compile", str(model)]) == 0
    loaded = _loaded_by(["compile", str(model), "--json"], model.parent)
    assert not {"tvm", "tvm_ffi", "onnx"} & loaded


def test_another_preset_is_another_entry(model, compiled):
    for preset in ("fp32", "fp16", "fp32"):
        assert main(["compile", str(model), "--preset", preset]) == 0
    assert [call["options"].preset for call in compiled] == ["fp32", "fp16"]


def test_compile_shows_stages_and_a_summary(model, compiled, capsys):
    assert main(["compile", str(model), "--explain"]) == 0
    said = capsys.readouterr()
    assert "import" in said.err
    assert "12.5 ms" in said.err
    assert "net.adrenoc" in said.out
    assert "8 channels fill 2 blocks" in said.out
    assert "preset mixed" in said.out
    assert not any(line != line.rstrip() for line in said.out.splitlines())


def test_compile_writes_a_tar(model, compiled):
    assert main(["compile", str(model), "-o", "net.adrenoc.tar"]) == 0
    assert main(["inspect", "net.adrenoc.tar"]) == 0


def test_a_failed_compile_leaves_nothing(model, compiled, monkeypatch):
    def fail(*_, **__) -> None:
        raise BundleError("cannot", hint="none")

    monkeypatch.setattr(adrenoc.compile.make, "fill_bundle", fail)
    assert main(["compile", str(model)]) == BundleError.exit_code
    assert [path.name for path in Path().iterdir() if path.name != "cache"] == ["net.tflite"]


def test_inspect(bundle_folder, capsys):
    assert main(["inspect", str(bundle_folder)]) == 0
    said = capsys.readouterr().out
    for shown in ("1x3x8x8", "conv2d_kernel", "texture x2, buffer", "8x8x1", "LLD 22"):
        assert shown in said
    assert main(["inspect", str(bundle_folder), "--json"]) == 0
    assert _json(capsys)["kernels"][0]["calls"] == 2
    assert main(["inspect", str(bundle_folder), "--kernel", "conv2d_kernel"]) == 0
    assert "__kernel void conv2d_kernel" in capsys.readouterr().out
    assert main(["inspect", str(bundle_folder), "--kernel", "conv2d"]) == BundleError.exit_code
    assert 'did you mean "conv2d_kernel"' in capsys.readouterr().err


def test_targets_and_presets(capsys):
    assert main(["targets", "--json"]) == 0
    assert {"adreno", "adreno:a750", "host"} <= {target["name"] for target in _json(capsys)}
    assert main(["targets", "adreno:750"]) == 0
    assert "image2d_max_width_texels" in capsys.readouterr().out
    assert main(["presets", "--json"]) == 0
    assert {"fp32", "fp16", "mixed"} <= {preset["name"] for preset in _json(capsys)}


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (["compile", "nothing.onnx"], 11, "nothing.onnx does not exist"),
        (["compile", "text.onnx"], 12, "is a text file"),
        (["compile", "net.tflite", "--device", "adreno:9999"], 16, 'unknown device "adreno:9999"'),
        (["compile", "net.tflite", "--preset", "fp8"], 17, 'unknown preset "fp8"'),
        (["compile", "net.tflite", "--shape", "x:1,a"], 15, '--shape "x:1,a"'),
        (["compile", "net.tflite", "-o", "no/such/folder"], 18, "does not exist"),
        (["inspect", "nothing"], 21, "there is no bundle at nothing"),
        (["run", "nothing"], 21, "there is no bundle at nothing"),
        (["compile"], 2, "missing argument"),
        (["complie"], 2, "no such command 'complie'"),
        (["run", "x", "--repeat", "0"], 2, "0 is not in the range"),
        (["check", "x", "--limit", "copys=1"], 2, "'copys' is no limit (did you mean"),
        (["check", "x", "--limit", "copies=1.5"], 2, "copies is '1.5', expected a whole number"),
        (["check", "x", "--set", "winograd"], 2, "'winograd' has no value, expected winograd="),
        (["run", "x", "--sample", "top-k"], 2, "'top-k' has no value, expected top-k="),
        (["run", "x", "--temperature", "1"], 2, "--temperature': it is --sample temperature=VALUE"),
    ],
)
def test_bad_input_is_one_sentence_and_a_code(model, command, code, said, capsys):
    Path("text.onnx").write_text("I am no model\n")
    assert main(command) == code
    shown = capsys.readouterr()
    assert not shown.out
    error, hint = [line for line in shown.err.splitlines() if line.startswith(("error", "  try"))]
    assert said in error
    assert hint.startswith("  try: ")
    assert "Traceback" not in shown.err

    assert main([*command, "--json"]) == code
    plain = _json(capsys)["error"]
    assert plain["exit_code"] == code
    assert said in plain["message"]


def test_an_option_without_its_value_hints_at_the_help_of_its_command(capsys):
    assert main(["run", "x", "--shape"]) == 2
    assert "try: adrenoc run --help" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        (["run", "my b"], "--output 'my b'"),
        (["compile", "my m/x.onnx"], "ls 'my m'"),
        (["compile", "net.tflite", "-o", "my folder/b"], "/my folder'"),
        (["build", "my builds.toml"], "> 'my builds.toml'"),
        (["compare", "a b.json", "c.json"], "> 'a b.json'"),
    ],
)
def test_hints_are_typed_as_they_stand(model, command, hint, capsys):
    """A path with a space is one word of a command."""
    assert main(command) != 0
    assert hint in capsys.readouterr().err.replace("\n", "")


def test_a_defect_keeps_its_traceback_and_asks_for_a_report(bundle_folder, monkeypatch, capsys):
    def fail(*_) -> None:
        raise ZeroDivisionError("deep inside")

    monkeypatch.setattr("adrenoc.bundle.bundle.open_bundle", fail)
    assert main(["inspect", str(bundle_folder)]) == 1
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "deep inside" in said
    assert "report the lines above" in said


def test_names_in_tables_keep_their_end():
    assert shorten("/features/features.1/Relu") == "/features/features.1/Relu"
    long = f"/{'blocks/' * 9}conv_pw/Conv_output_0"
    assert len(shorten(long)) == 44
    assert shorten(long).startswith("…")
    assert long.endswith(shorten(long)[1:])
    assert shorten("block_1/Relu6;block_1/BN/add;block_1/conv") == "block_1/Relu6;…"


def test_an_interrupt_is_quiet(bundle_folder, monkeypatch, capsys):
    def interrupt(*_) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("adrenoc.bundle.bundle.open_bundle", interrupt)
    assert main(["inspect", str(bundle_folder)]) == 130
    assert "Traceback" not in capsys.readouterr().err
