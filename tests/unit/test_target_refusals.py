"""What the loader of target files refuses, by file and key."""

from pathlib import Path

import pytest

from adrenoc.base.errors import TargetError
from adrenoc.target.target import load_target
from tests.unit.target_files import OWN_COST, copy_targets, edit


@pytest.fixture
def folder(tmp_path) -> Path:
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


GPU, SOC, COST = "gpu/750.toml", "soc/sm8650.toml", "cost/ir3.toml"


@pytest.mark.parametrize(
    ("file", "pattern", "text", "message"),
    [
        (
            GPU,
            r"^local_mem_bytes.*",
            "local_mem_bytes = { value = 32768 }",
            'key "limits.local_mem_bytes": the value has no source',
        ),
        (
            GPU,
            r"^local_mem_bytes.*",
            'local_mem_bytes = { value = 32768, source = " " }',
            "key \"limits.local_mem_bytes.source\": seen ' ', expected a text",
        ),
        (
            GPU,
            r"^local_mem_bytes.*",
            "local_mem_bytes = 32768",
            'key "limits.local_mem_bytes": seen 32768, expected { value = ..., source = ... }',
        ),
        (GPU, r"^local_mem_bytes.*\n", "", 'key "limits.local_mem_bytes": missing'),
        (
            GPU,
            r"^local_mem_bytes",
            "local_memory_bytes",
            'key "limits.local_memory_bytes": unknown key (did you mean "local_mem_bytes"?)',
        ),
        (
            GPU,
            r"^(fp16 = \{ value = )true",
            r'\1"yes"',
            "key \"limits.fp16\": seen 'yes', expected true or false",
        ),
        (
            GPU,
            r"^(local_mem_bytes = \{ value = )\d+",
            r"\1true",
            'key "limits.local_mem_bytes": seen True, expected a whole number above 0',
        ),
        (
            GPU,
            r"^(local_mem_bytes = \{ value = )\d+",
            r"\g<1>-1",
            'key "limits.local_mem_bytes": seen -1, expected a whole number above 0',
        ),
        (
            GPU,
            r"^(texels_per_clock = \{ value = )[\d.]+",
            r'\1"fast"',
            "key \"performance.texels_per_clock\": seen 'fast', expected a number above 0",
        ),
        (
            GPU,
            r"^(wave_sizes = \{ value = )\[.*?\]",
            r"\g<1>64",
            'key "performance.wave_sizes": seen 64, expected a list of whole numbers',
        ),
        (
            GPU,
            r'^(opencl_c = \{ value = )"3.0"',
            r'\1"1.2"',
            "key \"limits.opencl_c\": seen '1.2', expected one of 2.0, 3.0",
        ),
        (
            GPU,
            r'source = "@clinfo"',
            'source = "@clinf"',
            'seen "@clinf" (did you mean "clinfo"?), expected a key of the table [sources]',
        ),
        (GPU, r"^cl_khr_fp16", "khr_fp16", 'key "extensions.khr_fp16": unknown key'),
        (
            GPU,
            r"^work_group_items_below.*",
            "work_group_items_below = 0",
            'key "quirks[2].work_group_items_below": seen 0',
        ),
        (
            GPU,
            r"^work_group_items_below.*",
            "banned_work_groups = [[8, 8]]",
            'key "quirks[2].banned_work_groups": seen [[8, 8]], expected [[x, y, z], ...]',
        ),
        (GPU, r'^name = "private-alias"\n', "", 'key "quirks[0].name": missing'),
        (GPU, r"^title", "titel", 'key "titel": unknown key (did you mean "title"?)'),
        (GPU, r"^\[limits\]", "[limits", "is not a TOML file"),
        (SOC, r'value = "750"', 'value = "760"', 'key "gpu": seen \'760\' (did you mean "7'),
        (SOC, r"^aliases.*", 'aliases = "8gen3"', "key \"aliases\": seen '8gen3', expected a list"),
        (SOC, r"^clock_mhz", "clock", 'key "clock": unknown key (did you mean "clock_mhz"?)'),
        (
            COST,
            r"^k_step_slots.*\n",
            "",
            'key "conv_local.k_step_slots": missing, expected { value',
        ),
        (
            COST,
            r"^k_step_slots",
            "k_step_slot",
            'key "conv_local.k_step_slot": unknown key (did you mean "k_step_slots"?)',
        ),
        (COST, r"^\[gemv\]", "[gemm]", 'key "gemm": unknown key (did you mean "gemv"?)'),
        (
            COST,
            r"^(k_step_slots = \{ value = )[\d.]+",
            r"\1-4.0",
            'key "conv_local.k_step_slots": seen -4.0, expected a number above 0',
        ),
        (
            COST,
            r"^(waiting_weights = \{ value = )\d+",
            r"\g<1>3.5",
            'key "conv_local.waiting_weights": seen 3.5, expected a whole number above 0',
        ),
        (
            COST,
            r"^(unrolls = \{ value = )\[.*?\]",
            r"\1[]",
            'key "conv_local.unrolls": seen [], expected a list of whole numbers above 0',
        ),
        (
            COST,
            r'^(k_step_slots = .*) source = "@local"',
            r'\1 source = "@locals"',
            'seen "@locals" (did you mean "local"?)',
        ),
        (COST, r"^date = .*", 'date = "soon"', "key \"sources.local.date\": seen 'soon', expected"),
        (COST, r"^title.*", "", 'key "title": missing'),
        (
            "cost/a8xx.toml",
            r'^base = "ir3"',
            'base = "ir4"',
            'key "base": seen \'ir4\' (did you mean "ir3"?)',
        ),
        (
            "cost/a8xx.toml",
            r'^base = "ir3"',
            'base = "a7xx"',
            "key \"base\": seen 'a7xx', expected a file",
        ),
        ("cost/a8xx.toml", r'^base = "ir3"', "", 'key "pipes.wave_threads": missing'),
        (
            COST,
            r"^title",
            'base = "a7xx"\ntitle',
            "expected a file that does not build on this one",
        ),
        (GPU, r'^base = "a7xx"', 'base = "a9xx"', "key \"cost.base\": seen 'a9xx' (did you mean"),
        (GPU, r'^base = "a7xx"', "base = 7", 'key "cost.base": seen 7, expected a text'),
        (
            GPU,
            r'^base = "a7xx"',
            "bases = 7",
            'key "cost.bases": unknown key (did you mean "base"?)',
        ),
        (
            GPU,
            r'^base = "a7xx"',
            "conv_local = 7",
            'key "cost.conv_local": seen 7, expected a table [cost.conv_local]',
        ),
        (
            GPU,
            r'^\[cost\]\nbase = "a7xx"\n',
            OWN_COST.replace("k_step_slots", "k_step_slot"),
            'key "cost.conv_local.k_step_slot": unknown key (did you mean "k_step_slots"?)',
        ),
        (
            GPU,
            r'^\[cost\]\nbase = "a7xx"\n',
            OWN_COST.replace(', source = "measured"', ""),
            'key "cost.conv_local.k_step_slots": the value has no source',
        ),
    ],
)
def test_a_wrong_file_is_refused_by_file_and_key(folder, file, pattern, text, message):
    edit(folder / file, pattern, text)
    with pytest.raises(TargetError) as caught:
        load_target("adreno:sm8650", folder=folder)
    assert str(folder / file) in caught.value.message
    assert message in caught.value.message
    assert "adrenoc targets" in caught.value.hint


def test_a_source_may_go_without_its_command(folder):
    edit(folder / COST, r"^command = .*", "")
    load_target("adreno:sm8650", folder=folder)


def test_a_file_that_cannot_be_read(folder):
    (folder / "gpu" / "host.toml").unlink()
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
