"""Compare outputs with a reference, as exactly as the reference itself knows them.

Kernels of models that round to whole numbers do so each in their own way, and what a sum's last
digit decides may be a whole quantum, which later layers multiply.  What the reference gives for
numbers one float step away is as right as what it gave: between those results a number of ours may
lie.  That excuses the numbers that move, and no other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from adrenoc.base.errors import CheckFailedError

_FLOAT_STEPS = 8
"""Sums in another order differ by some steps of their largest number."""
_BEYOND_ITS_WIDTH = 0.5
"""How far one more result may lie outside of the others, which are so far apart."""
_BEYOND_ONE_MORE = 1.5
"""By how much one more draw of the same noise may be beyond what the others were."""
_DEVIATIONS = 2.0
"""Standard deviations by which a small count of chance events may be beyond the mean."""
ONE = 1 + 1e-5
"""Floats that are multiples of a quantum are not quite that."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Uncertainty:
    """What the reference leaves open of one output.

    `step` is one quantum of it where the model states one (`step_is` says so), else a step of half
    at its largest number, or eight of float.  `others` are what other kernels of the reference give
    on the same numbers, `moved` what it gives on numbers one float step away; of its shape all.  A
    model that `rounds` by itself has roundings that fall otherwise anywhere.
    """

    step: float = 0.0
    step_is: str = ""
    rounds: bool = False
    others: tuple[np.ndarray, ...] = ()
    moved: tuple[np.ndarray, ...] = ()

    def spread(self, expected: np.ndarray) -> float:
        """Return the largest difference between the reference's results for a number."""
        return float(_interval(self._all(expected))[1].max(initial=0.0))

    def widths(self, expected: np.ndarray) -> np.ndarray:
        """Return how far the reference's results for each number are apart."""
        return _interval(self._all(expected))[1]

    def excuse(self, seen: np.ndarray, expected: np.ndarray, *, least: float, labels: bool) -> str:
        """Return why numbers more than `least` apart are no error; empty where one is. Of `labels`
        each is right or wrong by itself: wrong is what no result of the reference has, and `least`
        the share that may be."""
        error = np.abs(seen.astype(np.float64) - expected)
        if not labels and float(error.max(initial=0.0)) <= self.step * ONE:
            return f"within {self.step_is}, {self.step:.3g}"
        draws = self._all(expected)
        if len(draws) == 1 or self.tells_nothing(expected, labels=labels):
            return ""
        ours = _Strange.from_result(seen, draws, least, labels=labels)
        usual = [
            _Strange.from_result(draw, [*draws[:at], *draws[at + 1 :]], least, labels=labels)
            for at, draw in enumerate(draws)
            if at > len(self.others)
        ]
        few = labels and ours.fresh.size + ours.further.size <= least * error.size
        if not few and not ours.is_like(usual, anywhere=self.rounds):
            return ""
        wrong = int(np.count_nonzero(error > (0 if labels else least)))
        return (
            f"{wrong} of {error.size} numbers lie where the reference's own do that are computed "
            "by its other kernels, or of numbers moved by one float step"
        )

    def tells_nothing(self, expected: np.ndarray, *, labels: bool) -> bool:
        """Return whether the reference itself is off by all that there is."""
        if labels:
            return False
        width = self.widths(expected)
        finite = expected[np.isfinite(expected)].astype(np.float64)
        noise, signal = np.sqrt(np.mean(width**2)), np.std(finite) if finite.size else 0.0
        return bool(0 < signal <= noise)

    def _all(self, expected: np.ndarray) -> list[np.ndarray]:
        """Return all results, the expected one first, which stands in for no number."""
        wide = expected.astype(np.float64)
        with np.errstate(invalid="ignore"):
            draws = [d.astype(np.float64) for d in (*self.others, *self.moved)]
        return [wide, *(np.where(np.isfinite(draw), draw, wide) for draw in draws)]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Strange:
    """How far a result lies outside of all others, where it is more than one more may lie. `fresh`
    where the others agree, `further` where they do not."""

    fresh: np.ndarray
    further: np.ndarray

    @classmethod
    def from_result(
        cls, seen: np.ndarray, others: Sequence[np.ndarray], least: float, *, labels: bool
    ) -> _Strange:
        if labels:
            missed = np.logical_and.reduce([seen != other for other in others])
            agreed = np.logical_and.reduce([others[0] == other for other in others])
            counts = int(np.sum(missed & agreed)), int(np.sum(missed & ~agreed))
            return cls(fresh=np.ones(counts[0]), further=np.ones(counts[1]))
        low, width = _interval(others)
        with np.errstate(invalid="ignore"):
            over = np.nan_to_num(np.maximum(low - seen, seen - (low + width)))
        over[~np.isfinite(low)] = 0.0  # what is infinite on both sides
        strange = over > least + width * _BEYOND_ITS_WIDTH
        return cls(fresh=over[strange & (width <= least)], further=over[strange & (width > least)])

    def is_like(self, usual: Sequence[_Strange], *, anywhere: bool) -> bool:
        """Return whether as many numbers lie outside, and as far, as of the reference's own
        results; those that the others agree about where they may be `anywhere` alone."""
        fresh = [one.fresh for one in usual] if anywhere else []
        return _is_usual(self.fresh, fresh) and _is_usual(
            self.further, [one.further for one in usual]
        )


