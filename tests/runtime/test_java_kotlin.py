"""The sample app's coroutines over the Java classes, compiled by Kotlin and run in a JVM."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adrenoc.bundle.bundle import Bundle
from adrenoc.native.android.java_classes import java_folder
from tests.host.decoder_bundles import DecoderShape, make_decoder_bundle, write_decoder
from tests.runtime.jvm import Jvm
from tests.runtime.programs import HERE

pytestmark = pytest.mark.nightly  # the compiler takes half a minute
COROUTINES = "samples/android/app/src/main/kotlin/org/adrenoc/sample/Coroutines.kt"
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
    done = subprocess.run([npm, "root", "--global"], capture_output=True, text=True, check=False)
    home = Path(done.stdout.strip()) / "kotlin-compiler"
    return home if (home / "lib").is_dir() else None


@pytest.fixture(scope="module")
def kotlin(jvm: Jvm, tmp_path_factory: pytest.TempPathFactory) -> Jvm:
    """The JVM with `Coroutines.kt`, programs in Kotlin and what they need."""
    home = _find_kotlin()
    if home is None:
        pytest.skip("no Kotlin compiler: npm install --global kotlin-compiler")
    libraries = home / "lib"
    jars = [str(libraries / f"{name}.jar") for name in ("kotlin-stdlib", _CORE)]
    classes = tmp_path_factory.mktemp("kotlin") / "classes"
    path = os.pathsep.join((jvm.class_path, *jars))
    sources = [java_folder().parent / COROUTINES, *sorted((HERE / "java/kotlin").glob("*.kt"))]
    command = [jvm.java, "-cp", str(libraries / "*"), _COMPILER, "-kotlin-home", str(home)]
    command += ["-Werror", "-jvm-target", "17", "-cp", path, "-d", str(classes)]
    subprocess.run([*command, *map(str, sources)], check=True)
    return replace(jvm, class_path=os.pathsep.join((path, str(classes))))


def test_runs_that_are_cancelled(kotlin: Jvm, long_chain: Bundle, opencl: str) -> None:
    kotlin.run("ComputesKt", opencl, long_chain.path)


def test_tokens_in_a_flow(kotlin: Jvm, device: Any, opencl: str, tmp_path: Path) -> None:
    """Who stops collecting, or is cancelled, ends what makes tokens."""
    model = write_decoder(tmp_path, DecoderShape(layers=1, context=ROWS))
    decoder = make_decoder_bundle(model, "fp32")[0]
    ids = ",".join(map(str, PROMPT))
    tokens = kotlin.run("StreamsKt", opencl, decoder.path, ids).split()
    assert len(tokens) == ROWS - len(PROMPT) + 1
    assert kotlin.run("Tokens", opencl, decoder.path, ids).split() == tokens
