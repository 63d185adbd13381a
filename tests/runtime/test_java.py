"""The Java classes of archives: models, pictures, and the how-to's Java for onnxruntime."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from adrenoc.bundle.bundle import open_bundle
from adrenoc.bundle.onnx_context import PROVIDER as PROVIDER_NAME
from adrenoc.bundle.onnx_context import write_onnx_context
from adrenoc.bundle.tar import SUFFIX
from adrenoc.cli.main import main
from adrenoc.native.android.elf import read_elf
from adrenoc.native.android.link import ANDROID_PAGE_BYTES
from adrenoc.native.android.package.aar import model_content, name_models
from adrenoc.native.android.runtime_build import LIBRARY, PROVIDER
from adrenoc.native.android.runtime_toolchain import (
    JNI_LIBRARY,
    QUICKLY,
    compile_classes,
    find_javac,
    java_folder,
)
from tests.commands import run_program, skip_where_lacking
from tests.host.decoder_bundles import make_writer
from tests.models import graph, write
from tests.runtime.programs import HERE, ROWS, Jvm, without_sources

GOLDEN = Path(__file__).parents[1] / "golden" / "java_api.txt"
LOADS = 1000
# A model that is not freed takes many times as much; what drivers and the JVM keep levels off.
MOST_GROWN_KIB = 16 * LOADS
PROMPT = (3, 5, 7, 11, 2, 9)


def test_a_model_in_a_jvm(jvm, bundle, case, opencl, tmp_path):
    for name, array in case.arrays.items():
        (tmp_path / f"{name}.raw").write_bytes(array.tobytes())
    for name, array in case.outputs.items():
        (tmp_path / f"{name}.out").write_bytes(array.tobytes())
    tar = bundle.path.with_suffix(".tar")
    said = jvm.run("Runs", opencl, bundle.path, tar, tmp_path, tmp_path / "cache")
    described = [f"{s.name} {s.dtype}{list(s.shape)}" for s in bundle.manifest.inputs]
    assert said.splitlines() == described


def test_what_fails_has_its_own_class(jvm, bundle, opencl):
    jvm.run("Faults", opencl, bundle.path.with_suffix(".tar"))


def test_null_ends_no_process(jvm, decoder, opencl):
    """Each native function refuses null for all its objects."""
    source = (java_folder() / "src/org/adrenoc/Native.java").read_text("utf-8")
    takes = re.findall(r"static native [\w\[\]]+ \w+\(([^;]+)\);", source)
    taking = [what for what in takes if re.search(r"\[\] |Buffer |Object |OnToken ", what)]
    assert int(jvm.run("Nulls", opencl, decoder.path)) == len(taking)


def test_tokens_in_a_jvm(jvm, decoder, runner, opencl):
    ids = ",".join(map(str, PROMPT))
    tokens = runner(decoder.path, "--prompt", ids).out.splitlines()[0].split()
    assert len(tokens) == ROWS - len(PROMPT) + 1
    assert jvm.run("Tokens", opencl, decoder.path, ids).split() == tokens


def test_a_budget_of_memory(jvm, bundle, shapes, opencl):
    """Android's levels of onTrimMemory, too."""
    jvm.run("Budget", opencl, bundle.path, shapes.path)


def test_pieces_and_pauses(jvm, bundle, opencl):
    jvm.run("Pace", opencl, bundle.path)


def test_runs_that_are_cancelled(jvm, long_chain, opencl):
    """By the model, by signals and by futures; of several runs just the one that is meant."""
    jvm.run("Cancels", opencl, long_chain.path)


def test_what_java_declares_is_what_there_is(jvm, runtime):
    library = read_elf(jvm.libraries / JNI_LIBRARY)
    source = (java_folder() / "src/org/adrenoc/Native.java").read_text("utf-8")
    declared = set(re.findall(r"static native [\w\[\]]+ (\w+)\(", source))
    assert library.exported == {f"Java_org_adrenoc_Native_{name}" for name in declared}
    assert library.page_bytes >= ANDROID_PAGE_BYTES
    assert library.is_stripped
    assert LIBRARY in library.needed


