"""The target files that ship, and what follows from them."""

import dataclasses
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from adrenoc.base.errors import TargetError
from adrenoc.base.files.read import data_folder
from adrenoc.target.gpu import Limits, Performance
from adrenoc.target.target import list_targets, load_target
from tests.unit.target_files import copy_targets, edit

GPUS = sorted(
    path.stem for path in data_folder("targets").glob("gpu/*.toml") if path.stem != "host"
)
ALL = list_targets()
ADRENOS = [target for target in ALL if target.soc is None and target.name.startswith("adreno:")]


@pytest.fixture
def folder(tmp_path) -> Path:
    return copy_targets(tmp_path)


def test_the_listed_gpus_are_there():
    assert [target.gpu.name for target in ADRENOS] == GPUS
    assert (ALL[0].name, ALL[-1].name) == ("adreno", "host")
    carried = {target.soc.gpu for target in ALL if target.soc}
    assert carried <= set(GPUS)
    assert {"610", "642l", "750", "840", "850"} <= carried


@pytest.mark.parametrize("target", ALL, ids=lambda target: target.name)
def test_every_value_has_a_source(target):
    known = {"generation"} if target.name != "adreno" else set()
    for section, facts in (("limits", target.limits), ("performance", target.gpu.performance)):
        known |= {
            f"{section}.{k}" for k, v in dataclasses.asdict(facts).items() if v not in (None, ())
        }
    known |= {f"extensions.{name}" for name, _ in target.gpu.extensions}
    known |= {f"options.{name}" for name, _ in target.options}
    known |= {"clml_version"} if target.gpu.clml_version is not None else set()
    if target.soc:
        known |= {"soc.gpu"} | ({"soc.clock_mhz"} if target.soc.clock_mhz else set())
    assert known == dict(target.sources).keys()
    assert all("@" not in source for _, source in target.sources)


NAMED_ALONE = {"613", "616", "642", "644", "685", "710", "720", "732", "845", "850"}
"""GPUs whose registers no source gives: estimates reckon with the cost table's unstated figures."""


@pytest.mark.parametrize("target", ADRENOS, ids=lambda target: target.name)
def test_an_adreno_file_has_what_a_cost_model_starts_from(target):
    performance = target.performance
    if target.gpu.name in NAMED_ALONE:
        assert performance.registers_vec4_per_fiber_slot is None
    else:
        assert performance.compute_units
        assert performance.registers_vec4_per_fiber_slot in (48, 64, 96, 128)
    assert set(performance.wave_sizes or ()) <= {64, 128}
    assert target.limits.fp16
    assert target.limits.image2d_max_width_texels == 16384


def test_work_groups_that_fail_are_beyond_the_limit():
    target = load_target("adreno:750")
    assert target.limits.max_work_group_size == 1023
    assert target.source_of("limits.max_work_group_size") == (
        "quirk big-work-groups: genefer22 issue 12"
    )


def test_every_field_is_known_of_some_gpu():
    known = (*ADRENOS, load_target("host:h100"))
    for section, cls in (("limits", Limits), ("performance", Performance)):
        for field in dataclasses.fields(cls):
            assert any(target.source_of(f"{section}.{field.name}") for target in known), field


def test_what_is_assumed_of_all_and_what_a_file_says_itself(folder):
    """One figure for a launch, which every cost model takes, until a GPU has its own."""
    launches = {
        load_target(f"adreno:{gpu}", folder=folder).performance.launch_us for gpu in (660, 750)
    }
    assert launches == {load_target("adreno", folder=folder).performance.launch_us}
    assert "assumed" in load_target("adreno:750", folder=folder).source_of("performance.launch_us")
    edit(
        folder / "gpu" / "750.toml",
        r"^dram_gb_per_s",
        'launch_us = { value = 7.0, source = "measured" }\ndram_gb_per_s',
    )
    own = load_target("adreno:750", folder=folder)
    assert own.performance.launch_us == 7.0
    assert own.source_of("performance.launch_us") == "measured"
    assert load_target("adreno:660", folder=folder).performance.launch_us in launches


