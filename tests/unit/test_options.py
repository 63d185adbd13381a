"""Options of commands: fields of records, places and ranges in short words, their origins."""

from __future__ import annotations  # as the records of commands have it: types are read as text

import dataclasses
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from adrenoc.base.errors import OptionError, ShapeError
from adrenoc.base.files.read import data_folder
from adrenoc.cli.guarded import (
    Command,
    InputPath,
    OutputPath,
    argument,
    give_options,
    group_of,
    option,
    read_words,
)
from adrenoc.cli.options import HERE, PlaceChoice, place_option
from adrenoc.cli.plan_shapes import ShapeRange, buckets_of, parse_shape_or_range
from adrenoc.ir.options import (
    CompileOptions,
    list_presets,
    load_preset,
    parse_shape,
    resolve_options,
)
from adrenoc.target.target import Target, load_target


@dataclass(frozen=True, kw_only=True)
class _Place:
    bundle: str = argument()
    place: PlaceChoice = place_option()


@click.command(cls=Command)
@give_options(_Place)
def _work(given: _Place) -> None:
    click.echo(f"{given.bundle} {given.place}")


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ([], HERE),
        (["--on", "adb"], PlaceChoice(text="adb", adb="")),
        (["--adb"], PlaceChoice(text="adb", adb="")),
        (["--adb=R5CT"], PlaceChoice(text="adb:R5CT", adb="R5CT")),
        (["--rpc", "pc:9090"], PlaceChoice(text="pc:9090", where="pc:9090")),
        (
            ["--rpc=secret@pc:9090"],
            PlaceChoice(text="secret@pc:9090", where="pc:9090", key="secret"),
        ),
    ],
)
def test_short_words_name_the_same_place(words, place):
    for typed in ([*words, "b.adrenoc"], ["b.adrenoc", *words]):
        assert CliRunner().invoke(_work, typed).output == f"b.adrenoc {place}\n"


def buckets(*texts: str) -> list[dict[str, tuple[int, ...]]]:
    return [dict(shapes) for shapes in buckets_of([parse_shape_or_range(t) for t in texts])]


def test_a_shape_without_ranges_is_one_bucket():
    assert parse_shape_or_range("x:1,3") == ("x", (1, 3))
    assert buckets("x:1,3", "y:2") == [{"x": (1, 3), "y": (2,)}]
    assert buckets() == [{}]


def test_doubling_steps_and_lists():
    found = parse_shape_or_range("a:b:1..6,100..256/64,1|9|4,7")
    assert isinstance(found, ShapeRange)
    assert found.name == "a:b"
    assert found.extents == ((1, 2, 4, 6), (100, 164, 228, 256), (1, 4, 9), (7,))


def test_ranges_multiply_and_the_largest_is_last():
    found = buckets("x:1..4,3..6/3")
    assert found[0] == {"x": (1, 3)}
    assert found[-1] == {"x": (4, 6)}
    assert len(found) == 6


def test_alike_ranges_at_the_same_axis_vary_together():
    found = buckets("ids:1|2,16..32", "mask:1|2,16..32")
    assert len(found) == 4
    assert all(one["ids"] == one["mask"] for one in found)


_VAST = "9" * 5000


@pytest.mark.parametrize(
    "text",
    [
        *("x:4..2", "x:0..4", "x:1..", "x:1|0", "x:1..4/0..2", ":1..2", "x:1..4/0"),
        *(f"x:{_VAST}", f"x:1..{_VAST}", f"x:1|{_VAST}", "x:1..4/" + _VAST, "x:2147483648"),
    ],
    ids=lambda text: text[:12],
)
def test_no_range(text):
    with pytest.raises(ShapeError, match="expected"):
        parse_shape_or_range(text)


def test_too_many_buckets():
    with pytest.raises(ShapeError, match="make 36 buckets"):
        buckets("x:1..6/1,1..6/1")


@dataclass(frozen=True, kw_only=True)
class Inner:
    deep: bool = option("--deep", help="A flag of a group.")


