"""Random quantised networks, in integers or between conversions: their integers come out equal."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from adrenoc.base.reporter import SilentReporter
from adrenoc.check.reference import run_reference
from adrenoc.compile.pipeline import State, run_stages
from adrenoc.ir.options import resolve_options
from adrenoc.target.target import load_target
from tests.host.random_graphs.draw import TARGETS
from tests.host.random_graphs.grower import Between, Chooser
from tests.host.run_op import CHECKED, execute
from tests.qoperator import QNet, with_conversions

CHANNELS = (3, 4, 8, 16, 17, 32)
EXTENTS = (5, 7, 8, 9, 13, 16)
PRESETS = ("fp32", "mixed", "fp16")
MOST_QUANTA = 1
"""What a result may be off by."""


@dataclass(frozen=True, kw_only=True)
class QuantisedCase:
    """A network of integers, its input, and how it is compiled."""

    model: onnx.ModelProto
    image: np.ndarray
    preset: str
    target: str

    def check(self, device) -> None:
        """Compile, run, compare with onnxruntime."""
        target = load_target(self.target)
        options = resolve_options(target, preset=self.preset, command_line=CHECKED).options
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "quantised.onnx"
            self.save(path)
            (expected,) = run_reference(path, {"x": self.image}).values()
            state = State(model=path, target=target, options=options)
            state, _ = run_stages(state, reporter=SilentReporter())
            (seen,) = execute(state, [self.image], device)
        assert seen.dtype == expected.dtype
        off = np.abs(seen.astype(int) - expected.astype(int))
        assert off.max() <= MOST_QUANTA, f"{off.max()} quanta, {np.mean(off > 0):.2%} differ"

    def save(self, path: Path) -> None:
        onnx.save(self.model, path)


def draw_quantised(between: Between) -> QuantisedCase:
    """Convolutions, sums, pools and a product, of bytes with or without sign."""
    choose = Chooser(between)
    dtype = choose.one_of(("uint8", "int8"))
    shape = (choose.one_of((1, 1, 2)), choose.one_of(CHANNELS), *_image(choose))
    net = QNet(shape, dtype=dtype, seed=between(0, 1000))
    _conv(choose, net)
    before = [(net.tensor, net.scale, net.zero, net.shape_now)]
    for _ in range(between(1, 5)):
        alike = [known[:3] for known in before if known[3] == net.shape_now]
        kind = between(0, 9)
        if kind > 6 and alike:
            net.add(*choose.one_of(alike))
        elif kind == 6 and min(net.shape_now[2:]) > 2:
            n, c, h, w = net.shape_now
            window = {"kernel_shape": [2, 2], "strides": [2, 2]}
            net.node("MaxPool", (n, c, h // 2, w // 2), **window)
        else:
            _conv(choose, net)
        before.append((net.tensor, net.scale, net.zero, net.shape_now))
    if choose.maybe():
        net.gemm(choose.one_of((5, 10, 33)))
    model = net.model()
    return QuantisedCase(
        model=with_conversions(model) if choose.maybe() else model,
        image=net.image(),
        preset=choose.one_of(PRESETS),
        target=choose.one_of(TARGETS),
    )


def _image(choose: Chooser) -> tuple[int, int]:
    return choose.one_of(EXTENTS), choose.one_of(EXTENTS)


def _conv(choose: Chooser, net: QNet) -> None:
    channels, least = net.shape_now[1], min(net.shape_now[2:])
    kernel = choose.one_of([k for k in (1, 1, 2, 3, 3, 5) if k <= least])
    group = choose.one_of([g for g in (1, 1, 2, channels) if channels % g == 0])
    made = group * choose.one_of((1, 2) if group == channels > 1 else (1, 3, 4, 8, 16, 24))
    net.conv(
        made,
        kernel=kernel,
        stride=choose.one_of((1, 1, 2)),
        group=group,
        pad=choose.one_of((None, None, 0)),
        per_channel=choose.maybe(),
        bias=choose.maybe(),
    )
