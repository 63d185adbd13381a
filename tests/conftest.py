"""Options of the whole suite, and the device that kernels run on."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.examples import PROFILE
from tests.faulty.driver import build_layer

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # of tests that import onnxruntime themselves
# A server of adb's would stay for the tests that follow, and hide what the first of them does.
os.environ["ADBUTILS_ADB_PATH"] = "/nowhere/adb"
settings.register_profile("adrenoc", PROFILE)
settings.load_profile("adrenoc")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files instead of comparing"
    )
    parser.addoption(
        "--opencl",
        default="",
        metavar="NAME",
        help="run on this driver of the system, a file of /etc/OpenCL/vendors, such as pocl",
    )
    parser.addoption(
        "--optimised", action="store_true", help="drivers optimise the kernels of all tests"
    )
    parser.addoption(
        "--pooled", action="store_true", help="textures of all tests lie in one buffer, if they can"
    )


@pytest.fixture(autouse=True)
def _pooled(request, monkeypatch) -> None:
    """With `--pooled`, what `--pool-textures` plans, even where it takes no less memory."""
    if request.config.getoption("--pooled"):
        from adrenoc.compile import steps
        from adrenoc.passes.lower.plan_memory import plan_memory

        monkeypatch.setattr(
            steps,
            "plan_storage",
            lambda s: (plan_memory(s.program, pool_within=s.target.limits), None),
        )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is known to fail on the driver that was named has to fail there."""
    from tests.opencl.known import known_failures

    known = known_failures(config.getoption("--opencl"))
    for item in items:
        if item.nodeid in known:
            item.add_marker(pytest.mark.xfail(reason=known[item.nodeid], strict=True))


def pytest_configure() -> None:
    """Each worker has a core of its own, and so have the processes that it starts.

    Drivers and libraries then share no work out among threads that wait for each other.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is not None and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})


def pytest_collection_finish() -> None:
    """What is loaded by now stays: no collection of garbage looks through it again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(hookwrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Skip what asks a driver that was named for halves that it does not have."""
    outcome = yield
    wanted = pyfuncitem.config.getoption("--opencl")
    if not (wanted and outcome.excinfo) or pyfuncitem.funcargs.get("preset") == "fp32":
        return
    from tests.opencl.implementation import asks_for_halves

    if asks_for_halves(outcome.excinfo[1]):
        outcome.force_exception(pytest.skip.Exception(f"{wanted} has no cl_khr_fp16"))


@pytest.fixture(scope="session")
def optimising_device(request, tmp_path_factory):
    """An OpenCL device with images: the software one where it is installed, or `--opencl`."""
    from tests.opencl.implementation import open_devices

    wanted = request.config.getoption("--opencl")
    found = open_devices(wanted, tmp_path_factory.mktemp("layer"))
    if not found or not found[0]["images"]["supported"]:
        if wanted:  # what was asked for must not pass for what is not there
            pytest.fail(f"--opencl {wanted}: it has no device with images")
        pytest.skip("no OpenCL device with images on this machine")
    import tvm

    return tvm.opencl(0)


@pytest.fixture(scope="module")
def device(request, optimising_device) -> Iterator[Any]:
    """The device, whose driver does not optimise kernels: those of a test run once.

    What a module with `OPTIMISED = True` has it run is built as users have it.
    """
    from tests.opencl.implementation import plain_builds

    if request.config.getoption("--optimised") or getattr(request.module, "OPTIMISED", False):
        yield optimising_device
        return
    with plain_builds():
        yield optimising_device


@pytest.fixture
def plain_processes(optimising_device, tmp_path, monkeypatch) -> None:
    """Have processes that a test starts not optimise kernels; this one has made its choice."""
    from tests.opencl.implementation import plain_environment

    for variable, value in plain_environment(tmp_path).items():
        monkeypatch.setenv(variable, value)


@pytest.fixture(scope="session")
def layer(tmp_path_factory) -> Path:
    """The layer of OpenCL's loader that misbehaves on order."""
    return build_layer(tmp_path_factory.mktemp("layer"))
