"""Targets of one's own, and what is refused of targets."""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from adrenoc.base.errors import BundleError, TargetError
from adrenoc.base.files.read import data_folder
from adrenoc.base.text import names
from adrenoc.bundle.bundle import TARGET, Bundle, file_entry
from adrenoc.device.fit import other_gpu_notes, target_of
from adrenoc.target.target import Target, host_twin, load_target
from tests.commands import invoke, succeed
from tests.unit.fake_compiled import make_bundle_folder
from tests.unit.target_files import OWN_COST, copy_targets, edit

SMALL = """
title = "my phone"
base = "adreno:750"

[sources]
mine = "measured on my phone, driver E031.45, 2026-12-01"

[performance]
launch_us = { value = 7.5, source = "@mine" }

[extensions]
cl_khr_command_buffer = { value = true, source = "@mine" }

[cost.pipes]
local_read_clocks = { value = 16.0, source = "@mine" }

[[quirks]]
name = "corner"
text = "A group of 8 x 8 is wrong."
source = "@mine"
banned_work_groups = [[8, 8, 1]]
"""
WHOLE = (data_folder("targets") / "gpu" / "750.toml").read_text(encoding="utf-8")


def own(folder: Path, text: str = SMALL, name: str = "phone.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def refused(path: Path) -> TargetError:
    with pytest.raises(TargetError) as caught:
        load_target(str(path))
    return caught.value


def test_a_file_says_what_differs_from_a_listed_device(tmp_path):
    target, base = load_target(str(own(tmp_path))), load_target("adreno:a750")
    assert (target.name, target.title, target.host) == ("phone.toml", "my phone", False)
    assert target.performance == replace(base.performance, launch_us=7.5)
    assert target.source_of("performance.launch_us").startswith("measured on my phone")
    assert target.source_of("performance.clock_mhz") == base.source_of("performance.clock_mhz")
    assert replace(target.limits, banned_work_groups=()) == base.limits
    assert target.limits.banned_work_groups == ((8, 8, 1),)
    assert target.has_extension("cl_khr_command_buffer") is True
    assert target.has_extension("cl_khr_fp16") is True
    assert target.cost.pipes == replace(base.cost.pipes, local_read_clocks=16.0)
    assert target.cost.conv_local == base.cost.conv_local
    assert target.source_of("cost.pipes.local_read_clocks").startswith("measured on my phone")
    assert target.measured_as == "750"
    assert names.WORD.allows(target.name)


def test_a_file_that_builds_on_a_chip_has_the_clock_of_the_chip(tmp_path):
    text = 'title = "x"\nbase = "adreno:855+"\n'
    assert load_target(str(own(tmp_path, text))).performance.clock_mhz == 675
    text += '[performance]\nclock_mhz = { value = 600, source = "s" }\n'
    assert load_target(str(own(tmp_path, text))).performance.clock_mhz == 600


def test_a_whole_file_needs_no_base(tmp_path):
    target, listed = load_target(str(own(tmp_path, WHOLE))), load_target("adreno:a750")
    assert target.gpu == replace(listed.gpu, name="phone")
    assert target.cost == listed.cost
    assert target.measured_as == "phone"


def test_what_stands_for_all_or_for_none_is_kept_under_its_own_name(tmp_path):
    """Times of a GPU that nobody lists are nobody else's."""
    for base in ("adreno", "host:h100"):
        target = load_target(str(own(tmp_path, f'title = "x"\nbase = "{base}"\n')))
        assert target.measured_as == ("phone" if base == "adreno" else "h100")
        assert target.performance == load_target(base).performance


def test_on_this_computer(tmp_path):
    path = own(tmp_path)
    phone = load_target(str(path))
    for name in (f"host:{path}", f"HOST: {path}"):
        host = load_target(name)
        assert (host.name, host.host, host.title) == ("host:phone.toml", True, "my phone")
        assert host.performance == phone.performance
        assert host.cost == phone.cost
        assert host == host_twin(phone) == host_twin(host)
    assert host.llvm_triple == load_target("host").llvm_triple
    assert (phone.option, host.option) == (str(path), f"host:{path}")


def test_digest_follows_the_whole_file_and_not_its_place(tmp_path):
    path = own(tmp_path)
    digest = load_target(str(path)).digest()
    (tmp_path / "deep").mkdir()
    assert load_target(str(own(tmp_path / "deep"))).digest() == digest
    assert load_target(str(own(tmp_path, SMALL + "# a note\n"))).digest() != digest
    assert load_target(f"host:{path}").digest() != digest


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('"adreno:750"', '"adreno:7500"', 'key "base": unknown device "adreno:7500"'),
        ('"adreno:750"', '"host"', "key \"base\": seen 'host', expected adreno, adreno:GPU or"),
        ('"adreno:750"', "750", 'key "base": seen 750, expected a text'),
        ('"adreno:750"', '"phone.toml"', 'key "base": unknown device "phone.toml"'),
        ("launch_us", "launch_ms", 'key "performance.launch_ms": unknown key (did you mean'),
        ("7.5", "inf", 'key "performance.launch_us": seen inf, expected a number above 0'),
        ("7.5", "nan", 'key "performance.launch_us": seen nan'),
        ("7.5", "1" + "0" * 4000, 'key "performance.launch_us": seen 1000'),
        ("7.5", "1e-300", 'key "performance.launch_us": seen 1e-300'),
        ("16.0", "1e9", 'key "cost.pipes.local_read_clocks": seen 1000000000.0, expected from'),
        (
            "[cost.pipes]\nlocal_read_clocks = { value = 16.0",
            "[cost.conv_local]\nunrolls = { value = [1]",
            'key "cost.conv_local.unrolls": seen (1,), expected a cost; this bounds',
        ),
        ("[cost.pipes]", "[options]", 'key "options": unknown key'),
        ("[cost.pipes]", "[cost.pypes]", 'key "cost.pypes": unknown key (did you mean "pipes"?)'),
        ("[cost.pipes]", '[cost]\nbase = "../a7xx"\n[cost.pipes]', 'key "cost.base": seen'),
        ('"@mine" }', '"@other" }', 'seen "@other"'),
        ("[8, 8, 1]", "[8, 8, -1]", 'key "quirks[0].banned_work_groups": seen [[8, 8, -1]]'),
        ("[8, 8, 1]", "8", 'key "quirks[0].banned_work_groups": seen [8]'),
        ("[[8, 8, 1]]", "8", 'key "quirks[0].banned_work_groups": seen 8'),
        ("[[quirks]]", "[quirks]", 'key "quirks": seen {'),
        ("[sources]", "x = " + "[" * 20000, "nested too deeply"),
        ("[sources]", "[limits", "is not a TOML file"),
        ("my phone", "my \x00phone", "is not a TOML file"),
    ],
)
def test_a_wrong_file_is_one_sentence_of_file_and_key(tmp_path, before, after, message):
    assert before in SMALL
    path = own(tmp_path, SMALL.replace(before, after, 1))
    error = refused(path)
    assert message in error.message
    assert str(path) in error.message
    assert len(error.message) < 1200
    assert "\n" not in error.message
    assert error.hint == f"correct {path}, then: adrenoc targets {path}"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("image2d_max_width_texels", 16),
        ("image_max_array_layers", 2**40),
        ("max_work_group_size", 2),
        ("max_kernel_args", 2),
        ("local_mem_bytes", 16),
        ("max_alloc_bytes", 4),
    ],
)
def test_limits_that_no_device_has(tmp_path, key, value):
    text = f'{SMALL}\n[limits]\n{key} = {{ value = {value}, source = "s" }}\n'
    message = refused(own(tmp_path, text)).message
    assert re.search(rf'key "limits.{key}": seen {value}, expected from \d+ to \d+', message)


