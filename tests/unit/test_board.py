"""`scripts/bench_models --board`: what was measured, and what is modelled beside it."""

import json
from pathlib import Path

import pytest
from fitting.board import print_board


def estimate(model: str, gpu: str, *kernels: tuple[int, float, float]) -> dict[str, object]:
    """An estimate of kernels: launches, ms by width, ms if width costs nothing."""
    return {
        "model": model,
        "gpu": gpu,
        "preset": "fp16",
        "launch_us": 5.0,
        "counts": [count for count, _, _ in kernels],
        "kernels": [{"est_ms": wide, "narrow_ms": narrow} for _, wide, narrow in kernels],
    }


def test_estimates_stand_beside_published_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "estimates.json"
    rows = [
        estimate("resnet18", "a830", (2, 0.5, 0.25), (18, 0.1, 0.1)),
        estimate("resnet18", "a750", (1, 4.0, 4.0)),
        estimate("vit_b16", "a830", (1, 1.0, 1.0)),
    ]
    file.write_text(json.dumps(rows))
    print_board([file])
    said = capsys.readouterr().out
    table = [line for line in said.splitlines() if line.startswith("| ")]
    assert len({line.split(" | ")[0] for line in table[1:]}) == 21
    width = table[0].count(" | ")
    assert all(line.count(" |") == width + 1 for line in table)
    start = "| resnet18 | 3.465 | 3.364 to 4.077 | 23"
    # 2 * .5 + 18 * .1 and 20 launches of 5 us, over 3.465 measured.
    assert f"{start} | 830 | fp16 | 20 | 2.90 | 2.40 | 0.84 / 0.69 |" in table
    assert f"{start} | 750 | fp16 | 1 | 4.00 | 4.00 |  |" in table
    # What ran on the CPU for the most part is no yardstick.
    assert "fp16, by width: 0.84 of LiteRT's, geometric mean of 1" in said