def _is_usual(found: np.ndarray, usual: Sequence[np.ndarray]) -> bool:
    """Return whether one more draw may have found so many; what is of one draw alone is left out.
    One row that flips is found by the draw that flips it, and excuses no other row."""
    if not found.size:
        return True
    rest = sorted(usual, key=lambda one: one.size)[:-1]
    mean = sum(one.size for one in rest) / max(1, len(rest))
    largest = max((float(one.max(initial=0.0)) for one in rest), default=0.0)
    most = _BEYOND_ONE_MORE * mean + _DEVIATIONS * mean**0.5
    return found.size <= most and float(found.max()) <= _BEYOND_ONE_MORE * largest


def _interval(draws: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the least of some results for each number, and how far they are apart."""
    low, high = np.minimum.reduce(draws), np.maximum.reduce(draws)
    with np.errstate(invalid="ignore"):
        return low, np.where(low == high, 0.0, np.nan_to_num(high - low))


def step_of(expected: np.ndarray, quantum: float) -> tuple[float, str]:
    """Return the step of an output of this `quantum` (0: none), and in words what it is."""
    if quantum:
        return quantum, "one quantum"
    if expected.dtype == np.float16:
        return _steps(expected, 1), "one step of half at its largest number"
    if expected.dtype == np.float32:
        return _steps(expected, _FLOAT_STEPS), "eight float steps of its largest number"
    return 0.0, ""


def _steps(array: np.ndarray, count: int) -> float:
    """Return so many steps from its largest number to the next ones."""
    zero = array.dtype.type(0)
    largest = np.abs(array[np.isfinite(array)]).max(initial=zero)
    return count * float(largest - np.nextafter(largest, zero))


# Largest error over the range of the reference's output.
FP32_TOLERANCE = 1e-4
FP16_TOLERANCE = 1e-2


@dataclass(frozen=True, kw_only=True)
class TensorCheck:
    """How one output compares with the reference.

    `range_error` is `max_error` over the range (largest less smallest value) of the reference.  Of
    whole numbers that stand for a choice (labels, indices, masks) it is the share of those that
    differ, where that is less: a tie that falls otherwise is no error of the size of its index.
    `bad_values` counts values that are NaN or infinite on one side alone or with another sign.
    `reason` says why it did not pass, and is empty when it did; beyond the tolerance `step` and
    `spread` say how exactly the reference knows it (`Uncertainty`), and `accepted_as` why it passed
    all the same.
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
    step: float = 0.0
    spread: float = 0.0
    accepted_as: str = ""


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The comparison of all outputs with one tolerance for `range_error`. `note` is what else is to
    be said of the reference, `fed` what inputs were where nobody gave any; both are empty where
    that is nothing."""

    tensors: tuple[TensorCheck, ...]
    tolerance: float
    note: str = ""
    fed: str = ""

    @property
    def passed(self) -> bool:
        """Return whether every output passed."""
        return all(tensor.passed for tensor in self.tensors)

    @property
    def accepted(self) -> tuple[TensorCheck, ...]:
        """Return the outputs that passed beyond the tolerance."""
        return tuple(tensor for tensor in self.tensors if tensor.accepted_as)

    @property
    def first_bad(self) -> TensorCheck | None:
        """Return the first tensor beyond the tolerance."""
        return next((tensor for tensor in self.tensors if not tensor.passed), None)

    def raise_if_failed(self, *, in_float32: bool = False, of_layers: bool = False) -> None:
        """Do nothing if all passed; of what is `in_float32` rounding to half is no excuse. Raises
        CheckFailedError naming the first output or layer that did not pass, and why."""
        bad = self.first_bad
        if bad is None:
            return
        if of_layers:
            raise CheckFailedError(
                f"the first layer that disagrees with the reference is `{bad.name}`: {bad.reason}",
                hint=hint_of_failure(in_float32),
            )
        way = "--check-layers MODEL names the first layer that is off" if in_float32 else _BY_FLOAT
        raise CheckFailedError(
            f"the output `{bad.name}` disagrees with the reference: {bad.reason}",
            hint=f"{way}, or allow more with --tolerance",
        )


_BY_FLOAT = "compile with --preset fp32 to tell rounding from a defect"


def hint_of_failure(in_float32: bool) -> str:
    """Return what to do about numbers that are off where it is known which."""
    return "report it with the model, or allow more with --tolerance" if in_float32 else _BY_FLOAT


def default_tolerance(storage_dtype: str, compute_dtype: str) -> float:
    """Return the tolerance for a bundle by the types that it stores and computes in."""
    return FP32_TOLERANCE if is_float32(storage_dtype, compute_dtype) else FP16_TOLERANCE


def is_float32(storage_dtype: str, compute_dtype: str) -> bool:
    """Return whether a bundle of these types holds no halves."""
    return storage_dtype == "float32" and compute_dtype == "float32"


def compare(
    outputs: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
    *,
    tolerance: float,
    known: Mapping[str, Uncertainty] | None = None,
) -> CheckResult:
    """Compare each of `outputs` with the tensor of that name in `expected`. With `known`, what is
    beyond the tolerance passes where the reference knows it no better; the check says so."""
    tensors = []
    for name, array in outputs.items():
        checked = _compare_tensor(name, array, expected.get(name), tolerance)
        uncertainty = (known or {}).get(name)
        if uncertainty is not None and not checked.passed and not checked.bad_values:
            checked = _excuse(checked, array, expected[name], uncertainty, tolerance)
        tensors.append(checked)
    return CheckResult(tensors=tuple(tensors), tolerance=tolerance)


def join_checks(checks: Mapping[str, CheckResult], *, fed: str) -> CheckResult:
    """Return the worst of each output over sets of inputs, by what each set holds."""
    named = [
        [replace(t, reason=f"{t.reason}, on {what}" if t.reason else "") for t in one.tensors]
        for what, one in checks.items()
    ]
    first = next(iter(checks.values()))
    worst = tuple(
        max(of_one, key=lambda t: (not t.passed, t.bad_values, t.range_error))
        for of_one in zip(*named, strict=True)
    )
    return replace(first, tensors=worst, fed=fed)


def _excuse(
    checked: TensorCheck,
    seen: np.ndarray,
    expected: np.ndarray,
    known: Uncertainty,
    tolerance: float,
) -> TensorCheck:
    seen = _cut_to_found(seen, expected)
    if seen.shape != expected.shape:
        return checked
    labels = holds_choices(expected)
    least = tolerance if labels else tolerance * scale_of(expected)
    accepted = known.excuse(seen, expected, least=least, labels=labels)
    checked = replace(checked, step=known.step, spread=known.spread(expected))
    if accepted:
        return replace(checked, passed=True, reason="", accepted_as=accepted)
    if known.tells_nothing(expected, labels=labels):
        reason = (
            f"{checked.reason}, and nothing tells whether that is wrong: the reference's own "
            f"results differ by {checked.spread:.3g}, as much as its numbers do. Give it inputs "
            "that matter (--input)"
        )
        return replace(checked, reason=reason)
    return checked


def settle(
    checked: TensorCheck,
    seen: np.ndarray,
    expected: np.ndarray,
    exact: np.ndarray,
    tolerance: float,
) -> TensorCheck:
    """Return what is to be said where numbers that differ from what is expected are known exactly.
    It passes where each of them is right, and is told where some of what is expected are wrong."""
    least = 0.0 if holds_choices(expected) else tolerance * scale_of(exact)
    a, b, c = (one.astype(np.float64) for one in (seen, expected, exact))

    def differ(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            far = ~(np.abs(one - other) <= least)
        return far & (one != other) & ~(np.isnan(one) & np.isnan(other))

    disputed = differ(a, b)
    wrong = disputed & differ(b, c)
    if not wrong.any():
        return checked
    said = f"float64 says that the reference is wrong in {np.count_nonzero(wrong)} of {a.size} "
    ours = np.count_nonzero(disputed & differ(a, c))
    if ours:
        return replace(checked, reason=f"{checked.reason}; {said}numbers, and ours in {ours}")
    return replace(checked, passed=True, reason="", accepted_as=f"{said}numbers, and ours right")


def scale_of(expected: np.ndarray) -> float:
    """Return what errors are told over: the range of numbers; their size if all are alike."""
    finite = expected[np.isfinite(expected)].astype(np.float64)
    if not finite.size:
        return 1.0
    # A constant output has no range; its size is the next best measure.
    return float(finite.max() - finite.min()) or float(np.abs(finite).max()) or 1.0


def _compare_tensor(
    name: str, seen: np.ndarray, expected: np.ndarray | None, tolerance: float
) -> TensorCheck:
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
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    range_error = max_error / scale_of(b)
    what = f"by {range_error:.1e} of the output's range"
    differing = np.count_nonzero(error) / max(1, error.size)
    if holds_choices(expected) and differing < range_error:
        range_error, what = differing, f"in {differing:.1e} of its labels"
    reason = ""
    if bad_values:
        reason = f"{bad_values} of {seen.size} values {_name_side(seen, expected)}"
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


def _name_side(seen: np.ndarray, expected: np.ndarray) -> str:
    """Return on which side the values are that are no numbers, where they are on one alone."""
    ours, theirs = np.isfinite(seen).all(), np.isfinite(expected).all()
    if ours == theirs:
        return "are NaN or infinite on one side alone"
    return f"are NaN or infinite in {'the reference' if ours else 'ours'} alone"


def holds_choices(expected: np.ndarray) -> bool:
    """Return whether whole numbers are labels, indices or masks, and no quanta."""
    if expected.dtype.kind not in "biu":
        return False
    return (
        expected.dtype.kind == "b" or expected.dtype.itemsize > 2 or np.unique(expected).size <= 2
    )


def _cut_to_found(seen: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return the entries before those that mark what was not found, if the reference ends. Outputs
    whose extent depends on data have a fixed one in a bundle; -1 stands behind the last entry
    (False, or the largest number of unsigned integers)."""
    if seen.ndim != expected.ndim:
        return seen
    axes = [a for a in range(seen.ndim) if seen.shape[a] != expected.shape[a]]
    if len(axes) != 1 or seen.shape[axes[0]] < expected.shape[axes[0]]:
        return seen
    found, missing = np.split(seen, [expected.shape[axes[0]]], axis=axes[0])
    kind = seen.dtype.kind
    mark = 0 if kind == "b" else np.iinfo(seen.dtype).max if kind == "u" else -1
    return found if (missing == mark).all() else seen
