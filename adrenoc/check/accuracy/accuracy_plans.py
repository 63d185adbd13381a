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
from adrenoc.check.accuracy.result import AccuracyPlan, Floor, PolicyPoint
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


def decisions_of(plan: AccuracyPlan) -> tuple[Decision, ...]:
    """A Decision for each tensor that is kept, and one for the whole."""
    limit = f"--accuracy {plan.tolerance:g}"
    before, after = plan.before.device_error, plan.after.device_error
    why = f" ({plan.accepted_as})" if plan.accepted_as else ""
    whole = Decision(
        subject="accuracy",
        taken=f"{len(plan.float32_tensors)} tensors in float32 for {limit}",
        reason=f"the largest error over the range of an output is {after:.1e}{why}, "
        f"{before:.1e} without; ideal rounding gives {plan.floor.error:.1e}; on {plan.device}, "
        f"{plan.inputs}; {describe_search(plan)}",
        stage="accuracy",
    )
    kept = f"kept for {limit}: it is among what a search by error and cost needs"
    return (
        whole,
        *(
            Decision(subject=name, taken="float32", reason=kept, stage="accuracy")
            for name in plan.float32_tensors
        ),
    )


def describe_search(plan: AccuracyPlan) -> str:
    """What the search did and what it left untried, for people."""
    if not plan.float32_tensors:
        return "nothing had to be searched for"
    done = f"{plan.plans} plans and {plan.runs} runs searched"
    return f"{done}; left untried: {', '.join(plan.left)}" if plan.left else f"{done}, all tried"


def place_of(model: Path, target: Target, options: CompileOptions, wanted: Wanted) -> Path:
    """Where the plan lies in the cache: under all that it depends on.

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


def read_plan(place: Path) -> AccuracyPlan | None:
    """The plan that was made before, None without one; what cannot be read is looked for again."""
    try:
        if not is_trusted_file(place):
            return None
        data = read_json(read_plain(place))
        points = {name: _point(data[name]) for name in ("before", "after")}
        lists = {name: tuple(data[name]) for name in ("float32_tensors", "groups", "left")}
        return AccuracyPlan(**{**data, **points, **lists, "floor": Floor(**data["floor"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _point(data: dict[str, Any]) -> PolicyPoint:
    lists = {name: tuple(data[name]) for name in ("float32_tensors", "groups", "graph_tensors")}
    return PolicyPoint(**{**data, **lists})


def write_plan(place: Path, plan: AccuracyPlan, reporter: Reporter) -> None:
    """Keep a plan; trouble with the cache is a warning."""
    try:
        private_folder(place.parent.parent)
        private_folder(place.parent)
        write_atomically(place, json.dumps(asdict(plan)))
    except (OSError, AdrenocError) as error:
        reporter.warn(f"the cache was not written: {error}")
