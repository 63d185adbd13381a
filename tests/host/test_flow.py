"""The whole flow as a user goes it: compile, look, run, check; twice the same; from the cache."""

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from adrenoc.cli.main import main
from tests.commands import run_program
from tests.models import graph, write, write_network

ROOT = Path(__file__).resolve().parents[2]
MODELS = {
    "squeezenet": {"size": 64, "width": 0.25, "classes": 10},
    "mixed_small": {"size": 31, "width": 1.0, "classes": 10},
}


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {name: write_network(folder, name, **options) for name, options in MODELS.items()}


def _json(capsys: pytest.CaptureFixture[str], *command: str | Path):
    capsys.readouterr()
    code = main([*map(str, command), "--json"])
    said = capsys.readouterr()
    assert code == 0, said.out + said.err
    return json.loads(said.out)


def _contents(bundle: Path) -> dict[str, bytes]:
    return {
        path.relative_to(bundle).as_posix(): path.read_bytes()
        for path in sorted(bundle.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("case", [f"{n} {p}" for n in MODELS for p in ("fp32", "mixed", "buffer")])
def test_compiled_looked_at_run_and_checked(case, models, tmp_path, device, capsys):
    name, preset = case.split()
    model, bundle = models[name], tmp_path / "net.adrenoc"
    made = _json(
        capsys, "compile", model, "--device", "host", "--preset", preset, "-o", bundle, "--no-cache"
    )
    assert not made["cached"]
    seen = _json(capsys, "inspect", bundle)
    assert seen == made["manifest"]
    assert seen["target"]["name"] == "host"
    assert seen["options"]["preset"] == preset
    statistics = seen["statistics"]
    assert statistics["nodes_cpu"] == 0
    assert statistics["pad_kernels"] == 0
    if preset == "buffer":
        assert statistics["nodes_texture"] == statistics["tensors_texture"] == 0
    else:
        assert statistics["nodes_texture"] > 5 * statistics["nodes_buffer"]
    ran = _json(capsys, "run", bundle, "--check", model, "--repeat", "2", "--profile")
    assert len(ran["nodes"]) > 5
    assert all(node["node"] for node in ran["nodes"])
    assert ran["memory_bytes"] == seen["memory"]["peak_bytes"]
    assert ran["check"]["passed"]
    assert ran["check"]["tensors"]
    limit = 1e-4 if preset == "fp32" else 1e-2
    assert all(0 <= tensor["range_error"] <= limit for tensor in ran["check"]["tensors"])


def test_a_phone_gets_an_arm64_library(models, tmp_path, capsys):
    bundle = tmp_path / "net.adrenoc"
    made = _json(capsys, "compile", models["squeezenet"], "-o", bundle, "--no-cache")
    library = made["manifest"]["library"]
    assert library["machine"] == "aarch64"
    assert library["page_bytes"] == 16384


@pytest.mark.parametrize("device", ["adreno:a750", pytest.param("host", marks=pytest.mark.nightly)])
def test_equal_input_gives_equal_bytes(device, models, tmp_path):
    """In two processes with different hash seeds, and from the cache."""
    made = []
    for seed in ("1", "2"):
        bundle = tmp_path / f"{seed}.adrenoc"
        script = (
            "import sys; from adrenoc.cli.main import main;"
            f"sys.exit(main(['compile', {str(models['mixed_small'])!r}, '--device', {device!r},"
            f" '-o', {str(bundle)!r}]))"
        )
        environment = {
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": str(ROOT),
            "ADRENOC_CACHE_DIR": str(tmp_path / f"cache{seed}"),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
        }
        subprocess.run(
            [sys.executable, "-c", script], check=True, capture_output=True, env=environment
        )
        made.append(_contents(bundle))
    assert made[0].keys() == made[1].keys()
    assert [name for name in made[0] if made[0][name] != made[1][name]] == []


def test_a_second_compile_comes_from_the_cache(models, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ADRENOC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    model = models["mixed_small"]
    first = _json(capsys, "compile", model, "-o", "first.adrenoc")
    assert not first["cached"]
    script = (
        "import sys; from adrenoc.cli.main import main;"
        f"code = main(['compile', {str(model)!r}, '-o', 'second.adrenoc', '--json']);"
        "assert 'tvm' not in sys.modules, 'TVM was loaded'; sys.exit(code)"
    )
    done = run_program(
        [sys.executable, "-c", script],
        check=True,
        env={
            "PYTHONPATH": str(ROOT),
            "ADRENOC_CACHE_DIR": str(tmp_path / "cache"),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
        },
    )
    assert json.loads(done.stdout)["cached"]
    assert _contents(tmp_path / "second.adrenoc") == _contents(tmp_path / "first.adrenoc")
    for other in (["--preset", "fp32"], ["--device", "adreno:a750"], ["--no-cache"]):
        assert not _json(capsys, "compile", model, "-o", "other.adrenoc", *other)["cached"]


def test_the_tar_form_holds_the_same(models, tmp_path, device, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    model = models["mixed_small"]
    compile_command = ("compile", model, "--device", "host", "--preset", "fp32", "--no-cache")
    _json(capsys, *compile_command)
    _json(capsys, *compile_command, "-o", "mixed_small.adrenoc.tar")
    with tarfile.open("mixed_small.adrenoc.tar") as tar:
        packed = {member.name: tar.extractfile(member).read() for member in tar}
    folder = _contents(tmp_path / "mixed_small.adrenoc")
    assert packed == {f"mixed_small.adrenoc/{name}": content for name, content in folder.items()}
    ran = _json(capsys, "run", "mixed_small.adrenoc.tar", "--check", model, "--repeat", "1")
    assert ran["check"]["passed"]


def test_each_stage_is_dumped_under_its_name(models, tmp_path, monkeypatch, capsys):
    from adrenoc.compile.pipeline import STAGES
    from adrenoc.ir.options import resolve_options
    from adrenoc.target.target import load_target

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADRENOC_DUMP_DIR", "ir")
    _json(capsys, "compile", models["mixed_small"], "--no-cache")
    dumped = sorted(path.name for path in (tmp_path / "ir").iterdir())
    options = resolve_options(load_target("host")).options
    expected = [stage.name for stage in STAGES if stage.when(options)]
    assert [name.partition("_")[2].removesuffix(".txt") for name in dumped] == expected
    assert all((tmp_path / "ir" / name).stat().st_size for name in dumped)
    (built,) = (name for name in dumped if name.endswith("_build.txt"))
    assert "read_image" in (tmp_path / "ir" / built).read_text()


PROJECT = '[defaults]\ndevices = ["host:a660", "host:a750"]\n[[model]]\nfile = "net.onnx"\n'


def test_builds_side_by_side_and_the_same_again(tmp_path):
    weights = {"w": np.ones((8, 8), np.float32)}
    write(graph("y = MatMul(x, w)", {"x": [1, 8]}, ["y"], weights), tmp_path, "net.onnx")
    (tmp_path / "adrenoc.toml").write_text(PROJECT)
    command = ["build", str(tmp_path / "adrenoc.toml")]
    assert main(command) == 0
    lock = json.loads((tmp_path / "adrenoc.lock").read_text())
    targets = {one["name"]: one["target"] for one in lock["bundles"]}
    assert list(targets) == ["net-host-a660", "net-host-a750"]
    assert len(set(targets.values())) == 2
    assert main([*command, "--locked"]) == 0
    assert json.loads((tmp_path / "adrenoc.lock").read_text()) == lock
