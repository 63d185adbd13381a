"""`adrenoc run BUNDLE --steps N`: runs that go on from the states that each leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    import numpy as np

    from adrenoc.bundle.bundle import Bundle
    from adrenoc.check.inputs import ImageOptions, InputFile, Inputs
    from adrenoc.device.compare import CheckResult
    from adrenoc.device.result import RunResult

    Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Inputs of the first run, and of those that go on from what it leaves.

    `settings` are inputs of the model that are constants of the bundle.  Where nobody gave inputs
    to check with, runs are of several sets of them, each by itself, and `fed` says what they hold.
    `expected` is what the model's own runtime computes in each run, once it has.
    """

    first: Inputs
    later: tuple[Inputs, ...]
    settings: Arrays
    fed: str = ""
    expected: tuple[Arrays, ...] = ()

    @property
    def named(self) -> Inputs:
        """Return all that the model takes in the first run."""
        return self.first.add(self.settings)

    @property
    def feeds(self) -> list[Inputs]:
        """Return all that the model takes in each run."""
        return [one.add(self.settings) for one in (self.first, *self.later)]

    def run_reference(self, model: Path, states: Sequence[tuple[str, str]]) -> Steps:
        """These with what the model's own runtime computes, given by each run what the one before
        has left; without the sets of inputs that it does not take, where nobody gave them.

        Raises:
            InputError, DependencyError, ModelFormatError: see `run_reference`.
        """
        from adrenoc.base.errors import InputError
        from adrenoc.check.reference import run_reference, run_steps

        if not self.later:
            return replace(self, expected=(run_reference(model, self.named),))
        try:
            found = run_steps(model, self.feeds, kept=states)
            return replace(self, expected=tuple(found))
        except InputError:
            if not self.fed:
                raise
            from adrenoc.check.trial_inputs import REFUSED, Trials

            said = Trials(sets=(self.first,), said="").keep_first(REFUSED).said
            alone = replace(self, later=(), fed=said)
            return replace(alone, expected=(run_reference(model, self.named),))

    def take_first(self, result: RunResult, save: Path | None) -> RunResult:
        """Return what the run of the first set gives, where there are several; it is saved."""
        from adrenoc.check.numpy_files import save_arrays

        if self.later and self.fed:
            first = {name: array[0] for name, array in result.outputs.items()}
            result = replace(result, outputs=first)
        if save is not None:
            save_arrays(save, result.outputs)
        return result

    def judge(
        self, model: Path | None, bundle: Bundle, outputs: Arrays, *, tolerance: float
    ) -> CheckResult | None:
        """Compare what all runs gave with the reference's; None where that is not known."""
        import numpy as np

        from adrenoc.check.own_rounding import judge_outputs
        from adrenoc.check.trial_inputs import FORMS
        from adrenoc.device.compare import compare, join_checks

        expected = self.expected
        if model is None or not expected:
            return None
        outputs = _leave_out_variables(bundle, outputs, expected[0])
        if not self.later:
            checked = judge_outputs(model, self.named, outputs, expected[0], tolerance=tolerance)
            return replace(checked, fed=self.fed)
        if not self.fed:
            steps = {name: np.stack([one[name] for one in expected]) for name in expected[0]}
            return compare(outputs, steps, tolerance=tolerance)
        checks = {}
        for number, (feed, wanted) in enumerate(zip(self.feeds, expected, strict=True)):
            made = {name: array[number] for name, array in outputs.items()}
            checks[FORMS[number]] = judge_outputs(model, feed, made, wanted, tolerance=tolerance)
        return join_checks(checks, fed=self.fed)

    def sweep(
        self,
        model: Path | None,
        checked: CheckResult | None,
        run: Callable[[Sequence[Inputs]], Arrays],
    ) -> CheckResult | None:
        """Tell in what was fed of the range that inputs may have, where several sets passed.

        `run` gives the outputs for some inputs, along a first axis.
        """
        from adrenoc.base.errors import InputError
        from adrenoc.check.reference import run_reference
        from adrenoc.check.sweep import scale_inputs, tell_range

        scaled = scale_inputs(self.first) if self.later and self.fed else []
        if model is None or checked is None or not checked.passed or not scaled:
            return checked
        try:
            theirs = [run_reference(model, one.add(self.settings)) for one in scaled]
        except InputError:  # numbers that say where to read
            return checked
        made = run(scaled)
        ours = [{name: made[name][at] for name in made} for at in range(len(scaled))]
        return replace(checked, fed=f"{self.fed}; {tell_range(ours, theirs)}")


def _read_settings(bundle: Bundle, model: Path | None) -> Arrays:
    """Read the model's inputs that are constants of the bundle, for the reference."""
    from adrenoc.compile.bundle_options import options_of
    from adrenoc.importers.fixed_inputs import read_fixed_inputs

    if model is None or not bundle.manifest.options.values.get("fixed"):
        return {}
    options = options_of(bundle)
    return read_fixed_inputs(model, options.fixed, options.signature)


def _leave_out_variables(bundle: Bundle, outputs: Arrays, expected: Arrays) -> Arrays:
    """Leave out the states that the model's own runtime keeps to itself, as variables."""
    hidden = {present for _, present in bundle.kept_states} - expected.keys()
    return {name: array for name, array in outputs.items() if name not in hidden}


def draw_steps(
    bundle: Bundle,
    files: Sequence[InputFile],
    shapes: Sequence[tuple[str, tuple[int, ...]]],
    count: int | None,
    *,
    model: Path | None,
    seed: int,
    image: ImageOptions,
    trial: bool,
) -> Steps:
    """Draw inputs of `count` runs, of the shapes that are asked for; states begin as zeros.

    What `model`, to compare with, takes beside the bundle is in them.

    Of several runs each file holds all, along a first axis.  With `trial`, where no file nor shape
    is given, runs are of the sets of `draw_trials`.

    Raises:
        click.UsageError: the bundle keeps nothing between runs, or is a decoder.
        InputError: a file is missing, damaged, of another shape or dtype, or for no input.
    """
    import numpy as np

    from adrenoc.bundle.buckets import check_asked_shapes, specs_for
    from adrenoc.check.inputs import Inputs, make_inputs, shapes_of

    check_asked_shapes(bundle, dict(shapes))
    settings = _read_settings(bundle, model)
    states = set(bundle.manifest.states)
    if count is not None and not bundle.kept_states:
        raise click.UsageError(
            "--steps is for bundles that keep states (adrenoc compile MODEL --state PAST=PRESENT)"
        )
    found = shapes_of(bundle.manifest.inputs, files) if count is None else {}
    specs = specs_for(bundle, {**found, **dict(shapes)})
    if count is not None:
        specs = tuple(
            spec if spec.name in states else replace(spec, shape=(count, *spec.shape))
            for spec in specs
        )
    given = make_inputs(specs, files, seed=seed, image=image)
    for name in states & given.drawn:
        given[name] = np.zeros_like(given[name])
    if trial and count is None and model and not (files or shapes or bundle.kept_states):
        from adrenoc.check.trial_inputs import draw_trials

        trials = draw_trials(model, specs, seed=seed)
        return Steps(
            first=trials.sets[0], later=trials.sets[1:], settings=settings, fed=trials.said
        )
    if count is None:
        return Steps(first=given, later=(), settings=settings)
    each = []
    for step in range(count):
        one = Inputs((name, v if name in states else v[step, ...]) for name, v in given.items())
        one.drawn = given.drawn
        each.append(one)
    return Steps(first=each[0], later=tuple(each[1:]), settings=settings)
