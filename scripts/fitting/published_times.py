#!/usr/bin/env python3
"""Fit launch cost and read rate of an Adreno 830 to published times of LiteRT.

`published/times.tsv` has what LiteRT takes there for networks, `published/launches.tsv` what its
planner launches for ten of them on a pretended 830 (operation, extents, threads, slices of output a
thread: facts of the launches; the kernels' texts are theirs). A kernel takes as long as the slowest
of its image reads, its multiply-adds, its chain of steps (the reads of one pass of its inner loop,
then its arithmetic), and the bytes of its tensors; each launch adds its cost. Five figures are
fitted to ten times, so each network is also predicted by the figures that the other nine give.

Prints the best figures with the range within which the fit is hardly worse, then the table of
docs/measurements/adreno-830.md, then what the same figures say of an Adreno 750.
"""

import csv
import itertools
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent / "published"
MICRO_SPS = 12
"""Of an 830 and of a 750 alike."""
CLOCK_GHZ = {"830": 1.1, "750": 0.903}
WAVE = 128
HALF_MULTIPLY_ADDS = 256
"""A clock of a micro shader processor."""
WAVES_AT_ONCE = 16
BORDERS = 2
"""Launches beside the network's: its input becomes an image, its output a buffer."""
HARDLY_WORSE = 0.01
"""Of the root of the mean square of residuals: what says how far a figure is known."""

FIGURES = ("launch_us", "reads", "step_us", "alu_share", "gb_per_s")
GRID = {
    "launch_us": (1, 2, 3, 4, 5, 6, 7, 8, 10, 12),
    "reads": (1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 8),
    "step_us": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8),
    "alu_share": (0.4, 0.5, 0.6, 0.7, 0.8, 1.0),
    "gb_per_s": (60.0, 85.0, 200.0),
}
"""What is tried: microseconds a launch, image reads of four halves a clock of a micro shader
processor, microseconds of a step, share of the peak of multiply-adds, memory's GB/s."""


@dataclass(frozen=True, kw_only=True)
class Kernels:
    """The launches of a network, an array each: how many are alike, and what one has."""

    count: np.ndarray
    waves: np.ndarray
    steps: np.ndarray
    reads: np.ndarray
    """Image reads of a thread in a step."""
    multiply_adds: np.ndarray
    """Of a thread in a step."""
    size_bytes: np.ndarray

    @property
    def launches(self) -> int:
        return int(self.count.sum()) + BORDERS

    def time_ms(self, gpu: str, figures: dict[str, float]) -> float:
        """All launches one after the other."""
        return float(self.times_ms(gpu, {k: np.array([v]) for k, v in figures.items()})[0])

    def times_ms(self, gpu: str, figures: dict[str, np.ndarray]) -> np.ndarray:
        """The same for many figures at once."""
        clock = CLOCK_GHZ[gpu] * 1e6
        shown = {name: value[:, None] for name, value in figures.items()}
        waves = np.ceil(self.waves / MICRO_SPS)
        reading = self.reads * WAVE / shown["reads"]
        adding = self.multiply_adds * WAVE / HALF_MULTIPLY_ADDS / shown["alu_share"]
        busy_ms = waves * self.steps * np.maximum(reading, adding) / clock
        chain_ms = np.ceil(waves / WAVES_AT_ONCE) * self.steps * shown["step_us"] * 1e-3
        memory_ms = self.size_bytes / (shown["gb_per_s"] * 1e6)
        kernels = np.maximum(np.maximum(busy_ms, chain_ms), memory_ms)
        return (kernels * self.count).sum(1) + figures["launch_us"] * 1e-3 * self.launches


def shape_of(text: str) -> tuple[int, int, int, int]:
    batch, height, width, channels = map(int, text.split("x"))
    return batch, height, width, channels