@dataclass(frozen=True, kw_only=True)
class Outer:
    model: Path = argument()
    count: int = option("-n", "--count N", default=0, help="A number.")
    host: str = option("--host", default="here", help="A text.")
    hidden: str = option("--hidden", default="", help="Nothing.")
    logs: tuple[Path, ...] = option("--log FILE", help="Inputs.")
    page: Path | None = option("--html FILE", type=OutputPath(is_file=True), help="An output.")
    pair: tuple[float, float] = option("--pair", type=(float, float), default=(1.0, 2.0))
    inner: Inner = group_of(Inner)


def params() -> dict[str, Any]:
    command = click.command("c")(give_options(Outer)(lambda given: given))
    return {str(param.name): param for param in command.params}


def test_types_of_fields_say_what_options_are():
    found = params()
    assert [name for name, one in found.items() if getattr(one, "is_flag", False)] == ["deep"]
    assert [name for name, one in found.items() if one.multiple] == ["logs"]
    assert [name for name, one in found.items() if isinstance(one.type, InputPath)] == [
        *("model", "logs")
    ]
    assert isinstance(found["page"].type, OutputPath)
    shown = [name for name, one in found.items() if getattr(one, "show_default", None)]
    assert shown == ["count", "host", "pair"]


def test_a_name_stands_before_what_it_takes():
    found = params()
    assert (found["count"].opts, found["count"].metavar) == (["-n", "--count"], "N")
    assert (found["host"].opts, found["host"].metavar) == (["--host"], None)


def test_words_become_a_record():
    read = read_words(Outer, ["m", "--log", "a", "--log", "b", "--deep", "-n", "3"])
    assert read.logs == (Path("a"), Path("b")) and read.model == Path("m")
    assert (read.count, read.host, read.pair, read.inner) == (
        3,
        "here",
        (1.0, 2.0),
        Inner(deep=True),
    )
    with pytest.raises(click.UsageError):
        read_words(Outer, ["m", "--deeper"])


A750 = load_target("adreno:a750")


def without_fp16(target: Target) -> Target:
    limits = dataclasses.replace(target.limits, fp16=False)
    return dataclasses.replace(target, gpu=dataclasses.replace(target.gpu, limits=limits))


@pytest.fixture
def folder(tmp_path) -> Path:
    return Path(shutil.copytree(data_folder("presets"), tmp_path / "presets"))


@pytest.mark.parametrize(
    ("preset", "storage", "compute", "textures", "check_ir"),
    [
        ("fp32", "float32", "float32", True, False),
        ("fp16", "float16", "float16", True, False),
        ("mixed", "float16", "float32", True, False),
        ("buffer", "float16", "float32", False, False),
        ("debug", "float32", "float32", True, True),
    ],
)
def test_the_presets(preset, storage, compute, textures, check_ir):
    options = resolve_options(A750, preset=preset).options
    assert options == CompileOptions(
        preset=preset,
        storage_dtype=storage,
        compute_dtype=compute,
        textures=textures,
        check_ir=check_ir,
    )


def test_presets_are_listed():
    presets = {preset.name: preset for preset in list_presets()}
    assert sorted(presets) == ["buffer", "debug", "fp16", "fp32", "mixed"]
    assert all(preset.title for preset in presets.values())
    assert presets["fp16"] == load_preset("fp16")


