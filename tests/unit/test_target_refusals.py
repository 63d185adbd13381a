"""What the loader of target files refuses, by file and key."""

from pathlib import Path

import pytest

from adrenoc.base.errors import TargetError
from adrenoc.target.target import load_target
from tests.unit.target_files import copy_targets, edit


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return copy_targets(tmp_path)


@pytest.mark.parametrize(
    ("name", "guess"),
    [
        ("adreno:a755", "adreno:a750"),
        ("adreno:sm8651", "adreno:sm8650"),
        ("a750", "adreno:a750"),
        ("andreno", "adreno"),
        ("hots", "host"),
    ],
)
def test_an_unknown_device_gets_the_nearest_name(name, guess):
    with pytest.raises(TargetError) as caught:
        load_target(name)
    assert f'unknown device "{name}" (did you mean "{guess}"?)' in caught.value.message
    assert caught.value.hint == "adrenoc targets"


def test_an_unknown_device_like_nothing():
    with pytest.raises(TargetError, match='unknown device "zzz", expected adreno, adreno:GPU'):
        load_target("zzz")


@pytest.mark.parametrize(
    ("pattern", "text", "message"),
    [
        (
            r"^local_mem_bytes.*",
            "local_mem_bytes = { value = 32768 }",
            'key "limits.local_mem_bytes": the value has no source',
        ),
        (
            r"^local_mem_bytes.*",
            'local_mem_bytes = { value = 32768, source = " " }',
            "key \"limits.local_mem_bytes.source\": seen ' ', expected a text",
        ),
        (
            r"^local_mem_bytes.*",
            "local_mem_bytes = 32768",
            'key "limits.local_mem_bytes": seen 32768, expected { value = ..., source = ... }',
        ),
        (r"^local_mem_bytes.*\n", "", 'key "limits.local_mem_bytes": missing'),
        (
            r"^local_mem_bytes",
            "local_memory_bytes",
            'key "limits.local_memory_bytes": unknown key (did you mean "local_mem_bytes"?)',
        ),
        (
            r"^(fp16 = \{ value = )true",
            r'\1"yes"',
            "key \"limits.fp16\": seen 'yes', expected true or false",
        ),
        (
            r"^(local_mem_bytes = \{ value = )\d+",
            r"\1true",
            'key "limits.local_mem_bytes": seen True, expected a whole number above 0',
        ),
        (
            r"^(local_mem_bytes = \{ value = )\d+",
            r"\g<1>-1",
            'key "limits.local_mem_bytes": seen -1, expected a whole number above 0',
        ),
        (
            r"^(texels_per_clock = \{ value = )[\d.]+",
            r'\1"fast"',
            "key \"performance.texels_per_clock\": seen 'fast', expected a number above 0",
        ),
        (
            r"^(wave_sizes = \{ value = )\[.*?\]",
            r"\g<1>64",
            'key "performance.wave_sizes": seen 64, expected a list of whole numbers',
        ),
        (
            r'^(opencl_c = \{ value = )"3.0"',
            r'\1"1.2"',
            "key \"limits.opencl_c\": seen '1.2', expected one of 2.0, 3.0",
        ),
        (
            r'source = "@clinfo"',
            'source = "@clinf"',
            'seen "@clinf" (did you mean "clinfo"?), expected a key of the table [sources]',
        ),
        (r"^cl_khr_fp16", "khr_fp16", 'key "extensions.khr_fp16": unknown key'),
        (
            r"^work_group_items_below.*",
            "work_group_items_below = 0",
            'key "quirks[2].work_group_items_below": seen 0',
        ),
        (
            r"^work_group_items_below.*",
            "banned_work_groups = [[8, 8]]",
            'key "quirks[2].banned_work_groups": seen [[8, 8]], expected [[x, y, z], ...]',
        ),
        (r'^name = "private-alias"\n', "", 'key "quirks[0].name": missing'),
        (r"^title", "titel", 'key "titel": unknown key (did you mean "title"?)'),
        (r"^\[limits\]", "[limits", "is not a TOML file"),
    ],
)
def test_a_wrong_gpu_file_is_refused_by_file_and_key(folder, pattern, text, message):
    path = folder / "gpu" / "750.toml"
    edit(path, pattern, text)
    with pytest.raises(TargetError) as caught:
        load_target("adreno:a750", folder=folder)
    assert str(path) in caught.value.message
    assert message in caught.value.message
    assert "adrenoc targets" in caught.value.hint


@pytest.mark.parametrize(
    ("pattern", "text", "message"),
    [
        (r'value = "750"', 'value = "760"', 'key "gpu": seen \'760\' (did you mean "7'),
        (r"^aliases.*", 'aliases = "8gen3"', "key \"aliases\": seen '8gen3', expected a list"),
        (r"^clock_mhz", "clock", 'key "clock": unknown key (did you mean "clock_mhz"?)'),
    ],
)
def test_a_wrong_soc_file_is_refused_by_file_and_key(folder, pattern, text, message):
    path = folder / "soc" / "sm8650.toml"
    edit(path, pattern, text)
    with pytest.raises(TargetError) as caught:
        load_target("adreno:sm8650", folder=folder)
    assert str(path) in caught.value.message
    assert message in caught.value.message


def test_a_file_that_cannot_be_read(folder):
    path = folder / "gpu" / "host.toml"
    path.unlink()
    with pytest.raises(TargetError, match="cannot read the target file"):
        load_target("host", folder=folder)


def test_what_follows_from_other_tables_is_no_key(folder):
    path = folder / "gpu" / "750.toml"
    edit(
        path,
        r"^local_mem_bytes",
        'banned_work_groups = { value = [8], source = "s" }\nlocal_mem_bytes',
    )
    with pytest.raises(TargetError, match=r'key "limits\.banned_work_groups": unknown key'):
        load_target("adreno:a750", folder=folder)
