"""Bar charts of the benchmarks; matplotlib is asked for only when one is wanted."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def check_plotting() -> None:
    """End the program with a sentence where matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        sys.exit("--plot needs matplotlib, which is not installed: pip install '.[bench]'")


def plot_bars(
    path: Path, *, groups: Sequence[str], series: Mapping[str, Sequence[float]], axis: str
) -> None:
    """One group of bars for each name in `groups`, one bar in it for each of `series`.

    A value that is nan leaves its place empty. The scale is logarithmic.
    """
    check_plotting()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(max(6.0, 0.55 * len(groups) + 2), 5))
    width = 0.8 / max(1, len(series))
    for number, (name, values) in enumerate(series.items()):
        places = [place + number * width for place in range(len(groups))]
        axes.bar(places, values, width, label=name)
    axes.set_xticks([place + 0.4 - width / 2 for place in range(len(groups))], groups)
    axes.tick_params(axis="x", rotation=60)
    axes.set_ylabel(axis)
    axes.set_yscale("log")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
