"""`adrenoc device verify` with drivers that misbehave on order (`tests/faulty/`).

Where it does not matter how a driver goes wrong, a bench that knows what is right stands for it.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from adrenoc.base.errors import CheckFailedError, DeviceError, DeviceMemoryError, RemoteError
from adrenoc.cli.devices import find_wrong
from adrenoc.lab.calibrate.measure import DeviceFacts
from adrenoc.lab.prove.examine import GoneError, SuiteRuns, judge
from adrenoc.lab.prove.suite import CASES, BuiltSuite, Suite, all_suites, make_suite
from adrenoc.lab.prove.verify_device import (
    RemoteBench,
    Verification,
    VerifyRequest,
    pick_suites,
    run_verification,
    verify_device,
)
from adrenoc.lab.tune.tuner import local_server
from adrenoc.target.device_set import apply_report, read_report, report_json
from adrenoc.target.target import load_target
from tests.commands import run_program
from tests.faulty.driver import misbehaving
from tests.patience import WAIT_S

pytestmark = pytest.mark.usefixtures("device")


def _request(*only: str) -> VerifyRequest:
    return VerifyRequest(
        place=None,
        cl_device="",
        limit_s=WAIT_S,
        budget_s=600.0,
        only=only,
        precisions=("mixed",),
        memories=("textures",),
    )


def _right_as_reported(done: Verification, request: VerifyRequest, folder: Path) -> bool:
    """Whether the same cases are right when they are compiled with the report."""
    path = folder / "device.json"
    path.write_text(report_json(done.report))
    target = apply_report(load_target("host:a640"), read_report(path), path)
    with local_server() as address:
        made = make_suite(pick_suites(request, target)[0], target, folder)
        outputs = RemoteBench(address, "").run(made).last
    return not judge(made, outputs)


def _suite_at(folder: Path, *only: str) -> list[str]:
    """The command that runs a suite of these cases in a process of its own."""
    target = load_target("host")
    made = make_suite(pick_suites(_request(*only), target)[0], target, folder)
    return [sys.executable, "-m", "adrenoc", "run", str(made.bundle.path)]


def test_a_process_that_fails_while_kernels_are_built_keeps_its_code(layer, tmp_path):
    """Drivers crash a process that ends while they compile."""
    command = _suite_at(tmp_path, *(case.title for case in CASES if case.family == "conv2d"))
    with misbehaving(layer, "fail|clCreateImage|0|-4"):
        done = run_program(command)
    assert "clCreateImage failed" in done.stderr
    assert done.returncode == DeviceMemoryError.exit_code, done.stderr


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ("threads|4", "takes at most 4 for this kernel"),
        ("device_says|4", "it takes 4"),
        ("kernels_say|4", ""),  # too little: the launch tells
    ],
)
def test_a_work_group_that_is_too_large(order, said, layer, tmp_path):
    command = _suite_at(tmp_path, "conv2d: 3x3 with a border")
    with misbehaving(layer, order):
        done = run_program([*command, "--repeat", "1"])
    assert done.returncode == (DeviceError.exit_code if said else 0), done.stderr
    assert said in done.stderr
    assert ("DEVICE+device.json" in done.stderr) == bool(said)


@pytest.mark.nightly
def test_a_kernel_that_is_miscompiled(layer, tmp_path):
    request = _request("softmax: along channels", "conv2d: 1x1, 5")
    with misbehaving(layer, "edit|^softmax|exp(|exp2("):
        done = run_verification(request)
        assert done.report.device.gpu == "640"
        assert done.target.name == "host:a640"
        assert {finding.case.family for finding in done.findings} == {"softmax"}
        first = done.findings[0]
        assert first.text.startswith("is wrong at element [0, 0, 0, 0] of 1x10x7x5: seen ")
        assert [q.avoid for q in done.report.quirks] == [("operator:softmax",)]
        assert done.report.is_right and not done.left
        assert _right_as_reported(done, request, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("nth", [2, 5])
def test_launches_that_compute_nothing_now_and_then(layer, nth):
    """What they leave is what the run before wrote, which is right where all inputs are equal."""
    request = _request("softmax: along channels", "map: Tanh")
    with misbehaving(layer, f"skip|^softmax|{nth}"):
        done = run_verification(request)
    assert {finding.case.family for finding in done.findings} == {"softmax"}
    assert done.report.is_right and not done.left


@pytest.mark.nightly
def test_launches_that_compute_nothing_from_some_time_on(layer):
    """No run differs from the one before, whatever its inputs are."""
    request = _request("softmax: along channels", "map: Tanh")
    with misbehaving(layer, "wears|^softmax|3"):
        done = run_verification(request)
    assert {(finding.case.family, finding.kind) for finding in done.findings} == {
        ("softmax", "stale")
    }
    assert "the numbers of an earlier run, for other inputs too" in str(done.findings[0])
    assert done.report.is_right and not done.left


@pytest.mark.parametrize(
    ("order", "gpu", "case", "said"),
    [
        ("images_say|4096\nwide|4096", "640", "16384", "takes images of 4096 texels"),
        *(
            pytest.param(*row, marks=pytest.mark.nightly)
            for row in (
                ("edit||DOT_PRODUCTS(|faulty_signs(", "730", "conv2d: bytes, 1x1", "dot-products"),
                ("images|write_imagef(|faulty_flush(", "640", "a small half", "half-denormals"),
                ("edit||native_exp(|faulty_exp(", "640", "near zero", "native-functions"),
                ("edit||native_recip(|faulty_recip(", "640", "near zero", "native-functions"),
                ("edit||native_recip(|faulty_endless(", "640", "far from zero", "native-functions"),
                ("large|128", "640", "softmax: along rows", "of 129 threads"),
                ("local_says|8191", "640", "separable_conv2d", "has 8191 bytes of local memory"),
            )
        ),
    ],
)
def test_the_cheapest_form_that_helps(order, gpu, case, said, layer):
    with misbehaving(layer, order, gpu=gpu):
        done = run_verification(_request(case))
    told = [" ".join((quirk.text, *quirk.avoid)) for quirk in done.report.quirks]
    assert len(told) == 1 and said in told[0], told
    assert done.report.is_right and not done.left


Spoil = Callable[[BuiltSuite, str, np.ndarray], np.ndarray]
"""(suite, case, what is right) -> what the last run gives."""


class PlantedBench:
    """Gives what is right but for what a test spoils."""

    def __init__(self, spoil: Spoil = lambda made, title, value: value) -> None:
        self._spoil = spoil
        self.failures: list[Exception] = []
        """What the next runs raise."""
        self.runs = 0

    def run(self, made: BuiltSuite) -> SuiteRuns:
        self.runs += 1
        if self.failures:
            raise self.failures.pop(0)
        last = {
            name: self._spoil(made, made.of_case[name], value)
            for name, value in made.expected.items()
        }
        return SuiteRuns(first=last, last=last)


PLANTED = ("softmax: along channels", "map: Tanh")


@pytest.fixture(scope="module")
def suites(tmp_path_factory) -> Path:
    """A folder in which each suite is compiled once for all tests."""
    return tmp_path_factory.mktemp("suites")


def _suites(*titles: str) -> tuple[Suite, ...]:
    cases = tuple(case for case in CASES if case.title in titles)
    assert len(cases) == len(titles)
    return all_suites(cases, half_type=True)[:2]


def _verified(bench: PlantedBench, folder: Path, *titles: str) -> Verification:
    device = DeviceFacts.from_facts({"name": "a device", "driver": "1.0"})
    target = load_target("host")
    return verify_device(
        bench, device, target, _suites(*(titles or PLANTED)), folder, budget_s=600.0
    )


def test_a_device_that_is_right_has_nothing_to_avoid(suites):
    bench = PlantedBench()
    done = _verified(bench, suites)
    assert done.report.is_right and not done.report.quirks and not done.findings
    assert done.report.suites.cases == 4 and done.report.suites.kernels > 4
    assert bench.runs == 3  # two memories, and the other order


def test_what_nothing_helps_is_told(suites):
    def spoil(_: BuiltSuite, title: str, value: np.ndarray) -> np.ndarray:
        signalling = np.full_like(value.view(np.uint32), 0x7FA00000).view(np.float32)
        return signalling if title == "map: Tanh" else value

    with np.errstate(invalid="raise"):
        done = _verified(PlantedBench(spoil), suites)
    assert not done.report.is_right and not done.report.quirks
    assert {finding.title for finding in done.left} == {"map: Tanh"}
    assert {finding.helps for finding in done.report.findings} == {()}


@pytest.mark.parametrize(("later_s", "helped"), [(20.0, True), (700.0, False)])
def test_the_budget_is_for_what_helps(later_s, helped, suites, monkeypatch):
    """Three runs show what is wrong; only then does the time count."""

    class Slow(PlantedBench):
        def run(self, made: BuiltSuite) -> SuiteRuns:
            clock[0] += 300.0 if self.runs < 3 else later_s
            return super().run(made)

    def spoil(made: BuiltSuite, title: str, value: np.ndarray) -> np.ndarray:
        has_kernel = any(k.family == "softmax" for k in made.bundle.manifest.kernels)
        return value + np.float32(has_kernel and title == "softmax: along channels")

    clock = [0.0]
    told = SimpleNamespace(monotonic=lambda: clock[0])
    monkeypatch.setattr("adrenoc.lab.prove.verify_device.time", told)
    done = _verified(Slow(spoil), suites)
    assert bool(done.report.quirks) is helped
    assert done.is_cut is not helped


@pytest.mark.parametrize(
    "error",
    [
        DeviceError("CL_OUT_OF_RESOURCES", hint=""),
        # A server that was ended, by a user or a system that wants memory, costs one run more.
        RemoteError("the connection was cut off", hint=""),
    ],
    ids=["the device", "the session"],
)
def test_a_failure_that_does_not_come_again_is_told(suites, error):
    bench, whole = PlantedBench(), PlantedBench()
    bench.failures = [error]
    done = _verified(bench, suites)
    assert done.report.is_right and not done.findings
    assert done.report.failed_once == (f"{error.message}; it did not come again",)
    _verified(whole, suites)
    assert isinstance(error, DeviceError) or bench.runs == whole.runs + 1


def test_what_fails_as_a_whole_each_time_is_not_right(suites):
    class Small(PlantedBench):
        def run(self, made: BuiltSuite) -> SuiteRuns:
            if len(made.suite.cases) > 1:
                raise DeviceError("no memory left", hint="")
            return super().run(made)

    done = _verified(Small(), suites)
    assert not done.report.is_right and not done.findings
    (told, *_) = done.report.failed_once
    assert told == "no memory left; each time that all cases run, and not in parts"
    wrong = find_wrong(done)
    assert isinstance(wrong, CheckFailedError)
    assert re.search(r"could not be judged on .*: no memory left; each", wrong.message)


def test_what_fails_is_split_down_to_its_case(suites):
    class Hangs(PlantedBench):
        def run(self, made: BuiltSuite) -> SuiteRuns:
            if any(kernel.family == "softmax" for kernel in made.bundle.manifest.kernels):
                raise RemoteError("no answer", hint="")
            return super().run(made)

    done = _verified(Hangs(), suites)
    assert {finding.title for finding in done.findings} == {"softmax: along channels"}
    assert {finding.text for finding in done.findings} == {"no answer"}
    assert [quirk.avoid for quirk in done.report.quirks] == [("operator:softmax",)]
    assert done.report.is_right


def test_what_is_wrong_in_company_alone_is_tried_in_company(suites):
    def spoil(made: BuiltSuite, title: str, value: np.ndarray) -> np.ndarray:
        is_alone = len(made.suite.cases) == 1
        off = made.options.textures and not is_alone and title == "softmax: along channels"
        return value + np.float32(off)

    done = _verified(PlantedBench(spoil), suites)
    assert [quirk.avoid for quirk in done.report.quirks] == [("textures",)]
    assert done.report.is_right


def test_what_depends_on_the_order_is_found(suites):
    def spoil(made: BuiltSuite, title: str, value: np.ndarray) -> np.ndarray:
        is_turned = len(made.suite.cases) > 1 and made.suite.cases[0].family == "softmax"
        return value * np.float32(1 + 2**-20) if is_turned and title == "map: Tanh" else value

    done = _verified(PlantedBench(spoil), suites)
    assert [(finding.title, finding.kind) for finding in done.findings] == [
        ("map: Tanh", "unsteady")
    ]
    assert not done.report.quirks and not done.report.is_right


def test_a_device_that_is_gone_ends_it(suites):
    bench = PlantedBench()
    bench.failures = [GoneError("it is gone")]
    with pytest.raises(GoneError, match="it is gone"):
        _verified(bench, suites)
