"""Commands of README and docs/ work as they are typed, one page after the other, top to bottom.

Pages of tasks find small models under the names that they use; tutorials make their own.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from adrenoc.cli.main import main
from tests.mcu.judge import needs_emulator
from tests.mcu.networks import wake_words
from tests.models import graph, write_stepper
from tests.opencl.implementation import plain_builds

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```", re.M | re.S)
_EXPECTED = 'title="It prints, among others"'


def _read_blocks(page: Path) -> list[tuple[str, str, str]]:
    """Return the language, the title and the text of each block of a page."""
    found = _BLOCK.findall(page.read_text(encoding="utf-8"))
    return [(language, title.strip(), text) for language, title, text in found]


_PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if any(language == "sh" and not title for language, title, _ in _read_blocks(path))
]

_UNDER_QEMU = ("docs/tutorials/first-microcontroller.md",)
_NIGHTLY = ("README.md", "docs/how-to/accuracy.md", "docs/how-to/pipelines.md")
"""The first tutorial types what the first does; `test_check_accuracy.py`,
`test_text_to_image.py` and `test_speech.py` have smaller networks."""


def _write_inputs(folder: Path) -> None:
    """Write what the pages of tasks name."""
    nodes = (
        "c = Conv <strides = [2, 2], pads = [1, 1, 1, 1]>(input, w) r = Relu(c) "
        "g = GlobalAveragePool(r) f = Flatten(g) output = MatMul(f, v)"
    )
    random = np.random.default_rng(0)
    weights = {"w": random.standard_normal((8, 3, 3, 3)), "v": random.standard_normal((8, 10))}
    constants = {name: value.astype(np.float32) for name, value in weights.items()}
    model = graph(nodes, {"input": (1, 3, 64, 64)}, ["output"], constants)
    onnx.save(onnx.shape_inference.infer_shapes(model), folder / "mobilenet_v2.onnx")
    (folder / "small_int8.tflite").write_bytes(wake_words(size=32))
    model = onnx.load(folder / "mobilenet_v2.onnx")
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    del model.graph.value_info[:]
    onnx.save(model, folder / "open.onnx")
    write_stepper(folder, (1, 8)).rename(folder / "stepper.onnx")
    np.save(folder / "pixels.npy", np.zeros((1, 3, 64, 64), np.float32))
    script = ROOT / "scripts" / "make_decoder.py"
    subprocess.run([sys.executable, str(script), str(folder / "demo")], check=True)


@pytest.fixture(scope="module")
def inputs(optimising_device, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    _write_inputs(folder)
    return folder


def _run_line(line: str, capfd: pytest.CaptureFixture[str]) -> str:
    """Run one line in this folder, as a shell would, and return what it prints."""
    line, _, target = line.partition(" > ")
    program, *words = shlex.split(line.replace("ADRENOC", str(ROOT)))
    if program == "python":
        script = str(ROOT / words[0])
        subprocess.run([sys.executable, script, *words[1:]], check=True)
        return ""
    assert program == "adrenoc", f"{line}: neither adrenoc nor python"
    capfd.readouterr()
    code = main(words)
    out, err = capfd.readouterr()
    assert code == 0, f"{line}: {code}\n{out}{err}"
    if target:
        Path(target).write_text(out, encoding="utf-8")
    return out + err


def _marked(page: str):
    marks = [needs_emulator] * (page in _UNDER_QEMU) + [pytest.mark.nightly] * (page in _NIGHTLY)
    return pytest.param(page, marks=marks)


@pytest.mark.parametrize("page", [_marked(page) for page in _PAGES])
def test_commands_work(page, inputs, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    # A newcomer's first compilation comes from no cache, whichever page was tried before.
    is_first = page.startswith("docs/tutorials/") or page == "README.md"
    kept = (tmp_path if is_first else inputs).parent / f"{page.replace('/', '-') * is_first}cache"
    monkeypatch.setattr("adrenoc.compile.make.cache_folder", lambda: kept)
    if is_first:
        _type_all(page, capfd)
        return
    for path in inputs.iterdir():
        (tmp_path / path.name).symlink_to(path)
    with plain_builds():
        _type_all(page, capfd)


def _type_all(page: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Type a page's commands in this folder; what it shows is in what they print."""
    printed = ""
    for language, title, text in _read_blocks(ROOT / page):
        if re.fullmatch(r'title="[\w.]+\.toml"', title):
            Path(title[7:-1]).write_text(text, encoding="utf-8")
        elif language == "sh" and not title:
            lines = text.replace("\\\n", " ").splitlines()
            printed = "".join(_run_line(line, capfd) for line in lines if line.strip())
        elif title == _EXPECTED:
            missing = [line for line in text.splitlines() if line.strip() not in printed]
            assert not missing, f"{missing} in what {page} shows; it prints\n{printed}"
