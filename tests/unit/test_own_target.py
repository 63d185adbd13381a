"""Target files of a user's own: what they build on, what they cannot say, who reads them."""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from adrenoc.base.errors import BundleError, TargetError
from adrenoc.base.files.read import data_folder
from adrenoc.base.text import names
from adrenoc.bundle.bundle import TARGET, Bundle
from adrenoc.bundle.write_bundle import file_entry
from adrenoc.device.fit import other_gpu_notes, target_of
from adrenoc.target.target import Target, host_twin, load_target
from tests.commands import invoke, succeed
from tests.unit.fake_compiled import make_bundle_folder

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
