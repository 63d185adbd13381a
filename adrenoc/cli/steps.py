"""`adrenoc run BUNDLE --steps N`: runs that go on from the states that each leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adrenoc.base.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from adrenoc.bundle.bundle import Bundle
    from adrenoc.check.inputs import ImageOptions, InputFile, Inputs
    from adrenoc.device.compare import CheckResult
    from adrenoc.device.result import RunResult

    Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Inputs of the first run, and of those after it, which go on from the states that it leaves.

    `settings` are inputs of the model that are constants of the bundle.  Where nobody gave inputs
    to check with, runs are of several sets of them, `forms` names that of each run, and `fed` says
    what they hold; without states each run stands by itself.  With `count_asked` the outputs of all
    runs are the result, else those of the first.  `expected` is what the model's own runtime
    computes in each run, once it has.
    """

    first: Inputs
    later: tuple[Inputs, ...]
    settings: Arrays
    states: tuple[tuple[str, str], ...]
    fed: str = ""
    forms: tuple[str, ...] = ()
    count_asked: bool = False
    expected: tuple[Arrays, ...] = ()

    @property
    def named(self) -> Inputs:
        """Return all that the model takes in the first run."""
        return self.first.add(self.settings)

    @property
    def feeds(self) -> list[Inputs]:
        """Return all that the model takes in each run."""
        return [one.add(self.settings) for one in (self.first, *self.later)]

    @property
    def _apart(self) -> bool:
        """Return whether runs are of several sets, each by itself."""
        return bool(self.later and self.fed and not self.states)

    def run_reference(self, model: Path) -> Steps:
        """Return these with what the model's own runtime computes, given by each run what the one
        before has left; without the sets of inputs that it does not take, where nobody gave them.
        Raises as `run_reference` does."""
        from adrenoc.check.reference import run_reference, run_steps

        if not self.later:
            return replace(self, expected=(run_reference(model, self.named),))
        try:
            found = run_steps(model, self.feeds, kept=self.states)
            return replace(self, expected=tuple(found))
        except InputError:
            if len(set(self.forms)) < 2:
                raise
            from adrenoc.check.trial_inputs import REFUSED, Trials

            said = Trials(sets=(self.first,), said="").keep_first(REFUSED).said
            usual = self.forms[: self.forms.count(self.forms[0])]
            alone = replace(self, later=self.later[: len(usual) - 1], forms=usual, fed=said)
            return alone.run_reference(model)

    def take_first(self, result: RunResult, save: Path | None) -> RunResult:
        """Return what the first run gives, unless all were asked for; it is saved."""
        from adrenoc.check.inputs import save_arrays

        if self.later and not self.count_asked:
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
        from adrenoc.device.compare import compare, join_checks

        expected = self.expected
        if model is None or not expected:
            return None
        outputs = _leave_out_variables(bundle, outputs, expected[0])
        if not self.later:
            checked = judge_outputs(model, self.named, outputs, expected[0], tolerance=tolerance)
            return replace(checked, fed=self.fed)
        checks = {}
        if self._apart:
            for number, (form, wanted) in enumerate(zip(self.forms, expected, strict=True)):
                made = {name: array[number] for name, array in outputs.items()}
                feed = self.feeds[number]
                checks[form] = judge_outputs(model, feed, made, wanted, tolerance=tolerance)
            return join_checks(checks, fed=self.fed)
        forms = np.array(self.forms or ["all steps"] * len(expected))
        stacked = {name: np.stack([one[name] for one in expected]) for name in expected[0]}
        for form in dict.fromkeys(forms.tolist()):
            made = {name: array[forms == form] for name, array in outputs.items()}
            theirs = {name: array[forms == form] for name, array in stacked.items()}
            checks[form] = compare(made, theirs, tolerance=tolerance)
        return join_checks(checks, fed=self.fed)

    def sweep(
        self,
        model: Path | None,
        checked: CheckResult | None,
        run: Callable[[Sequence[Inputs]], Arrays],
    ) -> CheckResult | None:
        """Tell in what was fed of the range that inputs may have, where several sets passed. `run`
        gives the outputs for some inputs, along a first axis."""
        from adrenoc.check.reference import run_reference
        from adrenoc.check.trial_inputs import scale_inputs, tell_range

        scaled = scale_inputs(self.first) if self._apart else []
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
    from adrenoc.importers.signature import read_fixed_inputs
    from adrenoc.ir.options import CompileOptions

    if model is None or not bundle.manifest.options.values.get("fixed"):
        return {}
    options = CompileOptions.from_bundle(bundle)
    return read_fixed_inputs(model, options.fixed, options.signature, options.shapes or ())


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

    Of several runs each file holds all, along a first axis. With `trial`, where no file nor shape
    is given, runs are of the sets of `draw_trials`, of a bundle that keeps states one after the
    other from zeros on. Raises click.UsageError where the bundle keeps nothing between runs, or is
    a decoder; InputError where a file is missing, damaged, of another shape or dtype, or for no
    input.
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
    kept = tuple(bundle.kept_states)
    if trial and model and not (files or shapes):
        steps = _draw_trials(model, bundle, (count or _STEPS) if kept else None, seed=seed)
        return replace(steps, settings=settings, count_asked=count is not None)
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
    if count is None:
        return Steps(first=given, later=(), settings=settings, states=kept)
    each = []
    for step in range(count):
        one = Inputs((name, v if name in states else v[step, ...]) for name, v in given.items())
        one.drawn = given.drawn
        each.append(one)
    later = tuple(each[1:])
    return Steps(first=each[0], later=later, settings=settings, states=kept, count_asked=True)


_STEPS = 32
"""Runs that a check of a bundle that keeps states makes, of all sets together: errors of states
that grow with steps do so within eight."""


def _draw_trials(model: Path, bundle: Bundle, count: int | None, *, seed: int) -> Steps:
    """Draw a run of each set of `draw_trials`, or `count` runs that are parted among the sets."""
    import numpy as np

    from adrenoc.bundle.buckets import specs_for
    from adrenoc.check.trial_inputs import FORMS, draw_trials

    held = set(bundle.manifest.states)
    every = specs_for(bundle, {})
    specs = [spec for spec in every if spec.name not in held]
    trials = draw_trials(model, specs, seed=seed)
    if count is None:
        each, forms, fed = list(trials.sets), FORMS[: len(trials.sets)], trials.said
    else:
        at = [step * len(trials.sets) // count for step in range(count)]
        states = {s.name: np.zeros(s.shape, s.dtype) for s in every if s.name in held}
        others = range(1, -(-count // len(trials.sets)))
        drawn = [trials, *(draw_trials(model, specs, seed=seed + more) for more in others)]
        each = [drawn[step % len(drawn)].sets[number].add(states) for step, number in enumerate(at)]
        forms = tuple(FORMS[number] for number in at)
        fed = f"{count} steps, from states of zeros on, of {trials.said}"
    kept = tuple(bundle.kept_states)
    return Steps(
        first=each[0], later=tuple(each[1:]), settings={}, states=kept, fed=fed, forms=forms
    )