def slices_of(channels: int) -> int:
    return -(-channels // 4)


def features_of(row: dict[str, str]) -> tuple[float, ...]:
    """Waves, steps, reads and multiply-adds of a thread in a step, and bytes of a launch."""
    operation = row["operation"]
    inputs = [shape_of(text) for text in row["inputs"].split("|")]
    output = shape_of(row["output"].split("|")[0])
    threads = int(row["threads"])
    tile = 1 if row["slices"] == "-" else int(row["slices"])
    ins, outs = slices_of(inputs[0][3]), slices_of(output[3])
    pixels = output[0] * output[1] * output[2]
    extents = re.search(r"(\d+)x(\d+)", operation)
    width, height = (int(e) for e in extents.groups()) if extents else (1, 1)
    taps, weights = width * height, 0
    if "wave_memory" in operation:  # a pixel and some slices a thread, weights once a wave
        together = 2 if taps == 1 and ins % 2 == 0 else 1
        steps, reads = (ins / together, together) if taps == 1 else (ins * height, width)
        adds = reads * 16 * tile
        weights = ins * outs * taps * 16
    elif "conv_constants" in operation:  # all slices of a pixel a thread
        steps, reads = 1, pixels * ins * taps / threads
        adds = reads * outs * 16
        weights = ins * outs * taps * 16
    elif operation.startswith("dw_conv2d"):  # a depthwise 3x3 and a thin product in one
        steps, reads = 1, pixels * ins * 9 / threads
        adds = pixels * ins * (9 * 4 + outs * 16) / threads
    elif operation.startswith("depthwise"):
        steps, reads, adds = 1, taps, 4 * taps
        weights = outs * taps * 4
    elif operation.startswith("fully_connected"):
        steps, reads, adds = max(1.0, ins / 8), 5, 16
        weights = 0  # its second input
    elif operation.startswith("reduce"):
        read = inputs[0][1] * inputs[0][2] * ins
        steps, reads, adds = max(1.0, read / threads / 4), 4, 16
    else:
        read = pixels * outs * (9 if operation.startswith("pooling") else len(inputs))
        steps, reads, adds = 1, max(1.0, read / threads), 4
    elements = sum(int(np.prod(shape)) for shape in (*inputs, output)) + weights
    return -(-threads // WAVE), steps, reads, adds, 2 * elements


def read_kernels() -> dict[tuple[str, str], Kernels]:
    """The launches of each network on each GPU."""
    with (FOLDER / "launches.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    found = {}
    for key, alike in itertools.groupby(rows, lambda row: (row["gpu"], row["network"])):
        group = list(alike)
        count = np.array([int(row["launches"]) for row in group])
        waves, steps, reads, adds, size = np.array([features_of(row) for row in group]).T
        found[key] = Kernels(
            count=count, waves=waves, steps=steps, reads=reads, multiply_adds=adds, size_bytes=size
        )
    return found


def read_times() -> dict[tuple[str, str], float]:
    """Published ms by GPU and network."""
    with (FOLDER / "times.tsv").open() as file:
        rows = csv.DictReader(file, delimiter="\t")
        return {(row["gpu"], row["network"]): float(row["ms"]) for row in rows}


def main() -> None:
    kernels, times = read_kernels(), read_times()
    grid = np.array(list(itertools.product(*GRID.values())))
    columns = {name: grid[:, i] for i, name in enumerate(FIGURES)}
    networks = [network for gpu, network in kernels if gpu == "830"]
    told_ms = np.stack([kernels["830", name].times_ms("830", columns) for name in networks])
    published_ms = np.array([times["830", name] for name in networks])
    residuals = np.log(told_ms / published_ms[:, None])
    errors = root_mean_square(residuals)
    best = int(np.argmin(errors))
    show_figures(grid, errors, best)
    print("\n| network | launches | published, ms | fitted | | from the others | | their figures |")
    print("|---|---|---|---|---|---|---|---|")
    for i, name in enumerate(networks):
        others = int(np.argmin(root_mean_square(np.delete(residuals, i, 0))))
        cells = [name, str(kernels["830", name].launches), f"{published_ms[i]:.3f}"]
        for place in (best, others):
            cells += [f"{told_ms[i, place]:.3f}", f"{told_ms[i, place] / published_ms[i] - 1:+.0%}"]
        cells.append(", ".join(f"{value:g}" for value in grid[others]))
        print(f"| {' | '.join(cells)} |")
    print()
    chosen = dict(zip(FIGURES, map(float, grid[best]), strict=True))
    for (gpu, name), there in kernels.items():
        if gpu != "830":
            fitted, fast = (
                there.time_ms(gpu, {**chosen, "reads": r}) for r in (chosen["reads"], 8)
            )
            print(
                f"{name} on an Adreno {gpu}: published {times[gpu, name]:g} ms, these figures "
                f"{fitted:.2f}, with 8 reads a clock {fast:.2f}"
            )


def root_mean_square(residuals: np.ndarray) -> np.ndarray:
    return np.sqrt((residuals**2).mean(0))


def show_figures(grid: np.ndarray, errors: np.ndarray, best: int) -> None:
    """The best figures, how far others are hardly worse, and what one alone costs."""
    close = grid[errors <= errors[best] + HARDLY_WORSE]
    print(f"residuals {errors[best]:.3f} (root of the mean square of logarithms)")
    for i, name in enumerate(FIGURES):
        least, most = close[:, i].min(), close[:, i].max()
        print(f"  {name:10} {grid[best, i]:6g}   within {least:g} to {most:g}")
    for i, name in enumerate(FIGURES[:2]):
        alone = {value: errors[grid[:, i] == value].min() for value in GRID[name]}
        print(f"  {name}: " + ", ".join(f"{value:g} {error:.3f}" for value, error in alone.items()))


if __name__ == "__main__":
    main()
