"""Calibration on this computer's device: the whole way, and kernels that break it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from adrenoc.calibrate.bench import Bench
from adrenoc.calibrate.micro_kernel import MicroKernel, ProbeError, Tensor
from adrenoc.cli.main import cli
from adrenoc.target.target import load_target
from adrenoc.tune.local import local_server
from adrenoc.tune.session import Place

OUT = Tensor(shape=(64,), dtype="float32")
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
    arguments=(Tensor(shape=(HUGE,), dtype="float32"),),
    threads=(HUGE, 1, 1),
    group=(HUGE, 1, 1),
)
PARTLY = MicroKernel(source=GOOD.source, arguments=(OUT,), threads=(32, 1, 1), group=(32, 1, 1))
ENDLESS = MicroKernel(
    source="__kernel void probe(__global volatile float* out) {\n"
    "  while (out[0] != 12345.0f) out[get_global_id(0)] = 1.0f;\n}",
    arguments=(OUT,),
)


def test_a_kernel_that_breaks_ends_itself_alone(tmp_path: Path) -> None:
    with local_server() as address:
        where = address.where
        place = Place(
            host=where.host, port=where.port, key=address.key, tracked=False, device="", limit_s=4
        )
        with Bench(place, tmp_path) as bench:
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


def test_the_command_writes_a_target_that_compiles(tmp_path: Path) -> None:
    file, page = tmp_path / "here.toml", tmp_path / "here.html"
    only = [word for name in ("mad.float4", "border", "texel.bytes") for word in ("--only", name)]
    command = ["calibrate", "--budget", "8s", *only, "-o", str(file), "--html", str(page)]
    outcome = CliRunner().invoke(cli, [*command, "--json"])
    assert outcome.exit_code == 0, outcome.output
    told = json.loads(outcome.stdout)
    rows = {row["name"]: row for row in told["measures"]}
    assert list(rows) == ["mad.float4", "texel.bytes", "border"]
    assert rows["mad.float4"]["value"] > 0
    assert rows["mad.float4"]["samples"] >= 7
    assert rows["border"]["word"] == "zeros"
    assert (rows["texel.bytes"]["status"], rows["texel.bytes"]["value"]) == ("skipped", None)
    assert "arrays of half and float" in rows["texel.bytes"]["reason"]
    assert told["beside"] == "adreno"
    target = load_target(f"host:{file}")
    assert target.performance.compute_units == load_target(str(file)).performance.compute_units
    assert "as measured" in target.title
    assert "mad.float4" in page.read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "nothing"], "no measure has nothing in its name"),
        (["--budget", "0"], "--budget is to be above 0"),
        (["-o", "x.json"], "is to end in .toml"),
        (["--rpc", "a:1", "--adb"], "name different places"),
    ],
)
def test_wrong_words_are_told_at_once(words: list[str], said: str) -> None:
    outcome = CliRunner().invoke(cli, ["calibrate", *words])
    assert outcome.exit_code != 0
    assert said in outcome.output + str(outcome.exception)
