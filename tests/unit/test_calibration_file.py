"""The target file and the page of a calibration, whatever a device calls itself."""

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest

from adrenoc.base.errors import TargetError
from adrenoc.lab.calibrate.calibrate import MeasureRow
from adrenoc.lab.calibrate.measure import DeviceFacts, plain
from adrenoc.lab.calibrate.measures.rates import PERCENTS, row_name
from adrenoc.lab.calibrate.session import listed_for
from adrenoc.lab.calibrate.target_file import base_of, target_toml
from adrenoc.pages.calibration_page import calibration_html
from adrenoc.target.own_file import check_output_name
from adrenoc.target.target import load_target
from tests.unit.planted_device import (
    DEVICE,
    FACTS,
    LAUNCH_US,
    NS,
    RATES,
    Planted,
    calibrate_planted,
    planted_ns,
)


@pytest.mark.parametrize("size", [0, 3, 4096, 64])
def test_a_wave_is_one_that_a_target_can_have(tmp_path, size):
    done = calibrate_planted()
    wave = MeasureRow(name="wave", title="", unit="", status="measured", value=float(size))
    measured = dataclasses.replace(done.measured, rows=(*done.measured.rows, wave))
    path = tmp_path / "phone.toml"
    path.write_text(target_toml(measured))
    assert load_target(str(path)).performance.wave_sizes == ((64,) if size == 64 else (64, 128))


def test_the_file_is_a_target(tmp_path):
    done = calibrate_planted()
    path = tmp_path / "phone.toml"
    path.write_text(done.toml)
    target = load_target(str(path))
    assert target.performance.fp32_fma_lanes == 1536
    assert target.performance.launch_us == LAUNCH_US
    assert target.cost.pipes.local_read_clocks == 8.0
    assert target.measured_as == "750"
    source = target.source_of("performance.launch_us")
    assert source is not None
    for part in ("measured on QUALCOMM Adreno(TM) 750", "E031.45.02.06", "2026-12-01", "spread"):
        assert part in source
    assert load_target(f"host:{path}").host
    # What the base knows and nobody measured stays.
    assert target.limits.max_work_group_size == 1023
    assert target.limits.max_work_item_sizes == (1024, 1024, 64)
    assert target.performance.registers_vec4_per_fiber_slot == 96


def test_differences_of_more_than_a_fifth_are_named():
    found = {difference.key: difference for difference in calibrate_planted().differences}
    launch = found["performance.launch_us"]
    assert launch.ratio == pytest.approx(1.0)
    assert launch.means == ""  # as listed
    texels = found["performance.texels_per_clock"]
    assert texels.ratio == pytest.approx(96 / 42)
    assert "small tiles lose less" in texels.means
    assert found["performance.dram_gb_per_s"].means == ""


def test_a_value_that_may_be_anything_is_left_to_the_base(tmp_path):
    device = Planted(planted_ns, clock_mhz=900.0)
    device.noise = itertools.cycle([1.0, 9.0, 3.0, 40.0, 17.0, 1.5])
    done = calibrate_planted(device=device)
    launch = next(d for d in done.differences if d.key == "performance.launch_us")
    assert not launch.is_certain
    assert "the listed value stands" in launch.means
    path = tmp_path / "noisy.toml"
    path.write_text(done.toml)
    assert (
        load_target(str(path)).performance.launch_us
        == load_target("adreno:750").performance.launch_us
    )
    assert "# too uncertain" in done.toml


@pytest.mark.parametrize(
    "name",
    [
        'x"\n[options]\nndk = "/tmp',
        "@measured",
        "\\u0041\\",
        "\x1b[2J\u202e",
        "a" * 5000,
        "",
        None,
        7,
    ],
)
def test_names_from_outside_are_names(tmp_path, name):
    done = calibrate_planted({**FACTS, "name": name, "driver": name})
    path = tmp_path / "phone.toml"
    path.write_text(done.toml)
    target = load_target(str(path))
    assert target.options == ()
    assert "<script" not in calibration_html(done, None)


