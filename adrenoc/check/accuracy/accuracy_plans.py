"""What `adrenoc compile --accuracy` asks for and found, kept in the cache: loads no TVM."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from adrenoc.base.decision import Decision
from adrenoc.base.errors import AdrenocError
from adrenoc.base.files.outputs import write_atomically
from adrenoc.base.files.read import (
    cache_folder,
    is_trusted_file,
    private_folder,
    read_plain,
    sha256_file,
)
from adrenoc.base.reporter import Reporter
from adrenoc.base.text.json_text import read_json
from adrenoc.check.accuracy.result import AccuracyReport, Floor, PolicyCost, PresetAccuracy, Remedy
from adrenoc.check.runtimes import reference_version
from adrenoc.compile.cache import cache_key
from adrenoc.importers.formats import find_model_files
from adrenoc.ir.options import CompileOptions
from adrenoc.target.target import Target, host_twin


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What `--accuracy` asks for: a tolerance over the range of each output, on these inputs.

    `effort` is the work that the search may do, of the usual.
    """

    tolerance: float
    files: tuple[Path, ...] = ()
    seed: int = 0
    cl_device: str = ""
    effort: float = 1.0


def decisions_of(plan: AccuracyReport) -> tuple[Decision, ...]:
    """Return a Decision for each tensor that is kept, and one for the whole."""
    (found,) = plan.presets
    limit, remedy = f"--accuracy {plan.tolerance:g}", found.remedy
    why = f" ({found.accepted_as})" if found.accepted_as else ""
    error = f"{found.error:.1e}{why}, and nothing had to be searched for"
    if remedy is not None:
        error = f"{remedy.error_after:.1e}, {remedy.error_before:.1e} without; {remedy.trials} "
        error += f"trials and {remedy.runs} runs"
        error += f"; left untried: {', '.join(found.left)}" if found.left else ", all tried"
    whole = Decision(
        subject="accuracy",
        taken=f"{len(plan.float32_tensors)} tensors in float32 for {limit}",
        reason=f"the largest error over the range of an output is {error}; ideal rounding gives "
        f"{found.floor.error:.1e}; on {plan.device}, {plan.inputs}",
        stage="accuracy",
    )
    kept = f"kept for {limit}: it is among what a search by error and bytes needs"
    return (
        whole,
        *(
            Decision(subject=name, taken="float32", reason=kept, stage="accuracy")
            for name in plan.float32_tensors
        ),
    )


def place_of(model: Path, target: Target, options: CompileOptions, wanted: Wanted) -> Path:
    """Return where the plan lies in the cache: under all that it depends on.

    Raises:
        DependencyError: what computes the reference is not installed.
    """
    files = find_model_files(model)
    key = cache_key(
        {
            "what": "accuracy",
            "model": files.sha256(),
            "target": host_twin(target).digest(),
            "options": options.digest(),
            "tolerance": repr(wanted.tolerance),
            "effort": repr(wanted.effort),
            "inputs": " ".join(sha256_file(path) for path in wanted.files) or str(wanted.seed),
            "device": wanted.cl_device,
            "reference": reference_version(files.format),
        }
    )
    return cache_folder() / "accuracy" / f"{key}.json"


def read_plan(place: Path) -> AccuracyReport | None:
    """Return the plan that was made before, if any; what cannot be read is looked for again."""
    try:
        if not is_trusted_file(place):
            return None
        data = read_json(read_plain(place))
        return AccuracyReport(**{**data, "presets": tuple(map(_read_preset, data["presets"]))})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _read_preset(data: dict[str, Any]) -> PresetAccuracy:
    remedy = data["remedy"]
    if remedy is not None:
        cost: dict[str, Any] = {key: pair and tuple(pair) for key, pair in remedy["cost"].items()}
        names = tuple(remedy["float32_tensors"])
        remedy = Remedy(**{**remedy, "float32_tensors": names, "cost": PolicyCost(**cost)})
    known = {"floor": Floor(**data["floor"]), "remedy": remedy, "left": tuple(data["left"])}
    return PresetAccuracy(**{**data, **known, "layers": ()})


def write_plan(place: Path, plan: AccuracyReport, reporter: Reporter) -> None:
    """Keep a plan; trouble with the cache is a warning."""
    try:
        private_folder(place.parent.parent)
        private_folder(place.parent)
        write_atomically(place, json.dumps(asdict(plan)))
    except (OSError, AdrenocError) as error:
        reporter.warn(f"the cache was not written: {error}")
