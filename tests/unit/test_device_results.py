"""What a run tells: times, profiles by node, the state of the GPU, versions and limits that fit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adrenoc.base.errors import BundleError, DeviceError, DeviceMemoryError, TargetError
from adrenoc.bundle.buckets import Edition, rank_editions
from adrenoc.bundle.bundle import Bundle, LaunchInfo, launches_from_json, launches_to_json
from adrenoc.device.fit import (
    check_device,
    check_version,
    compile_again,
    device_failure,
    diagnose,
    local_bytes,
    other_gpu_notes,
)
from adrenoc.device.result import (
    GpuState,
    Progress,
    Sustained,
    TimedLaunch,
    Times,
    clock_notes,
    kernel_times,
    node_times,
    parse_gpu_state,
    percentile,
    tells_time,
    why_not_comparable,
)
from adrenoc.target.device_set import (
    FORMAT,
    DeviceReport,
    ReportedDevice,
    ReportedSuites,
    add_report,
    is_device_set,
    load_device_set,
    read_device_set,
    report_json,
)
from adrenoc.target.target import list_targets
from tests.unit.fake_compiled import make_bundle_folder

LAUNCHES = (
    LaunchInfo(kernel="conv", node="conv_1", flops=2_000_000, bytes=500_000, floor_us=250.0),
    LaunchInfo(kernel="pool", node="pool_1", flops=1000, bytes=1000),
    LaunchInfo(kernel="conv", node="conv_2", flops=4_000_000, bytes=500_000, floor_us=250.0),
)
RAN = (
    TimedLaunch(kernel="conv", start_ns=0, end_ns=1_000_000),
    TimedLaunch(kernel="pool", start_ns=1_000_000, end_ns=1_500_000),
    TimedLaunch(kernel="conv", start_ns=1_500_000, end_ns=3_500_000),
)


def test_percentiles_are_nearest_ranks():
    values = [4.0, 1.0, 3.0, 2.0]
    assert [percentile(values, p) for p in (0, 25, 50, 90, 100)] == [1.0, 1.0, 2.0, 4.0, 4.0]


def test_times():
    times = Times.from_runs(load_ms=1, build_ms=2, first_ms=3, warm_ms=[5.0, 4.0])
    assert (times.cold_ms, times.p50_ms, times.p99_ms, times.runs) == (6, 4.0, 5.0, 2)
    assert Times.from_runs(load_ms=1, build_ms=2, first_ms=3, warm_ms=[]).runs == 0


def test_a_device_that_slows_down_shows():
    run = Sustained.from_runs([1.0] * 50 + [2.0] * 50, seconds=1, pause_ms=0)
    assert (run.begin_p50_ms, run.end_p50_ms, run.runs) == (1.0, 2.0, 100)


def test_progress_in_words():
    progress = Progress()
    assert str(progress) == "nothing ran"
    progress.first_ms = 12.0
    progress.warm_ms += [3.0, 4.0, 5.0]
    assert str(progress) == "the first run took 12.0 ms, 3 warm runs 4.0 ms (p50)"


def test_launches_get_the_names_of_the_model():
    nodes = node_times(RAN, LAUNCHES)
    assert [node.node for node in nodes] == ["conv_1", "pool_1", "conv_2"]
    assert nodes[0].gflops == pytest.approx(2.0)
    assert nodes[2].gflops == pytest.approx(2.0)
    assert nodes[0].gb_per_s == pytest.approx(0.5)
    assert nodes[0].of_roofline == pytest.approx(0.25)
    assert nodes[1].of_roofline is None
    assert [(k.name, k.calls, k.time_ms) for k in kernel_times(RAN)] == [
        ("conv", 2, 3.0),
        ("pool", 1, 0.5),
    ]


def test_other_launches_get_no_names():
    assert node_times(RAN[:2], LAUNCHES) == ()
    assert node_times(RAN[::-1][:1] + RAN[:2], LAUNCHES) == ()


def test_launches_in_a_file():
    assert launches_from_json(launches_to_json(LAUNCHES), where="x") == LAUNCHES
    assert launches_from_json(launches_to_json(()), where="x") == ()
    for wrong in ("{", '[{"kernel": 1}]', "[1]"):
        with pytest.raises(BundleError, match="does not hold launches"):
            launches_from_json(wrong, where="x")


def test_gpu_states():
    text = '{"model":"Adreno750","clock_hz":903000000,"governor":"msm","temperature_mc":41500}'
    state = parse_gpu_state(text)
    assert state == GpuState(model="Adreno750", clock_mhz=903.0, governor="msm", temperature_c=41.5)
    assert not parse_gpu_state("{}").is_known
    assert str(state) == "903 MHz, governor msm, 41.5 °C"


def test_runs_with_other_clocks_cannot_be_compared():
    fast = GpuState(clock_mhz=900, governor="msm")
    assert why_not_comparable([fast, replace(fast, clock_mhz=890)]) == ""
    assert why_not_comparable([fast, GpuState()]) == ""
    assert "from 900 to 600 MHz" in why_not_comparable([fast, replace(fast, clock_mhz=600)])
    assert "governor" in why_not_comparable([fast, replace(fast, governor="performance")])


def test_a_gpu_whose_clock_cannot_be_read_is_told():
    known, unknown = GpuState(clock_mhz=900, governor="msm"), GpuState(governor="msm")
    assert clock_notes([known, known], {"type": "gpu"}) == ()
    for states in ([unknown, unknown], [known, unknown], [GpuState()]):
        (note,) = clock_notes(states, {"type": "gpu"})
        assert note.startswith("the GPU's clock could not be read")
    assert clock_notes([GpuState()], {"type": "cpu"}) == ()
    (note,) = clock_notes([known, replace(known, clock_mhz=600)], {"type": "gpu"})
    assert note.startswith("not comparable with other runs: the GPU's clock changed")


# --- whether bundle and device fit together -----------------------------------------------------


@pytest.fixture
def bundle(tmp_path) -> Bundle:
    manifest = make_bundle_folder(tmp_path / "b")
    return Bundle(path=tmp_path / "b", root=tmp_path / "b", manifest=manifest)


def _facts(**changes) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "name": "Adreno 750",
        "driver": "1.0",
        "c_version": 300,
        "fp16": True,
        "images": {"supported": True, "max_width": 64, "max_height": 64, "max_layers": 8},
        "limits": {
            "max_work_group_size": 1024,
            "global_memory_bytes": 1 << 30,
            "local_memory_bytes": 32768,
        },
    }
    for key, value in changes.items():
        facts[key] = {**facts[key], **value} if isinstance(value, dict) else value
    return facts


def test_a_device_that_has_all_fits(bundle):
    check_device(bundle, _facts(), where="the device")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"images": {"supported": False}}, "it has no images"),
        ({"c_version": 120}, "it compiles OpenCL C 1.2, and the kernels need 2.0"),
        ({"limits": {"max_work_group_size": 16}}, "conv2d_kernel has work-groups of 64"),
        (
            {"limits": {"max_work_item_sizes": [1024, 4, 64]}},
            "conv2d_kernel has work-groups of .*, it takes 1024 x 4 x 64 a side",
        ),
        ({"images": {"max_width": 2}}, "the constant p0 is an image of 4 x 9 texels in 1 layers"),
        ({"images": {"max_layers": 1}}, "memory slot 0 is an image of 8 x 8 texels in 2 layers"),
    ],
)
def test_what_a_device_lacks_is_named(bundle, changes, said):
    with pytest.raises(DeviceError, match=said):
        check_device(bundle, _facts(**changes), where="the device")


def test_memory_must_suffice(bundle):
    plan = replace(bundle.manifest.memory, peak_bytes=2 << 30)
    large = replace(bundle, manifest=replace(bundle.manifest, memory=plan))
    with pytest.raises(DeviceError, match="it has 1024 MiB of memory, and the bundle needs 2048"):
        check_device(large, _facts(), where="the device")


def test_half_arithmetic_needs_the_extension(bundle):
    options = replace(bundle.manifest.options, values={"compute_dtype": "float16"})
    half = replace(bundle, manifest=replace(bundle.manifest, options=options))
    with pytest.raises(DeviceError, match="no cl_khr_fp16"):
        check_device(half, _facts(fp16=False), where="the device")


def test_kernels_with_halves_in_buffers_need_the_extension(bundle):
    (listed,) = bundle.manifest.kernels
    (bundle.path / "kernels" / f"{listed.name}.cl").write_text(
        '#error "Half precision floating point not supported"\n__kernel void k() {}'
    )
    with pytest.raises(
        DeviceError, match=f"no cl_khr_fp16, and {listed.name} read or write halves"
    ):
        check_device(bundle, _facts(fp16=False), where="the device")
    check_device(bundle, _facts(), where="the device")


def test_another_tvm_is_refused(bundle):
    manifest = replace(bundle.manifest, versions={"apache-tvm": "0.27.0.post1"})
    opened = replace(bundle, manifest=manifest)
    check_version(opened, "0.1.0 tvm-0.27.0.post1 tvm-ffi-0.1.14.post1 x", where="the server")
    check_version(opened, "", where="the server")
    with pytest.raises(BundleError, match=r"TVM 0\.27\.0\.post1, but the server runs TVM 0\.26\.0"):
        check_version(opened, "0.1.0 tvm-0.26.0 tvm-ffi-0.1.13", where="the server")


def test_what_a_driver_says_becomes_a_typed_error():
    said = "Error caught from RPC call:\nclCreateImage failed with CL_OUT_OF_HOST_MEMORY"
    assert isinstance(device_failure(said, where="the device"), DeviceMemoryError)
    built = device_failure("Cannot build kernel conv for X: log", where="the device")
    assert built.hint == "adrenoc inspect BUNDLE --kernel conv"
    many = "Kernel k has a work-group of 8 x 8 = 64 work-items, but X takes at most 32"
    assert (
        "DEVICE+device.json" in device_failure(f"{many} for this kernel", where="the device").hint
    )
    other = device_failure("Traceback\n  File x\nit broke", where="the device")
    assert other.message == "the device failed: it broke"
    assert not isinstance(other, DeviceMemoryError)
    # As TVM 0.27 puts it.
    said = "RPCError: Error caught from RPC call:\nclFinish failed with CL_INVALID_VALUE"
    assert device_failure(said, where="x").message.endswith(
        ": clFinish failed with CL_INVALID_VALUE"
    )


@pytest.mark.parametrize(
    ("diagnosis", "kind", "hint"),
    [
        (None, DeviceError, "--profile"),
        ({"text": "t", "memory_short": False, "refusal": ""}, DeviceError, "--profile"),
        ({"text": "t", "memory_short": True, "refusal": ""}, DeviceMemoryError, "end what else"),
        ({"text": "t", "memory_short": True, "refusal": "x"}, DeviceError, "in a new process"),
    ],
)
def test_a_code_of_many_meanings_is_told_with_what_decides(diagnosis, kind, hint):
    said = "Launch of kernel k: clEnqueueNDRangeKernel failed with CL_OUT_OF_RESOURCES"
    error = device_failure(said, where="the device", diagnosis=diagnosis)
    assert type(error) is kind
    assert hint in error.hint
    told = "t" if diagnosis else "a kernel that faulted or ran for too long"
    assert error.message.startswith(f"the device failed: {said}; ")
    assert error.message.endswith(told)
    # An allocation says what it is about.
    said = "clCreateImage failed with CL_OUT_OF_RESOURCES: no room for image of 4 x 4 texels"
    assert isinstance(device_failure(said, where="x"), DeviceMemoryError)


def test_a_device_that_cannot_be_asked_tells_what_it_said():
    class Place:
        number = 0

        def function(self, name: str):
            assert name == "adrenoc.opencl.diagnose"

            def ask(number: int) -> str:
                raise RuntimeError("the line is cut")

            return ask

    said = "clFinish failed with CL_OUT_OF_RESOURCES"
    with pytest.raises(RuntimeError, match=rf"^{said}$"), diagnose(Place()):
        raise RuntimeError(said)


@pytest.mark.parametrize(
    ("target", "name", "version", "said"),
    [
        ("adreno:a750", "QUALCOMM Adreno(TM)", "OpenCL 3.0 Adreno(TM) 750", ""),
        ("adreno:a750", "QUALCOMM Adreno(TM)", "OpenCL 3.0 Adreno(TM) 660", "adreno:a660"),
        ("adreno:sm8650", "QUALCOMM Adreno(TM)", "OpenCL 3.0 Adreno(TM) 740", "adreno:a740"),
        ("adreno:sm8650", "QUALCOMM Adreno(TM) 750", "OpenCL 3.0", ""),
        ("adreno:a640", "QUALCOMM Adreno(TM)", "OpenCL 2.0 Adreno(TM) 642L", "adreno:a642l"),
        # One that no file of targets is for: what fits all.
        ("adreno:a750", "QUALCOMM Adreno(TM)", "OpenCL 3.0 Adreno(TM) 999", "--device adreno "),
        ("adreno", "QUALCOMM Adreno(TM)", "OpenCL 3.0 Adreno(TM) 740", ""),
        # As Mesa's drivers name them.
        ("adreno:a750", "FD740", "OpenCL 3.0 ", "adreno:a740"),
        ("adreno:a750", "FD750", "OpenCL 3.0 ", ""),
        # A laptop's, which is an Adreno whose number has letters.
        ("adreno:a740", "Qualcomm(R) Adreno(TM) X1-85 GPU", "OpenCL 3.0", "this is Adreno X1-85"),
        ("adreno:a750", "QUALCOMM Adreno(TM) 850", "OpenCL 3.0", "adreno:a850"),
        ("adreno:a750", "QUALCOMM Adreno(TM) 870", "OpenCL 3.0", "--device adreno "),
        ("adreno:a750", "NVIDIA H200", "OpenCL 3.0 CUDA", ""),
        ("host", "Adreno 750", "", ""),
        ("adreno:a1", "Adreno 750", "", ""),
    ],
)
def test_a_bundle_for_another_gpu_is_noted(bundle, target, name, version, said):
    manifest = replace(bundle.manifest, target=replace(bundle.manifest.target, name=target))
    notes = other_gpu_notes(replace(bundle, manifest=manifest), {"name": name, "version": version})
    assert bool(notes) == bool(said)
    assert said in "".join(notes)
    if notes:
        assert f"adrenoc compile {manifest.model.file} --device" in notes[0]


def test_a_bundle_is_compiled_again_as_its_model_was_entered(bundle):
    """Without what it was entered with, the command that a hint names would end in an error."""

    def command(preset: str, values: dict[str, Any]) -> str:
        options = replace(bundle.manifest.options, preset=preset, values=values)
        other = replace(bundle, manifest=replace(bundle.manifest, options=options))
        return compile_again(other, "host")

    plain = f"adrenoc compile {bundle.manifest.model.file} --device host"
    assert command("mixed", {}) == plain
    values = {"shapes": [["input", [1, 512]]], "fixed": [["sr", "16000"]]}
    assert command("fp32", values) == f"{plain} --preset fp32 --shape input:1,512 --fix sr=16000"


def test_local_memory_is_counted_by_what_kernels_declare():
    assert local_bytes("__kernel void f() { float a[64]; }") == 0
    source = "__local float4 a[18];\n  __local half4 b[64]; __local uint c; __local int3 d[2];"
    assert local_bytes(source) == 18 * 16 + 64 * 8 + 4 + 2 * 16
    # A pointer into what is declared elsewhere takes none.
    assert local_bytes("(((__local uint4*)(p))[0] = (w))") == 0


def test_a_clock_that_stands_is_seen():
    def launches(*times: tuple[int, int]) -> list[TimedLaunch]:
        return [TimedLaunch(kernel="k", start_ns=start, end_ns=end) for start, end in times]

    assert not tells_time(launches((2, 3), (2, 3)))  # Mesa's rusticl 22.3
    assert not tells_time(launches((0, 0)))
    assert not tells_time(launches((2000, 1000), (3000, 2500)))
    assert tells_time(launches((1000, 1000), (1000, 2000)))  # in steps of a microsecond


DRIVER = "OpenCL 3.0 QUALCOMM build: here, Compiler E031.41.03"


def test_devices_between_commas():
    devices = load_device_set("adreno:660, adreno:8gen3,adreno:a642L")
    assert devices.common.name == "adreno"
    assert [(m.gpu, m.folder) for m in devices.members] == [
        ("660", "a660"),
        ("750", "sm8650"),
        ("642l", "a642l"),
    ]


def test_all_are_all_that_are_listed():
    listed = {t.gpu.name for t in list_targets() if t.name.startswith("adreno:a")}
    assert {m.gpu for m in load_device_set("all").members} == listed
    here = load_device_set("host:all")
    assert here.common.name == "host"
    assert {m.gpu for m in here.members} == listed
    assert all(m.target.host for m in here.members)


@pytest.mark.parametrize(("text", "is_set"), [("all", True), ("a,b", True), ("adreno:750", False)])
def test_what_is_a_set(text, is_set):
    assert is_device_set(text) is is_set


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("adreno:660,adreno:sm8350", "names Adreno 660 twice"),
        ("adreno:660,host:750", "of this computer (host) and of phones"),
        ("adreno:660,adreno", "adreno in a set of devices is no single Adreno"),
        ("host:h100,host:660", "host:h100 in a set of devices is no single Adreno"),
        ("adreno:660,adreno:751", 'unknown device "adreno:751"'),
        (",", "has 0 devices"),
        ("mali:all", "unknown device"),
    ],
)
def test_what_is_no_set(text, said):
    with pytest.raises(TargetError) as refused:
        load_device_set(text)
    assert said in refused.value.message
    assert refused.value.hint


def test_a_file_names_devices_beside_it(tmp_path):
    (tmp_path / "own.toml").write_text('title = "Mine"\nbase = "adreno:750"\n')
    _report(tmp_path / "device.json", "660")
    file = tmp_path / "set.toml"
    file.write_text(
        '[[device]]\ntarget = "adreno:660"\nreport = "device.json"\n'
        '[[device]]\ntarget = "own.toml"\n[[device]]\ntarget = "adreno:660"\n'
    )
    members = read_device_set(file).members
    assert [(m.gpu, m.driver) for m in members] == [("660", DRIVER), ("750", ""), ("660", "")]
    assert len({m.folder for m in members}) == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("device", "is not TOML"),
        ("[[device]]\n", "lacks the key `target`"),
        ('[[device]]\ntarget = "adreno:660"\ngpu = 1\n', "unknown key `gpu`"),
        ('[[device]]\ntarget = "none.toml"\n', "cannot read the target file"),
        ('[[device]]\ntarget = "adreno:660"\nreport = "no.json"\n', "cannot read the device rep"),
    ],
)
def test_a_file_that_is_wrong(tmp_path, text, said):
    file = tmp_path / "set.toml"
    file.write_text(text)
    with pytest.raises(TargetError) as refused:
        read_device_set(file)
    assert said in refused.value.message
    with pytest.raises(TargetError, match="cannot be read"):
        read_device_set(tmp_path / "absent.toml")


def _report(path: Path, gpu: str) -> DeviceReport:
    report = DeviceReport(
        format=FORMAT,
        device=ReportedDevice(name="QUALCOMM Adreno(TM)", driver=DRIVER, gpu=gpu),
        date="2026-01-01",
        suites=ReportedSuites(names=("conv",), cases=1, kernels=1, launches=1),
        is_right=True,
    )
    path.write_text(report_json(report))
    return report


def test_a_report_is_for_its_driver_beside_the_others(tmp_path):
    devices = load_device_set("adreno:660,adreno:750")
    path = tmp_path / "device.json"
    both = add_report(devices, _report(path, "750"), path)
    assert [(m.gpu, m.driver) for m in both.members] == [("660", ""), ("750", ""), ("750", DRIVER)]
    with pytest.raises(TargetError, match="is of 830, expected one of 660, 750"):
        add_report(devices, _report(path, "830"), path)


COMMON = Edition(folder=".", target="adreno", gpu="")
OF_660 = Edition(folder="devices/a660", target="adreno:a660", gpu="660")
OF_750 = Edition(folder="devices/a750", target="adreno:a750", gpu="750")
OF_DRIVER = Edition(folder="devices/a750-d", target="x.toml", gpu="750", driver=DRIVER)


@pytest.mark.parametrize(
    ("gpu", "driver", "ranked", "why"),
    [
        ("660", "any", (OF_660, COMMON), "the driver says Adreno 660"),
        ("750", "any", (OF_750, COMMON), "the driver says Adreno 750"),
        ("750", DRIVER, (OF_DRIVER, OF_750, COMMON), "is the one that it was made for"),
        ("735", "any", (COMMON,), "says Adreno 735, and the bundle has kernels for 660, 750"),
        ("", "any", (COMMON,), "names no Adreno"),
    ],
)
def test_which_editions_a_driver_gets(gpu, driver, ranked, why):
    found, said = rank_editions((OF_660, OF_750, OF_DRIVER, COMMON), gpu=gpu, driver=driver)
    assert found == ranked
    assert why in said


def test_an_edition_of_another_driver_alone_is_not_taken():
    found, said = rank_editions((OF_DRIVER, COMMON), gpu="750", driver="another")
    assert found == (COMMON,)
    assert "are for other drivers than another" in said
