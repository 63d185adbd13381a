"""What is timed on a device: a small kernel with its threads and tensors, or an
operation of the host: what a run does beside kernels
(`adrenoc/native/src/trials/host_operations.h`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

Size = tuple[int, int, int]
NAME = "probe"
"""The name of every kernel that measures are made with."""
THREADS = 64
"""The threads of a work-group, where a measure is not about them."""


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """An argument: a buffer (`global`), or an array of images of four lanes (`global.texture`).

    `value` is uploaded.  Without one it holds what kernels of the same request wrote to a tensor of
    this shape and type.
    """

    shape: tuple[int, ...]
    dtype: str
    scope: str = "global"
    value: np.ndarray | None = field(default=None, compare=False)

    @staticmethod
    def from_value(value: np.ndarray, scope: str = "global") -> Tensor:
        """The tensor that holds `value`."""
        return Tensor(shape=value.shape, dtype=str(value.dtype), scope=scope, value=value)


def texture(value: np.ndarray) -> Tensor:
    """An array of images of these texels: [layers, height, width, 4]."""
    return Tensor.from_value(value, "global.texture")


def count(number: int) -> Tensor:
    """How often a loop runs, which no compiler is to know."""
    return Tensor.from_value(np.array([number, 0, 0, 0], np.int32))


@dataclass(frozen=True, kw_only=True)
class MicroKernel:
    """One kernel; the last argument is its output, all of which every run writes alike."""

    source: str
    arguments: tuple[Tensor, ...]
    threads: Size = (THREADS, 1, 1)
    group: Size = (THREADS, 1, 1)


@dataclass(frozen=True, kw_only=True)
class HostOperation:
    """What the host does, by the words of `host_operations.h`: `{"operation": "large", ...}`."""

    words: Mapping[str, str | int]


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What came of kernels or operations in turn: for each, the time of one in each round (us).

    `build_ms` is of all of them together; `output` is that of the last; `clock_mhz` and
    `temperature_c` are 0 where the device does not tell.  `by_host`: its events told of no time, so
    the host's clock did.
    """

    times_us: tuple[tuple[float, ...], ...]
    build_ms: float = 0.0
    output: np.ndarray | None = None
    clock_mhz: float = 0.0
    temperature_c: float = 0.0
    by_host: bool = False


class ProbeError(Exception):
    """A kernel that did not build, broke the device, or did not end; the text says which.

    `index` is its number among those of the request, -1 where that is not known.
    """

    def __init__(self, text: str, index: int = -1) -> None:
        super().__init__(text)
        self.index = index
