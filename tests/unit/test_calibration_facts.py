"""What a planted device does otherwise than kernels reckon with: told, and honoured by the file."""

from pathlib import Path

import numpy as np
import pytest

from adrenoc.base.errors import OptionError, TargetError
from adrenoc.ir.options import resolve_options
from adrenoc.lab.calibrate.facts import Fact
from adrenoc.lab.calibrate.measures.numbers import CALLED
from adrenoc.lab.calibrate.session import Calibration
from adrenoc.pages.calibration_page import calibration_html
from adrenoc.target.target import Target, load_target
from tests.unit.planted_device import FACTS, Planted, calibrate_planted, planted_ns

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
    lost = np.ones(44, np.float32)
    target, _ = calibrated(tmp_path, planted(HALVES, border=lost))
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
