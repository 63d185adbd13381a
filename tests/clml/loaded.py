"""One region, loaded without the rest of a compilation."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import tvm

from adrenoc.clml.region import ClmlRegion, runtime_module
from tests.clml.every_operator import SHAPE
from tests.clml.regions import cut, module_of, random
from tests.stock_tvm import run_on_cpu

INPUT = random(*SHAPE, seed=9)


@cache
def expected(function) -> np.ndarray:
    """What TVM computes of `INPUT` on the CPU."""
    return run_on_cpu(module_of(function, SHAPE), [INPUT])[0]


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """The one region that a function becomes, loaded."""

    region: ClmlRegion
    runtime: Any
    function: Any
    device: Any

    def usable(self) -> bool:
        given = tvm.runtime.tensor(INPUT, self.device)
        return bool(self.runtime[f"{self.region.symbol}_usable"](self.region.version, given))

    def facts(self) -> dict[str, Any]:
        """What the device made of it."""
        return {str(k): v for k, v in self.runtime["adrenoc.clml.prepare"](0).items()}

    def run(self) -> None:
        """Run it, and compare."""
        out = tvm.runtime.empty(expected(self.function).shape, "float32", self.device)
        self.runtime[self.region.symbol](tvm.runtime.tensor(INPUT, self.device), out)
        assert np.allclose(out.numpy(), expected(self.function), atol=1e-3)


def load(function, device) -> Loaded:
    """Make and load the region of a function of `every_operator.py`."""
    (region,) = cut(module_of(function, SHAPE)).regions
    runtime = runtime_module(region)
    constants = [tvm.runtime.tensor(value) for _, value in region.constants()]
    runtime[f"__init_{region.symbol}"](constants)
    return Loaded(region=region, runtime=runtime, function=function, device=device)
