"""What users get wrong, end to end: one sentence, a hint, a code; nothing half-written."""

import resource
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from adrenoc.base.errors import (
    AdrenocError,
    BundleError,
    CustomDomainError,
    DiskFullError,
    InputError,
    ModelFormatError,
    ModelNotFoundError,
    OptionError,
    OutputError,
    ShapeError,
    TargetError,
    UnsupportedOperatorError,
)
from adrenoc.cli.main import main
from tests.commands import run_program
from tests.models import graph, network, write

SHAPE = (1, 4, 8, 8)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """An empty working folder with a cache of its own elsewhere."""
    monkeypatch.setenv("ADRENOC_CACHE_DIR", str(tmp_path / "cache"))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


def _one(op: str, domain: str = "") -> onnx.ModelProto:
    node = helper.make_node(op, ["x"], ["y"], name="the_node", domain=domain)
    return graph([node], {"x": SHAPE}, ["y"], domains=[domain] if domain else [])


def _dynamic(*dims: int | str) -> onnx.ModelProto:
    return graph("y = Relu(x)", {"x": dims or ("batch", *SHAPE[1:])}, ["y"])


def _truncated(name: str, size: int, width: float) -> bytes:
    content = network(name, size=size, width=width)
    return content[: len(content) // 2]


def _without_its_weights() -> onnx.ModelProto:
    model = graph("y = Add(x, w)", {"x": SHAPE}, ["y"], {"w": np.ones(SHAPE, "float32")})
    (tensor,) = model.graph.initializer
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")
    return model


Words = tuple[str, ...]
Content = bytes | Callable[[], bytes | onnx.ModelProto] | None
_RELU = partial(_one, "Relu")
_OPEN = partial(_dynamic, "batch", 3, "height", "width")

CASES: dict[str, tuple[Content, Words, type[AdrenocError], Words]] = {
    "truncated": (
        partial(_truncated, "squeezenet", 64, 0.25),
        (),
        ModelFormatError,
        ("model.onnx",),
    ),
    "truncated tflite": (
        partial(_truncated, "mixed_small", 31, 1.0),
        ("model.tflite",),
        ModelFormatError,
        ("model.tflite", "damaged or cut off"),
    ),
    "empty": (b"", (), ModelFormatError, ("model.onnx is empty",)),
    "text": (
        b"404: no such file; " * 20,
        (),
        ModelFormatError,
        ("is a text file", "404: no such file"),
    ),
    "pointer": (
        b"version https://git-lfs.github.com/spec/v1\n",
        (),
        ModelFormatError,
        ("Git LFS pointer", "git lfs pull"),
    ),
    "missing": (None, (), ModelNotFoundError, ("model.onnx does not exist",)),
    "missing weights": (_without_its_weights, (), ModelNotFoundError, ("weights.bin",)),
    "unknown operator": (
        partial(_one, "Frobnicate"),
        (),
        UnsupportedOperatorError,
        ("Frobnicate", "the_node"),
    ),
    "custom domain": (
        partial(_one, "Relu", "com.example"),
        (),
        CustomDomainError,
        ("com.example.Relu", "the_node"),
    ),
    "open dimension": (_OPEN, (), ShapeError, ("'x'", "--shape x:1,3,224,224")),
    "shape of wrong rank": (_dynamic, ("--shape", "x:1,4"), ShapeError, ("2 dimensions",)),
    "shape that contradicts": (_dynamic, ("--shape", "x:1,5,8,8"), ShapeError, ("asks for 5",)),
    "shape of no input": (_dynamic, ("--shape", "z:1"), ShapeError, ("no input 'z'",)),
    "shape of letters": (_dynamic, ("--shape", "x:a,b"), ShapeError, ("NAME:D,D",)),
    "unknown device": (
        _RELU,
        ("--device", "adreno:751"),
        TargetError,
        ("did you mean", "adrenoc targets"),
    ),
    "unknown preset": (_RELU, ("--preset", "fp17"), OptionError, ("fp17", "adrenoc presets")),
    "output in no folder": (
        _RELU,
        ("-o", "nowhere/net.adrenoc"),
        OutputError,
        ("does not exist", "mkdir -p"),
    ),
    "output over a file": (_RELU, ("-o", "model.onnx"), OutputError, ("is an input",)),
    "output below a file": (
        _RELU,
        ("-o", "model.onnx/net.adrenoc"),
        OutputError,
        ("not a folder",),
    ),
    # In sysfs nobody makes files, not even root.
    "read-only output": (_RELU, ("-o", "/sys/net.adrenoc"), OutputError, ("/sys/net.adrenoc",)),
}


def _check_said(said: str, code: int, error: type[AdrenocError], words: Words) -> None:
    assert code == error.exit_code, said
    assert "Traceback" not in said
    lines = said.strip().splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("error: "))
    assert len(lines) - first == 2, f"one sentence and one hint, please:\n{said}"
    assert lines[-1].startswith("  try: ")
    assert len(lines[-1]) > len("  try: ")
    for word in words:
        assert word in "\n".join(lines[first:])


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


