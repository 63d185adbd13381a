"""Work on tuning logs: merge, prune, compare, export."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from adrenoc.base.files.outputs import write_atomically
from adrenoc.ir.tuning_log import Status, Trial, actions_key, best_trials


@dataclass(frozen=True, kw_only=True)
class KernelDifference:
    """One kernel in two logs: the best of each, None where a log has none."""

    kernel: str
    family: str
    first: Trial | None
    second: Trial | None

    @property
    def gain(self) -> float:
        """Return how much faster the second log's is, 0 where one is missing."""
        if self.first is None or self.second is None or not self.second.median_us:
            return 0.0
        return self.first.median_us / self.second.median_us


@dataclass(frozen=True, kw_only=True)
class LogSummary:
    """What a log holds for one GPU; `untuned` kernels are those whose best is the untuned one."""

    gpu: str
    devices: tuple[str, ...]
    kernels: int
    untuned: int
    trials: int
    failed: int


def merge(logs: Iterable[Sequence[Trial]]) -> tuple[Trial, ...]:
    """Return all trials of the logs in their order, equal ones once."""
    return tuple({trial.encode_line(): trial for log in logs for trial in log}.values())


def prune(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """Return what a compilation and a search need: of each kernel on each GPU the best and the
    untuned schedule, and each failure once."""
    kept: set[int] = set()
    for own in _group_by_gpu(trials).values():
        untuned = {t.key: t for t in own if t.untuned and t.status is Status.OK}
        first_failures = {t.key: t for t in reversed(own) if t.status is not Status.OK}
        for some in (best_trials(own), untuned, first_failures):
            kept |= {id(trial) for trial in some.values()}
    once = {id(trial): trial for trial in trials}
    return tuple(trial for number, trial in once.items() if number in kept)


def differences(first: Sequence[Trial], second: Sequence[Trial]) -> tuple[KernelDifference, ...]:
    """Return kernels whose best schedule differs, or that one log lacks."""
    ours, theirs = best_trials(first), best_trials(second)
    found = []
    for kernel in sorted({*ours, *theirs}):
        a, b = ours.get(kernel), theirs.get(kernel)
        if a is not None and b is not None and actions_key(a.actions) == actions_key(b.actions):
            continue
        family = (a or b).family  # type: ignore[union-attr]
        found.append(KernelDifference(kernel=kernel, family=family, first=a, second=b))
    return tuple(found)


def summaries(trials: Sequence[Trial]) -> tuple[LogSummary, ...]:
    """Return a row for each GPU."""
    rows = []
    for gpu, own in sorted(_group_by_gpu(trials).items()):
        best = best_trials(own)
        untuned = {t.key for t in own if t.untuned}
        rows.append(
            LogSummary(
                gpu=gpu,
                devices=tuple(
                    sorted({f"{t.device.name} ({t.device.driver})" for t in own if t.runs})
                ),
                kernels=len(best),
                untuned=sum(t.key in untuned for t in best.values()),
                trials=len(own),
                failed=sum(t.status is not Status.OK for t in own),
            )
        )
    return tuple(rows)


def format_csv(trials: Sequence[Trial]) -> str:
    """Return the best schedule of each kernel, for a spreadsheet."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("gpu", "kernel", "family", "median_us", "spread_us", "untuned_us", "actions"))
    for gpu, own in sorted(_group_by_gpu(trials).items()):
        untuned = {t.kernel: t.median_us for t in own if t.untuned and t.status is Status.OK}
        for kernel, trial in sorted(best_trials(own).items()):
            writer.writerow(
                (
                    gpu,
                    kernel,
                    trial.family,
                    f"{trial.median_us:.3f}",
                    f"{trial.spread_us:.3f}",
                    f"{untuned[kernel]:.3f}" if kernel in untuned else "",
                    actions_key(trial.actions),
                )
            )
    return text.getvalue()


def format_bans(trials: Sequence[Trial]) -> str:
    """Return unstable work-groups as quirks of a target's file (`targets/gpu/NAME.toml`)."""
    parts = []
    for gpu, own in sorted(_group_by_gpu(trials).items()):
        seen: dict[tuple[int, ...], list[Trial]] = {}
        for trial in own:
            if trial.status is Status.UNSTABLE and trial.actions.get("work_group"):
                seen.setdefault(tuple(trial.actions["work_group"]), []).append(trial)
        for group, evidence in sorted(seen.items()):
            first = evidence[0]
            shape = "x".join(map(str, group))
            parts.append(
                f"# for targets/gpu/{gpu}.toml\n[[quirks]]\n"
                f'name = "unstable-{shape}"\n'
                f'text = "Work-groups of {shape} give different numbers on equal inputs."\n'
                f'source = "adrenoc tune run: {len(evidence)} kernels, first {first.kernel} '
                f'on {first.device.name}, driver {first.device.driver}, {first.at}"\n'
                f"banned_work_groups = [[{', '.join(map(str, group))}]]\n"
            )
    return "\n".join(parts)


def write_log(path: Path, trials: Iterable[Trial]) -> None:
    """Write a whole log at once; what was there before is kept if that fails. Raises OutputError
    where it cannot be written."""
    write_atomically(path, "".join(trial.encode_line() + "\n" for trial in trials))


def _group_by_gpu(trials: Iterable[Trial]) -> dict[str, list[Trial]]:
    found: dict[str, list[Trial]] = {}
    for trial in trials:
        found.setdefault(trial.gpu, []).append(trial)
    return found