def test_facts_from_outside_may_be_anything():
    for facts in (
        {},
        {"limits": 3, "images": None, "extensions": 5},
        {"limits": {"compute_units": "x"}},
    ):
        device = DeviceFacts.from_facts(facts)
        assert device.compute_units == 1
        assert device.image_width == 0
    assert plain("a\x00b") == "a?b"


def test_a_device_beyond_all_bounds_still_makes_a_target(tmp_path):
    limits = {key: 1 << 44 for key in FACTS["limits"]} | {"compute_units": 7, "clock_mhz": 0}
    huge = {**FACTS, "name": "Thing", "version": "", "limits": limits}
    fast = Planted(lambda name: 1e-9)
    path = tmp_path / "phone.toml"
    path.write_text(calibrate_planted(huge, fast).toml)
    assert load_target(str(path)).limits.local_mem_bytes == 1 << 24
    assert "which says 17592186044416" in path.read_text()


PARTS = {row_name(percent): np.zeros(64, np.uint32) for percent in PERCENTS}


@pytest.mark.parametrize(
    ("refused", "kept"), [((), 32768), ((100,), 30720), ((100, 94, 75), 16384), (PERCENTS, 0)]
)
def test_a_driver_that_counts_local_memory_at_more_than_its_size(tmp_path, refused, kept):
    """Kernels get what of it a kernel was seen to share, and the file tells why it is less."""
    device = Planted(planted_ns, clock_mhz=900.0)
    device.outputs, device.refused = dict(PARTS), {row_name(percent) for percent in refused}
    done = calibrate_planted(device=device, others=tuple(PARTS))
    path = tmp_path / "phone.toml"
    path.write_text(done.toml)
    target = load_target(str(path))
    assert target.limits.local_mem_bytes == kept
    source = target.source_of("limits.local_mem_bytes") or ""
    facts = {fact.key: fact for fact in done.measured.facts}
    if not refused:
        assert "driver" in source and "E031.45.02.06" in source
        assert facts["local.part.100"].means == ""
        return
    assert "measured on QUALCOMM Adreno(TM) 750" in source
    assert "of the 32768 bytes that the driver says" in source
    assert "limits.local_mem_bytes" in facts["local.part.100"].means


def test_local_memory_that_loses_what_it_holds_is_not_taken(tmp_path):
    device = Planted(planted_ns, clock_mhz=900.0)
    device.outputs = {**PARTS, "local.part.100": np.arange(64, dtype=np.uint32)}
    path = tmp_path / "phone.toml"
    path.write_text(calibrate_planted(device=device, others=tuple(PARTS)).toml)
    assert load_target(str(path)).limits.local_mem_bytes == 30720


def test_the_page_holds_all_and_asks_nobody():
    page = calibration_html(calibrate_planted({**FACTS, "name": "<script>alert(1)</script>"}), None)
    assert "<script" not in page
    assert "http" not in page
    for name in (*RATES, *NS):
        assert name in page


def test_the_listed_gpu_is_what_a_device_calls_itself():
    assert listed_for(DEVICE).name == "adreno:a750"
    assert (
        listed_for(DeviceFacts.from_facts({**FACTS, "version": "Adreno(TM) 999", "name": "x"})).name
        == "adreno"
    )
    assert listed_for(DeviceFacts.from_facts({"name": "NVIDIA H200"})).name == "adreno"


@pytest.mark.parametrize("name", ["device.json", "a b.toml", "-x.toml"])
def test_a_file_that_could_not_be_given_is_not_written(tmp_path, name):
    with pytest.raises(TargetError):
        check_output_name(Path(tmp_path / name))


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("host", "adreno"),
        ("adreno", "adreno"),
        ("host:750", "adreno:a750"),
        ("adreno:sm8650", "adreno:sm8650"),
        ("host:h100", "host:h100"),
    ],
)
def test_a_file_builds_on_what_it_stands_beside(name, base, tmp_path):
    assert base_of(load_target(name)) == base
    path = tmp_path / "own.toml"
    path.write_text(f'title = "t"\nbase = "{base}"\n')
    assert base_of(load_target(str(path))) == base