@pytest.mark.parametrize("name", ["a b.toml", "-x.toml", "naïve.toml", ".toml", "a" * 96 + ".toml"])
def test_names_that_no_bundle_could_hold(tmp_path, name):
    error = refused(own(tmp_path, name=name))
    assert "letters, digits" in error.message
    assert "rename" in error.hint


def test_what_is_no_file(tmp_path):
    assert "No such file" in refused(tmp_path / "none.toml").message
    (tmp_path / "folder.toml").mkdir()
    assert "it is a folder" in refused(tmp_path / "folder.toml").message
    os.mkfifo(tmp_path / "pipe.toml")
    assert "it is a pipe" in refused(tmp_path / "pipe.toml").message
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in refused(tmp_path / "binary.toml").message
    big = own(tmp_path, SMALL + "#" * (2 << 20), "big.toml")
    assert "expected up to" in refused(big).message


def _bundle(folder: Path, target: Target) -> Bundle:
    manifest = make_bundle_folder(folder)
    info = replace(manifest.target, name=target.name, host=target.host, digest=target.digest())
    files = manifest.files
    if target.own is not None:
        (folder / TARGET).write_text(target.own.text)
        files = (*files, file_entry(folder, folder / TARGET))
    return Bundle(path=folder, root=folder, manifest=replace(manifest, target=info, files=files))


@pytest.mark.parametrize("prefix", ["", "host:"])
def test_a_bundle_knows_its_target_without_the_file(tmp_path, prefix):
    path = own(tmp_path)
    target = load_target(f"{prefix}{path}")
    bundle = _bundle(tmp_path / "b", target)
    path.unlink()
    assert target_of(bundle).digest() == target.digest()
    notes = other_gpu_notes(bundle, {"name": "Adreno 660", "version": ""})
    assert bool(notes) is (prefix == "")


def test_a_bundle_that_lost_its_target(tmp_path):
    bundle = _bundle(tmp_path / "b", load_target(str(own(tmp_path))))
    bare = replace(bundle, manifest=replace(bundle.manifest, files=()))
    with pytest.raises(BundleError, match=r"the target file phone\.toml, and holds no target"):
        target_of(bare)
    assert other_gpu_notes(bare, {"name": "Adreno 660", "version": ""}) == ()


def test_no_output_replaces_the_file(tmp_path, model):
    path = own(tmp_path)
    command = ["compile", str(model), "--device", str(path), "-o", str(path)]
    outcome = invoke(*command, catch=True)
    assert "is an input of this command" in outcome.output + str(outcome.exception)
    assert path.read_text() == SMALL


def test_the_command_shows_it_and_its_faults(tmp_path):
    path = own(tmp_path)
    assert "my phone" in succeed("targets", path).output
    path.write_text(SMALL.replace("7.5", "-1"))
    wrong = invoke("targets", path, catch=True)
    assert (wrong.exit_code, type(wrong.exception)) != (0, None)


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