def test_later_layers_win_and_leave_their_name():
    resolved = resolve_options(
        load_target("host"),
        preset="fp32",
        command_line={"storage_dtype": "float16", "android_api": None},
    )
    assert resolved.options.storage_dtype == "float16"
    assert resolved.explain() == (
        ("preset", "fp32", "command line"),
        ("storage_dtype", "float16", "command line"),
        ("compute_dtype", "float32", "preset fp32"),
        ("textures", True, "default"),
        ("winograd", True, "default"),
        ("native_functions", True, "default"),
        ("untold_built_ins", True, "default"),
        ("keep_float32", True, "default"),
        ("shapes", (), "default"),
        ("states", (), "default"),
        ("caches", (), "default"),
        ("recurrent", (), "default"),
        ("slack", 0, "default"),
        ("end_tokens", (), "default"),
        ("suppress_tokens", (), "default"),
        ("begin_suppress_tokens", (), "default"),
        ("fixed", (), "default"),
        ("signature", "", "default"),
        ("check_ir", True, "target host"),
        ("forbid", (), "default"),
        ("max_memory_mib", None, "default"),
        ("pool_textures", False, "default"),
        ("int8_prompts", False, "default"),
        ("expose_layers", False, "default"),
        ("float32_tensors", (), "default"),
        ("clml", "off", "default"),
        ("clml_version", None, "default"),
        ("tuning_log", None, "default"),
        ("android_api", 24, "default"),
        ("ndk", None, "default"),
    )


def test_a_target_may_prefer_buffers_and_who_asks_for_textures_has_them():
    target = load_target("host:h100")
    usual = resolve_options(target, preset="mixed").options
    assert (usual.textures, usual.storage_dtype) == (False, "float32")  # it has no half type
    asked = resolve_options(target, preset="fp32", command_line={"textures": True}).options
    assert asked.textures


def test_a_preset_wins_over_the_target_and_the_command_line_over_both(folder):
    host = load_target("host")
    path = folder / "mixed.toml"
    path.write_text(path.read_text() + "check_ir = false\n")
    resolved = resolve_options(host, folder=folder)
    assert (resolved.options.check_ir, resolved.origin_of("check_ir")) == (False, "preset mixed")
    resolved = resolve_options(host, folder=folder, command_line={"check_ir": True})
    assert (resolved.options.check_ir, resolved.origin_of("check_ir")) == (True, "command line")


def test_the_default_preset_says_that_it_is_the_default():
    resolved = resolve_options(A750)
    assert resolved.options.preset == "mixed"
    assert resolved.origin_of("preset") == "default"


def test_half_arithmetic_needs_a_device_that_has_it():
    with pytest.raises(OptionError) as caught:
        resolve_options(without_fp16(A750), preset="fp16")
    assert "Adreno 750 has no half arithmetic" in caught.value.message
    assert "(from preset fp16)" in caught.value.message
    assert caught.value.hint == "adrenoc compile MODEL --device adreno:a750 --preset mixed"
    assert resolve_options(without_fp16(A750), preset="mixed").options.storage_dtype == "float16"


def test_halves_in_buffers_need_a_device_with_the_type():
    with pytest.raises(OptionError, match="has no half type") as caught:
        resolve_options(without_fp16(A750), preset="buffer")
    assert '"float16" (from preset buffer), expected "float32"' in caught.value.message
    said = {"textures": False}
    fp32 = resolve_options(without_fp16(A750), preset="fp32", command_line=said).options
    assert (fp32.storage_dtype, fp32.textures) == ("float32", False)


def test_an_unknown_preset_gets_the_nearest_name():
    with pytest.raises(OptionError) as caught:
        resolve_options(A750, preset="fp61")
    with pytest.raises(OptionError, match='unknown preset ""'):
        resolve_options(A750, preset="")
    assert 'unknown preset "fp61" (did you mean "fp16"?), expected one of' in caught.value.message
    assert caught.value.hint == "adrenoc presets"


