"""What is said of bytes beside floats."""

from adrenoc.base.decision import DecisionLog
from adrenoc.kernels.families.shared.context import ByteCosts
from adrenoc.target.target import load_target


def said(as_bytes: float, as_floats: float, gpu: str = "adreno:a660") -> str:
    log, costs = DecisionLog(), ByteCosts()
    costs.add(as_bytes, as_floats)
    costs.say(log, load_target(gpu).performance, "fp16")
    (decision,) = log
    return f"{decision.subject}: {decision.taken}; {decision.reason}"


def test_both_figures_are_said_in_ms() -> None:
    assert said(84_000, 168_000) == (
        "1 convolutions and products: multiplied as bytes, estimated 0.1 ms; "
        "0.2 ms as fp16 numbers, layer by layer, whose sums are not exact"
    )


def test_where_floats_are_faster_that_is_said() -> None:
    assert said(168_000, 84_000).endswith(
        "estimated 0.2 ms; exact; it would take 0.1 ms as fp16 numbers, layer by layer"
    )


def test_without_a_clock_figures_are_clocks() -> None:
    assert "estimated 84 kclocks" in said(84_000, 168_000, "adreno:a650")


def test_nothing_is_said_of_no_operator() -> None:
    log = DecisionLog()
    ByteCosts().say(log, load_target("adreno:a660").performance, "fp16")
    assert not list(log)
