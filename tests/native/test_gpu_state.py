"""The state of an Adreno GPU as its driver in Linux shows it: files below a root."""

from pathlib import Path

import tvm_ffi

from adrenoc import native
from adrenoc.device.profile import GpuState, parse_gpu_state


def _state(root: Path) -> GpuState:
    native.load()
    return parse_gpu_state(tvm_ffi.get_global_func("adrenoc.runtime.gpu_state")(str(root)))


def test_what_a_phone_shows(tmp_path):
    folder = tmp_path / "class/kgsl/kgsl-3d0"
    (folder / "devfreq").mkdir(parents=True)
    for name, content in (
        ("gpu_model", "Adreno750v2\n"),
        ("gpuclk", "903000000\n"),
        ("max_gpuclk", "1000000000\n"),
        ("temp", "41500\n"),
        ("devfreq/governor", "msm-adreno-tz\n"),
    ):
        (folder / name).write_text(content)
    assert _state(tmp_path) == GpuState(
        model="Adreno750v2",
        clock_mhz=903.0,
        max_clock_mhz=1000.0,
        governor="msm-adreno-tz",
        temperature_c=41.5,
    )


def test_what_cannot_be_read_is_left_out(tmp_path):
    assert not _state(tmp_path).is_known
    folder = tmp_path / "class/kgsl/kgsl-3d0"
    folder.mkdir(parents=True)
    (folder / "gpuclk").write_text("no number")
    (folder / "gpu_model").write_text("")
    assert not _state(tmp_path).is_known
    (folder / "temp").write_text("39000")
    assert _state(tmp_path) == GpuState(temperature_c=39.0)