@pytest.mark.parametrize("case", CASES)
def test_compile(case, folder, capfd):
    made, options, error, words = CASES[case]
    model, *rest = options if options[:1] == ("model.tflite",) else ("model.onnx", *options)
    content = made() if callable(made) else made
    if isinstance(content, onnx.ModelProto):
        write(content, folder)
    elif content is not None:
        (folder / model).write_bytes(content)
    before = _files(folder)
    code = main(["compile", model, *rest])
    _check_said(capfd.readouterr().err, code, error, words)
    assert _files(folder) == before


def test_an_older_bundle_survives_a_failure(folder):
    write(_one("Relu"), folder)
    assert main(["compile", "model.onnx"]) == 0
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    good = (folder / "model.onnx").read_bytes()
    write(_one("Frobnicate"), folder)
    assert main(["compile", "model.onnx"]) == UnsupportedOperatorError.exit_code
    (folder / "model.onnx").write_bytes(good)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("form", [(), ("-o", "model.adrenoc.tar")], ids=["folder", "tar"])
def test_a_disk_that_fills_up(folder, form):
    """A process that may not write files above 256 KiB meets the end of the disk in earnest."""
    weights = np.random.default_rng(0).standard_normal((256, 256, 3, 3)).astype("float32")
    nodes = "y = Conv <pads = [1, 1, 1, 1]>(x, w)"
    write(graph(nodes, {"x": (1, 256, 8, 8)}, ["y"], {"w": weights}), folder)
    before = _files(folder)
    limit = 256 << 10
    done = run_program(
        [sys.executable, "-m", "adrenoc", "compile", "model.onnx", *form],
        env={
            "ADRENOC_CACHE_DIR": str(folder.parent / "cache"),
            "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
        },
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    _check_said(done.stderr, done.returncode, DiskFullError, ("cannot write", "--output"))
    assert _files(folder) == before
    assert not (folder.parent / "cache").exists() or not list(
        (folder.parent / "cache").rglob("manifest.json")
    )


RUN_CASES: dict[str, tuple[Words, type[AdrenocError], Words]] = {
    "no bundle": (("run", "nothing.adrenoc"), BundleError, ("nothing.adrenoc",)),
    "no bundle either": (("run", "other"), BundleError, ("holds no manifest.json",)),
    "of a phone": (("run", "model.adrenoc"), BundleError, ("adreno", "--device host")),
    "unknown input": (("run", "model.adrenoc", "--input", "z=z.npy"), InputError, ("z",)),
    "damaged": (("inspect", "damaged.adrenoc"), BundleError, ("damaged.adrenoc",)),
}


@pytest.mark.parametrize("case", RUN_CASES)
def test_run_and_inspect(case, folder, capfd):
    command, error, words = RUN_CASES[case]
    write(_one("Relu"), folder)
    for name in ("model.adrenoc", "damaged.adrenoc"):
        assert main(["compile", "model.onnx", "-o", name]) == 0
    library = folder / "damaged.adrenoc" / "model.so"
    library.write_bytes(library.read_bytes()[:-1])
    (folder / "other").mkdir()
    np.save(folder / "z.npy", np.zeros(SHAPE, "float32"))
    capfd.readouterr()
    code = main(list(command))
    _check_said(capfd.readouterr().err, code, error, words)
