"""The sample app's coroutines over the Java classes, compiled by Kotlin and run in a JVM."""

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from adrenoc.cli.main import main
from adrenoc.native.android.runtime_toolchain import java_folder
from tests.commands import run_program
from tests.host.decoder_bundles import DecoderShape, make_decoder_bundle, make_writer, write_decoder
from tests.models import graph, write
from tests.runtime.jvm import Jvm
from tests.runtime.programs import HERE

pytestmark = pytest.mark.nightly  # the compiler takes half a minute
SAMPLE = "samples/android/app/src/main/kotlin/org/adrenoc/sample"
# What needs nothing of Android's but what stands in for it here.
PLAIN = ("Classifier", "Conversation", "Coroutines", "Segmenter")
PROMPT = (3, 5, 7, 11, 2, 9)
ROWS = 40
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


def test_runs_that_are_cancelled(kotlin, long_chain, opencl):
    kotlin.run("ComputesKt", opencl, long_chain.path)


def test_tokens_in_a_flow(kotlin, device, opencl, tmp_path):
    """Who stops collecting, or is cancelled, ends what makes tokens."""
    model = write_decoder(tmp_path, DecoderShape(layers=1, context=ROWS))
    decoder = make_decoder_bundle(model, "fp32")[0]
    ids = ",".join(map(str, PROMPT))
    tokens = kotlin.run("StreamsKt", opencl, decoder.path, ids).split()
    assert len(tokens) == ROWS - len(PROMPT) + 1
    assert kotlin.run("Tokens", opencl, decoder.path, ids).split() == tokens


def test_the_sample_s_conversation(kotlin, device, opencl, tmp_path):
    pytest.importorskip("tokenizers")
    pytest.importorskip("jinja2")
    bundle = make_writer(tmp_path)
    assert kotlin.run("TalksKt", opencl, bundle.path, "Hello there", "Why 你好?").strip() == "2"


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
