"""`adrenoc build`: what a project lists is made, held against gates, and locked."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from adrenoc.base.errors import LockError, ModelNotFoundError, OptionError, OutputError, PolicyError
from adrenoc.bundle.bundle import open_bundle
from adrenoc.cli.main import main
from adrenoc.project.project_file import read_project, resolve_words
from tests.commands import compile_here

Build = Callable[..., int]


@pytest.fixture
def build(monkeypatch, model, compiled) -> Build:
    """Run the command in a folder with a model, each compilation within this process."""
    compile_here(monkeypatch)

    def build(text: str | None, *words: str) -> int:
        if text is not None:
            Path("adrenoc.toml").write_text(text)
        return main(["build", "--jobs", "1", *words])

    return build


ONE = '[[model]]\nfile = "net.tflite"\n'
TWO = '[defaults]\ndevices = ["adreno:660", "adreno:750"]\n' + ONE


def test_bundles_and_lock_are_made(build, compiled):
    assert build(TWO) == 0
    names = sorted(path.name for path in Path("build").iterdir())
    assert names == ["net-adreno-660.adrenoc", "net-adreno-750.adrenoc"]
    lock = json.loads(Path("adrenoc.lock").read_text())
    assert [one["name"] for one in lock["bundles"]] == ["net-adreno-660", "net-adreno-750"]
    assert len(compiled) == 2
    before = Path("adrenoc.lock").read_bytes()
    assert build(None, "--locked") == 0
    assert build(None) == 0
    assert Path("adrenoc.lock").read_bytes() == before


def test_a_folder_of_models_is_a_model(build):
    folder = Path("net", "onnx")
    folder.mkdir(parents=True)
    for name in ("model.tflite", "model_fp16.tflite"):
        shutil.copy("net.tflite", folder / name)
    assert build('[[model]]\nfile = "net"\ndtype = "fp16"\n') == 0
    recipe = read_project(Path("adrenoc.toml")).recipes[0]
    assert recipe.name == "net" and recipe.model == folder / "model_fp16.tflite"
    assert open_bundle(Path("build", "net.adrenoc")).manifest.model.file == "model_fp16.tflite"


def test_numbers_that_a_folder_lacks_are_told(build, capsys):
    Path("net", "onnx").mkdir(parents=True)
    shutil.copy("net.tflite", Path("net", "onnx", "model.tflite"))
    assert build('[[model]]\nfile = "net"\ndtype = "q4"\n') == OptionError.exit_code
    assert "holds a model of fp32, and none of q4" in capsys.readouterr().err


def test_projects_of_one_folder_have_locks_of_their_own(build):
    Path("other.toml").write_text(TWO)
    assert build(ONE) == 0
    before = Path("adrenoc.lock").read_bytes()
    assert build(None, "other.toml") == 0
    assert Path("adrenoc.lock").read_bytes() == before
    assert len(json.loads(Path("other.lock").read_text())["bundles"]) == 2
    assert build(None, "other.toml", "--locked") == 0


def test_locked_names_all_that_differs_before_it_compiles(build, compiled, capsys):
    assert build(TWO, "--locked") == LockError.exit_code  # there is none
    assert build(TWO) == 0
    count = len(compiled)
    with Path("net.tflite").open("ab") as file:
        file.write(b"more")
    changed = TWO.replace('"adreno:750"', '"adreno:830"') + 'preset = "fp16"\n'
    capsys.readouterr()
    assert build(changed, "--locked") == LockError.exit_code
    said = capsys.readouterr().err
    assert "net-adreno-660: model " in said
    assert "`--device adreno:660`, now `--device adreno:660 --preset fp16`" in said
    assert "net-adreno-830 is not in the lock" in said
    assert len(compiled) == count


def test_locked_sees_another_tool_and_another_result(build, capsys):
    assert build(ONE) == 0
    lock = Path("adrenoc.lock")
    good = lock.read_text()
    plain = json.loads(good)
    (one,) = plain["bundles"]
    one["tools"]["numpy"] = "0.1"
    lock.write_text(json.dumps(plain))
    assert build(None, "--locked") == LockError.exit_code
    assert "net: numpy 0.1, now " in capsys.readouterr().err
    one["tools"] = json.loads(good)["bundles"][0]["tools"]
    one["parts"]["model.so"] = "00" * 32
    one["figures"]["launches"] = 7
    lock.write_text(json.dumps(plain))
    capsys.readouterr()
    assert build(None, "--locked", "--json") == LockError.exit_code
    (outcome,) = json.loads(capsys.readouterr().out)["bundles"]
    assert outcome["status"] == "differs"
    assert any(note.startswith("net: model.so 000000000000, now ") for note in outcome["notes"])
    assert "net: launches 7, now 2" in outcome["notes"]
    assert json.loads(lock.read_text()) == plain  # which is never written by --locked


@pytest.mark.parametrize("form", ["", "tar = true\n"])
def test_locked_writes_no_bundle_that_differs(build, form):
    assert build(ONE + form) == 0
    lock, good = Path("adrenoc.lock"), Path("adrenoc.lock").read_text()
    (bundle,) = Path("build").iterdir()
    _remove(bundle)
    changed = json.loads(good)
    changed["bundles"][0]["parts"]["model.so"] = "00" * 32
    lock.write_text(json.dumps(changed))
    assert build(None, "--locked") == LockError.exit_code
    assert not list(Path("build").iterdir())
    bundle.write_text("what was there")
    assert build(None, "--locked") == LockError.exit_code
    assert bundle.read_text() == "what was there"
    bundle.unlink()
    lock.write_text(good)
    assert build(None, "--locked") == 0
    open_bundle(bundle)
    assert list(Path("build").iterdir()) == [bundle]


def _remove(bundle: Path) -> None:
    shutil.rmtree(bundle) if bundle.is_dir() else bundle.unlink()


def test_gates_of_the_file_and_of_a_model(build, capsys):
    assert build("[gates]\nlaunches = 1\n" + ONE) == PolicyError.exit_code
    assert not Path("adrenoc.lock").exists()
    assert "launches: 2, 1 allowed" in capsys.readouterr().err
    assert build("[gates]\nlaunches = 1\n" + ONE + "[model.gates]\nlaunches = 2\n") == 0
    assert build("[gates]\nsize_mib = 0.0001\ntime_us = 5\n" + ONE) == PolicyError.exit_code
    said = capsys.readouterr().out
    assert "size_mib: " in said and "time_us: not known" in said


def test_growth_is_held_against_the_lock_until_it_is_accepted(build):
    assert build('[gates]\ngrow = "launches"\n' + ONE) == 0
    lock = Path("adrenoc.lock")
    plain = json.loads(lock.read_text())
    plain["bundles"][0]["figures"]["launches"] = 1
    lock.write_text(json.dumps(plain))
    assert build(None) == PolicyError.exit_code
    assert json.loads(lock.read_text()) == plain
    assert build(None, "--accept") == 0
    assert json.loads(lock.read_text())["bundles"][0]["figures"]["launches"] == 2
    assert build(None) == 0


def test_one_that_fails_does_not_stop_the_others(build, monkeypatch, capsys):
    text = ONE + '[[model]]\nname = "other"\nfile = "net.tflite"\npreset = "nothing"\n'
    words = ["--junit", "j.xml"]
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert build(text, *words) == OptionError.exit_code
    said = capsys.readouterr()
    assert "::error file=adrenoc.toml,title=other%3A failed::" in said.out
    assert said.err.count("error: ") == 1
    lines = {line.split()[1]: line.split()[0] for line in said.err.splitlines() if line[:2] == "  "}
    assert lines["net"] == "✓"
    assert lines["other"] == "!"
    assert "lock  not written" in said.out
    assert Path("build/net.adrenoc").is_dir()
    assert not Path("adrenoc.lock").exists()
    root = ElementTree.fromstring(Path("j.xml").read_text())
    cases = {case.get("name"): case for case in root.iter("testcase")}
    assert set(cases) == {"net", "other"}
    assert cases["net"].find("failure") is None and cases["other"].find("failure") is not None
    assert "launches=2" in (cases["net"].findtext("system-out") or "")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[[model]]\n",
        "[[model]]\nfile = 1\n",
        "[[model]]\nfile = 'net.tflite'\nspeed = 1\n",
        "[[model]]\nfile = 'net.tflite'\ndevices = 'adreno'\n",
        ONE + ONE,
        "[gates]\ngrow = 'speed'\n" + ONE,
        ONE + "tuning_log = 'missing.json'\n",
        ONE.replace("net", "ne\\u0000t"),
        ONE + 'shapes = ["x:1\\u0000"]\n',
        ONE + "preset = 1979-05-27\n",
        ONE + "[model.gates]\nlaunches = -1\n",
        "[gates]\nsize_mib = -0.5\n" + ONE,
    ],
)
def test_wrong_projects_are_one_sentence(build, text, capsys):
    assert build(text) == OptionError.exit_code
    assert capsys.readouterr().err.count("error: ") == 1
    assert not Path("build").exists()


def test_a_misspelt_key_is_guessed(build, capsys):
    assert build(ONE + "[model.gates]\nlaunchs = 1\n") == OptionError.exit_code
    assert '`launchs` (did you mean "launches"?)' in capsys.readouterr().err


def test_what_is_missing_or_in_the_way_is_told(build):
    assert main(["build"]) == OptionError.exit_code
    assert build(ONE.replace("net", "gone")) == ModelNotFoundError.exit_code
    Path("build").write_text("a file")
    assert build(ONE) == OutputError.exit_code
    Path("adrenoc.lock").write_text("{")
    assert build(ONE) == LockError.exit_code
    Path("adrenoc.lock").write_text('{"schema_version": 9}')
    assert build(ONE) == LockError.exit_code


def test_settings_become_the_words_of_compile(tmp_path):
    file = tmp_path / "adrenoc.toml"
    file.write_text(
        '[defaults]\npreset = "fp16"\nforbid = ["cpu"]\nwinograd = false\n'
        '[[model]]\nfile = "a/m.onnx"\nshapes = ["x:1..4,3"]\ntuning_log = "a/t.json"\n'
        'devices = ["host:my/gpu.toml"]\nmax_memory_mib = 9\ntar = true\nname = "mine"\n'
    )
    (recipe,) = read_project(file).recipes
    assert list(resolve_words(recipe)) == [
        *("compile", str(tmp_path / "a/m.onnx"), "--device", f"host:{tmp_path / 'my/gpu.toml'}"),
        *(
            "--preset",
            "fp16",
            "--shape",
            "x:1..4,3",
            "--set",
            "forbid=cpu",
            "--set",
            "max_memory_mib=9",
        ),
        *("--set", "winograd=false", "--tuning-log", str(tmp_path / "a/t.json")),
        *("--output", str(tmp_path / "build/mine.adrenoc.tar"), "--json"),
    ]


def test_target_files_may_stand_in_a_set(tmp_path):
    file = tmp_path / "adrenoc.toml"
    file.write_text(
        '[[model]]\nfile = "m.onnx"\ndevices = ["host:660, host:my/gpu.toml,host:b.toml"]\n'
    )
    (recipe,) = read_project(file).recipes
    mine, other = tmp_path / "my/gpu.toml", tmp_path / "b.toml"
    assert resolve_words(recipe)[3] == f"host:660,host:{mine},host:{other}"
    assert {mine, other} <= set(recipe.reads.values())
    assert len(recipe.reads) == 3


def test_annotations_stay_one_line():
    from adrenoc.project.build_project import FAILED, BuildResult, BundleOutcome, list_annotations

    one = BundleOutcome(
        name="a,b",
        model="m",
        status=FAILED,
        path="p",
        message="100%\n::error::x\u202e",
        exit_code=1,
    )
    result = BuildResult(bundles=(one,), lock_written=False, lock_is_there=False)
    (line,) = list_annotations(result, Path("t.toml"))
    assert line == "::error file=t.toml,title=a%2Cb%3A failed::100%25%0A::error::x\\u202e"


@pytest.mark.parametrize("output", ["net.tflite", "net.tflite/below"])
def test_a_folder_in_the_way_of_bundles_is_named_by_its_key(build, output, capsys):
    """`adrenoc build` has no --output."""
    assert build(f'output = "{output}"\n{ONE}') == OutputError.exit_code
    said = capsys.readouterr().err
    assert "File exists" not in said
    assert "--output" not in said
    assert 'name another folder in adrenoc.toml: output = "FOLDER"' in said


def test_hints_of_compilations_name_keys_of_the_file(build, capsys):
    foreign = Path("build/net.adrenoc")
    foreign.mkdir(parents=True)
    (foreign / "mine.txt").touch()
    assert build(ONE) == OutputError.exit_code
    said = capsys.readouterr().err
    assert "--output" not in said
    assert 'name another folder in adrenoc.toml: output = "FOLDER"' in said


@pytest.mark.parametrize("outside", ["../../x", "/tmp/x-of-a-project", "build/../../x"])
def test_nothing_is_written_outside_of_the_project(outside, build, capsys):
    """A project may come from somebody else."""
    assert build(f'output = "{outside}"\n{ONE}') == OptionError.exit_code
    assert "which is outside of the project" in " ".join(capsys.readouterr().err.split())
    assert not Path(outside).exists()


def test_a_home_folder_that_no_shell_spells_out_is_refused(build, capsys):
    assert build(f'output = "~/bundles"\n{ONE}') == OptionError.exit_code
    assert "~ stands for no folder in this file" in capsys.readouterr().err
    assert not Path("~").exists()
