"""What `adrenoc compile --accuracy` asks for and found, kept in the cache: loads no TVM.

What a plan stores in half, and numbers as they are when they have been stored.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

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
from adrenoc.check.accuracy.result import AccuracyReport, Cost, Floor, PresetAccuracy, Remedy
from adrenoc.check.runtimes import reference_version
from adrenoc.compile.cache import cache_key
from adrenoc.importers.formats import find_model_files
from adrenoc.ir.graph import Graph
from adrenoc.ir.half import HALF_MAX
from adrenoc.ir.options import CompileOptions
from adrenoc.ir.program import Program
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
    """A Decision for each tensor that is kept, and one for the whole."""
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


def read_plan(place: Path) -> AccuracyReport | None:
    """The plan that was made before, None without one; what cannot be read is looked for again."""
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
        remedy = Remedy(**{**remedy, "float32_tensors": names, "cost": Cost(**cost)})
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


_HALF = "float16"


@dataclass(frozen=True, kw_only=True)
class Stored:
    """What is stored in half: computed tensors and constants of the planning graph."""

    tensors: frozenset[str]
    constants: frozenset[str]

    @property
    def count(self) -> int:
        """How many tensors and constants are stored in half."""
        return len(self.tensors) + len(self.constants)

    def together(self, other: Stored) -> Stored:
        """What is stored in half in one of the two."""
        return Stored(
            tensors=self.tensors | other.tensors, constants=self.constants | other.constants
        )


NOTHING = Stored(tensors=frozenset(), constants=frozenset())


def stored_in_half(program: Program) -> Stored:
    """The tensors and constants that a program holds in half precision."""
    graph = program.graph
    written = {graph.owner(name) for step in program.steps for name in step.writes}
    tensors = {
        name
        for name, tensor in graph.tensors.items()
        if tensor.value is None
        and graph.owner(name) in written
        and graph.placements[graph.owner(name)].dtype == _HALF
    }
    # Weights for local memory lie in pairs, as words; then the name alone tells.
    constants = {
        constant_of(graph, name)
        for name, param in program.params.items()
        if str(param.value.dtype) == _HALF or name.endswith(_HALF)
    }
    return Stored(tensors=frozenset(tensors), constants=frozenset(constants))


def round_to(value: np.ndarray, dtype: str) -> np.ndarray:
    """The numbers that remain of these in a dtype; beyond its range infinity."""
    with np.errstate(over="ignore"):
        return value.astype(dtype).astype(value.dtype)


def round_within(value: np.ndarray, dtype: str) -> np.ndarray:
    """As stored, but within the range: overflow is the fault of who made it."""
    if dtype == "float16":
        value = np.clip(value, -HALF_MAX, HALF_MAX)
    return round_to(value, dtype)


def constant_of(graph: Graph, param: str) -> str:
    """The constant that a param was packed from: its name begins with the constant's."""
    name = param
    while name not in graph.tensors and "_" in name:
        name = name.rpartition("_")[0]
    return name
