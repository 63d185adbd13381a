"""What a calibration tells: its target file, its page, and facts that kernels honour."""

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest

from adrenoc.base.errors import OptionError, TargetError
from adrenoc.ir.options import resolve_options
from adrenoc.lab.calibrate.facts import Fact
from adrenoc.lab.calibrate.measure import DeviceFacts, MeasureRow, plain
from adrenoc.lab.calibrate.measures.driver import CALLED
from adrenoc.lab.calibrate.measures.rates import PERCENTS, row_name
from adrenoc.lab.calibrate.session import Calibration, base_of, listed_for, target_toml
from adrenoc.pages.calibration_page import calibration_html
from adrenoc.target.gpu_file import check_output_name
from adrenoc.target.target import Target, load_target
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


HALVES, DOT, OWN_DOT = (
    f"extension.{name}"
    for name in ("cl_khr_fp16", "cl_khr_integer_dot_product", "cl_qcom_dot_product8")
)
FUNCTIONS = {
    f"function.{f.name}": f.exact(f.points.astype(np.float64)).astype(np.float32) for f in CALLED
}
KEPT = np.full(4, 2.0**-15, np.float32)
RIGHT: dict[str, np.ndarray] = {
    **FUNCTIONS,
    "border": np.concatenate([np.zeros(40), np.ones(4)]).astype(np.float32),
    "denormal.read_imagef": KEPT,
    "denormal.half": KEPT[:2].astype(np.float16),
    "rounding.write_imagef": np.array([1, 1 + 2**-9, -1, 1 + 2**-10], np.float16),
    HALVES: np.repeat(np.array([15, 50, 25, 4], np.uint32), 64),
    DOT: np.repeat(np.array([50, 807], np.uint32), 64),
    OWN_DOT: np.repeat(np.array([51, 807], np.uint32), 64),
}
WITH_OWN_DOT = {**FACTS, "extensions": [*FACTS["extensions"], "cl_qcom_dot_product8"]}


def planted(*refused: str, **wrong: np.ndarray) -> Planted:
    device = Planted(planted_ns, clock_mhz=900.0)
    by_name = {name.replace("__", "."): output for name, output in wrong.items()}
    device.outputs = {**RIGHT, **by_name}
    device.refused = set(refused)
    return device


def calibrated(tmp_path: Path, device: Planted) -> tuple[Target, Calibration]:
    done = calibrate_planted(WITH_OWN_DOT, device, others=tuple(RIGHT))
    path = tmp_path / "phone.toml"
    path.write_text(done.toml)
    return load_target(str(path)), done


def facts_of(done: Calibration) -> dict[str, Fact]:
    return {fact.key: fact for fact in done.measured.facts}


def test_a_device_that_does_as_reckoned_changes_nothing(tmp_path):
    target, done = calibrated(tmp_path, planted())
    assert dict(target.avoided) == dict(load_target("adreno:750").avoided)
    assert target.limits.fp16
    assert target.has_dot_products
    facts = facts_of(done)
    assert facts["border"].measured == "zeros"
    assert not [fact for name in RIGHT if (fact := facts[name]).means or fact.avoid]


def test_a_lost_border_takes_the_textures(tmp_path):
    lost = RIGHT["border"].copy()
    lost[4:8] = 1.0
    target, done = calibrated(tmp_path, planted(border=lost))
    fact = facts_of(done)["border"]
    assert fact.measured == "1, 1, 1, 1 at (5, 0) of 5 x 5 texels"
    assert "no textures" in fact.means
    resolved = resolve_options(target)
    assert not resolved.options.textures
    assert "measured on QUALCOMM Adreno(TM) 750" in dict(resolved.origins)["textures"]
    assert "1, 1, 1, 1 at (5, 0)" in dict(resolved.origins)["textures"]
    assert fact.means in calibration_html(done, None)


def test_an_image_that_reads_nothing_has_no_border_either(tmp_path):
    _, done = calibrated(tmp_path, planted(border=np.zeros(44, np.float32)))
    assert facts_of(done)["border"].measured.startswith("within the image it reads 0, 0, 0, 0")
    assert facts_of(done)["border"].avoid == "textures"


def test_flushed_halves_are_avoided_and_all_that_says_so_is_told(tmp_path):
    flushed = np.zeros(4, np.float32)
    half = np.array([2.0**-15, 0.0], np.float16)
    wrong = planted(denormal__read_imagef=flushed, denormal__half=half)
    target, _ = calibrated(tmp_path, wrong)
    reason = target.avoided["half-denormals"]
    assert "denormal.read_imagef: flushed to zero" in reason
    assert "denormal.half: 1 of 2 flushed" in reason
    assert resolve_options(target).options.textures


def test_halves_that_do_not_work_are_no_halves(tmp_path):
    wrong = RIGHT[HALVES].copy()
    wrong[130] = 26
    target, done = calibrated(tmp_path, planted(**{HALVES.replace(".", "__"): wrong}))
    assert not target.limits.fp16
    assert "is listed, but does not work" in (target.source_of("limits.fp16") or "")
    assert "gives 26 for 25" in facts_of(done)[HALVES].measured
    with pytest.raises(OptionError, match="no half arithmetic"):
        resolve_options(target, preset="fp16")
    assert resolve_options(target, preset="mixed").options.compute_dtype == "float32"


