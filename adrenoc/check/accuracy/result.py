"""What the accuracy doctor found, as data: the command line shows it, `--json` prints it.

How far outputs are from what is expected, over all sets of inputs.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from adrenoc.device.compare import ONE, TensorCheck, compare

_MOSTLY = 2.0
"""Squares of independent errors add up: of the rest, a quarter at most was there before."""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One reason for the error of a layer, with the numbers that were seen. `name` is `overflow`,
    `tiny epsilon`, `long reduction`, `cancellation`, `sharp softmax` or `rounding`; `operands` are
    the tensors whose storage is the trouble, where it is not the layer's own."""

    name: str
    evidence: str
    operands: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class OwnParts:
    """What one layer adds to the error by itself, by what alone was rounded."""

    weights: float
    activations: float
    cache: float


@dataclass(frozen=True, kw_only=True)
class TokenScore:
    """Over a text that is fed as it is, whatever was predicted (teacher forcing).

    `equal` of `tokens` picks are the reference's.  `perplexity` is the exponential of the mean
    surprise at each next token of the text, infinite where a logit is no number; `divergence` the
    mean of the Kullback-Leibler divergence of the predictions from the reference's, in nats.
    """

    tokens: int
    equal: int
    perplexity: float
    reference_perplexity: float
    divergence: float


@dataclass(frozen=True, kw_only=True)
class LayerAccuracy:
    """One layer (a kernel and the tensor that it makes), by the model's own name.

    Errors are the largest difference over the tensor's range, infinite where a value is not finite.
    `local_error` is what the layer itself adds when it is given the true inputs as they are
    stored; `total_error` is what the whole network up to here has come to.  `parts` are what it
    adds where nothing is rounded but its weights, its activations or the caches, and `part_of` the
    number of the decoder's layer, or `embedding` or `head`; both of decoders alone.
    """

    name: str
    operators: tuple[str, ...]
    shape: tuple[int, ...]
    largest: float
    local_error: float
    total_error: float
    causes: tuple[Cause, ...] = ()
    parts: OwnParts | None = None
    part_of: str = ""


@dataclass(frozen=True, kw_only=True)
class Floor:
    """What rounding the tensors that a plan stores in half costs by itself, all else in float32.

    `error` is the largest error over the range of an output, as that of a preset is; `rms` and
    `our_rms` are root mean squares, with ideal rounding and of the plan, and `ratio` is how many
    times the first the second is.  `tensors` counts what is stored in half.  `float32_error` and
    `float32_rms` are of the same kernels in float32 with nothing rounded: where those are off as
    much, as of a model that rounds to whole numbers by itself, there is no floor.
    `float32_counted` is what of `float32_error` a tolerance is held against.
    """

    error: float
    rms: float
    our_rms: float
    ratio: float
    tensors: int
    float32_error: float = 0.0
    float32_counted: float = 0.0
    float32_rms: float = 0.0

    @property
    def is_of_rounding(self) -> bool:
        """Return whether rounding to half makes most of the error, not float32 too."""
        return math.isfinite(self.rms) and self.rms > _MOSTLY * self.float32_rms


@dataclass(frozen=True, kw_only=True)
class PolicyCost:
    """What a policy costs: before and after. `memory_bytes` is GPU memory with constants,
    `moved_bytes` what the kernels read and write in one run, `time_us` the roofline's floor for the
    target with its launches (None where its file gives no rates)."""

    memory_bytes: tuple[int, int]
    moved_bytes: tuple[int, int]
    time_us: tuple[float, float] | None


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """The tensors to keep in float32. `is_minimal`: taking any one of them out breaks the
    tolerance; a search that ran out of effort ends with a set that works but may be larger.
    `trials` are plans that ran on the device, `runs` all runs of sets of inputs."""

    float32_tensors: tuple[str, ...]
    error_before: float
    error_after: float
    is_minimal: bool
    trials: int
    runs: int
    cost: PolicyCost


