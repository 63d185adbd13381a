"""Compare the outputs of a device with a reference's, and judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from adrenoc.errors import CheckFailedError

if TYPE_CHECKING:
    import numpy as np

# Largest error over the range of the reference's output.
FP32_TOLERANCE = 1e-4
FP16_TOLERANCE = 1e-2


@dataclass(frozen=True, kw_only=True)
class Floor:
    """How far off an output may be for reasons that are the reference's own.

    Kernels of quantised models each round in their own way, by a quantum at the next step, and the
    reference's do so among themselves.  `quantum` is one step of the output, `half_step` one at its
    largest number where it is stored in half, `float_steps` are eight where it is a float, of which
    sums in another order differ; `spread` is the largest difference between the reference's
    `kernels` and those that it is compared with, `rms_spread` the root mean square between those
    that differ most.  `span` is the output's range; 0 where it holds labels, of which each is right
    or wrong by itself.
    """

    quantum: float = 0.0
    half_step: float = 0.0
    float_steps: float = 0.0
    spread: float = 0.0
    rms_spread: float = 0.0
    kernels: str = ""
    span: float = 0.0

    @property
    def tells_nothing(self) -> bool:
        """Whether the reference is off itself by all that there is: anything would be near it."""
        return 0 < self.span <= self.spread

    def accepts(self, max_error: float, rmse: float) -> str:
        """Why errors of that size say nothing about ours; empty where they do."""
        if self.quantum and max_error <= self.quantum * ONE:
            return f"within one quantum, {self.quantum:.3g}"
        if max_error <= self.half_step:
            return f"within one step of half at its largest number, {self.half_step:.3g}"
        if max_error <= self.float_steps:
            return f"within eight float steps of its largest number, {self.float_steps:.3g}"
        return "" if self.tells_nothing else self._accepts_spread(max_error, rmse)

    def _accepts_spread(self, max_error: float, rmse: float) -> str:
        if self.spread and max_error <= self.spread * ONE:
            return f"within {self.spread:.3g}, by which the reference's {self.kernels} are off"
        if max_error <= self.spread * _LARGEST_OF_MORE and rmse <= self.rms_spread * _RMS_OF_MORE:
            return (
                f"within {self.rms_spread:.3g} as a root mean square, by which the reference's "
                f"{self.kernels} are off ({rmse:.3g})"
            )
        return ""


_RMS_OF_MORE, _LARGEST_OF_MORE = 1.2, 1.5
"""By how much one more draw of the same noise may be beyond what a few were."""
_FLOAT_STEPS = 8
ONE = 1 + 1e-5
"""Floats that are multiples of a quantum are not quite that."""


def floors_of(
    expected: Mapping[str, np.ndarray],
    others: Mapping[str, Mapping[str, np.ndarray]],
    quanta: Mapping[str, float],
) -> dict[str, Floor]:
    """The floor of each output, from what the reference's other kernels give for it."""
    import numpy as np

    floors = {}
    for name, array in expected.items():
        worst = ("", 0.0)
        for kernels, outputs in others.items():
            seen = outputs.get(name)
            if seen is not None and seen.shape == array.shape:
                check = _compare_tensor(name, seen, array, float("inf"))
                worst = max(worst, (kernels, check.max_error), key=lambda found: found[1])
        floors[name] = Floor(
            quantum=quanta.get(name, 0.0),
            half_step=_steps(array, np.float16, 1),
            float_steps=_steps(array, np.float32, _FLOAT_STEPS),
            spread=worst[1],
            kernels=worst[0],
            span=0.0 if holds_choices(array) else _span_of(array),
        )
    return floors


def _span_of(array: np.ndarray) -> float:
    import numpy as np

    finite = array[np.isfinite(array)].astype(np.float64)
    return float(finite.max() - finite.min()) if finite.size else 0.0


def _steps(array: np.ndarray, dtype: type, count: int) -> float:
    """So many steps from its largest number to the next ones; 0 where it is of another type."""
    import numpy as np

    if array.dtype != dtype:
        return 0.0
    largest = np.abs(array[np.isfinite(array)]).max(initial=dtype(0))
    return count * float(largest - np.nextafter(largest, dtype(0)))


