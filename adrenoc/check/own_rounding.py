"""Judge outputs by how exactly the reference itself knows them.

Kernels of models that round to whole numbers do so each in their own way, and what a sum's last
digit decides may be a whole quantum, which later layers multiply.  Nobody computes such a model
more exactly than its own numbers are given: constants and inputs one float step away are the same
model as far as floats can tell, and how far its outputs move then is no error of who computes it.

Before -> after (x = 5, c = .1):
    y = round(x * c) is 0               0, or 1 with the float after c: y is known to within 1
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from adrenoc.check.perturb import perturb_array, perturb_constants
from adrenoc.check.quanta import Quantised, read_quanta
from adrenoc.check.reference import explain_installed, other_kernels, run_reference
from adrenoc.device.compare import CheckResult, Floor, compare, floors_of
from adrenoc.errors import InputError, ModelFormatError
from adrenoc.files.temporary import TemporaryFolder

Arrays = Mapping[str, np.ndarray]
PERTURBED = "results for numbers moved by one float step"
_DRAWS = 3
"""Random directions to perturb in; with the runtime's optimised and its plain kernels each."""


class Reference:
    """What the reference makes of one set of inputs, and how exactly it knows that.

    The one rule by which outputs are right or wrong.  What the rule has to compute is computed
    where outputs are beyond the tolerance, and once for all of them.
    """

    def __init__(self, model: Path, inputs: Arrays, expected: Arrays) -> None:
        self._model, self._inputs, self._expected = model, inputs, expected

    def judge(self, outputs: Arrays, *, tolerance: float) -> CheckResult:
        """Compare with the reference, and what is beyond with how far that is from itself.

        Raises:
            DependencyError: the package that runs this format is not installed.
        """
        checked = self._compare(outputs, tolerance, self._by_kernels)
        return checked if checked.passed else self._compare(outputs, tolerance, self.own_rounding)

    def _compare(self, outputs: Arrays, tolerance: float, known: OwnRounding) -> CheckResult:
        return compare(
            outputs,
            self._expected,
            tolerance=tolerance,
            floors=known.floors,
            others=known.draws,
        )

    @cached_property
    def _quanta(self) -> Quantised | None:
        return read_quanta(self._model)

    @cached_property
    def _kernels(self) -> dict[str, dict[str, np.ndarray]]:
        return other_kernels(self._model, self._inputs)

    @cached_property
    def _by_kernels(self) -> OwnRounding:
        """By what the model states and the runtime's other kernels; of quantised models alone."""
        if self._quanta is None:
            return OwnRounding(floors={}, draws={})
        floors = floors_of(self._expected, self._kernels, self._quanta.quanta)
        return OwnRounding(floors=floors, draws=self._kernels)

    @cached_property
    def own_rounding(self) -> OwnRounding:
        """By all that is looked at where it matters."""
        quanta = {} if self._quanta is None else self._quanta.quanta
        draws = {**self._kernels, **run_perturbed(self._model, self._inputs)}
        return OwnRounding(floors=_widen_floors(self._expected, draws, quanta), draws=draws)


def judge_outputs(
    model: Path, inputs: Arrays, outputs: Arrays, expected: Arrays, *, tolerance: float
) -> CheckResult:
    """Compare with the reference as `Reference.judge` does, and note where users' own differs.

    Raises:
        DependencyError: the package that runs this format is not installed.
    """
    checked = Reference(model, inputs, expected).judge(outputs, tolerance=tolerance)
    return replace(checked, note=explain_installed(model, inputs, expected))


@dataclass(frozen=True, kw_only=True)
class OwnRounding:
    """How exactly the reference knows its outputs, before anything is compared with them."""

    floors: dict[str, Floor]
    draws: dict[str, dict[str, np.ndarray]]
    """Other results that are as right, by what gives them."""


def find_own_rounding(model: Path, inputs: Arrays, expected: Arrays) -> OwnRounding:
    """How far the reference is from itself, by all that is looked at where it matters.

    Raises:
        DependencyError: the package that runs this format is not installed.
    """
    return Reference(model, inputs, expected).own_rounding


def _widen_floors(
    expected: Arrays, others: Mapping[str, Arrays], quanta: Mapping[str, float]
) -> dict[str, Floor]:
    return {
        name: _widen_floor(
            floor, [expected[name], *(o[name] for o in others.values() if name in o)]
        )
        for name, floor in floors_of(expected, others, quanta).items()
    }


def _widen_floor(floor: Floor, draws: Sequence[np.ndarray]) -> Floor:
    """With how far results are apart at most: ours is one more of them, and may lie at one end.

    The largest difference is of one element, and chance; root mean squares are of all.
    """
    alike = [d.astype(np.float64) for d in draws if d.shape == draws[0].shape]
    if not draws[0].size or not all(np.isfinite(d).all() for d in alike):
        return floor
    apart = float(np.max(np.max(alike, axis=0) - np.min(alike, axis=0)))
    rms = max((_rms(a - b) for a, b in itertools.combinations(alike, 2)), default=0.0)
    floor = replace(floor, rms_spread=rms)
    return replace(floor, spread=apart, kernels=PERTURBED) if apart > floor.spread else floor


def _rms(difference: np.ndarray) -> float:
    return float(np.sqrt(np.mean(difference**2)))


def run_perturbed(model: Path, inputs: Arrays) -> dict[str, dict[str, np.ndarray]]:
    """Run the reference on inputs and constants that are one float step (ULP) away, by draw.

    Where it refuses the model with other constants, the inputs alone are perturbed.
    """
    found = {}
    for number in range(_DRAWS):
        random = np.random.default_rng(number)
        feeds = {name: perturb_array(array, random) for name, array in inputs.items()}
        with TemporaryFolder("moved") as folder:
            path = perturb_constants(model, Path(folder), random)
            for optimise, file in itertools.product((True, False), (path, model)):
                kernels = "" if optimise else ", by plain kernels"
                name = f"{PERTURBED} ({number + 1}{kernels})"
                if name not in found:
                    with suppress(InputError, ModelFormatError):
                        found[name] = run_reference(file, feeds, optimise=optimise)
    return found