def test_the_public_classes(jvm, request):
    """What apps call: a change here breaks them, and is reviewed as such."""
    names = {path.removesuffix(".class").replace("/", ".") for path in compile_classes()}
    shown = [str(Path(jvm.java).with_name("javap")), "-public", "-cp", jvm.class_path]
    done = run_program([*shown, *sorted(names)], check=True)
    public = [
        block
        for block in re.split(r"(?<=^})\n", done.stdout, flags=re.MULTILINE)
        if re.search(r"^public ", block, re.MULTILINE)
    ]
    text = re.sub(r"^Compiled from .*\n", "", "\n".join(public), flags=re.MULTILINE)
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text("utf-8")


@pytest.mark.nightly
def test_closing_gives_memory_back(jvm, bundle, opencl, tmp_path):
    words = (opencl, bundle.path, tmp_path / "cache", LOADS)
    before, after = map(int, jvm.run("Loops", *words, heap_mib=64).split())
    assert after - before < MOST_GROWN_KIB, f"{before} KiB grew to {after} by {LOADS} loads"


MEAN = np.array([0.485, 0.456, 0.406], "float32")
DEVIATION = np.array([0.229, 0.224, 0.225], "float32")
YUV = (37, 26)  # width and height of the camera's picture


@dataclass(frozen=True)
class Shot:
    """A picture's way into a tensor, and what is asked of it."""

    name: str
    source: str
    size: tuple[int, int]
    degrees: int
    fit: str
    order: str
    dtype: str
    shape: tuple[int, ...]

    def line(self) -> str:
        """As the program reads it."""
        words = (self.name, self.source, *self.size, self.degrees, self.fit, self.order)
        return " ".join(map(str, (*words, self.dtype, "x".join(map(str, self.shape)))))


def _shot(source: str, size: tuple[int, int], degrees: int, words: str, *shape: int) -> Shot:
    fit, order, dtype = words.split()
    name = f"{source}_{size[0]}_{degrees}_{fit}_{order}_{dtype}_{shape[1]}"
    return Shot(name, source, size, degrees, fit, order, dtype, shape)


SHOTS = (
    _shot("rgba", (64, 48), 0, "crop rgb float32", 1, 3, 12, 12),
    _shot("rgba", (40, 90), 90, "crop rgb float32", 1, 3, 16, 24),
    _shot("bitmap", (33, 21), 180, "stretch bgr float32", 1, 3, 10, 7),
    _shot("hardware", (33, 21), 270, "crop rgb uint8", 1, 10, 7, 3),
    _shot("image", (7, 5), 270, "stretch rgb float32", 1, 20, 30, 3),
    _shot("image", (16, 16), 450, "crop bgr int8", 16, 16, 3),
    _shot("rgba", (3, 200), 0, "stretch rgb uint8", 3, 5, 5),
    _shot("rgba", (1, 1), 90, "crop rgb float32", 1, 3, 2, 2),
    _shot("yuv", YUV, 90, "crop rgb float32", 1, 3, 12, 12),
    _shot("yuv", YUV, 0, "stretch bgr uint8", 1, 40, 50, 3),
)


def _filtered(picture: np.ndarray, shot: Shot) -> np.ndarray:
    """Red, green and blue at the tensor's size, turned."""
    image = pytest.importorskip("PIL.Image")
    planar = shot.shape[-3] == 3
    height, width = shot.shape[-2:] if planar else shot.shape[-3:-1]
    turns = shot.degrees // 90 % 4
    if turns % 2:
        height, width = width, height
    high, wide = picture.shape[:2]
    box = (0.0, 0.0, float(wide), float(high))
    if shot.fit == "crop":
        scale = min(wide / width, high / height)
        left, top = (wide - scale * width) / 2, (high - scale * height) / 2
        box = (left, top, left + scale * width, top + scale * height)
    channels = [
        np.asarray(
            image.fromarray(picture[:, :, c].astype("float32")).resize(
                (width, height), image.Resampling.BILINEAR, box=box
            )
        )
        for c in range(3)
    ]
    return np.rot90(np.stack(channels, axis=-1), -turns)


def _wanted(picture: np.ndarray, shot: Shot) -> np.ndarray:
    pixels = _filtered(picture, shot)
    if shot.dtype == "float32":
        pixels = (pixels / 255 - MEAN) / DEVIATION
    elif shot.dtype == "int8":
        pixels = pixels - 128
    if shot.order == "bgr":
        pixels = pixels[:, :, ::-1]
    if shot.shape[-3] == 3:
        pixels = pixels.transpose(2, 0, 1)
    return pixels.reshape(shot.shape)