@dataclass(frozen=True, kw_only=True)
class TensorCheck:
    """How one output compares with the reference.

    `range_error` is `max_error` over the range (largest less smallest value) of the reference.  Of
    whole numbers that stand for a choice (labels, indices, masks) it is the share of those that
    differ, where that is less: a tie that falls otherwise is no error of the size of its index.
    `bad_values` counts values that are NaN or infinite on one side alone or with another sign.
    `reason` says why it did not pass, and is empty when it did.
    """

    name: str
    shape: tuple[int, ...]
    max_error: float
    range_error: float
    rmse: float
    cosine: float
    bad_values: int
    passed: bool
    reason: str = ""
    floor: Floor | None = None
    """How far the reference is from itself; known of quantised models."""
    accepted_as: str = ""
    """Why it passed beyond the tolerance, empty where it did not need to."""


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The comparison of all outputs with one tolerance for `range_error`.

    `note` is what else is to be said of the reference, empty where that is nothing.
    """

    tensors: tuple[TensorCheck, ...]
    tolerance: float
    note: str = ""

    @property
    def passed(self) -> bool:
        """Whether every output passed."""
        return all(tensor.passed for tensor in self.tensors)

    @property
    def accepted(self) -> tuple[TensorCheck, ...]:
        """The outputs that passed beyond the tolerance."""
        return tuple(tensor for tensor in self.tensors if tensor.accepted_as)

    def raise_if_failed(self) -> None:
        """Do nothing if all passed.

        Raises:
            CheckFailedError: naming the first output that did not pass, and why.
        """
        for tensor in self.tensors:
            if not tensor.passed:
                raise CheckFailedError(
                    f"the output `{tensor.name}` disagrees with the reference: {tensor.reason}",
                    hint="compile with --preset fp32 to tell rounding from a defect, or allow more "
                    "with --tolerance",
                )


def default_tolerance(storage_dtype: str, compute_dtype: str) -> float:
    """The tolerance for a bundle by the types that it stores and computes in."""
    exact = storage_dtype == "float32" and compute_dtype == "float32"
    return FP32_TOLERANCE if exact else FP16_TOLERANCE


def compare(
    outputs: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
    *,
    tolerance: float,
    floors: Mapping[str, Floor] | None = None,
    others: Mapping[str, Mapping[str, np.ndarray]] | None = None,
) -> CheckResult:
    """Compare each of `outputs` with the tensor of that name in `expected`.

    With `others`, what is beyond the tolerance passes where other kernels of the reference, by
    their name, give the same within the tolerance; with `floors`, where it is within its floor.
    The check says so.
    """
    tensors = []
    for name, array in outputs.items():
        checked = _compare_tensor(name, array, expected.get(name), tolerance)
        floor = (floors or {}).get(name)
        for kernels, found in (others or {}).items():
            if (
                not checked.passed
                and _compare_tensor(name, array, found.get(name), tolerance).passed
            ):
                said = f"the same as the reference's {kernels} give"
                checked = replace(checked, passed=True, reason="", accepted_as=said)
        if floor is not None:
            checked = _hold_against(checked, floor)
        tensors.append(checked)
    return CheckResult(tensors=tuple(tensors), tolerance=tolerance)


def _hold_against(checked: TensorCheck, floor: Floor) -> TensorCheck:
    accepted = ""
    if not checked.passed and not checked.bad_values:
        accepted = floor.accepts(checked.max_error, checked.rmse)
    if accepted:
        return replace(checked, passed=True, reason="", floor=floor, accepted_as=accepted)
    if not checked.passed and not checked.bad_values and floor.tells_nothing:
        reason = (
            f"{checked.reason}, and nothing tells whether that is wrong: the reference's "
            f"{floor.kernels} are off by {floor.spread:.3g}, its whole range. Give it inputs that "
            "matter (--input)"
        )
        return replace(checked, reason=reason, floor=floor)
    return replace(checked, floor=floor)


def _compare_tensor(
    name: str, seen: np.ndarray, expected: np.ndarray | None, tolerance: float
) -> TensorCheck:
    import numpy as np

    if expected is not None:
        seen = _cut_to_found(seen, expected)
    if expected is None or seen.shape != expected.shape:
        shape = "none" if expected is None else list(expected.shape)
        return TensorCheck(
            name=name,
            shape=seen.shape,
            max_error=float("inf"),
            range_error=float("inf"),
            rmse=float("inf"),
            cosine=0.0,
            bad_values=0,
            passed=False,
            reason=f"its shape is {list(seen.shape)}, the reference's is {shape}",
        )
    a, b = seen.astype(np.float64).ravel(), expected.astype(np.float64).ravel()
    finite = np.isfinite(a) & np.isfinite(b)
    # Infinities of one sign and NaN on both sides agree.
    bad_values = int(np.count_nonzero(~finite & ~((a == b) | (np.isnan(a) & np.isnan(b)))))
    a, b = a[finite], b[finite]
    error = np.abs(a - b)
    max_error = float(error.max(initial=0.0))
    spread = float(b.max() - b.min()) if b.size else 0.0
    # A constant output has no range; its size is the next best measure.
    scale = spread or float(np.abs(b).max(initial=0.0)) or 1.0
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    range_error = max_error / scale
    what = f"by {range_error:.1e} of the output's range"
    differing = np.count_nonzero(error) / max(1, error.size)
    if holds_choices(expected) and differing < range_error:
        range_error, what = differing, f"in {differing:.1e} of its labels"
    reason = ""
    if bad_values:
        reason = f"{bad_values} of {seen.size} values are NaN or infinite on one side alone"
    elif range_error > tolerance:
        reason = f"off {what}, expected {tolerance:.0e} at most"
    return TensorCheck(
        name=name,
        shape=seen.shape,
        max_error=max_error,
        range_error=range_error,
        rmse=float(np.sqrt(np.mean(error**2))) if error.size else 0.0,
        cosine=float(a @ b) / norms if norms else float(max_error == 0.0),
        bad_values=bad_values,
        passed=not reason,
        reason=reason,
    )


def holds_choices(expected: np.ndarray) -> bool:
    """Whether whole numbers are labels, indices or masks, and no quanta."""
    import numpy as np

    if expected.dtype.kind not in "biu":
        return False
    return (
        expected.dtype.kind == "b" or expected.dtype.itemsize > 2 or np.unique(expected).size <= 2
    )


def _cut_to_found(seen: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """The entries before those that mark what was not found, where the reference has no more.

    Outputs whose extent depends on data have a fixed one in a bundle; -1 stands behind the last
    entry (False, or the largest number of unsigned integers).
    """
    import numpy as np

    if seen.ndim != expected.ndim:
        return seen
    axes = [a for a in range(seen.ndim) if seen.shape[a] != expected.shape[a]]
    if len(axes) != 1 or seen.shape[axes[0]] < expected.shape[axes[0]]:
        return seen
    found, missing = np.split(seen, [expected.shape[axes[0]]], axis=axes[0])
    kind = seen.dtype.kind
    mark = 0 if kind == "b" else np.iinfo(seen.dtype).max if kind == "u" else -1
    return found if (missing == mark).all() else seen
