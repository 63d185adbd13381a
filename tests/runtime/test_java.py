"""The Java classes of archives: a JVM loads, runs and closes models through them."""

import re
from pathlib import Path
from typing import Any

import pytest

from adrenoc.bundle.bundle import Bundle
from adrenoc.native.android.elf import read_elf
from adrenoc.native.android.java_classes import JNI_LIBRARY, compile_classes, java_folder
from adrenoc.native.android.link import ANDROID_PAGE_BYTES
from adrenoc.native.android.runtime_build import LIBRARY
from tests.commands import run_program
from tests.host.decoder_bundles import DecoderShape, make_decoder_bundle, write_decoder

GOLDEN = Path(__file__).parents[1] / "golden" / "java_api.txt"
LOADS = 1000
# A model that is not freed takes many times as much; what drivers and the JVM keep levels off.
MOST_GROWN_KIB = 16 * LOADS
PROMPT = (3, 5, 7, 11, 2, 9)
ROWS = 40


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


@pytest.fixture(scope="module")
def decoder(device: Any, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("decoder")
    model = write_decoder(folder, DecoderShape(layers=1, context=ROWS))
    return make_decoder_bundle(model, "fp32")[0]


def test_null_ends_no_process(jvm, decoder, opencl):
    """Each native function refuses null for all its objects."""
    source = (java_folder() / "src/org/adrenoc/Native.java").read_text("utf-8")
    takes = re.findall(r"static native [\w\[\]]+ \w+\(([^;]+)\);", source)
    taking = [what for what in takes if re.search(r"\[\] |Buffer |Object |OnToken ", what)]
    assert int(jvm.run("Nulls", opencl, decoder.path)) == len(taking)


def test_tokens_in_a_jvm(jvm, decoder, runtime, opencl):
    ids = ",".join(map(str, PROMPT))
    command = [runtime.runner, decoder.path, "--opencl", opencl, "--prompt", ids]
    tokens = jvm.execute(*command).out.splitlines()[0].split()
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
