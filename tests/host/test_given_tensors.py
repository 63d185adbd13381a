"""What a caller hands to `main` is looked at, though most launchers do not look again."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from adrenoc.base.reporter import SilentReporter
from adrenoc.compile.compiler import Compiled, compile_model
from adrenoc.ir.options import resolve_options
from adrenoc.target.target import load_target
from tests.models import graph, write


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> Compiled:
    nodes = (
        "c = Conv <pads = [1, 1, 1, 1]>(x, w) p = MaxPool <kernel_shape = [3, 3]>(c) y = Conv(p, v)"
    )
    values = np.random.default_rng(0).standard_normal((8, 8, 3, 3)).astype(np.float32)
    model = graph(nodes, {"x": [1, 8, 9, 9]}, ["y"], {"w": values, "v": values})
    target = load_target("host")
    return compile_model(
        write(model, tmp_path_factory.mktemp("net")),
        target=target,
        options=resolve_options(target, preset="buffer").options,
        reporter=SilentReporter(),
    )


def _of_less(value: np.ndarray) -> np.ndarray:
    return value.reshape(-1)[:-4]


def _in_double(value: np.ndarray) -> np.ndarray:
    return value.astype(np.float64)


def _call(compiled: Compiled, device, *, change: Callable[..., Any], at: int):
    """`main` with the argument `at`, an input or a constant, changed on its way to `device`."""
    import tvm
    from tvm import relax

    values = [np.zeros((1, 8, 9, 9), np.float32)]
    values += [compiled.params[spec.name] for spec in compiled.param_specs]
    places = [device] * len(values)
    if change is tvm.cpu:
        places[at] = tvm.cpu()
    else:
        values[at] = change(values[at])
    given = [tvm.runtime.tensor(v, p) for v, p in zip(values, places, strict=True)]
    result = relax.VirtualMachine(compiled.library, [device, tvm.cpu()])["main"](*given)
    device.sync()
    return result


@pytest.mark.parametrize("at", [0, 1, 2], ids=["input", "constant", "another"])
def test_what_does_not_fit_is_refused(compiled, device, at):
    import tvm

    _call(compiled, device, change=np.ascontiguousarray, at=at)
    for change in (_of_less, _in_double, tvm.cpu):
        with pytest.raises((ValueError, TypeError, RuntimeError, AssertionError)):
            _call(compiled, device, change=change, at=at)
