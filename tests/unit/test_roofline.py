"""The roofline against figures worked out by hand."""

import pytest

from adrenoc.target.gpu import Performance
from adrenoc.target.roofline import Roofline, Work
from adrenoc.target.target import load_target

GPU = Performance(
    fp32_fma_lanes=1000, fp16_rate=2.0, clock_mhz=500, texels_per_clock=10.0, dram_gb_per_s=40.0
)


def test_rates_follow_from_the_figures() -> None:
    roofline = Roofline.from_performance(GPU)
    assert roofline.flops_per_us == 1e6  # 1000 lanes * 2 * 500 MHz = 1 TFLOPS
    assert roofline.half_flops_per_us == 2e6
    assert roofline.texels_per_us == 5e3
    assert roofline.bytes_per_us == 40e3
    assert roofline.missing == ()


@pytest.mark.parametrize(
    ("work", "bound", "time_us"),
    [
        (Work(flops=5_000_000, texels=10_000, bytes_read=40_000), "alu", 5.0),
        (Work(flops=5_000_000, half=True, texels=15_000), "texture", 3.0),
        (Work(flops=1000, texels=10, bytes_read=60_000, bytes_written=20_000), "dram", 2.0),
    ],
)
def test_busiest_pipe_bounds_the_time(work: Work, bound: str, time_us: float) -> None:
    estimate = Roofline.from_performance(GPU).estimate(work)
    assert estimate.bound == bound
    assert estimate.time_us == pytest.approx(time_us)


def test_unknown_rates_leave_their_bound_out() -> None:
    roofline = Roofline.from_performance(Performance(dram_gb_per_s=1.0, fp32_fma_lanes=1000))
    assert roofline.missing == (
        "performance.fp16_rate",
        "performance.clock_mhz",
        "performance.texels_per_clock",
    )
    estimate = roofline.estimate(Work(flops=10**12, texels=10**9, bytes_read=2000))
    assert (estimate.bound, estimate.time_us) == ("dram", 2.0)
    assert estimate.alu_us is None
    assert estimate.texture_us is None


def test_gpu_without_figures_has_no_time() -> None:
    estimate = Roofline.from_performance(load_target("adreno").performance).estimate(Work(flops=10))
    assert estimate.time_us is None
    assert estimate.bound == ""