def test_without_textures_and_halves_all_is_float32(tmp_path):
    """It is the quirk that takes the textures, so nobody has to ask for float32 himself."""
    target, _ = calibrated(tmp_path, planted(HALVES, border=np.ones(44, np.float32)))
    resolved = resolve_options(target)
    assert (resolved.options.textures, resolved.options.storage_dtype) == (False, "float32")
    assert "no half type" in dict(resolved.origins)["storage_dtype"]
    assert "measured-textures" in dict(resolved.origins)["storage_dtype"]


def test_what_does_not_work_is_not_there_on_this_computer_either(tmp_path):
    target, _ = calibrated(tmp_path, planted(DOT))
    assert not load_target(f"host:{target.path}").has_dot_products
    assert load_target("host:750").has_dot_products
    whole, _ = calibrated(tmp_path, planted())
    assert load_target(f"host:{whole.path}").has_dot_products


@pytest.mark.parametrize("version", [200, 300])
def test_wrong_dot_products_take_qualcomms_with_them(tmp_path, version):
    """Kernels take the standard's function wherever a compiler has its name."""
    device = planted(DOT)
    done = calibrate_planted({**WITH_OWN_DOT, "c_version": version}, device, others=tuple(RIGHT))
    path = tmp_path / "phone.toml"
    path.write_text(done.toml)
    target = load_target(str(path))
    assert target.has_extension("cl_khr_integer_dot_product") is False
    assert not target.has_dot_products
    assert "no bytes are multiplied" in facts_of(done)[DOT].means


def test_what_could_not_be_asked_is_no_reason_to_avoid(tmp_path):
    target, done = calibrated(tmp_path, planted("border"))
    assert facts_of(done)["border"].means == "it could not be asked"
    assert "textures" not in target.avoided


def test_a_buffer_that_fails_is_not_promised(tmp_path):
    target, _ = calibrated(tmp_path, planted())
    assert target.limits.max_alloc_bytes == 1 << 30
    done = calibrate_planted(
        {**FACTS, "limits": {**FACTS["limits"], "max_allocation_bytes": 1 << 40}},
        planted("buffer.largest"),
        others=("buffer.largest",),
    )
    path = tmp_path / "phone.toml"
    path.write_text(done.toml)
    known = load_target("adreno:750").limits.max_alloc_bytes
    assert load_target(str(path)).limits.max_alloc_bytes == known
    assert "# max_alloc_bytes: the driver says 1099511627776" in done.toml


def test_figures_that_no_estimate_reads_are_in_the_file(tmp_path):
    target, done = calibrated(tmp_path, planted())
    measured = dict(target.measured)
    assert measured["memory.read"] == pytest.approx(54.0, rel=0.02)
    assert measured["border"] is True
    source = target.source_of("measured.memory.read") or ""
    for part in ("measured on QUALCOMM", "E031.45.02.06", "2026-12-01", "spread 0.0 %", "900 MHz"):
        assert part in source
    # They change no kernel: another figure is the same target but for the file.
    assert len(measured) == sum(r.is_measured for r in done.measured.rows) - 3  # extensions


def test_a_file_may_not_say_just_anything_as_measured(tmp_path):
    path = tmp_path / "phone.toml"
    for line in ('"A B" = { value = 1.0, source = "x" }', 'a = { value = "x", source = "x" }'):
        path.write_text(f'title = "t"\nbase = "adreno:750"\n[measured]\n{line}\n')
        with pytest.raises(TargetError, match="measured"):
            load_target(str(path))


@pytest.mark.parametrize("name", ["exp", "exp2", "recip", "logistic"])
def test_coarse_functions_of_a_gpu_are_left_alone(tmp_path, name):
    row = f"function.{name}"
    right = FUNCTIONS[row]
    _, done = calibrated(tmp_path, planted(**{f"function__{name}": right * (1 + 2.0**-12)}))
    assert not facts_of(done)[row].avoid and not facts_of(done)[row].means
    target, done = calibrated(tmp_path, planted(**{f"function__{name}": right * (1 + 2.0**-8)}))
    fact = facts_of(done)[row]
    assert fact.measured.startswith("off by 2^-8.0 of the result at ")
    assert fact.beside == "off by 2^-11 a call at most"
    assert "OpenCL's own functions" in fact.means
    assert "off by 2^-8.0" in target.avoided["native-functions"]
    resolved = resolve_options(target)
    assert not resolved.options.native_functions
    assert "measured-native-functions" in dict(resolved.origins)["native_functions"]


def test_a_reciprocal_of_what_is_beyond_every_float_is_zero(tmp_path):
    wrong = FUNCTIONS["function.logistic"].copy()
    wrong[-4] = np.nan
    target, done = calibrated(tmp_path, planted(function__logistic=wrong))
    assert facts_of(done)["function.logistic"].measured.startswith("nan for ")
    assert "native-functions" in target.avoided
