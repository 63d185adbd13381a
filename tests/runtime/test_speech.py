"""The sample of speech, with a small synthesiser: its samples are onnxruntime's, of any length."""

from __future__ import annotations

import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from adrenoc.cli.main import main
from adrenoc.native.android.runtime_build import Runtime
from adrenoc.native.model import Model
from tests.script_module import load_script

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = "samples/speech"
TEXT = [3, 7, 1, 9, 20, 4, 4, 31]


@pytest.fixture(scope="module")
def folder(runtime: Runtime, opencl: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The synthesiser, cut in two; the voice compiled for 16 and for 32 frames."""
    folder = tmp_path_factory.mktemp("speech")
    for words in (
        ("scripts/make_synthesiser.py", "model.onnx"),
        (f"{SAMPLE}/split_synthesiser.py", "model.onnx", "."),
    ):
        subprocess.run([sys.executable, ROOT / words[0], *words[1:]], check=True, cwd=folder)
    command = ["compile", str(folder / "voice.onnx"), "--device", "host", "--preset", "fp32"]
    command += ["--shape", "latents:1,8,16|32", "-o", str(folder / "voice.adrenoc")]
    assert main(command) == 0
    return folder


def expect(folder: Path, ids: list[int]) -> np.ndarray:
    """What onnxruntime makes of the whole model, whose noise has a seed."""
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    row = np.array([ids])
    return session.run(None, {"input_ids": row, "attention_mask": np.ones_like(row)})[0][0]


@pytest.mark.parametrize(("ids", "frames"), [(TEXT[:1], 1), (TEXT, 11), (TEXT * 2, 22)])
def test_speech_is_that_of_onnxruntime(folder: Path, ids: list[int], frames: int) -> None:
    sample = load_script("speak.py", SAMPLE)
    front = onnxruntime.InferenceSession(folder / "front.onnx")
    with Model(folder / "voice.adrenoc") as voice:
        assert [bucket["latents"].shape for bucket in voice.buckets] == [(1, 8, 16), (1, 8, 32)]
        made = sample.speak(front, voice, np.array([ids]))
    expected = expect(folder, ids)
    assert made.shape == expected.shape == (16 * frames,)
    np.testing.assert_allclose(made, expected, atol=1e-4 * np.ptp(expected))


def test_frames_that_do_not_count_change_nothing(folder: Path) -> None:
    """Without the masks the last samples hear them."""
    feeds = {"input_ids": np.array([TEXT]), "attention_mask": np.ones((1, len(TEXT)), np.int64)}
    latents, mask = onnxruntime.InferenceSession(folder / "front.onnx").run(None, feeds)
    rest = ((0, 0), (0, 0), (0, 5))
    padded = {"latents": np.pad(latents, rest), "mask": np.pad(mask, rest)}
    expected = expect(folder, TEXT)
    _, plain = load_script("split_synthesiser.py", SAMPLE).split(onnx.load(folder / "model.onnx"))
    errors = []
    for voice in (onnx.load(folder / "voice.onnx"), plain):
        (made,) = onnxruntime.InferenceSession(voice.SerializeToString()).run(None, padded)
        errors.append(np.abs(made[0, : expected.size] - expected).max())
    assert errors[0] < 1e-6 and errors[1] > 1e-2


def test_it_is_written_as_wav(folder: Path) -> None:
    words = [str(ROOT / SAMPLE / "speak.py"), ".", "-o", "out.wav", "--ids"]
    subprocess.run([sys.executable, *words, "3,7,1,9,20,4,4,31"], check=True, cwd=folder)
    with wave.open(str(folder / "out.wav")) as file:
        assert (file.getframerate(), file.getnchannels()) == (16000, 1)
        made = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32767
    np.testing.assert_allclose(made, expect(folder, TEXT), atol=1e-3)
    ids = ",".join(map(str, TEXT * 4))
    done = subprocess.run(
        [sys.executable, *words, ids], check=False, capture_output=True, text=True, cwd=folder
    )
    assert done.returncode != 0
    assert "takes 44 frames, voice.adrenoc 32 at most" in done.stderr


def test_other_models_are_refused(folder: Path) -> None:
    cut = load_script("split_synthesiser.py", SAMPLE).split
    model = onnx.load(folder / "model.onnx")
    speaker = onnx.helper.make_node("Add", ["shifted", "durations"], ["told"])
    model.graph.node.insert(len(model.graph.node) - 12, speaker)
    for node in model.graph.node:
        if node.op_type == "Concat":
            node.input[1] = "told"
    with pytest.raises(SystemExit, match="durations"):
        cut(model)
    for node in model.graph.node:
        if node.op_type == "RandomNormalLike":
            node.op_type = "Identity"
    with pytest.raises(SystemExit, match="adds no noise to frames"):
        cut(model)
