"""An OpenCL library that opens, and no device to use behind it: which of the reasons it is."""

import sys
from pathlib import Path

import pytest

from adrenoc.base.errors import DeviceError
from adrenoc.device.remote import run_remote
from tests.commands import run_program
from tests.patience import WAIT_S
from tests.runtime.programs import compile_opencl
from tests.runtime.servers import address_of, native_server

NO_DEVICE = 24
KINDS = {
    "registry": "libabsent_opencl.so lists no platform: it found no driver",
    "platforms": "libabsent_opencl.so lists no platform: it found no driver",
    "devices": "Intel(R) OpenCL lists no device",
    "lost": "lists no devices: clGetDeviceIDs failed with CL_DEVICE_NOT_AVAILABLE",
    "facts": "is left out: clGetDeviceInfo failed with CL_INVALID_VALUE",
    "images": "there is 0 = ",
}
_IN_PYTHON = """
import sys
from adrenoc import native
from adrenoc.device.place import choose_device
from adrenoc.base.errors import DeviceError
from adrenoc.native import opencl
import tvm_ffi
native.use_software_device()
native.load()
tvm_ffi.get_global_func("adrenoc.opencl.set_library")(sys.argv[1])
try:
    print(choose_device(opencl.devices(), "", absent=opencl.absent_devices())[1]["name"])
except DeviceError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def absent(opencl, tmp_path_factory) -> Path:
    return compile_opencl("absent_opencl.c", tmp_path_factory.mktemp("absent"), opencl)


@pytest.mark.parametrize("kind", KINDS)
def test_the_runner_tells_why(kind, absent, bundle, runtime, execute):
    command = (runtime.runner, bundle.path, "--opencl", absent)
    said = execute(*command, expect=NO_DEVICE, ADRENOC_TEST_ABSENT=kind).err
    assert said.startswith("adrenoc_run: no device: no OpenCL device with images; ")
    assert KINDS[kind] in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("kind", ["registry", "devices", "facts"])
def test_python_tells_why(kind, absent, monkeypatch):
    monkeypatch.setenv("ADRENOC_TEST_ABSENT", kind)
    command = [sys.executable, "-c", _IN_PYTHON, str(absent)]
    said = run_program(command, timeout=WAIT_S, check=True).stdout
    assert said.startswith("there is no OpenCL device on this machine; ")
    assert KINDS[kind] in said


def test_one_broken_driver_hides_no_other(absent, bundle, runtime, execute):
    command = (runtime.runner, bundle.path, "--opencl", absent, "--repeat", "1")
    assert execute(*command, ADRENOC_TEST_ABSENT="broken").json()["device"]
    said = execute(*command, "--device", "none", expect=NO_DEVICE, ADRENOC_TEST_ABSENT="broken").err
    assert "there is 0 = " in said
    assert f"a platform without a name {KINDS['lost']}" in said


def test_a_client_is_told_why_its_server_has_none(absent, bundle, case, runtime, monkeypatch):
    monkeypatch.setenv("ADRENOC_TEST_ABSENT", "registry")
    with (
        native_server(runtime, str(absent)) as (_, port),
        pytest.raises(DeviceError, match=r"on the server at .*lists no platform"),
    ):
        run_remote(bundle, address_of(port), inputs=case.arrays)