def _camera_picture(rng: np.random.Generator, folder: Path) -> np.ndarray:
    """Luma and chromas as files, and the colours that they mean (JPEG's, over the full range)."""
    width, height = YUV
    luma = rng.integers(0, 256, (height, width), "uint8")
    chroma = rng.integers(0, 256, ((height + 1) // 2, (width + 1) // 2, 2), "uint8")
    (folder / "luma").write_bytes(luma.tobytes())
    (folder / "chroma").write_bytes(chroma.tobytes())
    whole = chroma.repeat(2, axis=0).repeat(2, axis=1)[:height, :width].astype("float64") - 128
    blue, red = whole[:, :, 0], whole[:, :, 1]
    colours = (luma + 1.402 * red, luma - 0.344136 * blue - 0.714136 * red, luma + 1.772 * blue)
    return np.clip(np.stack(colours, axis=-1), 0, 255)


@pytest.mark.nightly
def test_pictures_become_tensors(jvm, tmp_path):
    rng = np.random.default_rng(11)
    camera = _camera_picture(rng, tmp_path)
    pictures = {}
    for shot in SHOTS:
        pixels = rng.integers(0, 256, (shot.size[1], shot.size[0], 4), "uint8")
        pictures[shot.name] = camera if shot.source == "yuv" else pixels
        (tmp_path / f"{shot.name}.rgba").write_bytes(pixels.tobytes())
    (tmp_path / "cases").write_text("".join(f"{shot.line()}\n" for shot in SHOTS))
    jvm.run("Images", tmp_path)
    for shot in SHOTS:
        made = np.fromfile(tmp_path / f"{shot.name}.raw", shot.dtype).reshape(shot.shape)
        wanted = _wanted(pictures[shot.name], shot)
        # Integers are rounded, once.
        tolerance = 1e-4 if shot.dtype == "float32" else 0.5 + 1e-3
        np.testing.assert_allclose(made, wanted, rtol=0, atol=tolerance, err_msg=shot.name)


PAGE = HERE.parents[1] / "docs/how-to/onnxruntime.md"
PROGRAM = """
import ai.onnxruntime.*;
import android.content.Context;
import android.content.res.AssetManager;
import java.io.*;
import java.nio.file.*;
import java.util.*;

public class Sample {{
{sample}
  public static void main(String[] words) throws Exception {{
    AssetManager assets = new AssetManager(new File("none"));
    for (int i = 1; i < words.length; i += 2) {{
      assets.putCompressed(words[i], Files.readAllBytes(Paths.get(words[i + 1])));
    }}
    System.out.println(open(new Context(assets, new File(words[0]))));
  }}
}}
"""


def _compile(sample: str, folder: Path) -> list[str]:
    """The command that runs a program with the sample in it."""
    with skip_where_lacking():
        javac = find_javac()
    (folder / "Sample.java").write_text(PROGRAM.format(sample=sample))
    places = os.pathsep.join(str(one) for one in (HERE / "java/fakes", java_folder() / "stubs"))
    command = [javac, QUICKLY, "--release", "8", "-Xlint:all,-options", "-Werror"]
    command += ["-sourcepath", places, "-implicit:class", "-d", str(folder)]
    command.append(str(folder / "Sample.java"))
    subprocess.run(command, check=True)
    return [str(Path(javac).resolve().with_name("java")), "-cp", str(folder), "Sample"]


def test_the_sample_opens_what_packages_hold(phone_bundle, tmp_path):
    (sample,) = re.findall(r"^```java\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    name = phone_bundle.manifest.name
    # Whatever its file is called: the package has it by the model's name.
    bundle = open_bundle(shutil.copytree(phone_bundle.root, tmp_path / f"other{SUFFIX}"))
    (model,) = name_models([bundle])
    assert [path for path in model_content(model, 24, tmp_path) if "_ctx" in path] == []
    write_onnx_context(bundle.path)
    held = []
    for path, content in model_content(model, 24, tmp_path).items():
        if path.startswith("assets/"):
            file = tmp_path / Path(path).name
            file.write_bytes(content)
            held += [file.name, file]
    (app := tmp_path / "app").mkdir()
    command = _compile(sample.replace("mobilenet_v2", name), tmp_path)
    done = run_program([*command, app, *held], check=True)
    opened, provider, registered = done.stdout.splitlines()
    assert provider == f"{PROVIDER_NAME}{{cache_folder={app / 'cache/adrenoc'}}}"
    assert registered == f"[{PROVIDER}]"
    (node,) = onnx.load(opened).graph.node
    (named,) = (one.s.decode() for one in node.attribute if one.name == "ep_cache_context")
    packed = open_bundle(Path(opened).parent / named)
    assert packed.manifest == without_sources(phone_bundle.manifest)


TAKES_LONG = pytest.mark.nightly
"""Kotlin's compiler takes half a minute."""
SAMPLE = "samples/android/app/src/main/kotlin/org/adrenoc/sample"
# What needs nothing of Android's but what stands in for it here.
PLAIN = ("Classifier", "Conversation", "Coroutines", "Segmenter")
_CORE = "kotlinx-coroutines-core-jvm"
_COMPILER = "org.jetbrains.kotlin.cli.jvm.K2JVMCompiler"


def _find_kotlin() -> Path | None:
    """The compiler's folder: that of the program on the PATH, or npm's package, which has none."""
    compiler, npm = shutil.which("kotlinc"), shutil.which("npm")
    if compiler is not None:
        return Path(compiler).resolve().parents[1]
    if npm is None:
        return None
    home = Path(run_program([npm, "root", "--global"]).stdout.strip()) / "kotlin-compiler"
    return home if (home / "lib").is_dir() else None


@pytest.fixture(scope="module")
def kotlin(jvm, tmp_path_factory) -> Jvm:
    """The JVM with the sample's classes, programs in Kotlin and what they need."""
    home = _find_kotlin()
    if home is None:
        pytest.skip("no Kotlin compiler: npm install --global kotlin-compiler")
    libraries = home / "lib"
    jars = [str(libraries / f"{name}.jar") for name in ("kotlin-stdlib", _CORE)]
    classes = tmp_path_factory.mktemp("kotlin") / "classes"
    path = os.pathsep.join((jvm.class_path, *jars))
    sample = java_folder().parent / SAMPLE
    sources = [sample / f"{name}.kt" for name in PLAIN]
    sources += sorted((HERE / "java/kotlin").glob("*.kt"))
    command = [jvm.java, "-cp", str(libraries / "*"), _COMPILER, "-kotlin-home", str(home)]
    command += ["-Werror", "-jvm-target", "17", "-cp", path, "-d", str(classes)]
    subprocess.run([*command, *map(str, sources)], check=True)
    return replace(jvm, class_path=os.pathsep.join((path, str(classes))))


@TAKES_LONG
def test_runs_that_coroutines_cancel(kotlin, long_chain, opencl):
    kotlin.run("ComputesKt", opencl, long_chain.path)


@TAKES_LONG
def test_tokens_in_a_flow(kotlin, decoder, opencl):
    """Who stops collecting, or is cancelled, ends what makes tokens."""
    ids = ",".join(map(str, PROMPT))
    tokens = kotlin.run("StreamsKt", opencl, decoder.path, ids).split()
    assert len(tokens) == ROWS - len(PROMPT) + 1
    assert kotlin.run("Tokens", opencl, decoder.path, ids).split() == tokens


@TAKES_LONG
def test_the_sample_s_conversation(kotlin, device, opencl, tmp_path):
    pytest.importorskip("tokenizers")
    pytest.importorskip("jinja2")
    bundle = make_writer(tmp_path)
    assert kotlin.run("TalksKt", opencl, bundle.path, "Hello there", "Why 你好?").strip() == "2"


@TAKES_LONG
def test_the_sample_s_eyes(kotlin, device, opencl, tmp_path):
    """Scores are the colours of a picture: kinds before rows, behind them, one; and their means."""
    kinds = {
        "first": "y = Conv(x, eye)",
        "last": "c = Conv(x, eye) y = Transpose<perm=[0, 2, 3, 1]>(c)",
        "one": "y = Conv(x, red)",
        "class": "c = Conv(x, eye) y = ReduceMean<axes=[2, 3], keepdims=0>(c)",
    }
    eye = np.eye(3, dtype=np.float32).reshape(3, 3, 1, 1)
    bundles = []
    for name, nodes in kinds.items():
        made = graph(nodes, {"x": (1, 3, 8, 8)}, ["y"], {"eye": eye, "red": eye[:1]})
        bundles.append(tmp_path / f"{name}.adrenoc")
        words = [str(write(made, tmp_path, f"{name}.onnx")), "--device", "host", "-o"]
        assert main(["compile", *words, str(bundles[-1]), "--no-cache"]) == 0
    assert kotlin.run("SeesKt", opencl, *bundles).strip() == "3"