def test_an_unknown_option_names_its_layer(folder):
    with pytest.raises(OptionError, match=r'command line: unknown option "texture" .*"textures"'):
        resolve_options(A750, command_line={"texture": True})
    wrong = dataclasses.replace(A750, options=(("check", True),))
    with pytest.raises(OptionError, match='target adreno:a750: unknown option "check"'):
        resolve_options(wrong)
    path = folder / "mixed.toml"
    path.write_text(path.read_text() + "preset = 'fp16'\n")
    with pytest.raises(OptionError, match=r'mixed\.toml: unknown option "preset"'):
        resolve_options(A750, folder=folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title = [", "cannot be read as TOML"),
        ("[options]\ntextures = true\n", "seen title = None"),
        ('title = "t"\noptions = 3\n', "options = 3"),
        ('title = "t"\n[option]\n', "others: option"),
        (
            'title = "t"\n[options]\nstorage_dtype = "float8"\n',
            "seen 'float8', expected float32 or",
        ),
        ('title = "t"\n[options]\ntextures = "yes"\n', "textures: seen 'yes', expected true or"),
    ],
)
def test_a_wrong_preset_file_is_refused(folder, text, message):
    (folder / "mixed.toml").write_text(text)
    with pytest.raises(OptionError) as caught:
        resolve_options(A750, folder=folder)
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"storage_dtype": "int8"}, "option storage_dtype: seen 'int8'"),
        ({"compute_dtype": "half"}, "option compute_dtype: seen 'half'"),
        ({"storage_dtype": "float32", "compute_dtype": "float16"}, "float32 storage with float16"),
        ({"check_ir": 1}, "option check_ir: seen 1, expected true or false"),
        ({"android_api": 20}, "option android_api: seen 20, expected an Android API level from 21"),
        ({"android_api": "24"}, "option android_api: seen '24'"),
        ({"ndk": 3}, "option ndk: seen 3, expected a folder"),
        ({"preset": None}, "option preset: seen None"),
        ({"clml": "yes"}, "option clml: seen 'yes', expected auto or all or off"),
        ({"clml_version": 6}, "option clml_version: seen 6, expected a whole number from 1 to 5"),
    ],
)
def test_wrong_values(values, message):
    with pytest.raises(OptionError) as caught:
        CompileOptions(**values)
    assert message in caught.value.message


def test_wrong_shapes():
    with pytest.raises(ShapeError, match=r'shape of input "x": seen \[1, -1\]'):
        CompileOptions(shapes=(("x", (1, -1)),))
    with pytest.raises(ShapeError, match='input "x" is given twice'):
        CompileOptions(shapes=(("x", (1,)), ("x", (1,))))
    with pytest.raises(ShapeError, match=r'input "x": seen \[\]'):
        CompileOptions(shapes=(("x", ()),))


def test_shapes_on_the_command_line():
    assert parse_shape("input:1,3,224,224") == ("input", (1, 3, 224, 224))
    assert parse_shape("serving_default_x:0:1, 8") == ("serving_default_x:0", (1, 8))
    for text in (
        "input",
        "input:",
        ":1,2",
        "input:1,,2",
        "input:1,-1",
        "input:²",
        "input:1" + "0" * 9999,
    ):
        with pytest.raises(ShapeError, match="expected NAME:D,D"):
            parse_shape(text)
    assert parse_shape("empty:0,3") == ("empty", (0, 3))


def test_digest():
    options = CompileOptions(shapes=(("a", (1,)), ("b", (2,))))
    swapped = CompileOptions(shapes=(("b", (2,)), ("a", (1,))))
    assert options.digest() == swapped.digest()
    assert dataclasses.replace(options, ndk="/ndk").digest() == options.digest()
    others = [
        dataclasses.replace(options, **change)
        for change in (
            {"preset": "fp32"},
            {"storage_dtype": "float32"},
            {"compute_dtype": "float16"},
            {"textures": False},
            {"winograd": False},
            {"max_memory_mib": 7},
            {"shapes": ()},
            {"check_ir": True},
            {"android_api": 30},
            {"forbid": ("cpu",)},
            {"clml": "auto"},
            {"clml_version": 4},
            {"float32_tensors": ("a",)},
        )
    ]
    assert len({options.digest(), *(other.digest() for other in others)}) == 1 + len(others)
    # Fixed: a digest that changes without reason throws away every user's cache.
    assert (
        CompileOptions().digest()
        == "f4e38e97aa1871b1907e33149215330712b45a461b62b3a2f5cd09edfc8426ef"
    )