@pytest.mark.parametrize(
    "field",
    [field.name for field in dataclasses.fields(Limits) if not field.metadata.get("derived")],
)
def test_adreno_promises_what_all_hold(field):
    values = [getattr(target.limits, field) for target in ADRENOS]
    known = [value for value in values if value is not None]
    assert getattr(load_target("adreno").limits, field) == (
        max(known) if "align" in field else min(known)
    )


def test_adreno_names_the_gpu_that_decides():
    adreno = load_target("adreno")
    assert adreno.limits.local_mem_bytes == 16384
    assert adreno.source_of("limits.local_mem_bytes").startswith("Adreno 610: Mesa")
    assert "of the 5 GPUs it is known of" in adreno.source_of("limits.max_alloc_bytes")
    assert adreno.limits.opencl_c == "2.0"
    assert adreno.performance.wave_sizes == (64,)
    assert adreno.performance.clock_mhz is None
    assert {quirk.name for quirk in adreno.gpu.quirks} >= {"small-cma", "big-work-groups"}


def test_adreno_with_a_narrower_gpu(folder):
    path = folder / "gpu" / "618.toml"
    edit(path, r"^(image2d_max_width_texels = \{ value = )\d+", r"\g<1>8192")
    edit(path, r"^(image_pitch_align_texels = \{ value = )\d+", r"\g<1>256")
    edit(path, r"^(fp16 = \{ value = )true", r"\1false")
    limits = load_target("adreno", folder=folder).limits
    assert limits.image2d_max_width_texels == 8192
    assert limits.image_pitch_align_texels == 256
    assert limits.fp16 is False


def test_a_flag_unknown_of_one_gpu_is_not_promised(folder):
    for path in (folder / "gpu").glob("*.toml"):
        if path.stem != "host":
            text = re.sub(r"^dot_product.*\n", "", path.read_text(), flags=re.M)
            stated = '[limits]\ndot_product = { value = true, source = "here" }'
            path.write_text(text.replace("[limits]", stated))
    assert load_target("adreno", folder=folder).limits.dot_product is True
    edit(folder / "gpu" / "618.toml", r"^dot_product.*\n", "")
    assert load_target("adreno", folder=folder).limits.dot_product is None


@pytest.mark.parametrize(
    ("name", "canonical", "gpu"),
    [
        ("adreno:750", "adreno:a750", "750"),
        ("Adreno:A642L", "adreno:a642l", "642l"),
        ("adreno:sm8650", "adreno:sm8650", "750"),
        ("adreno:8gen3", "adreno:sm8650", "750"),
        ("adreno:8 Gen 3", "adreno:sm8650", "750"),
        ("adreno:8+gen1", "adreno:sm8475", "730"),
        ("adreno:X1-85", "adreno:ax1-85", "x1-85"),
        ("adreno", "adreno", "adreno"),
        ("host", "host", "host"),
    ],
)
def test_names(name, canonical, gpu):
    target = load_target(name)
    assert (target.name, target.gpu.name) == (canonical, gpu)
    assert target.host == (name == "host")
    assert load_target(target.name) == target


def test_no_name_means_two_devices():
    names = [f"a{gpu}" for gpu in GPUS] + GPUS
    for target in ALL:
        names += [target.soc.name, *target.soc.aliases] if target.soc else []
    assert len(names) == len(set(names))


def test_a_soc_brings_its_clock():
    assert load_target("adreno:855").performance.clock_mhz == 585
    assert load_target("adreno:855+").performance.clock_mhz == 675
    assert load_target("adreno:855+").title == "Snapdragon 855+ (SM8150) (Adreno 640)"
    assert load_target("adreno:qcs8550").performance.clock_mhz == 680  # the GPU's own


def test_the_cpu_part():
    assert load_target("adreno:a750").llvm_triple == "aarch64-linux-android"
    assert load_target("host").llvm_triple.endswith("-unknown-linux-gnu")


def test_the_host_runs_what_an_adreno_runs():
    host, phone = load_target("host"), load_target("adreno")
    assert host.limits == phone.limits
    assert host.performance == phone.performance
    assert host.host
    assert not phone.host


