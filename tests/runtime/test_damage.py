"""Damaged bundles and cache files: refused, under the eyes of the sanitizers, and never a crash."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import adrenoc
from adrenoc.bundle.bundle import Bundle, write_app_tar
from tests.compilers import compile_once, write_unit
from tests.runtime.programs import Finished

Execute = Callable[..., Finished]

ROUNDS = 600
NATIVE = Path(adrenoc.__file__).parent / "native"
# The readers of the runtime: none of them needs TVM.
CACHE_READERS = ("src/base/sha256", "src/base/sha256_instructions")
TENSOR_READERS = ("src/base/half", "src/base/json")
READERS = (*CACHE_READERS, *TENSOR_READERS, "runtime/src/bundle/inflate")


def build_damage(folder: Path) -> Path:
    """Compile the program that damages and reads, with sanitizers, for thousands of cases."""
    return build_with_readers("damage.cc", folder, level="-O1")


def build_with_readers(
    source: str, folder: Path, readers: Sequence[str] = READERS, level: str = "-O0"
) -> Path:
    """Compile a file of this folder with readers of the runtime, with sanitizers.

    To optimise them takes the compiler two and a half times as long.
    """
    program = folder / Path(source).stem
    sources = [Path(__file__).with_name(source), *(NATIVE / f"{name}.cc" for name in readers)]
    unit = write_unit(folder / f"{program.name}_unit.cc", sources)
    command = ["c++", "-std=c++17", level, "-g1", "-Wall", "-Wextra", "-Werror"]
    command += ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    command += [f"-I{NATIVE / 'include'}", f"-I{NATIVE / 'src'}", f"-I{NATIVE / 'runtime' / 'src'}"]
    return compile_once([*command, unit], program)


@pytest.fixture(scope="module")
def damage(work) -> Path:
    return build_with_readers("damage.cc", work)


@pytest.mark.nightly
@pytest.mark.parametrize("for_app", [False, True])
@pytest.mark.parametrize("kind", ["bundle", "shapes"])
@pytest.mark.parametrize("seed", [1, 2])
def test_damaged_bundles_are_refused(damage, execute, tmp_path, seed, kind, for_app, request):
    whole: Bundle = request.getfixturevalue(kind)
    tar = whole.path.with_suffix(".tar")
    if for_app:
        tar = tmp_path / "app.tar"
        write_app_tar(whole.root, tar, name=whole.manifest.name)
    accepted = int(execute(damage, tar, seed, ROUNDS, tmp_path).out)
    # Some damage does not matter (a letter of a kernel's name in the manifest, blanks); what lies
    # behind a digest and most of the rest does.
    assert 0 < accepted < ROUNDS / 2


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("name", "../../../x"),
        ("name", 'x")\nexecute_process(COMMAND id)'),
        ("name", "a" * 101),
        ("files.0.path", "../x"),
        ("files.0.path", "a//b"),
        ("files.0.path", "/etc/passwd"),
        ("files.0.path", "a" * 300),
        ("target.name", "x; id"),
        ("inputs.0.dtype", "\x1b[2J"),
        ("params.0.scope", ""),
    ],
)
def test_hostile_names_are_refused(damage, bundle, execute, tmp_path, path, name):
    """The runtime takes the names that Python takes, and shows no others as they are."""
    plain = json.loads((bundle.root / "manifest.json").read_text(encoding="utf-8"))
    file = tmp_path / "manifest.json"
    file.write_text(json.dumps(plain), encoding="utf-8")
    assert execute(damage, file).out.endswith(" accepted\n")
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    place = plain
    for step in steps:
        place = place[step]
    place[last] = name
    file.write_text(json.dumps(plain), encoding="utf-8")
    said = execute(damage, file).out
    shown = ".".join(str(step) for step in (*steps, last)).replace(".0", "[0]")
    assert f"manifest.json: {shown} is " in said and "expected" in said
    assert said.strip().isprintable() and len(said) < 500


def test_a_manifest_with_a_long_key_takes_little_memory(damage, execute, tmp_path):
    """Each element knows its place; the texts of all places would be the file squared."""
    file = tmp_path / "manifest.json"
    file.write_text(f'{{"{"k" * 120_000}": [{"0," * 59_999}0]}}', encoding="utf-8")
    peak_kib, _, said = execute(damage, file).out.partition(" ")
    assert said.startswith("manifest.json lacks the key `schema_version`")
    assert 0 < int(peak_kib) < 300_000  # with the sanitizers; it was 6.9 GiB without
