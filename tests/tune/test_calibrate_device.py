"""Calibration on this computer's device: the whole way, and kernels that break it."""

import json

import numpy as np
import pytest

from adrenoc.lab.calibrate.measure import HostOperation, KernelArgument, MicroKernel, ProbeError
from adrenoc.lab.calibrate.session import Bench
from adrenoc.lab.tune.session import DevicePlace
from adrenoc.lab.tune.tuner import local_server
from adrenoc.target.target import load_target
from tests.commands import invoke, succeed

OUT = KernelArgument(shape=(64,), dtype="float32")
GOOD = MicroKernel(
    source="__kernel void probe(__global float* out) { out[get_global_id(0)] = 2.0f; }",
    arguments=(OUT,),
)
NO_C = MicroKernel(
    source="__kernel void probe(__global float* out) { nonsense; }", arguments=(OUT,)
)
HUGE = 1 << 20
WRONG_GROUP = MicroKernel(
    source=GOOD.source,
    arguments=(KernelArgument(shape=(HUGE,), dtype="float32"),),
    threads=(HUGE, 1, 1),
    group=(HUGE, 1, 1),
)
PARTLY = MicroKernel(source=GOOD.source, arguments=(OUT,), threads=(32, 1, 1), group=(32, 1, 1))
ENDLESS = MicroKernel(
    source="__kernel void probe(__global volatile float* out) {\n"
    "  while (out[0] != 12345.0f) out[get_global_id(0)] = 1.0f;\n}",
    arguments=(OUT,),
)


@pytest.mark.nightly
def test_a_kernel_that_breaks_ends_itself_alone(tmp_path):
    with (
        local_server() as address,
        Bench(DevicePlace(server=address, limit_s=15), tmp_path) as bench,
    ):
        output = bench.run([GOOD], output=True).output
        assert output is not None
        assert (output == np.full(64, 2.0)).all()
        assert bench.facts["type"] == "cpu"
        broken = {"build": NO_C, "group": WRONG_GROUP, "unstable": PARTLY, "timeout": ENDLESS}
        for word, kernel in broken.items():
            with pytest.raises(ProbeError, match=f"^{word}: ") as caught:
                bench.run([kernel])
            assert "\n" not in str(caught.value)
            answers = bench.run([GOOD, GOOD])
            assert len(answers.times_us) == 2
            assert min(map(min, answers.times_us)) > 0
            assert answers.build_ms > 0


@pytest.mark.nightly
def test_operations_are_measured_and_what_cannot_be_is_told(tmp_path):
    operations = (
        {"operation": "launches", "way": "queue", "count": 5},
        {"operation": "large", "bytes": 1 << 20},
    )
    refused = {
        "refused: the device has no cl_qcom_recordable_queues": {
            "operation": "launches",
            "way": "recording",
            "count": 5,
        },
        "refused: An operation has the count 0": {
            "operation": "launches",
            "way": "queue",
            "count": 0,
        },
        "no operation": {"operation": "nothing"},
    }
    with local_server() as address, Bench(DevicePlace(server=address), tmp_path) as bench:
        answers = bench.run([HostOperation(words=words) for words in operations])
        assert len(answers.times_us) == len(operations)
        assert all(len(times) == 7 and min(times) > 0 for times in answers.times_us)
        for said, words in refused.items():
            with pytest.raises(ProbeError, match=said):
                bench.run([HostOperation(words=words)])


def test_the_command_writes_a_target_that_compiles(tmp_path):
    file, page = tmp_path / "here.toml", tmp_path / "here.html"
    only = [word for name in ("mad.float4", "border", "texel.half") for word in ("--only", name)]
    command = [
        "device",
        "calibrate",
        "--budget",
        "60s",
        *only,
        "-o",
        str(file),
        "--html",
        str(page),
    ]
    told = json.loads(succeed(*command, "--json").stdout)
    rows = {row["name"]: row for row in told["measures"]}
    borders = ["border", "border.float4", "border.read_imageh"]
    assert list(rows) == [*borders, "mad.float4", "texel.half4.cached"]
    assert rows["border"]["word"] == "zeros"
    for name in ("mad.float4", "texel.half4.cached"):
        row = rows[name]
        if row["status"] == "measured":
            assert row["value"] > 0
            assert row["samples"] >= 7
        else:  # others load this computer
            assert row["reason"].startswith("too noisy"), row
    facts = {fact["key"]: fact for fact in told["facts"]}
    assert (facts["border"]["measured"], facts["border"]["means"]) == ("zeros", "")
    assert told["beside"] == "adreno"
    target = load_target(f"host:{file}")
    assert target.performance.compute_units == load_target(str(file)).performance.compute_units
    assert "as measured" in target.title
    assert "mad.float4" in page.read_text()


@pytest.mark.parametrize("is_here", [pytest.param(True, marks=pytest.mark.nightly), False])
def test_the_next_command_is_for_the_machine_that_was_measured(is_here, tmp_path):
    """A server of another computer of this kind takes bundles that are made as those for here."""
    file = tmp_path / "one.toml"
    with local_server() as address:
        words = [] if is_here else ["--on", f"{address.key}@{address.where}"]
        outcome = invoke(
            "device", "calibrate", "--only", "rounding.vstore", "-o", file, *words, catch=True
        )
    assert outcome.exit_code == 0, outcome.output
    assert f"adrenoc compile MODEL --device host:{file}" in outcome.output.replace("\n", "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "nothing"], "no measure has nothing in its name"),
        (["--budget", "0"], "--budget is to be above 0"),
        (["-o", "x.json"], "is to end in .toml"),
        (["--on", "a:b:1:2:"], "the address of the server is"),
    ],
)
def test_wrong_words_are_told_at_once(words, said):
    outcome = invoke("device", "calibrate", *words, catch=True)
    assert outcome.exit_code != 0
    assert said in outcome.output + str(outcome.exception)