def test_a_stand_in_has_its_own_rates_and_no_phone():
    target = load_target("host:h100")
    assert (target.name, target.host, target.measured_as) == ("host:h100", True, "host")
    assert target.performance.compute_units == 132
    assert target.limits.fp16 is False
    assert target.limits.max_write_image_args == 32
    with pytest.raises(TargetError, match="unknown device"):
        load_target("adreno:h100")
    assert load_target("adreno").limits.fp16 is True


def test_the_host_runs_what_one_gpu_runs():
    host, phone = load_target("host:a750"), load_target("adreno:a750")
    assert host.name == "host:a750"
    assert host.performance == phone.performance
    unlike = {
        f.name
        for f in dataclasses.fields(Limits)
        if getattr(host.limits, f.name) != getattr(phone.limits, f.name)
    }
    assert unlike <= {"max_alloc_bytes", "dot_product"}


def test_extensions_are_listed_denied_or_unknown():
    a650 = load_target("adreno:a650")
    assert a650.has_extension("cl_khr_fp16") is True
    assert a650.has_extension("cl_khr_integer_dot_product") is False
    assert load_target("adreno:a610").has_extension("cl_khr_fp16") is None


@pytest.mark.parametrize(
    ("gpu", "has"),
    [("640", False), ("650", True), ("660", True), ("730", False), ("740", True), ("750", True)],
)
def test_dot_products_have_a_name_in_the_opencl_c_of_some(gpu, has):
    target = load_target(f"adreno:{gpu}")
    assert target.has_dot_products is has
    assert target.limits.dot_instructions == (2 if gpu in ("640", "650") else 1)


def test_digest_follows_facts_and_not_prose(folder):
    path = folder / "gpu" / "750.toml"
    before = load_target("adreno:a750", folder=folder).digest()
    assert before == load_target("adreno:750").digest()
    assert re.fullmatch("[0-9a-f]{64}", before)
    edit(path, r"^clinfo = .*", 'clinfo = "another dump"')
    edit(path, r'^text = "A private.*', 'text = "Reworded."')
    assert load_target("adreno:a750", folder=folder).digest() == before
    edit(path, r"^(local_mem_bytes = \{ value = )\d+", r"\g<1>1024")
    assert load_target("adreno:a750", folder=folder).digest() != before
    assert len({target.digest() for target in ALL}) == len(ALL)


def test_a_new_gpu_with_banned_work_groups_is_one_file(folder):
    path = folder / "gpu" / "850.toml"
    shutil.copy(folder / "gpu" / "830.toml", path)
    quirk = 'name = "corrupt-tiles"\ntext = "t"\nsource = "s"\nbanned_work_groups = [[2, 8, 1]]\n'
    path.write_text(path.read_text() + "\n[[quirks]]\n" + quirk)
    new = load_target("adreno:a850", folder=folder)
    assert new.gpu.quirks[0].banned_work_groups == new.limits.banned_work_groups == ((2, 8, 1),)
    assert new.source_of("limits.banned_work_groups") == "quirk corrupt-tiles: s"
    adreno = load_target("adreno", folder=folder)
    assert "corrupt-tiles" in {q.name for q in adreno.gpu.quirks}
    assert {(2, 8, 1), (8, 8, 1)} < set(adreno.limits.banned_work_groups)
    assert "corrupt-tiles: s" in adreno.source_of("limits.banned_work_groups")
    assert load_target("host", folder=folder).limits == adreno.limits
    assert load_target("adreno:a830", folder=folder).limits.banned_work_groups == ()


def test_work_groups_are_banned_where_they_were_seen_to_be_wrong():
    assert {(8, 8, 1), (4, 16, 1)} < set(load_target("adreno:a840").limits.banned_work_groups)
    assert load_target("adreno:a750").limits.banned_work_groups == ()
    key = "banned_work_groups"
    assert "ExecuTorch issue 22327" in load_target("host:a840").source_of(f"limits.{key}")


def test_targets_need_no_tvm():
    code = "import adrenoc.target.target, adrenoc.ir.options, sys\n"
    code += "adrenoc.target.target.list_targets()\n"
    code += "sys.exit('tvm' in sys.modules or 'numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=data_folder("targets").parent)
