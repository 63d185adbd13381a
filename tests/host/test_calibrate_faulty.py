"""`adrenoc device calibrate` on drivers that list what fails, and lose borders and small numbers.

What it finds is in its target file, and what is compiled for that file is right on such a driver.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from adrenoc.lab.calibrate.facts import Fact
from adrenoc.lab.calibrate.session import Calibration, DeviceRequest, run_calibration
from adrenoc.lab.prove.examine import judge
from adrenoc.lab.prove.suite import CASES, Suite, make_suite
from adrenoc.lab.prove.verify_device import RemoteBench
from adrenoc.lab.tune.tuner import local_server
from adrenoc.target.target import Target, load_target
from tests.faulty.driver import misbehaving
from tests.patience import WAIT_S

EDGE = "edit||CLK_ADDRESS_CLAMP |CLK_ADDRESS_CLAMP_TO_EDGE "
WITHIN = "conv2d: 3x3 with a border"
FAULTS = (
    EDGE,
    "images|write_imagef(|faulty_flush(",
    "edit||dot_acc_sat_4x8packed_su_int(|dot_acc_sat_4x8packed_uu_uint(",
    "edit||convert_half4(|0.5h * convert_half4(",
    "lists|cl_qcom_recordable_queues",
    "lists|cl_qcom_perf_hint",
    "lists|cl_khr_command_buffer",
    "forget|3",
)


pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("device")]


def _calibrate(*only: str, limit_s: float = 200.0) -> Calibration:
    return run_calibration(
        DeviceRequest(place=None, cl_device="", budget_s=300.0, limit_s=limit_s, only=only)
    )


def _facts(done: Calibration) -> dict[str, Fact]:
    return {fact.key: fact for fact in done.measured.facts}


@pytest.fixture(scope="module")
def spoilt(layer, tmp_path_factory) -> tuple[Calibration, Target]:
    """What a driver with all faults was found to be, and the target for this machine."""
    with misbehaving(layer, *FAULTS):
        done = _calibrate("border", "denormal.w", "extension.")
    path = tmp_path_factory.mktemp("calibrated") / "phone.toml"
    path.write_text(done.toml)
    return done, load_target(f"host:{path}")


def test_each_fault_is_named(spoilt):
    facts = _facts(spoilt[0])
    said = {
        "border": "1, 1, 1, 1 at (-1, 0) of 5 x 5 texels",
        "denormal.write_imagef": "flushed to zero",
        "extension.cl_khr_integer_dot_product": "dot_acc_sat_4x8packed_su_int",
        "extension.cl_khr_fp16": "gives 25 for 50",
        "extension.cl_qcom_recordable_queues": "refused: the driver has no clNewRecordingQCOM",
        "extension.cl_qcom_perf_hint": "refused: the driver has cl_qcom_perf_hint and refused it",
        "extension.cl_khr_command_buffer": "wrong: it brings other numbers",
    }
    assert {key: facts[key].measured for key in said if said[key] not in facts[key].measured} == {}
    assert all(facts[key].means for key in said)


def test_the_file_does_without(spoilt):
    done, target = spoilt
    assert done.listed.name == "adreno:a640"
    assert {"textures", "half-denormals"} <= target.avoided.keys()
    assert not target.limits.fp16
    assert not target.has_dot_products
    for name in ("qcom_recordable_queues", "khr_command_buffer"):
        assert dict(load_target(str(target.path)).gpu.extensions)[f"cl_{name}"] is False


def test_what_is_compiled_for_it_is_right_there(spoilt, layer, tmp_path):
    assert _wrong_there(WITHIN, EDGE, spoilt[1], layer, tmp_path) == {
        "listed": True,
        "measured": False,
    }


def _wrong_there(
    title: str, fault: str, measured: Target, layer: Path, folder: Path
) -> dict[str, bool]:
    """Whether a case is wrong on a driver, compiled for what is listed and what was measured."""
    case = next(case for case in CASES if case.title == title)
    suite = Suite(precision="mixed", memory="textures", cases=(case,))
    wrong = {}
    for name, target in (("listed", load_target("host:a640")), ("measured", measured)):
        place = folder / name
        place.mkdir()
        made = make_suite(suite, target, place)
        with misbehaving(layer, fault), local_server() as address:
            runs = RemoteBench(replace(address, timeout_s=WAIT_S), "").run(made)
        wrong[name] = bool(judge(made, runs.last))
    return wrong


@pytest.mark.parametrize(
    ("fault", "row", "said", "case"),
    [
        ("edit||native_exp(|faulty_exp(", "exp", "off by 2^-7.4 ", "near zero"),
        ("edit||native_recip(|faulty_recip(", "recip", "off by 2^-7.4 ", "near zero"),
        ("edit||native_recip(|faulty_endless(", "logistic", "nan for ", "far from zero"),
    ],
)
def test_coarse_functions_are_named_and_done_without(fault, row, said, case, layer, tmp_path):
    with misbehaving(layer, fault):
        done = _calibrate(f"function.{row}", "function.exp2")
    fact = _facts(done)[f"function.{row}"]
    assert fact.measured.startswith(said) and fact.avoid == "native-functions"
    assert not _facts(done)["function.exp2"].means
    path = tmp_path / "phone.toml"
    path.write_text(done.toml)
    title = f"map: Sigmoid that a half stores, {case}"
    wrong = _wrong_there(title, fault, load_target(f"host:{path}"), layer, tmp_path)
    assert wrong == {"listed": True, "measured": False}


@pytest.mark.parametrize(
    ("order", "word"),
    [("hang|operation", "timeout: "), ("crash|operation", "lost: "), ("refuse|operation|-5", "")],
)
def test_an_operation_that_breaks_the_device_costs_itself(layer, order, word):
    with misbehaving(layer, order):
        done = _calibrate("buffer.largest", "launch.queue", limit_s=15.0)
    rows = {row.name: row for row in done.measured.rows}
    assert rows["buffer.largest"].status == "failed"
    assert rows["buffer.largest"].reason.startswith(word)
    assert rows["launch.queue"].is_measured
    assert "large tensors may fail" in _facts(done)["buffer.largest"].means


def test_a_clock_that_stands_is_replaced_by_the_hosts(layer):
    with misbehaving(layer, "clock|zero"):
        (row,) = _calibrate("mad.float4").measured.rows
    assert row.is_measured and row.value is not None, row.reason
    assert 0.01 < row.value < 1e5
    assert row.by_host
    assert "the host's clock" in row.state
