"""What each launch of a bundle computes, in order: kept beside the kernels, for profiles."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from adrenoc.base.errors import BundleError
from adrenoc.base.text.json_text import read_json


@dataclass(frozen=True, kw_only=True)
class LaunchInfo:
    """One launch of an OpenCL kernel.

    `node` is the model's own name of what it computes, or the name of its tensor; `tensors` are the
    model's names of what it makes, empty in bundles of older versions.  `flops` counts
    a multiply-add as two; `bytes` counts each tensor that it touches once; `floor_us` is the least
    time that the target's figures allow (`adrenoc.target.roofline`), None where they do not tell.
    """

    kernel: str
    node: str
    flops: int
    bytes: int
    floor_us: float | None = None
    tensors: tuple[str, ...] = ()


def launches_to_json(launches: Sequence[LaunchInfo]) -> str:
    """Launches as text, a line each."""
    lines = ",\n".join(json.dumps(asdict(launch), ensure_ascii=False) for launch in launches)
    return f"[\n{lines}\n]\n" if lines else "[]\n"


def launches_from_json(text: str, *, where: str) -> tuple[LaunchInfo, ...]:
    """Read them back; `where` names the file in messages.

    Raises:
        BundleError: it holds something else.
    """
    try:
        return tuple(_launch(entry) for entry in read_json(text))
    except (ValueError, TypeError) as error:
        raise BundleError(
            f"{where} does not hold launches: {error}",
            hint="compile the model again: adrenoc compile MODEL --device DEVICE",
        ) from error


def _launch(entry: dict[str, Any]) -> LaunchInfo:
    launch = LaunchInfo(**{**entry, "tensors": tuple(entry.get("tensors", ()))})
    floor = launch.floor_us
    is_whole = type(launch.flops) is int and type(launch.bytes) is int
    named = (launch.kernel, launch.node, *launch.tensors)
    is_named = all(isinstance(name, str) for name in named)
    is_time = floor is None or (type(floor) in (int, float) and math.isfinite(floor))
    if not (is_whole and is_named and is_time):
        raise ValueError("a launch has a value of another type")
    return launch