@dataclass(frozen=True, kw_only=True)
class PresetAccuracy:
    """One preset: its error over the range of an output, the floor under it, and the remedy.

    `remedy` is None where none is needed, or where even float32 throughout does not meet the
    tolerance (`error_in_float32`).  `left` is what the search left untried when its effort was
    spent.  `accepted_as` says why outputs beyond the tolerance pass: the reference knows them no
    better, as of quantised models whose kernels round each in their own way.  `scales` tells how
    far usual inputs may be scaled, empty where none were drawn.  Of an examination
    `layers` are all layers in execution order, and `starts_at` is where the error starts, empty
    where no layer stands out; `score` is of decoders alone.
    """

    preset: str
    error: float
    floor: Floor
    passed: bool
    remedy: Remedy | None
    left: tuple[str, ...] = ()
    accepted_as: str = ""
    scales: str = ""
    layers: tuple[LayerAccuracy, ...] = ()
    starts_at: str = ""
    score: TokenScore | None = None

    @property
    def suspects(self) -> tuple[LayerAccuracy, ...]:
        """Return the layers with causes, in execution order."""
        return tuple(layer for layer in self.layers if layer.causes)

    @property
    def error_in_float32(self) -> float:
        """Return what float32 throughout is off by, as far as it counts."""
        return self.floor.float32_counted

    def holds(self, tolerance: float) -> bool:
        """Return whether it meets the tolerance, as it is or by its remedy."""
        return self.passed or (self.remedy is not None and self.remedy.error_after <= tolerance)


@dataclass(frozen=True, kw_only=True)
class AccuracyReport:
    """An examination, or what a compilation needs to meet a tolerance; `samples` counts the sets
    of inputs, of a decoder its tokens, which `passage` tells the source of; `inputs` says what
    others hold."""

    model: str
    model_sha256: str
    target: str
    device: str
    samples: int
    tolerance: float
    presets: tuple[PresetAccuracy, ...]
    passage: str = ""
    inputs: str = ""

    @property
    def passed(self) -> bool:
        """Return whether every preset meets the tolerance, as it is or by its remedy."""
        return all(found.holds(self.tolerance) for found in self.presets)

    @property
    def float32_tensors(self) -> tuple[str, ...]:
        """Return what a compilation in the one preset has to keep in float32."""
        (found,) = self.presets
        return () if found.remedy is None else found.remedy.float32_tensors


Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Deviation:
    """Errors over the range of each output, infinite where a value is not finite.

    `largest` is that of the worst element, `rms` the root of the mean square over all elements of
    float outputs: noise of one size gives much the same `rms` each time, and any `largest`.
    `accepted_as` says why outputs beyond the tolerance are no error of ours, empty where none is;
    `left` is then the largest error of the others.
    """

    largest: float
    rms: float
    accepted_as: str = ""
    left: float = 0.0

    @property
    def counted(self) -> float:
        """Return what a tolerance is held against."""
        return self.left if self.accepted_as else self.largest


def deviation(seen: Sequence[Arrays], expected: Sequence[Arrays]) -> Deviation:
    """Return how far several sets of outputs, by name, are from what is expected of each."""
    largest, squares = 0.0, []
    for made, wanted in zip(seen, expected, strict=True):
        for name, value in wanted.items():
            largest = max(largest, range_error(made[name], value))
            if value.dtype.kind == "f":
                squares.append(_mean_square(made[name], value))
    return Deviation(largest=largest, rms=math.sqrt(math.fsum(squares) / max(1, len(squares))))


def range_error(seen: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest error over the range of what is expected, infinite if not finite."""
    return error_of(compare({"": seen}, {"": expected}, tolerance=1.0).tensors[0])


def error_of(check: TensorCheck) -> float:
    """Return the error of one output over its range; infinite where one value is not finite."""
    return math.inf if check.bad_values else check.range_error


def step_over_range(step: float, expected: np.ndarray) -> float:
    """Return what a tensor that is one step off in one place is off by over its range."""
    return range_error(expected.astype(np.float64) + step * ONE, expected)


def _mean_square(seen: np.ndarray, expected: np.ndarray) -> float:
    if seen.shape != expected.shape:
        return math.inf
    a, b = seen.astype(np.float64), expected.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if not (np.isfinite(a) & np.isfinite(b) | same).all():
        return math.inf
    finite = b[np.isfinite(b)]
    if not finite.size:
        return 0.0
    scale = float(np.ptp(finite)) or float(np.abs(finite).max()) or 1.0
    error = np.subtract(a, b, where=~same, out=np.zeros_like(a))
    return float(np.mean(np.square(error))) / scale**2
